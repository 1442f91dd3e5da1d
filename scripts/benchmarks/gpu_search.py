"""`make gpu`, part search: one utterance at a time and batches, of the demo's model and of that of the paper's size."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from benchmarks import timing
from benchmarks.gpu_step import row_of
from benchmarks.ledger import Ledger
from benchmarks.models import DEMO, END_TO_END, Subject
from benchmarks.records import Row
from benchmarks.settings import Settings
from las.decoding.search import BeamSearch, GreedySearch
from las.nn.model import Decoder, ListenAttendSpell
from las.runtime.precision import PRECISIONS

IMPROBABLE = -1e4
"""Logit of the end of a sentence: an untrained model may not end one, so that all utterances have as many tokens as is
allowed."""
UTTERANCE_S = 1.9
ANY_LENGTH = 1e3
"""Tokens per encoded state that limit nothing."""
_one = replace(DEMO, durations_s=torch.tensor([UTTERANCE_S]))
_alike = replace(DEMO, durations_s=torch.full((32,), UTTERANCE_S))


class Case(NamedTuple):
    """Utterances of a model and the search of them."""

    subject: Subject
    beam: int
    """Hypotheses; 1 for greedy search."""
    num_tokens: int | None
    """Tokens of every utterance; None for one for each state."""
    precision: str = "fp32"
    """Of the listener's products."""


ON_GPU = (
    *(Case(_one, 8, None), Case(END_TO_END, 12, 70, "bf16"), Case(_alike, 8, None), Case(_one, 1, None)),
    *(Case(END_TO_END, 12, 70), Case(_alike, 1, None), Case(END_TO_END, 1, 70, "bf16")),
)
"""What is measured, the newest question first."""
IN_SMALL = (Case(_one, 2, 3),)


def measure(ledger: Ledger) -> None:
    """Measure searches, each alone."""
    for case in ON_GPU if ledger.settings.device.type == "cuda" else IN_SMALL:
        name = f"beam {case.beam} of {len(case.subject.durations_s)}, {case.subject.name}, {case.precision}"
        ledger.measure(name, partial(_timed, ledger.settings, case))


@torch.no_grad()
def _timed(settings: Settings, case: Case) -> Iterator[Row]:
    """A row of a search, from waveforms on the device to hypotheses on the host."""
    subject, size, num_tokens, precision = case
    torch.manual_seed(1)
    model = subject.make().to(settings.device).eval()
    assert isinstance(model, ListenAttendSpell)
    model.operands = PRECISIONS[precision]
    model.speller.output.bias[Decoder.eos] = IMPROBABLE
    ratio = 1.0 if num_tokens is None else ANY_LENGTH
    search = GreedySearch(ratio, num_tokens) if size == 1 else BeamSearch(size, 1.0, 1, ratio, num_tokens)
    batch = subject.batch().to(settings.device)
    found: list[list[int]] = []

    def run() -> None:
        decoder, num_states = model.search_inputs(batch.waveforms, batch.num_samples)
        found[:] = [hypotheses[0].tokens for hypotheses in search(decoder, num_states)]

    run()  # compiles and captures
    works = {"": timing.Work(run)}
    times = timing.alternate(works, settings.repeats, settings.budget_s, settings.device, "searches")[""]
    spread, count = timing.spread(times), len(batch.ids)
    name = "greedy" if size == 1 else f"beam{size}"
    row = row_of(settings, f"{name}_{'single' if count == 1 else 'batched'}", subject, batch, precision)
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
