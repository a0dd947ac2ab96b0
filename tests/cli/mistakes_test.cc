// SPDX-License-Identifier: Apache-2.0
// Every mistake at the command line: exit code 2, one line on standard error that says what, where and what would be right, nothing
// on standard output, nothing written.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <unistd.h>

#include "models/run.h"
#include "tensor/safetensors.h"
#include "tests/cli/program.h"

using namespace heed;
namespace fs = std::filesystem;

namespace {

struct Row {
  const char* line;
  const char* says;                                // regular expression, searched for
};

const Row kRows[] = {
    // commands and flags
    {"tranlate --run run", "^heed: unknown command: tranlate; did you mean translate\\?"},
    {"xyzzy", "^heed: unknown command: xyzzy; there are data, train, "},
    {"train --data data --out new --widht 8", "unknown flag: --widht; did you mean --width\\? `heed train --help`"},
    {"train --data data --out new --batch 8", "unknown flag: --batch; did you mean --batch-tokens\\? "},
    {"train --data data --out new --lr 1", "unknown flag: --lr; did you mean --learning-rate\\? "},
    {"train --data data --out new --Learning_rate 1", "unknown flag: --Learning_rate; did you mean --learning-rate\\? "},
    {"translate --run run --beam-size 4", "unknown flag: --beam-size; did you mean --beam\\? "},
    {"translate --run run --beem=4", "unknown flag: --beem; did you mean --beam"},
    {"train --data data --out new -w 8", "unknown flag: -w; "},
    {"train data --out new", "unexpected word: \"data\"; "},
    {"train --data --out new", "no value: --data before --out; DIR"},
    {"train --data data --out", "no value: --out; "},
    {"train --data data --out new --width 8 --width 16", "given more than once: --width; "},
    {"train --train-files s --out new", "too few values: --train-files s; "},
    {"train --data data", "missing: --out; "},
    {"translate", "missing: --run; "},
    {"score --hypotheses s", "missing: --references; "},
    {"inspect", "missing: PATH; "},
    {"inspect ''", "missing: PATH; "},
    {"diff s ''", "missing: B; "},
    {"data", "missing: TASK; heed data TASK --out DIR"},
    {"data copi --out new", "unknown task: copi; did you mean copy"},
    // values
    {"train --data data --out new --lowercase=no", "wrong type: --lowercase=no; true or false"},
    {"train --data data --out new --resume=0", "wrong type: --resume=0; true or false"},
    {"score --hypotheses s --references t --json=", "no value: --json=; true or false"},
    {"score --hypotheses s --references t --json --json=false", "given more than once: --json; true or false"},
    {"train --data data --out new --threads 0", "out of range: --threads 0; a whole number in \\[1, 1024\\]"},
    {"train --data data --out new --threads -1", "out of range: --threads -1; "},
    {"train --data data --out new --threads 1e9", "not a whole number: --threads 1e9; "},
    {"train --data data --out new --seed 18446744073709551615", "out of range: --seed 18446744073709551615; "},
    {"train --data data --out new --seed 9000000000000000001",
     "out of range: --seed 9000000000000000001; a whole number in \\[0, 9000000000000000000\\]"},
    {"train --data data --out new --seed 1.5", "not a whole number: --seed 1.5; "},
    {"train --data data --out new --threads 99999999999999999999",
     "out of range: --threads 99999999999999999999; a whole number in \\[1, 1024\\]"},
    {"train --data data --out new --layers 3000000000", "out of range: --layers 3000000000; a whole number in \\[1, 100\\], default 2"},
    {"train --data data --out new --learning-rate nan", "out of range: --learning-rate nan; a number in \\[0, 1000000\\], default 0.002"},
    {"train --data data --out new --learning-rate inf", "out of range: --learning-rate inf; "},
    {"train --data data --out new --learning-rate -0.1", "out of range: --learning-rate -0.1; "},
    {"train --data data --out new --learning-rate fast", "wrong type: --learning-rate fast; a number"},
    {"train --data data --out new --learning-rate 0,1", "wrong type: --learning-rate 0,1; a number"},
    {"train --data data --out new --dropout 1.5", "out of range: --dropout 1.5; a number in \\[0, 1\\], default 0.05"},
    {"train --data data --out new --average 1", "out of range: --average 1; a number in \\[0, 1\\)"},
    {"train --data data --out new --batch-tokens -5", "out of range: --batch-tokens -5; "},
    {"train --data data --out new --batch-tokens 5 --batch-sentences 5", "both given; one of"},
    {"train --data data --out new --precision int8", "unknown name: --precision int8; one of float32, bfloat16, default float32"},
    {"train --data data --out new --norm past", "unknown name: --norm past; did you mean post\\? one of post, pre, default post"},
    {"train --data data --out new --model ltsm",
     "unknown name: --model ltsm; did you mean lstm\\? one of transformer, rnn, lstm, gru, default transformer"},
    {"train --data data --out new --model gru --heads 2",
     "not an option of this model: --heads 2 --model gru; it belongs to --model transformer"},
    {"train --data data --out new --input-feeding",
     "not an option of this model: --input-feeding --model transformer; it belongs to --model rnn, lstm and gru"},
    {"train --data data --out new --model lstm --attention generl", "unknown name: --attention .*generl.*; .*general, .*local-p"},
    {"train --data data --out new --model lstm --decoder cho --attention dot",
     "a decoder without attention: --decoder cho --attention dot; --decoder bahdanau, conditional or luong, or --attention none"},
    {"train --data data --out new --model lstm --decoder cho-exact",
     "a decoder with the reset gate of a GRU: --decoder cho-exact --model lstm; --model gru, or --decoder cho"},
    {"train --data data --out new --model gru --start-state context",
     "no context that stays: --start-state context --attention additive; --start-state last, or --decoder cho"},
    {"compare --data data --attention cho-exact,cho --model rnn --out new",
     "a decoder with the reset gate of a GRU: --decoder cho-exact --model rnn; --model gru, or --decoder cho"},
    {"train --data data --out new --model gru --layers 2",
     "more than one layer: --decoder bahdanau --layers 2; --decoder-layers 1, or --decoder luong"},
    {"train --data data --out new --width 250 --heads 8",
     "the heads do not divide the width: --width 250 --heads 8; --width 248 or 256 would do, or --heads 10"},
    {"train --data data --out new --warmup 0", "no warm-up: --schedule inverse_sqrt --warmup 0; "},
    {"train --data data --out new --schedule cosine --warmup 10 --steps 10", "the warm-up does not end: .*10 updates planned"},
    {"train --data data --out new --schedule cosine --minutes 1", "where does the schedule end: --schedule cosine; give --schedule-steps"},
    {"train --data data --out new --layers 100 --width 65536 --heads 8", "too large a model: .*this machine has [0-9]+ GiB"},
    {"train --data data --out new --model lstm --layers 100 --width 65536",
     "too large a model: --layers 100 --width 65536; its 6.88e\\+12 parameters need .*this machine has [0-9]+ GiB"},
    {"train --data data --out new --momentum 0.9",
     "not an option of this optimizer: --momentum 0.9 --optimizer adam; it belongs to sgd and rmsprop"},
    {"train --data data --out new --optimizer rmsprop --eps 1e-5",
     "not an option of this optimizer: --eps 1e-05 --optimizer rmsprop; it belongs to adam and adamw"},
    {"train --data data --out new --optimizer sgd --beta1 0.5",
     "not an option of this optimizer: --beta1 0.5 --optimizer sgd; it belongs to adam and adamw"},
    {"train --data data --out new --optimizer sgd --beta2 0.9",
     "not an option of this optimizer: --beta2 0.9 --optimizer sgd; it belongs to adam and adamw"},
    {"train --data data --out new --schedule-steps 9",
     "not an option of this schedule: --schedule-steps 9 --schedule inverse_sqrt; it belongs to linear, cosine and step"},
    {"compare --data data --attention dot,transfomer --out new",
     "unknown name: --attention \"transfomer\"; did you mean transformer\\? one of transformer, cho, cho-exact, sutskever, none, mean, "},
    {"compare --data data --attention none,dot --out new --heads 2",
     "not an option of this model: --heads 2 --model gru.*; it belongs to --model transformer"},
    {"compare --data data --attention none,transformer --out new --window 3",
     "not an option of this model: --window 3 --model gru.*; it belongs to --attention local-m and local-p"},
    {"compare --data data --attention transformer --out new --model lstm",
     "not an option of these models: --model lstm --attention transformer; leave out --model"},
    {"compare --data data --attention dot --out new --seed 9000000000000000000 --seeds 2",
     "out of range: --seed 9000000000000000000 --seeds 2; all of them at most 9000000000000000000"},
    {"compare --data data --attention cho,dot --out new --decoder sutskever",
     "a decoder without attention: --decoder sutskever --attention dot; "},
    {"compare --data data --attention cho,sutskever --out new --decoder luong",
     "a decoder by its name and another: --attention cho --decoder luong; leave out --decoder"},
    {"train --data data --out new --model gru --attention none --input-feeding --decoder luong",
     "nothing to feed: --input-feeding without attention; --attention general, or leave out --input-feeding"},
    {"compare --data data --attention dot --out new --momentum 0.9", "not an option of this optimizer: --momentum 0.9 --optimizer adam; "},
    {"translate --run run --beam 0", "out of range: --beam 0; a whole number in \\[1, 1000\\], default 1"},
    {"translate --run run --beam 2 --nbest 3", "more translations than hypotheses: --nbest 3 --beam 2; --beam 3 or more"},
    {"translate --run run --precision int4", "unknown name: --precision int4; did you mean int8\\? one of float32, bfloat16, int8"},
    {"translate --run run --sample --top-p 0", "out of range: --top-p 0; "},
    {"translate --run run --temperature 2", "nothing is drawn: --temperature 2; it goes with --sample"},
    {"translate --run run --top-p 0.5 --beam 2", "nothing is drawn: --top-p 0.5; it goes with --sample"},
    {"evaluate --run run --top-k 3", "nothing is drawn: --top-k 3; it goes with --sample"},
    {"evaluate --run run --seed 3", "nothing is drawn: --seed 3; it goes with --sample"},
    {"translate --run run --sample --beam 5", "nothing is searched: --sample --beam 5; one of them"},
    {"translate --run brief --extra-length 56", "out of range: --extra-length 56; at most 55 for this run"},
    {"translate --run brief --min-length 56", "out of range: --min-length 56; at most 55 for this run"},
    {"translate --run run --length-penalty none --alpha 2", "nothing is divided: --length-penalty none --alpha 2; leave out --alpha"},
    {"translate --run run --max-length 9999", "out of range: --max-length 9999; at most [0-9]+, as in training"},
    {"evaluate --run run --beam 2 --nbest 2", "unknown flag: --nbest; .*`heed evaluate --help`"},
    {"evaluate --run run --force --beam 2", "nothing is translated: --force --beam; one of them"},
    {"translate --run brief --prefix '1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 "
     "1 2 3 4 5'",
     "a long prefix: --prefix: 55 words; at most 54"},
    {"translate --run run --prefix '1\n2'", "a line end: --prefix; text of one line"},
    {"data copy --out new --train 100000 --symbols 2 --max-length 3", "more distinct sources asked for than exist"},
    {"data numbers --out new --from xx", "\"xx\" is none of"},
    {"data copy --out new --train 10000001", "out of range: --train 10000001; a whole number in \\[1, 10000000\\]"},
    {"data copy --out new --clauses 3", "not of this task: copy --clauses; it is of phrases"},
    {"data phrases --out new --symbols 4", "not of this task: phrases --symbols; it is of copy, reverse, sort"},
    {"data numbers --out new --to fr --spoken-and", "--spoken-and is for en: fr"},
    // files of data
    {"train --out new", "no data: --data; a directory made by `heed data`"},
    {"train --data data --train s --split-by-source --out new", "more than one source of data: --data --train"},
    {"train --train-files s t --out new", "no dev data: --train-files; give --dev-files"},
    {"train --train pairs.tsv --out new", "no dev data: --train pairs.tsv; give --split-by-source"},
    {"train --data data --split-by-source --out new", "nothing to split: --split-by-source; it goes with --train FILE"},
    {"train --data data --dev-files s t --out new",
     "files that would not be read: --dev-files .*s .*t; they go with --train-files, --data has its own parts"},
    {"train --train pairs.tsv --split-by-source --test-files s t --out new",
     "files that would not be read: --test-files .*; they go with --train-files, --split-by-source makes the parts of --train"},
    {"train --data data --split-dev 9 --out new", "nothing to split: --split-dev 9; it goes with --split-by-source"},
    {"train --data data --split-test 9 --out new", "nothing to split: --split-test 9; it goes with --split-by-source"},
    {"train --data data --out new --rho 0.95", "not an option of this optimizer: --rho 0.95 --optimizer adam; it belongs to adadelta"},
    {"train --data data --out new --schedule-after 5 --schedule linear",
     "not an option of this schedule: --schedule-after 5 --schedule linear; it belongs to step"},
    {"train --data data --out new --best-by chrf", "unknown name: --best-by chrf; one of bleu, loss, default bleu"},
    {"train --train-files special special --dev-files s t --tokenizer space --out new",
     "no word: the data have none but special symbols; other data"},
    {"train --data data --out new --min-count 100000", "no word is frequent enough: --min-count 100000; fewer"},
    {"train --data data --out new --config batch.json",
     "batches of tokens or of sentences: none given; one of --batch-tokens and --batch-sentences"},
    {"train --data data --out new --config end.json", "no end: neither --steps nor --epochs, --minutes, --patience"},
    {"train --data data --out new --model gru --attention none --guided-alignment 1",
     "a loss on attention without any: --guided-alignment 1; --attention general, or leave out --guided-alignment"},
    {"train --data data --out new --model gru --attention none --copy",
     "nothing to copy by: --copy without attention; --attention general, --copy-form copynet, or leave out --copy"},
    {"train --data data --out new --copy-form copynet", "a form of nothing: --copy-form copynet; with --copy"},
    {"train --data data --out new --copy --copy-form copy-net",
     "unknown name: --copy-form copy-net; did you mean copynet\\? one of pointer-generator, copynet, default pointer-generator"},
    {"train --data data --out new --copy --talking-heads", "weights that are no probabilities: --copy --talking-heads; one of them"},
    {"train --data data --out new --copy --differential", "weights that are no probabilities: --copy --differential; one of them"},
    {"train --data data --out new --guided-alignment 1 --talking-heads",
     "weights that are no probabilities: --guided-alignment 1 --talking-heads; one of them"},
    {"train --data data --out new --coverage-loss 0.5 --differential",
     "weights that are no probabilities: --coverage-loss 0.5 --differential; one of them"},
    {"train --data data --out new --copy --normalise exp", "weights that are no probabilities: --copy --normalise exp; one of them"},
    {"train --data data --out new --model gru --attention gaussian-exp --guided-alignment 1",
     "weights that are no probabilities: --guided-alignment 1 --attention gaussian-exp; one of them"},
    {"train --data data --out new --model gru --attention dot-exp --copy",
     "weights that do not sum to 1: --copy --attention dot-exp; another attention, gaussian has windows too, or --copy-form copynet"},
    {"train --data data --out new --model gru --attention local-m --copy",
     "weights that do not sum to 1: --copy --attention local-m; another attention, gaussian has windows too, or --copy-form copynet"},
    {"train --data data --out new --tokenizer bpe --min-count 5",
     "words that are not counted: --tokenizer bpe --min-count 5; leave out --min-count, all pieces stay"},
    {"train --data data --out new --model lstm --decoder sutskever --coverage-loss 0.5",
     "a loss on attention without any: --coverage-loss 0.5; --attention general, or leave out --coverage-loss"},
    {"train --train-files s t --dev-files s t --out new --guided-alignment 1",
     "no gold links: --guided-alignment 1; training data with a third column \"0-0 1-2\", source-target from 0"},
    {"train --data data --out new --tokenizer char --guided-alignment 0.5",
     "links of other words: --guided-alignment 0.5 --tokenizer char; the links of the data count by --tokenizer space"},
    {"train --data data --out new --guided-alignment -1", "out of range: --guided-alignment -1; "},
    {"train --data data --out new --model gru --attention none --decoder cho --context both_ends --one-direction",
     "one end only: --context both_ends --one-direction; --context every_step"},
    {"train --data nowhere --out new", "no such directory: --data .*nowhere; one with train.tsv, dev.tsv and test.tsv"},
    {"train --data half --out new", "unfinished data: --data .*half; "},
    {"train --data empty --out new", "no such file: .*empty/train.tsv; --data expects train.tsv, dev.tsv and test.tsv"},
    {"train --train-files nowhere t --dev-files s t --out new", "nowhere: cannot open: No such file or directory"},
    {"train --train-files s empty --dev-files s t --out new", "empty: cannot read: Is a directory"},
    {"train --train-files s nothing --dev-files s t --out new", "numbers of lines differ: .*s has 4, .*nothing has 0"},
    {"train --train nothing --split-by-source --out new", "nothing: empty file"},
    {"train --train binary --split-by-source --out new", "binary: not text: "},
    {"train --train s --split-by-source --out new", "s: line 1: one column, expected source TAB target: \"1 2\""},
    {"train --train links.tsv --split-by-source --split-dev 1 --split-test 0 --tokenizer space --out new",
     "links.tsv \\(train\\): line 2: link 7-0 points outside: source tokens 1, target tokens 1"},
    {"train --train badlink.tsv --split-by-source --out new", "badlink.tsv: line 1: .*0:0"},
    {"train --train pairs.tsv --split-by-source --split-dev 100 --out new", "nothing is left to train: dev 100, "},
    {"train --train-files long long --dev-files long long --max-length 1 --out new", "no pair is short enough: "},
    {"score --hypotheses s --references one", "numbers of lines differ: s has 4, one has 1"},
    {"score --hypotheses nothing --references s", "empty file: nothing"},
    {"score --hypotheses s --references s,", "a file without a name: --references s,; "},
    {"score --hypotheses - --references -", "standard input more than once: -; for one of --hypotheses, --references, --sources"},
    {"score --hypotheses empty --references s", "empty: cannot read: Is a directory"},
    {"evaluate --run run --data data --split tst", "no such file: .*data/tst.tsv; "},
    {"evaluate --run run --data data --files s t", "more than one source of data: --data --files"},
    {"score --hypotheses s --references t --sources one", "s has 4, one has 1; line n is the source of line n"},
    {"evaluate --run whole --split tst", "no such part: tst; the run knows train, dev, test"},
    {"attention --run run --source ' '", "an empty sentence: --source; at least one word"},
    {"explain --run brief --source '1 2 3 4 5'", "a long sentence: --source: 5 words; at most 4, as in training"},
    {"evaluate --run run --files s t --split dev", "parts are of --data or the run: --files s t --split dev; only one of them"},
    {"evaluate --run whole", "an empty part: .*pairs.tsv \\(test\\); at least one pair"},
    {"compare --train-files s t --dev-files s t --attention dot --out new",
     "no test part: --train-files and --dev-files alone; --test-files SOURCE TARGET, to evaluate --files, or --split dev"},
    {"compare --train pairs.tsv --split-by-source --split-dev 1 --split-test 0 --attention dot --out new",
     "an empty part: .*; at least one pair"},
    {"evaluate --run run --references s", "numbers of lines differ: .*test.tsv has 10, s has 4; line n is compared with line n"},
    {"evaluate --run run --force --references s", "nothing is translated: --force --references s; one of them"},
    {"train --data data --out new --sentencepiece s s --tokenizer word",
     "models that would not be read: --sentencepiece s s --tokenizer word; "},
    {"train --data data --out new --sentencepiece s s --vocabulary-size 9",
     "no pieces are learned: --sentencepiece s s --vocabulary-size 9; "},
    {"train --data data --out new --sentencepiece s s", "/s: not a SentencePiece model: malformed at byte "},
    {"train --data data --out new --sentencepiece nowhere s", "nowhere: cannot open"},
    {"train --data data --out new --sentencepiece stranger.model stranger.model",
     "an unknown table of normalisation: --sentencepiece .*stranger.model; "},
    {"train --data data --out new --tie all --sentencepiece one.model two.model",
     "two models for one vocabulary: --tie all --sentencepiece .*one.model .*two.model; the same model twice"},
    {"train --out run --resume --sentencepiece one.model two.model",
     "contradicts the run: --sentencepiece .*two.model, stored in run is none; "},
    {"train --data data --out new --vocabularies nowhere", "no such run: .*/nowhere; a directory that `heed train` made"},
    {"train --data data --out new --vocabularies empty", "no run: .*/empty has no config.json; "},
    {"train --data data --out new --vocabularies run --min-count 2",
     "words that are there already: --vocabularies run --min-count 2; only one of them"},
    {"train --data data --out new --vocabularies run --vocabulary-size 9",
     "words that are there already: --vocabularies run --vocabulary-size 9; "},
    {"train --data data --out new --vocabularies run --sentencepiece s s",
     "words that are there already: --vocabularies run --sentencepiece s s; "},
    {"train --data data --out new --vocabularies run --tokenizer char",
     "contradicts --vocabularies: --tokenizer char, in .*/run it is space; leave it out"},
    {"train --data data --out new --vocabularies run --lowercase",
     "contradicts --vocabularies: --lowercase=true, in .*/run it is false; leave it out"},
    {"train --data data --out new --vocabularies fewer --tie all",
     "two vocabularies: --tie all --vocabularies .*/fewer; --tie output, or a run with --tie all"},
    {"train --out run --resume --vocabularies other", "contradicts the run: --vocabularies .*/other, stored in run is none; "},
    {"evaluate --run run --force --out new", "nothing is translated: --force --out new; leave out --out"},
    {"evaluate --run run --out empty", "a directory: --out empty; the name of a file"},
    {"evaluate --run run --out nowhere/new", "cannot write: --out nowhere/new: .*nowhere: No such file or directory; "},
    {"evaluate --run run --files s t --out linked", "input and output are the same file: s and linked"},
    {"evaluate --run run --files s t --references long,one --out one",
     "input and output are the same file: one and one; another name for the output"},
    {"evaluate --run whole --split dev --out pairs.tsv", "input and output are the same file: .*/pairs.tsv and pairs.tsv"},
    {"evaluate --run parallel --out t", "input and output are the same file: .*/t and t"},
    {"evaluate --run parallel --split dev --out linked", "input and output are the same file: .*/s and linked"},
    // config files
    {"train --data data --out new --config nowhere", "nowhere: cannot open"},
    {"train --data data --out new --config unknown.json",
     "^heed train: unknown.json: unknown key \"modle\" at line 3; did you mean \"model\"\\?"},
    {"train --data data --out new --config twice.json", "twice.json: repeated key: \"width\" at line 3; it stands at line 2"},
    {"train --data data --out new --config type.json",
     "type.json: wrong type: \"width\" at line 2 is \"eight\"; a whole number in \\[1, 65536\\], default 128"},
    {"train --data data --out new --config range.json", "range.json: out of range: \"dropout\" at line 2 is 7"},
    {"train --data data --out new --config s", "s: not an object: line 1; one object of keys and values is expected"},
    {"train --data data --out new --config broken.json", "broken.json: no JSON: line 2"},
    {"train --data data --out new --config huge.json",
     "huge.json: out of range: \"learning-rate\" at line 2 is 1e400; a number in \\[0, 1000000\\], default 0.002"},
    {"compare --data data --out new --config type.json",
     "type.json: wrong type: \"width\" at line 2 is \"eight\"; a whole number in \\[1, 65536\\], default 128"},
    {"compare --data data --out new --config unknown.json",
     "^heed compare: unknown.json: unknown key \"modle\" at line 3; did you mean \"model\"\\?"},
    // runs
    {"train --data data --out run", "the run exists: --out run; --resume to go on with it, or another name"},
    {"train --out run", "the run exists: --out run; --resume to go on with it, or another name"},
    {"train --data d\xff --out new", "no UTF-8: --data .*d\uFFFD; config.json could not keep it"},
    {"train --data data --out new --model gru --attention none-sparsemax", "unknown name: --attention \"none-sparsemax\"; "},
    {"train --data data --out new --model gru --attention local-m-none", "unknown name: --attention \"local-m-none\"; "},
    {"train --data data --out data", "exists, is not empty and no run: --out data"},
    {"train --data data --out s", "no directory: --out s"},
    {"translate --run unnamed", "unnamed/source.tokenizer.json: tokenizer: no key \"name\": "},
    {"train --out nowhere --resume", "no such run: nowhere; "},
    {"train --out empty --resume", "no run yet: --out empty --resume; without --resume it begins"},
    {"train --out data --resume", "no run: data has no config.json; "},
    {"train --out run --resume --width 99", "contradicts the run: --width 99, stored in run is 8; "},
    {"train --out run --resume --data empty", "no such file: .*empty/train.tsv; "},
    {"train --out run --resume --data data2 --steps 9",
     "the data has changed since run/checkpoints/4.safetensors was written: .*data2/train.tsv"},
    {"train --out run --resume --train-files s t --dev-files s t", "more than one source of data: --data --train-files"},
    {"train --out run --resume --steps 9 --data data --seed 2", "contradicts the run: --seed 2, stored in run is 1"},
    {"train --out run --resume --precision bfloat16",
     "contradicts the run: --precision bfloat16, stored in run is float32; the stored value, or another --out"},
    {"train --out key --resume", "key/config.json: unknown key \"colour\" at line 2"},
    {"train --out missing --resume", "missing/config.json: missing key: \"dropout\"; a number in \\[0, 1\\], default 0.05"},
    {"train --out changed --resume",
     "changed/config.json: \"dropout\" has changed: 0.2, 0.05 when .*checkpoints/4.safetensors was written"},
    {"train --out moved --resume --steps 9", "the data has changed since .*4.safetensors was written"},
    {"train --out shrunk --resume --steps 9", "the data has changed since .*4.safetensors was written"},
    {"translate --run nowhere", "no such run: nowhere"},
    {"translate --run data", "no run: data has no config.json"},
    {"translate --run words", "words/target.vocabulary: .*line 7.*\"1\""},
    {"translate --run fewer", "best.safetensors: made with other vocabularies"},
    {"translate --run bare", "no weights: bare has neither best.safetensors nor a checkpoint"},
    {"translate --run run --checkpoint nowhere", "nowhere: cannot open"},
    {"translate --run run --checkpoint s", "s: no safetensors file: "},
    {"translate --run run --checkpoint cut.safetensors", "cut.safetensors: "},
    {"translate --run run --checkpoint other/best.safetensors", "does not fit the model; unexpected: core.decoder.layers.1"},
    {"train --data data --out new --init nowhere", "nowhere: cannot open"},
    {"train --data data --out new --layers 1 --width 8 --heads 2 --feed-forward 8 --init nan.safetensors",
     "nan.safetensors: weights that are not finite: core\\.decoder\\."},
    {"train --data data --out new --init other/best.safetensors", "does not fit the model; "},
    {"attention --run run --source ''", "an empty value: --source \"\"; "},
    {"explain --run run --source 1 --target ''", "an empty value: --target \"\"; "},
    {"attention --run run --source 1 --out a.pdf", "unknown kind of picture: --out a.pdf; a name that ends in .svg, .html or .txt"},
    {"attention --run run --source 1 --out a.html --numbers",
     "numbers go into the cells of an SVG: --numbers --out a.html; --out FILE.svg"},
    {"attention --run run --source 1 --numbers", "numbers go into the cells of an SVG: --numbers; --out FILE.svg"},
    {"attention --run run --source 1 --out nowhere/a.svg", "cannot write: --out nowhere/a.svg: .*nowhere: No such file or directory; "},
    {"attention --run run --source 1 --target 2 --links 0-7", "a link points outside: 0-7 in --links; 1 source and 1 target words, from 0"},
    {"attention --run run --source 1 --links 0:0", "a link is written i-j"},
    {"attention --run brief --source 1 --target '1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 "
     "1 2 3 4 5 1 2 3 4 5'",
     "a long sentence: --target: 55 words; at most 54"},
    {"attention --run run --source 1 --align-to output", "unknown name: --align-to output; "},
    {"compare --data data --out new", "missing: --attention; "},
    {"compare --data data --attention dot", "missing: --out; "},
    {"compare --data data --attention dott --out new",
     "unknown name: --attention \"dott\"; .*one of transformer, cho, cho-exact, sutskever, none, "},
    {"compare --data data --attention dot,,general --out new", "an empty name: --attention \"dot,,general\""},
    {"compare --data data --attention dot,dot --out new", "given twice: dot in --attention dot,dot; each name once"},
    {"compare --data data --attention dot --split tst --out new", "no such file: .*data/tst.tsv"},
    {"compare --data nowhere --attention dot --out new", "no such directory: --data .*nowhere"},
    {"compare --data data --attention dot --out s", "no directory: --out s"},
    {"compare --data data --attention dot --out data", "exists, is not empty and no comparison: --out data; the name of a new directory"},
    {"compare --data data --attention dot --out run", "exists, is not empty and no comparison: --out run; "},
    {"compare --data data --attention dot --out s/new", "cannot make the directory: --out s/new: Not a directory; "},
    {"explain --run run", "missing: --source; "},
    {"explain --run run --source 1 --step 0", "out of range: --step 0; "},
    {"explain --run run --source 1 --target 2 --step 3", "no such step: --step 3; the translation has 2 words, its end counted"},
    {"explain --run run --source 1 --layer 2", "no such layer: --layer 2; the model has 1"},
    {"explain --run run --source 1 --head 9", "no such head: --head 9; the model has "},
    {"trace --run run --source 1", "missing: --out; "},
    {"trace --run run --source 1 --out a.bin", "unknown kind of file: --out a.bin; a name that ends in .safetensors"},
    {"trace --run run --source 1 --out nowhere/a.safetensors", "cannot write: --out nowhere/a.safetensors: .*nowhere: No such file or directory; "},
    {"trace --run run --source 1 --out run/best.safetensors", "same file"},
    {"attention --run run --checkpoint weights.svg --source 1 --out weights.svg", "same file: weights.svg and weights.svg"},
    {"attention --run parallel --source 1 --out t.svg", "same file: .*/t and t.svg"},
    {"evaluate --run run --ensemble weights.svg --files s t --out weights.svg", "same file: weights.svg and weights.svg"},
    {"evaluate --run parallel --files one one --out t", "same file: .*/t and t"},
    {"evaluate --run whole --files s t --out pairs.tsv", "same file: .*/pairs.tsv and pairs.tsv"},
    {"trace --run run --source 1 --out data/../run/checkpoints/3.safetensors",
     "a file of a run: --out data/../run/checkpoints/3.safetensors; another name"},
    {"trace --run run --source 1 --out other/best.safetensors", "a file of a run: --out other/best.safetensors; another name"},
    {"evaluate --run run --data data --split nope",
     "no such file: .*data/nope.tsv; --data expects train.tsv, dev.tsv and test.tsv in its directory, where there is dev.tsv, test.*.tsv, "
     "train.tsv"},
    {"evaluate --run run --out data2/dev.tsv", "a file of data: --out data2/dev.tsv; another name"},
    {"evaluate --run run --out run/metrics.jsonl", "a file of a run: --out run/metrics.jsonl; another name"},
    {"evaluate --run run --out run/data.sha256", "a file of a run: --out run/data.sha256; another name"},
    {"attention --run run --source 1 --out run/attention/sentence-1-step-000004.svg",
     "a file of a run: --out run/attention/sentence-1-step-000004.svg; "},
    {"diff s", "missing: B; heed diff A B [--tolerance X]"},
    {"diff s s", "s: no safetensors file: "},
    {"inspect nowhere", "nowhere: cannot open"},
    {"inspect data", "no run: data has no config.json"},
    {"check-gradients --only nothing", "no such function: --only nothing; "},
    {"inspect s", "s: no safetensors file: "},
};

std::string with(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != text.npos);
  return text.replace(text.find(from), from.size(), to);
}

void prepare(const TemporaryFolder& folder) {
  const auto must = [&](const std::string& line) {
    const Result result = heed_in(folder.path(), line);
    REQUIRE_MESSAGE(result.code == 0, result.err);
  };
  must("data copy --out data --symbols 5 --max-length 4 --train 50 --dev 10 --test 10");
  const std::string tiny = " --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 2 --steps 4 --quiet";
  must("train --data data --out run" + tiny);
  must("train --data data --out other --layers 2 --width 8 --heads 2 --feed-forward 8 --warmup 2 --steps 1 --quiet");
  must("train --data data --out brief --max-length 4" + tiny);
  write_text(folder / "pairs.tsv", "1\t1\n2\t2\n3\t3\n");
  must("train --train pairs.tsv --split-by-source --split-dev 1 --split-test 0 --out whole" + tiny);
  fs::create_directory(folder / "empty");
  fs::create_directory(folder / "half");
  write_text(folder / "half/.unfinished", "");
  write_text(folder / "half/train.tsv", "1\t1\n");
  // Protobuf: a piece "a"; a normaliser of a table that is nobody's.
  write_text(folder / "one.model", "\x0a\x03\x0a\x01""a");
  write_text(folder / "two.model", "\x0a\x03\x0a\x01""b");
  write_text(folder / "stranger.model", "\x0a\x03\x0a\x01""a\x1a\x03\x12\x01T");
  write_text(folder / "s", "1 2\n3\n4 5\n1\n");
  write_text(folder / "t", "1 2\n3\n4 5\n1\n");
  must("train --train-files s t --dev-files s t --test-files s t --out parallel" + tiny);
  write_text(folder / "long", "1 2\n3 4\n");
  write_text(folder / "one", "1 2\n");
  write_text(folder / "nothing", "");
  write_text(folder / "special", "<unk> </s>\n");
  write_text(folder / "binary", std::string(5000, '\0'));
  write_text(folder / "links.tsv", "1\t1\t0-0\n2\t2\t7-0\n3\t3\n4\t4\n5\t5\n6\t6\n");
  write_text(folder / "badlink.tsv", "1\t1\t0:0\n");
  fs::create_hard_link(folder / "s", folder / "linked");
  fs::create_hard_link(folder / "t", folder / "t.svg");
  fs::copy_file(folder / "run/best.safetensors", folder / "weights.svg");
  write_text(folder / "batch.json", "{\n  \"batch-tokens\": null\n}\n");
  write_text(folder / "end.json", "{\n  \"steps\": null\n}\n");
  write_text(folder / "unknown.json", "{\n  \"width\": 8,\n  \"modle\": \"transformer\"\n}\n");
  write_text(folder / "twice.json", "{\n  \"width\": 8,\n  \"width\": 16\n}\n");
  write_text(folder / "type.json", "{\n  \"width\": \"eight\"\n}\n");
  write_text(folder / "range.json", "{\n  \"dropout\": 7\n}\n");
  write_text(folder / "huge.json", "{\n  \"learning-rate\":\n  1e400\n}\n");
  write_text(folder / "broken.json", "{\n  \"width\" 8\n}\n");
  write_text(folder / "cut.safetensors", text_of(folder / "run/best.safetensors").substr(0, 2000));
  const SafetensorsFile best = read_safetensors(folder / "run/best.safetensors");
  std::map<std::string, Tensor> broken = best.tensors;
  broken.begin()->second = full(broken.begin()->second.shape(), NAN);
  write_safetensors(folder / "nan.safetensors", broken, best.metadata);
  const std::string config = text_of(folder / "run/config.json");
  for (const char* copy : {"key", "missing", "changed", "moved", "shrunk", "words", "fewer", "bare", "unnamed"})
    fs::copy(folder / "run", folder / copy, fs::copy_options::recursive);
  write_text(folder / "unnamed/source.tokenizer.json", "{\"lowercase\": true}\n");
  write_text(folder / "key/config.json", with(config, "{\n", "{\n  \"colour\": 1,\n"));
  write_text(folder / "missing/config.json", with(config, "  \"dropout\": 0.05,\n", ""));
  write_text(folder / "changed/config.json", with(config, "\"dropout\": 0.05", "\"dropout\": 0.2"));
  fs::copy(folder / "data", folder / "data2");
  write_text(folder / "data2/train.tsv", text_of(folder / "data/train.tsv") + "1\t1\n");
  fs::copy(folder / "data", folder / "data3");
  write_text(folder / "data3/train.tsv", "1\t1\n");
  write_text(folder / "shrunk/config.json", with(config, "/data\"", "/data3\""));
  write_text(folder / "moved/config.json", with(config, "/data\"", "/data2\""));
  const std::string words = text_of(folder / "run/target.vocabulary");
  write_text(folder / "words/target.vocabulary", with(words, words.substr(words.find("</s>") + 5), "1\n1\n"));
  write_text(folder / "fewer/target.vocabulary", words.substr(0, words.rfind('\n', words.size() - 2) + 1) + "other\n");
  fs::remove(folder / "bare/best.safetensors");
  fs::remove_all(folder / "bare/checkpoints");
}

}  // namespace

TEST_CASE("cli: every mistake is one line with a hint, exit code 2, and nothing written") {
  const TemporaryFolder folder;
  prepare(folder);
  const std::string before = listing(folder.path());
  for (const auto& [line, says] : kRows) {
    const std::string call = std::string("heed ") + line;
    INFO(call);
    const Result result = heed_in(folder.path(), line);
    CHECK_MESSAGE(result.code == 2, result.err);
    CHECK(result.out.empty());
    CHECK_MESSAGE(std::ranges::count(result.err, '\n') == 1, result.err);
    CHECK_MESSAGE(result.err.ends_with("\n"), result.err);
    CHECK_MESSAGE(result.err.starts_with("heed"), result.err);
    CHECK_MESSAGE(std::regex_search(result.err, std::regex(says)), result.err);
    CHECK((listing(folder.path()) == before));
  }
}

TEST_CASE("cli: a path that cannot be followed") {
  const TemporaryFolder folder;
  fs::create_symlink("loop", folder / "loop");
  write_text(folder / "pairs.tsv", "1\t1\n2\t2\n3\t3\n");
  for (const std::string line :
       {"train --train pairs.tsv --split-by-source --split-dev 1 --split-test 0 --out loop", "train --data loop --out new",
        "translate --run loop", "data copy --out loop", "inspect loop", "evaluate --run loop/run"}) {
    INFO(line);
    const Result result = heed_in(folder.path(), line);
    CHECK(result.code == 2);
    CHECK(result.out.empty());
    CHECK_MESSAGE(std::regex_match(result.err, std::regex("heed " + line.substr(0, line.find(' ')) +
                                                          ": [^ ]*loop[^ ]*: Too many levels of symbolic links\n")),
                  result.err);
  }
  for (const std::string& path : {folder / "loop", std::string(5000, 'a')}) {
    CHECK_THROWS_AS(is_vacant(path), FileError);
    CHECK_THROWS_AS(open_run(path), FileError);
    CHECK_THROWS_AS(create_run({path, {}, {}, {}}), FileError);
    CHECK_THROWS_AS(best_step({path, {}, {}, {}}), FileError);
  }
}

TEST_CASE("cli: HEED_THREADS is read where it counts") {
  const TemporaryFolder folder;
  const auto code = [&](const std::string& line, const std::string& threads) {
    return Program{.words = split(line), .folder = folder.path(), .environment = {"HEED_THREADS=" + threads}}.run().code;
  };
  CHECK(code("data copy --out one --train 9 --dev 2 --test 2", "abc") == 2);
  CHECK(!std::filesystem::exists(folder / "one"));
  CHECK(code("data copy --out one --train 9 --dev 2 --test 2", "") == 0);
  CHECK(code("train --help", "abc") == 0);
  const std::string tiny = "train --data one --width 8 --heads 2 --steps 1 --quiet --out ";
  CHECK(code(tiny + "a --threads 2", "0") == 0);
  CHECK(code(tiny + "b --threads=2", "0") == 0);
  CHECK(code(tiny + "c", "0") == 2);
}

TEST_CASE("cli: another training holds the run") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 10 --test 10").code == 0);
  REQUIRE(heed_in(folder.path(), "train --data data --out run --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 2 --steps 2 --quiet")
              .code == 0);
  const RunLock lock(folder / "run");
  const Result second = heed_in(folder.path(), "train --out run --resume --steps 4");
  CHECK(second.code == 2);
  CHECK_MESSAGE(second.err.find("another training holds run: process " + std::to_string(::getpid())) != std::string::npos, second.err);
  CHECK(heed_in(folder.path(), "translate --run run --quiet", "1\n").code == 0);            // reading needs no lock

  // One that begins at the same time leaves the files of the other alone.
  fs::create_directory(folder / "begun");
  const RunLock first(folder / "begun");
  write_text(folder / "begun/source.vocabulary", "of the first");
  const Result late = heed_in(folder.path(), "train --data data --out begun --layers 1 --width 8 --heads 2 --feed-forward 8 --steps 2");
  CHECK(late.code == 2);
  CHECK_MESSAGE(late.err.find("another training holds begun") != std::string::npos, late.err);
  CHECK(text_of(folder / "begun/source.vocabulary") == "of the first");
}

TEST_CASE("cli: what a killed `heed data` left is made again, other files are left alone") {
  const TemporaryFolder folder;
  const std::string make = "data copy --symbols 5 --max-length 4 --train 50 --dev 10 --test 10 --out ";
  fs::create_directories(folder / "half");
  for (const char* file : {".unfinished", "train.tsv", "test-pairs.tsv", ".heed-tmp-1-2"})
    write_text(folder / ("half/" + std::string(file)), "half");
  write_text(folder / "half/mine", "mine");
  REQUIRE(heed_in(folder.path(), make + "half").code == 0);
  REQUIRE(heed_in(folder.path(), make + "whole").code == 0);
  for (const char* file : {"train.tsv", "dev.tsv", "test.tsv", "task.json"})
    CHECK(text_of(folder / ("half/" + std::string(file))) == text_of(folder / ("whole/" + std::string(file))));
  CHECK(std::distance(fs::directory_iterator(folder / "half"), {}) == 6);    // and test-long.tsv
  CHECK(text_of(folder / "half/mine") == "mine");
  const std::string before = listing(folder.path());
  CHECK(heed_in(folder.path(), make + "half").err.find("exists and is not empty: --out half") != std::string::npos);
  CHECK((listing(folder.path()) == before));
}

TEST_CASE("cli: two `heed data` do not write into one directory") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  const int mark = ::open((folder / "out/.unfinished").c_str(), O_RDWR | O_CREAT, 0666);
  REQUIRE(::flock(mark, LOCK_EX) == 0);                                     // as the first one holds it
  write_text(folder / "out/train.tsv", "of the first");
  const Result second = heed_in(folder.path(), "data copy --out out --train 5 --dev 1 --test 1");
  CHECK(second.code == 2);
  CHECK(second.err == "heed data: out: another `heed data` is at work in it\n");
  CHECK(text_of(folder / "out/train.tsv") == "of the first");
  ::close(mark);
  CHECK(heed_in(folder.path(), "data copy --out out --train 5 --dev 1 --test 1").code == 0);
}

TEST_CASE("cli: weights that are NaN are no translation") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 10 --test 10").code == 0);
  REQUIRE(heed_in(folder.path(), "train --data data --out run --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 2 --steps 2 --quiet").code == 0);
  SafetensorsFile best = read_safetensors(folder / "run/best.safetensors");
  for (float& x : best.tensors.at("output.bias").mutable_span<float>()) x = NAN;
  write_safetensors(folder / "run/best.safetensors", best.tensors, best.metadata);
  for (const char* how : {"", " --beam 3", " --sample --json"}) {
    const Result result = heed_in(folder.path(), std::string("translate --run run") + how, "1 2\n");
    CHECK(result.code == 1);
    CHECK_MESSAGE(result.err.starts_with("heed translate: search: the words' probabilities are NaN: step 1, "), result.err);
  }
}

TEST_CASE("cli: faults while working") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 10 --test 10").code == 0);
  const std::string tiny = " --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 2 --steps 4 --quiet";
  // Standard output cannot be written to.
  REQUIRE(heed_in(folder.path(), "train --out scored" + tiny).code == 0);
  for (const char* line : {"--help", "data copy --out full", "inspect scored"}) {
    const Result result = Program{.words = split(line), .folder = folder.path(), .output = "/dev/full"}.run();
    CHECK(result.code == 1);
    CHECK(std::ranges::count(result.err, '\n') == 1);
  }
  // A file of translations that fails at the end takes no scores with it.
  const Result scored = Program{.words = split("evaluate --run scored --split train --min-length 20 --quiet --out texts"),
                                .folder = folder.path(),
                                .largest_file = 1000}
                            .run();
  CHECK(scored.code == 1);
  CHECK_MESSAGE(scored.out.find("\nBLEU of tokens ") != std::string::npos, scored.err);
  CHECK(!fs::exists(folder / "texts"));
  // Files may not grow: nothing half made stays, and what there was is as it was.
  const Result small = Program{.words = split("train --out limited" + tiny), .folder = folder.path(), .largest_file = 100}.run();
  CHECK(small.code == 1);
  CHECK_MESSAGE(small.err.find("cannot write") != std::string::npos, small.err);
  CHECK(!fs::exists(folder / "limited"));
  REQUIRE(heed_in(folder.path(), "train --out run" + tiny).code == 0);
  const std::string best = text_of(folder / "run/best.safetensors"), checkpoint = text_of(folder / "run/checkpoints/4.safetensors");
  const Result grown =
      Program{.words = split("train --out run --resume --steps 20 --quiet"), .folder = folder.path(), .largest_file = 4000}.run();
  CHECK(grown.code == 1);
  CHECK_MESSAGE(std::regex_search(grown.err, std::regex("^heed train: .*safetensors: cannot write at byte [0-9]+: File too large\n$")),
                grown.err);
  CHECK(text_of(folder / "run/best.safetensors") == best);
  CHECK(text_of(folder / "run/checkpoints/4.safetensors") == checkpoint);
  for (const auto& entry : fs::recursive_directory_iterator(folder / "run"))
    CHECK(entry.path().filename().string().find("tmp") == std::string::npos);
  CHECK(heed_in(folder.path(), "train --out run --resume --steps 20 --quiet").code == 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)   // which want terabytes of addresses
TEST_CASE("cli: where the memory ends, at the first worker too, a training ends: with a message, never waiting") {
  const TemporaryFolder folder;
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 10 --test 10").code == 0);
  for (int kib = 34000; kib < 54000; kib += 400) {
    INFO(kib);
    const Result result =
        Program{.words = split("train --data data --out run --layers 1 --width 128 --heads 2 --steps 2 --quiet --threads 2"),
                .folder = folder.path(),
                .under = {"timeout", "20", "sh", "-c", "ulimit -v " + std::to_string(kib) + "; exec \"$0\" \"$@\""}}
            .run();
    CHECK_MESSAGE((result.code == 0 || result.code == 1 || result.code == 127), result.code, ": ", result.err);   // 127: not even loaded
    fs::remove_all(folder / "run");
  }
}
#endif

TEST_CASE("cli: a full disk") {
  const TemporaryFolder folder;
  const std::string disk = folder / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=400k") != 0) {
    MESSAGE("skipped: no permission to mount a small tmpfs");
    return;
  }
  REQUIRE(heed_in(folder.path(), "data copy --out data --symbols 5 --max-length 4 --train 50 --dev 10 --test 10").code == 0);
  const std::string train =
      "train --data data --layers 1 --width 8 --heads 2 --feed-forward 8 --warmup 2 --steps 12 --evaluate-every 3 --quiet";
  CHECK(heed_in(folder.path(), train + " --out whole").code == 0);
  // Goes on without checkpoints, and says so at the end. Once there is room, a resumed run ends as if nothing had happened.
  write_text(disk + "/filler", std::string(300 << 10, 'x'));
  const Result full = heed_in(folder.path(), train + " --out disk/run --json");
  CHECK(full.code == 1);
  CHECK(full.out.empty());
  CHECK_MESSAGE(
      std::regex_match(
          full.err,
          std::regex(
              "(warning: disk/run/[^\n]*: cannot write at byte [0-9]+: No space left on device; going on, the next save tries again\n)+"
              "heed train: disk/run/[^\n]*: cannot write at byte [0-9]+: No space left on device\n")),
      full.err);
  fs::remove(disk + "/filler");
  CHECK(heed_in(folder.path(), "train --out disk/run --resume --quiet --keep 1").code == 0);
  CHECK(text_of(disk + "/run/checkpoints/12.safetensors") == text_of(folder / "whole/checkpoints/12.safetensors"));
  fs::remove_all(disk + "/run");
  write_text(disk + "/filler", std::string(300 << 10, 'x'));
  CHECK(heed_in(folder.path(), train + " --if-full stop --out disk/run").code == 1);
  ::umount(disk.c_str());
  // The log has room, checkpoints have none: a training that is not kept is not finished.
  const std::string checkpoints = folder / "whole/checkpoints";
  REQUIRE(::mount("tmpfs", checkpoints.c_str(), "tmpfs", 0, "size=4k") == 0);
  CHECK(heed_in(folder.path(), "train --out whole --resume --quiet").code == 1);
  const Result shown = heed_in(folder.path(), "inspect whole");
  ::umount(checkpoints.c_str());
  CHECK_MESSAGE(shown.out.find("finished") == std::string::npos, shown.out);
}
