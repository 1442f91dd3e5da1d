"""The verbs `train_lm` and `perplexity`: an LSTM language model is trained, and language models are compared.

`train_lm` uses the trainer of recognisers: a sentence is an utterance without audio, as long as it has tokens.
`perplexity` compares language models of one tokenizer on the same sentences, with the same counting.
"""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch.utils.tensorboard import SummaryWriter

from las.cli import ngram
from las.data.corpora.base import Corpus
from las.data.loader import Loader
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
from las.nn import rnn
from las.nn.losses import LabelSmoothedCrossEntropy
from las.runtime import distributed, progress
from las.runtime.config import Config, build, check_value, compose
from las.runtime.errors import DataError
from las.storage import lock, run_directory
from las.training import data_preparation, setup
from las.training.data_preparation import PreparedCorpus
from las.training.pretraining import Stage
from las.training.validation import Validation

METRIC = "perplexity"


class TextValidator:
    """Validation of a language model: its error is the perplexity per token, ends of sentences included.

    The arguments are those of `validation.Validator`; there is nothing to search and no audio to read.
    """

    def __init__(
        self,
        model: LSTMLanguageModel,
        loss: LabelSmoothedCrossEntropy,
        search: Search,
        corpus: Corpus,
        dev: list[Utterance],
        size: BatchSize,
        num_workers: int,
    ) -> None:
        self.model, self.loss, self.dev, self.size = model, loss, dev, size
        self.loader = Loader(dev, corpus.tokens, corpus.sample_rate, num_workers)

    @torch.no_grad()
    def __call__(self) -> Validation:
        self.model.eval()
        found = torch.zeros(3, dtype=torch.float64)
        plan = sequential(self.dev, self.size)[distributed.rank() :: distributed.world_size()]
        for _, batch in self.loader.batches(plan):
            batch = batch.to(self.model.device)
            sums = self.loss(self.model.predict(batch.targets), batch.targets, batch.num_tokens)
            found += torch.tensor([float(sums.cross_entropy), float(sums.correct), float(sums.tokens)])
        cross_entropy, correct, tokens = distributed.total(*found.tolist())
        loss = cross_entropy / tokens
        return Validation(loss, math.exp(min(loss, 700.0)), correct / tokens, None)

    def shown(self, found: Validation) -> str:
        """`perplexity 2.53`"""
        return f"{METRIC} {found.error:.2f}"

    def remark(self, found: Validation) -> str:
        """The accuracy of the most probable token, in words."""
        return f"{100 * found.token_accuracy:.1f} % of the dev tokens are the most probable ones"

    def pictures(
        self, board: SummaryWriter, run: run_directory.RunDirectory, step: int, histograms: bool, attention: bool
    ) -> None:
        """Write histograms of the parameters; a language model has no attention."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)


def train_lm(overrides: list[str]) -> dict[str, Any]:
    """Train a language model, then measure it on dev and test. The same command again resumes.

    Returns what result.json holds (a process that is not the main one: nothing).
    """
    config = compose("language_model", overrides)
    config["model"] = config.pop("lm")
    for key in ("text", "dev"):
        check_value(key, config[key], str | None)
    corpus: Corpus = build(config["corpus"], where="corpus")
    corpus.metric = METRIC
    built = setup.build_parts(config, corpus)
    built = built._replace(parts=built.parts._replace(validator=TextValidator))
    with (
        rnn.use_kernel(str(config["kernel"])),
        distributed.process_group(built.device) as device,
        setup.only_main_process_prints(),
    ):
        folder = run_directory.RunDirectory(config)
        if folder.result is not None:
            progress.say(f"{folder.directory} is finished: {summary(folder.result)}")
            return folder.result
        with lock.held(folder.directory) if distributed.is_main() else nullcontext():
            return _train(built, corpus, folder, device)


def _train(
    built: setup.TrainingSetup, corpus: Corpus, folder: run_directory.RunDirectory, device: torch.device
) -> dict[str, Any]:
    config, log = folder.config, folder.directory / "log.txt"
    with distributed.main_first():
        data = _of_sentences(corpus, config, built)
    data_preparation.save_vocabulary(corpus.tokens, folder.directory)
    stages = [Stage(1, 1, config, math.inf, None, "top", [])]
    (trainer,) = setup.trainers(stages, built, data.train, data, folder, device)
    convergence = trainer.fit()
    if not distributed.is_main():
        return {}
    progress.say(f"stopped at step {trainer.at.step}; best dev perplexity at step {convergence.best_step}", log)
    result: dict[str, Any] = {
        "name": config["name"],
        "corpus": corpus.name,
        "seed": config["seed"],
        "parameters": setup.num_parameters(trainer.model),
        "train_sentences": len(data.train),
        "vocabulary_hash": corpus.tokens.vocabulary_hash,
        "commit": run_directory.commit(),
        "steps": trainer.at.step,
        "steps_to_converge": convergence.best_step,
        "splits": {},
    }
    lm, own = loading.load_neural(folder.directory)
    lm = lstm.of_tokens(lm, own, corpus.tokens, str(folder.directory))
    for split in [split for split in corpus.splits[1:] if data.splits[split]]:
        found = measure(lm, [corpus.tokens.encode(sentence.text) for sentence in data.splits[split]])
        result["splits"][split] = {METRIC: found.of_all, "sentences": found.num_sentences, "symbols": found.num_symbols}
    folder.finish(result)
    progress.say(f"{folder.directory}: {summary(result)}", log)
    return result


def summary(result: dict[str, Any]) -> str:
    """`dev perplexity 2.41, test perplexity 2.47, converged at step 850`"""
    measured = (f"{split} {METRIC} {values[METRIC]:.2f}" for split, values in result["splits"].items())
    return f"{', '.join(measured)}, converged at step {result['steps_to_converge']}"


def _of_sentences(corpus: Corpus, config: Config, built: setup.TrainingSetup) -> PreparedCorpus:
    """The corpus as sentences; with `text` and `dev` those in place of its training and development parts.

    Raises DataError for a split to train or validate on that is empty.
    """
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), built.limits)
    splits = {split: sentences(data, split) for split in corpus.splits}
    for key, split in (("text", corpus.splits[0]), ("dev", corpus.splits[1])):
        if config[key] is not None:
            splits[split] = sentences_of_file(config[key], corpus.tokens)
        if not splits[split]:
            raise DataError(f"{corpus.name}: there are no sentences to learn from in {config[key] or split}")
    return data._replace(splits=splits)


def sentences(data: PreparedCorpus, split: str) -> list[Utterance]:
    """The transcripts of a split; those that are empty or that the tokens cannot spell are left out, and counted."""
    data_preparation.require_known(data, split)
    found, tokens = data.splits[split], data.corpus.tokens
    usable = [each for each in found if each.text.strip() and not tokens.unknown(each.text)]
    if left_out := len(found) - len(usable):
        progress.say(f"{split}: {left_out} of {len(found)} transcripts, empty or with unknown symbols, are left out")
    return [_sentence(each.id, each.text, tokens) for each in usable]


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
    given = config["models"]
    names = [str(name) for name in (given if isinstance(given, list) else [given])]
    check_value("text", config["text"], str | None)
    check_value("strict", config["strict"], bool)
    corpus: Corpus = build(config["corpus"], where="corpus")
    split = corpus.known_split(config["split"])
    data = data_preparation.prepare(corpus, Path(config["data_dir"]), build(config["limits"], where="limits"))
    text = config["text"]
    chosen = sentences(data, split) if text is None else sentences_of_file(text, corpus.tokens)
    ids = [corpus.tokens.encode(sentence.text) for sentence in chosen]
    found = {name: measure(_load(name, corpus.tokens, config["strict"]), ids) for name in names}
    print_table(found, config["text"] or f"{corpus.name} {split}")
    return found


def _load(name: str, tokens: Tokenizer, strict: bool) -> NGram | LSTMLanguageModel:
    lm = loading.load(name, tokens, strict)
    if isinstance(lm, KenLM):
        raise DataError(f"{name}: a binary file of KenLM tells only whole rows: give the ARPA file that it was made of")
    return lm


def print_table(found: dict[str, Perplexity], name: str) -> None:
    """One row for each model, the best last."""
    first = next(iter(found.values()))
    title = f"{name}: {first.num_sentences:,} sentences, {first.num_symbols:,} tokens and ends"
    table = Table("language model", title=title)
    table.add_column("perplexity", justify="right")
    for each in sorted(found, key=lambda each: -found[each].of_all):
        table.add_row(each, f"{found[each].of_all:.3f}")
    progress.console.print(table)
