"""The verbs from end to end on a tiny corpus, and what bad input gets."""

import json
import re
from pathlib import Path

import pytest
from console import Las
from tiny import overrides, wav


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_leaves_what_it_promises(trained: Path) -> None:
    run = trained / "run"
    result = json.loads((run / "result.json").read_text())
    entries = "name corpus seed parameters train_utterances vocabulary_hash commit splits steps steps_to_converge "
    entries += "steps_to_within_one_percent select best_step choices last chance_level"
    assert list(result) == entries.split()
    assert (result["name"], result["corpus"], result["seed"], result["steps"]) == ("baseline", "timit", 1, 4)
    assert result["steps_to_converge"] in (2, 4) and result["train_utterances"] == 8
    for split in ("dev", "test"):
        score = result["splits"][split]
        counts = {"substitutions", "deletions", "insertions", "correct", "words", "utterances", "missing"}
        assert score.keys() == {"phone_error_rate", "interval", "interval_over"} | counts
        errors = score["substitutions"] + score["deletions"] + score["insertions"]
        assert score["phone_error_rate"] == errors / score["words"]
        assert (score["utterances"], score["words"], score["missing"]) == (2, 8, 0)
        hypotheses = lines(run / f"hypotheses.{split}.jsonl")
        speaker = {"dev": "fadg0", "test": "mdab0"}[split]
        assert [line["id"] for line in hypotheses] == [f"{speaker}_sx0", f"{speaker}_sx1"]
        assert all(line.keys() == {"id", "text", "score"} for line in hypotheses)
    assert (run / "bad_utterances.jsonl").read_text() == ""
    log = (run / "log.txt").read_text()
    assert re.search(r"^test: PER [\d.]+ %", log, re.MULTILINE) and "finished after 4" in log


def test_the_finished_command_trains_nothing(corpus: Path, las: Las) -> None:
    first = las("train", *overrides(corpus))
    run = corpus / "run"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "environment.json"}
    again = las("train", *overrides(corpus))
    assert (first.code, again.code, again.err) == (0, 0, "")
    assert again.out.startswith(f"{run} is finished: dev PER ")
    assert len(again.out.splitlines()) == 1
    assert all(path.read_bytes() == content for path, content in before.items())


def test_too_much_bad_training_data_stops_and_the_hint_works(corpus: Path, las: Las) -> None:
    wav(corpus, "ftr0_sx3").write_bytes(b"")
    ledger = corpus / "run/bad_utterances.jsonl"
    las("train", *overrides(corpus)).fails(3, f"1 8 0.5 {ledger} trainer.max_bad_fraction=")
    assert [entry["utterance_id"] for entry in lines(ledger)] == ["ftr0_sx3"]
    assert not (corpus / "run/checkpoints").exists()
    las("train", *overrides(corpus, "trainer.max_bad_fraction=0.2")).succeeds()
    for index in range(8):
        wav(corpus, f"ftr0_sx{index}").write_bytes(b"")
    las("train", *overrides(corpus, "trainer.max_bad_fraction=1.0", "name=none", f"run_dir={corpus / 'none'}")).fails(
        3, "las check"
    )


@pytest.mark.parametrize(("split", "name"), [("dev", "fadg0_sx1"), ("test", "mdab0_sx1")])
def test_dev_and_test_are_never_left_out(split: str, name: str, corpus: Path, las: Las) -> None:
    wav(corpus, name).write_bytes(b"")
    las("train", *overrides(corpus, "trainer.max_bad_fraction=1.0")).fails(3, f"1 2 {split} {name}: empty never")
    assert not (corpus / "run/metrics.jsonl").exists()  # found before step 1


@pytest.mark.parametrize("verb", ["prepare", "train"])
def test_a_folder_that_is_not_there_and_one_that_lacks_some_say_what_to_type(verb: str, corpus: Path, las: Las) -> None:
    las(verb, *overrides(corpus, "corpus.partial=false")).fails(3, "1 speakers, corpus.partial=true")
    (corpus / "TIMIT").rename(corpus / "moved")
    las(verb, *overrides(corpus)).fails(3, "corpus.root")


def test_prepare_prints_counts_and_problems(corpus: Path, las: Las) -> None:
    wav(corpus, "ftr0_sx3").write_bytes(b"")
    las("prepare", *overrides(corpus)).succeeds("16000 49 3696 462 ftr0_sx3: empty 1 8")
    assert len(list((corpus / "data/manifests").glob("timit-*/train.jsonl"))) == 1


def test_decoding_audio_and_a_split_agree(trained: Path, tmp_path: Path, las: Las) -> None:
    run, data = f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}"
    split = las("decode", run, "split=test", data, f"output={tmp_path / 'split.jsonl'}", "search=greedy")
    assert split.code == 0 and re.search(r"test: PER [\d.]+ %", split.out)
    assert lines(tmp_path / "split.jsonl") == lines(trained / "run/hypotheses.test.jsonl")
    folder = wav(trained, "mdab0_sx0").parent
    pictures = f"pictures={tmp_path / 'pictures'}"
    heard = las("decode", run, f"audio={folder}", f"output={tmp_path / 'x/audio.jsonl'}", "search=greedy", pictures)
    heard.succeeds(f"2 utterances written to {tmp_path / 'x/audio.jsonl'}")
    by_audio = lines(tmp_path / "x/audio.jsonl")
    assert [line["id"] for line in by_audio] == [str(folder / "SX0.WAV"), str(folder / "SX1.WAV")]
    for one, other in zip(by_audio, lines(tmp_path / "split.jsonl"), strict=True):
        assert one["text"] == other["text"]
        assert one["score"] == pytest.approx(other["score"], abs=2e-4)
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["SX0.png", "SX1.png"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("", 2, "audio=x.wav split=test"),
        ("audio=x.wav split=test", 2, "audio=x.wav split=test"),
        ("audio=/nowhere/x.wav", 3, "/nowhere/x.wav"),
        ("split=tset", 2, "'tset' test"),
        ("split=test batch_size=0", 2, "batch_size=0 1"),
        ("split=test max_batch_s=0", 2, "max_batch_s=0"),
        ("split=test device=gpu", 2, "device=gpu"),
        ("split=test search=beem", 2, "configs/search/beem"),
        ("audio=x.wav checkpoint=.", 5, "checkpoint=runs/"),
    ],
)
def test_decoding_explains_what_it_needs(arguments: str, code: int, words: str, trained: Path, las: Las) -> None:
    las("decode", f"checkpoint={trained / 'run'}", *arguments.split()).fails(code, words)


def test_decoding_a_split_writes_the_n_best_lists_that_are_asked_for(trained: Path, tmp_path: Path, las: Las) -> None:
    given = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "split=dev", "search.size=4"]
    for nbest in (1, 3):
        las("decode", *given, f"search.nbest={nbest}", f"output={tmp_path / str(nbest)}.jsonl").succeeds()
    short, long = lines(tmp_path / "1.jsonl"), lines(tmp_path / "3.jsonl")
    assert [{key: line[key] for key in ("id", "text", "score")} for line in long] == short
    for line in long:
        ranks = [each["normalised_score"] for each in line["nbest"]]
        assert len(ranks) == 3 and ranks == sorted(ranks, reverse=True)
        assert (line["nbest"][0]["text"], line["nbest"][0]["score"]) == (line["text"], line["score"])
        for each in line["nbest"]:
            assert each["scores"] == {"las": each["score"]} and each["finished_by"] in ("eos", "max_length")
