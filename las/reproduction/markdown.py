"""A recipe's table as Markdown for the repository, and the list of all claims."""

from collections.abc import Mapping, Sequence

from las.reproduction import claims, tables
from las.reproduction.hypotheses import Comparison
from las.reproduction.recipe import Recipe
from las.reproduction.results import EACH_SEED, Table
from las.reproduction.verdicts import Verdict
from las.scoring.error_rates import SHORT_NAMES

TIER_WORDS = {
    "paper": "the paper's corpus and size",
    "open": "open data at reduced size: the claims can be compared with the paper's, the sizes of numbers cannot",
    "smoke": "a few steps of a tiny model, which show that every row can be trained, and nothing else",
}
BROKEN_SHOWN = 240  # characters of a reason


def document(recipe: Recipe, table: Table, verdicts: Mapping[str, Verdict], compared: Sequence[Comparison] = ()) -> str:
    """Everything a reader needs to judge the numbers; `compared` are rows against the first one by their utterances."""
    lines = [
        f"# {recipe.title}",
        "",
        f"Source of the paper's numbers: {recipe.source}.",
        f"Ours: corpus `{table.corpus}`, tier `{table.tier}` ({TIER_WORDS[table.tier]}).",
        "",
        f"    {table.command}",
        "",
        *table_lines(tables.headings(recipe, table), tables.rows(recipe, table)),
        "",
        *(line for note in tables.notes(recipe) for line in (f"{note}.", "")),
        explanation(recipe, table),
        "",
        *_broken(table),
        *_rates(table),
        *_compared(table, compared),
        *_claims(verdicts),
        f"## Assumed at the tier {table.tier}",
        "",
        *(f"- {line}" for line in tables.assumptions(recipe, table)),
        "",
    ]
    return "\n".join(lines)


def explanation(recipe: Recipe, table: Table) -> str:
    """Return the explanation of the columns."""
    compared = f" {tables.DIFFERENCE.capitalize()} is in points." if tables.comparable(recipe, table) else ""
    return (
        "SD is the sample standard deviation over trainings, SE that of the mean, the interval Student's; one marked "
        "with s or u is of a single training, over the speakers or utterances of the test. Broken trainings are not in "
        "these numbers; verdicts count them. Steps are updates: that of the best dev error, and the first within 1 % "
        "(relative) of it. Converged: dev less than 2 % better in the last fifth of the steps; a row with other "
        f"trainings has the mark {tables.MARK}. Hours are those of training." + compared
    )


def claims_document(verdicts: Mapping[str, Verdict], tier: str, corpus: str) -> str:
    """All claims with their verdicts."""
    lines = [
        f"# The papers' claims on `{corpus}`, tier `{tier}`",
        "",
        "Those of claims.json, computed from the tables (.json) beside this file by the rules of",
        "`las/reproduction/rules.py`. p values are adjusted (Holm) for each family of claims: the chance of any false",
        "verdict in one is at most 5 %. How to read the lines: docs/statistics.md.",
        "",
    ]
    for family in dict.fromkeys(verdict.family for verdict in verdicts.values()):
        own = {name: verdict for name, verdict in verdicts.items() if verdict.family == family}
        lines += [f"## {family[:1].upper()}{family[1:]}", "", *_verdicts(own)]
    return "\n".join(lines)


def _claims(verdicts: Mapping[str, Verdict]) -> list[str]:
    note = (
        "Verdicts are those of claims.json: p values are adjusted (Holm) for all claims of a paper on this corpus. "
        "docs/statistics.md says how to read the lines."
    )
    return ["## Claims", "", note, "", *_verdicts(verdicts)] if verdicts else []


def _verdicts(verdicts: Mapping[str, Verdict]) -> list[str]:
    sentences = {claim.id: claim.sentence for claim in claims.CLAIMS}
    rows = [[name, sentences[name], verdict.answer, verdict.text] for name, verdict in verdicts.items()]
    return [*table_lines(["", "claim", "verdict", "test"], rows), ""]


def _broken(table: Table) -> list[str]:
    """Return the reasons of trainings that diverged."""
    reasons = [
        f"- {line.label}, seed {outcome.seed}, step {outcome.steps:,}: {outcome.broken[:BROKEN_SHOWN]}"
        for line in table.lines
        for outcome in line.outcomes
        if outcome.broken
    ]
    return ["Broken:", "", *reasons, ""] if reasons else []


def _rates(table: Table) -> list[str]:
    """Dev errors by learning rate where several were tried, and what chose."""
    headings, rows = tables.rates(table)
    if not rows:
        return []
    note = f"Chosen by {table.chosen_by}; in brackets how many of the trainings with a rate count."
    if table.chosen_by != EACH_SEED:
        note += (
            " This choice is a chance that p values and intervals do not contain: more differences than one in twenty "
            "are false between equal rows (docs/statistics.md)."
        )
    return ["## Learning rates", "", note, "", *table_lines(headings, rows), ""]


def _compared(table: Table, compared: Sequence[Comparison]) -> list[str]:
    """Rows against the first one, utterance by utterance."""
    if not compared:
        return []
    note = (
        f"Differences from the first row on the same utterances and seeds, in points of {SHORT_NAMES[table.metric]}. "
        "Intervals are over seeds and speakers (or utterances) together; p is that of each comparison alone."
    )
    headings = ["row", "part", "difference", "95 % interval", "p", "seeds", "units"]
    rows = []
    for row, split, test, num_seeds, num_units, units in compared:
        bounds = "" if test.interval is None else "[{:+.1f}, {:+.1f}]".format(*(100 * each for each in test.interval))
        p = "" if test.p is None else f"{test.p:.2g}"
        difference = f"{100 * test.difference:+.1f}"
        rows.append([table.line(row).label, split, difference, bounds, p, str(num_seeds), f"{num_units} {units}"])
    return ["## Utterance by utterance", "", note, "", *table_lines(headings, rows), ""]


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (headings, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"|{'---|' * len(headings)}", *lines[1:]]
