"""Losses of a split, against sums written out here; attention of an utterance."""

import pytest
import torch
from tiny import MODEL, RATE, overrides, tree

from las.config.build import build, compose
from las.data.corpora.base import Corpus
from las.data.loader import BatchSize, collate, read
from las.data.manifest import Utterance
from las.decoding import evaluation
from las.decoding.search import GreedySearch
from las.nn.model import ListenAttendSpell
from las.training.tasks.tokens import TokenValidator


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[ListenAttendSpell, Corpus, list[Utterance]]:
    """An untrained model, the tiny corpus, and its training utterances."""
    root = tree(tmp_path_factory.mktemp("validation"))
    config = compose("train", overrides(root, *MODEL))
    corpus: Corpus = build(config["corpus"])
    torch.manual_seed(1)
    model: ListenAttendSpell = build(config["model"])(RATE, corpus.tokens.size)
    return model, corpus, corpus.utterances("train")


@pytest.mark.parametrize("size", [1, 3, 8])
def test_loss_and_accuracy_are_sums_over_tokens_whatever_the_batches(material, size: int) -> None:
    model, corpus, utterances = material
    found = TokenValidator(model, GreedySearch(), corpus, utterances, corpus.tokens, BatchSize(size), 0).measure()
    total, correct, count = 0.0, 0, 0
    for utterance in utterances:
        waveform = read(utterance, RATE)
        targets = torch.tensor([corpus.tokens.encode(utterance.text)])
        with torch.no_grad():
            logits = model(waveform.unsqueeze(0), torch.tensor([len(waveform)]), targets).logits[0]
        wanted = torch.cat([targets[0], torch.tensor([0])])
        total += float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
        correct += int((logits.argmax(-1) == wanted).sum())
        count += len(wanted)
    assert found.cross_entropy == pytest.approx(total, rel=1e-5)
    assert (found.correct, found.total) == (correct, count)
    assert found.texts.keys() == {utterance.id for utterance in utterances}
    assert len(found.alignments) == len(utterances) and all(0 <= each.entropy <= 1 for each in found.alignments)
    assert not model.training


def test_attention_of_the_first_utterance_without_padding(material) -> None:
    model, corpus, utterances = material
    texts = [utterances[0], utterances[5]]
    batch = collate(texts, [read(each, RATE) for each in texts], corpus.tokens)
    weights = evaluation.attention_weights(model, batch)
    assert weights.shape == (int(batch.num_tokens[0]) + 1, int(model.num_states(batch.num_samples[:1])))
    assert torch.allclose(weights.sum(1), torch.ones(len(weights)))
    assert not weights.requires_grad
