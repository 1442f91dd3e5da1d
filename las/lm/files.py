"""Language models from files, by what is in the file."""

from pathlib import Path

from las.errors import DataError
from las.lm import arpa, ngram, vocabulary
from las.lm.kenlm import MAGIC, KenLM
from las.lm.ngram import NGram
from las.tokens import Tokens


def load(path: str | Path, tokens: Tokens) -> NGram | KenLM:
    """The scorer of an n-gram model for these tokens: an ARPA file, gzipped or not, or a binary file of KenLM.

    Raises DataError for a file that cannot be used, and naming the symbols in which the model and the tokens differ
    (of a binary file only those that it lacks can be told); ConfigError where KenLM would be needed.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_binary = file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise DataError(f"{path}: the language model cannot be read ({error.strerror})") from error
    if not is_binary:
        return ngram.of_tokens(arpa.read(path), tokens)
    scorer = KenLM(path, vocabulary.words_of(tokens))
    vocabulary.check(scorer, tokens)
    return scorer
