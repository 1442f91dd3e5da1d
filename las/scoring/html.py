"""HTML page of a score, self-contained: no network, no script; for light and dark, wide and narrow screens."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from las.scoring.error_rates import SHORT_NAMES, Alignment, ErrorRate, Score, count, percent

LISTED = 30  # rows of the lists of frequent errors

_STYLE = """
:root { color-scheme: light dark; --line: #d0d4da; --soft: #667; --sub: #9a5b00; --del: #b3261e; --ins: #1565c0; }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a3f47; --soft: #99a1ad; --sub: #f0b35a; --del: #ff8a80; --ins: #82b1ff; }
}
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.rate { font-size: 2rem; margin: .3rem 0; } .soft { color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.lists { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.utterance { border-top: 1px solid var(--line); padding: .5rem 0; overflow-wrap: anywhere; }
del { color: var(--del); text-decoration: line-through; } ins { color: var(--ins); text-decoration: underline; }
.sub del, .sub ins { color: var(--sub); }
"""


def page(score: Score, metric: str, title: str, convention: str) -> str:
    """HTML page of a score: rate and interval, parts, frequent errors, and every utterance, most errors first."""
    total = score.total
    limits = "" if score.interval is None else f" [{100 * score.interval[0]:.1f}, {100 * score.interval[1]:.1f}]"
    missing = f"<p>{len(score.missing)} without a hypothesis, counted as deleted</p>" if score.missing else ""
    parts = {**score.speakers, **{f"subset {name}": rate for name, rate in score.subsets.items()}, "total": total}
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p class="rate">{SHORT_NAMES[metric]} {100 * total.rate:.1f} %{limits}</p>
<p class="soft">{total.errors} errors of {total.words} words in {total.utterances} utterances; convention
{escape(convention)}; in brackets the 95 % interval</p>
{missing}<h2>Parts</h2>
{_parts(parts, metric)}
<h2>Frequent errors</h2>
<div class="lists">{_lists(score)}</div>
<h2>Utterances, most errors first</h2>
<p class="soft"><span class="sub"><del>said</del> <ins>written</ins></span> substitution, <del>said</del> deletion,
<ins>written</ins> insertion</p>
{_utterances(score.utterances)}
</body></html>
"""


def _parts(parts: Mapping[str, ErrorRate], metric: str) -> str:
    headings = ("", "utterances", "words", "correct %", "sub %", "del %", "ins %", f"{SHORT_NAMES[metric]} %")
    rows = []
    for name, rate in parts.items():
        kinds = (rate.correct, rate.substitutions, rate.deletions, rate.insertions, rate.errors)
        rows.append([name, str(rate.utterances), str(rate.words), *(percent(number, rate) for number in kinds)])
    return _table(headings, rows)


def _lists(score: Score) -> str:
    pairs = [(f"{each.reference} as {each.hypothesis}", each.count) for each in score.confusions]
    aligned = [each for alignment in score.utterances.values() for each in alignment]
    deleted = Counter(str(each.reference) for each in aligned if each.kind == "deletion")
    inserted = Counter(str(each.hypothesis) for each in aligned if each.kind == "insertion")
    lists = (("confused", pairs), ("deleted", deleted.most_common()), ("inserted", inserted.most_common()))
    return "".join(
        f"<div>{_table((title, 'times'), [(name, str(number)) for name, number in entries[:LISTED]])}</div>"
        for title, entries in lists
        if entries
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _utterances(utterances: Mapping[str, Alignment]) -> str:
    rates = {name: count([alignment]) for name, alignment in utterances.items()}
    ordered = sorted(utterances, key=lambda name: -rates[name].errors)
    return "\n".join(
        f'<div class="utterance"><div class="soft">{escape(name)}: {rates[name].errors} of {rates[name].words}</div>\n'
        f"{' '.join(_edit(*aligned) for aligned in utterances[name])}</div>"
        for name in ordered
    )


def _edit(reference: str | None, hypothesis: str | None, kind: str) -> str:
    """HTML of one aligned pair: plain if correct, else reference struck out and hypothesis underlined."""
    said = "" if reference is None else f"<del>{escape(reference)}</del>"
    written = "" if hypothesis is None else f"<ins>{escape(hypothesis)}</ins>"
    match kind:
        case "correct":
            return escape(hypothesis or f"({reference})")
        case "substitution":
            return f'<span class="sub">{said} {written}</span>'
        case _:
            return said + written
