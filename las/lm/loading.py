"""Loading of language models: ARPA files, KenLM binary files, and runs of LSTM models.

Only KenLM (an optional extra) reads its binary files. Its Python module gives one log-probability per call, so a row
costs as many calls as there are symbols; rows are cached. For ARPA files `NGram` is faster, and gives the same scores.
"""

import importlib
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from las.config import build, tracebacks
from las.data import tokenizers
from las.data.tokenizers import Tokenizer
from las.lm import arpa, lstm, ngram, vocabulary
from las.lm.arpa import END
from las.lm.lstm import LSTMLanguageModel
from las.lm.ngram import NGram
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, StorageError
from las.storage import bounded, checkpoint

MAGIC = b"mmap lm "
"""The first bytes of a KenLM binary file."""


class KenLM:
    """Log-probabilities (natural) of a model in a file of KenLM, binary or ARPA.

    `symbols` are words in the order of the ids of the search; `words` are those of them that the model knows. States
    are indices of KenLM's own states, [batch, beam], which live as long as the scorer; `num_rows` rows are cached.
    Raises ConfigError where KenLM is not installed, DataError for a file that it cannot read.
    """

    def __init__(self, path: str | Path, symbols: Sequence[str], num_rows: int = 1 << 14) -> None:
        try:
            kenlm: Any = importlib.import_module("kenlm")
        except ImportError as error:
            raise ConfigError(
                f"{path}: KenLM is not installed, and its binary files need it: pip install kenlm. Or give the ARPA "
                "file that it was made from, which needs nothing"
            ) from error
        options = kenlm.Config()
        options.show_progress, options.arpa_complain = False, kenlm.ARPALoadComplain.NONE
        try:
            self._model = kenlm.Model(str(path), options)
        except OSError as error:
            raise DataError(str(error)) from error
        self.name = str(path)
        self.symbols = tuple(symbols)
        self.order: int = self._model.order
        self._make_state = kenlm.State
        self._states: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._row = lru_cache(num_rows)(self._score)

    @property
    def words(self) -> list[str]:
        """The symbols that the model knows; KenLM does not list its other words."""
        return [symbol for symbol in self.symbols if symbol in self._model]

    @property
    def log10_end(self) -> float:
        state = self._make_state()
        self._model.NullContextWrite(state)
        return self._model.BaseScore(state, END, self._make_state())

    def start(self, batch: int, device: torch.device | str = "cpu") -> Int[Tensor, "batch 1"]:
        state = self._make_state()
        self._model.BeginSentenceWrite(state)
        return torch.full((batch, 1), self._number(state), device=device)

    def score(self, state: Int[Tensor, "batch beam"]) -> Float[Tensor, "batch beam symbols"]:
        rows = torch.stack([self._row(number) for number in state.flatten().tolist()])
        return rows.view(*state.shape, -1).to(state.device)

    def advance(self, state: Int[Tensor, "batch beam"], tokens: Int[Tensor, "batch beam"]) -> Int[Tensor, "batch beam"]:
        numbers = []
        for number, token in zip(state.flatten().tolist(), tokens.flatten().tolist(), strict=True):
            after = self._make_state()
            self._model.BaseScore(self._states[number], self.symbols[token], after)
            numbers.append(self._number(after))
        return torch.tensor(numbers, device=state.device).view(state.shape)

    def _number(self, state: Any) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _score(self, number: int) -> Float[Tensor, " symbols"]:
        state, after = self._states[number], self._make_state()
        row = [self._model.BaseScore(state, symbol, after) for symbol in self.symbols]
        return torch.tensor(row) * math.log(10)


def load(path: str | Path, tokens: Tokenizer, strict: bool = False) -> NGram | KenLM | LSTMLanguageModel:
    """Load a language model as a scorer of these tokens.

    `path` is an ARPA file, gzipped or not, a KenLM binary file, or a folder: the run (its best checkpoint) or a
    checkpoint of an LSTM model; `strict` refuses any other checkpoint than the best. Raises DataError for a file that
    cannot be used, and naming the symbols in which the model and the tokens differ (for a binary file only those that
    it lacks); ConfigError if KenLM is needed and missing; StorageError for a checkpoint that cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        model, own = load_neural(path, strict)
        return lstm.of_tokens(model, own, tokens, str(path))
    try:
        with bounded.open_file(path, bounded.LANGUAGE_MODEL) as file:
            is_binary = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise DataError(f"{path}: the language model cannot be read ({error.strerror})") from error
    if not is_binary:
        return ngram.of_tokens(arpa.read(path), tokens)
    scorer = KenLM(path, vocabulary.words_of(tokens))
    vocabulary.check(scorer.words, scorer.log10_end, scorer.name, tokens)
    return scorer


def load_neural(path: Path, strict: bool = False) -> tuple[LSTMLanguageModel, Tokenizer]:
    """Load an LSTM model and the tokenizer it was trained with from a run folder or a checkpoint directory."""
    stored, complaints = checkpoint.find(path, strict)
    for complaint in complaints:
        progress.say(complaint)
    try:
        own = tokenizers.from_state(stored.state["corpus"]["tokens"], stored.config)
        factory = build.build(stored.config["model"], where="model")
        if factory.func is not LSTMLanguageModel:
            raise DataError(f"{stored.directory}: this is a recogniser, not a language model: las train_lm makes one")
        model: LSTMLanguageModel = factory(own.size)
        model.load_state_dict(stored.model)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        if tracebacks.is_own(error):
            raise
        raise StorageError(f"{stored.directory}: its parts do not fit together ({error!r})") from error
    return model.eval(), own
