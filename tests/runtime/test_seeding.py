"""Random numbers depend on a seed and a place, and on nothing that was drawn before."""

import random

import torch

from las.runtime import seeding


def test_seeds_tell_streams_apart_and_repeat_them() -> None:
    drawn = []
    for place in ((1,), (1,), (2,), (1, "stage", 2), (1, "stage", 3)):
        seeding.seed(*place)
        drawn.append((random.random(), float(torch.rand(()))))
    assert drawn[0] == drawn[1] and len(set(drawn)) == 4


def test_a_generator_belongs_to_its_key_and_leaves_the_others_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    keys = [("weight noise", 1, 2), ("weight noise", 1, 2), ("weight noise", 2, 1), ("noise", 1, 2), ("noise", 12)]
    drawn = [float(torch.rand((), generator=seeding.generator("cpu", *key))) for key in keys]
    assert drawn[0] == drawn[1] and len(set(drawn)) == 4
    assert torch.equal(torch.get_rng_state(), state)


def test_an_update_draws_the_same_whatever_came_before_and_another_process_draws_otherwise() -> None:
    drawn = []
    for number, step, process in ((1, 2, 0), (1, 2, 0), (1, 3, 0), (2, 2, 0), (1, 2, 1), (12, 0, 0)):
        torch.rand(len(drawn))
        seeding.seed_update(number, step, process)
        drawn.append((random.random(), float(torch.rand(()))))
    assert drawn[0] == drawn[1] and len(set(drawn)) == 5
