"""The suites of the verb benchmark beside that of layers: training steps, searches, the loader, checkpoints."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_words
from benchmarks import (
    compilation,
    decoding,
    growth,
    inputs,
    loading,
    main,
    nn_lstm,
    peak,
    records,
    streaming,
    training_step,
)
from benchmarks.shapes import Shape

from las.cli import train
from las.config.build import compose
from las.decoding.transcription import TimedWord
from las.nn.kernels import choice
from las.reproduction import recipe
from las.runtime import devices


def test_the_parts_of_a_training_step() -> None:
    given = ["suite=model", *tiny.MODEL, "trainer.batch_size=3", "repeats=2", "seconds=[0.3,0.4]", "device=cpu"]
    table = main.benchmark(given)
    kernels = {row["implementation"]: row for row in table}
    assert kernels.keys() == choice.KERNELS.keys()
    plain = kernels["plain"]
    assert (plain["cell"], plain["shape"]) == ("ln_global", "ln_encoder_only, 3 utterances of 0.3 to 0.4 s")
    assert plain["threads"] == devices.threads(None)  # as a training has
    assert 0.9 < plain["audio_s"] < 1.2
    for row in table:
        if "refused" not in row:
            assert all(row[f"{part}_ms"] > 0 for part in training_step.PARTS)
            assert row["audio_s_per_s"] == 1e3 * row["audio_s"] / row["total_ms"]
            assert row["times_faster_than_plain"] == plain["total_ms"] / row["total_ms"]
            assert 0.0 < row["listener_peak_share"] < 1.0 and 0.0 < row["listener_backward_peak_share"] < 1.0


def test_an_update_of_each_row_of_a_recipe() -> None:
    given = [
        "suite=recipe",
        "recipe=norms",
        "tier=smoke",
        "repeats=1",
        "budget_s=0.01",
        "seconds=[0.3,0.4]",
        "device=cpu",
    ]
    table = main.benchmark(given)
    assert [row["implementation"] for row in table] == [row.name for row in recipe.read("norms").rows]
    first, of_layer_norm, *_ = table
    assert first["ratio_to_first"] == 1.0 and of_layer_norm["cell"] == "ln_global"
    assert first["hidden_size"] == 16 and first["parameters"] < of_layer_norm["parameters"]


def test_operations_of_the_listeners_products() -> None:
    """Against a count frame by frame: 4H rows of W and U, two operations for each of their values."""
    config = compose("train", ["+experiment=ln_encoder_only", *tiny.MODEL])
    subject = inputs.subject(config)
    batch, model = inputs.batch(3, [0.3, 0.5], subject.corpus), subject.model
    counted, of_features = 0, 0

    def count(layer: Any, given: Any, outputs: Any) -> None:
        nonlocal counted, of_features
        frames, num_frames = given
        for length in num_frames.tolist():
            for _ in range(2 * length):  # both directions
                counted += 2 * 32 * (frames.shape[2] + 8)
                of_features += 2 * 32 * frames.shape[2] if layer is model.listener.layers[0] else 0

    for layer in model.listener.layers:
        layer.register_forward_hook(count)
    model.listen(batch.waveforms, batch.num_samples)
    operations = peak.listener_operations(model, batch)
    assert operations == {"listener": counted, "listener_backward": 2 * counted - of_features}


def test_operations_of_stacked_layers() -> None:
    shape = Shape("", 3, 5, 2, 7, lengths=(7, 4), reduction=(2, 1))
    # 11 frames, then 4 + 2 of the pairs, whose last ones may be half.
    assert peak.layer_operations(shape) == 2 * 2 * 12 * (11 * (5 + 3) + (4 + 2) * (6 + 3))


def check_searches(table: list[records.Row], batched: int, utterances: int) -> None:
    assert [row["implementation"] for row in table] == ["greedy_batched", "beam2_batched", "beam2_single"]
    assert [row["batch_size"] for row in table] == [batched, batched, 1]
    for row in table:
        assert row["utterances"] == utterances
        assert row["rtf"] == row["seconds"] / row["audio_s"]
        assert row["utterances_per_s"] == utterances / row["seconds"]
        assert row["ratio_to_greedy"] == row["seconds"] / table[0]["seconds"]
    assert table[1]["tokens_per_utterance"] == table[2]["tokens_per_utterance"]


def test_searches_of_an_untrained_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "NUM_GENERATED", 4)
    few = ["batch_size=2", "search.size=2", "repeats=1", "seconds=[0.3,0.4]", "threads=1", "device=cpu"]
    table = main.benchmark(["suite=decode", *tiny.MODEL, *few])
    check_searches(table, 2, 4)
    assert {row["shape"] for row in table} == {"ln_encoder_only, untrained, on noise"}


def test_searches_of_a_checkpoint(trained: Path) -> None:
    where = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "device=cpu"]
    table = main.benchmark(["suite=decode", *where, "search.size=2", "repeats=1", "split=dev", "threads=1"])
    check_searches(table, 2, 2)
    assert {row["shape"] for row in table} == {"baseline on dev of timit"}


def test_words_are_shown_after_their_ends_while_an_utterance_comes_in(tmp_path: Path) -> None:
    root = tiny_words.tree(tmp_path)
    given = [each for each in tiny_words.overrides(root) if "speller" not in each]
    train.train([*given, "model=ctc_small_unidirectional", "trainer.select=dev_loss"])
    where = [f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "device=cpu", "threads=1"]
    table = main.benchmark(["suite=streaming", *where, "search.size=2", "repeats=1"])
    assert [row["implementation"] for row in table] == ["greedy", "beam2"]
    for row in table:
        assert row["words"] > 0 and row["audio_s"] == pytest.approx(0.5 + 0.55 + 2 * streaming.SILENCE_S)
        # Nobody trained it to write nothing in silence: its words may end later than they are shown.
        assert (
            -1500 < row["latency_ms"] <= row["latency_p90_ms"] < 5000 and row["rtf"] == row["seconds"] / row["audio_s"]
        )


def test_a_word_is_shown_when_nothing_before_it_changes_any_more() -> None:
    words = [TimedWord(text, ()) for text in "ABC"]
    screens = [(1.0, ["A"]), (2.0, ["X", "B"]), (3.0, ["A", "B"]), (4.0, ["A", "B", "D"]), (5.0, ["A", "B", "C"])]
    assert [streaming.since(screens, words, count) for count in (1, 2, 3)] == [3.0, 3.0, 5.0]


def test_the_loader_alone_and_while_a_model_is_trained(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "WORKERS", (0, 1))
    where = ["corpus=timit", f"corpus.root={corpus / 'TIMIT'}", "corpus.partial=true", f"data_dir={corpus / 'data'}"]
    few = ["trainer.batch_size=3", "consumer_ms=1", "device=cpu", "trained_batches=2", *tiny.MODEL]
    table = main.benchmark(["suite=loader", *where, *few])
    assert [row["implementation"] for row in table] == ["workers0", "workers1"]
    for row in table:
        assert row["utterances"] == 8 and row["audio_s_per_s"] == row["audio_s"] / row["seconds"]
        assert 0.0 < row["wait_share"] < 1.0
        assert row["audio_s"] == pytest.approx(sum(0.3 + 0.04 * index for index in range(8)))
    alone, trained = table
    assert "trained_wait_share" not in alone and trained["trained_batches"] == 2
    assert 0.0 < trained["trained_wait_share"] < 1.0 and trained["trained_audio_s_per_s"] > 0


def test_a_step_over_what_grows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = {"width of the listener": (4, 8)}
    few = tuple(axis._replace(values=small.get(axis.name, axis.values[:2])) for axis in growth.AXES)
    monkeypatch.setattr(growth, "AXES", few)
    monkeypatch.setattr(growth, "BATCH", 2)
    monkeypatch.setattr(growth, "LENGTH_S", 0.5)
    given = ["suite=growth", *tiny.MODEL, "repeats=1", "device=cpu", "threads=1"]
    table = main.benchmark([*given, f"output={tmp_path / 'growth.jsonl'}"])
    assert [(row["axis"], row["value"]) for row in table] == [(axis.name, v) for axis in few for v in axis.values]
    assert [("exponent" in row) for row in table] == [False, True] * len(few)
    assert {row["audio_s"] for row in table} == {0.5 * 4, 0.5 * 8, 1.0 * 2, 2.0 * 2, 0.5 * 2}
    width, depth = [row["parameters"] for row in table[4:6]], [row["parameters"] for row in table[6:8]]
    assert width[0] < width[1] and depth[0] < depth[1]
    assert growth.exponent([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0)
    assert growth.draw(table, tmp_path / "growth.png").stat().st_size > 1000


def test_what_checkpoints_cost(corpus: Path) -> None:
    given = [override for override in tiny.overrides(corpus) if not override.startswith("trainer.max_steps")]
    updates, validation, checkpoint = main.benchmark(["suite=safety", *given, "steps=4"])
    names = [row["implementation"] for row in (updates, validation, checkpoint)]
    assert names == ["updates", "validation", "checkpoint"]
    assert [row["times"] for row in (updates, validation, checkpoint)] == [4, 2, 2]
    assert sum(row["share"] for row in (updates, validation, checkpoint)) == pytest.approx(1.0)
    assert checkpoint["share_of_updates"] == pytest.approx(checkpoint["seconds"] / updates["seconds"])
    assert updates["shape"].startswith("ln_encoder_only on timit: 4 steps")
    assert not list(corpus.glob(".las-safety-*")) and not (corpus / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
def test_the_phases_of_the_triton_kernel_for_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "SHARED_KIB", {90: 227})
    monkeypatch.setattr(compilation, "SIZES", (64,))
    table = main.benchmark(["suite=compile", "device=cpu"])
    for kernel, phases in (("triton", compilation.PHASES), ("persistent", compilation.PERSISTENT_PHASES)):
        own = [row for row in table if row["implementation"] == kernel]
        assert [(row["shape"], row["hidden_size"], row["products"]) for row in own] == [
            ("sm_90", 64, products) for products in compilation.TYPES
        ]
        assert {len(row[key].split(", ")) for row in own for key in ("registers", "spilled")} == {len(phases)}
    for row in table:
        assert all(0 < int(count) <= 255 for count in row["registers"].split(", ")) and 0 < row["shared_kib"] <= 227


@pytest.mark.slow
def test_every_stack_is_measured_in_place_of_that_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn_lstm, "PADDED", Shape("", 4, 3, 2, 5))
    monkeypatch.setattr(nn_lstm, "PACKED", Shape("", 4, 3, 2, 5, shortest=0.5))
    table = main.benchmark(["suite=nn_lstm", "repeats=1", "budget_s=0.01", "threads=1", "device=cpu"])
    assert len(table) == 24 and len({row["shape"] for row in table}) == 8
    assert all(row["total_ms"] > 0 and row["forward_ms"] > 0 for row in table)
    assert {row["ratio_to_lstm"] for row in table if row["implementation"] == "nn.LSTM"} == {1.0}
