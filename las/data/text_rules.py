"""Rules that transcripts go through before they are learned and scored, and a table of what they change."""

import copy
import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from las.runtime.errors import ArgumentError, suggest

UNICODE_FORMS = ("NFC", "NFKC")
"""Composed forms of Unicode; transcripts in the decomposed ones are refused by the check of a corpus."""
APOSTROPHES = "'\u2019"
_SIGN = re.compile(r"[^\w\s]|_")
"""Punctuation and signs, and the combining marks of many scripts, which are no punctuation."""


class Change(NamedTuple):
    """Effect of one rule: how many texts it changes, how often it replaces or removes each symbol.

    `example` is the first word that it changes, before and after.
    """

    rule: str
    texts: int
    symbols: dict[str, int]
    example: tuple[str, str]

    def __str__(self) -> str:
        listed = sorted(self.symbols.items(), key=lambda item: (-item[1], item[0]))
        counts = ", ".join(f"{symbol!r} {f'{count:,} times' if count > 1 else 'once'}" for symbol, count in listed[:10])
        more = f" and {len(listed) - 10} others" if len(listed) > 10 else ""
        example = f"{self.example[0]!r} becomes {self.example[1]!r}"
        texts = f"{self.texts:,} text{'s' if self.texts > 1 else ''}"
        return f"{self.rule}: {texts}{f', {counts}{more}' if counts else ''}; {example}"


class TextRules:
    """Rules for transcripts, applied in this order; blanks are always single ones and none stands at the ends.

    Args:
        unicode: composed form of Unicode, NFC or NFKC; None leaves texts as they are.
        map: symbols or longer texts and what replaces them, as pairs or as a list of texts `ß: ss`.
        drop: symbols or longer texts that are removed.
        lowercase: letters become small ones.
        remove_punctuation: punctuation and signs (Unicode's categories P and S) become blanks, but for apostrophes
            inside words.

    >>> import las
    >>> rules = las.TextRules(map={"ß": "ss"}, lowercase=True, remove_punctuation=True)
    >>> rules.apply("Das weiß  ich nicht, sagt's Kind.")
    "das weiss ich nicht sagt's kind"
    """

    def __init__(
        self,
        unicode: str | None = "NFC",
        map: dict[str, str] | Sequence[str] | None = None,
        drop: Sequence[str] = (),
        lowercase: bool = False,
        remove_punctuation: bool = False,
    ) -> None:
        if unicode is not None and unicode not in UNICODE_FORMS:
            nearest = suggest(unicode, UNICODE_FORMS)
            raise ArgumentError(f"unicode={unicode}: expected null or a composed form.{nearest}")
        self._unicode = unicode
        self._map = {self._composed(symbol): self._composed(other) for symbol, other in pairs(map or {}).items()}
        self._drop = tuple(self._composed(symbol) for symbol in drop)
        if "" in self._map or "" in self._drop:
            raise ArgumentError("map and drop need symbols, and one of them is empty")
        self._lowercase, self._remove_punctuation = lowercase, remove_punctuation
        self._whole_words = False

    def for_whole_words(self) -> "TextRules":
        """Copy the rules for texts whose symbols are words or phones: `map` and `drop` then concern whole ones."""
        rules = copy.copy(self)
        rules._whole_words = True
        return rules

    def apply(self, text: str) -> str:
        """Apply all rules to a text."""
        return self.apply_all([text])[0]

    def apply_all(self, texts: Iterable[str]) -> list[str]:
        """Apply all rules to each of some texts; one that stays as it is takes no further memory."""
        rules = [rule for _, rule, _ in self._rules()]
        ruled = []
        for text in texts:
            changed = " ".join(functools.reduce(lambda so_far, rule: rule(so_far), rules, text).split())
            ruled.append(text if changed == text else changed)
        return ruled

    def changes(self, texts: Iterable[str]) -> list[Change]:
        """List what each rule changes in some texts; rules that change nothing are left out."""
        listed, changes = list(texts), []
        for name, rule, symbols in self._rules():
            after = [rule(text) for text in listed]
            changed = [(old, new) for old, new in zip(listed, after, strict=True) if old != new]
            if changed:
                counts = Counter(symbol for text, _ in changed for symbol in symbols(text))
                changes.append(Change(name, len(changed), dict(counts), _difference(*changed[0])))
            listed = after
        return changes

    def settings(self) -> dict[str, object]:
        """Return settings as plain JSON values."""
        return {
            "unicode": self._unicode,
            "map": self._map,
            "drop": list(self._drop),
            "lowercase": self._lowercase,
            "remove_punctuation": self._remove_punctuation,
        }

    def _rules(self) -> list[tuple[str, Callable[[str], str], Callable[[str], list[str]]]]:
        """Name of each rule in use, the rule, and the symbols of a text that it replaces."""
        rules: list[tuple[str, Callable[[str], str], Callable[[str], list[str]]]] = []
        if self._unicode is not None:
            rules.append((f"unicode={self._unicode}", self._composed, lambda text: []))
        if self._map:
            mapped = self._any_of(self._map)
            rules.append(("map", lambda text: mapped.sub(lambda match: self._map[match[0]], text), mapped.findall))
        if self._drop:
            dropped = self._any_of(self._drop)
            rules.append(("drop", lambda text: dropped.sub("", text), dropped.findall))
        if self._lowercase:
            rules.append(("lowercase", str.lower, lambda text: []))
        if self._remove_punctuation:
            rules.append(("remove_punctuation", _without_punctuation, _punctuation))
        return rules

    def _any_of(self, symbols: Iterable[str]) -> re.Pattern[str]:
        """Pattern of any of some texts, the longest first."""
        pattern = "|".join(map(re.escape, sorted(symbols, key=len, reverse=True)))
        return re.compile(rf"(?<!\S)(?:{pattern})(?!\S)" if self._whole_words else pattern)

    def _composed(self, text: str) -> str:
        """Compose a text; ASCII is as it is in every form, and `__init__` checked that `unicode` names one."""
        return unicodedata.normalize(self._unicode, text) if self._unicode and not text.isascii() else text  # type: ignore[arg-type]


def pairs(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Read a mapping, or a list of texts `ß: ss`. Raises ArgumentError for a text without a colon."""
    if isinstance(given, Mapping):
        return dict(given)
    read = {}
    for each in [given] if isinstance(given, str) else given:
        rest, colon, other = each[1:].partition(":")  # what is replaced may be a colon itself
        if not colon:
            raise ArgumentError(f"map={each}: expected what is replaced, a colon and what replaces it: 'ß: ss'")
        read[(each[0] + rest).strip()] = other.strip() or other[:1]  # a blank may be what replaces
    return read


def num_equal(one: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _difference(before: str, after: str) -> tuple[str, str]:
    start = before.rfind(" ", 0, num_equal(before, after)) + 1
    return before[start:].split(" ")[0], after[start:].split(" ")[0]


def _is_punctuation(sign: re.Match[str]) -> bool:
    before, after = sign.string[max(sign.start() - 1, 0) : sign.start()], sign.string[sign.end() : sign.end() + 1]
    if sign[0] in APOSTROPHES and before.isalnum() and after.isalnum():
        return False
    return unicodedata.category(sign[0])[0] in "PS"


def _without_punctuation(text: str) -> str:
    blank = _SIGN.sub(lambda sign: " " if _is_punctuation(sign) else sign[0], text)
    return " ".join(blank.split())


def _punctuation(text: str) -> list[str]:
    return [sign[0] for sign in _SIGN.finditer(text) if _is_punctuation(sign)]
