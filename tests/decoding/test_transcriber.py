"""From audio to text: times, kinds of audio, where models are loaded from, and what a hostile checkpoint gets."""

import io
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import soundfile
import torch
from console import Answer
from tiny import RATE, damage, forge, sound, wav

import las as package
from las.cli import demo_app
from las.data.audio import files
from las.data.audio.streaming import Segmenter
from las.decoding.search import BeamSearch, GreedySearch
from las.decoding.transcriber import Transcriber
from las.decoding.transcription import TimedToken, TimedWord, Transcription, find_audio
from las.runtime.errors import ArgumentError, ConfigError, DataError, StorageError


@pytest.fixture(scope="module")
def transcriber(trained: Path) -> Transcriber:
    return package.load(str(trained / "run"))


def test_a_transcription_knows_all_about_itself(transcriber: Transcriber, trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    heard = transcriber.transcribe(path)
    assert heard.id == str(path)
    assert heard.duration_s == files.info(path).duration_s
    assert [token.symbol for token in heard.tokens] == heard.text.split()
    assert (heard.tokens[0].start_s, heard.tokens[-1].end_s) == (0.0, heard.duration_s)
    (piece,) = heard.pieces
    assert piece.symbols == [*heard.text.split(), "(end)"]
    assert piece.weights.shape[0] == len(heard.tokens) + 1
    assert piece.weights.shape[1] == int(transcriber.model.num_states(torch.tensor([round(heard.duration_s * RATE)])))
    assert heard.score < 0 and heard.finished_by in ("eos", "max_length")
    line = json.loads(heard.to_json())
    assert line.keys() == {"id", "text", "score", "finished_by", "duration_s", "words", "tokens"}
    assert line["tokens"][0].keys() == {"symbol", "start_s", "end_s", "confidence"}
    assert line["words"][0].keys() == {"text", "start_s", "end_s", "confidence"}
    # The score is the teacher-forced log-probability of what was written.
    waveform = torch.from_numpy(files.load(path)).unsqueeze(0)
    tokens = transcriber.tokens.encode(heard.text)
    with torch.no_grad():
        logits = transcriber.model(waveform, torch.tensor([waveform.shape[1]]), torch.tensor([tokens])).logits[0]
    log_probs = torch.log_softmax(logits.double(), -1)
    chosen = [float(row[i]) for row, i in zip(log_probs, [*tokens, 0], strict=True)]
    assert heard.score == pytest.approx(sum(chosen), abs=1e-4)
    assert [token.confidence for token in heard.tokens] == pytest.approx([math.exp(log) for log in chosen[:-1]])


def test_a_line_is_made_word_by_word() -> None:
    tokens = [TimedToken("ä", second + 0.12345, second + 1.0, 0.123456) for second in range(50)]
    words = tuple(TimedWord("ä", (token,)) for token in tokens)
    heard = Transcription("x", 50.0, words, (), 40.0)
    parts = list(heard.json_parts())
    assert len(parts) > 100 and max(map(len, parts)) < 200
    assert "".join(parts) == heard.to_json() == json.dumps(json.loads(heard.to_json()), ensure_ascii=False)
    rounded = {"start_s": 0.123, "end_s": 1.0, "confidence": 0.1235}
    line = json.loads(heard.to_json())
    assert line["tokens"][0] == {"symbol": "ä"} | rounded and line["words"][0] == {"text": "ä"} | rounded
    empty = Transcription("x", 1.0, (), (), 40.0)
    assert json.loads(empty.to_json())["words"] == json.loads(empty.to_json())["tokens"] == []


def test_pieces_are_heard_the_same_in_any_company(transcriber: Transcriber, tmp_path: Path) -> None:
    """Batches of one, of many and across files; and what is heard in a piece is what is heard in a file of it."""
    transcriber = Transcriber(
        transcriber.model,
        transcriber.tokens,
        RATE,
        transcriber.search,
        transcriber.config,
        partial(Segmenter, longest_s=0.5, shortest_s=0.2, overlap_s=0.1, pause_s=0.1),
    )
    paths = [sound(tmp_path / f"{seconds}.wav", seconds, seed=int(10 * seconds)) for seconds in (0.3, 2.0, 0.4, 1.3)]
    many, few = (list(transcriber.transcribe_all(paths, batch_size=size)) for size in (7, 1))
    assert [each.id for each in many] == [str(path) for path in paths]
    assert [each.text for each in many] == [each.text for each in few]
    assert [len(each.pieces) for each in many] == [len(each.pieces) for each in few]
    assert len(many[1].pieces) > 3
    for number, piece in enumerate(transcriber.cutter([torch.from_numpy(files.load(paths[1]))])):
        soundfile.write(tmp_path / f"piece{number}.wav", piece.samples, RATE, subtype="FLOAT")
        transcriber.cutter = Segmenter(RATE)
        alone = transcriber.transcribe(tmp_path / f"piece{number}.wav")
        assert [token.symbol for token in many[1].pieces[number].tokens] == [token.symbol for token in alone.tokens]


def test_bad_files_among_good_ones(transcriber: Transcriber, tmp_path: Path) -> None:
    good = [sound(tmp_path / f"good{index}.wav", 0.4, index) for index in range(3)]
    (tmp_path / "empty.wav").touch()
    late = tmp_path / "late.wav"  # its fault shows when part of it has been heard
    samples = torch.rand(40 * RATE) - 0.5
    samples[-1] = float("nan")
    soundfile.write(late, samples, RATE, subtype="FLOAT")
    paths = [good[0], tmp_path / "empty.wav", good[1], late, tmp_path / "absent.wav", good[2]]
    failed: list[DataError] = []
    found = list(transcriber.transcribe_all(paths, batch_size=2, failed=failed.append))
    assert [each.id for each in found] == [str(path) for path in good]
    assert [each.text for each in found] == [transcriber.transcribe(path).text for path in good]
    assert [Path(str(error).split(":")[0]).name for error in failed] == ["empty.wav", "late.wav", "absent.wav"]
    with pytest.raises(DataError, match="is empty"):
        list(transcriber.transcribe_all(paths))


def test_file_objects_are_heard_as_their_files(transcriber: Transcriber, trained: Path, tmp_path: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    expected = transcriber.transcribe(path)
    with path.open("rb") as file:
        heard = transcriber.transcribe([file, io.BytesIO(path.read_bytes()), path])
    assert [each.text for each in heard] == [expected.text] * 3
    assert [each.id for each in heard] == [str(path), "audio1", str(path)]
    with pytest.raises(DataError, match=r"^audio0: "):
        transcriber.transcribe(io.BytesIO(b"no audio"))
    with path.open("rb") as file, pytest.raises(ArgumentError, match="files know theirs"):
        transcriber.transcribe(file, sample_rate=RATE)
    with path.open(encoding="latin-1") as text, pytest.raises(ArgumentError, match=r"open\('x.wav', 'rb'\)"):
        transcriber.transcribe(text)


def test_a_search_is_chosen_by_its_name_or_made(trained: Path) -> None:
    run = trained / "run"
    assert repr(package.load(run, search="beam").search) == repr(BeamSearch())
    assert isinstance(package.load(run, "greedy").search, GreedySearch)
    assert package.load(run, search=BeamSearch(3)).search.size == 3
    for name, says in (("gredy", "Did you mean greedy"), ("beam_lm", r"lm\.path has no value"), ("tuned", "las tune")):
        with pytest.raises(ConfigError, match=says):
            package.load(run, search=name)


def test_a_beam_size_holds_for_one_call(trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    greedy = package.load(trained / "run", search="greedy")
    beam = package.load(trained / "run", search=BeamSearch(4))
    expected = [beam.transcribe(path, beam_size=size).score for size in (1, 4)]
    assert [greedy.transcribe(path, beam_size=size).score for size in (1, 4)] == expected
    assert greedy.transcribe(path).score == expected[0] and beam.transcribe(path).score == expected[1]
    assert beam.search.size == 4 and isinstance(greedy.search, GreedySearch)
    with pytest.raises(ArgumentError, match="size=0"):
        beam.transcribe(path, beam_size=0)


def test_names_that_look_like_patterns_and_folders_without_audio(tmp_path: Path) -> None:
    for name in ("[x].wav", "x.wav"):
        (tmp_path / name).touch()
    assert find_audio(str(tmp_path / "[x].wav")) == [tmp_path / "[x].wav"]
    assert find_audio(str(tmp_path / "[xy].wav")) == [tmp_path / "x.wav"]
    (tmp_path / "empty").mkdir()
    for name, says in (("absent", "absent: .* no such"), ("empty", r"empty: no audio .*\.wav, \.flac")):
        with pytest.raises(DataError, match=says):
            find_audio([str(tmp_path / name)])


def spoil(run: Path) -> tuple[str, str]:
    """Make the newest checkpoint the best one and damage it; 75 s lie between it and the one before."""
    (run / "checkpoints/best").write_text("step-00000004\n")
    damage(run / "checkpoints/step-00000004/model.safetensors", "flip")
    times = {2: 1000.0, 4: 1075.0}
    events = [{"time": time, "event": "validation", "step": step} for step, time in times.items()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    path = run / "checkpoints/step-00000004/model.safetensors"
    return f"{path}: damaged", "step-00000002"


VERBS = {
    "decode": ["split=dev", "search=greedy"],
    "transcribe": ["search=greedy", "input={wav}"],
    "export": ["output={folder}/x.las"],
    "analyze": ["what=alignments"],
    "demo_app": ["search=greedy", "port=7871"],
    "tune": ["output={folder}/tuned.yaml", "search.lm.path=x.arpa"],
}


def test_a_damaged_best_checkpoint_is_replaced_by_another_one_unless_strict(
    trained: Path, trained_copy: Path, monkeypatch: pytest.MonkeyPatch, las: Callable[..., Answer]
) -> None:
    """One line names the damaged file, the checkpoint in its place, and how much older that is."""
    monkeypatch.setattr(demo_app, "load_gradio", lambda folder: None)
    reason, used = spoil(trained_copy)
    older = f"{used} 2 steps (1:15)".split()
    for verb, options in VERBS.items():
        given = [each.format(folder=trained_copy, wav=wav(trained, "mdab0_sx0")) for each in options]
        answer = las(verb, f"checkpoint={trained_copy}", *given, "strict=true")
        assert answer.code == 5 and answer.err.startswith(f"las {verb}: {reason}") and answer.err.count("\n") == 1
        assert all(word in answer.err for word in (*older, f"checkpoint={trained_copy}/checkpoints/{used}"))
    heard = [f"input={wav(trained, 'mdab0_sx0')}", "search=greedy"]
    answer = las("transcribe", f"checkpoint={trained_copy}", *heard)
    said = " ".join(answer.out.split())
    assert answer.code == 0 and said.count("damaged:") == 1 and all(word in said for word in older)
    assert las("transcribe", f"checkpoint={trained_copy}/checkpoints/{used}", "strict=true", *heard).code == 0
    assert las("transcribe", f"checkpoint={trained_copy}", "strict=maybe", *heard).code == 2
    with pytest.raises(StorageError, match="damaged"):
        package.load(trained_copy / "checkpoints/step-00000004")
    for directory in (trained_copy / "checkpoints").glob("step-*"):
        damage(directory / "state.json", "cut")
    with pytest.raises(StorageError, match="no checkpoint"):
        package.load(trained_copy)


@pytest.mark.parametrize(
    ("where", "target"),
    [
        ("model", "os.system"),
        ("features", "las.storage.atomic.write_json"),
        ("cell", "las.cli.train.train"),
        ("cell", "torch.load"),
        ("search", "builtins.eval"),
    ],
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
    with pytest.raises(ConfigError, match=rf"{target} is not allowed"):
        package.load(str(directory))
    if where in ("cell", "search"):
        answer = las("decode", f"checkpoint={directory}", "audio=x.wav")
        assert answer.code == 2 and f"{target} is not allowed" in answer.err
    assert not witness.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda state, config: state.pop("corpus"),
        lambda state, config: config.pop("model"),
        lambda state, config: config.update(model={"listener": 3}),
        lambda state, config: config["model"]["listener"].update(hidden_size=9),
        lambda state, config: state["corpus"]["tokens"].pop("kind"),
    ],
)
def test_a_checkpoint_whose_parts_do_not_fit_is_refused_in_words(trained_copy: Path, change: Callable) -> None:
    directory = trained_copy / "checkpoints/step-00000002"
    parts = {name: json.loads((directory / f"{name}.json").read_text()) for name in ("state", "config")}
    change(**parts)
    for name, content in parts.items():
        forge(directory, name, content)
    with pytest.raises((StorageError, DataError), match=r"fit together|kind None"):
        package.load(str(directory))


def test_samples_in_memory_are_transcribed_as_their_file_is(transcriber: Transcriber, trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    expected, amplitudes = transcriber.transcribe(path), files.load(path)
    integers, _ = soundfile.read(path, dtype="int16")
    stereo = torch.stack([torch.from_numpy(amplitudes), torch.zeros(len(amplitudes))])
    for samples, channel in ((amplitudes, "mix"), (amplitudes[None], "mix"), (integers, "mix"), (stereo, 0)):
        transcription = transcriber.transcribe(samples, channel, sample_rate=RATE)
        assert transcription.id == "audio0" and transcription.score == expected.score
        assert transcription.words == expected.words and transcription.duration_s == expected.duration_s
    both = transcriber.transcribe([path, torch.from_numpy(amplitudes)], sample_rate=RATE)
    assert [each.id for each in both] == [str(path), "audio1"]
    assert [each.text for each in both] == [expected.text] * 2
    assert [each.text for each in transcriber.transcribe([path])] == [expected.text]
    assert transcriber.transcribe([]) == []


def test_samples_of_another_rate_are_resampled_as_a_file_is(transcriber: Transcriber, tmp_path: Path) -> None:
    path = sound(tmp_path / "8k.wav", 0.5, seed=3, rate=8000)
    transcription = transcriber.transcribe(files.load(path), sample_rate=8000)
    assert transcription.score == transcriber.transcribe(path).score and transcription.duration_s == 0.5


NOISE = torch.randn(RATE)


@pytest.mark.parametrize(
    ("audio", "options", "says"),
    [
        (NOISE, {"sample_rate": None}, "sample_rate=None"),
        ("good.wav", {}, "files"),
        (NOISE, {"sample_rate": 0}, "sample_rate=0 1"),
        (NOISE.view(-1, 2), {}, "audio0 [8000, 2]"),
        (NOISE.bool(), {}, "audio0 torch.bool int16"),
        (NOISE / 0, {}, "audio0 finite"),
        (NOISE[:100], {}, "audio0 0.0063 0.025"),
        (NOISE, {"channel": 1}, "audio0 channel 1"),
        ("click.wav", {"sample_rate": None}, "click.wav 0.0100 0.025"),
        ("absent.wav", {"sample_rate": None}, "absent.wav exist"),
        ("empty.wav", {"sample_rate": None}, "empty.wav empty"),
        ("text.wav", {"sample_rate": None}, "text.wav audio"),
    ],
)
def test_audio_that_cannot_be_used_is_named(
    audio: torch.Tensor | str, options: dict[str, int | None], says: str, transcriber: Transcriber, tmp_path: Path
) -> None:
    for seconds, name in ((0.4, "good.wav"), (0.01, "click.wav")):
        sound(tmp_path / name, seconds)
    for content, name in ((b"", "empty.wav"), (b"no audio", "text.wav")):
        (tmp_path / name).write_bytes(content)
    given = tmp_path / audio if isinstance(audio, str) else audio
    with pytest.raises((ConfigError, DataError)) as caught:
        transcriber.transcribe(given, **({"sample_rate": RATE} | options))
    assert [word for word in says.split() if word not in str(caught.value)] == []


def test_transcribers_and_transcriptions_are_shown_in_a_line(transcriber: Transcriber, trained: Path) -> None:
    shown = repr(transcriber)
    assert "parameters on cpu, 16,000 Hz, Phones(" in shown and "GreedySearch" in shown and "\n" not in shown
    transcription = transcriber.transcribe(wav(trained, "mdab0_sx1"))
    assert repr(transcription).startswith(f"Transcription({transcription.id!r}, {transcription.duration_s:.2f} s, ")
    assert repr(transcription.text) in repr(transcription) and "tensor" not in repr(transcription)


def test_a_precision_changes_the_listener_alone(trained: Path) -> None:
    exact, rounded = (package.load(trained / "run", precision=name).model for name in ("fp32", "bf16"))
    waveforms, num_samples = torch.randn(2, 6400), torch.tensor([6400, 5000])
    with torch.no_grad():
        first, second = (model.encode(waveforms, num_samples)[0] for model in (exact, rounded))
        assert first.dtype == second.dtype == torch.float32
        assert 0 < (first - second).abs().max() < 0.05 * first.abs().max()
        for model, encoded in ((exact, first), (rounded, second)):
            decoder, _ = model.search_inputs(waveforms, num_samples)
            assert torch.equal(decoder.memory.values, encoded) and decoder.memory.keys.dtype == torch.float32
    with pytest.raises(ConfigError, match=r"precision='fp16'.* Did you mean"):
        package.load(trained / "run", precision="fp16")
