"""Configs: every option composes and builds, and every mistake is named."""

import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from options import names
from tiers import rest_slow
from tiny import MODEL

from las.config import build as runtime_config
from las.data.corpora.base import Corpus
from las.data.loader import BatchSize
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.model import SpeechModel
from las.runtime.errors import ConfigError
from las.training.setup import TrainerOptions

CONFIGS = Path(__file__).parents[2] / "configs"


NEEDED = {name: ["search.lm.path=lm.arpa"] for name in ("beam_lm", "beam_ctc_lm")} | {
    "ctc_triggered": ["loss=joint_ctc"]
}
"""What an option asks to be told."""


def choices(group: str, mounted: str = "") -> list[list[str]]:
    """The override of each option of a group, at the place where the group is mounted."""
    added = "+" * mounted.startswith("+")  # nothing is mounted there by default
    place = f"{added}{group}@{mounted.removeprefix('+')}" if mounted else group
    return [[f"{place}={name}", *NEEDED.get(name, [])] for name in names(group)]


# The hybrid models run in tests/nn/test_acoustic_model.py.
OPTIONS = [
    *([f"model={name}"] for name in names("model") if not name.startswith("hybrid_")),
    *choices("features", "model.features"),
    *([f"cell@model.{part}.cell={name}" for part in ("listener", "speller")] for name in names("cell")),
    *choices("attention", "model.speller.attention"),
    *choices("front_end", "+model.listener.front_end"),
    *choices("layer", "+model.listener.layer"),
]
GROUPS = (
    *("augment", "gradients", "init", "learning_rate", "loss", "optim", "order"),
    *("pretraining", "schedule", "search", "trainer", "weight_noise"),
)
OTHERS = list(itertools.zip_longest(*map(choices, GROUPS)))


def test_the_configs_are_those_of_the_checkout() -> None:
    assert runtime_config.config_directory() == CONFIGS
    listed = {path.name for path in CONFIGS.iterdir() if path.is_dir()}
    elsewhere = {"attention", "cell", "corpus", "experiment", "features", "front_end", "layer", "lm", "model", "norm"}
    elsewhere |= {"scorer", "distortion", "dropout", "scale", "tokens"}
    assert listed == elsewhere | set(GROUPS)


@pytest.mark.parametrize("option", rest_slow(OPTIONS, keep=12), ids=lambda option: option[0])
def test_every_option_of_the_model_builds_and_runs(option: list[str]) -> None:
    small = [override for override in MODEL if not (option[0].startswith("features") and "num_mels" in override)]
    if option[0].startswith(("model=ctc_", "model=transducer_")):
        small = [override for override in small if "speller" not in override]
    config = runtime_config.compose("train", [*option, *small])
    model: SpeechModel = runtime_config.build(config["model"], where="model")(16000, 10)
    speech, targets = (torch.randn(2, 8000), torch.tensor([8000, 6000])), torch.tensor([[1, 2], [3, 0]])
    spelling = model.spell(model.search_inputs(*speech)[0], targets, [2, 1])
    assert spelling.logits.shape == (2, 3, 10)
    assert torch.isfinite(spelling.logits).all()
    if option[0].startswith("model=") and option[0].endswith(("_unidirectional", "_latency_controlled")):
        with torch.no_grad():
            model.eval().features.normalisation = "global"  # las_small_unidirectional's own needs the whole
            whole, _ = model.encode(speech[0], torch.tensor([8000, 8000]))
            first, state = model.encode_piece(speech[0][:, :3001])
            second, _ = model.encode_piece(speech[0][:, 3001:], state, is_last=True)
        torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [*OTHERS[:4], *(pytest.param(options, marks=pytest.mark.slow) for options in OTHERS[4:])],
    ids=lambda options: "-".join(option[0] for option in options if option),
)
def test_every_other_option_builds(options: tuple[list[str] | None, ...], tmp_path: Path) -> None:
    overrides = [override for option in options if option for override in option]
    (tmp_path / "words.txt").write_text("aa\niy\n")
    words = [
        f"{override.partition('=')[0]}.word_lm.words={tmp_path}/words.txt"
        for override in overrides
        if override.endswith("_words")
    ]
    config = runtime_config.compose("train", [*overrides, *words])
    parameter = torch.nn.Parameter(torch.ones(2))
    optimiser = runtime_config.build(config["optim"], where="optim")([parameter])
    parameter.grad = torch.ones(2)
    optimiser.step()
    assert not torch.equal(parameter, torch.ones(2))
    assert runtime_config.build(config["schedule"]).factor(1) > 0
    features = torch.ones(1, 50, 40)
    assert runtime_config.build(config["augment"]).features(features, torch.tensor([50]), [1]).shape == features.shape
    assert callable(runtime_config.build(config["search"])) and callable(
        runtime_config.build(config["validation_search"])
    )
    assert runtime_config.build(config["gradients"], where="gradients").change([("x.cell.w", parameter)], 1) >= 0
    with runtime_config.build(config["weight_noise"], where="weight_noise").applied([("x.cell.w", parameter)], 1):
        pass
    plan = runtime_config.build(config["order"], where="order").plan([], "hash", 1, 0, BatchSize(4))
    loss = runtime_config.build(config["loss"], where="loss")
    assert plan == [] and loss.divisor(3.0) == {"mean": 3.0, "sum": 1.0}[loss.reduction]
    elsewhere = ("max_bad_fraction", "device")
    options = {key: value for key, value in config["trainer"].items() if key not in elsewhere}
    runtime_config.checked(TrainerOptions, options, "trainer")()


OWN_SYMBOLS = {"files"}
"""Corpora whose symbols are learned from their texts."""


@pytest.mark.parametrize("name", rest_slow([each for each in names("corpus") if each not in OWN_SYMBOLS]))
def test_every_corpus_builds_with_every_tokens(name: str, tmp_path: Path) -> None:
    plain = runtime_config.compose("train", [f"corpus={name}", f"corpus.root={tmp_path}"])
    for option in ([], *choices("tokens", "corpus.tokens")):
        if option == ["tokens@corpus.tokens=phones"] and "phone_set" not in plain["corpus"]:
            continue  # they belong to corpora that say which phones
        config = runtime_config.compose("train", [f"corpus={name}", f"corpus.root={tmp_path}", *option])
        corpus: Corpus = runtime_config.build(config["corpus"], where="corpus")
        assert corpus.name == name
        assert corpus.tokens.size > 2
        assert config["run_dir"] == f"runs/baseline/{name}/seed1"


@pytest.mark.parametrize("corpus", [["corpus=files", "corpus.train=x"], ["corpus=an4", "corpus.root=x"]])
@pytest.mark.parametrize(
    ("chosen", "loss", "search"),
    [
        ([], "las.JointCTCLoss", "las.BeamSearch"),
        (["+experiment=ln_both"], "las.JointCTCLoss", "las.BeamSearch"),
        (["model=las_an4_ctc"], "las.JointCTCLoss", "las.BeamSearch"),
        (["model=las_small"], "las.LabelSmoothedCrossEntropy", "las.BeamSearch"),
        (["model=hybrid_small"], "las.FrameCrossEntropy", "las.PhoneBigramSearch"),
        (["+experiment=hybrid"], "las.FrameCrossEntropy", "las.WordGraphSearch"),
    ],
)
def test_a_model_brings_its_loss_and_search_to_corpora_that_choose_one(
    corpus: list[str], chosen: list[str], loss: str, search: str
) -> None:
    config = runtime_config.compose("train", [*corpus, *chosen])
    assert (config["loss"]["_target_"], config["search"]["_target_"]) == (loss, search)
    assert ("ctc" in config["search"]) == (loss == "las.JointCTCLoss")
    other = runtime_config.compose("train", [*corpus, *chosen, "loss=cross_entropy"])
    assert other["loss"]["_target_"] == "las.LabelSmoothedCrossEntropy"


def test_experiments_are_short_named_like_their_files_and_differ_in_what_their_names_say() -> None:
    cells = {}
    for name in names("experiment"):
        assert len((CONFIGS / "experiment" / f"{name}.yaml").read_text().splitlines()) <= 20
        place = ["corpus.root=x"] if name.startswith(("an4", "librispeech")) else []
        config = runtime_config.compose("train", [f"+experiment={name}", *place])
        assert config["name"] == name
        cells[name] = [part["cell"] for each in ("listener", "speller") if (part := config["model"].get(each))]
    ba2016, lstm = (OmegaConf.to_container(OmegaConf.load(CONFIGS / "cell" / f"{n}.yaml")) for n in ("ba2016", "lstm"))
    assert cells["baseline"] == [lstm, lstm]
    assert cells["ln_encoder_only"] == [ba2016, lstm]
    assert cells["ln_decoder_only"] == [lstm, ba2016]
    assert cells["ln_both"] == [ba2016, ba2016]


def test_build_makes_nested_objects_lists_and_partials() -> None:
    option: dict[str, Any] = {
        "_target_": "las.LNGlobalLSTMCell",
        "_partial_": True,
        "cell_norm": "output",
    }
    made = runtime_config.build({"cells": [option, 3], "plain": {"a": None}})
    assert made["plain"] == {"a": None}
    factory, number = made["cells"]
    assert number == 3
    assert isinstance(factory, functools.partial) and factory.keywords == {"cell_norm": "output"}
    cell = factory(5, 7)
    assert isinstance(cell, LNGlobalLSTMCell) and (cell.input_size, cell.hidden_size) == (5, 7)
    with pytest.raises(ConfigError, match=r"^cells\[1\]\.cell_nrm: LNGlobalLSTMCell .* cell_norm"):
        runtime_config.build([option, {"_target_": option["_target_"], "cell_nrm": "x"}], where="cells")
    with pytest.raises(ConfigError, match=r"^cell: "):
        runtime_config.build(option, where="cell")(5)


def test_differences_are_listed_key_by_key() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "d": "x", "gone": None, "same": {}}
    after = {"a": {"b": 2, "c": [1, 2]}, "d": "x", "new": True, "same": {}}
    assert runtime_config.differences(before, before) == []
    assert runtime_config.differences(before, after) == [
        "a.b: 1 -> 2",
        "gone: None -> (absent)",
        "new: (absent) -> True",
    ]
