"""The smallest subclass of every base class: what its docstring asks for, and nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from las.data.augmentation.augmentation import Augmentation
from las.data.augmentation.distortion import Distortion
from las.data.corpora.base import Corpus, audio_duration
from las.data.loader import BatchSampler, BatchSize
from las.data.manifest import Utterance
from las.data.tokenizers import Tokenizer
from las.decoding.base import Hypothesis, Search
from las.decoding.scorers.base import BatchConstraint, BatchScorer, Constraint, Scorer, SearchStep, State
from las.nn.attention.base import Attention
from las.nn.cells.base import NUM_GATES, LSTMCell, RecurrentCell
from las.nn.cells.norms import CellNorm
from las.nn.features import Features
from las.nn.listener import FrontEnd
from las.nn.losses import TrainingLoss
from las.nn.model import FeatureAugmentation, SpeechModel, Trainable, TrainingBatch
from las.nn.normalisation import mask_of
from las.nn.rnn import ListenerLayer
from las.training.optimization import GradientNoise, GradientTransform, WeightNoise
from las.training.schedules import Schedule


class SmallestLoss(TrainingLoss):
    def objective(self, model: Trainable, output: Any, batch: TrainingBatch) -> Tensor:
        known = mask_of(batch.num_tokens, batch.targets.shape[1])
        logits = output.logits[:, :-1]  # the last row is for the end, which this loss leaves out
        return nn.functional.cross_entropy(logits[known], batch.targets[known], reduction="sum")


class SmallestCell(LSTMCell):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.inputs = nn.Linear(input_size, NUM_GATES * hidden_size)

    def input_gates(self, frames: Tensor) -> Tensor:
        return self.inputs(frames)

    def gates(self, input_gates: Tensor, hidden: Tensor) -> Tensor:
        return input_gates + hidden.repeat_interleave(NUM_GATES, -1)


class SmallestState(NamedTuple):
    hidden: Tensor
    sums: Tensor  # [..., H, 2]


class SmallestRecurrentCell(RecurrentCell):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.inputs = nn.Linear(input_size, hidden_size)

    def step(self, input_gates: Tensor, state: SmallestState) -> SmallestState:
        sums = 0.5 * state.sums + self.inputs(input_gates).unsqueeze(-1)
        return SmallestState(sums.sum(-1).tanh(), sums)

    def initial_state(self, *batch: int) -> SmallestState:
        return SmallestState(self.zeros(*batch, self.hidden_size), self.zeros(*batch, self.hidden_size, 2))


class SmallestCellNorm(CellNorm):
    def forward(self, values: Tensor, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        return self.affine(values.clamp(-1.0, 1.0), gain, bias)


class SmallestAttention(Attention):
    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__(query_size, value_size)
        self.query = nn.Linear(query_size, value_size)

    def energy(self, query: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        return self.query(query) @ keys.transpose(1, 2)


class SmallestLayer(ListenerLayer):
    def __init__(self, cell: object, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear, self.output_size = nn.Linear(input_size, hidden_size), hidden_size

    def forward(self, frames: Tensor, num_frames: Tensor) -> Tensor:
        return self.linear(frames) * mask_of(num_frames, frames.shape[1]).unsqueeze(-1)


class SmallestFrontEnd(FrontEnd):
    time_reduction = (2,)

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.output_size = input_size

    def forward(self, rows: Tensor, num_rows: Tensor) -> tuple[Tensor, Tensor]:
        return rows[:, ::2], (num_rows + 1) // 2


class SmallestFeatures(Features):
    size = 1

    def __init__(self, sample_rate: int) -> None:
        super().__init__(sample_rate)
        self.register_statistics()

    def rows(self, waveforms: Tensor) -> Tensor:
        windows = waveforms.unfold(1, self.frame_length, self.frame_shift)
        return (windows.square().mean(-1, keepdim=True) + 1e-6).log()


class SmallestInitialisation:
    def __call__(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.1)


class Logits(NamedTuple):
    logits: Tensor


class SmallestDecoder:
    sos = eos = 0

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs  # [batch, vocab]

    def start(self) -> State:
        return torch.zeros(len(self.log_probs), 1)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.log_probs.unsqueeze(1).expand(-1, tokens.shape[1], -1), state


class SmallestModel(SpeechModel):
    """The tokens of an utterance are drawn from one distribution, that of its mean encoded state."""

    ctc = None

    def __init__(self, sample_rate: int, vocab_size: int, *, features: Any, listener: Any) -> None:
        super().__init__()
        self.features = features(sample_rate)
        self.listener = listener(self.features.size)
        self.output = nn.Linear(self.listener.output_size, vocab_size)

    def explain(self) -> str:
        return "no speller"

    def num_targets(self, batch: TrainingBatch) -> int:
        return int(batch.num_tokens.sum())

    def forward_batch(self, batch: TrainingBatch, augment: FeatureAugmentation) -> Logits:
        features, num_frames = self.features(batch.waveforms, batch.num_samples)
        features = augment(features, num_frames, batch.keys, self.features.orders)
        mean = self.listener(features, num_frames)[0].mean(1, keepdim=True)
        return Logits(self.output(mean.expand(-1, batch.targets.shape[1] + 1, -1)))

    def search_inputs(self, waveforms: Tensor, num_samples: Tensor) -> tuple[SmallestDecoder, Tensor]:
        encoded, num_states = self.encode(waveforms, num_samples)
        return SmallestDecoder(self.output(encoded.mean(1)).log_softmax(-1)), num_states


class SmallestOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] * parameter.grad.sign()


class SmallestSchedule(Schedule):
    def factor(self, step: int) -> float:
        return 1.0 / step


class SmallestGradients(GradientTransform):
    pass


class SmallestGradientNoise(GradientNoise):
    def add(self, gradients: Sequence[Tensor], step: int, generator: torch.Generator) -> None:
        for gradient in gradients:
            gradient.add_(1e-4 / step)


class SmallestWeightNoise(WeightNoise):
    pass


class SmallestSampler(BatchSampler):
    def plan(
        self, utterances: Sequence[Utterance], manifest_hash: str, seed: int, epoch: int, size: BatchSize
    ) -> list[list[int]]:
        return [[index] for index in range(len(utterances))]


class SmallestDistortion(Distortion):
    label = "quieter"

    def distort(self, waveform: np.ndarray, *_: object) -> tuple[np.ndarray, dict[str, Any]]:
        return 0.5 * waveform, {}


class SmallestAugmentation(Augmentation):
    pass


class SmallestTokenizer(Tokenizer):
    pass


class SmallestCorpus(Corpus):
    def __init__(self, name: str, tokens: Tokenizer, root: str) -> None:
        super().__init__(name, tokens)
        self.root = Path(root).absolute()  # processes that read audio may have begun in another folder

    def utterances(self, split: str) -> list[Utterance]:
        paths = sorted((self.root / self.known_split(split)).glob("*.wav"))
        return [Utterance(each.stem, str(each), 0, 0.0, audio_duration(each), "aa iy", "ann") for each in paths]

    def normalise(self, text: str) -> list[str]:
        return text.split()


class SmallestScorer(Scorer):
    def on(self, decoder: Any, num_states: Tensor) -> BatchScorer:
        return SmallestBatchScorer()


class SmallestBatchScorer(BatchScorer):
    def score(self, state: State, step: SearchStep) -> tuple[Tensor, State]:
        return -torch.ones_like(step.log_probs), state


class SmallestConstraint(Constraint):
    def on(self, decoder: Any, num_states: Tensor) -> BatchConstraint:
        return SmallestBatchConstraint()


class SmallestBatchConstraint(BatchConstraint):
    def forbidden(self, state: State, step: SearchStep) -> Tensor:
        return torch.arange(step.log_probs.shape[-1]).expand_as(step.log_probs) == 2


class SmallestSearch(Search):
    nbest = 1

    def bind(self, tokens: Tokenizer, has_ctc: bool) -> None:
        pass

    def __call__(self, decoder: Any, num_states: Tensor) -> list[list[Hypothesis]]:
        return [[Hypothesis([1], -1.0, -0.5, "eos")] for _ in num_states]
