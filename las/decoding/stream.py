"""Transcription while somebody speaks: samples in as they come, words out as soon as they are known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from las.config.build import require
from las.data.audio.streaming import Recording, Resampler
from las.decoding import transcription
from las.decoding.attention_stream import AttentionPath
from las.decoding.ctc_stream import BestPath, PrefixBeam, StreamSearch, StreamState, TokenSpan, token_spans
from las.decoding.evaluation import Search
from las.decoding.search import BeamSearch, GreedySearch
from las.decoding.transcriber import Transcriber, load
from las.decoding.transcription import TimedToken, TimedWord
from las.nn.attention.mocha import MonotonicChunkwiseAttention
from las.nn.kernels.cpp.prepacked import PrepackedWeights
from las.nn.model import SpeechModel
from las.nn.speller import Speller
from las.runtime.errors import ArgumentError, ConfigError, NumericalError

BLOCK_S = 10.0
"""Seconds of samples that are computed together, at most: it bounds memory, and changes no result."""
MOST_PENDING = 200
"""Tokens that may be pending: then the best hypothesis is taken, as in a pause."""


class StreamResult(NamedTuple):
    """What a piece of a stream brought: `final` words, which are new and never change, and `pending` ones, which are
    all that are known behind them and may change. In a pause and at the end, none are pending.
    """

    final: tuple[TimedWord, ...]
    pending: tuple[TimedWord, ...]

    @property
    def text(self) -> str:
        return " ".join(word.text for word in (*self.final, *self.pending))


class Stream:
    """A transcription of one stream of samples by the CTC of a model whose listener does not wait for the end.

    The search is that of the transcriber: greedy, the best path; a beam, the most probable hypotheses of that number,
    without other scorers. With monotonic chunkwise attention, greedy search is the speller's, and needs no CTC.

    A token is final when all hypotheses in the beam begin with it; a word is final when its tokens are, and a token of
    the next word is. A pause makes all words final: after `pause_s` in which the blank was the most probable symbol of
    every state, or the attention did not stop, the best hypothesis is taken and the search begins anew, which also ends
    a word; the end of a sentence by the speller does the same. So results do not depend on how the samples were cut,
    and silence takes no memory.

    Args:
        transcriber: as `las.load` makes one, or what it is made from: a run folder, a checkpoint, a bundle or a name.
        sample_rate: of the samples that will be given, in Hz; the model's own by default.
        pause_s: seconds of blanks that end a phrase.

    Raises ConfigError for a model without CTC, one that waits for the end of an utterance, and a search with scorers.

    >>> import functools, las, torch
    >>> model = las.CTCModel(  # or las.load("runs/...")
    ...     16000,
    ...     5,
    ...     features=las.LogMel,
    ...     listener=functools.partial(las.Listener, cell=las.PlainLSTMCell, layer=las.UnidirectionalLayer),
    ...     ctc=las.CTC,
    ... )
    >>> stream = las.Stream(las.Transcriber(model, las.Characters("abc "), 16000, las.GreedySearch(), {}))
    >>> for samples in torch.randn(10, 1600):  # a tenth of a second each
    ...     final, pending = stream.feed(samples)
    ...
    >>> stream.finish().pending, stream.heard_s
    ((), 1.0)
    """

    def __init__(
        self, transcriber: Transcriber | str | Path, *, sample_rate: int | None = None, pause_s: float = 0.8
    ) -> None:
        require("pause_s", pause_s, 0.1)
        self.transcriber = transcriber if isinstance(transcriber, Transcriber) else load(transcriber, "greedy")
        self.model: SpeechModel = self.transcriber.model
        self._weights = PrepackedWeights(self.model)
        self.sample_rate = self.transcriber.sample_rate if sample_rate is None else sample_rate
        require("sample_rate", self.sample_rate, 1)
        self.search = stream_search(self.transcriber.search, self.model)
        if self.search.reads_ctc and self.model.ctc is None:
            raise ConfigError(
                f"this {type(self.model).__name__} has no CTC, which results while somebody speaks come from: train "
                "with model=ctc_small_unidirectional, or loss=joint_ctc and a listener that does not wait"
            )
        self.num_pause_states = max(round(1000 * pause_s / self.model.state_ms), 1)
        self.num_heard = 0
        self._resampler = Resampler(self.sample_rate, self.transcriber.sample_rate)
        self._encoding: Any = None
        self._searching, self._num_final = StreamState(), 0
        self._is_finished = False
        self._encode(torch.zeros(0))  # raises for a model that waits

    @property
    def heard_s(self) -> float:
        """Seconds of audio that were given."""
        return self.num_heard / self.sample_rate

    def feed(self, samples: np.ndarray | Tensor, sample_rate: int | None = None) -> StreamResult:
        """Return what the next samples bring.

        Args:
            samples: any number, none too, [samples] or [channels, samples], whose mean is heard; amplitudes in [-1, 1]
                or whole numbers (int16, int32).
            sample_rate: of these samples, for a caller whose source may change it.

        Raises ArgumentError after `finish` and for another rate than before, DataError for samples of another shape or
        type and such that are not finite.
        """
        if self._is_finished:
            raise ArgumentError("samples after finish(): the next stream is another las.Stream(transcriber)")
        if sample_rate not in (None, self.sample_rate):
            raise ArgumentError(
                f"sample_rate={sample_rate} after {self.sample_rate}: finish() this stream, and go on with "
                f"las.Stream(transcriber, sample_rate={sample_rate})"
            )
        name = f"the samples at {self.heard_s:.1f} s"
        _, blocks = Recording(samples, self.sample_rate, name).blocks(self.sample_rate)
        final: list[TimedWord] = []
        for block in blocks:
            for part in block.split(round(BLOCK_S * self.sample_rate)):
                self.num_heard += len(part)
                final += self._hear(self._resampler.take(part))
        return self._result(final)

    def finish(self) -> StreamResult:
        """Return the last words: there are no more samples. A window or a chunk that is not complete is heard, too."""
        final: list[TimedWord] = []
        if not self._is_finished:
            final = [*self._hear(self._resampler.rest()), *self._hear(torch.zeros(0), is_last=True), *self._rest()]
            self._is_finished = True
        return self._result(final)

    def _result(self, final: Sequence[TimedWord]) -> StreamResult:
        return StreamResult(tuple(final), tuple(self._words(token_spans(self._searching))))

    @torch.no_grad()
    def _encode(self, samples: Tensor, is_last: bool = False) -> Tensor:
        """Return what the search reads of the states that the next samples complete, a row for each."""
        piece = samples.to(self.model.device).unsqueeze(0)
        with self._weights.used():
            encoded, self._encoding = self.model.encode_piece(piece, self._encoding, is_last)
        rows: Tensor = encoded[0]
        if self.search.reads_ctc:
            assert self.model.ctc is not None
            rows = self.model.ctc(encoded)[0].cpu()
        if rows.isnan().any():
            raise NumericalError(
                f"{self.heard_s:.1f} s: the model's scores are not numbers (NaN): its parameters are broken or too "
                "large. Take another checkpoint, or train again with a lower optim.lr"
            )
        return rows

    def _hear(self, samples: Tensor, is_last: bool = False) -> list[TimedWord]:
        """Search the states that the next samples complete; returns the words that are final by them."""
        final: list[TimedWord] = []
        for row in self._encode(samples, is_last):
            self._searching = searching = self.search.step(self._searching, row)
            spans = token_spans(searching)
            is_pause = searching.has_ended or searching.num_blank >= self.num_pause_states
            if is_pause or len(spans) > MOST_PENDING:
                final += self._rest()
            elif (agreed := searching.num_final) > self._num_final:
                self._num_final = agreed
                words = self._words(spans[:agreed])
                if len(words) > 1:
                    ids, decode = [span.token for span in spans], self.transcriber.tokens.decode
                    count = next(
                        count for count in range(agreed) if len(decode(ids[: count + 1]).split()) == len(words)
                    )
                    final += words[:-1]
                    self._searching, self._num_final = self._searching.dropped(count), agreed - count
        return final

    def _rest(self) -> list[TimedWord]:
        """Take the best hypothesis, and let the search begin anew."""
        words = self._words(token_spans(self._searching))
        self._searching, self._num_final = self._searching.restarted(), 0
        return words

    def _words(self, spans: Sequence[TokenSpan]) -> list[TimedWord]:
        tokens, state_s = self.transcriber.tokens, self.model.state_ms / 1000
        timed = [
            TimedToken(tokens.symbols[span.token], span.start * state_s, span.end * state_s, span.probability)
            for span in spans
        ]
        return transcription.of_tokens(timed, [span.token for span in spans], tokens)


def stream_search(search: Search, model: SpeechModel) -> StreamSearch:
    """Return the search state by state that belongs to one over whole utterances. Raises ConfigError without one."""
    if isinstance(search, GreedySearch):
        speller = getattr(model, "speller", None)
        if isinstance(speller, Speller) and isinstance(speller.attention, MonotonicChunkwiseAttention):
            return AttentionPath(speller, speller.attention, search.limits)
        return BestPath()
    if isinstance(search, BeamSearch):
        others = {*search.components.scorers, *search.components.constraints} - {"ctc"}
        if not others:
            return PrefixBeam(search.size)
        raise ConfigError(
            f"search: {', '.join(sorted(others))} cannot score a stream yet, whose search is of CTC alone: choose "
            "search=greedy or search=ctc"
        )
    raise ConfigError(f"search: a {type(search).__name__} reads whole utterances: choose search=greedy or search=ctc")
