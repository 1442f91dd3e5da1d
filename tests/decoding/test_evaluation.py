"""Losses and error rates of a split, against sums written out here."""

import pytest
import torch
from tiny import MODEL, RATE, overrides, tree

from las.config.build import build, compose
from las.data.corpora.base import Corpus
from las.data.loader import Batch, Loader, collate, read
from las.data.manifest import Utterance
from las.data.sampler import BatchSize, sequential
from las.decoding import evaluation
from las.decoding.base import Hypothesis
from las.decoding.search import GreedySearch
from las.nn.model import ListenAttendSpell


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[ListenAttendSpell, Corpus, list[Utterance]]:
    """An untrained model, the tiny corpus, and its training utterances."""
    root = tree(tmp_path_factory.mktemp("evaluation"))
    config = compose("train", overrides(root, *MODEL))
    corpus: Corpus = build(config["corpus"])
    torch.manual_seed(1)
    model: ListenAttendSpell = build(config["model"])(RATE, corpus.tokens.size)
    return model, corpus, corpus.utterances("train")


def loaded(utterances: list[Utterance], corpus: Corpus, size: int) -> list[tuple[int, Batch]]:
    loader = Loader(utterances, corpus.tokens, RATE, num_workers=0)
    return list(loader.batches(sequential(utterances, BatchSize(size))))


@pytest.mark.parametrize("size", [1, 3, 8])
def test_loss_and_accuracy_are_means_over_tokens_whatever_the_batches(material, size: int) -> None:
    model, corpus, utterances = material
    found = evaluation.evaluate(model, GreedySearch(), loaded(utterances, corpus, size))
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
    assert (found.correct, found.tokens) == (correct, count)
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


def test_scores_compare_the_best_hypotheses_in_the_scored_form(material) -> None:
    """`cl` and `sil` are one phone of 39, so taking one for the other is no error."""
    _, corpus, utterances = material
    two = utterances[:2]
    assert two[0].text == "sil aa iy sil"

    def decoded(name: str, *texts: str) -> evaluation.Decoded:
        nbest = [Hypothesis(corpus.tokens.encode(text), -1.0, -1.0, "eos") for text in texts]
        return evaluation.Decoded(name, nbest)

    heard = [decoded(two[0].id, "cl aa iy sil", "b"), decoded(two[1].id, "sil aa sil")]
    found = corpus.score("dev", two, evaluation.texts(heard, corpus.tokens))
    assert (found.total.deletions, found.total.substitutions, found.total.insertions) == (1, 0, 0)
    assert found.total.rate == 1 / 8
    assert found.speakers.keys() == {"ftr0"}
    missing = corpus.score("dev", two, {two[0].id: "sil aa iy sil"})
    assert (missing.missing, missing.total.deletions) == ((two[1].id,), 4)
