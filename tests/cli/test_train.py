"""The verbs from end to end on a tiny corpus, and what bad input gets."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from console import Answer
from tiers import rest_slow
from tiny import LABELS, overrides, sound, utterance, wav

from las.cli import decode
from las.data.sampler import BatchSize
from las.decoding.search import GreedySearch
from las.decoding.transcriber import load
from las.storage import checkpoint

Las = Callable[..., Answer]


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


def test_another_configuration_in_the_same_folder_is_refused(corpus: Path, las: Las) -> None:
    assert las("train", *overrides(corpus)).code == 0
    before = checkpoint.find(corpus / "run")[0].state
    answer = las("train", *overrides(corpus, "seed=2", "optim.lr=0.5"))
    assert answer.code == 5
    assert "optim.lr: " in answer.err and "1 -> 2" in answer.err and "name=baseline_2" in answer.err
    assert checkpoint.find(corpus / "run")[0].state == before


BAD_AUDIO = {
    "missing text": (lambda path: path.with_suffix(".TXT").unlink(), None),
    "unreadable": (lambda path: path.write_bytes(b"no audio at all"), "not audio"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:3000]), r"promises \d+ samples, \d+ are there"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "header only": (lambda path: soundfile.write(path, np.zeros(0, np.int16), 16000), "no samples"),
    "wrong rate": (lambda path: sound(path, 0.5, rate=8000), "at 8000 Hz, the corpus is at 16000 Hz"),
    "stereo": (lambda path: sound(path, 0.5, channels=2), "2 channels, expected 1"),
}
CASES = [name for name in BAD_AUDIO if name != "missing text"]


def test_bad_training_audio_is_listed_and_left_out(corpus: Path, las: Las) -> None:
    """All kinds at once, and what only the labels show."""
    names = [f"ftr0_sx{index}" for index in range(len(CASES))]
    for case, name in zip(CASES, names, strict=True):
        BAD_AUDIO[case][0](wav(corpus, name))
    speaker = corpus / "TIMIT/TRAIN/DR1/FTR0"
    utterance(speaker, "SX8", 0.02, 0, ("h#",))
    utterance(speaker, "SX9", 0.3, 0, (*LABELS, *("aa", "iy") * 6))
    answer = las("train", *overrides(corpus, "trainer.max_bad_fraction=0.9"))
    assert answer.code == 0, answer.err
    ledger = lines(corpus / "run/bad_utterances.jsonl")
    assert [entry["utterance_id"] for entry in ledger] == [*names, "ftr0_sx8", "ftr0_sx9"]
    for entry, case in zip(ledger, CASES, strict=False):
        assert entry["file"] == str(wav(corpus, entry["utterance_id"]))
        assert re.search(str(BAD_AUDIO[case][1]), entry["reason"]), entry
        assert f"left out of training: {entry['utterance_id']}: {entry['reason']}" in answer.out
    assert "too short: 0.020" in ledger[-2]["reason"]
    assert re.search(r"16 symbols, more than the \d states", ledger[-1]["reason"])
    assert json.loads((corpus / "run/result.json").read_text())["train_utterances"] == 2


def test_too_much_bad_training_data_stops_and_the_hint_works(corpus: Path, las: Las) -> None:
    wav(corpus, "ftr0_sx3").write_bytes(b"")
    answer = las("train", *overrides(corpus))
    assert answer.code == 3
    ledger = corpus / "run/bad_utterances.jsonl"
    for words in ("1 of 8", "0.5 %", str(ledger), "trainer.max_bad_fraction="):
        assert words in answer.err
    assert [entry["utterance_id"] for entry in lines(ledger)] == ["ftr0_sx3"]
    assert not (corpus / "run/checkpoints").exists()
    assert las("train", *overrides(corpus, "trainer.max_bad_fraction=0.2")).code == 0


def test_no_training_data_left_is_an_error_of_its_own(corpus: Path, las: Las) -> None:
    for index in range(8):
        wav(corpus, f"ftr0_sx{index}").write_bytes(b"")
    answer = las("train", *overrides(corpus, "trainer.max_bad_fraction=1.0"))
    assert answer.code == 3 and "las check names" in answer.err


@pytest.mark.parametrize("case", rest_slow(CASES))
@pytest.mark.parametrize("split", ["dev", "test"])
def test_dev_and_test_are_never_left_out(case: str, split: str, corpus: Path, las: Las) -> None:
    name = {"dev": "fadg0_sx1", "test": "mdab0_sx1"}[split]
    BAD_AUDIO[case][0](wav(corpus, name))
    answer = las("train", *overrides(corpus, "trainer.max_bad_fraction=1.0"))
    assert answer.code == 3
    assert f"1 of 2 {split} utterances cannot be used" in answer.err
    assert re.search(rf"{name}: .*{BAD_AUDIO[case][1]}", answer.err)
    assert "never left out" in answer.err
    assert not (corpus / "run/metrics.jsonl").exists()  # found before step 1


def test_a_long_list_is_cut_in_words(corpus: Path, las: Las) -> None:
    for index in range(2, 30):
        utterance(corpus / "TIMIT/TEST/DR1/FADG0", f"SX{index}", 0.3, 0).write_bytes(b"")
        utterance(corpus / "TIMIT/TRAIN/DR1/FTR0", f"SX{index}", 0.3, 0).write_bytes(b"")
    answer = las("train", *overrides(corpus, "trainer.max_bad_fraction=1.0"))
    assert "28 of 30" in answer.err and "... and 18" in answer.err
    assert "... and 8" in answer.out


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: (root / "TIMIT").rename(root / "moved"), r"no such folder\. Set corpus\.root"),
        (lambda root: (root / "TIMIT/TRAIN").rename(root / "TIMIT/x"), "there are no training utterances in it"),
        (lambda root: [p.rename(p.with_name("SPEAKERS")) for p in root.glob("TIMIT/*/DR1")], "found neither TRAIN/DR1"),
        (lambda root: wav(root, "ftr0_sx3").with_suffix(".TXT").unlink(), r"SX3\.TXT is missing"),
        (lambda root: wav(root, "ftr0_sx3").with_suffix(".PHN").unlink(), r"SX3\.PHN is missing"),
        (
            lambda root: wav(root, "mdab0_sx0").with_suffix(".PHN").write_text("0 99 h#\n99 200 zz\n"),
            r"SX0\.PHN:2: 'zz' is not one of TIMIT's 61 phone labels\. Did you mean \w+, \w+ or \w+\?",
        ),
    ],
)
@pytest.mark.parametrize("verb", rest_slow(["prepare", "train"]))
def test_a_wrong_tree_or_transcript_is_named(verb: str, spoil: Callable, says: str, corpus: Path, las: Las) -> None:
    spoil(corpus)
    answer = las(verb, *overrides(corpus))
    assert answer.code == 3
    assert re.search(says, answer.err), answer.err


def test_an_incomplete_copy_says_how_to_accept_it(corpus: Path, las: Las) -> None:
    answer = las("prepare", *overrides(corpus, "corpus.partial=false"))
    assert answer.code == 3
    assert "1 speakers, expected" in answer.err
    assert "corpus.partial=true" in answer.err


def test_prepare_prints_counts_and_problems(corpus: Path, las: Las) -> None:
    wav(corpus, "ftr0_sx3").write_bytes(b"")
    answer = las("prepare", *overrides(corpus))
    assert answer.code == 0
    assert "16000 Hz, 49" in answer.out
    assert re.search(r"train\s+.\s+8 ", answer.out)
    assert "3696 of 462)" in answer.out
    assert re.search(r"ftr0_sx3: .*is empty", answer.out)
    assert answer.out.endswith("1 of 8 training utterances cannot be used\n")
    assert len(list((corpus / "data/manifests").glob("timit-*/train.jsonl"))) == 1


def test_decoding_audio_and_a_split_agree(trained: Path, tmp_path: Path, las: Las) -> None:
    run, data = f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}"
    split = las("decode", run, "split=test", data, f"output={tmp_path / 'split.jsonl'}", "search=greedy")
    assert split.code == 0 and re.search(r"test: PER [\d.]+ %", split.out)
    assert lines(tmp_path / "split.jsonl") == lines(trained / "run/hypotheses.test.jsonl")
    folder = wav(trained, "mdab0_sx0").parent
    pictures = f"pictures={tmp_path / 'pictures'}"
    heard = las("decode", run, f"audio={folder}", f"output={tmp_path / 'x/audio.jsonl'}", "search=greedy", pictures)
    assert heard.code == 0 and f"2 utterances written to {tmp_path / 'x/audio.jsonl'}" in heard.out
    by_audio = lines(tmp_path / "x/audio.jsonl")
    assert [line["id"] for line in by_audio] == [str(folder / "SX0.WAV"), str(folder / "SX1.WAV")]
    for one, other in zip(by_audio, lines(tmp_path / "split.jsonl"), strict=True):
        assert one["text"] == other["text"]
        assert one["score"] == pytest.approx(other["score"], abs=2e-4)
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["SX0.png", "SX1.png"]


def test_hypotheses_score_to_the_rate_of_the_run(trained: Path, tmp_path: Path, las: Las) -> None:
    manifests = (trained / "data/manifests").glob("timit-*/test.jsonl")
    manifest = min(manifests, key=lambda path: path.stat().st_mtime_ns)  # other tests prepare other corpora there
    hypothesis = trained / "run/hypotheses.test.jsonl"
    answer = las("score", f"reference={manifest}", f"hypothesis={hypothesis}", "json=true")
    result = json.loads((trained / "run/result.json").read_text())
    assert json.loads(answer.out)["phone_error_rate"] == result["splits"]["test"]["phone_error_rate"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, r"needs audio=x\.wav .* or split=test"),
        (["audio=x.wav", "split=test"], 2, "not both"),
        (["audio=/nowhere/x.wav"], 3, "no such audio file or folder"),
        (["split=tset"], 2, r"no split 'tset'\. Did you mean test"),
        (["split=test", "batch_size=0"], 2, "batch_size=0 must be at least 1"),
        (["split=test", "max_batch_s=0"], 2, "max_batch_s=0 must be above 0"),
        (["split=test", "device=gpu"], 2, "device=gpu"),
        (["split=test", "search=beem"], 2, "no configs/search/beem"),
    ],
)
def test_decoding_explains_what_it_needs(arguments: list[str], code: int, says: str, trained: Path, las: Las) -> None:
    answer = las("decode", f"checkpoint={trained / 'run'}", *arguments)
    assert answer.code == code
    assert re.search(says, answer.err), answer.err


def test_decoding_without_a_run_says_what_to_give(tmp_path: Path, las: Las) -> None:
    answer = las("decode", f"checkpoint={tmp_path}", "audio=x.wav")
    assert answer.code == 5 and "checkpoint=runs/" in answer.err
    assert las("decode", "audio=x.wav").code == 2


def test_batches_do_not_change_what_is_decoded(trained: Path, tmp_path: Path) -> None:
    from las.config import build
    from las.data.corpora.base import Corpus

    transcriber = load(trained / "run", GreedySearch())
    corpus: Corpus = build.build(transcriber.config["corpus"])
    utterances = corpus.utterances("train")
    for size in (1, 8):
        decode.decode_split(transcriber, corpus, "train", utterances, tmp_path / f"{size}.jsonl", BatchSize(size))
    one, many = lines(tmp_path / "1.jsonl"), lines(tmp_path / "8.jsonl")
    assert [line["text"] for line in one] == [line["text"] for line in many]
    assert [line["score"] for line in one] == pytest.approx([line["score"] for line in many], abs=2e-4)


def test_decoding_a_split_writes_the_n_best_lists_that_are_asked_for(trained: Path, tmp_path: Path, las: Las) -> None:
    given = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "split=dev", "search.size=4"]
    for nbest in (1, 3):
        answer = las("decode", *given, f"search.nbest={nbest}", f"output={tmp_path / str(nbest)}.jsonl")
        assert answer.code == 0, answer.err
    short, long = lines(tmp_path / "1.jsonl"), lines(tmp_path / "3.jsonl")
    assert [{key: line[key] for key in ("id", "text", "score")} for line in long] == short
    for line in long:
        ranks = [each["normalised_score"] for each in line["nbest"]]
        assert len(ranks) == 3 and ranks == sorted(ranks, reverse=True)
        assert (line["nbest"][0]["text"], line["nbest"][0]["score"]) == (line["text"], line["score"])
        for each in line["nbest"]:
            assert each["scores"] == {"las": each["score"]} and each["finished_by"] in ("eos", "max_length")


def test_real_speech_from_end_to_end(shared_data: Path, tmp_path: Path, las: Las) -> None:
    root = tmp_path / "TIMIT"
    sample = sorted((shared_data / "timit_sample/TIMIT/TRAIN").glob("DR*/*"))[:2]
    for speaker in sample:  # two of the sixteen
        place = root / "TRAIN" / speaker.parent.name
        place.mkdir(parents=True, exist_ok=True)
        (place / speaker.name).symlink_to(speaker)
    more = [f"corpus.root={root}", "trainer.max_steps=2", "+experiment=ln_encoder_only", "search.max_length=20"]
    answer = las(
        "train", *overrides(tmp_path, *more, "validation_search.max_length=20", "trainer.max_bad_fraction=0.0")
    )
    assert answer.code == 0, answer.err
    assert "the training utterances" in answer.out
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert (result["name"], result["train_utterances"], result["steps"]) == ("ln_encoder_only", 16, 2)
    assert result["splits"]["test"]["utterances"] == 16
    path = sorted(root.glob("TRAIN/*/*/*.WAV"))[0]
    heard = las("decode", f"checkpoint={tmp_path / 'run'}", f"audio={path}", f"output={tmp_path / 'x.jsonl'}")
    assert heard.code == 0
    (line,) = lines(tmp_path / "x.jsonl")
    assert line["tokens"][-1]["end_s"] == pytest.approx(line["duration_s"], abs=1e-3)
