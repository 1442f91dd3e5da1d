"""A stand-in for a GPU: tensors that lie on the CPU and claim to be on `cuda:0`.

Within `stand_in()`, `tensor.to("cuda")`, `torch.zeros(..., device="cuda")` and their like give tensors whose `device`
is `cuda:0`. As on a GPU, an operation on tensors of both devices raises, unless the one of the CPU is a single number
or an index; what makes the host wait for the GPU is counted. Every operation is seen, also those of backward passes.
"""

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from las.runtime import devices

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
LAS = str(Path(__file__).parents[2] / "las")
GENERATOR = torch.Generator
aten = torch.ops.aten
MIXES = {aten.copy_.default, aten._to_copy.default, aten.set_.source_Tensor, aten.set_.source_Storage_storage_offset}
"""Operations that may read from one device and write to the other."""
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
"""Operations whose indices may lie on the CPU."""
LENGTHS = {aten._ctc_loss.Tensor: slice(2, 4), aten._ctc_loss_backward.Tensor: slice(3, 5)}
"""Operations whose lengths, these arguments, are read on the CPU."""
WAITING = {
    aten._local_scalar_dense.default: "item",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten.equal.default: "equal",
    aten._unique2.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.repeat_interleave.Tensor: "repeat_interleave",
    aten.is_nonzero.default: "bool",
}
"""Operations whose result, or the shape of it, the host waits for, by what one writes."""


recording: list[object] = []
"""Graphs that are being captured, which the memory of the host may not be copied into."""


class StandInGPU:
    """Devices that tensors claim to be on, and the operations that the host waited for."""

    def __init__(self) -> None:
        self.devices: dict[int, tuple[StorageWeakRef, torch.device]] = {}
        self.factory = False
        """True while a function makes a tensor of none."""
        self.waits: Counter[str] = Counter()
        """Number of waits by operation and line of las."""

    def device(self, tensor: Tensor) -> torch.device:
        """The device that a tensor claims to be on."""
        return self.claimed(tensor) or CPU

    def claimed(self, tensor: Tensor) -> torch.device | None:
        """The device that a tensor claims to be on; None for what torch made inside an operation."""
        known = self.devices.get(tensor.untyped_storage()._cdata)
        return None if known is None else known[1]

    def claim(self, tensor: Tensor, device: torch.device) -> None:
        """Let a tensor, and all that share its memory, claim to be on a device."""
        storage = tensor.untyped_storage()
        # A weak reference keeps the address from being used for another storage.
        self.devices[storage._cdata] = (StorageWeakRef(storage), device)

    def wait(self, operation: str) -> None:
        """Count a wait, by the line of las that asked for it."""
        frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(LAS)]
        place = f"{frames[-1].filename.removeprefix(LAS)[1:]}:{frames[-1].lineno}" if frames else "the test"
        self.waits[f"{operation} at {place}"] += 1


def tensors_in(tree: Any) -> Iterator[Tensor]:
    """Yield the tensors among the arguments or results of an operation."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from tensors_in(each)
    elif isinstance(tree, dict):
        yield from tensors_in([*tree.values()])


class Operations(TorchDispatchMode):
    """Sees every operation, below automatic differentiation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: otherwise torch imports its compiler, which takes seconds."""
        return False


class _Placed(Operations):
    """Finds the device of every result."""

    def __init__(self, gpu: StandInGPU) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        given = [*tensors_in((args, kwargs))]
        device = self._device(func, args, given)
        result = func(*args, **kwargs)
        own = {each.untyped_storage()._cdata for each in given}
        for each in tensors_in(result) if device is not None else ():
            if each.untyped_storage()._cdata not in own:
                self.gpu.claim(each, device)
        return result

    def _device(self, func: Any, args: tuple[Any, ...], given: Sequence[Tensor]) -> torch.device | None:
        """The device of the result. Raises as torch does where tensors lie on two."""
        gpu = self.gpu
        used = [each for each in given if gpu.device(each) == GPU]
        if not used:
            return CPU if self.gpu.factory or any(gpu.claimed(each) == CPU for each in given) else None
        if func in WAITING:
            gpu.wait(WAITING[func])
        if func in INDEXED:
            indices = [each for each in args[1] if each is not None]
            if any(each.dtype in (torch.bool, torch.uint8) for each in indices):
                gpu.wait("boolean index")
            if any(gpu.device(each) == CPU for each in indices):
                gpu.wait("index from the CPU")
            given = [each for each in given if all(each is not index for index in indices)]
        if func in LENGTHS:
            lengths = args[LENGTHS[func]]
            if any(gpu.device(each) == GPU for each in lengths):
                gpu.wait("lengths")
            given = [each for each in given if all(each is not length for length in lengths)]
        others = [each for each in given if gpu.claimed(each) == CPU and each.dim() > 0]
        if others and func not in MIXES:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"(in {func}, shapes {[tuple(each.shape) for each in given]})"
            )
        if func == aten.copy_.default and {gpu.claimed(args[0]), gpu.claimed(args[1])} == {GPU, CPU}:
            gpu.wait("copy")
        single = [each for each in used if each.dim() > 0] or (used if not others else [])
        return GPU if single or not others else CPU


class _Functions(TorchFunctionMode):
    """Sees what is called by name: devices that are asked for and that tensors are asked for."""

    GETTERS: Mapping[Any, Callable[[torch.device], Any]] = {
        Tensor.device.__get__: lambda device: device,
        Tensor.is_cuda.__get__: lambda device: device.type == "cuda",
        Tensor.is_cpu.__get__: lambda device: device.type == "cpu",
    }

    def __init__(self, gpu: StandInGPU) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if isinstance(func, OpOverload):  # called by `_Placed`
            return func(*args, **kwargs)
        gpu = self.gpu
        gpu.factory = next(tensors_in((args, kwargs)), None) is None
        try:
            return self._call(func, args, kwargs)
        finally:
            gpu.factory = False

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        gpu = self.gpu
        if func in self.GETTERS:
            return self.GETTERS[func](gpu.device(args[0]))
        if func is Tensor.numpy and gpu.device(args[0]) == GPU:
            if not kwargs.get("force"):
                raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first")
            gpu.wait("numpy")
        if func is Tensor.tolist and gpu.device(args[0]) == GPU:
            gpu.wait("tolist")
        if func in (Tensor.cpu, Tensor.cuda):
            return self._to(args[0], CPU if func is Tensor.cpu else GPU, {}, False)
        if func is Tensor.to:
            return self._parsed_to(*args, **kwargs)
        if func in (Tensor.type_as,):
            return self._to(args[0], gpu.device(args[1]), {"dtype": args[1].dtype}, False)
        if func in (torch.from_numpy, torch.frombuffer):
            result = func(*args, **kwargs)
            gpu.claim(result, CPU)
            return result
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            return self._made(func, *args, **kwargs)
        if func is Tensor.new_tensor:
            own = {"device": gpu.device(args[0]), "dtype": args[0].dtype}
            return self._made(torch.tensor, args[1], **own | kwargs)
        if (device := kwargs.get("device")) is not None:
            result = func(*args, **kwargs | {"device": CPU})
            tree_map(lambda each: gpu.claim(each, _device(device)) if isinstance(each, Tensor) else None, result)
            return result
        return func(*args, **kwargs)

    def _made(self, func: Any, data: Any, **kwargs: Any) -> Tensor:
        """A tensor of Python numbers or of another tensor; from the host's memory to the GPU, the host waits."""
        device = kwargs.pop("device", None)
        if isinstance(data, Tensor):
            return self._to(data, _device(device) if device is not None else self.gpu.device(data), kwargs, False)
        result: Tensor = func(data, **kwargs)
        self.gpu.claim(result, CPU if device is None else _device(device))
        if self.gpu.device(result) == GPU:
            _refuse_recording()
            if result.numel() > 1:
                self.gpu.wait("copy")
        return result

    def _parsed_to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        for given in args:
            if isinstance(given, Tensor):
                device, dtype = self.gpu.device(given), given.dtype
            elif isinstance(given, torch.dtype):
                dtype = given
            elif isinstance(given, torch.device | str | int) and not isinstance(given, bool):
                device = given
        chosen = self.gpu.device(tensor) if device is None else _device(device)
        rest = {key: value for key, value in kwargs.items() if key in ("copy", "memory_format")}
        return self._to(tensor, chosen, rest | {"dtype": dtype or tensor.dtype}, kwargs.get("non_blocking", False))

    def _to(self, tensor: Tensor, device: torch.device, rest: Mapping[str, Any], non_blocking: bool) -> Tensor:
        before = self.gpu.device(tensor)
        result = tensor.to(**rest)
        if before == device:
            return result
        _refuse_recording()
        if not non_blocking or device == CPU:
            self.gpu.wait("copy")
        if result.untyped_storage()._cdata == tensor.untyped_storage()._cdata:
            result = result.clone()
        self.gpu.claim(result, device)
        return result


def _refuse_recording() -> None:
    if recording:
        raise RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture")


def _device(named: torch.device | str | int) -> torch.device:
    device = torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
    return GPU if device.type == "cuda" else device


class _Generator:
    """Makes generators of random numbers on the CPU, whatever the device."""

    def __new__(cls, device: object = "cpu") -> torch.Generator:  # type: ignore[misc]
        return GENERATOR("cpu")


@contextlib.contextmanager
def stand_in() -> Iterator[StandInGPU]:
    """Give this process a GPU that is none; yields its record. Where there is a GPU, the test is skipped: kernels would
    be started there on the tensors of a CPU."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU, whose own tests run")
    gpu, engine = StandInGPU(), torch.autograd.graph._engine_run_backward
    group = clip_grad._group_tensors_by_device_and_dtype
    functions = _Functions(gpu)

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        """Groups of tensors by the device that they claim to be on; torch looks at the true one."""
        groups = group(lists, with_indices)
        return {(gpu.device(found[0][0][0]), dtype): found for (_, dtype), found in groups.items()}

    def read_later(values: Tensor) -> Callable[[], list[float]]:
        """As on a GPU, but without pinned memory and events."""
        return values.tolist

    def backward(*args: Any, **kwargs: Any) -> Any:
        with functions:  # a mode is not in force inside of what it was called for
            return engine(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("torch.Generator", _Generator))
        stack.enter_context(mock.patch.object(devices, "read_later", read_later))
        stack.enter_context(mock.patch("torch.autograd._engine_run_backward", backward))
        for module in (clip_grad, optimizer):
            stack.enter_context(mock.patch.object(module, "_group_tensors_by_device_and_dtype", grouped))
        stack.enter_context(_Placed(gpu))
        stack.enter_context(functions)
        yield gpu
