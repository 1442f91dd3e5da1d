"""Embedded corpora in TIMIT's layout, synthesised on first use with eSpeak NG from generated sentences."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from las.config.build import require
from las.data.corpora import timit
from las.data.manifest import Utterance
from las.data.synthesis import rendering, sentences, voices
from las.data.synthesis.rendering import Planned
from las.data.tokenizers import Tokenizer
from las.runtime.errors import ArgumentError

FORMAT = 1  # raise it when the same plan gives other files
LARGE = "test_large"
"""A further test part, in a tree of its own, so that the other parts keep their bytes."""


class SyntheticSpeech(timit.TIMIT):
    """TIMIT-like speech from eSpeak NG; `text` and `alignment` as in `TIMIT`. Splits share no speaker and no sentence.

    root: folder of the tree, made on first use. seed: seed of everything below. vocabulary: approximate number of
    distinct words. words: shortest and longest sentence, in words. *_utterances, *_speakers: sizes of the splits; with
    `test_large_utterances` above 0 there is a further test part in the folder `<root>_test_large`.
    accents: of eSpeak, given to speakers in turn. rate: slowest and fastest speaker, words per minute. snr_db: loudest
    and softest noise. warp: speakers' vocal tracts are shorter or longer by at most this share. workers: processes.
    Raises ArgumentError for settings that make no corpus, DataError where they do not give enough sentences.
    """

    def __init__(
        self,
        name: str,
        root: str,
        tokens: Tokenizer,
        phone_set: int = 48,
        seed: int = 1,
        vocabulary: int = 400,
        words: Sequence[int] = (4, 8),
        train_utterances: int = 1000,
        dev_utterances: int = 100,
        test_utterances: int = 100,
        train_speakers: int = 32,
        dev_speakers: int = 8,
        test_speakers: int = 8,
        test_large_utterances: int = 0,
        test_large_speakers: int = 16,
        accents: Sequence[str] = ("en-us", "en-gb-x-rp", "en-gb-scotland", "en-029"),
        rate: Sequence[int] = (150, 190),
        snr_db: Sequence[float | int] = (20.0, 40.0),
        warp: float | int = 0.05,
        workers: int = 2,
    ) -> None:
        super().__init__(name, root, tokens, partial=False, phone_set=phone_set)
        self.seed, self.vocabulary, self.warp, self.workers = seed, vocabulary, warp, workers
        self.words = _range("words", words, 1.0, 100.0)
        self.num_utterances = {"train": train_utterances, "dev": dev_utterances, "test": test_utterances}
        self.num_speakers = {"train": train_speakers, "dev": dev_speakers, "test": test_speakers}
        if test_large_utterances:
            self.splits = (*self.splits, LARGE)
            self.num_utterances[LARGE], self.num_speakers[LARGE] = test_large_utterances, test_large_speakers
        self.accents = list(accents)
        self.rate = _range("rate", rate, 80.0, 450.0)
        softest, loudest = _range("snr_db", snr_db, -20.0, 100.0)
        self.sound = rendering.RenderedSpeech(seed, (float(softest), float(loudest)))
        sentences.Grammar(vocabulary, self.words)  # raises ArgumentError for a vocabulary or lengths that do not exist
        for split, count in self.num_speakers.items():
            if not 1 <= count <= self.num_utterances[split]:
                raise ArgumentError(
                    f"{split}_speakers={count} with {split}_utterances={self.num_utterances[split]}: "
                    "a split needs a speaker, and a speaker at least one utterance"
                )
        require("warp", warp, 0, 0.3)
        require("workers", workers, 1)
        if not accents:
            raise ArgumentError("accents=[]: expected one or more")
        self.plan = self._planned()
        """Every utterance of the corpus, split by split."""
        self.large_root = self.root.with_name(f"{self.root.name}_{LARGE}")

    def settings(self) -> dict[str, Any]:
        large = {LARGE: self._synthesis[1]} if LARGE in self.splits else {}
        return super().settings() | {"synthesis": self._synthesis[0]} | large

    def prepare(self, directory: str | Path) -> dict[str, list[Utterance]]:
        """Make the tree if it is incomplete, then prepare manifests (`Corpus.prepare`)."""
        self.synthesise()
        return super().prepare(directory)

    def synthesise(self) -> None:
        """Make missing files of the trees. Raises DataError as `rendering.complete` does."""
        for root, plan, settings in zip((self.root, self.large_root), self._plans(), self._synthesis, strict=True):
            if plan:
                rendering.complete(root, plan, self.sound, settings, self.workers)

    def _planned(self) -> list[Planned]:
        utterances, speakers = self.num_utterances, self.num_speakers
        texts = iter(sentences.sentences(sum(utterances.values()), self.seed, self.vocabulary, self.words))
        cast = iter(voices.speakers(sum(speakers.values()), self.seed, self.accents, self.rate, self.warp))
        planned: list[Planned] = []
        for split in self.splits:
            group = [next(cast) for _ in range(speakers[split])]
            for index in range(utterances[split]):
                speaker = group[index % len(group)]
                path = f"{split.upper()}/DR{speaker.dialect}/{speaker.name}/SX{len(planned) + 1}"
                planned.append(Planned(path, next(texts), speaker))
        return planned

    def _plans(self) -> tuple[list[Planned], list[Planned]]:
        """Return the utterances of the tree, and those of the further test part."""
        large = self.num_utterances.get(LARGE, 0)
        return self.plan[: len(self.plan) - large], self.plan[len(self.plan) - large :]

    @functools.cached_property
    def _synthesis(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings that determine the bytes of the two trees, as plain JSON values."""
        sizes = (self.num_utterances, self.num_speakers)
        small = tuple({split: count for split, count in each.items() if split != LARGE} for each in sizes)
        return self._settings_of(self._plans()[0], *small), self._settings_of(self._plans()[1], *sizes)

    def _settings_of(
        self, utterances: list[Planned], num_utterances: dict[str, int], num_speakers: dict[str, int]
    ) -> dict[str, Any]:
        plan = json.dumps([dataclasses.astuple(planned) for planned in utterances])
        return {
            "format": FORMAT,
            "seed": self.seed,
            "vocabulary": self.vocabulary,
            "words": list(self.words),
            "num_utterances": num_utterances,
            "num_speakers": num_speakers,
            "accents": self.accents,
            "rate": list(self.rate),
            "snr_db": list(self.sound.snr_db),
            "warp": self.warp,
            "plan": hashlib.sha256(plan.encode()).hexdigest(),
        }

    @functools.cached_property
    def _recordings(self) -> dict[str, list[timit.Recording]]:
        self.synthesise()
        roots = {split: self.large_root if split == LARGE else self.root for split in self.splits}
        return {split: timit.scan(root, split) for split, root in roots.items()}


def _range(name: str, value: Sequence[Any], lowest: float, highest: float) -> tuple[Any, Any]:
    if len(value) != 2 or not lowest <= value[0] <= value[1] <= highest:
        raise ArgumentError(f"{name}={list(value)}: expected [from, to], two numbers from {lowest:g} to {highest:g}")
    return value[0], value[1]
