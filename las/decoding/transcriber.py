"""Transcription of audio files with a trained checkpoint."""

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from las.config import tracebacks
from las.config.build import Config, build
from las.config.groups import check_names
from las.data import tokenizers
from las.data.audio import streaming
from las.data.audio.streaming import AudioSegment, Channel, Recording, Segmenter
from las.data.loader import Batch
from las.decoding import evaluation, transcription, tuned_search
from las.decoding.base import Hypothesis, WordSearch, prepare, require_search, tokens_of
from las.decoding.evaluation import Search
from las.decoding.hybrid import word_times
from las.decoding.search import require_finite_scores, resized
from las.decoding.transcription import Audio, SegmentTranscript, TimedToken, TimedWord, Transcription
from las.hmm import lexicon as hmm_lexicon
from las.hmm import tying
from las.hmm.segments import FrameTimes
from las.hmm.topology import Topology
from las.hmm.tying import TiedStates
from las.nn.ensemble import Ensemble
from las.nn.kernels.cpp.prepacked import PrepackedWeights
from las.nn.model import ListenAttendSpell, SpeechModel
from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, StorageError
from las.runtime.precision import operand_type
from las.storage import checkpoint, pretrained


class TrainedModel(NamedTuple):
    """A model of a checkpoint, and what it was trained for; `lexicon` is None where its texts are not words of one."""

    model: SpeechModel
    tokens: tokenizers.Tokenizer
    sample_rate: int
    lexicon: hmm_lexicon.Lexicon | None
    tied: TiedStates | None
    """Tied states of triphones that the model knows; None for those of phones, and for tokens."""
    config: Config


class Transcriber:
    """A trained model with its tokenizer and a search; `las.load` makes one from a run folder.

    Files may have any sample rate and number of channels; long ones are transcribed in segments, which
    `cutter` makes, given the sample rate.

    >>> import las
    >>> transcriber = las.load("run", search=las.BeamSearch(4))
    >>> transcriber.transcribe("audio.wav").text
    'sil aa iy sil'
    """

    def __init__(
        self,
        model: SpeechModel,
        tokens: tokenizers.Tokenizer,
        sample_rate: int,
        search: Search,
        config: Config,
        cutter: Callable[[int], Segmenter] = Segmenter,
    ) -> None:
        self.model, self.tokens, self.sample_rate = model.eval(), tokens, sample_rate
        self.search, self.config, self._cutter = search, config, cutter
        self.weights = PrepackedWeights(self.model)
        self.temperature = 1.0  # of confidences of words in `recognise`

    @functools.cached_property
    def cutter(self) -> Segmenter:
        """The segmenter of long audio."""
        return self._cutter(self.sample_rate)

    @property
    def attention_model(self) -> ListenAttendSpell:
        """The model, where it has attention. Raises ConfigError for another one."""
        if not isinstance(self.model, ListenAttendSpell):
            raise ConfigError(
                f"this {type(self.model).__name__} has no attention, which pictures and the times and confidences of "
                "recordings come from: it decodes splits of its corpus, las decode checkpoint=... split=test"
            )
        return self.model

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"Transcriber({self.config.get('name', 'a model')}: {parameters:,} parameters on {self.model.device}, "
            f"{self.sample_rate:,} Hz, {self.tokens!r}, {self.search!r})"
        )

    @overload
    def transcribe(  # type: ignore[overload-overlap] # a str is a path, although it is a sequence of str as well
        self,
        audio: Audio,
        channel: Channel = streaming.MIX,
        *,
        sample_rate: int | None = None,
        beam_size: int | None = None,
    ) -> Transcription: ...

    @overload
    def transcribe(
        self,
        audio: Sequence[Audio],
        channel: Channel = streaming.MIX,
        *,
        sample_rate: int | None = None,
        beam_size: int | None = None,
    ) -> list[Transcription]: ...

    def transcribe(
        self,
        audio: Audio | Sequence[Audio],
        channel: Channel = streaming.MIX,
        *,
        sample_rate: int | None = None,
        beam_size: int | None = None,
    ) -> Transcription | list[Transcription]:
        """Return the text of a file or of samples, or of each one of a list, all decoded together.

        Args:
            audio: the path of an audio file, or a file object (`open("x.wav", "rb")`, `io.BytesIO`); or a NumPy array
                or tensor [samples] or [channels, samples], amplitudes in [-1, 1] or whole numbers (int16, int32); or a
                list of them.
            channel: a number counted from 0, or the mean of all.
            sample_rate: of arrays and tensors, in Hz, any; files know theirs.
            beam_size: hypotheses of a beam search, in place of the search's own number or of a greedy search.

        Raises DataError naming the file (`audio0`, `audio1` ... are arrays and file objects without a name) when it
        cannot be read or is shorter than one analysis window, ArgumentError for samples without a rate, a rate without
        samples, a file that is open as text, and a beam size where the search has none.

        >>> import las, soundfile
        >>> transcriber = las.load("run")
        >>> samples, rate = soundfile.read("audio.wav")
        >>> samples.shape, rate
        ((4800,), 16000)
        >>> [each.text for each in transcriber.transcribe([samples, samples], sample_rate=rate)]
        ['sil aa iy sil', 'sil aa iy sil']
        """
        several = list(audio) if isinstance(audio, (list, tuple)) else [cast(Audio, audio)]
        transcriber = copy.copy(self)
        if beam_size is not None:
            transcriber.search = resized(self.search, beam_size)
        with transcription.opened(several, sample_rate) as files:
            try:
                transcriptions = list(transcriber.transcribe_all(files.audio, channel))
            except DataError as error:
                raise DataError(files.display(str(error)), error.kind) from error
        named = [replace(each, id=files.display(each.id)) for each in transcriptions]
        return named if isinstance(audio, (list, tuple)) else named[0]

    def transcribe_all(
        self,
        paths: Iterable[str | Path | Recording],
        channel: Channel = streaming.MIX,
        batch_size: int = 8,
        failed: Callable[[DataError], None] | None = None,
        on_decoded: Callable[[float], None] = lambda seconds: None,
        keep: Callable[[SegmentTranscript], SegmentTranscript] = lambda piece: piece,
    ) -> Iterator[Transcription]:
        """Transcribe files; yields their transcriptions in order. A batch has `batch_size` segments, of any files.

        `failed` is called with the error of a file that cannot be read, which is then left out; without it the error is
        raised. `on_decoded` is called after every batch with the seconds of audio decoded. `keep` maps each segment's
        transcript to the one to store: `SegmentTranscript.outline` for long audio whose attention is not needed.
        """
        files: deque[_File] = deque()
        waiting: list[tuple[_File, AudioSegment]] = []
        for path in paths:
            file = _File(path.name if isinstance(path, Recording) else str(path), channel, keep)
            files.append(file)
            try:
                for piece in self._pieces(file, path, channel):
                    waiting.append((file, piece))
                    if len(waiting) == batch_size:
                        yield from self._completed(files, waiting, on_decoded)
                        waiting = []
            except DataError as error:
                if failed is None:
                    raise
                failed(error)
                files.remove(file)
                waiting = [each for each in waiting if each[0] is not file]
            file.is_read = True
        yield from self._completed(files, waiting, on_decoded)

    def recognise(self, batches: Iterable[tuple[int, Batch]]) -> Iterator[dict[str, Any]]:
        """Decode batches of utterances; yields `evaluation.entry` of each."""
        for decoded in evaluation.decode(self.model, self.search, batches, self.weights):
            yield evaluation.entry(decoded, self.tokens, self.search.nbest, self.temperature)

    def _pieces(self, file: "_File", path: str | Path | Recording, channel: Channel) -> Iterator[AudioSegment]:
        if isinstance(path, Recording):
            file.duration_s, blocks = path.blocks(self.sample_rate, channel)
        else:
            info, blocks = streaming.open_blocks(path, self.sample_rate, channel)
            file.duration_s = info.duration_s
        window = self.model.features.frame_length
        for piece in self.cutter(blocks):
            if len(piece.samples) < window:
                raise DataError(
                    f"{file.name}: {file.duration_s:.4f} s is shorter than one analysis window "
                    f"({window / self.sample_rate:.3f} s)",
                    kind="too short",
                )
            file.expected += 1
            yield piece

    def _completed(
        self,
        files: "deque[_File]",
        waiting: Sequence[tuple["_File", AudioSegment]],
        on_decoded: Callable[[float], None],
    ) -> Iterator[Transcription]:
        """Decode segments of audio, silent ones apart, and give each transcript to its file; yields the transcriptions
        of the files at the front of the queue that are complete, and removes them.
        """
        not_silent = [piece for _, piece in waiting if not self.cutter.is_silent(piece.samples)]
        with self.weights.used():
            found = self.decode([piece.samples for piece in not_silent], [piece.start_s for piece in not_silent])
        transcripts = iter(found)
        decoded = {id(piece) for piece in not_silent}
        for file, piece in waiting:
            file.take(piece, next(transcripts) if id(piece) in decoded else None)
        on_decoded(sum((piece.core_end_s - piece.core_start_s for _, piece in waiting), 0.0))
        while files and files[0].is_read and files[0].num_taken == files[0].expected:
            yield files.popleft().transcription(self.model.state_ms)

    @torch.no_grad()
    def decode(self, waveforms: Sequence[Tensor], starts_s: Sequence[float]) -> list[SegmentTranscript]:
        """Decode waveforms, each [samples] at the model's sample rate, as one batch; `starts_s` in seconds.

        Raises ConfigError for an acoustic model of phones, which has no times.
        """
        if not waveforms:
            return []
        device = self.model.device
        num_samples = torch.tensor([len(waveform) for waveform in waveforms])
        inputs, num_states = self.model.search_inputs(pad_sequence(list(waveforms), True).to(device), num_samples)
        if isinstance(self.search, WordSearch):
            heads = [hypotheses[0] for hypotheses in self.search(inputs, num_states)]
            spans = self.search.times(inputs, num_states, [each.tokens for each in heads])
            durations_s = [len(each) / self.sample_rate for each in waveforms]
            times = FrameTimes.of(self.model.features)
            return word_times.transcripts(heads, spans, num_states, times, starts_s, durations_s)
        nbest_lists, names = self.search(inputs, num_states), [f"the audio at {each:.1f} s" for each in starts_s]
        require_finite_scores(inputs, num_states, names, nbest_lists)
        best: list[Hypothesis] = [hypotheses[0] for hypotheses in nbest_lists]
        targets = pad_sequence([torch.tensor(each.tokens, dtype=torch.long) for each in best], True).to(device)
        spelling = self.model.spell(inputs, targets, [len(each.tokens) for each in best])
        log_probs = torch.log_softmax(spelling.logits[:, :-1], -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        return [
            self._transcript(
                each,
                weights=spelling.weights[row, : len(each.tokens) + 1, : int(num_states[row])].cpu(),
                confidences=log_probs[row, : len(each.tokens)].exp().tolist(),
                start_s=starts_s[row],
                duration_s=len(waveforms[row]) / self.sample_rate,
            )
            for row, each in enumerate(best)
        ]

    def _transcript(
        self, best: Hypothesis, weights: Tensor, confidences: list[float], start_s: float, duration_s: float
    ) -> SegmentTranscript:
        times = self.model.token_times(weights, duration_s)
        timed = tuple(
            TimedToken(self.tokens.symbols[token], start_s + begin, start_s + end, confidence)
            for token, (begin, end), confidence in zip(best.tokens, times, confidences, strict=True)
        )
        words = tuple(transcription.of_tokens(timed, best.tokens, self.tokens))
        return SegmentTranscript(timed, words, best.score, best.finished_by, weights.half())


class _File:
    """The transcription of a file under construction."""

    def __init__(self, name: str, channel: Channel, keep: Callable[[SegmentTranscript], SegmentTranscript]) -> None:
        self.name, self.channel, self.keep = name, channel, keep
        self.duration_s = 0.0
        self.expected, self.is_read = 0, False
        self.num_taken = 0
        self.words: list[TimedWord] = []
        self.transcripts: list[SegmentTranscript] = []

    def take(self, piece: AudioSegment, transcript: SegmentTranscript | None) -> None:
        """Add the next segment; the transcript of a silent one is None."""
        self.num_taken += 1
        if transcript is None:
            return
        self.transcripts.append(self.keep(transcript))
        self.words = transcription.stitch(
            self.words, transcript.words, piece.core_start_s, piece.core_start_s - piece.start_s
        )

    def transcription(self, state_ms: float) -> Transcription:
        return Transcription(
            self.name, self.duration_s, tuple(self.words), tuple(self.transcripts), state_ms, self.channel
        )


def load(
    path: str | Path,
    search: Search | str | None = None,
    device: str = "cpu",
    cutter: Callable[[int], Segmenter] = Segmenter,
    strict: bool = False,
    precision: str = "fp32",
    ensemble: str | Sequence[str | Path] = (),
    ensemble_mean: str = "linear",
) -> Transcriber:
    """Load a transcriber from a run folder (its best checkpoint), a checkpoint directory, a bundle or by a name.

    Names are those of pretrained models (`las models`). The models of an `ensemble` of further ones, of the same
    symbols, are averaged with it (`las.nn.ensemble`).

    `search` is the run's own unless given: a search, or an option of `configs/search` by its name (`greedy`, `beam`,
    `tuned` for the one that `las tune` found for the run); `cutter` makes the segmenter of long audio from the model's
    sample rate.
    With `precision="bf16"` the listener multiplies matrices in bfloat16.
    If the best checkpoint is damaged, the newest undamaged one is loaded, and a line says so; `strict` raises instead.
    Raises StorageError when no checkpoint there can be read, ConfigError when its config names a class that is not
    one of this package's, or calls itself or its corpus by more than a name.

    >>> import las
    >>> transcriber = las.load("run")
    >>> transcriber.sample_rate, transcriber.tokens, transcriber.search
    (16000, Phones(49 symbols: 'aa' 'ae' 'ah' 'ao' 'aw' ...), GreedySearch(max_length_ratio=1, max_length=inf))
    >>> transcriber.transcribe("audio.wav").text
    'sil aa iy sil'
    """
    operands = operand_type(precision)
    named = [path, *([ensemble] if isinstance(ensemble, str) else ensemble)]
    path, *others = (each if Path(each).exists() else pretrained.resolved(each) for each in named)
    trained = restore(path, strict)
    model, tokens, sample_rate, lexicon, tied, config = trained
    if others:
        model = _ensemble([path, *others], [trained, *(restore(each, strict) for each in others)], ensemble_mean)
    model.operands = operands
    if search is None or isinstance(search, str):
        search = cast(Search, build(tuned_search.option(search, path) if search else config["search"], where="search"))
    require_search(search, model)
    prepare(search, tokens, lexicon, tied, model.ctc is not None, checkpoint.graphs(Path(path)))
    tokens = tokens_of(search, tokens)
    return Transcriber(model.to(device), tokens, sample_rate, search, config, cutter)


def _ensemble(paths: Sequence[str | Path], trained: Sequence[TrainedModel], mean: str) -> Ensemble:
    """Join trained models to one. Raises ConfigError where they do not write the same symbols."""
    for path, one in zip(paths, trained, strict=True):
        if (one.tokens.symbols, one.sample_rate) != (trained[0].tokens.symbols, trained[0].sample_rate):
            raise ConfigError(
                f"ensemble: {path} ({one.tokens!r}, {one.sample_rate} Hz) does not write the symbols of {paths[0]} "
                f"({trained[0].tokens!r}, {trained[0].sample_rate} Hz): choose runs of the same corpus and tokens"
            )
    return Ensemble([one.model for one in trained], mean)


def restore(path: str | Path, strict: bool = False) -> TrainedModel:
    """Restore a model, and what it was trained for, from what `load` accepts. Raises what `load` raises."""
    stored, complaints = checkpoint.find(Path(path), strict)
    for complaint in complaints:
        progress.say(complaint)
    check_names(stored.config)
    try:
        corpus, configs = stored.state["corpus"], (stored.config["model"], stored.config["search"])
        tokens = tokenizers.from_state(corpus["tokens"], stored.config)
        sample_rate = int(corpus["sample_rate"])
        lexicon = hmm_lexicon.from_state(corpus["lexicon"]) if "lexicon" in corpus else None
        tied, sizes = None, {"vocab_size": tokens.size if lexicon is None else 1 + len(lexicon.phones)}
        if lexicon is not None and "tying" in corpus:
            tied = tying.from_state(corpus["tying"], Topology.of_lexicon(lexicon), str(stored.directory))
            sizes["num_pdfs"] = tied.num_pdfs
        model: SpeechModel = build(configs[0], where="model")(sample_rate, **sizes)
        model.load_state_dict(stored.model)
    except ConfigError as error:
        packages = (stored.state.get("origin", {}) | stored.state).get("packages")
        if not packages:
            raise
        raise ConfigError(f"{error}. {path} was made with {packages}") from error
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if tracebacks.is_own(error):
            raise
        raise StorageError(f"{stored.directory}: its parts do not fit together ({error!r})") from error
    return TrainedModel(model, tokens, sample_rate, lexicon, tied, stored.config)
