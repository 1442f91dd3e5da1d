"""CTC on a lower layer of the listener: its value by the layers up to there, its gradients, and a training with it."""

from pathlib import Path

import pytest
import torch
from console import Las
from tiny import MODEL
from tiny_words import overrides, tree

from las.config.build import build, compose
from las.data.loader import Batch
from las.nn import ctc
from las.nn.model import SpeechModel

BATCH = Batch(
    ["u1", "u2"],
    torch.randn(2, 8000, generator=torch.Generator().manual_seed(1)),
    torch.tensor([8000, 6000]),
    torch.tensor([[1, 2, 3], [3, 1, 0]]),
    torch.tensor([3, 2]),
)
KINDS = [
    "las_small_ctc joint_ctc_intermediate",
    "ctc_small ctc_intermediate",
    "ctc_small_latency_controlled ctc_intermediate",
]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_ctc_of_the_rows_of_its_layer_and_trains_nothing_above(kind: str) -> None:
    model_name, loss_name = kind.split()
    small = [each for each in MODEL if model_name.startswith("las") or "speller" not in each]
    still = ["model.listener.dropout=0.0", "model.listener.input_noise=0.0"]
    config = compose("train", [f"model={model_name}", f"loss={loss_name}", "loss.weight=1.0", *small, *still])
    torch.manual_seed(1)
    model: SpeechModel = build(config["model"], where="model")(16000, 10)
    loss = build(config["loss"], where="loss")
    found = loss.objective(model, model.forward_batch(BATCH, lambda features, *_, **__: features), BATCH)

    levels: list = []
    encoded, _ = model.listener(*model.features(BATCH.waveforms, BATCH.num_samples), levels)
    plain, _ = model.listener(*model.features(BATCH.waveforms, BATCH.num_samples))
    torch.testing.assert_close(encoded, plain)
    assert [rows.shape[-1] for rows, _ in levels] == model.listener.sizes
    if not model.listener.lookahead:
        torch.testing.assert_close(levels[-1][0][:, : encoded.shape[1]], encoded)
    rows, num_rows = levels[0]
    log_probs = model.intermediate_ctc.ctc.output(rows).log_softmax(-1)
    expected = ctc.loss(ctc.CTCOutput(log_probs, num_rows), BATCH.targets, BATCH.num_tokens)
    torch.testing.assert_close(found, expected)

    found.backward()
    trained = {
        name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert {name.partition(".")[0] for name in trained} == {"listener", "intermediate_ctc"}
    assert {name.split(".")[2] for name in trained if name.startswith("listener")} == {"0"}


def test_a_model_is_trained_and_decoded_with_it(tmp_path: Path, las: Las) -> None:
    root = tree(tmp_path)
    given = [*overrides(root), "model=las_small_ctc", "trainer.select=dev_loss", "order=curriculum"]
    las("train", *given, "loss=joint_ctc_intermediate").succeeds("WER")
    las("decode", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "split=test").succeeds("WER")
    las("train", *given, "loss=joint_ctc_intermediate", "model.intermediate_ctc.layer=2").fails(2, "layer=2")
    given = [*given, f"run_dir={root / 'other'}", "loss=joint_ctc_intermediate", "model.intermediate_ctc=null"]
    las("train", *given).fails(2, "loss=joint_ctc_intermediate")
