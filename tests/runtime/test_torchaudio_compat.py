"""torchaudio is importable with and without its compiled extension."""

import importlib
import sys
import types

import pytest

from las.runtime import torchaudio_compat


def test_an_extension_that_does_not_load_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As beside a CPU-only torch: the first import raises OSError, the second finds the stand-in."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "torchaudio"}
    calls = []

    def import_module(name: str) -> types.ModuleType:
        calls.append((name, "torchaudio._extension" in sys.modules))
        if len(calls) == 1:
            raise OSError("libcudart.so.13: cannot open shared object file")
        return types.ModuleType(name)

    monkeypatch.setattr(importlib, "import_module", import_module)
    try:
        torchaudio_compat.torchaudio.__wrapped__()
        extension = sys.modules["torchaudio._extension"]
        assert extension._IS_TORCHAUDIO_EXT_AVAILABLE is False
        for use in (extension.fail_if_no_align(len), extension.lazy_import_sox_ext):
            with pytest.raises(RuntimeError, match="extension is not available"):
                use()
    finally:
        sys.modules.pop("torchaudio._extension", None)
        sys.modules.update(before)
    assert [name for name, _ in calls] == ["torchaudio", "torchaudio"]
    assert calls[1][1]
