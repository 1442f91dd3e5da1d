"""Compare the trainings of two checkouts bit for bit: `python tests/helpers/compare_commits.py OTHER_CHECKOUT`.

Each experiment is trained with `trainer=smoke`, tiny, here and there, for 12 steps (or `--steps N`), by this Python and
on one thread. All tensors, the optimiser and the rest of the state of the last checkpoint must be equal, `origin.code`
apart, and so must the hypotheses. Other trainings (pretraining, a language model, CTC) follow the experiments.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import tiny
import tiny_words
from places import REPOSITORY

WORDS = ("an4_ctc", "hybrid")
"""Experiments that need a corpus of words."""
STAGES = "pretraining.stages=[{sub_epochs:2,width:0.5,model:{listener:{num_layers:1,time_reduction:[2]}}}]"
OTHERS = {
    "joint CTC": ["train", "loss=joint_ctc", "gradients=annealed_noise", "weight_noise=park_b"],
    "pretraining": ["train", "model.listener.num_layers=2", "model.listener.time_reduction=[2,2]", STAGES],
    "language model": ["train_lm"],
}
DICTIONARY = "YES Y EH S\nNO N OW\nGO G OW\nON AA N\nSTOP S T AA P\nIT IH T\n"
SHORT = [
    *("trainer=smoke", "trainer.validate_every=4", "trainer.batch_size=4"),
    *("trainer.num_workers=0", "trainer.threads=1", "trainer.broken_after_epochs=1000"),
    *("trainer.histograms=false", "trainer.attention_pictures=false"),
]
SMALL = [*tiny.MODEL, "search.size=2", "search.max_length=10"]
FRAMES = ["model.listener.hidden_size=8", "model.features.num_mels=8"]


def commands(root: Path, steps: int) -> dict[str, list[str]]:
    """The arguments of `las` for each training on the corpora in `root`, without its folders."""
    phones = ["corpus=timit", f"corpus.root={tiny.tree(root) / 'TIMIT'}", "corpus.partial=true"]
    words = ["corpus=an4", f"corpus.root={tiny_words.tree(root)}", "corpus.partial=true", "corpus.dev_every=2"]
    (root / "words.dic").write_text(DICTIONARY)
    names = sorted(path.stem for path in (REPOSITORY / "configs" / "experiment").glob("*.yaml"))
    names = [name for name in names if not name.startswith("librispeech5")]  # of a corpus that is not here
    length = f"trainer.max_steps={steps}"
    experiments = {
        name: [
            *("train", f"+experiment={name}", *(words if name in WORDS else phones), *SHORT, length),
            *(FRAMES if name.startswith("hybrid") else SMALL),
            *([f"lexicon={root / 'words.dic'}"] if name == "hybrid" else []),
        ]
        for name in names
    }
    return experiments | {
        name: [verb, *phones, *SHORT, length, *(SMALL if verb == "train" else []), *more]
        for name, (verb, *more) in OTHERS.items()
    }


def trained(checkout: Path, arguments: list[str], place: Path) -> dict[str, bytes | str]:
    """Train in a checkout, and read what must be equal from the last checkpoint."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "las", *arguments, f"run_dir={place}", f"data_dir={place.parent / 'data'}"]
    answer = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if answer.returncode:
        return {"error": answer.stderr}
    last = max((place / "checkpoints").glob("step-*"))
    state = json.loads((last / "state.json").read_text())
    state["origin"].pop("code")
    found: dict[str, bytes | str] = {path.name: path.read_bytes() for path in last.glob("*.safetensors")}
    found |= {path.name: path.read_bytes() for path in place.glob("hypotheses.*")}
    return found | {f"state {key}": json.dumps(value, sort_keys=True) for key, value in state.items()}


def compare(other: Path, steps: int) -> bool:
    """Print a line for each training of so many steps; return whether all are equal."""
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, arguments in commands(root, steps).items():
            here, there = (
                trained(checkout, arguments, root / side / name.replace(" ", "_"))
                for side, checkout in (("here", REPOSITORY), ("there", other))
            )
            different = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
            broken = [f"{side['error']}".strip() for side in (here, there) if "error" in side]
            verdict = "; ".join(broken) or (f"DIFFERENT: {', '.join(different)}" if different else "equal")
            print(f"{name:22} {len(here):2} parts  {verdict}", flush=True)
            equal = equal and not different and not broken
    return equal


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Compare the trainings of two checkouts bit for bit.")
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--steps", type=int, default=12, help="updates of each training")
    given = parser.parse_args()
    sys.exit(not compare(given.other.absolute(), given.steps))
