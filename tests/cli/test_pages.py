"""Pages of a corpus and of a score: what they show of real files, and what can be heard in them."""

import base64
import json
import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import soundfile
import tiny_words
from console import Las
from html_page import Page

from las.cli import score_page
from las.scoring import error_rates


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tiny_words.tree(tmp_path)


def sounds(page: str) -> list[np.ndarray]:
    """Recordings that a page embeds."""
    found = re.findall(r'src="data:audio/flac;base64,([^"]+)"', page)
    return [soundfile.read(BytesIO(base64.b64decode(each)), dtype="int16")[0] for each in found]


def test_a_corpus_has_a_page_with_samples_and_what_is_left_out(root: Path, las: Las) -> None:
    silent = tiny_words.wav(root, "faaa_1")
    soundfile.write(silent, np.zeros(8000, np.int16), 16000)
    given = ["corpus=an4", f"corpus.root={root}", "corpus.partial=true", "corpus.dev_every=2", f"data_dir={root / 'd'}"]
    las("prepare", *given, f"page={root / 'page.html'}").succeeds("page.html")
    page = (root / "page.html").read_text()
    Page(page)
    assert "faaa_1" in page and "all its samples" in page and "GO ON" in page
    heard = sounds(page)
    first = soundfile.read(tiny_words.wav(root, "faaa_0"), dtype="int16")[0]
    assert len(heard) == 3 + 2 + 2 and any(np.array_equal(each, first) for each in heard)
    for name, count in (("train", 8), ("dev", 2), ("test", 2)):
        assert re.search(rf"<td>{name}</td><td>{count}</td>", page)


def test_the_page_of_a_score_has_slices_and_the_worst_recordings(root: Path, las: Las) -> None:
    given = ["corpus=an4", f"corpus.root={root}", "corpus.partial=true", "corpus.dev_every=2", f"data_dir={root / 'd'}"]
    las("prepare", *given).succeeds()
    (manifest,) = (root / "d/manifests").rglob("train.jsonl")
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    hypothesis = root / "h.jsonl"
    hypothesis.write_text("".join(json.dumps({"id": line["id"], "text": "YES"}) + "\n" for line in lines))
    las("score", f"reference={manifest}", f"hypothesis={hypothesis}", f"page={root / 'page.html'}").succeeds()
    page = (root / "page.html").read_text()
    Page(page)
    assert "words 1<" in page and "words 2<" in page and "seconds 0.5 to" in page and "peak, dB" in page
    assert len(sounds(page)) == len(lines)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 30])
def test_slices_hold_every_utterance_once(count: int) -> None:
    references = {f"u{number}": ["a"] * (1 + number % 7) for number in range(count)}
    score = error_rates.error_rate(references, {name: ["a"] for name in references})
    found = score_page.slices(score, "words", {name: len(words) for name, words in references.items()})
    if len({len(words) for words in references.values()}) > 1:
        assert sum(each.rate.utterances for each in found) == count
        assert sum(each.rate.errors for each in found) == score.total.errors
    else:
        assert found == []
