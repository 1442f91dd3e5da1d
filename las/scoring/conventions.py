"""Named scoring conventions: which tokens of a text are compared, and by which rules.

A rate means little without its convention: TIMIT's core test has 7,215 reference tokens in one and 7,333 in another.
docs/scoring.md says what each is for.
"""

from collections.abc import Callable
from dataclasses import dataclass

from las.runtime.errors import ConfigError, DataError, suggest
from las.scoring import phones
from las.scoring.alignment import AlignmentRules

Tokens = Callable[[str], list[str]]
"""Tokenisation of a text for scoring. Raises DataError for symbols that are not tokens."""


@dataclass(frozen=True)
class Convention:
    """Scoring convention: tokenisation of reference and hypothesis, alignment rules, and name of the error rate."""

    name: str
    metric: str
    reference: Tokens
    hypothesis: Tokens
    rules: AlignmentRules = AlignmentRules()  # noqa: RUF009 - frozen


def timit_phones(text: str) -> list[str]:
    """Phones of any of TIMIT's three sets folded to 39; `q`, the glottal stop, is deleted, silences are phones."""
    return phones.fold_text(text, 39)


def timit_phones_and_q(text: str) -> list[str]:
    """Phones as in `timit_phones`, with `q` as a 40th phone."""
    return [symbol if symbol == "q" else phone for symbol in text.split() if (phone := phones.fold(symbol, 39) or "q")]


def _labels_and_q(text: str) -> list[str]:
    if "sil" in text.split():
        raise DataError(
            "convention=timit_glottal counts q, which is deleted where `sil` is a phone: it needs references in "
            "TIMIT's 61 labels. Prepare the corpus with corpus.phone_set=61, or score with convention=timit_kaldi."
        )
    return timit_phones_and_q(text)


def _optional_silences(text: str) -> list[str]:
    return ["(sil)" if phone == "sil" else phone for phone in timit_phones(text)]


def _without_silences(text: str) -> list[str]:
    return [phone for phone in timit_phones(text) if phone != "sil"]


_PER = "phone_error_rate"
_ALL = (
    Convention("nist", "wer", str.split, str.split),
    Convention("timit_kaldi", _PER, timit_phones, timit_phones),
    Convention("timit_glottal", _PER, _labels_and_q, timit_phones_and_q),
    Convention("timit_optional_silence", _PER, _optional_silences, timit_phones, AlignmentRules(optional_words=True)),
    Convention("timit_no_silence", _PER, _without_silences, _without_silences),
)
CONVENTIONS = {convention.name: convention for convention in _ALL}


def convention(name: str) -> Convention:
    """Return the convention of a name. Raises ConfigError with the nearest names for an unknown one."""
    if name not in CONVENTIONS:
        raise ConfigError(f"convention={name}: there is no such convention.{suggest(name, CONVENTIONS)}")
    return CONVENTIONS[name]
