"""Weight noise: the model is trained with parameters that are a little wrong, anew at every step."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from las.runtime import seeding
from las.runtime.config import require
from las.training import gradients


class WeightNoise:
    """Normal noise on parameters during the forward and the backward pass (Graves 2011, of one fixed deviation; in
    lingvo and Park et al. 2019, section 3.2: 0.075 after some 10 to 20 thousand steps).

    The gradient is that of the noisy parameters, and updates the clean ones. All draws of a step come from (seed,
    step): parts of a batch that are passed one after the other see the same noise, and so do all processes that train
    one model.

    Args:
        std: the deviation; 0 for no noise.
        start_step: steps without noise before the first one with it.
        parameters: patterns of names (`selection.choose`).
        seed: of the noise.
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
        """While this lasts, the parameters hold the noise of update number `step` (from 1); then what they held before,
        bit for bit, whatever happened in between.

        Raises ConfigError when a pattern of `parameters` matches nothing.
        """
        if self.std == 0.0 or step <= self.start_step:
            yield
            return
        chosen = gradients.choose(named_parameters, self.parameters, "weight_noise.parameters")
        clean = [parameter.detach().clone() for parameter in chosen]
        generator = seeding.generator(chosen[0].device, "weight noise", self.seed, step)
        try:
            with torch.no_grad():
                for parameter in chosen:
                    parameter.add_(torch.empty_like(parameter).normal_(0.0, self.std, generator=generator))
            yield
        finally:
            with torch.no_grad():
                for parameter, before in zip(chosen, clean, strict=True):
                    parameter.copy_(before)
