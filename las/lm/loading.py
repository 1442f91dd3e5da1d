"""Language models from files, by what is in the file."""

from pathlib import Path

from las.data import tokenizers
from las.data.tokenizers import Tokens
from las.lm import arpa, lstm, ngram, vocabulary
from las.lm.kenlm import MAGIC, KenLM
from las.lm.lstm import LanguageModel
from las.lm.ngram import NGram
from las.runtime import config, progress
from las.runtime.errors import DataError, StorageError
from las.storage import bounded, checkpoint


def load(path: str | Path, tokens: Tokens, strict: bool = False) -> NGram | KenLM | LanguageModel:
    """The scorer of a language model for these tokens.

    An ARPA file, gzipped or not, a binary file of KenLM, or a folder: the run (its best checkpoint) or checkpoint of
    an LSTM model, of which `strict` refuses any other than the best. Raises DataError for a file that cannot be used,
    and naming the symbols in which the model and the tokens differ (of a binary file only those that it lacks can be
    told); ConfigError where KenLM would be needed; StorageError for a checkpoint that cannot be read.
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
    vocabulary.check(scorer, tokens)
    return scorer


def load_neural(path: Path, strict: bool = False) -> tuple[LanguageModel, Tokens]:
    """An LSTM model and the tokens it was trained on, from a run folder or a checkpoint directory."""
    found, complaints = checkpoint.find(path, strict)
    for complaint in complaints:
        progress.say(complaint)
    try:
        own = tokenizers.from_state(found.state["corpus"]["tokens"])
        maker = config.build(found.config["model"], where="model")
        if maker.func is not LanguageModel:
            raise DataError(f"{found.directory}: this is a recogniser, not a language model: las train_lm makes one")
        model: LanguageModel = maker(own.size)
        model.load_state_dict(found.model)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise StorageError(f"{found.directory}: its parts do not fit together ({error!r})") from error
    return model.eval(), own
