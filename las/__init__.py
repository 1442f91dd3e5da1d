"""Listen-Attend-Spell speech recognition built from layer-normalised LSTMs.

>>> import las
>>> las.load("runs/ln_encoder_only/synthetic/seed1").transcribe("x.wav").text
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from las.decoding.transcriber import Transcriber

__version__ = "0.1.0"


def load(path: str, **options: Any) -> "Transcriber":
    """A transcriber from a run folder, a checkpoint or a bundle; see `las.decoding.transcriber.load`.

    Imports torch only when called.
    """
    from las.decoding import transcriber

    return transcriber.load(path, **options)
