"""From audio to text: times, kinds of audio, where models are loaded from, and what a hostile checkpoint gets."""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
import torch
from conftest import Answer
from tiny import RATE, damage, forge, sound, wav

import las as package
from las import audio, transcribe
from las.errors import ConfigError, DataError, StorageError
from las.search import Beam, Greedy
from las.transcribe import TimedToken, Transcriber, token_times


@pytest.fixture(scope="module")
def transcriber(trained: Path) -> Transcriber:
    return package.load(str(trained / "run"))


def test_a_diffuse_row_does_not_pull_the_others_along() -> None:
    weights = torch.eye(6)[[0, 1, 2, 3]]
    weights[0] = torch.tensor([0.18, 0.16, 0.16, 0.16, 0.16, 0.18])  # its mean lies behind the next two tokens
    times = token_times(weights, state_s=0.1, duration_s=0.6)
    assert [start_s for start_s, _ in times] == pytest.approx([0.0, 0.1, 0.2])


def test_times_tile_the_utterance() -> None:
    weights = torch.tensor([[1.0, 0, 0, 0], [0, 0, 1, 0], [0, 0.4, 0.35, 0.25], [0, 0, 0, 1]])  # the third goes back
    times = token_times(weights, state_s=0.1, duration_s=0.4)
    assert times == [(0.0, pytest.approx(0.15)), (pytest.approx(0.15), pytest.approx(0.25)), (pytest.approx(0.25), 0.4)]
    assert token_times(weights[:1], 0.1, 0.4) == []


@pytest.mark.parametrize("seed", range(20))
def test_times_of_any_attention_tile_and_never_run_backwards(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    weights = torch.softmax(5 * torch.randn(8, 11, generator=draw), dim=1)
    duration_s = 0.9  # less than 11 states of 0.1 s: the last one is partly padding
    times = token_times(weights, 0.1, duration_s)
    assert (times[0][0], times[-1][1], len(times)) == (0.0, duration_s, 7)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(times))
    assert all(start <= end for start, end in times)


def test_a_transcription_knows_all_about_itself(transcriber: Transcriber, trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    heard = transcriber.transcribe(path)
    assert heard.id == str(path)
    assert heard.duration_s == audio.info(path).duration_s
    assert [token.symbol for token in heard.tokens] == heard.text.split()
    assert (heard.tokens[0].start_s, heard.tokens[-1].end_s) == (0.0, heard.duration_s)
    assert heard.weights.shape[0] == len(heard.tokens) + 1
    assert heard.weights.shape[1] == int(transcriber.model.num_states(torch.tensor([round(heard.duration_s * RATE)])))
    assert heard.score < 0 and heard.finished_by in ("eos", "max_length")
    line = json.loads(heard.to_json())
    assert line.keys() == {"id", "text", "score", "finished_by", "duration_s", "tokens"}
    assert line["tokens"][0].keys() == {"symbol", "start_s", "end_s"}
    # The score is the teacher-forced log-probability of what was written.
    waveform = audio.load(path).unsqueeze(0)
    tokens = transcriber.tokens.encode(heard.text)
    with torch.no_grad():
        logits = transcriber.model(waveform, torch.tensor([waveform.shape[1]]), torch.tensor([tokens])).logits[0]
    log_probs = torch.log_softmax(logits.double(), -1)
    assert heard.score == pytest.approx(
        sum(float(row[i]) for row, i in zip(log_probs, [*tokens, 0], strict=True)), abs=1e-4
    )


def test_rounding_of_a_line_is_for_reading(transcriber: Transcriber, trained: Path) -> None:
    heard = transcriber.transcribe(wav(trained, "mdab0_sx1"))
    fixed = dataclasses.replace(heard, score=-1.234567, tokens=(TimedToken("aa", 0.12345, 0.5),), duration_s=0.5)
    line = json.loads(fixed.to_json())
    assert (line["score"], line["tokens"]) == (-1.2346, [{"symbol": "aa", "start_s": 0.123, "end_s": 0.5}])


def test_stereo_at_8_khz_is_accepted_and_the_first_channel_is_used(transcriber: Transcriber, tmp_path: Path) -> None:
    stereo = sound(tmp_path / "stereo.wav", 0.5, seed=3, rate=8000, channels=2)
    samples, _ = soundfile.read(stereo, dtype="int16")
    soundfile.write(tmp_path / "left.flac", samples[:, 0], 8000)
    heard, left = (transcriber.transcribe(path) for path in (stereo, tmp_path / "left.flac"))
    assert heard.duration_s == pytest.approx(0.5)
    assert (heard.text, heard.score) == (left.text, left.score)


def test_a_file_shorter_than_a_window_is_named_with_both_lengths(transcriber: Transcriber, tmp_path: Path) -> None:
    path = sound(tmp_path / "click.wav", 0.01)
    with pytest.raises(DataError, match=r"click\.wav: 0\.0100 s is shorter than one analysis window \(0\.025 s\)"):
        transcriber.transcribe(path)
    heard = transcriber.transcribe(sound(tmp_path / "one.wav", 0.025))  # one window is enough
    assert heard.duration_s == 0.025


@pytest.mark.parametrize(("content", "says"), [(None, "does not exist"), (b"", "is empty"), (b"no audio", "not audio")])
def test_what_is_no_audio_is_named(transcriber: Transcriber, tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "x.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.wav.*{says}"):
        transcriber.transcribe(path)


def test_many_files_and_folders(transcriber: Transcriber, trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    for name in ("b.WAV", "a.wav", "below/c.wav"):
        shutil.copy(wav(trained, "fadg0_sx0"), folder / name)
    (folder / "notes.txt").touch()
    found = transcribe.find_audio([str(folder), str(folder / "a.wav")])
    assert [path.relative_to(folder).as_posix() for path in found] == ["a.wav", "b.WAV", "below/c.wav", "a.wav"]
    assert transcribe.find_audio(str(folder / "a.wav")) == [folder / "a.wav"]
    assert len({each.text for each in transcriber.transcribe_all(found)}) == 1
    with pytest.raises(DataError, match=r"absent: there is no such audio file or folder"):
        transcribe.find_audio(str(tmp_path / "absent"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no audio in this folder \(looked for \.wav, \.flac"):
        transcribe.find_audio([str(tmp_path / "empty")])


def test_a_run_folder_and_its_checkpoint_directory_are_the_same(trained: Path) -> None:
    best = trained / "run/checkpoints" / (trained / "run/checkpoints/best").read_text().strip()
    one, two = package.load(str(trained / "run")), package.load(str(best), search=Greedy())
    path = wav(trained, "mdab0_sx0")
    assert one.transcribe(path).to_json() == two.transcribe(path).to_json()
    assert not one.model.training
    assert package.load(str(best), search=Beam(size=3)).transcribe(path).score >= -1e9
    with pytest.raises(StorageError, match="neither a run folder nor a checkpoint"):
        package.load(str(trained))


def test_a_damaged_best_checkpoint_falls_back_and_says_so(
    trained_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = (trained_copy / "checkpoints/best").read_text().strip()
    damage(trained_copy / "checkpoints" / best / "model.safetensors", "flip")
    package.load(str(trained_copy))
    assert f"{best}/model.safetensors: damaged" in capsys.readouterr().out
    with pytest.raises(StorageError, match="damaged"):
        package.load(str(trained_copy / "checkpoints" / best))
    for directory in (trained_copy / "checkpoints").glob("step-*"):
        damage(directory / "state.json", "cut")
    with pytest.raises(StorageError, match="no checkpoint that can be read"):
        package.load(str(trained_copy))


@pytest.mark.parametrize("where", ["model", "features", "cell", "search"])
@pytest.mark.parametrize(
    "target", ["os.system", "las.run.write_json", "las.commands.train", "torch.load", "builtins.eval"]
)
def test_a_checkpoint_that_names_a_strange_target_runs_nothing(
    trained_copy: Path, where: str, target: str, las: Callable[..., Answer]
) -> None:
    """The manifest vouches for the forged config: whoever forges one can compute a sha256 too."""
    directory = trained_copy / "checkpoints/step-00000002"
    config = json.loads((directory / "config.json").read_text())
    witness = trained_copy / "witness"
    hostile = {"_target_": target, "command": f"touch {witness}", "path": str(witness), "value": 1}
    if where in ("model", "search"):
        config[where] = hostile
    elif where == "features":
        config["model"]["features"] = hostile
    else:
        config["model"]["listener"]["cell"] = hostile | {"_partial_": True}
    forge(directory, "config", config)
    with pytest.raises(ConfigError, match=rf"_target_: {target} is not allowed"):
        package.load(str(directory))
    if where == "cell":
        answer = las("decode", f"checkpoint={directory}", "audio=x.wav")
        assert answer.code == 2 and "is not allowed" in answer.err
    assert not witness.exists()


@pytest.mark.parametrize("change", ["no corpus", "no model", "plain model", "other sizes", "no kind"])
def test_a_checkpoint_whose_parts_do_not_fit_is_refused_in_words(trained_copy: Path, change: str) -> None:
    directory = trained_copy / "checkpoints/step-00000002"
    state, config = (json.loads((directory / f"{name}.json").read_text()) for name in ("state", "config"))
    if change == "no corpus":
        del state["corpus"]
    elif change == "no model":
        del config["model"]
    elif change == "plain model":
        config["model"] = {"listener": 3}
    elif change == "other sizes":
        config["model"]["listener"]["hidden_size"] = 9
    else:
        del state["corpus"]["tokens"]["kind"]
    forge(directory, "state", state)
    forge(directory, "config", config)
    with pytest.raises((StorageError, DataError), match=r"do not fit together|kind None are unknown"):
        package.load(str(directory))
