"""claims.json: every claim, with the verdict of each corpus that it was judged on."""

import dataclasses
import json
from pathlib import Path

import pytest
from trained_tables import table

from las.reproduction import claims, judging, result_folders, results
from las.reproduction.verdicts import SUPPORTED, Verdict

LOW, HIGH = (0.100, 0.101, 0.099), (0.200, 0.201, 0.199)
CLEAR = {"ln_encoder_only": LOW, "baseline": HIGH}


def test_a_claim_has_a_record_for_each_corpus_and_every_claim_has_one() -> None:
    here = table(CLEAR, name="bo18_table1")
    there = dataclasses.replace(table({**CLEAR, "baseline": LOW}, name="bo18_table1"), corpus="an4")
    records = judging.records([here, there], {"C26": Verdict(SUPPORTED, "as measured")})
    assert {record["claim"] for record in records} == {claim.id for claim in claims.CLAIMS}
    of_c2 = {record["corpus"]: record for record in records if record["claim"] == "C2"}
    assert {corpus: record["verdict"] for corpus, record in of_c2.items()} == {
        "synthetic": "supported",
        "an4": "too small to matter",
    }
    first = of_c2["synthetic"]
    assert (first["verdict"], first["trainings"], first["tier"]) == ("supported", 3, "open")
    assert first["effect"] < 0 and first["interval"][1] < 0 and first["power"] > 0.8 and first["needed"] == 2
    (alone,) = (record for record in records if record["claim"] == "C19")
    assert (alone["corpus"], alone["verdict"], alone["text"]) == (None, "undecided", "no training yet")
    (property_,) = (record for record in records if record["claim"] == "C26")
    assert (property_["verdict"], property_["text"], property_["recipe"]) == ("supported", "as measured", None)


def test_the_file_has_all_stored_tables_but_those_of_smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_folders, "own", lambda: tmp_path / "own")
    the_projects = dataclasses.replace(table(CLEAR, name="bo18_table1"), corpus="an4")
    results.write(the_projects, tmp_path / "own" / f"{the_projects.stem}.json")
    for tier, corpus in (("open", "synthetic"), ("smoke", "synthetic")):
        made = dataclasses.replace(table(CLEAR, tier=tier, name="bo18_table1"), corpus=corpus)
        results.write(made, tmp_path / f"{made.stem}.json")
    path = judging.write_records(tmp_path, {})
    records = json.loads(path.read_text("utf-8"))
    assert {(record["tier"], record["corpus"]) for record in records} == {
        ("open", "synthetic"),
        ("open", "an4"),
        (None, None),
    }
    assert judging.write_records(tmp_path, {}) == path, "the file itself is no table"
