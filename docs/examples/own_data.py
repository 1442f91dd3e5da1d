"""Data of your own: a corpus that lists its recordings, prepared, read in batches, and scored."""

import tempfile
from pathlib import Path

import numpy as np
import soundfile

import las


class Words(las.Corpus):
    """A word of half a second in each file: `<root>/<split>/<speaker>_<word>.wav`."""

    metric = "wer"

    def __init__(self, root: Path) -> None:
        super().__init__("words", las.Characters("enotw"))
        self.root = root

    def utterances(self, split: str) -> list[las.Utterance]:
        paths = sorted((self.root / self.known_split(split)).glob("*.wav"))
        return [las.Utterance(p.stem, str(p), 0, 0.0, 0.5, *reversed(p.stem.split("_"))) for p in paths]

    def normalise(self, text: str) -> list[str]:
        return text.split()


with tempfile.TemporaryDirectory() as folder:
    for name in ("train/ann_one", "train/ann_two", "dev/bob_one", "test/eve_two"):
        path = Path(folder, f"{name}.wav")
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, np.random.default_rng(1).normal(size=8000) / 10, 16000)
    corpus = Words(Path(folder))
    train = corpus.prepare(Path(folder, "manifests"))["train"]
    loader = las.Loader(train, corpus.tokens, corpus.sample_rate, num_workers=0)
    ((_, batch),) = loader.batches([[0, 1]])
    rate = corpus.score("train", train, {"ann_one": "one", "ann_two": "one"}).total.rate
print(f"own data: {batch.ids} {tuple(batch.waveforms.shape)}, word error rate {100 * rate:.0f} %")
