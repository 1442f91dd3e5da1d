"""Import of torchaudio without its compiled extension, the only one in the package.

torchaudio's wheel links its compiled extension against CUDA, so a plain import raises OSError beside a CPU-only
torch. Its Python part (transforms, functional) needs no extension: a stand-in module for the extension makes it
importable.
"""

import functools
import importlib
import sys
import types
from typing import Any, NoReturn


def _unavailable(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("torchaudio's compiled extension is not available beside this torch")


@functools.cache
def torchaudio() -> types.ModuleType:
    """Import torchaudio, with or without its compiled extension.

    Raises ImportError when torchaudio is not installed.
    """
    try:
        return importlib.import_module("torchaudio")
    except OSError:
        for name in [name for name in sys.modules if name == "torchaudio" or name.startswith("torchaudio.")]:
            del sys.modules[name]
    extension: Any = types.ModuleType("torchaudio._extension")
    extension._IS_TORCHAUDIO_EXT_AVAILABLE = False
    extension._IS_ALIGN_AVAILABLE = False
    extension.fail_if_no_align = lambda function: _unavailable
    extension.lazy_import_sox_ext = _unavailable
    sys.modules["torchaudio._extension"] = extension
    return importlib.import_module("torchaudio")
