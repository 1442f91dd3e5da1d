"""Memory that kernels keep for their next call: given again, larger when needed, each thread's own, never a result."""

import threading

import pytest
import torch

from las.cells.base import LSTMCell
from las.cells.ln_global import LNGlobalLSTMCell
from las.cells.ln_joined import LNJoinedLSTMCell
from las.kernels import cpu
from las.kernels.scratch import Scratch, scratch


def test_the_same_memory_is_given_again() -> None:
    room = Scratch()
    one, other = room.tensors([(3, 5), (2, 7)], torch.float32)
    assert one.shape == (3, 5) and other.shape == (2, 7)
    one.fill_(1)
    other.fill_(2)
    assert (one == 1).all(), "they overlap"
    assert not one.data_ptr() % room.LINE and not other.data_ptr() % room.LINE
    again = room.tensors([(4, 2)], torch.float64)[0]
    assert again.data_ptr() == one.data_ptr() and again.dtype == torch.float64
    assert room.tensors([], torch.float32) == []


def test_it_grows_and_is_given_back() -> None:
    room = Scratch()
    room.tensors([(10,)], torch.float32)
    large = room.tensors([(1000,), (0, 4)], torch.float32)
    assert [tuple(part.shape) for part in large] == [(1000,), (0, 4)]
    kept = len(room.kept)
    room.tensors([(10,)], torch.float32)
    assert len(room.kept) == kept
    room.release()
    assert not len(room.kept)


def test_every_thread_has_its_own() -> None:
    room, places = Scratch(), []

    def ask() -> None:
        places.append(room.tensors([(100,)], torch.float32)[0])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    ask()
    assert len({place.data_ptr() for place in places}) == 3


@pytest.mark.parametrize("cls", [LNGlobalLSTMCell, LNJoinedLSTMCell])
def test_what_a_layer_returns_outlives_its_next_calls(cls: type[LSTMCell]) -> None:
    torch.manual_seed(1)
    cells, lengths = [cls(6, 5), cls(6, 5)], torch.tensor([4, 2])
    frames = torch.randn(2, 4, 6, requires_grad=True)
    if why := cpu.refuses(cells[0], frames):
        pytest.skip(why)
    given = [frames, *cells[0].parameters(), *cells[1].parameters()]
    gates = [cell.input_gates(frames).detach().requires_grad_() for cell in cells]

    def passes(scale: float) -> list[torch.Tensor]:
        whole = cpu.layer_both(cells, frames * scale, lengths)
        with torch.inference_mode():
            decoded = cpu.layer_both(cells, frames * scale, lengths)
        of_gates = cpu.unroll_both(cells, [part * scale for part in gates], lengths)
        found = torch.autograd.grad(whole.square().sum(), given, retain_graph=True)
        again = torch.autograd.grad(whole.square().sum(), given)
        assert all(one.equal(other) for one, other in zip(found, again, strict=True))
        return [whole.detach(), decoded, *found, *torch.autograd.grad(of_gates.square().sum(), gates)]

    first = passes(1.0)
    copies = [part.clone() for part in first]
    scratch.kept.fill_(255)
    passes(3.0)
    assert all(part.equal(copy) for part, copy in zip(first, copies, strict=True))
    assert all(part.equal(copy) for part, copy in zip(passes(1.0), copies, strict=True))
