"""Changes of gradients before the optimiser's step, noise on weights, and the optimiser Nadam of TensorFlow 1."""

import contextlib
import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from las.config.build import require
from las.runtime import devices
from las.runtime.errors import ArgumentError, ConfigError, suggest

UPPER_LIMITS = dict.fromkeys(("betas", "momentum", "dampening", "rho", "alpha", "lr_decay"), 1.0)
UPPER_LIMITS |= dict.fromkeys(("eps", "weight_decay", "lambd"), math.inf)
"""Greatest values of settings of optimisers that are 0 at least."""


class GradientNoise:
    """Base class of noise on gradients; a subclass defines `add`."""

    def add(self, gradients: Sequence[Tensor], step: int, generator: torch.Generator) -> None:
        """Add the noise of an update to gradients, in place; steps are counted from 1."""
        raise TypeError(f"{type(self).__name__} must define add")


class ConstantNoise(GradientNoise):
    """Noise of constant size, as RETURNN's `gradient_noise`: a normal distribution truncated at ±2 deviations.

    Args:
        std: the deviation of the normal distribution; that of the truncated one is 0.88 of it.
    """

    def __init__(self, *, std: float) -> None:
        require("std", std, 0.0)
        self.std = std

    def add(self, gradients: Sequence[Tensor], step: int, generator: torch.Generator) -> None:
        # By the inverse of the distribution function: nn.init.trunc_normal_ draws again until all values are inside.
        bound = math.erf(2.0 / math.sqrt(2.0))
        for gradient in gradients:
            noise = torch.empty_like(gradient).uniform_(-bound, bound, generator=generator).erfinv_()
            gradient.add_(noise, alpha=math.sqrt(2.0) * self.std)


class AnnealedNoise(GradientNoise):
    """Annealed normal noise (Neelakantan et al. 2015, equation 1): its variance at step t is η / (t + 1)^γ, with
    t = 0 at the first step.

    Args:
        eta: η; the paper tries 0.01, 0.3 and 1.0.
        gamma: γ.
    """

    def __init__(self, *, eta: float, gamma: float = 0.55) -> None:
        require("eta", eta, 0.0)
        require("gamma", gamma, 0.0)
        self.eta, self.gamma = eta, gamma

    def add(self, gradients: Sequence[Tensor], step: int, generator: torch.Generator) -> None:
        std = (self.eta / step**self.gamma) ** 0.5
        for gradient in gradients:
            gradient.add_(torch.empty_like(gradient).normal_(0.0, std, generator=generator))


class GradientTransform:
    """Changes of the gradient, in this order; by default none.

    1. The gradient of `l2` · Σ w² is added, 2 · `l2` · w, for the parameters w that `l2_parameters` chooses: RETURNN's
       L2, which the optimiser sees as part of the objective. (`weight_decay` of torch's Adam and SGD adds
       `weight_decay` · w for all of them.)
    2. The norm of the whole gradient is taken.
    3. A gradient whose norm is above `zero_above`, or not a number, is zero, whatever follows: an update that is
       probably broken is left out, though not the optimiser's momentum (lingvo's `grad_norm_to_clip_to_zero`).
    4. Noise is added.
    5. Each entry is clipped to ± `clip_value`.
    6. The whole gradient is scaled down to the norm `clip_norm` if it is longer.

    All thresholds are relative to the size of the gradients, and so depend on `loss.reduction`. All processes of a
    training change the same gradients in the same way: the noise depends on (seed, step) only.

    Args:
        seed: the seed of the noise.
        l2: the factor of Σ w² in the objective.
        l2_parameters: patterns of parameter names (`choose`).
        noise: what step 4 adds; None for nothing.
        zero_above: the norm of step 3; None switches the step off.
        clip_value: the bound of step 5; None switches the step off.
        clip_norm: the norm of step 6; None switches the step off.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        l2: float = 0.0,
        l2_parameters: Sequence[str] = ("*",),
        noise: GradientNoise | None = None,
        zero_above: float | None = None,
        clip_value: float | None = None,
        clip_norm: float | None = None,
    ) -> None:
        require("l2", l2, 0.0)
        for key, value in {"zero_above": zero_above, "clip_value": clip_value, "clip_norm": clip_norm}.items():
            if value is not None and not value > 0.0:
                raise ArgumentError(f"{key}={value} lets no gradient through: it must be above 0, or null for none")
        self.seed, self.l2, self.l2_parameters, self.noise = seed, l2, l2_parameters, noise
        self.zero_above, self.clip_value, self.clip_norm = zero_above, clip_value, clip_norm

    @torch.no_grad()
    def change(self, named_parameters: Iterable[tuple[str, nn.Parameter]], step: int) -> Tensor:
        """Change the gradients of update number `step` (from 1) in place; returns the norm of point 2, on their device.

        The norm may be inf or NaN, also after clipping: the caller must check it.
        Raises ConfigError when a pattern of `l2_parameters` matches nothing.
        """
        named = list(named_parameters)
        parameters = [parameter for _, parameter in named if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if not gradients:
            return named[0][1].new_zeros(())
        if self.l2:
            for parameter in choose(named, self.l2_parameters, "gradients.l2_parameters"):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter, alpha=2.0 * self.l2)
        norm = get_total_norm(gradients)
        if self.noise is not None:
            self.noise.add(gradients, step, devices.generator(norm.device, "gradient noise", self.seed, step))
        if self.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.clip_value)
        if self.clip_norm is not None:
            changed = self.noise is not None or self.clip_value is not None
            clip_grads_with_norm_(parameters, self.clip_norm, get_total_norm(gradients) if changed else norm)
        if self.zero_above is not None:  # last, so that the host need not know
            for gradient in gradients:
                gradient.masked_fill_(~(norm <= self.zero_above), 0.0)  # NaN is not
        return norm


class WeightNoise:
    """Normal noise on parameters during the forward and the backward pass (Graves 2011, of one fixed deviation; in
    lingvo and Park et al. 2019, section 3.2: 0.075 after some 10 to 20 thousand steps).

    The gradient is that of the noisy parameters, and updates the clean ones. The noise depends on (seed, step) only, so
    all micro-batches of a batch and all processes of a training use the same noise.

    Args:
        std: the deviation; 0 for no noise.
        start_step: the number of steps without noise at the start.
        parameters: patterns of parameter names (`choose`).
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
        chosen = choose(named_parameters, self.parameters, "weight_noise.parameters")
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


def choose(
    named_parameters: Iterable[tuple[str, nn.Parameter]], patterns: Sequence[str], where: str
) -> list[nn.Parameter]:
    """Return the parameters whose names match one of the patterns, in their order.

    Args:
        named_parameters: names and parameters, from `nn.Module.named_parameters`.
        patterns: shell-style patterns: `listener.*`, `*.cell.*`, `*_weight`; a star matches dots too.
        where: the key of the config, for errors.

    Raises ConfigError for a pattern that matches no name.
    """
    named = list(named_parameters)
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name, _ in named):
            raise ConfigError(f"{where}: no parameter's name matches {pattern!r}.{suggest(pattern, dict(named))}")
    return [parameter for name, parameter in named if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


class Nadam(torch.optim.Optimizer):
    """`tf.contrib.opt.NadamOptimizer`. For the gradient g of step t, counted from 1:

        m = β1 m + (1 - β1) g
        v = β2 v + (1 - β2) g²
        w = w - lr √(1 - β2^t) / (1 - β1^t) · (β1 m + (1 - β1) g) / (√v + ε)

    ε is added to the √v that is not yet corrected for its start at zero (the ε̂ of Kingma & Ba 2015, section 2), and
    β1 is the same at every step. `torch.optim.NAdam` (Dozat 2016) differs in both, so its results differ clearly for an
    ε as large as the 0.1 of those models.

    ε is relative to the size of the gradients: 0.1 goes with `loss.reduction: sum`.

    Args:
        parameters: tensors, or groups of them with options of their own.
        lr: the learning rate.
        betas: β1 and β2.
        eps: ε.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float = 1e-3,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ArgumentError(f"betas={list(betas)} must be two numbers, at least 0 and less than 1")
        if lr < 0.0 or eps < 0.0:
            raise ArgumentError(f"lr={lr} and eps={eps} must not be negative")
        super().__init__(parameters, {"lr": lr, "betas": tuple(betas), "eps": eps})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the loss of `closure`, which computes the gradients."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        with torch.no_grad():
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
                # Together on a GPU, where launching a kernel costs more than it computes; one by one on a CPU, so that
                # each stays in the cache: half the time for a model of a million parameters.
                on_gpu = [parameter for parameter in parameters if parameter.is_cuda]
                one_by_one = [[parameter] for parameter in parameters if not parameter.is_cuda]
                for together in [on_gpu, *one_by_one] if on_gpu else one_by_one:
                    self._update(together, group["lr"], beta1, beta2, group["eps"])
        return loss

    def _update(self, parameters: list[Tensor], lr: float, beta1: float, beta2: float, eps: float) -> None:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [self._state(parameter) for parameter in parameters]
        means = [state["mean"] for state in states]
        squares = [state["square"] for state in states]
        rates = []
        for state in states:
            state["step"] += 1
            step = int(state["step"])
            rates.append(-lr * math.sqrt(1.0 - beta2**step) / (1.0 - beta1**step))
        torch._foreach_lerp_(means, gradients, 1.0 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
        ahead = torch._foreach_lerp(means, gradients, 1.0 - beta1)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, eps)
        torch._foreach_addcdiv_(parameters, ahead, roots, rates)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the state of a parameter. Its step is a tensor on the CPU, as in torch's own optimisers."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        return state


def check_settings(section: dict[str, Any]) -> None:
    """Raise ConfigError for an unusable setting of `optim`, such as a learning rate of 0, which torch accepts."""
    try:
        for key, limit in UPPER_LIMITS.items():
            require(key, section.get(key), 0.0, limit)
    except ArgumentError as error:
        raise ConfigError(f"optim.{error}") from error
    rate = section.get("lr")
    if isinstance(rate, int | float) and rate <= 0:
        raise ConfigError(f"optim.lr={rate} trains nothing: it must be above 0, for example optim.lr=0.001")
