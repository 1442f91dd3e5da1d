"""The verdicts on all claims: judged by tables, corrected within families; their file, which all pages print."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from las.reproduction import result_folders, results, sequential
from las.reproduction.claims import CLAIMS
from las.reproduction.recipe import SMOKE
from las.reproduction.results import EACH_SEED, Table
from las.reproduction.verdicts import UNDECIDED, WITHDRAWN, Verdict, decide
from las.runtime.errors import StorageError
from las.storage import atomic, bounded

RECORDS = "claims.json"
"""File of all claims with their verdicts on every corpus."""
DIGITS = 10
"""Significant digits of the numbers of that file."""
NOT_TRAINED = Verdict(UNDECIDED, "no training yet")


def of_recipe(verdicts: Mapping[str, Verdict], recipe: str) -> dict[str, Verdict]:
    """Return the verdicts on the claims that a recipe's table answers."""
    return {claim.id: verdicts[claim.id] for claim in CLAIMS if claim.recipe == recipe and claim.id in verdicts}


def judge(tables: Sequence[Table]) -> dict[str, Verdict]:
    """Return a verdict for each claim by its id, on the tables of one corpus, with p values corrected for its family.

    A few steps (tier smoke) decide nothing.
    """
    by_recipe = {table.recipe: table for table in tables}
    table_of = {claim.id: by_recipe.get(claim.recipe, Table(claim.recipe, "", "", "", "", ())) for claim in CLAIMS}
    verdicts: dict[str, Verdict] = {}
    for family in dict.fromkeys(claim.family for claim in CLAIMS):
        own = [claim for claim in CLAIMS if claim.family == family]
        verdicts |= decide({claim.id: sequential.evidence(claim.rule, table_of[claim.id]) for claim in own}, family)
    for claim in CLAIMS:
        verdict, table = verdicts[claim.id], table_of[claim.id]
        if table.tier == SMOKE:
            verdicts[claim.id] = verdict._replace(verdict=UNDECIDED)
        elif claim.withdrawn and table.lines and table.chosen_by != EACH_SEED:
            verdicts[claim.id] = Verdict(WITHDRAWN, f"{claim.withdrawn}; {verdict.text}", family=claim.family)
    return {claim.id: verdicts[claim.id] for claim in CLAIMS}


def undecided(verdicts: Mapping[str, Verdict], recipe: str) -> dict[str, list[str]]:
    """Return the rows of each claim that a recipe's table leaves undecided by a test, by the claim's id."""
    own = of_recipe(verdicts, recipe)
    left = [name for name, verdict in own.items() if verdict.verdict == UNDECIDED and verdict.p is not None]
    return {claim.id: sequential.rows_of(claim.rule) for claim in CLAIMS if claim.id in left}


Records = list[dict[str, Any]]


def write_records(folder: Path, measured: Mapping[str, Verdict]) -> Path:
    """Write `claims.json` from all stored tables, but for those of the tier smoke, into a folder; returns its path.

    `measured` are the verdicts on claims that need no training, by id.
    """
    tables = [results.read(path) for path in result_folders.newest(folder, "*-*-*.json")]
    path = folder / RECORDS
    atomic.write_json(path, records([table for table in tables if table.tier != SMOKE], measured))
    return path


def records(tables: list[Table], measured: Mapping[str, Verdict]) -> Records:
    """Return a record for each claim on each corpus and tier with a table of its recipe; one for each other claim."""
    places = sorted({(table.corpus, table.tier) for table in tables})
    judged = {place: judge([table for table in tables if (table.corpus, table.tier) == place]) for place in places}
    listed = []
    for claim in CLAIMS:
        known = {(each.corpus, each.tier) for each in tables if each.recipe == claim.recipe}
        own: list[tuple[str, str] | None] = [place for place in places if place in known]
        for place in own or [None]:
            verdict = measured.get(claim.id, NOT_TRAINED) if place is None else judged[place][claim.id]
            corpus, tier = place or (None, None)
            about = {"claim": claim.id, "sentence": claim.sentence, "recipe": claim.recipe or None}
            values = {name: _rounded(value) for name, value in verdict._asdict().items()}
            listed.append(about | {"corpus": corpus, "tier": tier} | values)
    return listed


def _rounded(value: Any) -> Any:
    """Return numbers without the last digits, in which processors differ."""
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def recorded(path: Path, tier: str, corpus: str) -> dict[str, Verdict]:
    """Return the verdicts of `claims.json` on a corpus, by ids of claims. Raises StorageError for other content."""
    verdicts = {}
    try:
        for record in bounded.parse(bounded.read(path, bounded.JSON)):
            if (record["tier"], record["corpus"]) == (tier, corpus):
                values = {name: record[name] for name in Verdict._fields}
                values["interval"] = values["interval"] and tuple(values["interval"])
                verdicts[record["claim"]] = Verdict(**values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path}: no verdicts, or damaged ({error!r}): las reproduce writes it anew") from error
    return verdicts
