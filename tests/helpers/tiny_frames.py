"""Tiny trainings of acoustic models on `tiny.tree`."""

from pathlib import Path

import tiny

MODEL = ["model=hybrid_small", "model.listener.hidden_size=8", "model.features.num_mels=8"]
SHORT = [
    *("trainer.max_steps=4", "trainer.batch_size=4", "trainer.validate_every=2", "trainer.num_workers=0"),
    *("trainer.histograms=false", "trainer.attention_pictures=false"),
]


def overrides(root: Path, *more: str) -> list[str]:
    """The overrides of a training of four steps, validated every two, in `root/run`."""
    return [*tiny.corpus(root), f"run_dir={root / 'run'}", *MODEL, *SHORT, *more]
