"""The prototype of several seeds as one model trains what trainings of their own do. No time is asserted."""

from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from benchmarks.models import DEMO, Subject, demo
from benchmarks.seeds import SeedsUpdate
from graph_stand_in import graphs

SEEDS, UPDATES = 2, 3
CPU = torch.device("cpu")


def subject(**options: Any) -> Subject:
    quiet: dict[str, Any] = {"dropout": 0.0, "input_noise": 0.0}
    sizes: dict[str, Any] = {"hidden_size": 8, "time_reduction": (2, 1)}
    return replace(DEMO, make=partial(demo, **quiet | sizes | options), durations_s=torch.tensor([0.25, 0.4]))


def alone(given: Subject, seed: int) -> list[float]:
    """Losses of a training by itself."""
    step = given.step("fp32", CPU)
    torch.manual_seed(seed)
    step.model.load_state_dict(given.make().state_dict())
    return [step([given.batch()], number).loss for number in range(1, UPDATES + 1)]


def test_losses_are_those_of_each_seed_alone() -> None:
    given = subject()
    update = SeedsUpdate(given, SEEDS, "plain", "fp32", CPU)
    update.read(given.batch())
    together = torch.stack([update().clone() for _ in range(UPDATES)], dim=1).tolist()
    for number, losses in enumerate(together):
        assert losses == pytest.approx(alone(given, number + 1), rel=1e-4)
    assert together[0] != pytest.approx(together[1], rel=1e-3)


def test_seeds_draw_their_own_masks() -> None:
    """From the same parameters, as these are seed 1's."""
    given = subject(input_noise=0.3, dropout=0.1)
    update = SeedsUpdate(given, SEEDS, "plain", "fp32", CPU)
    with torch.no_grad():
        for parameter in update.parameters.values():
            parameter[1:] = parameter[:1]
    update.read(given.batch())
    first, second = update().tolist()
    assert first != second and first == pytest.approx(second, rel=0.2)


def test_a_graph_of_the_update_gives_the_same_losses() -> None:
    given, found = subject(), []
    for captures in (False, True):
        with graphs() as made:
            update = SeedsUpdate(given, SEEDS, "plain", "fp32", CPU)
            update.read(given.batch())
            found.append([update().clone()])
            if captures:
                update.capture()
            found[-1] += [update().clone() for _ in range(UPDATES)]
            assert [graph.num_replays for graph in made] == [UPDATES] * captures
    assert all(map(torch.equal, *found))


def test_no_graph_is_an_error() -> None:
    given = subject()
    update = SeedsUpdate(given, SEEDS, "plain", "fp32", CPU)
    with patch("las.nn.kernels.graphs.capture.captured", lambda *_, **__: None), pytest.raises(RuntimeError):
        update.capture()
