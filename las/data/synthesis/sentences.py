"""Sentences for the synthetic corpora: a seeded grammar over the word lists of `words.txt`.

Nothing is taken from any text: short declarative sentences are drawn from the templates below. The words are meant to
cover the phones of English, not to make sense.
"""

import functools
import random
import re
from collections.abc import Callable
from importlib import resources

from las.runtime.errors import ArgumentError, DataError

TEMPLATES = (
    "{name} {transitive_past} {the} {noun}",
    "{the} {noun} {intransitive_past} {adverb}",
    "{name} {transitive_past} {a} {adjective} {noun}",
    "{the} {adjective} {noun} {intransitive_past} {near} the {place}",
    "{nouns} {transitive} {nouns} {near} the {place}",
    "{name} {intransitive_s} {near} {a} {place}",
    "{name} is {transitive_ing} {the} {noun}",
    "{the} {nouns} are {intransitive_ing} {near} the {place}",
    "{adjective} {nouns} {adverb} {transitive} {the} {noun}",
    "{name} will {transitive} {number} {adjective} {nouns}",
    "{name} and {name} {transitive_past} {number} {nouns}",
    "does {name} {transitive} {the} {adjective} {noun}",
    "why did {the} {noun} {intransitive} {adverb}",
    "{adverb} {the} {adjective} {noun} {transitive_s} {a} {noun}",
    "{the} {noun} {near} the {place} was {adjective}",
    "{number} {nouns} {transitive_past} {the} {adjective} {noun} {adverb}",
    "{name} {adverb} {transitive_past} {the} {noun} {near} the {place}",
    "{the} {adjective} {noun} and {the} {noun} {intransitive_past} {near} the {place}",
    "{the} {noun} could {intransitive} but {name} {adverb} {transitive_past} {a} {noun}",
    "when {name} {intransitive_s} {the} {adjective} {nouns} {transitive} {the} {noun}",
    "{name} was {transitive_ing} {number} {adjective} {nouns} {near} {a} {adjective} {place}",
    "{the} {nouns} {near} the {place} {adverb} {transitive} {the} {adjective} {noun}",
)
CLOSED = {
    "the": ("the", "my", "your", "his", "her", "our", "their", "this", "that", "another"),
    "a": ("a",),
    "near": ("near", "beyond", "behind", "outside", "beside", "above", "toward", "through", "past", "without"),
    "number": ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "many", "few"),
}
SECTION = {
    "name": "names",
    "place": "places",
    "noun": "nouns",
    "adjective": "adjectives",
    "adverb": "adverbs",
    "transitive": "transitive",
    "intransitive": "intransitive",
}
FORMS = {"noun": ("", "s"), "transitive": ("", "_s", "_past", "_ing"), "intransitive": ("", "_s", "_past", "_ing")}
VOWEL_LETTER_CONSONANT_SOUND = re.compile(r"uni|us[eu]|eu|one|ukulele")
SILENT_H = re.compile(r"hon|hour|heir")


@functools.cache
def word_lists() -> dict[str, tuple[str, ...]]:
    """Return the sections of `words.txt` in file order."""
    lists: dict[str, tuple[str, ...]] = {}
    section = ""
    for line in resources.files("las.data.synthesis").joinpath("words.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            lists[section] = ()
        elif line and not line.startswith("#"):
            lists[section] += tuple(line.split())
    return lists


def add_s(word: str) -> str:
    """Regular plural of a noun, or third person of a verb."""
    if re.search(r"(s|x|z|ch|sh)$", word) or re.search(r"[^aeiou]o$", word):
        return word + "es"
    return re.sub(r"y$", "ie", word) + "s" if re.search(r"[^aeiou]y$", word) else word + "s"


def add_ed(word: str) -> str:
    """Regular past tense (no doubled consonants: the lists hold no verb that needs one)."""
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if re.search(r"[^aeiou]y$", word) else word + "ed"


def add_ing(word: str) -> str:
    """Present participle of a regular verb."""
    return (word[:-1] if re.search(r"[^eoy]e$", word) else word) + "ing"


INFLECT: dict[str, Callable[[str], str]] = {"": str, "s": add_s, "_s": add_s, "_past": add_ed, "_ing": add_ing}


def article(following: str) -> str:
    """Article before the word `following`: `a` or `an`."""
    if following[0] in "aeiou":
        return "a" if VOWEL_LETTER_CONSONANT_SOUND.match(following) else "an"
    return "an" if SILENT_H.match(following) else "a"


class Grammar:
    """Grammar that draws sentences from templates.

    vocabulary: approximate number of distinct words; every word list is cut to the same share of its length.
    words: shortest and longest sentence, in words.
    Raises ArgumentError for a vocabulary that the lists cannot serve or a length that no template has.
    """

    def __init__(self, vocabulary: int, words: tuple[int, int]) -> None:
        lists = word_lists()
        closed = {word for choices in CLOSED.values() for word in choices}
        forms = {slot: len(FORMS.get(slot, ("",))) * len(lists[section]) for slot, section in SECTION.items()}
        share = (vocabulary - len(closed)) / sum(forms.values())
        if not 0.02 <= share <= 1:
            largest = sum(forms.values()) + len(closed)
            raise ArgumentError(f"vocabulary={vocabulary}: the word lists serve from 150 to {largest} words")
        self.choices: dict[str, tuple[str, ...]] = dict(CLOSED)
        for slot, section in SECTION.items():
            lemmas = lists[section][: max(3, round(share * len(lists[section])))]
            for form in FORMS.get(slot, ("",)):
                self.choices[slot + form] = tuple(INFLECT[form](lemma) for lemma in lemmas)
        self.templates = [t for t in TEMPLATES if words[0] <= len(t.split()) <= words[1]]
        if not self.templates:
            lengths = sorted({len(t.split()) for t in TEMPLATES})
            raise ArgumentError(f"words={list(words)}: no sentence has this length; lengths are {lengths}")

    @property
    def words(self) -> set[str]:
        """Words of all sentences of this grammar."""
        fixed = {word for t in self.templates for word in t.split() if "{" not in word}
        slots = {slot for t in self.templates for slot in re.findall(r"{(\w+)}", t)}
        return fixed | {word for slot in slots for word in self.choices[slot]} | {"an"}

    def sentence(self, random_source: random.Random) -> str:
        """Draw a sentence: lower-case words between single spaces, without punctuation."""
        template = random_source.choice(self.templates)
        words = [
            random_source.choice(self.choices[word.strip("{}")]) if "{" in word else word for word in template.split()
        ]
        for index, word in enumerate(words[:-1]):
            if word == "a":
                words[index] = article(words[index + 1])
        return " ".join(words)


def sentences(count: int, seed: int, vocabulary: int, words: tuple[int, int]) -> list[str]:
    """Draw `count` distinct sentences, a pure function of the arguments; shorter lists are prefixes of longer ones.

    Raises DataError if the grammar seems to have fewer.
    """
    grammar, random_source = Grammar(vocabulary, words), random.Random(seed)
    distinct: dict[str, None] = {}
    for _ in range(20 * count):
        distinct[grammar.sentence(random_source)] = None
        if len(distinct) == count:
            return list(distinct)
    raise DataError(
        f"vocabulary={vocabulary}, words={list(words)} gives {len(distinct)} distinct sentences where {count} are "
        "needed: raise vocabulary or allow longer sentences"
    )
