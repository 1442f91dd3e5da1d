"""The caching allocator: memory comes again when its tensors are gone, and little more is kept than was in use."""

import gc
import resource
import threading

import pytest
import torch
from kernel_cases import compiles, layer_both, unroll_both
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn import Parameter

import las
from las.nn.cells.base import LSTMCell
from las.nn.cells.ln_global import LNGlobalLSTMCell
from las.nn.cells.ln_joined import LNJoinedLSTMCell
from las.nn.kernels import choice
from las.nn.kernels.choice import KERNELS
from las.nn.kernels.cpp.tensors import CachingAllocator, allocator

LIKE = torch.empty(0)
LARGE = CachingAllocator.SMALL // LIKE.element_size()


def bytes_kept(memory: CachingAllocator) -> list[int]:
    return sorted(map(len, memory.idle))


def test_memory_comes_again_when_its_tensor_is_gone() -> None:
    memory = CachingAllocator()
    tensor = memory.empty(LIKE, 2, LARGE)
    assert tensor.shape == (2, LARGE) and tensor.dtype == LIKE.dtype and tensor.is_contiguous()
    place = tensor.data_ptr()
    assert memory.empty(LIKE, 2, LARGE).data_ptr() != place
    del tensor
    assert place in {block.data_ptr() for block in memory.idle}
    again = memory.empty(LIKE.double(), 3, LARGE // 4)  # smaller, and of another type
    assert again.dtype == torch.float64 and place in {again.data_ptr(), *(block.data_ptr() for block in memory.idle)}


@compiles
def test_memory_of_the_compiled_loops_comes_again() -> None:
    """Whose first writes to pages take longer than a short recurrence (`Blocks` of products.h)."""
    layer, frames = las.LSTM(8, 512, bidirectional=True), torch.randn(3, 1, 8)

    def new_pages() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        layer(frames)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    with torch.no_grad(), choice.use_kernel("cpu"):
        layer(frames)
        weights = 2 * 4 * 512 * 512 * frames.element_size()
        assert min(new_pages() for _ in range(3)) < weights / resource.getpagesize() / 8


def test_whatever_refers_to_memory_keeps_it() -> None:
    memory = CachingAllocator()
    tensor = memory.empty(LIKE, LARGE).fill_(1).requires_grad_()
    part, product = tensor.detach()[5:9], tensor.square().sum()
    del tensor
    memory.empty(LIKE, LARGE).fill_(2)
    assert not [block for block in memory.idle if block.data_ptr() == part.data_ptr() - 5 * LIKE.element_size()]
    assert (part == 1).all()
    product.backward()  # reads what it saved
    del part, product
    gc.collect()
    assert len(memory.idle) == 2


def test_little_more_is_kept_than_was_in_use() -> None:
    memory = CachingAllocator()
    for length in (8, 1, 3, 8, 2, 20, 1):
        memory.empty(LIKE, length, LARGE)
        assert memory.held == sum(bytes_kept(memory)) <= memory.SLACK * memory.peak
    assert memory.peak == 20 * memory.SMALL
    memory.release()
    assert not memory.idle and not memory.held
    for lengths in (4, 5, 6), (5, 6, 4), (6, 4, 5):
        several = [memory.empty(LIKE, length, LARGE) for length in lengths]
        assert memory.held == memory.peak == 15 * memory.SMALL and not memory.idle
        del several


def test_small_and_other_tensors_are_those_of_torch() -> None:
    memory = CachingAllocator()
    memory.empty(LIKE, 7)
    assert memory.empty(torch.empty(0, device="meta"), LARGE).device.type == "meta"
    with FakeTensorMode():
        assert type(memory.empty(torch.empty(0), LARGE)) is not Tensor
    assert not memory.idle
    assert type(memory.empty(Parameter(LIKE), LARGE)) is Tensor
    assert bytes_kept(memory) == [memory.SMALL]


def test_threads_never_get_the_same_memory() -> None:
    memory, wrong = CachingAllocator(), []

    def work(number: int) -> None:
        for _ in range(50):
            tensor = memory.empty(LIKE, LARGE)
            tensor[::1000] = number
            wrong.extend([] if bool((tensor[::1000] == number).all()) else [number])
            del tensor

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(memory.idle) <= 4


@compiles
@pytest.mark.parametrize("cls", [LNGlobalLSTMCell, LNJoinedLSTMCell])
def test_a_kernel_computes_the_same_in_used_memory(cls: type[LSTMCell], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CachingAllocator, "SMALL", 1)
    torch.manual_seed(1)
    cells, lengths = [cls(6, 5), cls(6, 5)], torch.tensor([4, 2])
    frames = torch.randn(2, 4, 6, requires_grad=True)
    kernel = KERNELS["cpu"]
    given = [frames, *cells[0].parameters(), *cells[1].parameters()]
    gates = [cell.input_gates(frames).detach().requires_grad_() for cell in cells]

    def passes(scale: float) -> list[Tensor]:
        with torch.inference_mode():
            decoded = layer_both(kernel, cells, frames * scale, lengths)
        whole = layer_both(kernel, cells, frames * scale, lengths)
        of_gates = unroll_both(kernel, cells, [part * scale for part in gates], lengths)
        found = torch.autograd.grad(whole.square().sum(), given, retain_graph=True)
        again = torch.autograd.grad(whole.square().sum(), given)
        assert all(one.equal(other) for one, other in zip(found, again, strict=True))
        return [whole.detach(), decoded, *found, *torch.autograd.grad(of_gates.square().sum(), gates)]

    first = passes(1.0)
    copies = [part.clone() for part in first]
    assert allocator.idle
    for block in allocator.idle:
        block.numpy().fill(255)  # not a number
    passes(3.0)
    assert all(part.equal(copy) for part, copy in zip(first, copies, strict=True))
    assert all(part.equal(copy) for part, copy in zip(passes(1.0), copies, strict=True))
    del first
    allocator.release()
