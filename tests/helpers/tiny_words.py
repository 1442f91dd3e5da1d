"""A tiny corpus of words in AN4's layout, one speaker for each split, with the transcripts that a test asks for."""

from collections.abc import Sequence
from pathlib import Path

from tiny import MODEL, QUICK, SHORT, sound

SPEAKERS = {"train": "faaa", "dev": "fbbb", "test": "fccc"}
TRAIN = ("YES", "NO", "GO ON", "YES NO", "STOP", "GO", "NO NO", "STOP IT")
HELD_OUT = ("YES", "GO ON")
DICTIONARY = "YES Y EH S\nNO N OW\nGO G OW\nON AA N\nON(2) AO N\nSTOP S T AA P\nIT IH T\n"
"""Pronunciations of these words."""


def tree(
    root: Path, train: Sequence[str] = TRAIN, dev: Sequence[str] = HELD_OUT, test: Sequence[str] = HELD_OUT
) -> Path:
    """Utterances called faaa_0, faaa_1, ... (training), fbbb_0, ... (development), fccc_0, ... (test); see `name`."""
    texts = {"train": train, "dev": dev, "test": test}
    for part, splits in (("train", ("train", "dev")), ("test", ("test",))):
        places, lines = [], []
        for split in splits:
            for index, text in enumerate(texts[split]):
                path = wav(root, name(split, index))
                path.parent.mkdir(parents=True, exist_ok=True)
                sound(path, 0.5 + 0.05 * (index % 8), index)
                places.append(f"{path.parent.name}/{path.stem}\n")
                lines.append(f"<s> {text} </s> ({path.stem})\n")
        etc = root / "an4" / "etc"
        etc.mkdir(parents=True, exist_ok=True)
        (etc / f"an4_{part}.fileids").write_text("".join(places))
        (etc / f"an4_{part}.transcription").write_text("".join(lines), "utf-8")
    return root


def spoken(root: Path) -> Path:
    """`tree(root)` with its pronouncing dictionary."""
    tree(root)
    (root / "an4" / "etc" / "an4.dic").write_text(DICTIONARY)
    return root


def name(split: str, index: int) -> str:
    """The id of an utterance."""
    return f"{SPEAKERS[split]}_{index}"


def wav(root: Path, utterance: str) -> Path:
    """The audio of an utterance."""
    return root / "an4" / "wav" / utterance.partition("_")[0] / f"{utterance}.wav"


def corpus(root: Path) -> list[str]:
    """The overrides that choose the corpus of `tree(root)`."""
    an4 = ["corpus=an4", f"corpus.root={root}", "corpus.partial=true", "corpus.dev_every=2"]
    return [*an4, f"data_dir={root / 'data'}"]


def overrides(root: Path, *more: str) -> list[str]:
    """The overrides of a training on `tree(root)` of four steps, validated every two, in `root/run`."""
    plain = ["model=las_small", *SHORT, "schedule=constant", "augment=none"]
    return [*corpus(root), *plain, f"run_dir={root / 'run'}", *MODEL, *QUICK, *more]


def streaming(root: Path) -> list[str]:
    """The overrides of a training of CTC alone, whose listener reads in one direction and learns to be silent."""
    given = [each for each in overrides(root) if "speller" not in each]
    learning = ["trainer.max_steps=150", "trainer.validate_every=150", "optim.lr=0.01", "model.listener.hidden_size=32"]
    plain = ["model.listener.dropout=0", "model.listener.input_noise=0", "trainer.select=dev_loss"]
    return [*given, "model=ctc_small_unidirectional", *learning, *plain]
