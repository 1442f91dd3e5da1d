"""Scorers and constraints together in one search: what enumeration finds, whatever the batch, and never nothing."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiers import rest_slow
from tiny import overrides
from toy_search import EOS, Choice, Enumeration, ToyDecoder, ToyLM

from las.cli import train
from las.data import tokenizers
from las.decoding.base import Hypothesis
from las.decoding.scorers.base import BatchConstraint, BatchScorer, Constraint, Scorer, SearchStep
from las.decoding.scorers.constraints import EndThreshold, MinLength, RepetitionConstraint
from las.decoding.scorers.ctc_prefix import CTCPrefixScorer
from las.decoding.scorers.language_model import LanguageModelScorer, WordNGramScorer
from las.decoding.scorers.rewards import CoverageReward, LengthReward
from las.decoding.scorers.word_lists import HotWordBonus, LexiconConstraint
from las.decoding.search import BeamSearch, GreedySearch
from las.lm import arpa, kneser_ney, lstm
from las.lm.ngram import NGram
from las.nn.cells.lstm import PlainLSTMCell
from las.runtime.errors import ArgumentError, ConfigError, DataError

NAMES = ("ctc", "lm", "second_lm", "length_reward", "coverage", "end_threshold", "min_length", "repetition")
SUBSETS = [
    tuple(name for name, is_there in zip(NAMES, chosen, strict=True) if is_there)
    for chosen in itertools.product([False, True], repeat=len(NAMES))
]


@pytest.mark.parametrize("group", range(16))
def test_a_beam_as_wide_as_the_space_ranks_all_of_it_by_any_combination(group: int) -> None:
    vocab, num_states, limit = 3, 4, 3
    for number, names in enumerate(SUBSETS[group::16]):
        exponent = (0.0, 0.6, 1.0)[(group + number) % 3]
        decoder, choice = ToyDecoder.random(100 * group + number, [num_states], vocab), Choice.of(names, vocab)
        search = BeamSearch(15, exponent, 15, max_length=limit, **choice.options)
        (found,) = search(decoder, torch.tensor([num_states]))
        expected = Enumeration(decoder, choice, num_states, limit, exponent).ranked()
        assert [each.tokens for each in found] == [each.tokens for each in expected], names
        assert [each.normalised_score for each in found] == pytest.approx([each.rank for each in expected], rel=1e-9)
        for one, other in zip(found, expected, strict=True):
            assert one.scores == pytest.approx(other.scores, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("stride", rest_slow([35, 7]))
@pytest.mark.parametrize("nbest", [1, 3])
def test_stopping_early_does_not_change_the_n_best_list(nbest: int, stride: int) -> None:
    num_states = [0, 1, 3, 9, 12] * 4
    for number, names in enumerate(SUBSETS[::stride]):
        exponent = (0.0, 0.6, 1.0)[number % 3]
        decoder, choice = ToyDecoder.random(number, num_states, 4), Choice.of(names, 4)
        everything = BeamSearch(5, exponent, 5, **choice.options)(decoder, torch.tensor(num_states))
        first = BeamSearch(5, exponent, nbest, **choice.options)(decoder, torch.tensor(num_states))
        for some, all_of_them in zip(first, everything, strict=True):
            assert_same(some, all_of_them[:nbest])


def assert_same(some: list[Hypothesis], others: list[Hypothesis]) -> None:
    assert [each.tokens for each in some] == [each.tokens for each in others]
    assert [each.finished_by for each in some] == [each.finished_by for each in others]
    assert [each.score for each in some] == pytest.approx([each.score for each in others], rel=1e-9)
    for one, other in zip(some, others, strict=True):
        assert one.scores == pytest.approx(other.scores, rel=1e-9, abs=1e-9)
        assert one.confidences == pytest.approx(other.confidences, rel=1e-9)


@pytest.mark.parametrize("batch", rest_slow([10, 100]))
def test_an_utterance_does_not_depend_on_its_batch(batch: int) -> None:
    for number, names in enumerate([(), NAMES, *SUBSETS[3::32]]):
        generator = torch.Generator().manual_seed(number)
        num_states = torch.randint(0, 13, (batch,), generator=generator).tolist()
        decoder, choice = ToyDecoder.random(number, num_states, 5), Choice.of(names, 5)
        search = BeamSearch(4, (0.0, 1.0)[number % 2], 2, **choice.options)
        together = search(decoder, torch.tensor(num_states))
        for index, count in enumerate(num_states):
            one = ToyDecoder(*(part[index : index + 1] for part in (decoder.table, decoder.attention, decoder.heard)))
            short = ToyDecoder(one.table, one.attention[:, :, : max(1, count)], one.heard[:, : max(1, count)])
            assert_same(search(short, torch.tensor([count]))[0], together[index])


def test_confidences_are_the_decoders_probabilities() -> None:
    decoder, choice = ToyDecoder.random(3, [8], 4), Choice.of(("ctc", "lm"), 4)
    for best in BeamSearch(4, 1.0, 4, **choice.options)(decoder, torch.tensor([8]))[0]:
        prefix, expected = torch.zeros(1, 1, dtype=torch.long), []
        for last, token in itertools.pairwise([EOS, *best.tokens]):
            log_probs, prefix = decoder.step(torch.tensor([[last]]), prefix)
            expected.append(math.exp(float(log_probs[0, 0, token])))
        assert best.confidences == pytest.approx(expected)


def test_a_weight_of_zero_leaves_a_scorer_out() -> None:
    decoder = ToyDecoder.random(3, [8, 2], 4)
    plain = BeamSearch(4)(decoder, torch.tensor([8, 2]))
    assert BeamSearch(4, ctc=CTCPrefixScorer(0.0), coverage=CoverageReward(0.0))(decoder, torch.tensor([8, 2])) == plain
    assert plain[0][0].scores == {"las": plain[0][0].score}


def test_names_and_their_order_change_no_score() -> None:
    """Scores of known names are added in the package's order, which rounding depends on; others come behind."""
    parts = Choice.of(("ctc", "lm", "length_reward", "coverage", "min_length"), 4).options
    decoder, num_states = ToyDecoder.random(5, [6, 3], 4), torch.tensor([6, 3])
    expected = BeamSearch(4, **parts)(decoder, num_states)
    backwards = BeamSearch(4, **dict(reversed(parts.items())))
    assert backwards(decoder, num_states) == expected
    assert repr(backwards) == repr(BeamSearch(4, **parts))
    renamed = {"my_coverage" if name == "coverage" else name: part for name, part in parts.items()}
    for found, wanted in zip(BeamSearch(4, **renamed)(decoder, num_states), expected, strict=True):
        assert list(found[0].scores) == ["las", "ctc", "lm", "length_reward", "my_coverage"]
        assert (found[0].tokens, found[0].score) == (wanted[0].tokens, wanted[0].score)
    assert BeamSearch(4, lm=None).components == BeamSearch(4).components


def test_an_n_gram_model_from_a_file_or_in_memory_scores_as_it_does_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "lm.arpa")
    text = [list("abab"), ["a", "<space>", "b"], list("bbba")]
    arpa.write(path, kneser_ney.estimate(text, 2, ["a", "b", "<space>"]).model)
    lm, from_file = NGram.read(path, LETTERS), LanguageModelScorer(path, 0.5)
    decoder, num_states = ToyDecoder.random(1, [4, 6], LETTERS.size), torch.tensor([4, 6])
    with pytest.raises(ConfigError, match=r"lm.arpa: .* told the tokens"):
        BeamSearch(3, lm=from_file)(decoder, num_states)
    of_file, of_model = BeamSearch(3, lm=from_file), BeamSearch(3, lm=LanguageModelScorer(weight=0.5, lm=lm))
    of_file.bind(LETTERS, has_ctc=False)
    found = of_file(decoder, num_states)
    assert of_model(decoder, num_states) == found
    of_model.bind(LETTERS, has_ctc=False)  # as the config path does
    assert of_model(decoder, num_states) == found
    best, alone, state = found[1][0], 0.0, lm.start(1)
    for token in [*best.tokens, EOS]:
        alone += float(lm.score(state)[0, 0, token])
        state = lm.advance(state, torch.tensor([[token]]))
    assert best.scores["lm"] == pytest.approx(alone, rel=1e-6)
    assert best.score == pytest.approx(best.scores["las"] + 0.5 * best.scores["lm"], rel=1e-6)
    for options in ({}, {"path": path, "lm": lm}):
        with pytest.raises(ConfigError, match="path="):
            LanguageModelScorer(**options)
    with pytest.raises(DataError, match="'c'"):
        of_file.bind(tokenizers.Characters("abc "), has_ctc=False)


def test_an_lstm_scores_every_hypothesis_as_the_pass_over_its_whole_sentence_does() -> None:
    torch.manual_seed(5)
    num_states = [2, 9, 4, 12, 1, 7]  # they leave the batch one by one
    lm = lstm.LSTMLanguageModel(5, cell=PlainLSTMCell, num_layers=2, hidden_size=8, embedding_size=4).eval()
    scorer = LanguageModelScorer(weight=0.7, lm=lm)
    with torch.no_grad():
        lm.output.weight.mul_(8)  # probabilities that differ much from one history to another
    for found in BeamSearch(4, 1.0, 4, lm=scorer)(ToyDecoder.random(2, num_states, 5), torch.tensor(num_states)):
        for each in found:
            with torch.no_grad():
                rows = torch.log_softmax(lm(torch.tensor([each.tokens], dtype=torch.long))[0], -1)
            alone = rows.gather(1, torch.tensor([*each.tokens, EOS]).unsqueeze(1)).sum()
            assert each.scores["lm"] == pytest.approx(float(alone), rel=1e-4)
            assert each.score == pytest.approx(each.scores["las"] + 0.7 * each.scores["lm"], rel=1e-6)


@pytest.mark.parametrize("place", ["search", "search@validation_search"])
def test_a_training_without_ctc_is_told_before_its_first_step(corpus: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="loss=joint_ctc"):
        train.train([*overrides(corpus)[:-1], "search@validation_search=greedy", f"{place}=beam_ctc"])
    assert not (corpus / "run" / "checkpoints").exists()


def endless(row: list[float], states: int) -> ToyDecoder:
    """The same probabilities whatever was said, attention on the last state."""
    table = torch.tensor(row, dtype=torch.float64).log().expand(1, 1009, -1)
    attention = torch.zeros(1, 1009, states, dtype=torch.float64)
    attention[..., -1] = 1
    return ToyDecoder(table, attention, table[:, :states])


def test_the_repetition_constraint_ends_a_loop() -> None:
    decoder = endless([0.01, 0.7, 0.29], 20)
    looping = BeamSearch(1)(decoder, torch.tensor([20]))[0][0]
    assert looping.tokens == [1] * 20 and looping.finished_by == "max_length"
    constrained = BeamSearch(1, repetition=RepetitionConstraint(4, 3))(decoder, torch.tensor([20]))[0][0].tokens
    text = "".join(map(str, constrained))
    assert constrained[:4] == [1, 1, 1, 2]
    for period in range(1, 5):
        assert not any(
            text[at : at + period] * 4 == text[at : at + 4 * period] for at in range(len(text) - 4 * period + 1)
        )


def test_constraints_give_way_where_nothing_else_is_possible() -> None:
    only_end = endless([1.0, 0.0, 0.0], 5)
    best = BeamSearch(2, min_length=MinLength(0.5))(only_end, torch.tensor([5]))[0][0]
    assert (best.tokens, best.finished_by, best.score) == ([], "eos", 0.0)
    only_one = endless([0.0, 1.0, 0.0], 5)
    best = BeamSearch(2, repetition=RepetitionConstraint(1, 2))(only_one, torch.tensor([5]))[0][0]
    assert (best.tokens, best.finished_by) == ([1] * 5, "dead_end")  # there is no way to end


STEP, ONE = SearchStep(torch.zeros(1, 1, 2), None), torch.tensor([1])
LETTERS = tokenizers.Characters("ab ")
IMPOSSIBLE = [
    (lambda: BeamSearch(size=0), ArgumentError, "size=0"),
    (lambda: BeamSearch(size=2, nbest=3), ArgumentError, "nbest=3"),
    (lambda: BeamSearch(length_normalisation=-1.0), ArgumentError, "length_normalisation"),
    (lambda: BeamSearch(max_length_ratio=0.0), ArgumentError, "max_length_ratio"),
    (lambda: GreedySearch(max_length_ratio=math.nan), ArgumentError, "max_length_ratio"),
    (lambda: GreedySearch(max_length=0), ArgumentError, "max_length"),
    (lambda: BeamSearch(sise=3), ArgumentError, "sise=3: "),
    (lambda: BeamSearch(lm=0.3), ArgumentError, r"lm=0\.3: .* constraint"),
    (lambda: BeamSearch(lmm=None), ArgumentError, "lmm=None: .* mean lm"),
    (lambda: BeamSearch(las=LengthReward(0.5)), ArgumentError, "las: "),
    (lambda: LanguageModelScorer("x", -0.1), ArgumentError, "weight"),
    (lambda: CTCPrefixScorer(1.0), ArgumentError, "weight"),
    (lambda: CTCPrefixScorer(math.nan), ArgumentError, "weight"),
    (lambda: LengthReward(math.inf), ArgumentError, "weight"),
    (lambda: CoverageReward(-1.0), ArgumentError, "weight"),
    (lambda: CoverageReward(1.0, 1.0), ArgumentError, "threshold"),
    (lambda: EndThreshold(0.0), ArgumentError, "factor"),
    (lambda: MinLength(-0.1), ArgumentError, "ratio"),
    (lambda: RepetitionConstraint(0), ArgumentError, "max_period"),
    (lambda: RepetitionConstraint(1, 0), ArgumentError, "max_repeats"),
    (lambda: WordNGramScorer(), ArgumentError, "path=None: .* words"),
    (lambda: WordNGramScorer("x", "y"), ArgumentError, "path.* words"),
    (lambda: WordNGramScorer("x", weight=-1.0), ArgumentError, "weight=-1"),
    (lambda: WordNGramScorer("x", oov_penalty=-1.0), ArgumentError, "oov_penalty=-1.0"),
    (lambda: HotWordBonus([]), ArgumentError, r"words=\[\]"),
    (lambda: HotWordBonus(["ab"]).on(None, ONE), ConfigError, "told the tokens"),
    (lambda: LexiconConstraint("x").on(None, ONE), ConfigError, "x: .* told the tokens"),
    (lambda: WordNGramScorer("x").on(None, ONE), ConfigError, "x: .* told the tokens"),
    (lambda: HotWordBonus(["AB"]).bind(LETTERS, False), DataError, "hot words: .* other case"),
    (lambda: HotWordBonus("/no/words").bind(LETTERS, False), DataError, "/no/words: cannot be read"),
    (lambda: LexiconConstraint("/no/words").bind(LETTERS, False), DataError, "/no/words: cannot be read"),
    (lambda: Scorer(1.0).on(None, ONE), TypeError, "must define on"),
    (lambda: Constraint().on(None, ONE), TypeError, "must define on"),
    (lambda: BatchScorer().score((), STEP), TypeError, "must define score"),
    (lambda: BatchConstraint().forbidden((), STEP), TypeError, "must define forbidden"),
    (lambda: CTCPrefixScorer(0.3).on(None, ONE), TypeError, "CTC"),
    (lambda: (part := CoverageReward().on(None, ONE)).score(part.start(), STEP), ConfigError, "attention"),
]


@pytest.mark.unchecked
@pytest.mark.parametrize(("call", "error", "says"), IMPOSSIBLE)
def test_what_cannot_work_is_named(call: Callable[[], object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def damaged_case(seed: int) -> tuple[BeamSearch, ToyDecoder, list[int], int]:
    """Any search over any decoder: no states, no way on, NaN, beams wider than the vocabulary, no end in sight."""
    generator = torch.Generator().manual_seed(seed)

    def pick(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    vocab, batch = pick(1, 2, 3, 5), pick(1, 2, 3)
    num_states = [pick(0, 1, 2, 4, 7) for _ in range(batch)]
    decoder = ToyDecoder.random(seed, num_states, vocab, max(1, *num_states) + pick(0, 0, 3))
    for tensor in (decoder.table, decoder.attention, decoder.heard):
        share, value = pick((0.0, 0.0), (0.3, -math.inf), (0.3, math.nan), (1.0, -math.inf), (1.0, math.nan))
        tensor[torch.rand(tensor.shape, generator=generator) < share] = value
    if pick(False, False, True):
        decoder.table[:, :, EOS] = -math.inf
    choice = Choice.of(pick(*SUBSETS), vocab)
    for name in ("lm", "second_lm"):
        if name in choice.options and pick(False, True):
            lm = ToyLM(seed, vocab)
            lm.table[torch.rand(lm.table.shape, generator=generator) < 0.3] = -math.inf
            choice.options[name].model = lm
    size = pick(1, 2, 8)
    ratio, longest = pick(0.5, 1.0), pick(None, 3)
    return BeamSearch(size, pick(0.0, 1.0), pick(1, size), ratio, longest, **choice.options), decoder, num_states, vocab


@pytest.mark.parametrize("seeds", rest_slow([range(150), range(150, 10_300)]))
def test_damaged_decoders_get_legal_hypotheses(seeds: range) -> None:
    for seed in seeds:
        search, decoder, num_states, vocab = damaged_case(seed)
        states = torch.tensor(num_states)
        found, limits = search(decoder, states), search.limits(states)
        greedy = GreedySearch(search.limits.ratio)
        for hypotheses, limit in zip(found, limits, strict=True):
            check_legal(hypotheses, limit, search.nbest, vocab)
        for hypotheses, limit in zip(greedy(decoder, states), greedy.limits(states), strict=True):
            check_legal(hypotheses, limit, 1, vocab)


def check_legal(hypotheses: list[Hypothesis], limit: int, nbest: int, vocab: int) -> None:
    assert 1 <= len(hypotheses) <= nbest
    assert len({tuple(each.tokens) for each in hypotheses}) == len(hypotheses)
    ranks = [each.normalised_score for each in hypotheses]
    assert ranks == sorted(ranks, reverse=True) and not any(map(math.isnan, ranks))
    for each in hypotheses:
        assert len(each.tokens) <= limit
        assert all(0 < token < vocab for token in each.tokens)
        assert (each.score == -math.inf) == (each.finished_by == "dead_end")
        assert len(each.confidences) == len(each.tokens) and each.scores.keys() >= {"las"}
