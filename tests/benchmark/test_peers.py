"""The suite that measures another toolkit next to this package. No time is asserted."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import peer_training
import pytest
import tiny
import torch
from benchmarks import inputs, main, peers, speechbrain_las
from benchmarks.settings import settings
from benchmarks.speechbrain_las import Sizes

from las.config.build import Config, compose
from las.data.loader import Batch
from las.runtime.errors import ConfigError

CTC_MODEL = ["loss=joint_ctc", "model.listener.reduction=concat", "model.listener.input_reduction=1"]
STATES_AND_SEARCHES = (peers.ENCODING, *peers.SEARCHES)
WORKS = {"update of 3", *(f"{name}, batches of 3" for name in STATES_AND_SEARCHES)}
SINGLE = {f"{name}, one at a time" for name in STATES_AND_SEARCHES}


def given(corpus: Path) -> list[str]:
    where = ["corpus=timit", f"corpus.root={corpus / 'TIMIT'}", "corpus.partial=true", f"data_dir={corpus / 'data'}"]
    few = ["trainer.batch_size=3", "repeats=1", "threads=1", "device=cpu"]
    return ["suite=peers", "+experiment=ln_encoder_only", *where, *few, *tiny.MODEL, *CTC_MODEL]


class StandIn(speechbrain_las.SpeechBrainPeer):
    """A toolkit that records what it is asked for."""

    num_parameters = 7

    def __init__(self, *_: object) -> None:
        self.updated: list[list[str]] = []
        self.encoded: list[int] = []
        self.searched: list[tuple[int, float, int, int]] = []

    def update(self, batch: Batch) -> None:
        self.updated.append(batch.ids)

    def encoder(self, batch: Batch) -> Callable[[], object]:
        self.encoded.append(len(batch.ids))
        return lambda: None

    def decoder(self, size: int, ctc_weight: float, batch: Batch, num_tokens: int) -> Callable[[], list[list[int]]]:
        self.searched.append((size, ctc_weight, len(batch.ids), num_tokens))
        return lambda: [[1] * num_tokens for _ in batch.ids]


def test_both_toolkits_do_the_same_work(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[StandIn] = []

    def make(sizes: Sizes, *_: object) -> StandIn:
        assert sizes.sample_rate == 16000 and sizes.hidden_size > 0
        made.append(StandIn())
        return made[0]

    monkeypatch.setattr(speechbrain_las, "unavailable", lambda: "")
    monkeypatch.setattr(peers, "SpeechBrainPeer", make)
    table = main.benchmark(given(corpus))
    (peer,) = made
    assert {row["work"] for row in table} == WORKS | SINGLE
    # Two batches of three and one of two, in a warm-up round, in a measured one and for its memory.
    assert len(peer.updated) == 9 and sorted(map(len, peer.updated[:3])) == [2, 3, 3]
    batched, single = peer.searched[:9], peer.searched[9:]
    assert {(size, weight) for size, weight, _, _ in peer.searched} == set(peers.SEARCHES.values())
    assert [count for _, _, count, _ in batched[:3]] == list(map(len, peer.updated[:3]))
    assert {count for _, _, count, _ in single} == {1}
    assert peer.encoded == [*map(len, peer.updated[:3]), 1, 1, 1]
    for row in table:
        assert row["audio_s_per_s"] == pytest.approx(row["audio_s"] / row["seconds"])
        assert row["utterances"] == (8 if row["work"] in WORKS else 3)
        others = [each for each in table if each["work"] == row["work"] and each["implementation"] == peers.PEER]
        assert row["ratio_to_peer"] == pytest.approx(row["seconds"] / others[0]["seconds"])
        search, _, how = row["work"].rpartition(", ")
        if search in peers.SEARCHES and row["implementation"] != peers.PEER:
            work = f"{peers.ENCODING}, {how}"
            encoded = [
                each for each in table if (each["work"], each["implementation"]) == (work, row["implementation"])
            ]
            assert row["encoding_ratio"] == pytest.approx(encoded[0]["seconds"] / others[0]["seconds"])
        else:
            assert "encoding_ratio" not in row
    trained = {row["implementation"] for row in table if row["work"] == "update of 3"}
    assert trained == {"las, fp32", "las, bf16", peers.PEER}


def test_a_search_has_as_many_tokens_as_asked_for(corpus: Path) -> None:
    config = compose("benchmark", given(corpus))
    checked = settings(config, "peers", "las benchmark")
    subject = inputs.subject(config)
    batches = peers.real_batches(checked, subject)
    assert [batch.num_samples.max() for batch in batches] == sorted(batch.num_samples.max() for batch in batches)
    toolkit = peers.Las(checked, subject, "fp32")
    for size, weight in peers.SEARCHES.values():
        for tokens in toolkit.decoder(size, weight, batches[0], 5)():
            assert len(tokens) == 5
    encoded = toolkit.encoder(batches[0])()
    assert isinstance(encoded, torch.Tensor) and encoded.shape[:2] == (
        3,
        max(toolkit.model.num_states(batches[0].num_samples)),
    )


def test_without_peers_their_installation_is_told(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(speechbrain_las.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(peers, "SEARCHES", {"greedy": (1, 0.0)})
    table = main.benchmark(given(corpus))
    measured = [row for row in table if "refused" not in row]
    assert {row["implementation"] for row in measured} == {"las, fp32", "las, bf16"}
    assert all("ratio_to_peer" not in row for row in measured)
    assert "pip install 'las-asr[peers]'" in capsys.readouterr().out


def test_a_model_without_ctc_cannot_be_compared(corpus: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs CTC.*\+experiment=an4_ctc"):
        main.benchmark([each for each in given(corpus) if not each.startswith("loss=")])


def config_of(corpus: Path, *changes: str) -> Config:
    return compose("benchmark", [*given(corpus), *changes])


def test_sizes_that_peers_cannot_have(corpus: Path) -> None:
    sizes = Sizes.of(config_of(corpus), 16000, 30)
    assert (sizes.num_tokens, sizes.key_size) == (30, config_of(corpus)["model"]["speller"]["attention"]["key_size"])
    with pytest.raises(ConfigError, match="must join frames"):
        Sizes.of(config_of(corpus, "model.listener.input_reduction=2"), 16000, 30)


@pytest.mark.skipif(find_spec("speechbrain") is None, reason="needs SpeechBrain: pip install 'las-asr[peers]'")
def test_speechbrain_learns_and_searches(corpus: Path) -> None:
    trained = peer_training.elsewhere(given(corpus))
    assert trained.last < 0.8 * trained.first and trained.encoded == 2
    # Its greedy search has no step of its own for the end of a sentence.
    assert trained.lengths == {name: [6 if name == "greedy" else 5] * 2 for name in peers.SEARCHES}
    assert "speechbrain" not in sys.modules
