"""Notes that the preparation of recordings described by files prints."""

import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from las.data.audio import shards
from las.data.quality import Headers
from las.data.sources import utterances
from las.data.sources.base import Entry
from las.data.tokenizers import Tokenizer, TrainedSentencePieces
from las.runtime.errors import first_of

Splits = Mapping[str, Sequence[Entry]]


def held_out(split: str, entries: Sequence[Entry], train: Sequence[Entry], reason: str, seed: int) -> str:
    """Describe what was held out of the training part; `reason` says why single utterances were, if they were."""
    share = f"{len(entries):,} of {len(train):,} utterances ({100 * len(entries) / len(train):.1f} %)"
    speakers, everybody = ({entry.speaker for entry in listed} for listed in (entries, train))
    whom = f"single utterances, because {reason}:"
    if not reason:
        counted = f"{len(speakers)} of {len(everybody)} speakers ({first_of(sorted(speakers), 5)})"
        whom = f"whole speakers: {counted},"
    return f"{split}: held out of train, {whom} {share}, corpus.seed={seed}"


def much_held_out(shares: Mapping[str, float], taken: int, total: int, by_speaker: bool) -> list[str]:
    """Warning where far more is held out than was asked for, with the options that change it."""
    asked, share = sum(shares.values()), taken / total
    if share < 0.2 or (share <= 1.5 * asked and not asked < 1 / 3 <= share):
        return []
    options = [f"corpus.{split}=... names other recordings" for split in shares]
    if "test" in shares:
        options.append("corpus.test_share=0 makes no test")
    if by_speaker:
        options.insert(0, "corpus.hold_out=utterances holds out single utterances")
    least = "whole speakers are" if by_speaker else "at least one utterance is"
    keys = " and ".join(f"corpus.{split}_share={part:g}" for split, part in shares.items())
    return [
        f"warning: held out for {' and '.join(shares)}: {100 * share:.0f} % of the train utterances, more than {keys} "
        f"ask for: {least} held out for each. {'; '.join(options)}"
    ]


def overlaps(splits: Splits) -> list[str]:
    """Return the notes about speakers and recordings that are in two splits, and recordings that are twice in one.

    Paths to one folder, as links make them, count as one.
    """
    speakers = {entry.speaker for entry in splits["train"]} - {""}
    stretches = _stretches(splits)
    notes = []
    for split, entries in splits.items():
        counts = Counter(stretches[split])
        places = list(zip((entry.id for entry in entries), stretches[split], strict=True))
        if again := [name for name, place in places if counts[place] > 1]:
            notes.append(f"{split}: recordings that are there more than once ({len(again)}): {first_of(again, 5)}")
        if split == "train":
            continue
        if both := sorted({entry.speaker for entry in entries} & speakers):
            notes.append(
                f"{split}: speakers that are in train too ({len(both)}): {first_of(both, 5)}. Its error rate does not "
                "show how other people are understood"
            )
        shared = counts.keys() & set(stretches["train"])
        if twice := [name for name, place in places if place in shared]:
            listed = f"({len(twice)}): {first_of(twice, 5)}"
            notes.append(f"{split}: recordings that are in train too {listed}. Its error rate is too good")
    return notes


def _stretches(splits: Splits) -> dict[str, list[tuple[object, ...]]]:
    """Return the recording of each entry, in the folder that links lead to, and its stretch."""
    real = functools.cache(os.path.realpath)

    def stretch(entry: Entry) -> tuple[object, ...]:
        folder = os.path.dirname(shards.file_of(entry.audio))
        return real(folder) + entry.audio[len(folder) :], entry.channel, entry.start_s, entry.duration_s

    return {split: list(map(stretch, entries)) for split, entries in splits.items()}


def rates(counts: Mapping[int, int], sample_rate: int, folder: Path) -> list[str]:
    """Note about the sample rates of the files, where they are not all the corpus's."""
    if set(counts) <= {sample_rate}:
        return []
    listed = ", ".join(f"{rate:,} Hz ({count:,})" for rate, count in sorted(counts.items()))
    others = f"Those of another rate than {sample_rate:,} Hz are resampled, into {folder}"
    return [f"sample rates (files): {listed}. {others}"]


def cut(splits: Splits, infos: Headers) -> list[str]:
    """Return the notes about utterances that end after their audio, and are cut at its end."""
    notes = []
    for split, entries in splits.items():
        known = ((entry.id, utterances.overshoot_s(entry, info)) for entry in entries if (info := infos[entry.audio]))
        if late := [name for name, overshoot_s in known if overshoot_s > utterances.TOLERANCE_S]:
            notes.append(
                f"{split}: utterances that end up to {utterances.OVERSHOOT_S:g} s after their audio, cut at its end "
                f"({len(late):,}): {first_of(late, 5)}"
            )
    return notes


def empty(splits: Splits) -> list[str]:
    """Return the notes about texts that are empty."""
    notes = []
    for split, entries in splits.items():
        if places := [entry.where for entry in entries if not entry.text]:
            fate = "left out of training" if split == "train" else "decoded, and scored as nothing said"
            notes.append(f"{split}: empty texts, {fate} ({len(places):,}): {first_of(places)}")
    return notes


def unknown_words(splits: Splits) -> list[str]:
    """Return the notes about texts with `<unk>`, which transcribers write for what they did not understand."""
    counts = {split: sum("<unk>" in entry.text for entry in entries) for split, entries in splits.items()}
    return [
        f"{split}: <unk> is in {count:,} of {len(splits[split]):,} texts, and is learned and scored like a word. To "
        "remove it: 'corpus.text.drop=[<unk>]'"
        for split, count in counts.items()
        if count
    ]


def symbols(tokens: Tokenizer, unit: str) -> list[str]:
    """Note about the symbols learned from the training texts."""
    if isinstance(tokens, TrainedSentencePieces):
        return [f"{tokens.size - 1:,} pieces of words, learned from the training texts"]
    names = list(map(repr, tokens.symbols[1:]))
    return [f"{unit} of the training texts, {len(names):,}: {' '.join(names[:60])}{' ...' if names[60:] else ''}"]
