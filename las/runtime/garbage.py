"""Python's garbage collector, kept away from many objects that stay."""

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


@contextlib.contextmanager
def frozen() -> Iterator[None]:
    """Leave all objects that there are now out of later collections.

    A training keeps its modules, manifests and models to its end. Without this the collector looks through all of
    them every few updates: 3 % of the time of a training with bfloat16 on two threads. Where the caller has left out
    objects already, nothing is changed.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
