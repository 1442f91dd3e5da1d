"""Initial values of a model by the role of each parameter: conventions of code bases as options of configs/init.

A matrix that maps n inputs to m outputs is drawn uniformly from ± limit (`DRAWS`):

    glorot           sqrt(6 / (n + m))       Glorot & Bengio 2010, equation 16; default of TensorFlow 1 and of RETURNN
    glorot_vector    sqrt(3 / n)             TensorFlow 1 for a vector of n: n counts as inputs and as outputs
    fan_in           1 / sqrt(n)             default of torch.nn.Linear and of its convolutions
    normal           -                       not uniform: N(0, 1), default of torch.nn.Embedding

The matrices W [4H, D] and U [4H, H] of an LSTM with D inputs and H units hold four gates (`LSTM_LIMITS`):

    per_gate         W: sqrt(6 / (D + H))      U: sqrt(6 / (2 H))     each gate is a matrix of its own
    per_matrix       W: sqrt(6 / (D + 4 H))    U: sqrt(6 / (5 H))     RETURNN's LSTMs
    joint            both: sqrt(6 / (D + 5 H))                        one matrix [D + H, 4H]: cells of TensorFlow 1
    hidden           both: 1 / sqrt(H)                                torch.nn.LSTM

The standard deviation is limit / sqrt(3). `input_std` draws W in another scale: ± input_std * sqrt(3 / D) / rms, so
that W x has that standard deviation where x has the root mean square of normalised features, 1, or of outputs of LSTMs
whose gates have unit variance, 0.28 (a closed form of what Mishkin & Matas 2016 measure). `gate_std` multiplies both
matrices by one factor, so that W x + U h has that standard deviation for such x and h: what a norm of the sum does.

Gains and offsets of norms and of stops (`las.nn.attention.mocha`) keep what they are made with: those of norms 1 and 0
(Cooijmans et al.'s batch norm: gain 0.1).
"""

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from las.nn.attention.mocha import StopEnergy
from las.nn.cells.base import NUM_GATES, LSTMCell
from las.nn.cells.lstm import PlainLSTMCell
from las.nn.cells.wrapper import WrapperLSTMCell
from las.nn.front_end import ChannelNorm
from las.nn.normalisation import OutputNorm
from las.runtime.errors import ArgumentError, ConfigError, require_known

Limit = Callable[[int, int], float]
"""The bound of uniform values from the numbers of inputs and outputs of a matrix."""

DRAWS: dict[str, Limit | None] = {
    "glorot": lambda inputs, outputs: math.sqrt(6.0 / (inputs + outputs)),
    "glorot_vector": lambda inputs, outputs: math.sqrt(3.0 / inputs),
    "fan_in": lambda inputs, outputs: 1.0 / math.sqrt(inputs),
    "normal": None,
}
"""Draws of matrices by name; None is the normal distribution."""

LSTMLimit = Callable[[int, int, int], float]
"""The bound of uniform values from D and H of an LSTM, and the size of the output that U reads."""

LSTM_LIMITS: dict[str, tuple[LSTMLimit, LSTMLimit]] = {
    "per_gate": (lambda d, h, r: math.sqrt(6.0 / (d + h)), lambda d, h, r: math.sqrt(6.0 / (r + h))),
    "per_matrix": (lambda d, h, r: math.sqrt(6.0 / (d + 4 * h)), lambda d, h, r: math.sqrt(6.0 / (r + 4 * h))),
    "joint": (lambda d, h, r: math.sqrt(6.0 / (d + r + 4 * h)), lambda d, h, r: math.sqrt(6.0 / (d + r + 4 * h))),
    "hidden": (lambda d, h, r: 1.0 / math.sqrt(h), lambda d, h, r: 1.0 / math.sqrt(h)),
}
"""Limits of W and of U of an LSTM by name."""

RMS_OF_FEATURES, RMS_OF_OUTPUTS = 1.0, 0.28
"""Root mean squares of what the first layer reads, and of outputs of LSTMs whose gates have unit variance."""

BIASES = ("zero", "fan_in")
LSTM_BIASES: dict[str, Callable[[nn.Parameter, int], object]] = {
    "zero": lambda bias, hidden_size: nn.init.zeros_(bias),
    "glorot_vector": lambda bias, hidden_size: _uniform(bias, math.sqrt(3.0 / (NUM_GATES * hidden_size))),
    "hidden_twice": lambda bias, hidden_size: _two_uniform(bias, 1.0 / math.sqrt(hidden_size)),
}
"""Draws of the bias of an LSTM without norm by name; `hidden_twice` is the sum of torch.nn.LSTM's two biases."""


@runtime_checkable
class InitialisationProtocol(Protocol):
    """Something that gives a finished model its initial values."""

    def __call__(self, model: nn.Module) -> None:
        """Set the parameters in place, with torch's random generator."""


class ConstructorInitialisation:
    """Initial values as the constructors of the parts draw them.

    LSTM matrices Glorot-uniform gate by gate, their biases 0; torch's defaults for the rest: embedding N(0, 1), other
    matrices and biases `fan_in`.
    """

    def __call__(self, model: nn.Module) -> None:
        """Leave the parameters as they are, and the random generator too."""


class LSTMInitialisation:
    """Initial values of LSTM cells.

    Args:
        weights: limits of W and U, a name of `LSTM_LIMITS`.
        plain_weights: in its place for cells without a norm of the gates (`las.PlainLSTMCell`); None for the same.
        biases: of cells without a norm of the gates, a name of `LSTM_BIASES`; those of other cells are 0.
        forget_bias: what is added to the forget gate in the beginning, the cell's constant `forget_bias` included; the
            bias holds the rest. None for the cell's constant alone.
        input_std: standard deviation of W x, in place of the limit of W; None for that limit.
        gate_std: standard deviation of W x + U h, by one factor on both; None for no factor.
    """

    def __init__(
        self,
        *,
        weights: str,
        plain_weights: str | None = None,
        biases: str = "zero",
        forget_bias: float | None = None,
        input_std: float | None = None,
        gate_std: float | None = None,
    ) -> None:
        for name, deviation in (("input_std", input_std), ("gate_std", gate_std)):
            if deviation is not None and not deviation > 0:
                raise ArgumentError(f"{name}={deviation} must be above 0, or null")
        require_known("weights", weights, LSTM_LIMITS)
        require_known("plain_weights", plain_weights or weights, LSTM_LIMITS)
        require_known("biases", biases, LSTM_BIASES)
        self.weights = weights
        self.plain_weights = plain_weights or weights
        self.biases = biases
        self.forget_bias, self.input_std, self.gate_std = forget_bias, input_std, gate_std

    @torch.no_grad()
    def __call__(self, cell: LSTMCell, rms: float = RMS_OF_OUTPUTS) -> None:
        """Set W, U and the bias of the gates of a cell, not a wrapper, that reads values of root mean square `rms`.

        Raises ConfigError for a cell without W or U.
        """
        if missing := [name for name in ("input_weight", "recurrent_weight") if not hasattr(cell, name)]:
            raise ConfigError(f"init: {type(cell).__name__} has no {missing[0]}: choose init=las, or name it so")
        plain, bias = isinstance(cell, PlainLSTMCell), cell.gate_bias()
        of_input, of_hidden = LSTM_LIMITS[self.plain_weights if plain else self.weights]
        sizes = cell.input_size, cell.hidden_size, cell.recurrent_weight.shape[1]
        limit = of_input(*sizes)
        if self.input_std is not None:
            limit = self.input_std * math.sqrt(3.0 / cell.input_size) / rms
        limits = limit, of_hidden(*sizes)
        if self.gate_std is not None:
            squares = cell.input_size * (limits[0] * rms) ** 2 + sizes[2] * (limits[1] * RMS_OF_OUTPUTS) ** 2
            factor = self.gate_std * math.sqrt(3.0 / squares)
            limits = factor * limits[0], factor * limits[1]
        _uniform(cell.input_weight, limits[0])
        _uniform(cell.recurrent_weight, limits[1])
        cell.weights_changed()
        LSTM_BIASES[self.biases if plain else "zero"](bias, cell.hidden_size)
        if self.forget_bias is not None:
            bias.view(NUM_GATES, -1)[1] += self.forget_bias - cell.forget_bias


class Initialisation:
    """Initial values of a whole model: a recogniser, or a language model (whose LSTM has the values of a speller's).

    Args:
        listener: of its LSTM cells.
        speller: of its LSTM cells.
        embedding: of the previous token, a name of `DRAWS`; n is the number of tokens.
        attention: of its matrices and filters.
        score: of the vector that makes an energy from the hidden layer of an attention.
        output: of the layers from LSTM and context to tokens, CTC's included.
        front_end: of the convolutions.
        biases: of all layers but the LSTMs: `zero`, or `fan_in` for uniform values of limit 1 / sqrt(n).
    """

    def __init__(
        self,
        *,
        listener: LSTMInitialisation,
        speller: LSTMInitialisation,
        embedding: str,
        attention: str,
        score: str,
        output: str,
        front_end: str,
        biases: str = "zero",
    ) -> None:
        self.lstms = {"listener": listener, "speller": speller}
        self.draws = dict(embedding=embedding, attention=attention, score=score, output=output, front_end=front_end)
        for name, draw in self.draws.items():
            require_known(name, draw, DRAWS)
        require_known("biases", biases, BIASES)
        self.biases = biases

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        """Draw all parameters anew. Raises ConfigError for a parameter that has none of the roles."""
        done: set[int] = set()
        for name, module in model.named_modules():
            if isinstance(module, WrapperLSTMCell):
                continue
            if isinstance(module, LSTMCell):
                part = "listener" if name.startswith("listener.") else "speller"
                is_first = name.startswith(("listener.layers.0.", "speller."))
                self.lstms[part](module, RMS_OF_FEATURES if is_first else RMS_OF_OUTPUTS)
            elif isinstance(module, (nn.Embedding, nn.Linear, nn.Conv1d, nn.Conv2d)):
                self._draw(module, self.draws[_role(name, module)])
            elif not isinstance(module, (OutputNorm, ChannelNorm, StopEnergy)):
                continue
            done.update(map(id, module.parameters()))
        for name, parameter in model.named_parameters():
            if id(parameter) not in done:
                raise ConfigError(
                    f"init: no initial value is known for {name}, which is in no LSTM cell, nn.Linear, nn.Conv1d, "
                    "nn.Conv2d, nn.Embedding or norm: make it a part of one of them, or choose init=las"
                )

    def _draw(self, layer: nn.Embedding | nn.Linear | nn.Conv1d | nn.Conv2d, draw: str) -> None:
        field = math.prod(layer.weight.shape[2:])
        inputs, outputs = layer.weight.shape[1] * field, layer.weight.shape[0] * field
        if isinstance(layer, nn.Embedding):
            inputs, outputs = outputs, inputs
        limit = DRAWS[draw]
        if limit is None:
            nn.init.normal_(layer.weight)
        else:
            _uniform(layer.weight, limit(inputs, outputs))
        bias = getattr(layer, "bias", None)
        if bias is not None:
            _uniform(bias, 1.0 / math.sqrt(inputs) if self.biases == "fan_in" else 0.0)


def _role(name: str, module: nn.Module) -> str:
    """Return the role of a layer by its place in the model: a key of `Initialisation.draws`."""
    path = name.split(".")
    if isinstance(module, nn.Embedding):
        return "embedding"
    if "attention" in path:
        return "score" if path[-1] == "score" else "attention"
    return "front_end" if "front_end" in path else "output"


def _uniform(values: Tensor, limit: float) -> None:
    nn.init.uniform_(values, -limit, limit) if limit else nn.init.zeros_(values)


def _two_uniform(values: Tensor, limit: float) -> None:
    _uniform(values, limit)
    values += torch.empty_like(values).uniform_(-limit, limit)
