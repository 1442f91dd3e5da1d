"""A Listen-Attend-Spell of SpeechBrain's modules, of the sizes of a model of this package, for suite=peers.

Written against SpeechBrain 1.1. Its recipes for LAS have the same parts: log mel features, bidirectional LSTM layers,
location-aware attention (`AttentionalRNNDecoder`), CTC beside it, `S2SRNNBeamSearcher` with a `CTCScorer`.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from las.config.build import Config
from las.data.loader import Batch
from las.runtime.devices import torchaudio
from las.runtime.errors import ConfigError

NAME = "speechbrain"
"""Name of the toolkit in rows."""
BLANK, BOS, EOS = 0, 1, 2
NUM_SPECIAL = 2
"""Offset of the ids of tokens, which begin at 1 here and at 3 there."""
LOCATION_CHANNELS = 10
"""Filters of the attention's convolution."""
CLIPPING = 5.0
"""Largest norm of the gradient."""
SMOOTHING = 0.1
"""Probability of all other tokens in the smoothed targets."""
IMPROBABLE = -1e4
"""Logit of the end of a sentence that may not end."""


def unavailable() -> str:
    """The reason why the peer cannot be measured; empty if it can."""
    return "" if importlib.util.find_spec("speechbrain") else "not installed: pip install 'las-asr[peers]'"


def _part(module: str, name: str) -> Any:
    """A class or function of SpeechBrain, whose modules import torchaudio."""
    torchaudio()
    return getattr(importlib.import_module(f"speechbrain.{module}"), name)


class Sizes(NamedTuple):
    """Sizes of a Listen-Attend-Spell."""

    sample_rate: int
    num_tokens: int
    num_mels: int
    hidden_size: int
    time_reduction: tuple[int, ...]
    """Frames joined after each layer of the listener."""
    listener_dropout: float
    embedding_size: int
    speller_size: int
    speller_layers: int
    speller_dropout: float
    key_size: int
    width: int

    @classmethod
    def of(cls, config: Config, sample_rate: int, num_tokens: int) -> "Sizes":
        """Read the sizes of the config of a training. Raises ConfigError for a model that its modules cannot form."""
        try:
            features, listener, speller = (config["model"][part] for part in ("features", "listener", "speller"))
            if listener["reduction"] != "concat" or listener["input_reduction"] != 1 or not config["model"].get("ctc"):
                raise ConfigError(
                    "suite=peers: the model must join frames (reduction=concat, input_reduction=1) and have CTC: "
                    "try +experiment=an4_ctc"
                )
            return cls(
                sample_rate=sample_rate,
                num_tokens=num_tokens,
                num_mels=features["num_mels"],
                hidden_size=listener["hidden_size"],
                time_reduction=tuple(listener["time_reduction"]),
                listener_dropout=listener["dropout"],
                embedding_size=speller["embedding_size"],
                speller_size=speller["hidden_size"],
                speller_layers=speller["num_layers"],
                speller_dropout=speller["dropout"],
                key_size=speller["attention"]["key_size"],
                width=speller["attention"]["width"],
            )
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"suite=peers: model has no {error}, so no peer's can be made like it: try +experiment=an4_ctc"
            ) from error


class JoinedLSTM(nn.Module):
    """Bidirectional LSTM layers, frames joined between them; padding is read like speech, as by its default."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        lstm = _part("nnet.RNN", "LSTM")
        joined = (1, *sizes.time_reduction[:-1])
        inputs = [2 * sizes.hidden_size * factor for factor in joined]
        inputs[0] = sizes.num_mels
        self.layers = nn.ModuleList(lstm(sizes.hidden_size, input_size=size, bidirectional=True) for size in inputs)
        self.reductions = joined
        self.dropout = nn.Dropout(sizes.listener_dropout)

    def forward(self, frames: Tensor) -> Tensor:
        """Frames [batch, frames, mels] to states [batch, states, 2 * hidden_size]."""
        for layer, factor in zip(self.layers, self.reductions, strict=True):
            length = frames.shape[1] // factor * factor
            frames = frames[:, :length].reshape(len(frames), length // factor, -1)
            frames = self.dropout(layer(frames)[0])
        return frames


class SpeechBrainLAS(nn.Module):
    """Listen-Attend-Spell with CTC of SpeechBrain's modules."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        vocab = sizes.num_tokens + NUM_SPECIAL
        linear, drop = _part("nnet.linear", "Linear"), _part("augment.freq_domain", "SpectrogramDrop")
        self.fbank = _part("lobes.features", "Fbank")(sample_rate=sizes.sample_rate, n_mels=sizes.num_mels)
        self.norm = _part("processing.features", "InputNormalization")(norm_type="global")
        self.masks = nn.ModuleList(drop(drop_length_low=3, drop_length_high=12, dim=dim) for dim in (1, 2))
        self.listener = JoinedLSTM(sizes)
        self.embedding = _part("nnet.embedding", "Embedding")(num_embeddings=vocab, embedding_dim=sizes.embedding_size)
        self.speller = _part("nnet.RNN", "AttentionalRNNDecoder")(
            rnn_type="lstm",
            attn_type="location",
            hidden_size=sizes.speller_size,
            attn_dim=sizes.key_size,
            num_layers=sizes.speller_layers,
            enc_dim=2 * sizes.hidden_size,
            input_size=sizes.embedding_size,
            channels=LOCATION_CHANNELS,
            kernel_size=sizes.width,
            dropout=sizes.speller_dropout,
        )
        self.output = linear(input_size=sizes.speller_size, n_neurons=vocab)
        self.ctc = linear(input_size=2 * sizes.hidden_size, n_neurons=vocab)

    def listen(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """States [batch, states, size], and the lengths of the utterances as shares of the longest."""
        lengths = batch.num_samples.to(batch.waveforms.device) / batch.waveforms.shape[1]
        with torch.no_grad():
            frames = self.norm(self.fbank(batch.waveforms), lengths)
            if self.training:
                for mask in self.masks:
                    frames = mask(frames)
        return self.listener(frames), lengths

    def loss(self, batch: Batch, ctc_weight: float) -> Tensor:
        """The joint loss of a batch: attention with smoothed labels, and CTC where its weight is above 0."""
        states, lengths = self.listen(batch)
        num_tokens = batch.num_tokens.to(states.device)
        real = torch.arange(batch.targets.shape[1], device=states.device) < num_tokens.unsqueeze(1)
        tokens = torch.where(real, batch.targets + NUM_SPECIAL, BLANK)
        begun = nn.functional.pad(tokens, (1, 0), value=BOS)
        ended = nn.functional.pad(tokens, (0, 1)).scatter(1, num_tokens.unsqueeze(1), EOS)
        outputs, _ = self.speller(self.embedding(begun), states, lengths)
        log_probs = self.output(outputs).log_softmax(-1)
        ended_share = (num_tokens + 1) / ended.shape[1]
        spelled = _part("nnet.losses", "nll_loss")(log_probs, ended, length=ended_share, label_smoothing=SMOOTHING)
        if not ctc_weight:
            return spelled
        aligned = _part("nnet.losses", "ctc_loss")(
            self.ctc(states).log_softmax(-1), tokens, lengths, num_tokens / tokens.shape[1], BLANK
        )
        return (1 - ctc_weight) * spelled + ctc_weight * aligned

    def search(self, size: int, ctc_weight: float) -> nn.Module:
        """Greedy search for a beam of one, else a beam search, with CTC where its weight is above 0."""
        parts: Mapping[str, Any] = {
            "embedding": self.embedding,
            "decoder": self.speller,
            "linear": self.output,
            "bos_index": BOS,
            "eos_index": EOS,
            "min_decode_ratio": 0.0,
            "max_decode_ratio": 1.0,
        }
        if size == 1:
            greedy: nn.Module = _part("decoders", "S2SRNNGreedySearcher")(**parts)
            return greedy
        scorer = None
        if ctc_weight:
            ctc = _part("decoders.scorer", "CTCScorer")(ctc_fc=self.ctc, blank_index=BLANK, eos_index=EOS)
            scorer = _part("decoders.scorer", "ScorerBuilder")(full_scorers=[ctc], weights={"ctc": ctc_weight})
        beam: nn.Module = _part("decoders", "S2SRNNBeamSearcher")(beam_size=size, scorer=scorer, **parts)
        return beam


class SpeechBrainPeer:
    """Trains and searches with `SpeechBrainLAS`."""

    def __init__(self, sizes: Sizes, ctc_weight: float, learning_rate: float, device: torch.device) -> None:
        self.model = SpeechBrainLAS(sizes).to(device)
        self.ctc_weight = ctc_weight
        self.optimiser = torch.optim.Adam(self.model.parameters(), learning_rate)
        self.num_parameters = sum(parameter.numel() for parameter in self.model.parameters())

    def update(self, batch: Batch) -> None:
        """One update of all parameters, as `speechbrain.Brain.fit_batch` makes it."""
        self.model.train()
        self.model.loss(batch, self.ctc_weight).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIPPING)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def encoder(self, batch: Batch) -> Callable[[], object]:
        """The part of a search that goes from waveforms to encoded states."""

        @torch.no_grad()
        def run() -> Tensor:
            return self.model.eval().listen(batch)[0]

        return run

    def decoder(self, size: int, ctc_weight: float, batch: Batch, num_tokens: int) -> Callable[[], list[list[int]]]:
        """A search of a batch for hypotheses of `num_tokens` each, from waveforms to tokens."""
        with torch.no_grad():
            self.model.output.w.bias[EOS] = IMPROBABLE
        search = self.model.search(size, ctc_weight)

        @torch.no_grad()
        def run() -> list[list[int]]:
            self.model.eval()
            search.eval()
            states, lengths = self.model.listen(batch)
            # The search multiplies the ratio with the number of states and rounds down. One step more is for the end.
            ratio: Any = (num_tokens + 1.5) / states.shape[1]
            search.max_decode_ratio = ratio
            return [list(map(int, hypothesis)) for hypothesis in search(states, lengths)[0]]

        return run
