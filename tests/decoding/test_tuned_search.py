"""A checkpoint is decoded with the search that it was trained with, unless another one is chosen."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from las.config.build import compose
from las.decoding import tuned_search
from las.storage import bundle

CTC = ["search=beam_ctc", "search.size=3", "search.ctc.weight=0.4", "search.length_normalisation=0.0"]


@functools.cache
def search_of(*overrides: str) -> dict[str, Any]:
    return dict(compose("train", list(overrides))["search"])


def run_folder(path: Path, search: dict[str, Any]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({"name": "x", "search": search}))
    return path


@pytest.mark.parametrize("chosen", [CTC, ["search=beam", "search.max_length_ratio=0.5"], ["search=beam_guarded"]])
@pytest.mark.parametrize("verb", ["decode", "transcribe", "demo_app"])
def test_a_run_is_decoded_with_its_own_search(tmp_path: Path, chosen: list[str], verb: str) -> None:
    run = run_folder(tmp_path / "run", search_of(*chosen))
    others = ["input=x.wav"] if verb == "transcribe" else []
    composed = tuned_search.compose(verb, [f"checkpoint={run}", *others])
    assert composed["search"] == search_of(*chosen)


def test_a_bundle_and_a_single_checkpoint_have_it_too(tmp_path: Path) -> None:
    config = {"name": "x", "search": search_of(*CTC)}
    bundle.write(tmp_path / "x.las", {"weight": torch.zeros(1)}, {"step": 1}, config)
    folder = run_folder(tmp_path / "run" / "checkpoints" / "step-00000001", config["search"])
    for checkpoint in (tmp_path / "x.las", folder):
        assert tuned_search.compose("decode", [f"checkpoint={checkpoint}"])["search"] == search_of(*CTC)


@pytest.mark.parametrize(
    ("trained", "given", "expected"),
    [
        (CTC, "search.size=2", [CTC[0], "search.size=2", *CTC[2:]]),
        (CTC, "search=greedy", ["search=greedy"]),
        (["search=greedy"], "search.size=3", ["search=beam", "search.size=3"]),
    ],
)
def test_options_change_it_and_another_choice_replaces_it(
    trained: list[str], given: str, expected: list[str], tmp_path: Path
) -> None:
    run = run_folder(tmp_path / "run", search_of(*trained))
    assert tuned_search.compose("decode", [f"checkpoint={run}", given])["search"] == search_of(*expected)


def test_what_cannot_be_read_is_left_to_the_verb(tmp_path: Path) -> None:
    (tmp_path / "no_bundle").write_bytes(b"something else")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    for name in ("no_bundle", "damaged", "nowhere"):
        composed = tuned_search.compose("decode", [f"checkpoint={tmp_path / name}"])
        assert composed["search"] == search_of("search=beam")
