"""The smallest subclass of every base class trains, is validated, decoded and transcribed like the package's own."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import smallest
import torch
from console import Las
from tiny import overrides, sound

from las.cli import train
from las.config import public
from las.config.build import compose
from las.decoding import transcriber
from las.runtime.errors import ConfigError

CLASSES = [name for name, _ in inspect.getmembers(smallest, inspect.isclass) if name.startswith("Smallest")]
BEAM = {"_target_": "las.BeamSearch", "size": 3}


def part(name: str, /, **options: Any) -> dict[str, Any]:
    """A section of the config that names a class."""
    return {"_target_": f"las.Smallest{name}", **options}


def made(name: str, /, **options: Any) -> dict[str, Any]:
    """A section of a part that its parent makes."""
    return part(name, _partial_=True, **options)


CORPUS = part("Corpus", name="mine", root="recordings", tokens=part("Tokenizer", symbols=["aa", "iy", "uw"]))
MODEL = {
    "features": made("Features"),
    "listener": {
        "_target_": "las.Listener",
        "_partial_": True,
        "cell": made("Cell"),
        "layer": made("Layer"),
        "hidden_size": 4,
        "num_layers": 1,
        "time_reduction": [2],
    },
}
PARTS: dict[str, dict[str, Any]] = {
    "loss": {"loss": part("Loss")},
    "cell": {"model.listener.cell": made("Cell"), "model.speller.cell": made("Cell")},
    "recurrent_cell": {"model.listener.cell": made("RecurrentCell"), "model.speller.cell": made("RecurrentCell")},
    "norm": {"model.listener.cell": {"_target_": "las.LNJoinedLSTMCell", "_partial_": True, "norm": made("CellNorm")}},
    "attention": {"model.speller.attention": made("Attention")},
    "layer": {"model.listener.layer": made("Layer")},
    "front_end": {"model.listener.front_end": made("FrontEnd")},
    "features": {"model.features": made("Features")},
    "model": {"model": {"_target_": "las.SmallestModel", "_partial_": True, **MODEL}},
    "init": {"init": part("Initialisation")},
    "optim": {"optim": made("Optimizer", lr=0.01)},
    "schedule": {"schedule": part("Schedule")},
    "gradients": {"gradients": part("Gradients", noise=part("GradientNoise"))},
    "weight_noise": {"weight_noise": part("WeightNoise", std=0.01)},
    "order": {"order": part("Sampler")},
    "augment": {"augment": part("Augmentation", codec=part("Distortion"), time_masks=1, max_time_frames=2)},
    "corpus": {"corpus": CORPUS},
    "search": {"search": part("Search"), "validation_search": part("Search")},
    "scorers": {"search": BEAM | {"mine": part("Scorer", weight=0.5), "rule": part("Constraint")}},
}
"""The smallest subclasses by the sections that they take the place of."""

WITH_SPELLER = [name for name in PARTS if name not in ("model", "search")]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of `smallest` may be named in configs, as those of a trusted package."""
    for name in CLASSES:
        monkeypatch.setitem(public.COMPONENTS, name, "smallest")


def changed(config: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """A config with other sections."""
    for path, section in parts.items():
        *outer, last = path.split(".")
        target = config
        for key in outer:
            target = target[key]
        target[last] = section
    return config


def run_through(root: Path, las: Las, parts: dict[str, Any]) -> dict[str, Any]:
    """Train, decode dev with the run's own search, and transcribe a file; returns what the training recorded."""
    for number, split in enumerate(("train", "train", "dev", "test")):
        (root / "recordings" / split).mkdir(parents=True, exist_ok=True)
        sound(root / "recordings" / split / f"{split}{number}.wav", 0.4, number)
    given = overrides(root, "trainer.max_steps=2", "trainer.validate_every=1")
    train.train_config(changed(compose("train", given), {"search": BEAM} | parts))
    run, places = root / "run", [f"data_dir={root / 'data'}", f"output={root / 'decoded.jsonl'}"]
    las("decode", f"checkpoint={run}", "split=dev", *places).succeeds()
    decoded = [json.loads(line)["text"] for line in (root / "decoded.jsonl").read_text().splitlines()]
    trained = [json.loads(line)["text"] for line in (run / "hypotheses.dev.jsonl").read_text().splitlines()]
    assert decoded == trained
    validations = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next(line for line in reversed(validations) if line["event"] == "validation")


def test_there_is_one_of_every_base_class() -> None:
    text = json.dumps(PARTS)
    helpers = {"SmallestState", "SmallestDecoder", "SmallestBatchScorer", "SmallestBatchConstraint"}
    assert [name for name in CLASSES if f"las.{name}" not in text and name not in helpers] == []


def test_all_of_them_together(named: None, corpus: Path, las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)
    everything = {path: section for name in WITH_SPELLER for path, section in PARTS[name].items()}
    validation = run_through(corpus, las, everything)
    assert validation["alignment"] is not None
    las("transcribe", f"checkpoint={corpus / 'run'}", "input=recordings/dev/dev2.wav").succeeds()
    loaded = transcriber.load(corpus / "run")
    assert repr(loaded.search).endswith("mine=0.5, rule)") and type(loaded.tokens).__name__ == "SmallestTokenizer"
    assert "mine" in loaded.search(*loaded.model.search_inputs(*speech()))[0][0].scores


class Scaled(smallest.SmallestLoss):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))


def test_a_loss_with_parameters_is_refused_because_nothing_would_train_them(
    named: None, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smallest, "SmallestLoss", Scaled)
    with pytest.raises(ConfigError, match="loss: a Scaled"):
        train.train_config(changed(compose("train", overrides(corpus)), PARTS["loss"]))


def speech() -> Any:
    return torch.randn(1, 8000), torch.tensor([8000])


def test_a_model_without_attention_and_a_search(named: None, corpus: Path, las: Las) -> None:
    validation = run_through(corpus, las, PARTS["model"] | PARTS["search"] | PARTS["loss"])
    assert validation["alignment"] is None
    las("transcribe", f"checkpoint={corpus / 'run'}", f"input={corpus}/recordings/dev/dev2.wav").fails(
        2, "SmallestModel has no"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_each_of_them(named: None, corpus: Path, las: Las, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)
    run_through(corpus, las, PARTS[name] | (PARTS["loss"] if name == "model" else {}))
