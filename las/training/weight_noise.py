"""Weight noise: normal noise on the parameters while training, drawn anew at every step."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from las.config.build import require
from las.runtime import devices
from las.training import gradients


class WeightNoise:
    """Normal noise on parameters during the forward and the backward pass (Graves 2011, of one fixed deviation; in
    lingvo and Park et al. 2019, section 3.2: 0.075 after some 10 to 20 thousand steps).

    The gradient is that of the noisy parameters, and updates the clean ones. The noise depends on (seed, step) only, so
    all micro-batches of a batch and all processes of a training use the same noise.

    Args:
        std: the deviation; 0 for no noise.
        start_step: the number of steps without noise at the start.
        parameters: patterns of parameter names (`gradients.choose`).
        seed: the seed of the noise.
    """

    def __init__(
        self, *, std: float = 0.0, start_step: int = 0, parameters: Sequence[str] = ("*",), seed: int = 0
    ) -> None:
        require("std", std, 0.0)
        require("start_step", start_step, 0)
        self.std, self.start_step = std, start_step
        self.parameters, self.seed = parameters, seed

    @contextlib.contextmanager
    def applied(self, named_parameters: Iterable[tuple[str, nn.Parameter]], step: int) -> Iterator[None]:
        """Add the noise of update number `step` (from 1) within a `with` block; restores the parameters bit for bit.

        Raises ConfigError when a pattern of `parameters` matches nothing.
        """
        if self.std == 0.0 or step <= self.start_step:
            yield
            return
        chosen = gradients.choose(named_parameters, self.parameters, "weight_noise.parameters")
        clean = [parameter.detach().clone() for parameter in chosen]
        generator = devices.generator(chosen[0].device, "weight noise", self.seed, step)
        try:
            with torch.no_grad():
                for parameter in chosen:
                    parameter.add_(torch.empty_like(parameter).normal_(0.0, self.std, generator=generator))
            yield
        finally:
            with torch.no_grad():
                for parameter, original in zip(chosen, clean, strict=True):
                    parameter.copy_(original)
