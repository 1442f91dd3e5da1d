"""Signals and `kill -9` between two stages of pretraining, while the next one is built, and in its first update.

The same command goes on with the bytes of the run that nobody disturbed, and repeats no update.
"""

import itertools
import signal
from functools import partial
from pathlib import Path

import pytest
from faults import STEPS, Tally, Training, send, sizes
from pretraining_stages import PLACES, Stage, between, in_the_first_update

ENDS = (3, 6)
"""The steps with which the first two stages end."""
GROWS = [
    *("model.listener.num_layers=3", "model.listener.time_reduction=[2,1,1]", "model.listener.reduction=max_pool"),
    "pretraining.stages=[{sub_epochs:1,width:0.5,model:{listener:{num_layers:1,time_reduction:[2]}}},"
    "{sub_epochs:1,model:{listener:{num_layers:2,time_reduction:[2,1]}}}]",
]
KINDS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGKILL)
CODES = {signal.SIGINT: 130, signal.SIGKILL: -9}


ALL = list(itertools.product(PLACES, KINDS, ENDS))
SAMPLE = [(between, signal.SIGTERM, ENDS[0]), (between, signal.SIGKILL, ENDS[1])]


@pytest.fixture(scope="module")
def undisturbed(quiet: Training, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(quiet.root, tmp_path_factory.mktemp("stages") / "quiet", *GROWS)
    ending = training.train()
    assert ending.code == 0 and ending.said.count(" takes over from ") == 2, ending.said
    return training


@pytest.mark.slow
@pytest.mark.parametrize("count", sizes(len(SAMPLE), len(ALL)))
def test_between_two_stages(count: int, undisturbed: Training, tmp_path: Path, tally: Tally) -> None:
    for place, number, step in SAMPLE if count == len(SAMPLE) else ALL:
        training = Training(undisturbed.root, tmp_path / f"{place.__name__}{number}{step}", *GROWS)
        with tally.trial((place.__name__, number, step)):
            ending = training.train(partial(place, Stage(step, partial(send, number))))
            assert ending.code == CODES.get(number, 75), ending
            assert "Traceback" not in ending.said, ending.said
            saved = step + (place is in_the_first_update and number != signal.SIGKILL)
            assert max((training.run / "checkpoints").glob("step-*")).name == f"step-{saved:08}"
            ending = training.train()
            assert ending.code == 0 and f"resuming at step {saved} " in ending.said, ending.said
            assert len(training.seen()) == STEPS + (number == signal.SIGKILL and place is in_the_first_update)
            training.require_same(undisturbed)
        training.remove()
    tally.close("F1, F13 kill -9 and signals between two stages of pretraining")
