"""AN4, CMU's census and alphanumeric recordings: the official training and test parts, in CMU's tree.

`etc/an4_train.fileids` and `etc/an4_test.fileids` list the recordings below `wav/` (wav or SPHERE), one a line;
`*.transcription` holds `<s> WORDS </s> (id)`. CMU gives no development part: whole training speakers are held out.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from las.data.corpora.base import Corpus, Recording, stamp
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.runtime.errors import ConfigError, DataError
from las.storage import text_files

_EXPECTED = {"train": (948, 74), "test": (130, 10)}
_TRANSCRIPT = re.compile(r"(?:<s>\s+)?(?P<text>.*?)\s*(?:</s>)?\s*\((?P<id>[^()\s]+)\)")
_RIGHT_TREE = """A right tree looks like this:
  an4/etc/an4_train.fileids  an4_train.transcription  an4_test.fileids  an4_test.transcription
  an4/wav/an4_clstk/fash/an251-fash-b.wav (or .sph) ...
Set corpus.root to the folder that holds etc and wav, or to the one above it"""


class AN4(Corpus):
    """Corpus AN4; `text` is words in upper case, each spelled letter a word.

    Every `dev_every`-th training speaker, in alphabetical order, is the development part and not trained on.
    `partial` accepts a copy that is not complete.
    """

    sample_rate = 16000
    metric = "wer"

    def __init__(
        self,
        name: str,
        root: str,
        tokens: Tokenizer,
        partial: bool = False,
        dev_every: int = 10,
        metric: str | None = None,
    ) -> None:
        super().__init__(name, tokens, metric)
        if dev_every < 2:
            raise ConfigError(f"corpus.dev_every={dev_every} leaves nothing to train on: it must be at least 2")
        self.root = Path(root).expanduser().absolute()
        self.partial = partial
        self.dev_every = dev_every

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"root": str(self.root), "partial": self.partial, "dev_every": self.dev_every}

    def inventory(self) -> list[str]:
        tree = find_tree(self.root)
        transcripts = [stamp(tree / "etc" / f"an4_{part}.transcription") for part in _EXPECTED]
        return [recording.id for part in _EXPECTED for recording in _listed(tree, part)] + transcripts

    def utterances(self, split: str) -> list[Utterance]:
        """List the utterances of a split. Raises DataError naming a faulty file (and line), or missing files."""
        split = self.known_split(split)
        tree = find_tree(self.root)
        part = "test" if split == "test" else "train"
        recordings = _listed(tree, part)
        if not self.partial:
            _require_all(tree, part, recordings)
        speakers = sorted({recording.speaker for recording in recordings})
        held_out = set(speakers[self.dev_every - 1 :: self.dev_every])
        if part == "train":
            if recordings and not held_out:
                raise DataError(f"{tree}: {_none_held_out(len(speakers), self.dev_every)}")
            recordings = [each for each in recordings if (each.speaker in held_out) == (split == "dev")]
        if not recordings:
            raise DataError(f"{tree}: there are no {split} utterances in this copy of AN4.\n{_RIGHT_TREE}")
        with ThreadPoolExecutor(4) as pool:
            return sorted(pool.map(Recording.utterance, recordings), key=lambda utterance: utterance.id)

    def normalise(self, text: str) -> list[str]:
        """Split a text into words in upper case."""
        return text.upper().split()

    def dictionary(self) -> Path | None:
        """CMU's dictionary of AN4's words, if this copy has it."""
        path = find_tree(self.root) / "etc" / "an4.dic"
        return path if path.is_file() else None

    def notes(self) -> list[str]:
        """Return the number of recordings of each part of a partial copy."""
        if not self.partial:
            return []
        tree = find_tree(self.root)
        counts = [f"{part}: {len(_listed(tree, part))} of {_EXPECTED[part][0]}" for part in _EXPECTED]
        return [f"{self.name}: a partial copy of AN4 in {self.root}, {', '.join(counts)} utterances"]


def find_tree(root: Path) -> Path:
    """Find the folder with etc and wav: `root` itself or `root/an4`. Raises DataError that shows the expected tree."""
    for tree in (root, root / "an4"):
        if (tree / "etc").is_dir() and (tree / "wav").is_dir():
            return tree
    raise DataError(f"{root}: no AN4 here: found no folders etc and wav in it.\n{_RIGHT_TREE}")


def _listed(tree: Path, part: str) -> list[Recording]:
    """List the recordings of `train` or `test`, in the order of the .fileids file.

    Raises DataError for a recording without a transcript or a file, and for a malformed line.
    """
    texts = _transcripts(tree / "etc" / f"an4_{part}.transcription")
    listing = tree / "etc" / f"an4_{part}.fileids"
    recordings = []
    for number, line in text_files.lines(listing):
        stem = tree / "wav" / line
        if stem.name not in texts:
            raise DataError(f"{listing}:{number}: {stem.name} has no transcript in an4_{part}.transcription")
        candidates = (stem.with_name(stem.name + extension) for extension in (".wav", ".sph", ".WAV", ".SPH"))
        audio = next(filter(Path.is_file, candidates), None)
        if audio is None:
            raise DataError(f"{listing}:{number}: {stem}.wav (or .sph) is missing. Copy it again")
        recordings.append(Recording(stem.name, stem.parent.name, str(audio), texts[stem.name]))
    return recordings


def _transcripts(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, line in text_files.lines(path):
        if (match := _TRANSCRIPT.fullmatch(line)) is None:
            raise DataError(f"{path}:{number}: {line!r} is not `<s> WORDS </s> (id)`")
        if match["id"] in texts:
            raise DataError(f"{path}:{number}: {match['id']} has a transcript above already")
        texts[match["id"]] = " ".join(match["text"].split())
    return texts


def _none_held_out(speakers: int, dev_every: int) -> str:
    if speakers < 2:
        return "this copy of AN4 has one training speaker, and none to hold out as the development part: copy another"
    return (
        f"this copy of AN4 has {speakers} training speakers, and corpus.dev_every={dev_every} holds out every "
        f"{dev_every}th: none for the development part. Hold out more: corpus.dev_every=2"
    )


def _require_all(tree: Path, part: str, recordings: list[Recording]) -> None:
    expected, speakers = _EXPECTED[part]
    num_speakers = len({recording.speaker for recording in recordings})
    if (len(recordings), num_speakers) != (expected, speakers):
        raise DataError(
            f"{tree}: this is not the whole of AN4: {part} has {len(recordings)} utterances of {num_speakers} "
            f"speakers, expected {expected} of {speakers}. Copy it again, or set corpus.partial=true to accept a sample"
        )
