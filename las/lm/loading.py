"""Loading of language models: ARPA files, KenLM binary files, and runs of LSTM models."""

from pathlib import Path

from las.config import build, tracebacks
from las.data import tokenizers
from las.data.tokenizers import Tokenizer
from las.lm import arpa, lstm, ngram, vocabulary
from las.lm.kenlm import MAGIC, KenLM
from las.lm.lstm import LSTMLanguageModel
from las.lm.ngram import NGram
from las.runtime import progress
from las.runtime.errors import DataError, StorageError
from las.storage import bounded, checkpoint


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
