"""Random states survive JSON bit for bit."""

import json
import random

import torch

from las import randomness


def test_what_follows_a_restored_state_is_what_followed_it() -> None:
    randomness.seed(7)
    random.gauss(0, 1)  # leaves half of a pair behind, which belongs to the state
    torch.randn(3)
    written = json.dumps(randomness.states())
    first = (random.random(), random.gauss(0, 1), torch.randn(5))
    randomness.seed(8)
    randomness.restore(json.loads(written))
    second = (random.random(), random.gauss(0, 1), torch.randn(5))
    assert first[:2] == second[:2]
    assert torch.equal(first[2], second[2])


def test_seeds_tell_streams_apart_and_repeat_them() -> None:
    drawn = []
    for number in (1, 1, 2):
        randomness.seed(number)
        drawn.append((random.random(), float(torch.rand(()))))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_generator_belongs_to_its_key_and_leaves_the_others_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    keys = [("weight noise", 1, 2), ("weight noise", 1, 2), ("weight noise", 2, 1), ("noise", 1, 2), ("noise", 12)]
    drawn = [float(torch.rand((), generator=randomness.generator("cpu", *key))) for key in keys]
    assert drawn[0] == drawn[1] and len(set(drawn)) == 4
    assert torch.equal(torch.get_rng_state(), state)
