"""Decoding shared by several processes: what they write together is what one of them writes, to the byte."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
import tiny
from processes import Ending, together

from las.cli import main


class Verb(NamedTuple):
    """A body: a verb with its arguments."""

    arguments: list[str]

    def __call__(self) -> int:
        return main.main(self.arguments)


def with_processes(place: Path, count: int, *arguments: str) -> Ending:
    return together(place, count, Verb([*arguments, f"output={place / f'{count}.jsonl'}"]))


@pytest.mark.parametrize(
    "subject",
    [["decode", "split=train", "batch_size=3"], ["decode", "split=dev", "batch_size=1", "augment=noise"]],
    ids=" ".join,
)
def test_a_split_decoded_by_two_processes_is_that_of_one(trained: Path, tmp_path: Path, subject: list[str]) -> None:
    verb, *more = subject
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}"]
    alone, shared = (with_processes(tmp_path, count, verb, *places, *more) for count in (1, 2))
    assert (alone.codes, shared.codes) == ([0], [0, 0]), shared.said
    assert (tmp_path / "2.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()
    assert shared.said == alone.said.replace("1.jsonl", "2.jsonl"), "only the main process prints"


def test_files_are_shared_and_each_process_prints_its_own(trained: Path, tmp_path: Path) -> None:
    files = ",".join(str(tiny.wav(trained, f"ftr0_sx{index}")) for index in range(5))
    for verb, key in (("decode", "audio"), ("transcribe", "input")):
        given = [verb, f"checkpoint={trained / 'run'}", f"{key}=[{files}]"]
        alone, shared = (with_processes(tmp_path, count, *given) for count in (1, 2))
        assert (alone.codes, shared.codes) == ([0], [0, 0]), shared.said
        assert (tmp_path / "2.jsonl").read_bytes() == (tmp_path / "1.jsonl").read_bytes()
        assert len((tmp_path / "1.jsonl").read_text().splitlines()) == 5
        of_files = [sorted(line for line in ending.said.splitlines() if ".WAV: " in line) for ending in (alone, shared)]
        assert of_files[0] == of_files[1] and len(of_files[0]) == 5


def test_a_recording_that_one_process_cannot_read_is_named_once(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_bytes(b"nothing")
    files = f"[{tiny.wav(trained, 'ftr0_sx0')},{tmp_path / 'bad.wav'},{tiny.wav(trained, 'ftr0_sx2')}]"
    ending = with_processes(tmp_path, 2, "transcribe", f"checkpoint={trained / 'run'}", f"input={files}")
    assert ending.codes == [3, 3] and ending.said.count("1 of 3 recordings could not be transcribed") == 1
    assert [json.loads(line)["id"][-5:] for line in (tmp_path / "2.jsonl").read_text().splitlines()] == [
        "0.WAV",
        "2.WAV",
    ]


def test_standard_input_is_refused(trained: Path, tmp_path: Path) -> None:
    ending = with_processes(tmp_path, 2, "transcribe", f"checkpoint={trained / 'run'}", "input=-")
    assert ending.codes == [2, 2] and "several processes cannot share standard input" in ending.said


def test_tuning_by_two_processes_finds_what_one_finds(trained: Path, tmp_path: Path) -> None:
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "search=beam", "batch_size=1"]
    grid = ["weights.lm=null", "weights.coverage=[0,0.4]", "length_normalisation=[0.0,1.0]"]
    for count in (1, 2):
        ending = together(tmp_path, count, Verb(["tune", *places, *grid, f"output={tmp_path / f'{count}.yaml'}"]))
        assert ending.codes == [0] * count, ending.said
        assert ending.said.count("4 combinations") == 1
    assert (tmp_path / "2.yaml").read_text() == (tmp_path / "1.yaml").read_text()
