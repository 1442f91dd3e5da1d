"""The signal before the first update of rows of recipes, into reach.json beside this file: `las analyze what=[reach]`.

    python docs/made_by/reach.py

Each row is built with seed 1 and measured on 16 dev utterances before its first update; it takes some minutes. The
table and the figure of docs/layer_norm.md are made of the file by docs/made_by/stored_tables.py.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from las.cli import analyze
from las.reproduction import jobs, recipe

ROWS = {
    "z20_controls": (
        *("z20_nopre_lstm", "z20_nopre_lstm_scaled", "z20_nopre_lstm_gates_scaled"),
        *("z20_nopre_lstm_gains", "z20_nopre_joined", "z20_nopre_joined_scaled", "z20_nopre_joined_gates_scaled"),
        *("z20_nopre_global", "z20_nopre_global_gain01", "z20_nopre_global_cell", "z20_nopre_global_cell_gain01"),
        *("z20_nopre_lstm_7", "z20_nopre_lstm_7_scaled", "z20_nopre_lstm_8", "z20_nopre_lstm_8_scaled"),
    ),
    "z20_end_to_end": ("z20_nopre_per_gate", "z20_nopre_joined_cell", "z20_nopre_per_gate_cell"),
    "z20_depth": ("z20_nopre_joined_7", "z20_nopre_joined_8"),
    "bo18_published": ("bo18_published_baseline", "bo18_published_listener", "bo18_published_listener_gain01"),
    "z20_predictions": tuple(row.name for row in recipe.read("z20_predictions").rows),
}
SETTINGS = ("optim.lr=0.004", "trainer.threads=1", "trainer.max_steps=1", "trainer.validate_every=1")
FILE = Path(__file__).with_suffix(".json")


def measured(job: jobs.Job, folder: Path) -> dict[str, Any]:
    """What is known of a row."""
    own = [override for override in job.overrides if not override.startswith("run_dir=")]
    analyze.analyze(["what=[reach]", "every=1", "num_utterances=16", f"output={folder}", *own, f"run_dir={folder}/run"])
    names = {"row": job.row.name, "label": job.row.label}
    if not (folder / "reach.jsonl").exists():  # the gradient overflows
        return names | {"sensitivity": None}
    found = json.loads((folder / "reach.jsonl").read_text("utf-8").splitlines()[0])
    return {
        **names,
        **{name: digits(found[name]) for name in ("sensitivity", "near", "far")},
        "rms": [digits(layer["rms"]) for layer in found["layers"]],
    }


def digits(value: float) -> float:
    """Three digits, which other processors round to as well."""
    return float(f"{value:.3g}")


if __name__ == "__main__":
    found = []
    with tempfile.TemporaryDirectory() as place:
        for name, rows in ROWS.items():
            given = (*SETTINGS, "trainer.attention_pictures=false", "corpus.test_large_utterances=0")
            for job in jobs.jobs(recipe.read(name), "open", 1, Path(place), given):
                if job.row.name in rows:
                    found.append(measured(job, Path(place) / job.row.name))
    lines = ",\n".join(json.dumps(each) for each in found)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
