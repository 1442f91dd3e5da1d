"""Model cards (Mitchell et al. 2019): what a model was trained on, its errors by split and speaker, its limits."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from las.config.build import Config, build
from las.data.corpora.base import Corpus
from las.data.manifest import Utterance
from las.decoding.evaluation import decode_split
from las.decoding.transcriber import Transcriber
from las.runtime import progress
from las.runtime.errors import ConfigError
from las.scoring import error_rates
from las.scoring.error_rates import Score
from las.storage import atomic, run_records
from las.training import data_preparation

UNKNOWN = "not stated"


class Terms(NamedTuple):
    """Licence of the training data and the attribution that it asks for, in the words of who exports a model."""

    licence: str | None
    attribution: str | None


class Card(NamedTuple):
    """Facts that the card of a bundle states."""

    bundle: Path
    transcriber: Transcriber
    run: Path
    corpus: Corpus
    train: list[Utterance]
    scores: Mapping[str, Score]
    """Errors of the bundle by split."""
    terms: Terms

    def text(self) -> str:
        """Return the card in Markdown."""
        model, train = self.transcriber.model, self.train
        parameters = sum(parameter.numel() for parameter in model.parameters())
        hours = sum(each.duration_s for each in train) / 3600
        program, _, arguments = run_records.environment(self.run).get("command", UNKNOWN).partition(" ")
        command = f"{Path(program).name} {re.sub(r'=/[^ ]+', '=...', arguments)}"  # without paths of this machine
        return f"""# {self.bundle.stem}

A {type(model).__name__} with {parameters:,} parameters for `{self.corpus.name}`, speech at \
{self.transcriber.sample_rate:,} Hz; {self.bundle.stat().st_size:,} bytes.

- Use: `las transcribe checkpoint={self.bundle.name} talk.wav`
- Search: `{self.transcriber.search!r}`
- Training: `{command}`
- Data: {len(train):,} utterances, {hours:.2f} hours of {len({each.speaker for each in train}):,} speakers
- Licence of the data: {self.terms.licence or UNKNOWN}
- Attribution: {self.terms.attribution or UNKNOWN}

## Errors

{error_rates.SHORT_NAMES[self.corpus.metric]} of this file with its 95 % interval, and of the checkpoint that it was \
made of:

| split | utterances | this file | checkpoint |
|---|---|---|---|
{self._splits()}

| split | speaker | utterances | errors | rate |
|---|---|---|---|---|
{self._speakers()}

## Limits

It writes {self.transcriber.tokens.size - 1} symbols and knows no speech but that of its training data: other words,
accents, microphones, noises and languages were not measured. Anything else is transcribed as what is nearest to it,
without a warning. Confidences of words are the model's own and are not calibrated.
"""

    def _splits(self) -> str:
        before = (run_records.result(self.run) or {}).get("splits", {})
        rows = []
        for split, score in self.scores.items():
            rate = before.get(split, {}).get(self.corpus.metric)
            rows.append(
                f"| {split} | {score.total.utterances:,} | {error_rates.percent_within(score.total, score.interval)} | "
                f"{'-' if rate is None else f'{100 * rate:.1f} %'} |"
            )
        return "\n".join(rows)

    def _speakers(self) -> str:
        return "\n".join(
            f"| {split} | {name} | {rate.utterances} | {rate.errors} of {rate.words} | {100 * rate.rate:.1f} % |"
            for split, score in self.scores.items()
            for name, rate in sorted(score.speakers.items())
        )


def write(bundle: Path, transcriber: Transcriber, config: Config, run: Path, terms: Terms) -> None:
    """Decode the held-out splits of a training with a bundle, and write its card beside it.

    Args:
        bundle: the file.
        transcriber: made from it.
        config: of the training.
        run: folder of the training.
        terms: for the card.

    Raises ConfigError for a config without a corpus, as that of another bundle.
    """
    if "corpus" not in config:
        raise ConfigError("card=true: a bundle does not tell its corpus: give the run folder as checkpoint")
    corpus: Corpus = build(config["corpus"], where="corpus")
    train, *held_out = data_preparation.prepared(corpus, config["data_dir"]).items()
    scores = {}
    for split, utterances in held_out:
        with tempfile.TemporaryDirectory() as folder:
            scores[split] = decode_split(transcriber, corpus, split, utterances, Path(folder) / "hypotheses.jsonl")
        progress.say(f"{split}: {error_rates.line(scores[split], corpus.metric)}")
    path = bundle.with_suffix(".md")
    atomic.write(path, [Card(bundle, transcriber, run, corpus, train[1], scores, terms).text()])
    progress.say(f"{path}: the model card")
