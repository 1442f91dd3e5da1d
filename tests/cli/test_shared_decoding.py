"""Decoding shared by several processes: what they write together is what one of them writes, to the byte."""

import json
from pathlib import Path

import pytest
import tiny
from console import Answer, Las
from processes import together
from tiers import rest_slow

from las.cli import main


class Verb(list[str]):
    """A body: a verb with its arguments."""

    def __call__(self) -> int:
        return main.main(self)


def one_and_two(place: Path, las: Las, code: int, *arguments: str, output: str = "jsonl") -> tuple[Answer, str]:
    """What one process answers and two print; both write the same bytes into `1.<output>` and `2.<output>`."""
    alone = las(*arguments, f"output={place / f'1.{output}'}")
    ending = together(place, 2, Verb([*arguments, f"output={place / f'2.{output}'}"]))
    assert (alone.code, ending.codes) == (code, [code] * 2), (alone, ending.said)
    assert (place / f"2.{output}").read_bytes() == (place / f"1.{output}").read_bytes()
    return alone, ending.said


@pytest.mark.parametrize("subject", rest_slow(["split=dev batch_size=1 augment=noise", "split=train batch_size=3"]))
def test_a_split_decoded_by_two_processes_is_that_of_one(subject: str, trained: Path, tmp_path: Path, las: Las) -> None:
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}"]
    alone, said = one_and_two(tmp_path, las, 0, "decode", *places, *subject.split())
    assert said == alone.out.replace("1.jsonl", "2.jsonl"), "only the main process prints"


@pytest.mark.parametrize(("verb", "key"), rest_slow([("transcribe", "input"), ("decode", "audio")]))
def test_files_are_shared_and_each_process_prints_its_own(
    verb: str, key: str, trained: Path, tmp_path: Path, las: Las
) -> None:
    files = ",".join(str(tiny.wav(trained, f"ftr0_sx{index}")) for index in range(5))
    alone, said = one_and_two(tmp_path, las, 0, verb, f"checkpoint={trained / 'run'}", f"{key}=[{files}]")
    of_files = [sorted(line for line in text.splitlines() if ".WAV: " in line) for text in (alone.out, said)]
    assert of_files[0] == of_files[1] and len(of_files[0]) == len((tmp_path / "1.jsonl").read_text().splitlines()) == 5


def test_what_cannot_be_read_or_shared_is_named_once(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.wav").write_bytes(b"nothing")
    files = f"[{tiny.wav(trained, 'ftr0_sx0')},{tmp_path / 'bad.wav'},{tiny.wav(trained, 'ftr0_sx2')}]"
    given = ["transcribe", f"checkpoint={trained / 'run'}", f"output={tmp_path / '2.jsonl'}"]
    ending = together(tmp_path, 2, Verb([*given, f"input={files}"]))
    assert ending.codes == [3, 3] and ending.said.count("1 of 3 recordings") == 1
    ids = [json.loads(line)["id"] for line in (tmp_path / "2.jsonl").read_text().splitlines()]
    assert [name[-5:] for name in ids] == ["0.WAV", "2.WAV"]
    ending = together(tmp_path, 2, Verb([*given, "input=-"]))
    assert ending.codes == [2, 2] and "share standard input" in ending.said


def test_tuning_by_two_processes_finds_what_one_finds(trained: Path, tmp_path: Path, las: Las) -> None:
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "search=beam", "batch_size=1"]
    grid = ["weights.lm=null", "weights.coverage=[0,0.4]", "length_normalisation=[0.0,1.0]"]
    alone, said = one_and_two(tmp_path, las, 0, "tune", *places, *grid, output="yaml")
    assert alone.out.count("4 combinations") == said.count("4 combinations") == 1
