"""Transcribing while somebody speaks: what comes in pieces, and what the whole gives."""

import copy
import functools
import gc
import itertools
import math
import tracemalloc
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from parameters import moved
from torch import Tensor

import las
from las.decoding.ctc_stream import BestPath, PrefixBeam, StreamSearch, StreamState
from las.decoding.search import BeamSearch, GreedySearch
from las.decoding.transcription import TimedWord
from las.nn.ctc import CTCOutput
from las.nn.ctc_model import CTCDecoder, CTCModel
from las.nn.nested import tensors
from las.runtime.errors import ArgumentError, ConfigError, DataError, LasError, NumericalError

RATE, TOKENS = 8000, las.Characters("abcd ")
LISTENERS: dict[str, dict[str, Any]] = {
    "one direction": {"cls": las.Listener, "layer": las.UnidirectionalLayer, "lookahead": 2},
    "latency controlled": {"cls": las.LatencyControlledListener, "chunk": 16, "right_context": 8},
}


def log_probs_of(states: int, vocab: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(states, vocab, generator=generator, dtype=torch.float64)).log_softmax(-1)


def searched(search: StreamSearch, log_probs: Tensor) -> StreamState:
    return functools.reduce(search.step, log_probs, StreamState())


def collapsed(path: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(symbol for symbol, _ in itertools.groupby(path) if symbol)


@given(states=st.integers(1, 6), vocab=st.integers(2, 3), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_a_wide_beam_has_the_probabilities_of_all_alignments(states: int, vocab: int, seed: int) -> None:
    log_probs = log_probs_of(states, vocab, seed)
    total: dict[tuple[int, ...], float] = defaultdict(float)
    best: dict[tuple[int, ...], float] = defaultdict(float)
    rows = log_probs.tolist()
    for path in itertools.product(range(vocab), repeat=states):
        probability = math.exp(sum(row[symbol] for row, symbol in zip(rows, path, strict=True)))
        total[collapsed(path)] += probability
        best[collapsed(path)] = max(best[collapsed(path)], probability)
    state = searched(PrefixBeam(10_000), log_probs)
    assert {each.tokens: math.exp(each.score) for each in state.hypotheses} == pytest.approx(total, rel=1e-3)
    for each in state.hypotheses:
        assert math.exp(each.path.score) == pytest.approx(best[each.tokens])
        assert tuple(span.token for span in each.path.spans) == each.tokens
        borders = [border for span in each.path.spans for border in (span.start, span.end)]
        assert borders == sorted(borders) and all(span.start < span.end for span in each.path.spans)
    assert [each.score for each in state.hypotheses] == sorted((each.score for each in state.hypotheses), reverse=True)


def test_the_beam_finds_what_the_prefix_search_of_whole_utterances_finds() -> None:
    for seed in range(5):
        log_probs = log_probs_of(8, 4, seed)
        decoder = CTCDecoder(CTCOutput(log_probs.unsqueeze(0), torch.tensor([8])))
        ((expected,),) = BeamSearch(64, length_normalisation=0.0)(decoder, torch.tensor([8]))
        found = searched(PrefixBeam(2000), log_probs).hypotheses[0]
        assert list(found.tokens) == expected.tokens and found.score == pytest.approx(expected.score, rel=1e-3)


@given(states=st.integers(0, 30), seed=st.integers(0, 1000))
def test_the_best_path_is_the_collapsed_sequence_of_best_symbols(states: int, seed: int) -> None:
    log_probs = log_probs_of(states, 3, seed)
    (found,) = searched(BestPath(), log_probs).hypotheses
    assert found.tokens == collapsed(tuple(log_probs.argmax(-1).tolist()))
    for span in found.path.spans:
        assert (log_probs[span.start : span.end].argmax(-1) == span.token).all()
        assert span.probability == pytest.approx(float(log_probs[span.start : span.end, span.token].max().exp()))


@functools.cache
def model_of(kind: str) -> CTCModel:
    """A model that nobody trained, but which writes: noise as words, silence as blanks."""
    torch.manual_seed(10)
    options = dict(LISTENERS[kind])
    made = functools.partial(options.pop("cls"), cell=las.PlainLSTMCell, hidden_size=16, **options)
    features = functools.partial(las.LogMel, num_mels=8)
    model = CTCModel(RATE, TOKENS.size, features=features, listener=made, ctc=las.CTC).eval()
    moved(model.listener, 0.35)
    model.features.mean.fill_(-6.0)
    model.features.deviation.fill_(3.0)
    with torch.no_grad():
        output = model.ctc.output
        silence, _ = model.encode(torch.zeros(1, 5 * RATE), torch.tensor([5 * RATE]))
        output.weight.mul_(30.0)
        output.bias.copy_(-output.weight @ silence[0, -50:-10].mean(0))
        output.bias[0] += 8.0
    return model


def transcriber_of(kind: str, search: GreedySearch | BeamSearch | None = None) -> las.Transcriber:
    return las.Transcriber(model_of(kind), TOKENS, RATE, search or GreedySearch(), {})


def speech(seconds: float) -> Tensor:
    """Noise whose loudness and colour change five times a second."""
    generator = torch.Generator().manual_seed(7)
    samples = torch.randn(round(seconds * RATE), generator=generator)
    shape = torch.rand(round(5 * seconds) + 1, generator=generator).repeat_interleave(RATE // 5)
    colour = torch.rand(round(5 * seconds) + 1, generator=generator).repeat_interleave(RATE // 5)
    filtered = samples + 0.9 * torch.roll(samples, 1) * torch.cos(7 * colour[: len(samples)])
    return 0.3 * shape[: len(samples)] ** 3 * filtered


def heard(stream: las.Stream, pieces: list[Tensor]) -> tuple[list[TimedWord], list[tuple[str, ...]]]:
    """All final words, and the texts of final and pending words after each piece."""
    final: list[TimedWord] = []
    shown: list[tuple[str, ...]] = []
    for piece in pieces:
        result = stream.feed(piece)
        final += result.final
        shown.append(tuple(word.text for word in (*final, *result.pending)))
    result = stream.finish()
    assert result.pending == ()
    return [*final, *result.final], shown


def assert_same_words(actual: list[TimedWord], expected: list[TimedWord]) -> None:
    assert [word.text for word in actual] == [word.text for word in expected]
    for one, other in zip(actual, expected, strict=True):
        assert (one.start_s, one.end_s) == pytest.approx((other.start_s, other.end_s))
        assert one.confidence == pytest.approx(other.confidence, rel=1e-2)


@pytest.mark.parametrize("kind", LISTENERS)
@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(4)], ids=["greedy", "beam"])
@given(
    sizes=st.lists(st.integers(0, 9000), max_size=25), pause_s=st.sampled_from([0.2, 0.8]), length=st.integers(-99, 0)
)
@settings(max_examples=4)
def test_the_words_of_pieces_are_those_of_the_whole(
    kind: str, search: GreedySearch | BeamSearch, sizes: list[int], pause_s: float, length: int
) -> None:
    samples = torch.cat([speech(2.0), torch.zeros(RATE), speech(1.5), torch.zeros(2 * RATE), speech(1.0)[:length]])
    stream = functools.partial(las.Stream, transcriber_of(kind, search), pause_s=pause_s)
    whole, _ = heard(stream(), [samples])
    borders = [min(border, len(samples)) for border in itertools.accumulate(sizes, initial=0)]
    pieces = [samples[a:b] for a, b in itertools.pairwise([*borders, len(samples)])]
    in_pieces, shown = heard(stream(), pieces)
    assert len(whole) > 3
    assert_same_words(in_pieces, whole)
    for texts in shown:  # final words stay as they were: what is shown changes behind them alone
        assert len(texts) <= len(whole) + 3


def test_a_final_word_never_changes_and_a_pause_makes_all_final() -> None:
    samples = torch.cat([speech(2.0), torch.zeros(2 * RATE)])
    stream, final = las.Stream(transcriber_of("one direction", BeamSearch(8))), []
    was_pending = False
    for piece in samples.split(400):
        result = stream.feed(piece)
        final += result.final
        was_pending |= bool(result.pending)
        assert all(one.end_s <= other.start_s for one, other in itertools.pairwise([*final, *result.pending]))
    assert was_pending and final and result.pending == ()
    assert stream.finish().pending == () and stream.finish() == ((), ()) and stream.heard_s == 4.0


def test_greedy_words_are_the_best_path_of_the_model() -> None:
    samples, transcriber = speech(3.0), transcriber_of("latency controlled")
    with torch.no_grad():
        log_probs, _ = model_of("latency controlled")(samples.unsqueeze(0), torch.tensor([len(samples)]))
    text = TOKENS.decode(collapsed(tuple(log_probs[0].argmax(-1).tolist())))
    words, _ = heard(las.Stream(transcriber, pause_s=60.0), list(samples.split(999)))
    assert [word.text for word in words] == text.split()


def test_other_rates_channels_and_types_are_heard_as_a_file_of_them_is() -> None:
    samples = speech(2.0)
    transcriber = transcriber_of("one direction")
    expected, _ = heard(las.Stream(transcriber), [samples])
    stereo = torch.stack([samples, samples])
    assert_same_words(heard(las.Stream(transcriber), list(stereo.split(777, dim=1)))[0], expected)
    whole = (32768 * samples).short().numpy()
    integers = [las.Stream(transcriber).feed(whole), heard(las.Stream(transcriber), np.array_split(whole, 9))[0]]
    assert len(integers[1]) > 0
    doubled = np.repeat(whole, 2)
    one, other = (las.Stream(transcriber, sample_rate=2 * RATE) for _ in range(2))
    assert_same_words(heard(one, np.array_split(doubled, 13))[0], heard(other, [doubled])[0])


def test_silence_takes_no_memory() -> None:
    stream = las.Stream(transcriber_of("one direction", BeamSearch(4)))
    second, held = torch.zeros(RATE), []
    stream.feed(speech(2.0))
    tracemalloc.start()
    try:
        for _ in range(4):
            for _ in range(8):
                stream.feed(second)
            of_state = sum(part.untyped_storage().nbytes() for part in tensors(_tuples(stream._encoding)))
            held.append((of_state, len(stream._searching.hypotheses)))
            gc.collect()
            own = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/las/decoding/*")])
            held[-1] += (sum(each.size for each in own.statistics("filename")),)
    finally:
        tracemalloc.stop()
    assert held[1][:2] == held[2][:2] == held[3][:2]
    assert held[3][2] < 1.5 * held[1][2] + 1000
    assert stream.heard_s == 34.0 and stream.feed(second) == ((), ())


def _tuples(state: Any) -> Any:
    """The tensors of a state in nested lists and tuples, without its numbers."""
    if isinstance(state, (list, tuple)):
        return tuple(_tuples(part) for part in state if isinstance(part, (list, tuple, Tensor)))
    return state


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((torch.zeros(10), 16000), ArgumentError, "16000 .*8000.* sample_rate=16000"),
        ((torch.full((10,), math.nan),), DataError, "not finite"),
        ((torch.zeros(2, 3, 4),), DataError, "shape"),
        ((torch.zeros(10, dtype=torch.uint8),), DataError, "uint8"),
    ],
)
def test_samples_that_do_not_go_on_are_refused(given: tuple[Any, ...], error: type[LasError], says: str) -> None:
    stream = las.Stream(transcriber_of("one direction"))
    stream.feed(torch.zeros(10), RATE)
    with pytest.raises(error, match=says):
        stream.feed(*given)
    stream.finish()
    with pytest.raises(ArgumentError, match="finish"):
        stream.feed(torch.zeros(10))


def test_models_and_searches_that_cannot_stream_say_what_can() -> None:
    transcriber = transcriber_of("one direction", BeamSearch(4, length_reward=las.LengthReward(0.5)))
    with pytest.raises(ConfigError, match=r"length_reward .* search=greedy"):
        las.Stream(transcriber)
    waits = CTCModel(
        RATE,
        TOKENS.size,
        features=las.LogMel,
        listener=functools.partial(las.Listener, cell=las.PlainLSTMCell),
        ctc=las.CTC,
    )
    with pytest.raises(ConfigError, match="layer=unidirectional"):
        las.Stream(las.Transcriber(waits, TOKENS, RATE, GreedySearch(), {}))
    waits.ctc = None
    with pytest.raises(ConfigError, match="CTC"):
        las.Stream(las.Transcriber(waits, TOKENS, RATE, GreedySearch(), {}))
    broken = transcriber_of("one direction")
    broken.model = moved(copy.deepcopy(broken.model), math.nan)
    with pytest.raises(NumericalError, match="NaN"):
        las.Stream(broken).feed(torch.zeros(RATE))


@functools.cache
def speller_of(chunk_size: int, seed: int = 8, end: float = -2.0) -> las.ListenAttendSpell:
    """A model that nobody trained, whose monotonic attention stops now and then; `end` is the bias of the end."""
    torch.manual_seed(seed)
    listener = functools.partial(las.Listener, cell=las.PlainLSTMCell, layer=las.UnidirectionalLayer, hidden_size=16)
    attention = functools.partial(las.MonotonicChunkwiseAttention, key_size=8, chunk_size=chunk_size)
    speller = functools.partial(las.Speller, cell=las.PlainLSTMCell, attention=attention, hidden_size=12)
    features = functools.partial(las.LogMel, num_mels=8)
    model = las.ListenAttendSpell(RATE, TOKENS.size, features=features, listener=listener, speller=speller)
    moved(model, 0.5).features.mean.fill_(-6.0)
    model.features.deviation.fill_(3.0)
    with torch.no_grad():
        stop, samples = model.speller.attention.stop, speech(3.0)
        stop.gain.fill_(20.0)
        stop.query.weight.mul_(0.3)
        encoded, _ = model.eval().encode(samples.unsqueeze(0), torch.tensor([len(samples)]))
        energy = stop.energy(torch.zeros(1, 1, 12), stop.prepare_keys(encoded), encoded[..., 0].unsqueeze(1))
        stop.offset.sub_(energy.quantile(0.8))
        model.speller.output.weight.mul_(6.0)
        model.speller.output.bias[0] = end
    return model.eval()


def attending(chunk_size: int, search: GreedySearch | BeamSearch, **options: Any) -> las.Transcriber:
    return las.Transcriber(speller_of(chunk_size, **options), TOKENS, RATE, search, {})


@pytest.mark.parametrize("chunk_size", [1, 4])
@given(sizes=st.lists(st.integers(0, 6000), max_size=15), pause_s=st.sampled_from([0.2, 60.0]))
@settings(max_examples=3)
def test_attention_hears_pieces_as_the_whole(chunk_size: int, sizes: list[int], pause_s: float) -> None:
    samples = torch.cat([speech(2.0), torch.zeros(RATE), speech(1.5)])
    stream = functools.partial(las.Stream, attending(chunk_size, GreedySearch()), pause_s=pause_s)
    whole, _ = heard(stream(), [samples])
    borders = [min(border, len(samples)) for border in itertools.accumulate(sizes, initial=0)]
    in_pieces, _ = heard(stream(), [samples[a:b] for a, b in itertools.pairwise([*borders, len(samples)])])
    assert len(whole) > 3
    assert_same_words(in_pieces, whole)


@pytest.mark.parametrize("chunk_size", [1, 4])
def test_attention_writes_what_greedy_search_over_the_whole_writes_at_its_stops(chunk_size: int) -> None:
    samples, search = speech(3.0), GreedySearch(5.0)
    stream = las.Stream(attending(chunk_size, search, seed=1, end=-99.0))
    model = stream.model
    with torch.no_grad():
        decoder, num_states = model.search_inputs(samples.unsqueeze(0), torch.tensor([len(samples)]))
        ((best,),) = search(decoder, num_states)
        weights = model.spell(decoder, torch.tensor([best.tokens]), [len(best.tokens)]).weights[0]
    stops = [int(row.nonzero().max()) for row in weights[:-1] if row.any()]
    spans = functools.reduce(stream.search.step, stream._encode(samples, is_last=True), StreamState()).hypotheses[0]
    assert [(span.token, span.start) for span in spans.path.spans] == [*zip(best.tokens, stops, strict=False)]
    assert len(stops) < len(best.tokens) and 3 < len({*stops}) < len(stops)


def test_attention_needs_no_memory_for_silence_but_ctc_for_a_beam() -> None:
    stream = las.Stream(attending(4, GreedySearch(), seed=2))
    with torch.no_grad():
        stream.model.speller.attention.stop.offset.fill_(-99.0)
    for _ in range(5):
        assert stream.feed(torch.zeros(RATE)) == ((), ())
    assert stream._searching.carried is None or len(stream._searching.carried.window) <= 4
    with pytest.raises(ConfigError, match="CTC"):
        las.Stream(attending(4, BeamSearch(4)))
