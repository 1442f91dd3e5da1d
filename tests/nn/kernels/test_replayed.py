"""Steps that are captured and replayed, with a stand-in for CUDA graphs, against the same steps one by one."""

import contextlib
import gc

import pytest
import torch
from graph_stand_in import graphs
from speller_cases import ATTENTIONS, CELLS, NUM_STATES, STATES, TARGETS, make, material, plain, results
from tiers import needs_gpu, rest_slow
from torch import Tensor

from las.decoding.search import BeamSearch, GreedySearch
from las.nn.kernels import choice
from las.nn.kernels.graphs import capture
from las.nn.kernels.graphs.replayed import Replayed
from las.nn.model import Decoder
from las.runtime.devices import garbage_paused

State = tuple[Tensor, Tensor]
OPTIONS: tuple[dict[str, float], ...] = (
    {"num_layers": 1, "scheduled_sampling": 0.5},
    {"num_layers": 2, "dropout": 0.4},
    {"num_layers": 2, "dropout": 0.3, "scheduled_sampling": 0.5},
)


def fibonacci(state: State) -> tuple[State, Tensor]:
    """The second result is the first of the next state: they must not overwrite each other."""
    before, now = state
    return (now, before + now), now


def test_records_stay_and_states_that_share_memory_are_not_mixed() -> None:
    records, state = [], (torch.zeros(1), torch.ones(1))
    with graphs() as made:
        replayed = Replayed("numbers", fibonacci, made.capture)
        for _ in range(10):
            state, record = replayed(state)
            records.append(record)
        assert len(made) == 1 and made[0].num_replays == 9
    assert [*map(int, records)] == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55]


def test_another_shape_is_captured_anew() -> None:
    with graphs() as made:
        replayed = Replayed("numbers", fibonacci, made.capture)
        state = torch.zeros(1), torch.ones(1)
        for times in (3, 4):
            for _ in range(times):
                state, _ = replayed(state)
            state = state[0].repeat(2), state[1].repeat(2)
        assert state[1].tolist() == [21] * 4 and len(made) == 2


def test_a_function_that_changes_is_not_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def counted(state: Tensor) -> tuple[Tensor, tuple[()]]:
        calls.append(1)
        return state + len(calls), ()

    with graphs() as made:
        for _ in range(2):
            calls.clear()
            replayed, state = Replayed("a count", counted, made.capture), torch.zeros(1)
            for _ in range(3):
                state, _ = replayed(state)
        assert len(made) == 1, "the second is not tried again"
        assert state.item() == 1 + 2 + 3
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith("a count: ") and "other values" in said


def test_a_function_that_waits_is_not_replayed() -> None:
    with graphs() as made:
        replayed, state = (
            Replayed("a wait", lambda state: (state * state.item(), ()), made.capture),
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
        # Five steps: one as it is, one captured, then replays; the same backwards.
        assert [graph.num_replays for graph in made] == [4, 4]
        torch.testing.assert_close(ours, right, rtol=1e-9, atol=1e-11)
        again = results(speller, material())
        assert len(made) == 4 and all(map(torch.equal, again, ours))


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
