"""SpeechBrain's model trained and searched, for a process of its own.

SpeechBrain changes the process that imports it: it puts modules into it that fail when anything looks at them, as
`inspect` and `warnings` do.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import torch
from benchmarks import inputs, peers
from benchmarks.settings import settings
from benchmarks.speechbrain_las import Sizes, SpeechBrainPeer

from las.config.build import compose


class Trained(NamedTuple):
    """Losses before and after training, number of encoded utterances, and lengths of hypotheses by search."""

    first: float
    last: float
    encoded: int
    lengths: dict[str, list[int]]


def elsewhere(overrides: list[str]) -> Trained:
    """Train and search in a process of its own; its errors are raised here."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(train, overrides).result(timeout=300)


def train(overrides: list[str]) -> Trained:
    """Twenty updates on a batch of the corpus, then every search for hypotheses of five tokens."""
    config = compose("benchmark", overrides)
    subject = inputs.subject(config)
    torch.manual_seed(1)
    batch = peers.real_batches(settings(config, "peers", ""), subject)[-1]
    sizes = Sizes.of(config, subject.corpus.sample_rate, subject.corpus.tokens.size)
    peer = SpeechBrainPeer(sizes, peers.CTC_WEIGHT, 0.01, torch.device("cpu"))
    first = peer.model.loss(batch, 0.3).item()
    for _ in range(20):
        peer.update(batch)
    last = peer.model.loss(batch, 0.3).item()
    searched = {
        search: [len(tokens) for tokens in peer.decoder(*which, batch, 5)()] for search, which in peers.SEARCHES.items()
    }
    return Trained(first, last, len(peer.encoder(batch)()), searched)
