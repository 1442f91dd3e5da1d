"""NIST's global mapping rules (.glm): spellings that are the same word, mapped to one of them before scoring.

A rule is `A => B` or `A => B / C __ D`: the text A, where it stands between C and D, is rewritten as B; brackets or
double quotes around a part keep its blanks. At every character the first rule of the file that fits is applied. Lines
`* keyword = "value"` are headers, and what follows `;; INPUT_DEPENDENT_APPLICATION = "ctm"` holds for inputs whose
format or purpose that pattern names (NIST SCTK: doc/GLMRules.txt). Where the document and NIST's programs rfilter1
and csrfilt.sh disagree, this is what the programs do, since published numbers come from them:

- format NIST2 is refused, and so is a line of more than 131 bytes;
- keywords are found anywhere in a header line; the comment mark is the first token of the file;
- the last `/` of a line starts the context even inside the brackets of B when no context follows, and cuts B there.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from las.runtime.errors import DataError
from las.scoring.ctm import BEGIN, END, OR, CTMWord
from las.scoring.stm import Segment
from las.storage import bounded, text_files

MAX_LINE = 131  # bytes that rfilter1 reads at once
DEFAULT_MAX_RULES = 400
KEY = 4  # characters by which rules are looked up
_ASCII_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_BLANKS = " \t\n\r\v\f"
_GAP = re.compile(r"\s+", re.ASCII)
_WORDS = re.compile(r"\S+", re.ASCII)
_APPLICATION = re.compile(r';;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')
_VALUE = re.compile(r"[\"']([^\"']*)")


@dataclass(frozen=True)
class Rule:
    """Rule that rewrites `source` as `target` between `before` and `after`."""

    source: str
    target: str
    before: str
    after: str


@dataclass(frozen=True)
class MappingRules:
    """Rules for one kind of input, in file order, with their headers.

    Where case does not matter, what a rule looks for is in upper case.
    """

    name: str
    description: str
    case_sensitive: bool
    copy_no_hit: bool
    rules: tuple[Rule, ...]
    _fitting: dict[str, list[Rule]] = field(default_factory=dict, compare=False, repr=False)

    def apply(self, text: str) -> str:
        """Return the text rewritten in one pass from left to right, as rfilter1 does it."""
        folded = text if self.case_sensitive else upper(text)
        output = []
        position = 0
        while position < len(text):
            rule = self._first(folded, position)
            if rule is not None:
                output.append(rule.target)
                position += len(rule.source)
            else:
                if self.copy_no_hit:
                    output.append(text[position])
                position += 1
        return "".join(output)

    def filter(self, text: str) -> str:
        """Return the text as csrfilt.sh -dh leaves it: upper case, rules, hyphens inside words split, (a b) as (a) (b).

        Raises DataError for brackets that do not match, which csrfilt.sh refuses.
        """
        spaced = f" {upper(text).replace('(', '( ').replace(')', ' )')} "
        if re.search(r"[()]", re.sub(r"\([^()]*\)", "", spaced)):
            raise DataError(f"the brackets of optional words do not match in {text.strip()!r}")
        split = re.sub(r"([^( ])-(?=[^) ])", r"\1 ", self.apply(spaced))
        pairs = 1
        while pairs:
            split, pairs = re.subn(r"(\(\s+[^()\s]+\s+)([^()\s]+)", r"\1) ( \2", split, count=1)
        return re.sub(r"\s+\)", ")", re.sub(r"\(\s+", "(", split)).strip()

    def _first(self, text: str, position: int) -> Rule | None:
        for rule in self._candidates(text[position : position + KEY]):
            fits = text.startswith(rule.source, position) and text.endswith(rule.before, 0, position)
            if fits and text.startswith(rule.after, position + len(rule.source)):
                return rule
        return None

    def _candidates(self, start: str) -> list[Rule]:
        """Rules that can match where a text continues with `start`."""
        if start not in self._fitting:
            among = self._candidates(start[:-1]) if len(start) > 1 else [rule for rule in self.rules if rule.source]
            self._fitting[start] = [rule for rule in among if start.startswith(rule.source[: len(start)])]
        return self._fitting[start]


@dataclass(frozen=True)
class Glm:
    """Global mapping rules of a file, which `name` and `sha256` identify in results."""

    path: Path
    name: str
    sha256: str
    reference: MappingRules
    """Rules for a stm that is a reference."""
    hypothesis: MappingRules
    """Rules for a ctm that is a hypothesis."""

    @classmethod
    def read(cls, path: str | Path) -> "Glm":
        """Read the file and check its rules. Raises DataError naming file and line."""
        path = Path(path)
        try:
            content = bounded.read(path, bounded.LINES)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({bounded.reason(error)})") from error
        lines = text_files.decode(content, path).split("\n")
        reference, hypothesis = (
            _rules(path, _applying(path, lines, kind)) for kind in (("stm", "ref"), ("ctm", "hyp"))
        )
        return cls(path, reference.name, hashlib.sha256(content).hexdigest(), reference, hypothesis)

    def filter_segments(self, segments: Iterable[Segment]) -> list[Segment]:
        """Return the references as csrfilt.sh -i stm -t ref -dh leaves them. Raises DataError naming the segment."""
        filtered = []
        for segment in segments:
            try:
                text = self.reference.filter(f" {' '.join(_WORDS.findall(segment.text))} ")
            except DataError as error:
                place = f"file {segment.file}, channel {segment.channel}, {segment.start_s} s"
                raise DataError(f"{self.path}: cannot filter the segment ({place}): {error}") from error
            filtered.append(replace(segment, text=text))
        return filtered

    def filter_words(self, words: Iterable[CTMWord]) -> list[CTMWord]:
        """Hypotheses as csrfilt.sh -i ctm -t hyp -dh leaves them: a word that becomes several shares its duration among
        them, one that becomes `{a / b}` becomes alternatives. Signs of markup in a word itself are letters: one with
        braces or brackets that do not match is only put into upper case, a slash stays. Raises DataError naming a word
        that is mapped to an alternative without words.

        A word that is mapped to nothing is dropped, also where it has a confidence (csrfilt.sh would leave the
        confidence in its place as a word).
        """
        return [part for word in words for part in self._parts(word)]

    def _parts(self, word: CTMWord) -> list[CTMWord]:
        try:
            filtered = self.hypothesis.filter(word.text)
        except DataError:
            filtered = None
        if filtered is None or "{" in word.text or "}" in word.text:
            return [word._replace(text=upper(word.text))]
        tokens = _WORDS.findall(re.sub("([{}])", r" \1 ", filtered))
        if word.tag or (len(tokens) == 1 and word.confidence is None):
            return [word._replace(text="".join(tokens))]
        if word.confidence is None and tokens and re.fullmatch("[0-9.-]*", tokens[-1]):
            tokens.pop()  # csrfilt.sh takes a number at the end of the line for a confidence
        texts = [" ".join(token for token in tokens if token not in "{}")]
        if "/" not in word.text or "{" in tokens:
            texts = texts[0].split("/")
        alternatives = [_shared(word, text.split()) for text in texts]
        if len(alternatives) == 1:
            return alternatives[0]
        if not all(alternatives):
            raise DataError(f"{self.path}: {word.text!r} is mapped to an empty alternative, which is the word @")
        tags = [word._replace(start_s=0.0, duration_s=0.0, text=tag, confidence=None) for tag in (BEGIN, OR, END)]
        middle = [part for words in alternatives for part in (*words, tags[1])]
        return [tags[0], *middle[:-1], tags[2]]


def upper(text: str) -> str:
    """Upper-case ASCII letters and no others, as NIST's tools for English do."""
    return text.translate(_ASCII_UPPER)


def _shared(word: CTMWord, texts: list[str]) -> list[CTMWord]:
    """Divide the duration of a word among its parts, in milliseconds, as csrfilt.sh prints them."""
    duration_s = word.duration_s / max(len(texts), 1)
    starts = (word.start_s + duration_s * index for index in range(len(texts)))
    return [
        word._replace(start_s=float(f"{start_s:.3f}"), duration_s=float(f"{duration_s:.3f}"), text=text)
        for start_s, text in zip(starts, texts, strict=True)
    ]


def _applying(path: Path, lines: Iterable[str], kind: tuple[str, str]) -> list[tuple[int, str]]:
    """Return the lines, with their numbers, that apply to an input of this format and purpose."""
    applying = []
    applies = True
    for number, line in enumerate(lines, start=1):
        if match := _APPLICATION.match(line):
            pattern = match[1].lower()
            try:
                applies = any(pattern and re.search(pattern, name) for name in kind)
            except re.error as error:
                raise DataError(f"{path}:{number}: {match[1]!r} is no regular expression ({error})") from error
        if applies:
            applying.append((number, line))
    return applying


def _rules(path: Path, numbered: list[tuple[int, str]]) -> MappingRules:
    comment = re.split(r"\s", numbered[0][1], maxsplit=1)[0]
    headers = {"NAME": path.name, "DESC": "", "FORMAT": "NIST1"}
    headers |= {"MAX_NRULES": str(DEFAULT_MAX_RULES), "COPY_NO_HIT": "T", "CASE_SENSITIVE": "T"}
    rules: list[Rule] = []
    for number, raw in numbered[1:]:
        where = f"{path}:{number}"
        line = raw.rstrip(_BLANKS)
        if len(raw.encode("utf-8")) > MAX_LINE:
            raise DataError(f"{where}: the line has more than {MAX_LINE} bytes, which NIST's rfilter1 cuts in two")
        if not line or (comment and line.startswith(comment)):
            continue
        if line.startswith("*"):
            headers |= _header(line, headers, where)
        else:
            rules.append(_rule(line.partition(comment)[0] if comment else line, where))
    if headers["FORMAT"] != "NIST1":
        raise DataError(f"{path}: format {headers['FORMAT']!r}: NIST's rfilter1 applies rules of format 'NIST1' only")
    limit = re.match(r"\s*\d+", headers["MAX_NRULES"])
    if len(rules) > (int(limit[0]) if limit else 0):
        raise DataError(
            f"{path}: {len(rules)} rules where {headers['MAX_NRULES']} are allowed: raise * max_nrules = '...'"
        )
    case_sensitive, copy_no_hit = (
        headers[key].upper() in ("T", "TRUE", "YES") for key in ("CASE_SENSITIVE", "COPY_NO_HIT")
    )
    if not case_sensitive:
        rules = [Rule(upper(rule.source), rule.target, upper(rule.before), upper(rule.after)) for rule in rules]
    return MappingRules(headers["NAME"], headers["DESC"], case_sensitive, copy_no_hit, tuple(rules))


def _header(line: str, headers: dict[str, str], where: str) -> dict[str, str]:
    value = _VALUE.search(line)
    if value is None:
        raise DataError(f"{where}: a header without a value in quotes: * keyword = 'value'")
    return {key: value[1] for key in headers if key in line.upper()}


def _rule(line: str, where: str) -> Rule:
    arrow = line.find("=>")
    if arrow < 0:
        raise DataError(f"{where}: no arrow: a rule is A => B or A => B / C __ D")
    slash = line.rfind("/")
    opening, closing = line.find("[", slash), line.find("]", slash)
    # A slash whose next bracket is an opening one without a closing one, and none, is part of B.
    if slash >= 0 and opening >= 0 and closing < opening:
        slash = -1
    source = _unquoted(line[:arrow].strip(_BLANKS))
    target = _part(line[arrow:slash] if slash >= 0 else line[arrow:])
    slot = line.find("_", slash) if slash >= 0 else -1
    if slot < 0:
        return Rule(source, target, "", "")
    return Rule(source, target, _part(line[slash:slot]), _part(line[slot:]))


def _part(text: str) -> str:
    """Text behind the first token (arrow, slash or slot)."""
    pieces = _GAP.split(text.rstrip(_BLANKS), maxsplit=1)
    return _unquoted(pieces[1]) if len(pieces) > 1 else ""


def _unquoted(text: str) -> str:
    return text[1:-1] if text[:1] + text[-1:] in ("[]", '""') else text
