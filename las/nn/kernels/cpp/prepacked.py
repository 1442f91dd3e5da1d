"""Weights of a model in the layout that the compiled loops read, kept from one call to the next (`prepacked.h`)."""

import contextlib
import ctypes
import weakref
from collections.abc import Iterator
from typing import Any

from torch import nn

from las.nn.kernels.cpp import build


class Range(ctypes.Structure):
    """The structure `PrepackedWeights::Range` of `prepacked.h`, field by field."""

    _fields_ = (("first", ctypes.c_void_p), ("bytes", ctypes.c_int64))


class PrepackedWeights:
    """Keeps the weights of a model in the layout of the compiled loops, for the calls in `with` blocks.

    Without it, each call of a layer copies its weights first. Results are the same bits. Only weights on the CPU are
    kept, which takes their memory twice, and only calls of the thread that entered the block read them. A weight that
    an operation of torch changed since the last block is copied anew; a block must not change any, nor write through
    `.data`, which torch does not count.

    >>> import las, torch
    >>> from las.nn.kernels.cpp.prepacked import PrepackedWeights
    >>> lstm, frames = las.LSTM(8, 16, bidirectional=True, batch_first=True).eval(), torch.randn(1, 20, 8)
    >>> weights = PrepackedWeights(lstm)
    >>> with torch.no_grad(), weights.used():
    ...     first = lstm(frames)[0]  # copies them
    ...     torch.equal(lstm(frames)[0], first)
    True
    """

    _state: list[tuple[int, int]] | None = None
    _address = ctypes.c_void_p()
    _close: "weakref.finalize[..., PrepackedWeights] | None" = None

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [*model.parameters()]  # holds their memory

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy begins with: it keeps weights of its own."""
        return {"_parameters": self._parameters}

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let the calls of this thread read the kept weights, in a `with` block."""
        weights = [each for each in self._parameters if each.is_cpu and not each.is_inference()]
        if not weights or build.unavailable():  # for a model on a GPU nothing is compiled
            yield
            return
        self._renew(weights)
        use = build.library().weights_use
        use.restype = ctypes.c_void_p
        before = use(self._address)
        try:
            yield
        finally:
            use(ctypes.c_void_p(before))

    def _renew(self, weights: list[nn.Parameter]) -> None:
        """Begin anew if a weight has moved or changed since the last block."""
        state = [(each.data_ptr(), each._version) for each in weights]
        if state == self._state:
            return
        library = build.library()
        library.weights_open.restype = ctypes.c_void_p
        ranges = (Range * len(weights))(*(Range(each.data_ptr(), each.nbytes) for each in weights))
        if self._close is not None:
            self._close()
        self._address = ctypes.c_void_p(library.weights_open(ranges, ctypes.c_int64(len(weights))))
        self._close = weakref.finalize(self, library.weights_close, self._address)
        self._state = state
