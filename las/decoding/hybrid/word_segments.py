"""Transcripts of segments of audio by a hybrid HMM: its words with the times of the best path."""

from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

from las.decoding.base import Hypothesis, WordSearch
from las.decoding.hybrid.word_spans import WordSpan
from las.decoding.transcription import NOTHING, SegmentTranscript
from las.decoding.word_timing import TimedToken, TimedWord
from las.hmm.segments import FrameTimes
from las.nn.acoustic_model import FrameScores


def transcripts(
    search: WordSearch,
    scores: FrameScores,
    num_frames: Int[Tensor, " batch"],
    times: FrameTimes,
    starts_s: Sequence[float],
    durations_s: Sequence[float],
) -> list[SegmentTranscript]:
    """The best words of each segment; a word is one token, its confidence the geometric mean of its states' posteriors.

    Args:
        search: prepared for the model's dictionary.
        scores: of a batch of segments.
        num_frames: frames of each.
        times: of the features' windows.
        starts_s, durations_s: where each segment begins in its audio, and how long it is, in seconds.
    """
    best = [hypotheses[0] for hypotheses in search(scores, num_frames)]
    spans = search.times(scores, num_frames, [each.tokens for each in best])
    return [
        _transcript(hypothesis, own, frames, times, start_s, duration_s)
        for hypothesis, own, frames, start_s, duration_s in zip(
            best, spans, num_frames.tolist(), starts_s, durations_s, strict=True
        )
    ]


def _transcript(
    hypothesis: Hypothesis,
    spans: Sequence[WordSpan],
    num_frames: int,
    times: FrameTimes,
    start_s: float,
    duration_s: float,
) -> SegmentTranscript:
    tokens = tuple(
        TimedToken(
            span.word,
            start_s + times.boundary_s(span.start, num_frames, duration_s),
            start_s + times.boundary_s(span.end, num_frames, duration_s),
            span.posterior,
        )
        for span in spans
    )
    words = tuple(TimedWord(token.symbol, (token,)) for token in tokens)
    return SegmentTranscript(tokens, words, hypothesis.score, hypothesis.finished_by, NOTHING)
