"""Steps that are captured and replayed, with a stand-in for CUDA graphs, against the same steps one by one."""

import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
from graph_stand_in import graphs
from speller_cases import ATTENTIONS, CELLS, NUM_STATES, STATES, TARGETS, VALUE, VOCAB, make, material, plain, results
from tiers import needs_gpu, rest_slow
from torch import Tensor, nn

from las.decoding.search import BeamSearch, GreedySearch
from las.nn.kernels import choice
from las.nn.kernels.graphs import capture
from las.nn.kernels.graphs.recurrence import FEWEST
from las.nn.kernels.graphs.replayed import Replayed, bucket
from las.nn.model import Decoder
from las.nn.speller import Speller
from las.runtime.devices import garbage_paused

State = tuple[Tensor, Tensor]
OPTIONS: tuple[dict[str, float], ...] = (
    {"num_layers": 1, "scheduled_sampling": 0.5},
    {"num_layers": 2, "dropout": 0.4},
    {"num_layers": 2, "dropout": 0.3, "scheduled_sampling": 0.5},
)


def fibonacci(_: object, state: State) -> tuple[State, Tensor]:
    """The second result is the first of the next state: they must not overwrite each other."""
    before, now = state
    return (now, before + now), now


def test_records_stay_and_states_that_share_memory_are_not_mixed() -> None:
    records, state = [], (torch.zeros(1), torch.ones(1))
    with graphs() as made:
        replayed = Replayed("numbers", fibonacci, (), made.capture)
        for _ in range(10):
            state, record = replayed(state)
            records.append(record)
        assert len(made) == 1 and made[0].num_replays == 10
    assert [*map(int, records)] == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]


def test_another_shape_is_captured_anew() -> None:
    with graphs() as made:
        replayed = Replayed("numbers", fibonacci, (), made.capture)
        state = torch.zeros(1), torch.ones(1)
        for times in (3, 4):
            for _ in range(times):
                state, _ = replayed(state)
            state = state[0].repeat(2), state[1].repeat(2)
        assert state[1].tolist() == [21] * 4 and len(made) == 2


def test_a_function_that_changes_is_not_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def counted(_: object, state: Tensor) -> tuple[Tensor, tuple[()]]:
        calls.append(1)
        return state + len(calls), ()

    with graphs() as made:
        for _ in range(2):
            calls.clear()
            replayed, state = Replayed("a count", counted, (), made.capture), torch.zeros(1)
            for _ in range(3):
                state, _ = replayed(state)
        assert len(made) == 1, "the second is not tried again"
        assert state.item() == 1 + 2 + 3
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("a count: ") and "other values" in said


def test_a_function_that_waits_is_not_replayed() -> None:
    with graphs() as made:
        replayed, state = (
            Replayed("a wait", lambda _, state: (state * state.item(), ()), (), made.capture),
            torch.full((1,), 2.0),
        )
        for _ in range(3):
            state, _ = replayed(state)
        assert not len(made) and state.item() == 2.0**8


PAIRS = len(ATTENTIONS) * len(CELLS)
EACH = [
    (attention, cell, OPTIONS[(first + second + third) % len(OPTIONS)])
    for third in range(len(OPTIONS))
    for first, attention in enumerate(ATTENTIONS)
    for second, cell in enumerate(CELLS)
]
"""All combinations; each two of an attention, a cell and options are together among the first `PAIRS`."""


@pytest.mark.parametrize(("attention", "cell", "options"), rest_slow(EACH, keep=PAIRS), ids=str)
def test_replayed_spellers_have_the_values_and_gradients_of_the_plain_loop(
    attention: str, cell: str, options: dict[str, float]
) -> None:
    speller = make(attention, cell, **options).train()
    right = plain(speller, material())
    with graphs() as made:
        assert speller.explain(material()) == "speller: replayed"
        ours = results(speller, material())
        # Five steps, some together: the first ones as they are, the others captured and tried; the same backwards.
        assert [graph.num_replays for graph in made] == [2, 2]
        torch.testing.assert_close(ours, right, rtol=1e-9, atol=1e-11)
        again = results(speller, material())
        assert [graph.num_replays for graph in made] == [4, 4], "a later pass only replays"
        assert all(map(torch.equal, again, ours))


def a_pass(speller: Speller, batch: int, states: int, tokens: int, seed: int) -> list[Tensor]:
    """Logits and weights of random utterances, and while training the gradients of states and parameters."""
    draw = torch.Generator().manual_seed(seed)
    encoded = torch.randn(batch, states, VALUE, generator=draw, dtype=torch.float64).requires_grad_(speller.training)
    num_states = torch.randint(1, states + 1, (batch,), generator=draw)
    targets = torch.randint(1, VOCAB, (batch, tokens), generator=draw)
    with torch.set_grad_enabled(speller.training):
        found = speller(speller.attention.prepare(encoded, num_states), targets)
    results = [found.logits, found.weights]
    if speller.training:
        wanted = torch.stack([part.square().sum() for part in results]).sum()
        results += torch.autograd.grad(wanted, [encoded, *speller.parameters()])
    return [part.detach() for part in results]


SHAPES = ((2, 9, 6), (3, 10, 4), (2, 10, 9), (9, 9, 5), (10, 10, 5), (2, 9, FEWEST))
"""Utterances, states and tokens: the first and third, and the fourth and fifth, are padded to the same."""


@pytest.mark.parametrize("attention", rest_slow(["location", "weight_feedback"]))
def test_passes_of_many_shapes_in_turn_are_captured_once_for_each_bucket(attention: str) -> None:
    speller, buckets = make(attention, "ba2016", num_layers=1), set()
    turns = [*product([True], SHAPES), *product([False, True], [SHAPES[0], SHAPES[2]])]
    with graphs() as made:
        for turn, (training, shape) in enumerate(turns):
            speller.train(training)
            ours = a_pass(speller, *shape, turn)
            with choice.use_kernel("plain"):
                right = a_pass(speller, *shape, turn)
            torch.testing.assert_close(ours, right, rtol=1e-9, atol=1e-11)
            batch, states, tokens = shape
            sizes = bucket(batch), bucket(states), tokens < FEWEST, training, turn == len(turns) - 1
            buckets |= {(kind, *sizes) for kind in (("forward", "backward") if training else ("forward",))}
            assert len(made) == len(buckets), "a capture for each bucket"
            with torch.no_grad():
                for parameter in speller.parameters():  # an update
                    parameter.mul_(0.99)
                if turn == len(turns) - 2:
                    cell = speller.cells[0]
                    cell.recurrent_weight = nn.Parameter(1.1 * cell.recurrent_weight)
    assert len(buckets) == 4 * 2 + 1 + 2


def test_a_model_that_is_gone_frees_its_graphs() -> None:
    with graphs(), garbage_paused():
        kept, gone = make().train(), make().train()
        results(kept, material())
        of_one = len(capture._cache)
        results(gone, material())
        assert len(capture._cache) == 2 * of_one == 6
        del gone
        assert len(capture._cache) == of_one


def test_threads_take_turns() -> None:
    """Those that ask for no gradients share a speller: a backward pass puts other tensors into it for a while."""
    shared, encoded = make().train(), material()
    right = plain(make().train(), encoded)

    def of_thread(speller: Speller) -> list[Tensor]:
        if speller is not shared:
            return results(speller, encoded)
        with torch.no_grad():
            found = speller(speller.attention.prepare(encoded, NUM_STATES), TARGETS)
        return [found.logits, found.weights]

    spellers = [each for _ in range(4) for each in (shared, make().train())]
    with graphs(), ThreadPoolExecutor(4) as threads:
        for ours in [*threads.map(of_thread, spellers)]:
            torch.testing.assert_close(ours, right[: len(ours)], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kernel", ["plain", "cpu", "replayed"])
def test_a_pass_frees_its_tensors_without_the_garbage_collector(kernel: str) -> None:
    """A cycle through an autograd function kept the states of all steps until the collector came by."""
    speller, alive = make().train(), []
    with garbage_paused():
        for _ in range(4):
            with contextlib.ExitStack() as stack:
                made = stack.enter_context(graphs() if kernel == "replayed" else choice.use_kernel(kernel))
                assert speller.explain(material()) == f"speller: {kernel}"
                results(speller, material())
                speller(speller.attention.prepare(material(), NUM_STATES), TARGETS)  # without a backward pass
                if kernel == "replayed":
                    made.graphs.clear()  # the stand-in's, which keep what they replay
            alive.append(sum(isinstance(each, Tensor) for each in gc.get_objects()))
    assert len(set(alive[1:])) == 1, alive


def test_a_token_starts_no_operation_of_its_own() -> None:
    speller = make("location", "ba2016", num_layers=2, dropout=0.2).train()
    counts = []
    for tokens in (6, 12):
        with graphs() as made:
            encoded = material().requires_grad_()
            memory = speller.attention.prepare(encoded, torch.tensor([STATES] * 3))
            for measured in (False, True):  # the first has the trial
                made.launches.count = 0
                speller(memory, torch.ones(3, tokens, dtype=torch.long)).logits.sum().backward(
                    retain_graph=not measured
                )
            counts.append(made.launches.count)
    assert counts[0] == counts[1]


def test_products_under_autocast_are_rounded_in_both_passes() -> None:
    speller = make("location", "ba2016").float().train()
    encoded = material().float()
    with torch.autocast("cpu", torch.bfloat16):
        right = plain(speller, encoded)
        with graphs() as made:
            ours = results(speller, encoded)
            assert len(made) == 2
    for mine, rounded in zip(ours, right, strict=True):
        torch.testing.assert_close(mine.float(), rounded.float(), rtol=0.05, atol=0.05)
    assert not torch.equal(right[0].float(), plain(speller, encoded)[0])


@needs_gpu
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_cuda_graphs_have_the_values_and_gradients_of_the_plain_loop(
    attention: str, capsys: pytest.CaptureFixture[str]
) -> None:
    speller = make(attention, "ba2016", num_layers=2).to("cuda").train()
    right = plain(speller, material().to("cuda"))
    assert speller.explain(material().to("cuda")) == "speller: replayed"
    for _ in range(2):  # with the trial and without
        ours = results(speller, material().to("cuda"))
        torch.testing.assert_close(ours, right, rtol=1e-9, atol=1e-11)
    assert capsys.readouterr().out == ""


@needs_gpu
@pytest.mark.parametrize("search", [GreedySearch(max_length=12), BeamSearch(4, max_length=12)], ids=["greedy", "beam"])
def test_cuda_graphs_search_as_the_cpu_does(
    search: GreedySearch | BeamSearch, capsys: pytest.CaptureFixture[str]
) -> None:
    speller = make("location", "ba2016", num_layers=2)
    found = []
    for device in ("cpu", "cuda"):
        speller.to(device)
        memory = speller.attention.prepare(material().to(device), NUM_STATES.to(device))
        found.append(search(Decoder(speller, memory), torch.full((3,), STATES, device=device)))
    assert [each[0].tokens for each in found[0]] == [each[0].tokens for each in found[1]]
    assert capsys.readouterr().out == ""


@needs_gpu
def test_after_a_capture_that_failed_random_numbers_and_captures_work(capsys: pytest.CaptureFixture[str]) -> None:
    device = torch.device("cuda")

    def waits() -> None:
        torch.ones(1, device=device).item()

    def counts() -> None:
        counted.add_(1)

    counted = torch.zeros(1, device=device)
    assert capture.captured(waits, device) is None
    assert capsys.readouterr().out.startswith("no CUDA graph")
    torch.manual_seed(1)
    drawn = torch.randn(3, device=device)
    torch.manual_seed(1)
    assert torch.equal(torch.randn(3, device=device), drawn)
    graph = capture.captured(counts, device, 4)
    assert graph is not None
    graph.replay()
    assert counted.item() == 5
