"""The search for words equals the alignment of every sentence."""

import itertools
import math

import numpy as np
import pytest
import torch
from toy_hmm import PHONES, WORDS, bigram, log_prob, toy, toy_scores, toy_tying

from las.decoding.base import Hypothesis, WordSpan
from las.decoding.hybrid.word_graph import WordGraphSearch
from las.hmm.graph import alignment_graph
from las.hmm.lexicon import Lexicon, Pronunciation
from las.hmm.topology import SPEECH, StateNumbering, Topology
from las.hmm.viterbi import viterbi
from las.lm import arpa, ngram
from las.nn.acoustic_model import FrameScores
from las.runtime.errors import ArgumentError, ConfigError, NumericalError

EXACT = {"beam": 1e4, "max_active": 100_000}
NO_SKIP = SPEECH._replace(skip=math.inf)


def frame_scores(*emissions: np.ndarray) -> FrameScores:
    """Scores of a batch, padded with what must not be looked at."""
    padded = np.full((len(emissions), max(map(len, emissions)), emissions[0].shape[1]), np.nan)
    for row, each in enumerate(emissions):
        padded[row, : len(each)] = each
    return FrameScores(torch.from_numpy(padded), torch.zeros(padded.shape[2]), torch.zeros(1, 1))


def only(search: WordGraphSearch, emissions: np.ndarray) -> list[Hypothesis]:
    return search(frame_scores(emissions), torch.tensor([len(emissions)]))[0]


def said(search: WordGraphSearch, hypothesis: Hypothesis) -> list[str]:
    return [search.words[token - 1] for token in hypothesis.tokens]


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, arpa.Model]]:
    """A few bigrams, as files and as models."""
    folder = tmp_path_factory.mktemp("grammars")
    models = [bigram(seed) for seed in range(5)]
    for number, model in enumerate(models):
        arpa.write(folder / f"{number}.arpa", model)
    return [(str(folder / f"{number}.arpa"), model) for number, model in enumerate(models)]


def prepared(lexicon: Lexicon, states: StateNumbering, **options: object) -> WordGraphSearch:
    search = WordGraphSearch(**(EXACT | options))  # type: ignore[arg-type]
    search.prepare(lexicon, states)
    return search


def aligned(
    search: WordGraphSearch, lexicon: Lexicon, states: StateNumbering, words: list[str], emissions: np.ndarray
) -> tuple[float, np.ndarray]:
    """The score of a sentence by the alignment of its own graph, and the states of the path."""
    scaled = Lexicon(
        {
            word: [each._replace(probability=each.probability**search.lm_scale) for each in variants]
            for word, variants in lexicon.entries.items()
        },
        lexicon.silence,
    )
    graph = alignment_graph(words, scaled, states)
    (path,) = viterbi(torch.from_numpy(emissions).unsqueeze(0), torch.tensor([len(emissions)]), [graph])
    if path is None:
        return -math.inf, np.zeros(0)
    model = arpa.read(search.grammar) if search.grammar else None
    lm = (
        -math.log(len(search.words) + 2) * (len(words) + 1) if model is None else log_prob(ngram.of_words(model), words)
    )
    return path.score + search.lm_scale * lm + search.word_insertion * len(words), path.states


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 40))])
@pytest.mark.parametrize("tied", [False, True])
def test_lists_of_the_best_sentences_equal_the_alignments_of_all(
    tied: bool, seed: int, grammars: list[tuple[str, arpa.Model]]
) -> None:
    """With states of phones, and with tied states of triphones, whose neighbours reach across words."""
    _, lexicon, topology = toy(seed)
    speech = topology.speech if seed % 2 else NO_SKIP
    topology = Topology(PHONES, ["SIL"] if seed % 7 else [], speech, topology.pause)
    states: StateNumbering = toy_tying(seed, topology) if tied else topology
    path, model = grammars[seed % 5]
    scales = {"lm_scale": (1.3, 0.0, 2.5)[seed % 3], "word_insertion": 0.4}
    search = prepared(lexicon, states, nbest=12, grammar=path, **scales)
    emissions = toy_scores(seed, 9, states.num_pdfs)  # at most four words: a phone takes two frames, or three
    found = only(search, emissions)
    sentences = [list(each) for count in range(5) for each in itertools.product(WORDS, repeat=count)]
    if lexicon.silence is None:
        sentences = sentences[1:]
    scores = [aligned(search, lexicon, states, each, emissions)[0] for each in sentences]
    best = sorted((score for score in scores if score > -math.inf), reverse=True)[:12]
    assert [each.score for each in found] == pytest.approx(best, abs=1e-3)
    assert len({tuple(each.tokens) for each in found}) == len(found) >= 3
    for each in found:
        assert each.score == pytest.approx(scores[sentences.index(said(search, each))], abs=1e-3)
        lm = log_prob(ngram.of_words(model), said(search, each))
        assert each.scores["lm"] == pytest.approx(lm, abs=1e-3)
        parts = each.scores["acoustic"] + scales["lm_scale"] * lm + scales["word_insertion"] * len(each.tokens)
        assert each.score == pytest.approx(parts, abs=1e-3)
    search.nbest = 1
    assert only(search, emissions)[0].score == pytest.approx(best[0], abs=1e-3)


def test_word_times_are_those_of_planted_words() -> None:
    entries = {"ONE": [Pronunciation(("A", "B"), 0.5), Pronunciation(("B",))], "TWO": [Pronunciation(("C",), 0.5)]}
    lexicon, topology = Lexicon(entries), Topology(PHONES, ["SIL"])
    search = prepared(lexicon, topology, lm_scale=2.0)
    runs = [("SIL", 4), ("B", 2), ("C", 1), ("A", 2), ("B", 3), ("SIL", 2)]
    pdfs = [pdf for phone, count in runs for pdf in topology.pdfs(phone) for _ in range(count)]
    emissions = np.full((len(pdfs), topology.num_pdfs), -500.0)
    emissions[np.arange(len(pdfs)), pdfs] = 0.0
    scores, lengths = frame_scores(emissions, emissions[:4]), torch.tensor([len(pdfs), 4])
    whole, cut = search(scores, lengths)
    assert said(search, whole[0]) == ["ONE", "TWO", "ONE"] and whole[0].finished_by == "eos"
    spans = search.times(scores, lengths, [whole[0].tokens, cut[0].tokens])
    assert [each[:3] for each in spans[0]] == [("ONE", 12, 18), ("TWO", 18, 21), ("ONE", 21, 36)]
    assert all(0.9 < each.posterior <= 1.0 for each in spans[0])
    few = search.times(scores, torch.tensor([2, 0]), [[1, 2, 1], [1]])
    shared = [WordSpan("ONE", 0, 0, 0.0), WordSpan("TWO", 0, 1, 0.0), WordSpan("ONE", 1, 2, 0.0)]
    assert few == [shared, []], "no path fits"
    assert search.times(scores, lengths, [[], []]) == [[], []]


def test_a_batch_equals_its_utterances_and_weights_its_scales() -> None:
    _, lexicon, topology = toy(3)
    search = prepared(lexicon, topology, acoustic_scale=0.7, prior_scale=0.6)
    emissions = [toy_scores(seed, frames) for seed, frames in ((1, 20), (2, 31), (5, 11))]
    log_priors = torch.randn(topology.num_pdfs, generator=torch.Generator().manual_seed(0)).double()
    together = search(frame_scores(*emissions)._replace(log_priors=log_priors), torch.tensor([20, 31, 11]))
    plain = prepared(lexicon, topology)
    for each, alone in zip(together, emissions, strict=True):
        weighted = 0.7 * (alone - 0.6 * log_priors.numpy())
        assert each[0].tokens == only(plain, weighted)[0].tokens
        assert each[0].score == pytest.approx(only(plain, weighted)[0].score, abs=1e-3)


def test_scales_may_change_without_another_graph() -> None:
    _, lexicon, topology = toy(4)
    search, emissions = prepared(lexicon, topology), toy_scores(4, 40)
    before, graph = only(search, emissions), search._required().graph
    search.lm_scale, search.word_insertion = 3.0, -2.0
    changed = only(search, emissions)
    assert search._required().graph is graph
    assert changed == only(prepared(lexicon, topology, lm_scale=3.0, word_insertion=-2.0), emissions) != before
    search.lm_scale, search.word_insertion = 1.0, 0.0
    assert only(search, emissions) == before


def test_a_narrow_beam_finds_no_better_path() -> None:
    _, lexicon, topology = toy(5)
    emissions = toy_scores(5, 60)
    scores = [
        only(prepared(lexicon, topology, beam=beam, max_active=active), emissions)[0].score
        for beam, active in ((0.5, 3), (5.0, 30), (1e4, 100_000))
    ]
    assert scores == sorted(scores) and scores[0] < scores[-1]


@pytest.mark.parametrize("nbest", [1, 3])
def test_utterances_without_a_path_to_the_end_are_dead_ends(nbest: int) -> None:
    entries = {"LONG": [Pronunciation(("A", "B", "C"))], "SHORT": [Pronunciation(("D", "D"))]}
    search = prepared(Lexicon(entries, None), Topology(PHONES, ["SIL"], NO_SKIP), nbest=nbest)
    for frames in range(6):
        found = only(search, toy_scores(frames, frames))
        assert {each.finished_by for each in found} == {"dead_end"}, "six states take six frames"
    assert found[0].score > -math.inf and math.isfinite(found[0].scores["lm"])
    assert only(search, toy_scores(0, 0))[0].tokens == []
    assert only(search, toy_scores(6, 6))[0].finished_by == "eos"


def test_what_does_not_fit_is_named() -> None:
    search = WordGraphSearch()
    with pytest.raises(ConfigError, match=r"call search\.prepare"):
        search(frame_scores(toy_scores(0, 5)), torch.tensor([5]))
    with pytest.raises(ConfigError, match=r"call search\.prepare"):
        _ = search.words
    search.prepare(Lexicon({"ONE": [Pronunciation(("A",))]}), Topology(["SIL", "A"], ["SIL"]))
    with pytest.raises(ConfigError, match=r"15 states .* 6"):
        search(frame_scores(toy_scores(0, 5)), torch.tensor([5]))


@pytest.mark.parametrize("nbest", [1, 3])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_are_refused(nbest: int, value: float) -> None:
    lexicon, topology = Lexicon({"ONE": [Pronunciation(("A",))]}), Topology(PHONES, ["SIL"])
    emissions = toy_scores(0, 8)
    emissions[3, 4] = value
    with pytest.raises(NumericalError, match="not finite"):
        only(prepared(lexicon, topology, nbest=nbest), emissions)


@pytest.mark.parametrize(
    "options",
    [
        *({"acoustic_scale": -1.0}, {"prior_scale": -0.1}, {"lm_scale": -1.0}),
        *({"beam": 0.0}, {"beam": math.inf}, {"max_active": 0}, {"nbest": 0}),
    ],
)
def test_arguments_out_of_range(options: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(options))):
        WordGraphSearch(**options)  # type: ignore[arg-type]
