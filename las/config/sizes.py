"""Upper bounds of sizes, wherever they come from: a command, an option, a checkpoint, a bundle, a call.

Beyond them a mistyped number or a hostile file would fill the memory or keep the processor for years. They lie far
above what anybody trains or decodes with.
"""

from typing import Any

from las.runtime.errors import ArgumentError

LARGEST = 10**12
"""Bound of every whole number without one of its own."""
LIMITS = {
    # models
    "input_size": 100_000,
    "hidden_size": 8_192,
    "embedding_size": 16_384,
    "readout_size": 16_384,
    "key_size": 16_384,
    "query_size": 100_000,
    "value_size": 100_000,
    "vocab_size": 1_000_000,
    "num_layers": 100,
    "num_heads": 1_024,
    "num_filters": 4_096,
    "num_pdfs": 1_000_000,
    "num_components": 10_000,
    "num_steps": 100_000,
    "states_per_phone": 100,
    "width": 10_001,
    "channels": 16_384,
    "input_channels": 16_384,
    "stride": 1_000,
    "pool": 1_000,
    "time_reduction": 1_000,
    "input_reduction": 1_000,
    "chunk_size": 1_000_000,
    # features
    "sample_rate": 768_000,
    "num_mels": 4_096,
    "num_coefficients": 4_096,
    "deltas": 10,
    "frame_length_ms": 10_000,
    "frame_shift_ms": 10_000,
    # data
    "pieces": 1_000_000,
    "n": 20,
    "talkers": 1_000,
    "num_buckets": 1_000_000,
    "batch_size": 100_000,
    "max_batch_s": 10_000_000,
    "accumulate": 1_000_000,
    "keep_checkpoints": 1_000_000,
    "workers": 4_096,
    "num_workers": 4_096,
    "threads": 4_096,
    "jobs": 4_096,
    "seeds": 10_000,
    # searches
    "size": 1_000_000,  # the pieces of a tokenizer; of a search, see below
    "search.size": 4_096,
    "validation_search.size": 4_096,
    "nbest": 4_096,
    "max_length": 1_000_000,
    "max_active": 10_000_000,
    "max_period": 10_000,
    "max_repeats": 1_000_000,
}
"""Bounds by the name of a key or argument, with the name of its section where that decides."""
LONGEST = {"time_reduction": 100}
"""Bounds of the number of values in a list."""


def check(key: str, value: Any) -> None:
    """Raise ArgumentError for a number, or a list with one, that is above the bound of its dotted key."""
    parts = key.split(".")
    name = next((name for name in (".".join(parts[-2:]), parts[-1]) if name in LIMITS), "")
    limit = LIMITS.get(name, LARGEST)
    for number in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        if number > limit and (name or isinstance(number, int)) and "seed" not in parts[-1]:
            raise ArgumentError(f"{key}={number} is too large: it may be {limit:,} at most")
    longest = LONGEST.get(parts[-1])
    if longest is not None and isinstance(value, (list, tuple)) and len(value) > longest:
        raise ArgumentError(f"{key} has {len(value):,} values: it may have {longest:,} at most")
