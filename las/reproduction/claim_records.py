"""All claims of the papers with their verdicts on every corpus, as one JSON file for other programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from las.reproduction import claims, result_folders, results
from las.reproduction.recipe import SMOKE
from las.reproduction.results import Table
from las.reproduction.verdicts import UNDECIDED, Verdict
from las.storage import atomic

FILE = "claims.json"
NOT_TRAINED = Verdict(UNDECIDED, "no training yet")


def write(folder: Path, measured: Mapping[str, Verdict]) -> Path:
    """Write `claims.json` from all stored tables, but for those of the tier smoke, into a folder; returns its path.

    `measured` are the verdicts on claims that need no training, by id.
    """
    tables = [results.read(path) for path in result_folders.newest(folder, "*-*-*.json")]
    path = folder / FILE
    atomic.write_json(path, records([table for table in tables if table.tier != SMOKE], measured))
    return path


def records(tables: list[Table], measured: Mapping[str, Verdict]) -> list[dict[str, Any]]:
    """A record for each claim on each corpus and tier with a table of its recipe; one without them where there is none.

    p values are corrected for all claims that are judged on the same corpus and tier.
    """
    places = sorted({(table.corpus, table.tier) for table in tables})
    judged = {
        (corpus, tier): claims.judge(
            claims.CLAIMS, [table for table in tables if (table.corpus, table.tier) == (corpus, tier)]
        )
        for corpus, tier in places
    }
    listed = []
    for claim in claims.CLAIMS:
        known = {(each.corpus, each.tier) for each in tables if each.recipe == claim.recipe}
        own: list[tuple[str, str] | None] = [place for place in places if place in known]
        for place in own or [None]:
            verdict = measured.get(claim.id, NOT_TRAINED) if place is None else judged[place][claim.id]
            corpus, tier = place or (None, None)
            about = {"claim": claim.id, "sentence": claim.sentence, "recipe": claim.recipe or None}
            listed.append(about | {"corpus": corpus, "tier": tier} | verdict._asdict())
    return listed
