# SPDX-License-Identifier: Apache-2.0
# Writes bleu.json beside this file: scores of sacreBLEU, read by tests/models/metrics_test.cc.   Made with sacrebleu 2.6.0, Python 3.11.
#   python3 -m venv venv && venv/bin/pip install sacrebleu==2.6.0 && venv/bin/python tests/golden/bleu.py
import itertools, json, os, random
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

CORPORA = {                                             # name: (hypotheses, references by segment)
  "plain": (["The dog bites the man.", "It was not unexpected.", "The man bit him first."],
            [["The dog bit the man."], ["It was not unexpected."], ["The man had bitten the dog."]]),
  "several references": (["The dog bites the man.", "It was not unexpected.", "the the the the"],
            [["The dog bit the man.", "The dog had bit the man."], ["It was not unexpected.", "No one was surprised."],
             ["the cat is on the mat", "there is a cat on the the mat"]]),
  "varying number of references": (["a b c d e", "f g h", "i j k l m"],
            [["a b c d f", "a b c", "b c d e"], ["f g h"], ["i j l m", "i j k l"]]),
  "closest length, equal distance": (["a b c d"], [["a b c d e", "a b c"]]),
  "short hypothesis": (["the cat", "a dog ran"], [["the cat sat on the mat"], ["a dog ran over the hill"]]),
  "long hypothesis": (["the cat sat on the mat and then it sat again"], [["the cat sat"]]),
  "one empty hypothesis": (["", "the house is big ."], [["some words here"], ["the house is very big ."]]),
  "all hypotheses empty": (["", ""], [["some words"], ["more words"]]),
  "empty reference": (["some words here too", "the house is big ."], [[""], ["the house is very big ."]]),
  "blank lines": (["   ", "\t"], [[" "], [""]]),
  "identical": (["le chien ne voit pas la grande maison noire", "une belle fleur rouge"],
                [["le chien ne voit pas la grande maison noire"], ["une belle fleur rouge"]]),
  "nothing in common": (["alpha beta gamma delta"], [["un deux trois quatre cinq"]]),
  "no 2-gram": (["a x b y c"], [["a b c d e f"]]),
  "no 3-gram": (["a b x c d y"], [["a b c d e"]]),
  "no 4-gram": (["a b c x d e f"], [["a b c d e f"]]),
  "one word": (["yes"], [["yes"]]),
  "two words": (["yes sir"], [["yes sir"]]),
  "three words": (["yes sir indeed"], [["yes sir indeed !"]]),
  "clipping": (["the the the the the the the"], [["the cat is on the mat"]]),
  "numbers": (["It cost 1,234.56 dollars, i.e. 3.5 % of 10-12 items.", "On 02.01.2016 at 10:30, page 3-4, .5 and 5., or 5.a"],
              [["It costs $1,234.56, that is 3.5% of 10 - 12 items.", ], ["On 02.01.2016, 10:30 , pages 3-4 , 0.5 , 5. or 5 a"]]),
  "entities": (["&quot;AT&amp;T&quot; &lt;b&gt; R&D &amp;lt; <skipped>gone", "a-\nb c\nd e-\n"], [["\"AT&T\" <b> R & D &lt; gone"], ["ab c d e-"]]),
  "punctuation": (["Well... (maybe) [no]; {yes}: 'tis, it's - don't! #1 @home 50% a/b\\c ^_^ ~ `x` *y* <z> a=b+c|d?",
                   "--- ,,, ... .,., -,-. ,. 1,.2 1.,2 ,1. .1,", "U.S.A. e.g., Mr.Smith said:\"No.\""],
                  [["Well ... ( maybe ) [ no ] ; { yes } : ' tis , it ' s - do n't ! # 1 @ home 50 % a / b \\ c ^ _ ^ ~ ` x ` * y * < z > a = b + c | d ?"],
                   ["- - - , , , . . . . , . , - , - . , . 1 , .2 1. ,2 , 1. . 1,"], ["U.S.A. e . g ., Mr . Smith said: \" No. \""]]),
  "unicode": (["Ça alors\u00a0! L’été à Genève coûte 3\u202f000 €…", "Straße, ÄÖÜ — “quoted” «guillemets»", "日本語のテスト、です。", "naïve cafe\u0301 😀👍🏽 ½"],
              [["Ça alors ! L'été à Genève coûte 3 000 € …"], ["Strasse, ÄÖÜ – \"quoted\" « guillemets »"], ["日本語テストです。"], ["naïve café 😀👍 ½"]]),
  "spaces": ([" leading  double\ttab\u2003em\u3000wide\u00a0nbsp\x1cfs\x85nel end \u200bzero ", "a\u2028b\u2029c\x0bd\x0ce\rf"],
             [["leading double tab em wide nbsp fs nel end zero"], ["a b c d e f"]]),
  "case": (["THE Dog SAW ÉCOLE İstanbul ΟΔΥΣΣΕΥΣ ΑΣ.Β Σ ΑΣ' ẞ Ǆ"], [["the dog saw école i̇stanbul οδυσσευς ας.β σ ας' ß ǆ"]]),
}
random.seed(1)
words = "the a dog house sees not big black door of in 1,000 3.14 well-known it's U.S. (yes) no! école &amp; ...".split()
def noise(line): return " ".join(w for w in (random.choice(words) if random.random() < 0.2 else w for w in line.split()) if random.random() < 0.9)
refs = [[" ".join(random.choice(words) for _ in range(random.randint(1, 25))) for _ in range(2)] for _ in range(30)]
CORPORA["random"] = ([noise(random.choice(r)) for r in refs], refs)

BLEU_SETTINGS = [dict(tokenize=t, smooth_method=s, smooth_value=v, effective_order=e, lowercase=l) for t, s, v, e, l in (
  ("13a", "exp", None, False, False), ("13a", "exp", None, True, False), ("13a", "exp", None, False, True), ("none", "exp", None, False, False),
  ("13a", "floor", None, False, False), ("13a", "floor", 0.25, True, False), ("none", "floor", None, True, True),
  ("13a", "add-k", None, False, False), ("13a", "add-k", 0.5, True, False), ("none", "add-k", None, True, False),
  ("13a", "none", None, False, False), ("13a", "none", None, True, True))]
CHRF_SETTINGS = [dict(char_order=c, word_order=w, beta=b, lowercase=l, whitespace=s) for c, w, b, l, s in (
  (6, 0, 2, False, False), (6, 2, 2, False, False), (6, 1, 2, False, False), (6, 0, 2, True, False), (6, 0, 2, False, True), (6, 0, 1, False, False),
  (4, 0, 3, False, False), (6, 2, 2, True, True))]

def streams(references):                                # sacreBLEU wants one list a reference number, None where a segment has fewer
  return [list(stream) for stream in itertools.zip_longest(*references)]

def signature(metric):                                  # without the parts that differ by corpus and program
  return "|".join(str(metric.get_signature()).split("|")[1:-1])

out = {"bleu settings": [], "chrf settings": [], "corpora": [], "tokens": []}
for name, (hypotheses, references) in CORPORA.items():
  entry = {"name": name, "hypotheses": hypotheses, "references": references, "bleu": [], "chrf": []}
  for s in BLEU_SETTINGS:
    metric = BLEU(force=True, **s)
    r = metric.corpus_score(hypotheses, streams(references))
    entry["bleu"].append([r.score, *r.precisions, r.bp, r.sys_len, r.ref_len])
    if len(out["bleu settings"]) < len(BLEU_SETTINGS): out["bleu settings"].append({**s, "signature": signature(metric)})
  for s in CHRF_SETTINGS:
    metric = CHRF(**s)
    r = metric.corpus_score(hypotheses, streams(references))
    entry["chrf"].append(r.score)
    if len(out["chrf settings"]) < len(CHRF_SETTINGS): out["chrf settings"].append({**s, "name": r.name, "signature": signature(metric)})
  entry["nrefs"] = str(metric.get_signature()).split("|")[0]
  out["corpora"].append(entry)
  out["tokens"] += [[line, Tokenizer13a()(line.rstrip())] for line in hypotheses + [r for rs in references for r in rs] if name != "random"]

dump = lambda x: json.dumps(x, ensure_ascii=False)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "bleu.json"), "w", encoding="utf-8") as f:
  f.write("{" + ",\n".join(dump(key) + ": [\n" + ",\n".join(map(dump, rows)) + "]" for key, rows in out.items()) + "}\n")
