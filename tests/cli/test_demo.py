"""The demo: a training, one utterance decoded with its times, an attention picture, and what to type next."""

from pathlib import Path

import pytest
from console import Las
from tiny import overrides

from las.config.build import compose
from las.training import plots


@pytest.mark.pictures
def test_the_demo_ends_with_times_a_picture_and_commands_that_run(corpus: Path, las: Las) -> None:
    answer = las("demo", *overrides(corpus)).succeeds()
    run = corpus / "run"
    for words in ("reference   sil aa iy sil", "hypothesis  ", "result      dev PER ", str(run / "attention.png")):
        assert words in answer.out
    assert plots.pixels(run / "attention.png").std() > 0.02
    assert plots.pixels(run / "curves.png").std() > 0.02
    _, _, following = answer.out.partition("next:\n")
    listed = [line.split() for line in following.splitlines() if line.strip()]
    assert len(listed) == 5
    for _, verb, *given in listed[:-1]:
        config = compose("decode" if verb == "decode" else "train", given)
        assert config.get("checkpoint", str(run)) == str(run)
    las(*listed[0][1:], f"output={corpus / 'x.jsonl'}").succeeds()


def test_without_matplotlib_the_demo_shows_the_rest(corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "available", lambda: False)
    las("demo", *overrides(corpus)).succeeds("hypothesis  ")
    assert list((corpus / "run").glob("*.png")) == []
