"""The table of docs/layer_norm.md on the signal before the first update: `las analyze what=[reach]` of many rows.

    python docs/made_by/reach.py

Each row is built with seed 1 and measured on 16 dev utterances before its first update; it takes some minutes.
"""

import json
import tempfile
from pathlib import Path

from las.cli import analyze
from las.reproduction import jobs, markdown, recipe

ROWS = {
    "z20_controls": (
        *("z20_nopre_lstm", "z20_nopre_lstm_scaled", "z20_nopre_joined"),
        *("z20_nopre_global", "z20_nopre_global_gain01", "z20_nopre_global_cell", "z20_nopre_global_cell_gain01"),
        *("z20_nopre_lstm_7", "z20_nopre_lstm_7_scaled", "z20_nopre_lstm_8", "z20_nopre_lstm_8_scaled"),
    ),
    "z20_end_to_end": ("z20_nopre_per_gate", "z20_nopre_joined_cell", "z20_nopre_per_gate_cell"),
    "z20_depth": ("z20_nopre_joined_7", "z20_nopre_joined_8"),
    "z20_predictions": tuple(row.name for row in recipe.read("z20_predictions").rows),
}
SETTINGS = ("optim.lr=0.004", "trainer.threads=1", "trainer.max_steps=1", "trainer.validate_every=1")
HEADINGS = ["row", "sensitivity", "near", "far", "rms at the top"]


def measured(job: jobs.Job, folder: Path) -> list[str]:
    """The cells of a row."""
    own = [override for override in job.overrides if not override.startswith("run_dir=")]
    analyze.analyze(["what=[reach]", "every=1", "num_utterances=16", f"output={folder}", *own, f"run_dir={folder}/run"])
    found = json.loads((folder / "reach.jsonl").read_text("utf-8").splitlines()[0])
    shares = [f"{100 * found[name]:.0f} %" for name in ("near", "far")]
    return [job.row.label, rounded(found["sensitivity"]), *shares, rounded(found["layers"][-1]["rms"])]


def rounded(value: float) -> str:
    """Two digits."""
    return f"{float(f'{value:.2g}'):g}"


if __name__ == "__main__":
    cells = []
    with tempfile.TemporaryDirectory() as place:
        for name, rows in ROWS.items():
            given = (*SETTINGS, "trainer.attention_pictures=false", "corpus.test_large_utterances=0")
            for job in jobs.jobs(recipe.read(name), "open", 1, Path(place), given):
                if job.row.name in rows:
                    cells.append(measured(job, Path(place) / job.row.name))
    print("\n".join(markdown.table_lines(HEADINGS, cells)))
