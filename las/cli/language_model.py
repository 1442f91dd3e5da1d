"""The verbs `train_lm` and `perplexity`: an LSTM language model is trained, and language models are compared.

`train_lm` uses the trainer of recognisers: a sentence is an utterance without audio, as long as it has tokens.
`perplexity` compares language models of one tokenizer on the same sentences, with the same counting.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch.utils.tensorboard import SummaryWriter

from las.cli import ngram
from las.config.build import build, check_value, compose
from las.data.corpora.base import Corpus
from las.data.loader import Loader, Targets
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, sequential
from las.data.tokenizers import Tokenizer
from las.decoding.evaluation import Search
from las.lm import loading, lstm
from las.lm.kenlm import KenLM
from las.lm.lstm import LSTMLanguageModel
from las.lm.ngram import NGram
from las.lm.perplexity import Perplexity
from las.lm.perplexity import perplexity as measure
from las.nn.losses import LabelSmoothedCrossEntropy
from las.runtime import distributed, progress
from las.runtime.errors import DataError
from las.storage import run_directory
from las.training import chance, data_preparation, selection, setup
from las.training.chance import ChanceLevel
from las.training.data_preparation import PreparedCorpus
from las.training.pretraining import Stage
from las.training.setup import TrainingRun
from las.training.tasks.kinds import TOKENS
from las.training.tasks.tokens import Validation

METRIC = "perplexity"


class TextValidator:
    """Validation of a language model: its error is the perplexity per token, ends of sentences included.

    The arguments are those of `validation.Validator`; there is nothing to search and no audio to read.
    """

    def __init__(
        self,
        model: LSTMLanguageModel,
        search: Search,
        corpus: Corpus,
        dev: list[Utterance],
        targets: Targets,
        size: BatchSize,
        num_workers: int,
    ) -> None:
        self.model, self.dev, self.size, self.tokens = model, dev, size, corpus.tokens
        self.loader = Loader(dev, targets, corpus.sample_rate, num_workers)

    @torch.no_grad()
    def __call__(self) -> Validation:
        self.model.eval()
        totals = torch.zeros(3, dtype=torch.float64)
        plan, cross_entropy_of = distributed.share(sequential(self.dev, self.size)), LabelSmoothedCrossEntropy()
        for _, batch in self.loader.batches(plan):
            batch = batch.to(self.model.device)
            sums = cross_entropy_of(self.model(batch.targets), batch.targets, batch.num_tokens)
            totals += torch.tensor([float(sums.cross_entropy), float(sums.correct), float(sums.tokens)])
        cross_entropy, correct, tokens = distributed.total(*totals.tolist())
        loss = cross_entropy / tokens
        return Validation(loss, math.exp(min(loss, 700.0)), correct / tokens, None)

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """The scores of a model that looks at nothing before: of the frequencies of single tokens."""
        train_ids, dev_ids = ([self.tokens.encode(each.text) for each in part] for part in (train, self.dev))
        return chance.unigram(train_ids, dev_ids, self.tokens.size)

    def describe_chance(self, level: ChanceLevel) -> str:
        """A line about the chance level."""
        return (
            f"by the frequencies of single tokens: {100 * level.token_accuracy:.1f} % of the dev tokens right, dev "
            f"{METRIC} {level.error:.2f}"
        )

    def format_error(self, validation: Validation) -> str:
        """The dev error in a log line: `perplexity 2.53`."""
        return f"{METRIC} {validation.error:.2f}"

    def describe(self, validation: Validation) -> str:
        """The teacher-forced token accuracy in words."""
        return f"{100 * validation.token_accuracy:.1f} % of the dev tokens are the most probable ones"

    def log_images(
        self, board: SummaryWriter, run: run_directory.RunDirectory, step: int, histograms: bool, attention: bool
    ) -> None:
        """Write histograms of the parameters; a language model has no attention."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)


def train_lm(overrides: list[str]) -> dict[str, Any]:
    """Train a language model, then measure it on dev and test. The same command again resumes.

    Returns the content of result.json (a process that is not the main one: nothing).
    """
    config = compose("language_model", overrides)
    config["model"] = config.pop("lm")
    for key in ("text", "dev"):
        check_value(key, config[key], str | None)
    corpus: Corpus = build(config["corpus"], where="corpus")
    corpus.metric = METRIC
    parts = setup.build_parts(config, corpus, where="lm")
    parts = parts._replace(parts=parts.parts._replace(task=TOKENS._replace(validator=TextValidator)))
    stages = [Stage(1, 1, config, math.inf, None, "top", [])]
    with setup.opened(config, corpus, stages, parts) as run:
        if run.folder.result is not None:
            progress.say(f"{run.folder.directory} is finished: {summary(run.folder.result)}")
            return run.folder.result
        with run.locked():
            data = _as_sentences(run)
            data_preparation.save_vocabulary(corpus.tokens, run.folder.directory)
            result = _train(run, data)
            if not distributed.is_main():
                return {}
            result["splits"] = _measure(run, data)
            run.folder.finish(result)
            progress.say(f"{run.folder.directory}: {summary(result)}", run.log)
            return result


def _train(run: TrainingRun, data: PreparedCorpus) -> dict[str, Any]:
    """Train the model; returns the content of result.json, with no splits yet."""
    (trainer,) = setup.trainers(run, data, data.train)
    trainer.fit()
    steps, reached = trainer.state.step, selection.summary(trainer.state.validations, trainer.selection)
    best_step = reached["best_step"]
    if distributed.is_main():
        ended = f"finished after {steps} steps; best dev perplexity at step {best_step}; {trainer.ending()}"
        progress.say(ended, run.log)
    return {
        "name": run.folder.config["name"],
        "corpus": run.corpus.name,
        "seed": run.setup.seed,
        "parameters": setup.num_parameters(trainer.model),
        "train_sentences": len(data.train),
        "vocabulary_hash": run.corpus.tokens.vocabulary_hash,
        "commit": run_directory.commit(),
        "steps": steps,
        "steps_to_converge": best_step,
        "select": reached["select"],
        "splits": {},
    }


def _measure(run: TrainingRun, data: PreparedCorpus) -> dict[str, Any]:
    """Perplexity of the best checkpoint on every split with sentences but the training one."""
    tokens, splits = run.corpus.tokens, {}
    lm, lm_tokens = loading.load_neural(run.folder.directory)
    lm = lstm.of_tokens(lm, lm_tokens, tokens, str(run.folder.directory))
    for split in [split for split in run.corpus.splits[1:] if data.splits[split]]:
        measured = measure(lm, [tokens.encode(sentence.text) for sentence in data.splits[split]])
        splits[split] = {METRIC: measured.of_all, "sentences": measured.num_sentences, "symbols": measured.num_symbols}
    return splits


def summary(result: dict[str, Any]) -> str:
    """A result in one line: `dev perplexity 2.41, test perplexity 2.47, best at step 850`."""
    measured = (f"{split} {METRIC} {values[METRIC]:.2f}" for split, values in result["splits"].items())
    return f"{', '.join(measured)}, best at step {result['steps_to_converge']}"


def _as_sentences(run: TrainingRun) -> PreparedCorpus:
    """The corpus as sentences; the files `text` and `dev`, if given, replace its training and development parts.

    Raises DataError for a split to train or validate on that is empty.
    """
    corpus, config, data = run.corpus, run.folder.config, run.prepare()
    splits = {split: sentences(data, split) for split in corpus.splits}
    for key, split in (("text", corpus.splits[0]), ("dev", corpus.splits[1])):
        if config[key] is not None:
            splits[split] = sentences_of_file(config[key], corpus.tokens)
        if not splits[split]:
            raise DataError(f"{corpus.name}: there are no sentences to learn from in {config[key] or split}")
    return data._replace(splits=splits)


def sentences(data: PreparedCorpus, split: str) -> list[Utterance]:
    """The transcripts of a split; the number of empty and unspellable ones, which are left out, is printed."""
    data_preparation.require_known(data, split)
    transcripts, tokens = data.splits[split], data.corpus.tokens
    usable = [
        transcript for transcript in transcripts if transcript.text.strip() and not tokens.unknown(transcript.text)
    ]
    if left_out := len(transcripts) - len(usable):
        progress.say(
            f"{split}: {left_out} of {len(transcripts)} transcripts, empty or with unknown symbols, are left out"
        )
    return [_sentence(transcript.id, transcript.text, tokens) for transcript in usable]


def sentences_of_file(path: str, tokens: Tokenizer) -> list[Utterance]:
    """The lines of a text that are not blank. Raises DataError naming the symbols that the tokens lack."""
    numbered = list(ngram.lines(Path(path)))
    ngram.require_known(path, numbered, tokens)
    return [_sentence(f"{Path(path).name}:{number}", line, tokens) for number, line in numbered]


def _sentence(name: str, text: str, tokens: Tokenizer) -> Utterance:
    return Utterance(name, "", 0, 0.0, float(len(tokens.encode(text))), text, "")


def perplexity(overrides: list[str]) -> dict[str, Perplexity]:
    """Print each model's perplexity per token, ends of sentences included: see configs/perplexity.yaml.

    Returns them by the names that were given.
    """
    config = compose("perplexity", overrides)
    models = config["models"]
    names = [str(name) for name in (models if isinstance(models, list) else [models])]
    check_value("text", config["text"], str | None)
    check_value("strict", config["strict"], bool)
    corpus: Corpus = build(config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    text = config["text"]
    chosen = sentences(data, split) if text is None else sentences_of_file(text, corpus.tokens)
    ids = [corpus.tokens.encode(sentence.text) for sentence in chosen]
    perplexities = {name: measure(_load(name, corpus.tokens, config["strict"]), ids) for name in names}
    print_table(perplexities, config["text"] or f"{corpus.name} {split}")
    return perplexities


def _load(name: str, tokens: Tokenizer, strict: bool) -> NGram | LSTMLanguageModel:
    lm = loading.load(name, tokens, strict)
    if isinstance(lm, KenLM):
        raise DataError(f"{name}: perplexity is not available for KenLM binary files: give the ARPA file")
    return lm


def print_table(perplexities: dict[str, Perplexity], name: str) -> None:
    """Print a row for each model, the best last."""
    first = next(iter(perplexities.values()))
    title = f"{name}: {first.num_sentences:,} sentences, {first.num_symbols:,} tokens and ends"
    table = Table("language model", title=title)
    table.add_column("perplexity", justify="right")
    for model in sorted(perplexities, key=lambda model: -perplexities[model].of_all):
        table.add_row(model, f"{perplexities[model].of_all:.3f}")
    progress.console.print(table)
