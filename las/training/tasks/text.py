"""Training of language models: sentences of a corpus or of a text file, and their perplexity.

A sentence is an utterance without audio, as long as it has tokens.
"""

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from las.config.build import Config, check_value
from las.data import quality
from las.data.augmentation.augmentation import Augmentation
from las.data.corpora.base import Corpus
from las.data.loader import Batch
from las.data.manifest import Utterance
from las.data.quality import QualityLimits
from las.data.tokenizers import Tokenizer
from las.lm import arpa
from las.lm.lstm import Prediction
from las.nn.losses import LabelSmoothedCrossEntropy
from las.runtime import progress
from las.runtime.errors import DataError
from las.storage import bounded
from las.training import chance, data_preparation
from las.training.chance import ChanceLevel
from las.training.data_preparation import PreparedCorpus
from las.training.tasks.base import Measured, Task, Validator

METRIC = "perplexity"


class TextValidator(Validator):
    """Validates a language model: its error is the perplexity per token, ends of sentences included."""

    metric = METRIC
    error_name = f"dev {METRIC}"

    def measure_batch(self, batch: Batch) -> Measured:
        output = Prediction(self.model(batch.targets))
        sums = LabelSmoothedCrossEntropy()(output.logits, batch.targets, batch.num_tokens)
        objective = self.objective(output, batch)
        return Measured(float(sums.cross_entropy), int(sums.correct), int(sums.tokens), objective)

    def error(self, loss: float, texts: Mapping[str, str]) -> float:
        return math.exp(min(loss, 700.0))

    def chance_level(self, train: Sequence[Utterance]) -> ChanceLevel:
        """Compute the scores of a model that knows only how frequent each token is."""
        tokens = self.corpus.tokens
        train_ids, dev_ids = ([tokens.encode(each.text) for each in part] for part in (train, self.dev))
        return chance.unigram(train_ids, dev_ids, tokens.size)

    def describe_chance(self, level: ChanceLevel) -> str:
        return (
            f"chance level: {100 * level.token_accuracy:.1f} % of the dev tokens right by the frequencies of single "
            f"tokens, dev {self.format_error(level.error)}"
        )

    def format_error(self, error: float) -> str:
        return f"{METRIC} {error:.2f}"


class TextTask(Task):
    """Targets are the tokens of sentences without audio."""

    validator = TextValidator

    def check(self, augment: Augmentation, config: Config) -> None:
        """Raise ConfigError for texts that are no paths."""
        for key in ("text", "dev"):
            check_value(key, config[key], str | None)

    def prepare(self, corpus: Corpus, config: Config, limits: QualityLimits) -> PreparedCorpus:
        """Prepare the corpus as sentences; the files `text` and `dev`, if given, replace its training and dev parts.

        Raises DataError for a split to train or validate on that is empty.
        """
        data = super().prepare(corpus, config, limits)
        splits = {split: sentences(data, split) for split in corpus.splits}
        for key, split in (("text", corpus.splits[0]), ("dev", corpus.splits[1])):
            if config[key] is not None:
                splits[split] = sentences_of_file(config[key], corpus.tokens)
            if not splits[split]:
                raise DataError(f"{corpus.name}: there are no sentences to learn from in {config[key] or split}")
        return data._replace(splits=splits)

    def usable(self, data: PreparedCorpus, model: Any, run: Path, max_bad_fraction: float) -> list[Utterance]:
        return data.train

    def bind(self, *given: Any) -> None:
        """Do nothing: nothing is searched for."""


def sentences(data: PreparedCorpus, split: str) -> list[Utterance]:
    """Return the transcripts of a split as sentences."""
    tokens = data.corpus.tokens
    return [_sentence(each.id, each.text, tokens) for each in transcripts(data, split, tokens)]


def transcripts(data: PreparedCorpus, split: str, tokens: Tokenizer | None) -> list[Utterance]:
    """Return the utterances of a split with a transcript; without `tokens`, whatever its symbols.

    The number of empty and unspellable ones, which are left out, is printed.
    """
    if tokens:
        data_preparation.require_known(data, split)
    utterances = data.splits[split]
    usable = [each for each in utterances if each.text.strip() and not (tokens and tokens.unknown(each.text))]
    if left_out := len(utterances) - len(usable):
        progress.say(
            f"{split}: {left_out} of {len(utterances)} transcripts, empty or with unknown symbols, are left out"
        )
    return usable


def sentences_of_file(path: str, tokens: Tokenizer) -> list[Utterance]:
    """Read the lines of a text that are not blank. Raises DataError naming the symbols that the tokens lack."""
    numbered = list(lines(Path(path)))
    require_known(path, numbered, tokens)
    return [_sentence(f"{Path(path).name}:{number}", line, tokens) for number, line in numbered]


def _sentence(name: str, text: str, tokens: Tokenizer) -> Utterance:
    return Utterance(name, "", 0, 0.0, float(len(tokens.encode(text))), text, "")


def require_known(path: str, numbered: Sequence[tuple[int, str]], tokens: Tokenizer, hint: str = "") -> None:
    """Raise DataError with the symbols of a text's lines that the tokens lack: their counts, lines, and a remedy."""
    lines_by_symbol: dict[str, list[str]] = {}
    for number, line in numbered:
        for symbol in tokens.unknown(line):
            lines_by_symbol.setdefault(symbol, []).append(f"line {number}")
    if lines_by_symbol:
        unknown = quality.Unknown(sum(len(tokens.split(line)) for _, line in numbered), lines_by_symbol)
        says = f"{path}: the tokens lack {unknown}. {tokens.remedy(lines_by_symbol)}"
        raise DataError(f"{says}.{hint}" if hint else says, "unknown symbols")


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text, gzipped or not, without those that are blank."""
    number = 0
    try:
        with bounded.open_file(path, bounded.LANGUAGE_MODEL) as file:
            packed = file.peek(2)[:2] == arpa.GZIP
            with gzip.open(file) if packed else file as lines:
                for number, line in enumerate(lines, start=1):
                    if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip():
                        yield number, text
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 text. Convert it: iconv -f latin1 -t utf-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: the gzip file is damaged ({error}). Copy it again") from error
    except OSError as error:
        raise DataError(f"{path}: the text cannot be read ({bounded.reason(error)})") from error
