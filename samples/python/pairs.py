"""Writes sentences and their translations, drawn from a small grammar: what samples/jobs/translation.json learns.

    python samples/python/pairs.py FOLDER [--train 4000] [--test 300] [--seed 1]

English to German, without capital letters, as

    the 4 7 big dogs see a red house today    ->  heute sehen die sieben und vierzig großen hunde ein rotes haus
    i think that a cat loves 2 quick birds    ->  ich glaube dass eine katze zwei schnelle vögel liebt

so a word's form follows from words elsewhere: articles and adjectives agree in gender, case and number, numbers are spelled
out, ones first, the time goes to the front, and the verb in front of its subject, or to the end behind "dass".

FOLDER/pairs-train.jsonl and pairs-test.jsonl have a pair on each line, as text and as the words' numbers; pairs-words.txt has the
words by their numbers, the first two of which begin and end a sentence. No test sentence is one of training.
"""

import argparse
import json
import pathlib
import random

# singular and plural, English and German, and the gender
NOUNS = [("dog", "dogs", "hund", "hunde", "m"), ("cat", "cats", "katze", "katzen", "f"),
         ("house", "houses", "haus", "häuser", "n"), ("bird", "birds", "vogel", "vögel", "m"),
         ("book", "books", "buch", "bücher", "n"), ("flower", "flowers", "blume", "blumen", "f"),
         ("child", "children", "kind", "kinder", "n"), ("woman", "women", "frau", "frauen", "f"),
         ("man", "men", "mann", "männer", "m"), ("picture", "pictures", "bild", "bilder", "n"),
         ("lamp", "lamps", "lampe", "lampen", "f"), ("tree", "trees", "baum", "bäume", "m")]
VERBS = [("sees", "see", "sieht", "sehen"), ("finds", "find", "findet", "finden"), ("loves", "love", "liebt", "lieben"),
         ("seeks", "seek", "sucht", "suchen"), ("paints", "paint", "malt", "malen"), ("buys", "buy", "kauft", "kaufen")]
ADJECTIVES = [("big", "groß"), ("small", "klein"), ("red", "rot"), ("new", "neu"), ("quiet", "still"), ("quick", "schnell")]
TIMES = [("today", "heute"), ("tomorrow", "morgen"), ("often", "oft"), ("now", "jetzt")]
NUMBERS = ["", "", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf", "dreizehn",
           "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"]
TENS = ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]

# by gender ("p": plural), of a subject and of an object
THE = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das"), "p": ("die", "die")}
A = {"m": ("ein", "einen"), "f": ("eine", "eine"), "n": ("ein", "ein")}
AFTER_THE = {"m": ("e", "en"), "f": ("e", "e"), "n": ("e", "e"), "p": ("en", "en")}
AFTER_A = {"m": ("er", "en"), "f": ("e", "e"), "n": ("es", "es"), "p": ("e", "e")}  # and after a number


def spelled(number):
    ones, tens = number % 10, number // 10
    if number < 20:
        return [NUMBERS[number]]
    return ([("ein" if ones == 1 else NUMBERS[ones]), "und"] if ones else []) + [TENS[tens]]


def noun_phrase(rng, case):
    """English and German words, and whether there is more than one; case 0 is a subject, 1 an object."""
    one, many, german_one, german_many, gender = rng.choice(NOUNS)
    definite, plural = rng.random() < 0.5, rng.random() < 0.5
    english, german = ["the"] * definite, []
    if definite:
        german.append(THE["p" if plural else gender][case])
    if plural and (not definite or rng.random() < 0.5):
        number = rng.randrange(2, 100)
        english += list(str(number))
        german += spelled(number)
    elif not definite:
        english.append("a")
        german.append(A[gender][case])
    if rng.random() < 0.5:
        adjective, stem = rng.choice(ADJECTIVES)
        english.append(adjective)
        german.append(stem + (AFTER_THE if definite else AFTER_A)["p" if plural else gender][case])
    return english + [many if plural else one], german + [german_many if plural else german_one], plural


def sentence(rng):
    english, subject, plural = noun_phrase(rng, 0)
    object_english, thing, _ = noun_phrase(rng, 1)
    one, many, german_one, german_many = rng.choice(VERBS)
    english = english + [many if plural else one] + object_english
    verb, time = [german_many if plural else german_one], []
    if rng.random() < 0.5:
        word, german_word = rng.choice(TIMES)
        english.append(word)
        time = [german_word]
    if rng.random() < 0.5:
        english = ["i", "think", "that"] + english
        german = ["ich", "glaube", "dass"] + time + subject + thing + verb
    else:
        german = time + verb + subject + thing if time else subject + verb + thing
    return " ".join(english), " ".join(german)


def vocabulary():
    """Every word that a sentence may have."""
    words = {"the", "a", "i", "think", "that", "ich", "glaube", "dass", "und", "ein", *"0123456789", *filter(None, NUMBERS + TENS)}
    for entry in VERBS + TIMES + [noun[:4] for noun in NOUNS]:
        words.update(entry)
    for table in (THE, A):
        words.update(*table.values())
    for english, stem in ADJECTIVES:
        words.update([english], (stem + ending for table in (AFTER_THE, AFTER_A) for pair in table.values() for ending in pair))
    return ["<begin>", "<end>"] + sorted(words)


def write(path, pairs, numbers):
    with open(path, "w", encoding="utf-8") as file:
        for english, german in pairs:
            row = {"english": english, "german": german, "source": [numbers[word] for word in english.split()],
                   "target": [numbers[word] for word in german.split()]}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=4000, help="pairs to train on")
    parser.add_argument("--test", type=int, default=300, help="pairs to evaluate with")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng, pairs = random.Random(arguments.seed), {}
    while len(pairs) < arguments.train + arguments.test:
        pairs.setdefault(*sentence(rng))
    pairs = list(pairs.items())
    words = vocabulary()
    numbers = {word: number for number, word in enumerate(words)}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "pairs-words.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    write(arguments.folder / "pairs-train.jsonl", pairs[:arguments.train], numbers)
    write(arguments.folder / "pairs-test.jsonl", pairs[arguments.train:], numbers)
    print(f"{arguments.train} pairs to train on, {arguments.test} to evaluate with, {len(words)} words")


if __name__ == "__main__":
    main()
