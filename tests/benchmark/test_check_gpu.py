"""`make gpu`: what it tests and measures is there."""

import check_gpu
from benchmarks.settings import settings

from las.config.build import compose


def test_what_is_tested_and_measured_can_be_asked_for() -> None:
    assert all((check_gpu.REPOSITORY / each).exists() for each in check_gpu.TESTS)
    for measured in (check_gpu.MEASURED, check_gpu.IN_SMALL):
        for suite, keys in measured.items():
            config = compose("benchmark", ["+experiment=ln_encoder_only", *keys, "device=cpu"])
            assert settings(config, suite, "").suite == config["suite"] == suite
