"""A Listen-Attend-Spell of ESPnet's modules, of the sizes of a model of this package, for suite=peers.

Written against ESPnet 202511. The model is that of its recipes with `encoder: rnn` and `decoder: rnn`: bidirectional
LSTM layers with projections that drop frames where those of this package join them, location-aware attention, CTC
beside it. The embedding is as wide as the decoder. Its beam search takes one utterance at a
time, so a batch is encoded whole and searched utterance by utterance.
"""

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from benchmarks.peer_model import CLIPPING, IMPROBABLE, LOCATION_CHANNELS, SMOOTHING, Sizes, imported
from las.data.loader import Batch

NEEDED = ("espnet", "espnet2", "typeguard", "humanfriendly", "librosa", "torch_complex")
"""Modules that its model imports."""


def unavailable() -> str:
    """The reason why the peer cannot be measured; empty if it can."""
    if any(importlib.util.find_spec(name) is None for name in NEEDED):
        return (
            "not installed: pip install espnet, or if that fails pip install --no-deps espnet "
            "and pip install typeguard humanfriendly librosa torch_complex"
        )
    return ""


def make_model(sizes: Sizes, ctc_weight: float) -> nn.Module:
    """An `ESPnetASRModel`; id 0 is CTC's blank, the last one begins and ends sentences."""
    symbols = ["<blank>", *map(str, range(1, sizes.num_tokens)), "<sos/eos>"]
    width = 2 * sizes.hidden_size
    encoder = imported("espnet2.asr.encoder.rnn_encoder", "RNNEncoder")(
        input_size=sizes.num_mels,
        num_layers=len(sizes.time_reduction),
        hidden_size=sizes.hidden_size,
        output_size=width,
        dropout=sizes.listener_dropout,
        subsample=sizes.time_reduction,
    )
    attention = {"atype": "location", "adim": sizes.key_size, "aconv_chans": LOCATION_CHANNELS}
    decoder = imported("espnet2.asr.decoder.rnn_decoder", "RNNDecoder")(
        vocab_size=len(symbols),
        encoder_output_size=width,
        num_layers=sizes.speller_layers,
        hidden_size=sizes.speller_size,
        dropout=sizes.speller_dropout,
        att_conf={**attention, "aconv_filts": sizes.width // 2},
    )
    model: nn.Module = imported("espnet2.asr.espnet_model", "ESPnetASRModel")(
        vocab_size=len(symbols),
        token_list=symbols,
        frontend=imported("espnet2.asr.frontend.default", "DefaultFrontend")(
            fs=sizes.sample_rate,
            n_mels=sizes.num_mels,
            win_length=sizes.sample_rate // 40,
            hop_length=sizes.sample_rate // 100,
        ),
        specaug=imported("espnet2.asr.specaug.specaug", "SpecAug")(
            apply_time_warp=False, freq_mask_width_range=(0, 10), time_mask_width_range=(0, 25)
        ),
        normalize=imported("espnet2.layers.utterance_mvn", "UtteranceMVN")(),
        preencoder=None,
        encoder=encoder,
        postencoder=None,
        decoder=decoder,
        ctc=imported("espnet2.asr.ctc", "CTC")(odim=len(symbols), encoder_output_size=width),
        joint_network=None,
        ctc_weight=ctc_weight,
        lsm_weight=SMOOTHING,
        report_cer=False,
        report_wer=False,
    )
    return model


class ESPnetPeer:
    """Trains and searches with an `ESPnetASRModel`."""

    def __init__(self, sizes: Sizes, ctc_weight: float, learning_rate: float, device: torch.device) -> None:
        self.model: Any = make_model(sizes, ctc_weight).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), learning_rate)
        self.num_parameters = sum(parameter.numel() for parameter in self.model.parameters())

    def update(self, batch: Batch) -> float:
        """One update of all parameters, as `espnet2.train.trainer` makes it; returns the loss."""
        self.model.train()
        with _quiet():
            loss = self._loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIPPING)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _loss(self, batch: Batch) -> Tensor:
        order = _longest_first(batch)
        texts = [batch.targets[row, : batch.num_tokens[row]] for row in order]
        padded = pad_sequence(texts, batch_first=True, padding_value=-1)
        loss: Tensor = self.model(batch.waveforms[order], batch.num_samples[order], padded, batch.num_tokens[order])[0]
        return loss

    def encoder(self, batch: Batch) -> Callable[[], object]:
        """The part of a search that goes from waveforms to encoded states."""

        @torch.no_grad()
        @_quiet()
        def run() -> Tensor:
            self.model.eval()
            return self._encode(batch)[0]

        return run

    def _encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        order = _longest_first(batch)
        states, lengths = self.model.encode(batch.waveforms[order], batch.num_samples[order])
        return states, lengths

    def decoder(self, size: int, ctc_weight: float, batch: Batch, num_tokens: int) -> Callable[[], list[list[int]]]:
        """A search of a batch for hypotheses of `num_tokens` each, from waveforms to tokens."""
        model = self.model
        with torch.no_grad():
            model.decoder.output.bias[model.eos] = IMPROBABLE
        scorers = {"decoder": model.decoder}
        if ctc_weight:
            scorers["ctc"] = imported("espnet.nets.scorers.ctc", "CTCPrefixScorer")(ctc=model.ctc, eos=model.eos)
        search = imported("espnet.nets.beam_search", "BeamSearch")(
            scorers=scorers,
            weights={"decoder": 1.0 - ctc_weight, "ctc": ctc_weight},
            beam_size=size,
            vocab_size=model.vocab_size,
            sos=model.sos,
            eos=model.eos,
            token_list=model.token_list,
            pre_beam_score_key="full",
        )

        @torch.no_grad()
        @_quiet()
        def run() -> list[list[int]]:
            model.eval()
            search.eval()
            states, lengths = self._encode(batch)
            found = []
            for row, length in zip(states, lengths.tolist(), strict=True):
                hypotheses = search(x=row[:length], maxlenratio=-float(num_tokens))  # below zero: a number of tokens
                found.append(hypotheses[0].yseq[1:-1].tolist())
            return found

        return run


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress what its model warns of in every batch: lists of lengths, and the old name of autocast."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            yield
    finally:
        logging.disable(before)


def _longest_first(batch: Batch) -> Tensor:
    """The order of the utterances that its encoder needs, and its data loader makes."""
    return batch.num_samples.argsort(descending=True, stable=True)
