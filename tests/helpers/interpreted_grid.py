"""Programs of a launch side by side in Triton's interpreter, which runs them one after the other.

Programs that wait for each other need to run at the same time: each gets a thread, and knows its place in the grid.
"""

import contextlib
import inspect
import sys
import threading
from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest import mock


@contextlib.contextmanager
def side_by_side() -> Iterator[None]:
    """Context in which the programs of a grid run in threads."""
    from triton.runtime import interpreter

    place = threading.local()
    builder = interpreter.interpreter_builder

    class Builder(type(builder)):  # type: ignore[misc]
        @property
        def grid_idx(self) -> Any:
            return getattr(place, "index", None)

        @grid_idx.setter
        def grid_idx(self, index: Any) -> None:
            place.index = index

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        names = inspect.getfullargspec(self.fn).args
        kwargs = {name: value for name, value in kwargs.items() if name in names}
        scope = interpreter._patch_lang(self.fn)
        errors: list[BaseException] = []
        try:
            given = inspect.getcallargs(self.fn, *args, **kwargs)
            given = {
                name: value if name in self.constexprs else interpreter._implicit_cvt(value)
                for name, value in given.items()
            }
            grid = (*self.grid, 1, 1)[:3]
            builder.set_grid_dim(*grid)

            def run(index: tuple[int, ...]) -> None:
                place.index = index
                try:
                    self.fn(**given)
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in product(*map(range, grid))]
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive() and not errors:
                    thread.join(0.1)
        finally:
            scope.restore()
        if errors:
            raise errors[0]

    lock = threading.Lock()

    def call_from_kernel(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock:  # a function's first call writes names into the globals that those of other threads read
            interpreter._patch_lang(self.fn)
            fn = self.rewrite()
        return fn(*args, **kwargs)

    own, interval = builder.__class__, sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # a program that waits gives way
    builder.__class__ = Builder
    try:
        with (
            mock.patch.object(interpreter.GridExecutor, "__call__", call),
            mock.patch.object(interpreter.InterpretedFunction, "__call__", call_from_kernel),
        ):
            yield
    finally:
        builder.__class__ = own
        sys.setswitchinterval(interval)
