// SPDX-License-Identifier: Apache-2.0
#include "examples/tasks/lexicon.h"

#include <algorithm>

#include "tensor/format.h"

namespace heed {
namespace {

constexpr Gender m = Gender::masculine, f = Gender::feminine;
constexpr bool vowel = true, consonant = false, before = true, after = false;

constexpr Noun kNouns[] = {
    // people
    {"man", "men", kPerson, {"homme", "hommes", m, vowel}, {"hombre", "hombres", m}},
    {"woman", "women", kPerson, {"femme", "femmes", f, consonant}, {"mujer", "mujeres", f}},
    {"boy", "boys", kPerson, {"garçon", "garçons", m, consonant}, {"niño", "niños", m}},
    {"girl", "girls", kPerson, {"fille", "filles", f, consonant}, {"niña", "niñas", f}},
    {"teacher", "teachers", kPerson, {"professeur", "professeurs", m, consonant}, {"profesor", "profesores", m}},
    {"student", "students", kPerson, {"étudiant", "étudiants", m, vowel}, {"estudiante", "estudiantes", m}},
    {"doctor", "doctors", kPerson, {"médecin", "médecins", m, consonant}, {"médico", "médicos", m}},
    {"friend", "friends", kPerson, {"ami", "amis", m, vowel}, {"amigo", "amigos", m}},
    {"artist", "artists", kPerson, {"artiste", "artistes", m, vowel}, {"artista", "artistas", m}},
    {"actress", "actresses", kPerson, {"actrice", "actrices", f, vowel}, {"actriz", "actrices", f}},
    {"engineer", "engineers", kPerson, {"ingénieur", "ingénieurs", m, vowel}, {"ingeniero", "ingenieros", m}},
    {"hero", "heroes", kPerson, {"héros", "héros", m, consonant}, {"héroe", "héroes", m}},
    // animals
    {"dog", "dogs", kAnimal, {"chien", "chiens", m, consonant}, {"perro", "perros", m}},
    {"cat", "cats", kAnimal, {"chat", "chats", m, consonant}, {"gato", "gatos", m}},
    {"horse", "horses", kAnimal, {"cheval", "chevaux", m, consonant}, {"caballo", "caballos", m}},
    {"bird", "birds", kAnimal, {"oiseau", "oiseaux", m, vowel}, {"pájaro", "pájaros", m}},
    {"cow", "cows", kAnimal, {"vache", "vaches", f, consonant}, {"vaca", "vacas", f}},
    {"owl", "owls", kAnimal, {"hibou", "hiboux", m, consonant}, {"búho", "búhos", m}},
    // buildings and rooms
    {"house", "houses", kPlace | kColoured | kBuilt, {"maison", "maisons", f, consonant}, {"casa", "casas", f}},
    {"church", "churches", kPlace | kBuilt, {"église", "églises", f, vowel}, {"iglesia", "iglesias", f}},
    {"school", "schools", kPlace | kBuilt, {"école", "écoles", f, vowel}, {"escuela", "escuelas", f}},
    {"hotel", "hotels", kPlace | kBuilt, {"hôtel", "hôtels", m, vowel}, {"hotel", "hoteles", m}},
    {"museum", "museums", kPlace | kBuilt, {"musée", "musées", m, consonant}, {"museo", "museos", m}},
    {"bridge", "bridges", kPlace | kBuilt | kLong, {"pont", "ponts", m, consonant}, {"puente", "puentes", m}},
    {"kitchen", "kitchens", kPlace | kColoured, {"cuisine", "cuisines", f, consonant}, {"cocina", "cocinas", f}},
    {"office", "offices", kPlace, {"bureau", "bureaux", m, consonant}, {"oficina", "oficinas", f}},
    // regions
    {"city", "cities", kRegion, {"ville", "villes", f, consonant}, {"ciudad", "ciudades", f}},
    {"village", "villages", kRegion, {"village", "villages", m, consonant}, {"pueblo", "pueblos", m}},
    {"island", "islands", kRegion, {"île", "îles", f, vowel}, {"isla", "islas", f}},
    {"street", "streets", kRegion | kLong, {"rue", "rues", f, consonant}, {"calle", "calles", f}},
    {"area", "areas", kRegion | kEconomy, {"zone", "zones", f, consonant}, {"zona", "zonas", f}},
    {"garden", "gardens", kPlace, {"jardin", "jardins", m, consonant}, {"jardín", "jardines", m}},
    {"farm", "farms", kPlace, {"ferme", "fermes", f, consonant}, {"granja", "granjas", f}},
    // things
    {"car", "cars", kThing | kColoured, {"voiture", "voitures", f, consonant}, {"coche", "coches", m}},
    {"door", "doors", kThing | kOpens | kColoured | kHeavy, {"porte", "portes", f, consonant}, {"puerta", "puertas", f}},
    {"window", "windows", kThing | kOpens | kColoured, {"fenêtre", "fenêtres", f, consonant}, {"ventana", "ventanas", f}},
    {"table", "tables", kThing | kColoured | kHeavy | kBuilt, {"table", "tables", f, consonant}, {"mesa", "mesas", f}},
    {"chair", "chairs", kThing | kColoured | kHeavy | kBuilt, {"chaise", "chaises", f, consonant}, {"silla", "sillas", f}},
    {"key", "keys", kThing, {"clé", "clés", f, consonant}, {"llave", "llaves", f}},
    {"coat", "coats", kThing | kColoured | kHeavy | kLong, {"manteau", "manteaux", m, consonant}, {"abrigo", "abrigos", m}},
    {"bottle", "bottles", kThing | kOpens | kColoured, {"bouteille", "bouteilles", f, consonant}, {"botella", "botellas", f}},
    {"lamp", "lamps", kThing | kColoured, {"lampe", "lampes", f, consonant}, {"lámpara", "lámparas", f}},
    {"clock", "clocks", kThing | kColoured, {"horloge", "horloges", f, vowel}, {"reloj", "relojes", m}},
    {"bicycle", "bicycles", kThing | kColoured, {"vélo", "vélos", m, consonant}, {"bicicleta", "bicicletas", f}},
    {"boat", "boats", kThing | kColoured | kLong | kBuilt, {"bateau", "bateaux", m, consonant}, {"barco", "barcos", m}},
    {"box", "boxes", kThing | kOpens | kColoured | kHeavy, {"boîte", "boîtes", f, consonant}, {"caja", "cajas", f}},
    {"computer", "computers", kThing, {"ordinateur", "ordinateurs", m, vowel}, {"ordenador", "ordenadores", m}},
    {"tree", "trees", kPlant, {"arbre", "arbres", m, vowel}, {"árbol", "árboles", m}},
    {"flower", "flowers", kPlant | kColoured, {"fleur", "fleurs", f, consonant}, {"flor", "flores", f}},
    // food
    {"apple", "apples", kFood, {"pomme", "pommes", f, consonant}, {"manzana", "manzanas", f}},
    {"orange", "oranges", kFood, {"orange", "oranges", f, vowel}, {"naranja", "naranjas", f}},
    {"cake", "cakes", kFood, {"gâteau", "gâteaux", m, consonant}, {"pastel", "pasteles", m}},
    {"cheese", "cheeses", kFood, {"fromage", "fromages", m, consonant}, {"queso", "quesos", m}},
    // texts and thoughts
    {"book", "books", kText | kWritten | kOpens | kHeavy, {"livre", "livres", m, consonant}, {"libro", "libros", m}},
    {"letter", "letters", kText | kWritten | kOpens | kLong, {"lettre", "lettres", f, consonant}, {"carta", "cartas", f}},
    {"newspaper", "newspapers", kText | kOpens | kEconomy, {"journal", "journaux", m, consonant},
     {"periódico", "periódicos", m}},
    {"story", "stories", kText | kWritten | kLong, {"histoire", "histoires", f, vowel}, {"historia", "historias", f}},
    {"song", "songs", kText | kWritten | kLong, {"chanson", "chansons", f, consonant}, {"canción", "canciones", f}},
    {"article", "articles", kText | kWritten | kLong | kEconomy, {"article", "articles", m, vowel},
     {"artículo", "artículos", m}},
    {"idea", "ideas", kThought | kEconomy, {"idée", "idées", f, vowel}, {"idea", "ideas", f}},
    {"problem", "problems", kThought | kEconomy, {"problème", "problèmes", m, consonant}, {"problema", "problemas", m}},
    {"plan", "plans", kThought | kEconomy, {"plan", "plans", m, consonant}, {"plan", "planes", m}},
    // only the first half of compounds
    {"winter", "", kOnlyModifier, {"hiver", "", m, vowel}, {"invierno", "", m}},
    {"wine", "", kOnlyModifier, {"vin", "", m, consonant}, {"vino", "", m}},
    {"music", "", kOnlyModifier, {"musique", "", f, consonant}, {"música", "", f}},
    {"history", "", kOnlyModifier, {"histoire", "", f, vowel}, {"historia", "", f}},
    {"family", "", kOnlyModifier, {"famille", "", f, consonant}, {"familia", "", f}},
    {"police", "", kOnlyModifier, {"police", "", f, consonant}, {"policía", "", f}},
};

constexpr unsigned kObject = kThing | kPlant, kSite = kPlace | kRegion, kContent = kText | kThought;
constexpr unsigned kNotable = kPerson | kSite | kContent, kOrigin = kPerson | kThing | kSite | kText;
constexpr unsigned kGoods = kObject | kPlace | kFood | kText;
constexpr unsigned kInanimate = kObject | kSite | kFood | kContent, kAnything = kAlive | kInanimate;

constexpr Adjective kAdjectives[] = {
    // opinion
    {"beautiful", 1, kAlive | kObject | kSite | kContent, before, {"beau", "belle", "beaux", "belles", consonant, "bel"},
     {"bonito", "bonita", "bonitos", "bonitas"}},
    {"good", 1, kAlive | kThing | kPlace | kFood | kContent, before, {"bon", "bonne", "bons", "bonnes", consonant, {}},
     {"bueno", "buena", "buenos", "buenas"}},
    {"bad", 1, kAlive | kThing | kFood | kContent, before, {"mauvais", "mauvaise", "mauvais", "mauvaises", consonant, {}},
     {"malo", "mala", "malos", "malas"}},
    {"interesting", 1, kNotable, after, {"intéressant", "intéressante", "intéressants", "intéressantes", vowel, {}},
     {"interesante", "interesante", "interesantes", "interesantes"}},
    {"important", 1, kNotable, after, {"important", "importante", "importants", "importantes", vowel, {}},
     {"importante", "importante", "importantes", "importantes"}},
    {"famous", 1, kPerson | kSite | kText, after, {"célèbre", "célèbre", "célèbres", "célèbres", consonant, {}},
     {"famoso", "famosa", "famosos", "famosas"}},
    {"rich", 1, kPerson | kRegion, after, {"riche", "riche", "riches", "riches", consonant, {}},
     {"rico", "rica", "ricos", "ricas"}},
    {"intelligent", 1, kAlive, after, {"intelligent", "intelligente", "intelligents", "intelligentes", vowel, {}},
     {"inteligente", "inteligente", "inteligentes", "inteligentes"}},
    {"strange", 1, kAlive | kObject | kSite | kContent, after, {"étrange", "étrange", "étranges", "étranges", vowel, {}},
     {"extraño", "extraña", "extraños", "extrañas"}},
    {"expensive", 1, kThing | kPlace | kFood, after, {"cher", "chère", "chers", "chères", consonant, {}},
     {"caro", "cara", "caros", "caras"}},
    {"useful", 1, kThing | kContent, after, {"utile", "utile", "utiles", "utiles", vowel, {}},
     {"útil", "útil", "útiles", "útiles"}},
    {"strong", 1, kAlive, after, {"fort", "forte", "forts", "fortes", consonant, {}},
     {"fuerte", "fuerte", "fuertes", "fuertes"}},
    {"happy", 1, kAlive, after, {"heureux", "heureuse", "heureux", "heureuses", vowel, {}},
     {"feliz", "feliz", "felices", "felices"}},
    {"dangerous", 1, kAlive | kRegion | kThought, after, {"dangereux", "dangereuse", "dangereux", "dangereuses", consonant, {}},
     {"peligroso", "peligrosa", "peligrosos", "peligrosas"}},
    {"elegant", 1, kPerson | kThing | kPlace, after, {"élégant", "élégante", "élégants", "élégantes", vowel, {}},
     {"elegante", "elegante", "elegantes", "elegantes"}},
    // size
    {"big", 2, kAnything, before, {"grand", "grande", "grands", "grandes", consonant, {}},
     {"grande", "grande", "grandes", "grandes"}},
    {"small", 2, kAnything, before, {"petit", "petite", "petits", "petites", consonant, {}},
     {"pequeño", "pequeña", "pequeños", "pequeñas"}},
    {"long", 2, kLong, before, {"long", "longue", "longs", "longues", consonant, {}}, {"largo", "larga", "largos", "largas"}},
    {"heavy", 2, kHeavy, after, {"lourd", "lourde", "lourds", "lourdes", consonant, {}},
     {"pesado", "pesada", "pesados", "pesadas"}},
    // age
    {"old", 3, kAlive | kObject | kSite | kContent, before, {"vieux", "vieille", "vieux", "vieilles", consonant, "vieil"},
     {"viejo", "vieja", "viejos", "viejas"}},
    {"new", 3, kOrigin | kThought, before, {"nouveau", "nouvelle", "nouveaux", "nouvelles", consonant, "nouvel"},
     {"nuevo", "nueva", "nuevos", "nuevas"}},
    {"young", 3, kAlive, before, {"jeune", "jeune", "jeunes", "jeunes", consonant, {}},
     {"joven", "joven", "jóvenes", "jóvenes"}},
    {"modern", 3, kThing | kSite, after, {"moderne", "moderne", "modernes", "modernes", consonant, {}},
     {"moderno", "moderna", "modernos", "modernas"}},
    // colour
    {"black", 4, kColoured | kAnimal, after, {"noir", "noire", "noirs", "noires", consonant, {}},
     {"negro", "negra", "negros", "negras"}},
    {"white", 4, kColoured | kAnimal, after, {"blanc", "blanche", "blancs", "blanches", consonant, {}},
     {"blanco", "blanca", "blancos", "blancas"}},
    {"red", 4, kColoured, after, {"rouge", "rouge", "rouges", "rouges", consonant, {}}, {"rojo", "roja", "rojos", "rojas"}},
    {"green", 4, kColoured, after, {"vert", "verte", "verts", "vertes", consonant, {}}, {"verde", "verde", "verdes", "verdes"}},
    {"blue", 4, kColoured, after, {"bleu", "bleue", "bleus", "bleues", consonant, {}}, {"azul", "azul", "azules", "azules"}},
    // origin
    {"european", 5, kOrigin, after, {"européen", "européenne", "européens", "européennes", vowel, {}},
     {"europeo", "europea", "europeos", "europeas"}},
    {"french", 5, kOrigin | kFood, after, {"français", "française", "français", "françaises", consonant, {}},
     {"francés", "francesa", "franceses", "francesas"}},
    {"spanish", 5, kOrigin | kFood, after, {"espagnol", "espagnole", "espagnols", "espagnoles", vowel, {}},
     {"español", "española", "españoles", "españolas"}},
    {"american", 5, kOrigin, after, {"américain", "américaine", "américains", "américaines", vowel, {}},
     {"americano", "americana", "americanos", "americanas"}},
    // class
    {"economic", 6, kEconomy, after, {"économique", "économique", "économiques", "économiques", vowel, {}},
     {"económico", "económica", "económicos", "económicas"}},
};

constexpr Verb kVerbs[] = {
    {"see", "sees", "saw", kAlive, kInanimate, {"voit", "voient", "vu", "verra", "verront"},
     {"ve", "ven", "vio", "vieron", "verá", "verán"}},
    {"find", "finds", "found", kAlive, kInanimate, {"trouve", "trouvent", "trouvé", "trouvera", "trouveront"},
     {"encuentra", "encuentran", "encontró", "encontraron", "encontrará", "encontrarán"}},
    {"love", "loves", "loved", kAlive, kInanimate, {"aime", "aiment", "aimé", "aimera", "aimeront"},
     {"ama", "aman", "amó", "amaron", "amará", "amarán"}},
    {"want", "wants", "wanted", kAlive, kThing | kFood | kText, {"veut", "veulent", "voulu", "voudra", "voudront"},
     {"quiere", "quieren", "quiso", "quisieron", "querrá", "querrán"}},
    {"eat", "eats", "ate", kAlive, kFood, {"mange", "mangent", "mangé", "mangera", "mangeront"},
     {"come", "comen", "comió", "comieron", "comerá", "comerán"}},
    {"break", "breaks", "broke", kAlive, kThing, {"casse", "cassent", "cassé", "cassera", "casseront"},
     {"rompe", "rompen", "rompió", "rompieron", "romperá", "romperán"}},
    {"buy", "buys", "bought", kPerson, kGoods, {"achète", "achètent", "acheté", "achètera", "achèteront"},
     {"compra", "compran", "compró", "compraron", "comprará", "comprarán"}},
    {"sell", "sells", "sold", kPerson, kGoods, {"vend", "vendent", "vendu", "vendra", "vendront"},
     {"vende", "venden", "vendió", "vendieron", "venderá", "venderán"}},
    {"choose", "chooses", "chose", kPerson, kInanimate, {"choisit", "choisissent", "choisi", "choisira", "choisiront"},
     {"elige", "eligen", "eligió", "eligieron", "elegirá", "elegirán"}},
    {"forget", "forgets", "forgot", kPerson, kThing | kContent, {"oublie", "oublient", "oublié", "oubliera", "oublieront"},
     {"olvida", "olvidan", "olvidó", "olvidaron", "olvidará", "olvidarán"}},
    {"lose", "loses", "lost", kPerson, kThing | kText, {"perd", "perdent", "perdu", "perdra", "perdront"},
     {"pierde", "pierden", "perdió", "perdieron", "perderá", "perderán"}},
    {"use", "uses", "used", kPerson, kThing, {"utilise", "utilisent", "utilisé", "utilisera", "utiliseront"},
     {"usa", "usan", "usó", "usaron", "usará", "usarán"}},
    {"open", "opens", "opened", kPerson, kOpens, {"ouvre", "ouvrent", "ouvert", "ouvrira", "ouvriront"},
     {"abre", "abren", "abrió", "abrieron", "abrirá", "abrirán"}},
    {"close", "closes", "closed", kPerson, kOpens, {"ferme", "ferment", "fermé", "fermera", "fermeront"},
     {"cierra", "cierran", "cerró", "cerraron", "cerrará", "cerrarán"}},
    {"write", "writes", "wrote", kPerson, kWritten, {"écrit", "écrivent", "écrit", "écrira", "écriront"},
     {"escribe", "escriben", "escribió", "escribieron", "escribirá", "escribirán"}},
    {"paint", "paints", "painted", kPerson, kObject | kSite, {"peint", "peignent", "peint", "peindra", "peindront"},
     {"pinta", "pintan", "pintó", "pintaron", "pintará", "pintarán"}},
    {"build", "builds", "built", kPerson, kBuilt, {"construit", "construisent", "construit", "construira", "construiront"},
     {"construye", "construyen", "construyó", "construyeron", "construirá", "construirán"}},
    {"visit", "visits", "visited", kPerson, kSite, {"visite", "visitent", "visité", "visitera", "visiteront"},
     {"visita", "visitan", "visitó", "visitaron", "visitará", "visitarán"}},
    {"sleep", "sleeps", "slept", kAlive, 0, {"dort", "dorment", "dormi", "dormira", "dormiront"},
     {"duerme", "duermen", "durmió", "durmieron", "dormirá", "dormirán"}},
    {"run", "runs", "ran", kAlive, 0, {"court", "courent", "couru", "courra", "courront"},
     {"corre", "corren", "corrió", "corrieron", "correrá", "correrán"}},
    {"sing", "sings", "sang", kPerson, 0, {"chante", "chantent", "chanté", "chantera", "chanteront"},
     {"canta", "cantan", "cantó", "cantaron", "cantará", "cantarán"}},
    {"swim", "swims", "swam", kAlive, 0, {"nage", "nagent", "nagé", "nagera", "nageront"},
     {"nada", "nadan", "nadó", "nadaron", "nadará", "nadarán"}},
    {"work", "works", "worked", kPerson, 0, {"travaille", "travaillent", "travaillé", "travaillera", "travailleront"},
     {"trabaja", "trabajan", "trabajó", "trabajaron", "trabajará", "trabajarán"}},
    {"dance", "dances", "danced", kPerson, 0, {"danse", "dansent", "dansé", "dansera", "danseront"},
     {"baila", "bailan", "bailó", "bailaron", "bailará", "bailarán"}},
    {"travel", "travels", "travelled", kPerson, 0, {"voyage", "voyagent", "voyagé", "voyagera", "voyageront"},
     {"viaja", "viajan", "viajó", "viajaron", "viajará", "viajarán"}},
};

constexpr Compound kCompounds[] = {
    {"car", "door"}, {"house", "door"}, {"church", "door"}, {"school", "door"}, {"hotel", "door"}, {"kitchen", "door"},
    {"car", "window"}, {"church", "window"}, {"hotel", "window"}, {"kitchen", "window"}, {"office", "window"},
    {"school", "window"},
    {"car", "key"}, {"house", "key"}, {"hotel", "key"}, {"office", "key"}, {"church", "key"}, {"bicycle", "key"},
    {"kitchen", "table"}, {"garden", "table"}, {"school", "table"}, {"office", "table"},
    {"kitchen", "chair"}, {"garden", "chair"}, {"office", "chair"}, {"school", "chair"},
    {"kitchen", "lamp"}, {"office", "lamp"}, {"kitchen", "clock"}, {"church", "clock"}, {"school", "clock"},
    {"school", "computer"}, {"office", "computer"}, {"city", "bicycle"}, {"family", "car"}, {"police", "car"},
    {"police", "boat"},
    {"wine", "bottle"}, {"winter", "coat"}, {"winter", "garden"}, {"winter", "flower"},
    {"school", "garden"}, {"hotel", "garden"}, {"city", "garden"}, {"city", "street"}, {"village", "street"},
    {"city", "school"}, {"village", "school"}, {"music", "school"}, {"village", "church"}, {"history", "museum"},
    {"city", "museum"},
    {"family", "house"}, {"city", "house"}, {"village", "house"}, {"family", "hotel"},
    {"school", "book"}, {"history", "book"}, {"music", "book"}, {"newspaper", "article"}, {"family", "story"},
    {"school", "newspaper"},
    {"family", "problem"}, {"school", "problem"}, {"school", "song"},
    {"history", "teacher"}, {"music", "teacher"}, {"school", "friend"}, {"family", "friend"}, {"family", "doctor"},
    {"village", "doctor"},
    {"police", "dog"}, {"farm", "dog"}, {"farm", "horse"}, {"police", "horse"}, {"farm", "cat"}, {"garden", "bird"},
    {"farm", "cheese"},
};

template <class T> const T& find(std::span<const T> words, std::string_view english, std::string_view what) {
  const auto at = std::find_if(words.begin(), words.end(), [&](const T& word) { return word.english == english; });
  check<Error>(at != words.end(), "phrases: no {} \"{}\" in the lexicon", what, english);
  return *at;
}

}  // namespace

std::span<const Noun> nouns() { return kNouns; }
std::span<const Adjective> adjectives() { return kAdjectives; }
std::span<const Verb> verbs() { return kVerbs; }
std::span<const Compound> compounds() { return kCompounds; }

const Noun& noun(std::string_view english) { return find(nouns(), english, "noun"); }
const Adjective& adjective(std::string_view english) { return find(adjectives(), english, "adjective"); }
const Verb& verb(std::string_view english) { return find(verbs(), english, "verb"); }

}  // namespace heed
