"""Pictures of a run are there, show what they should, and need no display."""

from pathlib import Path

import pytest
import torch

from las.data.manifest import Interval
from las.runtime.errors import LasError
from las.training import plots

PNG = b"\x89PNG\r\n\x1a\n"


def diagonal(tokens: int = 6, states: int = 24) -> torch.Tensor:
    """Attention that walks forward in even steps."""
    centres = (torch.arange(tokens) + 0.5) * states / tokens
    return torch.softmax(-((torch.arange(states) - centres[:, None]) ** 2) / 4, dim=1)


def test_an_attention_picture_shows_its_weights(tmp_path: Path) -> None:
    symbols = [f"p{index}" for index in range(5)] + ["(end)"]
    weights = diagonal()
    path = plots.attention_picture(weights, symbols, 40.0, tmp_path / "deep" / "a.png", "title")
    assert path.read_bytes().startswith(PNG)
    shown = plots.pixels(path)
    assert shown.shape[0] > 200 and shown.shape[1] > 400 and shown.shape[2] in (3, 4)
    flat = plots.pixels(plots.attention_picture(weights * 0 + 1 / 24, symbols, 40.0, tmp_path / "flat.png", "title"))
    bright = (shown[..., :3] - flat[..., :3]).sum(-1)
    rows, columns = bright.shape[0], bright.shape[1]
    upper, lower = bright[: rows // 2], bright[rows // 2 :]
    assert abs(bright).mean() > 0.01
    # The first tokens are at the top and look at the beginning, on the left; the last at the bottom, on the right.
    assert upper[:, : columns // 2].sum() > upper[:, columns // 2 :].sum()
    assert lower[:, : columns // 2].sum() < lower[:, columns // 2 :].sum()


def test_true_times_are_drawn_where_there_are_as_many(tmp_path: Path) -> None:
    symbols = ["a", "b", "c"]
    intervals = [Interval(0.0, 0.2, "a"), Interval(0.2, 0.5, "b"), Interval(0.5, 0.9, "c")]
    weights = diagonal(3)
    bare = plots.attention_picture(weights, symbols, 40.0, tmp_path / "bare.png").read_bytes()
    drawn = plots.attention_picture(weights, symbols, 40.0, tmp_path / "drawn.png", alignment=intervals).read_bytes()
    other = plots.attention_picture(weights, symbols, 40.0, tmp_path / "o.png", alignment=intervals[:2]).read_bytes()
    assert bare == other != drawn


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert plots.available()
    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)
    assert not plots.available()
    with pytest.raises(LasError, match=r"pip install 'las-asr\[plots\]'"):
        plots.attention_picture(diagonal(2), ["a", "b"], 40.0, tmp_path / "a.png")
