"""Whole updates as CUDA graphs: forward and backward pass, the norm and the optimiser's step are started at once.

To start the kernels of an update takes the host longer than a GPU computes. Reading and augmenting features stays
outside, since each utterance has draws of its own; all that follows depends on tensors alone: lengths lie on the GPU,
batches are padded to few shapes, the divisor of the loss and the learning rates are numbers there.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from las.nn.features import Rows, Waveforms
from las.nn.kernels.graphs import capture as graphs
from las.nn.kernels.graphs.replayed import TOLERANCES
from las.nn.losses import TrainingLoss
from las.nn.model import SpeechModel, Trainable
from las.nn.normalisation import Lengths
from las.nn.scheduled import ScheduledModule
from las.runtime import progress
from las.runtime.precision import products_of
from las.training.optimization import GradientTransform

IN_PARTS = 6
"""Updates of a shape before it gets a graph: to capture one takes the time of several updates."""

LIMIT = 64
"""Graphs that are kept, each of one shape; the least recently used is dropped first."""


class Inputs(NamedTuple):
    """What an update reads besides the model and the optimiser, on their device."""

    features: Rows
    num_frames: Lengths
    targets: Int[Tensor, "batch tokens"]
    num_tokens: Lengths
    divisor: Float[Tensor, ""]
    """Of the summed loss."""
    rates: Float[Tensor, " groups"]
    """Learning rates of the optimiser's groups of parameters."""
    left_out: Bool[Tensor, ""]
    """True leaves all parameters as they are."""


class _Batch(NamedTuple):
    """A batch after its features were computed: its waveforms have no samples."""

    waveforms: Waveforms
    num_samples: Lengths
    targets: Int[Tensor, "batch tokens"]
    num_tokens: Lengths
    keys: tuple[int, ...]


class Objective(nn.Module):
    """The summed loss of a batch as one module, so that its parameters can be replaced for a call."""

    def __init__(self, model: SpeechModel, loss: TrainingLoss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, given: Inputs) -> Float[Tensor, ""]:
        output = self.model.forward_features(given.features, given.num_frames, given.targets)
        no_samples = torch.zeros_like(given.num_tokens)
        waveforms = given.features.new_zeros(len(no_samples), 0)
        batch = _Batch(waveforms, no_samples, given.targets, given.num_tokens, ())
        return self.loss.objective(self.model, output, batch)


def _is_of(part: object, *packages: str) -> bool:
    return type(part).__module__.startswith(packages)


def _has_one_graph(module: nn.Module) -> bool:
    default = _is_of(module, "las.", "torch.", "torchaudio.") and not isinstance(module, Trainable | TrainingLoss)
    return bool(vars(type(module)).get("one_graph", default))


class UpdateGraphs:
    """Updates of a training on a GPU by graphs, once a shape was met a few times.

    The first graph is compared with the operations that it was captured from. If they differ, capturing fails or memory
    does not suffice, a line says so, and the caller runs all further updates.

    Args:
        model, loss: both have `one_graph`.
        optimiser: one of torch's that leaves out an update on the GPU itself.
        gradients: changes that draw nothing.
        precision: type of the operands of products.
    """

    def __init__(
        self,
        model: SpeechModel,
        loss: TrainingLoss,
        optimiser: torch.optim.Optimizer,
        gradients: GradientTransform,
        precision: torch.dtype,
    ) -> None:
        self.model, self.optimiser, self.gradients, self.precision = model, optimiser, gradients, precision
        self.objective = Objective(model, loss)
        self.memory: Hashable = None
        """Addresses that the graphs rely on."""
        self.met = Counter[Hashable]()
        """Updates of each shape."""
        self.graphs: OrderedDict[Hashable, _UpdateGraph] = OrderedDict()
        """By shape. The cache of `capture` would be locked while the thread of a backward pass asks it for loops."""
        self.works, self.was_tried = True, False
        """Whether graphs may be used, and whether the first one was compared."""

    @staticmethod
    def serve(
        model: nn.Module, loss: TrainingLoss, optimiser: torch.optim.Optimizer, gradients: GradientTransform
    ) -> bool:
        """Return True for parts whose updates can be graphs.

        The classes of the model and of losses say so themselves. No number is scheduled or drawn outside torch's
        generator. Code of other packages may count or wait, unless a module says `one_graph` as well.
        """
        if type(gradients) is not GradientTransform or gradients.noise is not None or not _is_of(optimiser, "torch."):
            return False
        modules = [*model.modules(), *loss.modules()]
        scheduled = any(isinstance(module, ScheduledModule) and module.schedules for module in modules)
        return not scheduled and all(map(_has_one_graph, modules))

    def __call__(self, given: Inputs, seed: Callable[[], None]) -> Float[Tensor, "2"] | None:
        """Run an update, whose draws `seed` begins. Return its loss and norm, which the next one overwrites.

        None where graphs have just failed: the caller runs this update.
        """
        if (memory := tuple(self._memory())) != self.memory:
            self.graphs.clear()
            self.met.clear()
            self.memory = memory
        shapes = tuple((part.shape, part.dtype) for part in given)
        self.met[shapes] += 1
        try:
            if self.met[shapes] <= IN_PARTS:
                seed()
                return self._run(given)
            with graphs.turn(given.features.device, True), graphs.whole():
                if self.met[shapes] == IN_PARTS + 1:  # compiles all that is captured next
                    seed()
                    return self._run(given)
                graph = self._graph(shapes, given, seed)
                if graph is None:
                    return None
                seed()
                return graph(given)
        except torch.OutOfMemoryError:
            self.stop("memory does not suffice for CUDA graphs of whole updates: kernels start one by one")
            return None

    def stop(self, remark: str = "") -> None:
        """Leave all further updates to the caller, and free the memory of graphs."""
        self.works = False
        self.graphs.clear()
        if remark:
            progress.say(remark)

    def _memory(self) -> Iterator[Hashable]:
        """Yield the addresses of what an update changes in place, and which parameters it changes."""
        for parameter in self.model.parameters():
            yield parameter.data_ptr(), parameter.requires_grad
        for part in chain(self.model.buffers(), *(state.values() for state in self.optimiser.state.values())):
            if isinstance(part, Tensor):
                yield part.data_ptr()

    def _graph(self, shapes: Hashable, given: Inputs, seed: Callable[[], None]) -> "_UpdateGraph | None":
        """Return the graph of these shapes; None if capturing fails or the first one differs."""
        if shapes not in self.graphs:
            while len(self.graphs) >= LIMIT:
                self.graphs.popitem(last=False)
            made = _UpdateGraph(self._run, given)
            if made.graph is None:
                self.stop()  # capturing said why
                return None
            if not self.was_tried and not self._agrees(made, given, seed):
                self.stop("a CUDA graph of an update gives other values than its operations, which are used instead")
                return None
            self.was_tried = True
            self.graphs[shapes] = made
        self.graphs.move_to_end(shapes)
        return self.graphs[shapes]

    def _agrees(self, made: "_UpdateGraph", given: Inputs, seed: Callable[[], None]) -> bool:
        """Return True if a graph gives the loss and the norm of the operations, whose effects are undone."""
        still = given._replace(left_out=torch.ones_like(given.left_out))
        before = [buffer.clone() for buffer in self.model.buffers()]
        found = []
        for run in (made, self._run):
            seed()
            found.append(run(still).clone())
            for buffer, value in zip(self.model.buffers(), before, strict=True):
                buffer.copy_(value)
        tolerance = TOLERANCES[self.precision]
        return torch.allclose(found[0], found[1], tolerance, tolerance, equal_nan=True)

    def _run(self, given: Inputs) -> Float[Tensor, "2"]:
        """Run an update; returns its loss and the norm of its gradient before it was changed."""
        named = dict(self.model.named_parameters())
        # Leaves of this update: gradients of the parameters themselves would be summed on the stream around a capture.
        leaves = {name: each.detach().requires_grad_(each.requires_grad) for name, each in named.items()}
        device = given.features.device
        with products_of(self.precision, device):
            loss = functional_call(self.objective, {f"model.{name}": leaf for name, leaf in leaves.items()}, (given,))
        loss = loss / given.divisor
        # Gradients have memory of their own and the parameters' strides, unlike those of `torch.autograd.grad`.
        loss.backward(inputs=[leaf for leaf in leaves.values() if leaf.requires_grad])
        try:
            for name, leaf in leaves.items():
                named[name].grad = leaf.grad
            norm = self.gradients.change(named.items(), step=1)
            values = torch.stack([loss.detach().double(), norm.double()])
            self._change_parameters(values, given)
        finally:
            self.optimiser.zero_grad(set_to_none=True)
        return values

    def _change_parameters(self, values: Tensor, given: Inputs) -> None:
        """Run the optimiser's step with its rates on the GPU, unless the loss or the norm is not finite."""
        optimiser: Any = self.optimiser
        left_out = given.left_out | ~values.isfinite().all()
        optimiser.grad_scale, optimiser.found_inf = None, left_out.float()
        before = [dict(group) for group in optimiser.param_groups]
        try:
            for group, rate in zip(optimiser.param_groups, given.rates, strict=True):
                group["lr"] = rate
                # Adam asks for this while it is captured, and warns of it otherwise.
                group["capturable"] = graphs.is_recording(values.device)
            optimiser.step()
        finally:
            for group, options in zip(optimiser.param_groups, before, strict=True):
                group.clear()
                group.update(options)


class _UpdateGraph:
    """A captured update, and the tensors that it reads and writes."""

    def __init__(self, run: Callable[[Inputs], Tensor], given: Inputs) -> None:
        self.given = Inputs(*map(torch.clone, given))
        self.values = torch.zeros(2, dtype=torch.float64, device=given.features.device)
        self.run = run
        self.graph = graphs.captured(self._run, self.values.device, count=1, compiled=True)

    def _run(self) -> None:
        self.values.copy_(self.run(self.given))

    def __call__(self, given: Inputs) -> Tensor:
        assert self.graph is not None
        for own, other in zip(self.given, given, strict=True):
            own.copy_(other)
        self.graph.replay()
        return self.values
