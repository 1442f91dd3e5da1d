"""Makes tests/golden/<version>/: `python tests/helpers/make_golden.py`, once for each release.

Each folder is a run folder with one checkpoint in the middle of a training of the tiny corpus, an audio file, and in
expected.json the training's overrides, the text that the release decodes of that file, and the losses of the steps
that come next.
"""

import contextlib
import json
import shutil
import tempfile
from pathlib import Path

import tiny

import las
from las.cli import train
from las.decoding import transcriber

GOLDEN = Path(__file__).parents[1] / "golden"
STEP, LAST = 120, 124
SIZES = [
    "model.features.num_mels=8",
    "++model.features.normalisation=global",
    "model.listener.hidden_size=4",
    "model.listener.input_noise=0.1",
    "model.speller.hidden_size=8",
    "model.speller.embedding_size=4",
    "model.speller.attention.key_size=4",
]
OVERRIDES = [
    *("corpus=timit", "corpus.partial=true", "corpus.root=TIMIT", "run_dir=run", "data_dir=data", *tiny.QUICK, *SIZES),
    *("cell@model.listener.cell=zeineldeen2020_joined", "loss=joint_ctc", "optim.lr=0.03", "schedule=newbob"),
    *(f"trainer.max_steps={LAST}", f"trainer.validate_every={STEP}", "trainer.batch_size=4", "trainer.num_workers=0"),
    *("trainer.broken_after_epochs=1000", "trainer.allow_drift=[code,torch]"),
]
"""Of a training in the folder that holds `tiny.tree`; no path of the machine gets into the checkpoint."""


def make(version: str) -> Path:
    """The folder of a version, made by training where nobody sees it."""
    golden = GOLDEN / version
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        root = tiny.tree(Path(place))
        train.train(OVERRIDES)
        name = f"step-{STEP:08d}"
        (golden / "checkpoints").mkdir(parents=True)
        shutil.copytree(f"run/checkpoints/{name}", golden / "checkpoints" / name)
        for pointer in ("best", "latest"):
            (golden / "checkpoints" / pointer).write_text(f"{name}\n")
        for kept in ("config.json", "symbols.json"):
            shutil.copy(f"run/{kept}", golden)
        shutil.copy(tiny.wav(root, "mdab0_sx0"), golden / "audio.wav")
        found = transcriber.load(golden).transcribe(golden / "audio.wav")
        losses = {line["step"]: line["loss"] for line in tiny.steps(Path("run")) if line["event"] == "train"}
    later = {str(step): losses[step] for step in range(STEP + 1, LAST + 1)}
    expected = {"overrides": OVERRIDES, "text": found.text, "score": found.score, "losses": later}
    (golden / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
    return golden


if __name__ == "__main__":
    print(make(las.__version__))
