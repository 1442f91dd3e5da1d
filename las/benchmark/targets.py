"""What each kernel is asked to reach at each shape: with LN Global without cell norm, forward and backward."""

from typing import Any

CELL = "ln_global"
MOST_PEAK = 1.3
RATIOS: dict[tuple[str, str], dict[str, float]] = {
    ("autograd", "C1"): {"ratio_to_lstm": 1.9, "times_faster_than_naive": 2.2},
    ("autograd", "C2"): {"ratio_to_lstm": 1.35},
    ("autograd", "C3"): {"ratio_to_lstm": 1.1},
    ("autograd", "C4"): {"ratio_to_packed": 0.5},
    ("cpu", "C1"): {"ratio_to_lstm": 1.05, "times_faster_than_naive": 4.0},
    ("cpu", "C2"): {"ratio_to_lstm": 0.95},
    ("cpu", "C3"): {"ratio_to_lstm": 0.85},
    ("cpu", "C4"): {"ratio_to_packed": 0.25},
    ("triton", "S1"): {"ratio_to_lstm": 0.8, "ratio_to_best": 1.8},
    ("triton", "S2"): {"ratio_to_lstm": 0.8, "ratio_to_best": 1.4},
    ("triton", "S3"): {"ratio_to_lstm": 0.8, "ratio_to_best": 1.4},
    ("triton", "S4"): {"ratio_to_lstm": 0.8, "ratio_to_best": 1.2},
    ("triton", "S5"): {"ratio_to_lstm": 0.95, "ratio_to_best": 1.0},
    ("triton", "S6"): {"ratio_to_lstm": 0.85},
    ("triton", "S7"): {"ratio_to_best": 1.7},
    ("triton", "S9"): {"ratio_to_packed": 0.7},
}
"""Ratios at most; speed-ups at least, over the loop as it is usually written (ours is faster than that)."""


def target(row: dict[str, Any]) -> dict[str, float]:
    """What a row is asked to reach, by key of the row; empty where nothing is."""
    wanted = RATIOS.get((row["implementation"], row["shape"]))
    return {} if row["cell"] != CELL or wanted is None else {**wanted, "peak_to_lstm": MOST_PEAK}


def as_text(wanted: dict[str, float]) -> str:
    """`lstm 1.05, naive 4, peak 1.30`, named like the columns."""
    names = {
        "ratio_to_lstm": "lstm",
        "ratio_to_packed": "packed",
        "ratio_to_best": "best",
        "times_faster_than_naive": "naive",
        "peak_to_lstm": "peak",
    }
    return ", ".join(f"{names[key]} {value:g}" for key, value in wanted.items())
