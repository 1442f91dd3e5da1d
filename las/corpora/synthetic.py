"""The embedded corpora: TIMIT's layout, synthesised on first use with eSpeak NG from sentences of our own.

Everything is a function of the settings: each utterance has random numbers of its own, so that neither the order nor
the number of workers changes a byte (on one platform). Every file is written in one piece; a tree that lacks some, as
after a kill, is completed.
"""

import dataclasses
import fcntl
import functools
import hashlib
import io
import json
import os
import wave
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from las.corpora import espeak_phones, sentences, timit, voices
from las.corpora.espeak import Espeak
from las.errors import DataError
from las.manifest import Utterance
from las.progress import console
from las.tokens import Tokens

FORMAT = 1  # raise it when the same plan begins to mean other files
EXTENSIONS = ("WAV", "PHN", "WRD", "TXT")
RECORD = "corpus.json"
QUESTIONS = ("does", "why")
LICENCE = "speech synthesis: eSpeak NG (GPL-3.0-or-later), in a process of its own"


@dataclasses.dataclass(frozen=True)
class Planned:
    """An utterance to be made: who says what, and the path of its files without extension, from the root."""

    path: str
    sentence: str
    speaker: voices.Speaker


class Synthetic(timit.Timit):
    """TIMIT-like speech from eSpeak NG; `text` and `alignment` as of `Timit`. Splits share no speaker and no sentence.

    root: where the tree is, or will be made on first use. seed: of everything below. vocabulary: about how many words
    the sentences use. words: shortest and longest sentence, in words. *_utterances, *_speakers: sizes of the splits.
    accents: of eSpeak, given to speakers in turn. rate: slowest and fastest speaker, words per minute. snr_db: loudest
    and softest noise. warp: speakers' vocal tracts are shorter or longer by at most this share. workers: processes.
    """

    def __init__(
        self,
        name: str,
        root: str,
        tokens: Tokens,
        phone_set: int = 48,
        seed: int = 1,
        vocabulary: int = 400,
        words: tuple[int, int] | list[int] = (4, 7),
        train_utterances: int = 960,
        dev_utterances: int = 100,
        test_utterances: int = 100,
        train_speakers: int = 32,
        dev_speakers: int = 8,
        test_speakers: int = 8,
        accents: tuple[str, ...] | list[str] = ("en-us",),
        rate: tuple[int, int] | list[int] = (150, 190),
        snr_db: tuple[float, float] | list[float] = (20.0, 40.0),
        warp: float = 0.05,
        workers: int = 2,
    ) -> None:
        super().__init__(name, root, tokens, partial=False, phone_set=phone_set)
        self.seed = seed
        self.vocabulary = vocabulary
        self.words = (words[0], words[1])
        self.num_utterances = {"train": train_utterances, "dev": dev_utterances, "test": test_utterances}
        self.num_speakers = {"train": train_speakers, "dev": dev_speakers, "test": test_speakers}
        self.accents = list(accents)
        self.rate = (rate[0], rate[1])
        self.snr_db = (float(snr_db[0]), float(snr_db[1]))
        self.warp = warp
        self.workers = workers

    def settings(self) -> dict[str, Any]:
        return super().settings() | self._synthesis

    def prepare(self, directory: str | Path) -> dict[str, list[Utterance]]:
        """As `Corpus.prepare`, after the tree has been made where it is absent or not complete."""
        self.synthesise()
        return super().prepare(directory)

    @functools.cached_property
    def plan(self) -> list[Planned]:
        """Every utterance of the corpus, split by split."""
        utterances, speakers = self.num_utterances, self.num_speakers
        said = iter(sentences.sentences(sum(utterances.values()), self.seed, self.vocabulary, self.words))
        cast = iter(voices.speakers(sum(speakers.values()), self.seed, self.accents, self.rate, self.warp))
        planned: list[Planned] = []
        for split in self.splits:
            group = [next(cast) for _ in range(speakers[split])]
            for index in range(utterances[split]):
                speaker = group[index % len(group)]
                path = f"{split.upper()}/DR{speaker.dialect}/{speaker.name}/SX{len(planned) + 1}"
                planned.append(Planned(path, next(said), speaker))
        return planned

    @functools.cached_property
    def _synthesis(self) -> dict[str, Any]:
        """All that decides the bytes of the tree, as plain JSON values."""
        plan = json.dumps([dataclasses.astuple(planned) for planned in self.plan])
        return {
            "format": FORMAT,
            "seed": self.seed,
            "vocabulary": self.vocabulary,
            "words": list(self.words),
            "num_utterances": self.num_utterances,
            "num_speakers": self.num_speakers,
            "accents": self.accents,
            "rate": list(self.rate),
            "snr_db": list(self.snr_db),
            "warp": self.warp,
            "plan": hashlib.sha256(plan.encode()).hexdigest(),
        }

    @functools.cached_property
    def _recordings(self) -> dict[str, list[timit.Recording]]:
        self.synthesise()
        return {split: timit.scan(self.root, split) for split in self.splits}

    def synthesise(self) -> None:
        """Make what the tree lacks; does nothing when it is complete.

        Raises DataError when the root holds something else, or eSpeak NG is missing and needed.
        """
        _require_own(self.root, self._synthesis)
        if _is_complete(self.root, self.plan):
            return
        with _alone(self.root):
            record = _require_own(self.root, self._synthesis)
            lacking = [planned for planned in self.plan if not _is_there(self.root, planned)]
            with Espeak() as espeak:
                version = espeak.version
            if record.get("espeak", version) != version:
                raise DataError(
                    f"{self.root}: made with eSpeak NG {record['espeak']}, now {version} is installed: the files it lacks "
                    "would sound different. Remove the folder, or set another corpus.root"
                )
            record = {"settings": self._synthesis, "espeak": version}
            _write(self.root / RECORD, (json.dumps(record, indent=1) + "\n").encode())
            console.print(f"{LICENCE}, version {version}")
            self._make(lacking)
            hashes = {planned.path: _file_hash(self.root, planned) for planned in self.plan}
            record["sha256"] = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()
            _write(self.root / RECORD, (json.dumps(record | {"utterances": hashes}, indent=1) + "\n").encode())

    def _make(self, lacking: list[Planned]) -> None:
        """Synthesise and write `lacking`, each worker with a helper process of its own."""
        waiting = deque(lacking)

        def work(advance: Callable[[], None]) -> None:
            try:
                with Espeak() as espeak:
                    while waiting:
                        make(espeak, waiting.popleft(), self.root, self.seed, self.snr_db)
                        advance()
            except IndexError:  # another worker took the last one
                return
            except BaseException:
                waiting.clear()
                raise

        with (
            _progress(f"{self.name}: synthesising", len(lacking)) as advance,
            ThreadPoolExecutor(self.workers) as pool,
        ):
            for done in [pool.submit(work, advance) for _ in range(self.workers)]:
                done.result()


def make(espeak: Espeak, planned: Planned, root: Path, seed: int, snr_db: tuple[float, float]) -> None:
    """Synthesise one utterance and write its .WAV, .PHN, .WRD and .TXT: the same bytes whenever it is called.

    Raises DataError, naming the utterance, for phones without a TIMIT label.
    """
    own_seed = int.from_bytes(hashlib.sha256(f"{seed} {planned.path}".encode()).digest()[:8])
    speaker, words = planned.speaker, planned.sentence.split()
    voice = f"{speaker.accent}+{speaker.variant}"
    speech = espeak.say(
        planned.sentence, voice, speaker.rate, speaker.pitch, speaker.pitch_range, own_seed & 0x7FFFFFFF
    )
    rendered = voices.render(speech, speaker, snr_db, np.random.default_rng(own_seed))
    try:
        labels = espeak_phones.label(speech.phones, rendered.scale, rendered.offset, rendered.clean, speaker.accent)
    except DataError as error:
        raise DataError(f"{planned.path} ({planned.sentence!r}): {error}") from error
    riff = io.BytesIO()
    with wave.open(riff, "wb") as file:
        file.setparams((1, 2, voices.SAMPLE_RATE, len(rendered.pcm), "NONE", ""))
        file.writeframes(rendered.pcm.tobytes())
    spans = [(each.start, each.end, each.symbol) for each in labels]
    closing = "?" if words[0] in QUESTIONS else "."
    text = (0, len(rendered.pcm), planned.sentence.capitalize() + closing)
    contents = [riff.getvalue(), _lines(spans), _lines(word_spans(words, labels)), _lines([text])]
    folder = root / Path(planned.path).parent
    folder.mkdir(parents=True, exist_ok=True)
    for extension, content in zip(EXTENSIONS, contents, strict=True):
        _write(root / f"{planned.path}.{extension}", content)


def word_spans(words: list[str], labels: list[espeak_phones.Label]) -> list[tuple[int, int, str]]:
    """First sample, the one after the last, word: from the text positions of the phones.

    Words that eSpeak says as one share its time in equal parts.
    """
    spans: list[tuple[int, int, str]] = []
    position, together, said = 1, list[str](), list[espeak_phones.Label]()
    for word in [*words, ""]:
        starting = [each for each in labels if position <= each.text_position < position + len(word)]
        if together and (starting or not word):
            start, length = said[0].start, said[-1].end - said[0].start
            edges = [start + round(length * share / len(together)) for share in range(len(together) + 1)]
            spans += zip(edges, edges[1:], together, strict=False)
            together = []
        said = starting or said
        together.append(word)
        position += len(word) + 1
    return spans


def _lines(rows: list[tuple[int, int, str]]) -> bytes:
    return "".join(f"{start} {end} {symbol}\n" for start, end, symbol in rows).encode("ascii")


def _write(path: Path, content: bytes) -> None:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _is_there(root: Path, planned: Planned) -> bool:
    return all((root / f"{planned.path}.{extension}").is_file() for extension in EXTENSIONS)


def _file_hash(root: Path, planned: Planned) -> str:
    digest = hashlib.sha256()
    for extension in EXTENSIONS:
        digest.update((root / f"{planned.path}.{extension}").read_bytes())
    return digest.hexdigest()


def _read_record(root: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((root / RECORD).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{root / RECORD}: cannot read it ({error}). Remove {root} and run the command again"
        ) from error
    return record


def _require_own(root: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The record in `root`, empty where there is no corpus yet. Raises DataError when it holds something else."""
    record = _read_record(root)
    if record:
        theirs = record.get("settings", {})
        differing = [key for key, value in settings.items() if theirs.get(key) != value]
        if differing:
            other = root.with_name(f"{root.name}_{settings['plan'][:8]}")
            raise DataError(
                f"{root}: holds a corpus made with other settings (different: {', '.join(differing)}). "
                f"Choose another folder: corpus.root={other}"
            )
    elif root.exists() and (not root.is_dir() or any(path.name != ".lock" for path in root.iterdir())):
        raise DataError(f"{root}: is not empty and holds no {RECORD}. Choose another folder with corpus.root=...")
    return record


def _is_complete(root: Path, plan: list[Planned]) -> bool:
    return "utterances" in _read_record(root) and all(_is_there(root, planned) for planned in plan)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Only one process at a time makes a corpus; the lock goes with the process that holds it."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _progress(title: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal, a line for every quarter elsewhere; yields what to call after each utterance."""
    if console.is_terminal:
        with Progress(console=console) as bar:
            task = bar.add_task(title, total=total)
            yield lambda: bar.advance(task)
    else:
        done: list[None] = []

        def advance() -> None:
            done.append(None)
            if len(done) % max(1, total // 4) == 0:
                console.print(f"{title} {len(done)}/{total}")

        yield advance
