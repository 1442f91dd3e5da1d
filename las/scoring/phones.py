"""TIMIT's 61 phone labels and their folding to 48 (training) and 39 (scoring).

Lee and Hon, "Speaker-independent phone recognition using hidden Markov models", 1989, in the form that Kaldi's TIMIT
recipe uses: the glottal stop `q` is deleted.
"""

from las.runtime.errors import DataError, suggest

# label of TIMIT, its phone in the set of 48, its phone in the set of 39; `q` has none.
_ROWS = """
aa aa aa|ae ae ae|ah ah ah|ao ao aa|aw aw aw|ax ax ah|ax-h ax ah|axr er er|ay ay ay|b b b|bcl vcl sil|ch ch ch|d d d
dcl vcl sil|dh dh dh|dx dx dx|eh eh eh|el el l|em m m|en en n|eng ng ng|epi epi sil|er er er|ey ey ey|f f f|g g g
gcl vcl sil|h# sil sil|hh hh hh|hv hh hh|ih ih ih|ix ix ih|iy iy iy|jh jh jh|k k k|kcl cl sil|l l l|m m m|n n n
ng ng ng|nx n n|ow ow ow|oy oy oy|p p p|pau sil sil|pcl cl sil|q|r r r|s s s|sh sh sh|t t t|tcl cl sil|th th th
uh uh uh|uw uw uw|ux uw uw|v v v|w w w|y y y|z z z|zh zh sh
"""
_TABLE = [row.split() for row in _ROWS.strip().replace("\n", "|").split("|")]

LABELS: tuple[str, ...] = tuple(row[0] for row in _TABLE)
SIZES = (61, 48, 39)


def _folding(column: int) -> dict[str, str | None]:
    """Every label of the three sets -> the phone of one set (`None`: deleted)."""
    folding: dict[str, str | None] = {}
    for row in _TABLE:
        phones = [*row, None, None][:3]
        for source in range(column + 1):
            symbol = phones[source]
            if symbol is not None:
                folding.setdefault(symbol, phones[column])
    for row in _TABLE:
        for symbol in row[column:]:
            folding.setdefault(symbol, symbol)
    return folding


_FOLDINGS = {size: _folding(column) for column, size in enumerate(SIZES)}


def phone_set(size: int) -> tuple[str, ...]:
    """Return the phones of one set, in the order of the table: all 61 labels, or the 48 or 39 phones they fold to."""
    if size not in SIZES:
        raise DataError(f"there is no set of {size} phones: phone_set is 61, 48 or 39")
    column = SIZES.index(size)
    return tuple(dict.fromkeys(row[column] for row in _TABLE if len(row) > column))


def fold(symbol: str, size: int) -> str | None:
    """Return the phone of the set of `size` that a label of any of the three sets belongs to; None where it is deleted.

    Folding only goes down: a symbol that is already coarser than the set asked for stays what it is. `q` stays in the
    set of 61, which holds the labels as they are, and is deleted from the others.
    Raises DataError for a symbol of none of the sets and for a size other than 61, 48 and 39.
    """
    if size not in SIZES:
        raise DataError(f"there is no set of {size} phones: phone_set is 61, 48 or 39")
    folding = _FOLDINGS[size]
    if symbol not in folding:
        raise DataError(f"{symbol!r} is not a TIMIT phone.{suggest(symbol, folding)}")
    return folding[symbol]


def fold_text(text: str, size: int) -> list[str]:
    """Return the phones of the set of `size` of a text in labels, without those that are deleted. Raises as `fold`."""
    return [phone for symbol in text.split() if (phone := fold(symbol, size)) is not None]
