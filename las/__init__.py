"""Listen-Attend-Spell speech recognition built from layer-normalised LSTMs.

>>> import las
>>> score = las.error_rate({"u1": "the cat sat".split()}, {"u1": "the cat".split()})
>>> round(score.total.rate, 3)
0.333

Every name of `dir(las)` is imported when it is first used: `import las` alone does not import torch.
"""

import importlib
from typing import Any

from las.config import public
from las.runtime.version import __version__

__all__ = ["__version__", *sorted([*public.COMPONENTS, *public.TOOLS, *public.MODULES])]


def __getattr__(name: str) -> Any:
    if name in public.MODULES:
        return importlib.import_module(public.MODULES[name])
    module = public.COMPONENTS.get(name) or public.TOOLS.get(name)
    if module is None:
        raise AttributeError(f"module 'las' has no attribute {name!r}{_nearest(name)}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return __all__


def _nearest(name: str) -> str:
    from las.runtime.errors import suggest

    return "." + suggest(name, __all__)
