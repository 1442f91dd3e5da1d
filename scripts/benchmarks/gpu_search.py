"""`make gpu`, part search: one utterance at a time and batches, of the demo's model and of that of the paper's size."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks import timing
from benchmarks.gpu_step import row_of
from benchmarks.ledger import Ledger
from benchmarks.models import DEMO, END_TO_END, Subject
from benchmarks.records import Row
from benchmarks.settings import Settings
from las.decoding.search import BeamSearch, GreedySearch
from las.nn.model import Decoder, ListenAttendSpell

IMPROBABLE = -1e4
"""Logit of the end of a sentence: an untrained model may not end one, so that all utterances have as many tokens as is
allowed."""
UTTERANCE_S = 1.9
ANY_LENGTH = 1e3
"""Tokens per encoded state that limit nothing."""
_one = replace(DEMO, durations_s=torch.tensor([UTTERANCE_S]))
_alike = replace(DEMO, durations_s=torch.full((32,), UTTERANCE_S))
ON_GPU: tuple[tuple[Subject, int, int | None], ...] = (
    (_one, 8, None),
    (END_TO_END, 12, 70),
    (_alike, 8, None),
    (_one, 1, None),
    (_alike, 1, None),
    (END_TO_END, 1, 70),
)
"""Model and utterances, size of the beam (1: greedy search), tokens of an utterance (None: one for each state)."""


def measure(ledger: Ledger) -> None:
    """Measure searches, each alone."""
    on_gpu = ledger.settings.device.type == "cuda"
    for subject, size, num_tokens in ON_GPU if on_gpu else ((_one, 2, 3),):
        name = f"beam {size} of {len(subject.durations_s)}, {subject.name}"
        ledger.measure(name, partial(_timed, ledger.settings, subject, size, num_tokens))


@torch.no_grad()
def _timed(settings: Settings, subject: Subject, size: int, num_tokens: int | None) -> Iterator[Row]:
    """A row of a search, from waveforms on the device to hypotheses on the host."""
    torch.manual_seed(1)
    model = subject.make().to(settings.device).eval()
    assert isinstance(model, ListenAttendSpell)
    model.speller.output.bias[Decoder.eos] = IMPROBABLE
    ratio = 1.0 if num_tokens is None else ANY_LENGTH
    search = GreedySearch(ratio, num_tokens) if size == 1 else BeamSearch(size, 1.0, 1, ratio, num_tokens)
    batch = subject.batch().to(settings.device)
    found: list[list[int]] = []

    def run() -> None:
        decoder, num_states = model.search_inputs(batch.waveforms, batch.num_samples)
        found[:] = [hypotheses[0].tokens for hypotheses in search(decoder, num_states)]

    run()  # compiles and captures
    times = timing.alternate({"": timing.Work(run)}, settings.repeats, settings.budget_s, settings.device, "searches")[
        ""
    ]
    spread, count = timing.spread(times), len(batch.ids)
    name = "greedy" if size == 1 else f"beam{size}"
    row = row_of(settings, f"{name}_{'single' if count == 1 else 'batched'}", subject, batch, "fp32")
    yield (
        row
        | spread.in_seconds()
        | {
            "suite": "decode",
            "utterances": count,
            "batch_size": count,
            "search_ms": spread.median,
            "rtf": spread.median / 1e3 / row["audio_s"],
            "audio_s_per_s": 1e3 * row["audio_s"] / spread.median,
            "utterances_per_s": 1e3 * count / spread.median,
            "tokens_per_utterance": sum(map(len, found)) / count,
        }
    )
