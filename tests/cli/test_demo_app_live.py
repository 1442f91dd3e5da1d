"""Words while somebody speaks on the page of las demo_app: the functions behind its microphone."""

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny import RATE
from tiny_words import streaming, tree, wav

import las
from las.cli import demo_app_live, train
from las.cli.demo_app import DemoBackend
from las.cli.demo_app_live import LiveBackend, Speech

PIECE = 4000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tree(tmp_path_factory.mktemp("live"))
    train.train(streaming(root))
    return root


@pytest.fixture(scope="module")
def pieces(root: Path) -> list[Path]:
    """Two utterances with a pause behind each, cut as a browser cuts them."""
    parts = [soundfile.read(wav(root, name), dtype="int16")[0] for name in ("faaa_0", "faaa_3")]
    samples = np.concatenate([part for each in parts for part in (each, np.zeros(RATE, np.int16))])
    paths = [root / f"{start}.wav" for start in range(0, len(samples), PIECE)]
    for index, path in enumerate(paths):
        soundfile.write(path, samples[index * PIECE : (index + 1) * PIECE], RATE)
    return paths


@pytest.fixture
def backend(root: Path) -> LiveBackend:
    return LiveBackend(DemoBackend(las.load(root / "run", "greedy"), "auto", 60.0))


def words(paragraph: str) -> list[str]:
    first, _, _ = paragraph.partition("</p>")
    return re.sub("<[^>]*>", "", first).split()


def test_the_words_are_those_of_the_stream(backend: LiveBackend, pieces: list[Path]) -> None:
    stream = las.Stream(backend.recordings.transcriber)
    final: list[str] = []
    speech: Speech | None = None
    for path in pieces:
        shown, speech = backend.hear(str(path), speech)
        result = stream.feed(soundfile.read(path, dtype="float32")[0])
        final += [word.text for word in result.final]
        assert words(shown) == final + [word.text for word in result.pending]
    assert f"{stream.heard_s:.1f} s heard" in shown
    final += [word.text for word in stream.finish().final]
    shown, speech = backend.end(speech)
    assert words(shown) == final != [] and speech is None


def test_two_visitors_are_heard_apart(backend: LiveBackend, pieces: list[Path]) -> None:
    alone: list[str] = []
    speech: Speech | None = None
    for path in pieces:
        shown, speech = backend.hear(str(path), speech)
        alone.append(shown)
    one, other = None, None
    for path, expected in zip(pieces, alone, strict=True):
        shown, one = backend.hear(str(path), one)
        assert shown == expected
        _, other = backend.hear(str(pieces[0]), other)


def test_nothing_recorded_is_nothing_heard(backend: LiveBackend) -> None:
    assert backend.hear(None, None) == ("", None) and backend.end(None) == ("", None)


def test_what_cannot_be_heard_is_said(backend: LiveBackend, pieces: list[Path], tmp_path: Path) -> None:
    _, speech = backend.hear(str(pieces[0]), None)
    soundfile.write(tmp_path / "other.wav", np.zeros(800, np.int16), 8000)
    shown, same = backend.hear(str(tmp_path / "other.wav"), speech)
    assert "problem" in shown and "8000" in shown and same is speech
    (tmp_path / "no.wav").write_bytes(b"no audio")
    shown, same = backend.hear(str(tmp_path / "no.wav"), speech)
    assert "problem" in shown and "no.wav" in shown and str(tmp_path) not in shown and same is speech
    backend.recordings.max_duration_s = 0.1
    shown, _ = backend.hear(str(pieces[1]), speech)
    assert "max_duration_s" in shown


def test_only_a_model_that_does_not_wait_gives_words_before_the_end(backend: LiveBackend, trained: Path) -> None:
    assert demo_app_live.can_stream(backend.recordings.transcriber)
    assert not demo_app_live.can_stream(las.load(trained / "run"))
