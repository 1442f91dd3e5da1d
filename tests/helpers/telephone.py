"""Tiny trees of telephone calls written by hand: what is in them is what a test says, and they take no time."""

from pathlib import Path

import numpy as np
import soundfile

Lines = list[tuple[float, float, str]]
"""Begin, end and text of the segments of one side."""

GLM = """;; Mapping rules for trees of tests: a few rules of every kind that NIST's files have
;;
* name "las_generated.glm"
* desc "mapping rules for Hub5 trees of tests"
* format = 'NIST1'
* max_nrules = '50'
* copy_no_hit = 'T'
* case_sensitive = 'F'
;; hesitations
UH => %HESITATION / [ ] __ [ ] ;; optional in the reference
UM => %HESITATION / [ ] __ [ ]
;; answers
UHHUH => %BCACK / [ ] __ [ ]
UH-HUH => %BCACK / [ ] __ [ ]
;; contractions
[I'VE] => [{I'VE / I HAVE}] / [ ] __ [ ]
[ISN'T] => [IS NOT] / [ ] __ [ ]
;; compounds
TEAPOT => TEA POT / [ ] __ [ ]
"""


def call(path: Path, seconds: float = 20.0) -> Path:
    """A two-channel mu-law SPHERE file of noise, the second channel softer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(path.name)).normal(0, 1, (round(8000 * seconds), 2))
    soundfile.write(path, noise * [0.06, 0.015], 8000, "ULAW", format="NIST")
    return path


def transcript(root: Path, side: str, lines: Lines) -> Path:
    """The transcript of a side such as `2001A`."""
    path = root / "swb_ms98_transcriptions" / side[:2] / side[:4] / f"sw{side}-ms98-a-trans.text"
    path.parent.mkdir(parents=True, exist_ok=True)
    numbered = enumerate(lines, start=1)
    path.write_text(
        "".join(f"sw{side}-ms98-a-{n:04d} {start:.6f} {end:.6f} {text}\n" for n, (start, end, text) in numbered)
    )
    return path


def switchboard(root: Path, sides: dict[str, Lines], seconds: float = 20.0) -> Path:
    """Transcripts of sides, and the audio of their calls."""
    for side, lines in sides.items():
        transcript(root, side, lines)
    for number in {side[:4] for side in sides}:
        call(root / "swb1_d1" / "data" / f"sw0{number}.sph", seconds)
    return root


def hub5(root: Path, reference: str, year: str = "00", seconds: float = 20.0) -> Path:
    """A test set with one STM, a GLM and the audio of its calls."""
    name = {"00": "hub5e00.english.000405.stm", "01": "hub5e01.english.20010402.stm"}[year]
    folder = root / "reference"
    folder.mkdir(parents=True)
    (folder / name).write_text(reference)
    (folder / "en20000405_hub5.glm").write_text(GLM)
    for file in {line.split()[0] for line in reference.splitlines() if not line.startswith(";;")}:
        call(root / "english" / f"{file}.sph", seconds)
    return root
