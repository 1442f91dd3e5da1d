"""The verb `train_lm`: an LSTM language model of transcripts or of a text, by the trainer of recognisers.

A sentence is an utterance without audio, as long as it has tokens.
"""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from las import arguments, assembly, build, distributed, language_models, lock, preparation, progress, recurrent, run
from las.batches import Loader
from las.corpora.base import Corpus
from las.errors import DataError
from las.evaluation import Search
from las.lm import files, neural
from las.lm.neural import LanguageModel
from las.lm.perplexity import perplexity
from las.loss import LabelSmoothedCrossEntropy
from las.manifest import Utterance
from las.order import Size, sequential
from las.preparation import Data
from las.pretraining import Stage
from las.tokens import Tokens
from las.validation import Validation

METRIC = "perplexity"


class TextValidator:
    """Validates a language model: its error is the perplexity, of every token and every end of a sentence.

    The arguments are those of `validation.Validator`; there is nothing to search and no audio to read.
    """

    def __init__(
        self,
        model: LanguageModel,
        loss: LabelSmoothedCrossEntropy,
        search: Search,
        corpus: Corpus,
        dev: list[Utterance],
        size: Size,
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
        """How often the most probable token is the true one."""
        return f"{100 * found.token_accuracy:.1f} % of the dev tokens are the most probable ones"

    def pictures(self, board: SummaryWriter, run: run.Run, step: int, histograms: bool, attention: bool) -> None:
        """Histograms of the parameters; nothing attends."""
        if histograms:
            for name, parameter in self.model.named_parameters():
                board.add_histogram(name, parameter.detach().cpu(), step)


def train_lm(overrides: list[str]) -> dict[str, Any]:
    """Train a language model, then measure it on dev and test. The same command again resumes.

    Returns what result.json holds (a process that is not the main one: nothing).
    """
    config = build.compose("language_model", overrides)
    config["model"] = config.pop("lm")
    for key in ("text", "dev"):
        arguments.check_value(key, config[key], str | None)
    corpus: Corpus = build.build(config["corpus"], where="corpus")
    corpus.metric = METRIC
    built = assembly.build_parts(config, corpus)
    built = built._replace(parts=built.parts._replace(validator=TextValidator))
    with recurrent.using(str(config["kernel"])), distributed.together(built.device) as device, assembly.one_speaks():
        folder = run.Run(config)
        if folder.result is not None:
            progress.say(f"{folder.directory} is finished: {summary(folder.result)}")
            return folder.result
        with lock.held(folder.directory) if distributed.is_main() else nullcontext():
            return _train(built, corpus, folder, device)


def _train(built: assembly.Built, corpus: Corpus, folder: run.Run, device: torch.device) -> dict[str, Any]:
    config, log = folder.config, folder.directory / "log.txt"
    with distributed.main_first():
        data = _of_sentences(corpus, config, built)
    preparation.keep_symbols(corpus.tokens, folder.directory)
    stages = [Stage(1, 1, config, math.inf, None, "top", [])]
    (trainer,) = assembly.trainers(stages, built, data.train, data, folder, device)
    convergence = trainer.fit()
    if not distributed.is_main():
        return {}
    progress.say(f"stopped at step {trainer.at.step}; best dev perplexity at step {convergence.best_step}", log)
    result: dict[str, Any] = {
        "name": config["name"],
        "corpus": corpus.name,
        "seed": config["seed"],
        "parameters": assembly.num_parameters(trainer.model),
        "train_sentences": len(data.train),
        "vocabulary_hash": corpus.tokens.vocabulary_hash,
        "commit": run.commit(),
        "steps": trainer.at.step,
        "steps_to_converge": convergence.best_step,
        "splits": {},
    }
    lm, own = files.load_neural(folder.directory)
    lm = neural.of_tokens(lm, own, corpus.tokens, str(folder.directory))
    for split in [split for split in corpus.splits[1:] if data.splits[split]]:
        found = perplexity(lm, [corpus.tokens.encode(sentence.text) for sentence in data.splits[split]])
        result["splits"][split] = {METRIC: found.of_all, "sentences": found.num_sentences, "symbols": found.num_symbols}
    folder.finish(result)
    progress.say(f"{folder.directory}: {summary(result)}", log)
    return result


def summary(result: dict[str, Any]) -> str:
    """`dev perplexity 2.41, test perplexity 2.47, converged at step 850`"""
    measured = (f"{split} {METRIC} {values[METRIC]:.2f}" for split, values in result["splits"].items())
    return f"{', '.join(measured)}, converged at step {result['steps_to_converge']}"


def _of_sentences(corpus: Corpus, config: build.Config, built: assembly.Built) -> Data:
    """The corpus as sentences; with `text` and `dev` those in place of its training and development parts.

    Raises DataError for a split to train or validate on that is empty.
    """
    data = preparation.prepare(corpus, Path(config["data_dir"]), built.limits)
    splits = {split: sentences(data, split) for split in corpus.splits}
    for key, split in (("text", corpus.splits[0]), ("dev", corpus.splits[1])):
        if config[key] is not None:
            splits[split] = sentences_of_file(config[key], corpus.tokens)
        if not splits[split]:
            raise DataError(f"{corpus.name}: there are no sentences to learn from in {config[key] or split}")
    return data._replace(splits=splits)


def sentences(data: Data, split: str) -> list[Utterance]:
    """The transcripts of a split; those that are empty or that the tokens cannot spell are left out, and counted."""
    preparation.require_known(data, split)
    found, tokens = data.splits[split], data.corpus.tokens
    usable = [each for each in found if each.text.strip() and not tokens.unknown(each.text)]
    if left_out := len(found) - len(usable):
        progress.say(f"{split}: {left_out} of {len(found)} transcripts, empty or with unknown symbols, are left out")
    return [_sentence(each.id, each.text, tokens) for each in usable]


def sentences_of_file(path: str, tokens: Tokens) -> list[Utterance]:
    """The lines of a text that are not blank. Raises DataError naming the symbols that the tokens lack."""
    numbered = list(language_models.lines(Path(path)))
    language_models.require_known(path, numbered, tokens)
    return [_sentence(f"{Path(path).name}:{number}", line, tokens) for number, line in numbered]


def _sentence(name: str, text: str, tokens: Tokens) -> Utterance:
    return Utterance(name, "", 0, 0.0, float(len(tokens.encode(text))), text, "")
