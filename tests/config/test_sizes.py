"""Sizes have upper bounds, wherever they come from; beyond them a command ends at once."""

import importlib
from pathlib import Path

import pytest
from safetensors import safe_open

import las as package
from las.config import build, public, sizes
from las.decoding import transcriber
from las.runtime.errors import ArgumentError, ConfigError
from las.storage import bundle


def test_calls_have_the_same_bounds() -> None:
    for make, number in ((package.BeamSearch, 10**9), (lambda size: package.LSTM(4, size), 10**9)):
        with pytest.raises(ArgumentError, match="at most"):
            make(number)


def test_every_whole_number_of_every_component_is_bounded() -> None:
    """By the path of configs, which checkpoints and bundles take too."""
    for name, module in public.COMPONENTS.items():
        cls = getattr(importlib.import_module(module), name)
        for key, parameter in build.parameters(cls).items():
            if build.fits(10**15, parameter.annotation) and "seed" not in key:
                with pytest.raises(ConfigError, match="at most"):
                    build.build({"_target_": f"las.{name}", "_partial_": True, key: 10**15}, where="x")


def test_a_bundle_of_ten_million_mel_bands_is_refused_with_the_limit(trained: Path, tmp_path: Path) -> None:
    stored, _ = transcriber.checkpoint.find(trained / "run")
    stored.config["model"]["features"]["num_mels"] = 10_000_000
    bundle.write(tmp_path / "evil.las", stored.model, stored.state, stored.config)
    with safe_open(tmp_path / "evil.las", framework="pt") as file:
        assert "10000000" in file.metadata()["config"]
    with pytest.raises(ConfigError, match=r"model\.features\.num_mels=10000000 .*4,096"):
        package.load(tmp_path / "evil.las")


def test_a_list_has_a_bound_of_its_length() -> None:
    with pytest.raises(ArgumentError, match=r"time_reduction .*1,000,000 .*100"):
        sizes.check("model.listener.time_reduction", [1] * 1_000_000)
