"""Attentions over all tokens of a teacher-forced pass, forwards and backwards.

With a = softmax(e) the weights, v the values and c = sum over s of a_s v_s the context of a step, the backward pass is

    da_s = v_s . dc + gradients of the weights from outside and from the energies of the next step
    de   = a (da - sum over s of a_s da_s)
    dv_s = sum over steps of a_s dc        one product for all steps

and the gradient of the query, of the keys and of the weights of the step before follow from that of the energy e.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv1d_weight

from las.nn.attention.base import AttentionMemory

softmax_backward = torch.ops.aten._softmax_backward_data.default
tanh_backward = torch.ops.aten.tanh_backward.default


class AttentionKernel:
    """An attention over all steps of one pass, forward and backward. A subclass defines the energies.

    Args:
        memory: keys and values to attend to.
        steps: number of tokens.
        recording: True if a backward pass follows; otherwise buffers hold one step only.
        query: the projection of hidden states to queries, [K, H].
        energies: the other parameters, those of the energy.
    """

    def __init__(self, memory: AttentionMemory, steps: int, recording: bool, query: Tensor, *energies: Tensor) -> None:
        self.keys, self.values, self.mask = memory
        batch, states, _ = self.keys.shape
        self.steps, self.recording = steps, recording
        self.query, self.energies = query, energies
        self.queries = self.keys.new_empty(steps, batch, len(query))
        self.weights = self.keys.new_zeros(steps + 1, batch, states)
        """Weights before each step; row t + 1 holds those of step t."""
        self.contexts = self.values.new_zeros(steps + 1, batch, self.values.shape[2])

    def forward(self, step: int, hidden: Tensor) -> Tensor:
        """The context [B, V] for the hidden state [B, H] of this step."""
        torch.mm(hidden, self.query.t(), out=self.queries[step])
        energy = self.energy(step).masked_fill_(~self.mask, torch.finfo(self.keys.dtype).min)
        weights = torch.softmax(energy, -1, out=self.weights[step + 1]).masked_fill_(~self.mask, 0.0)
        context = self.contexts[step + 1].unsqueeze(1)
        return torch.bmm(weights.unsqueeze(1), self.values, out=context).squeeze(1)

    def energy(self, step: int) -> Tensor:
        """Energies [B, S] from `queries` and `weights` of this step."""
        raise TypeError(f"{type(self).__name__} must define energy")

    def begin(self, d_contexts: Tensor, d_weights: Tensor) -> None:
        """Prepare the backward pass, from the gradients [U, B, ...] of contexts and weights outside the loop."""
        self.d_queries = torch.empty_like(self.queries)
        self.d_contexts = torch.cat([torch.zeros_like(self.contexts[:1]), d_contexts])
        self.d_weights = torch.cat([torch.zeros_like(self.weights[:1]), d_weights])

    def backward(self, step: int) -> Tensor:
        """The gradient of the hidden state of this step, [B, H]; `d_contexts` and `d_weights` of it are complete."""
        weights, d_context = self.weights[step + 1], self.d_contexts[step + 1].unsqueeze(1)
        d_weights = torch.baddbmm(
            self.d_weights[step + 1].unsqueeze(1), d_context, self.values.transpose(1, 2)
        ).squeeze(1)
        self.energy_backward(step, softmax_backward(d_weights, weights, -1, weights.dtype))
        return torch.mm(self.d_queries[step], self.query)

    def energy_backward(self, step: int, d_energy: Tensor) -> None:
        """Set `d_queries` of this step; add to `d_weights` of the step before and to gradients of parameters."""
        raise TypeError(f"{type(self).__name__} must define energy_backward")

    def totals(self, hidden: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of keys, values, and all parameters; `hidden` [U * B, H] are the hidden states of all steps."""
        d_values = torch.einsum("ubs,ubv->bsv", self.weights[1:], self.d_contexts[1:])
        d_query = self.d_queries.flatten(0, 1).t() @ hidden
        d_keys, *of_energy = self.energy_totals()
        return d_keys, d_values, d_query, *of_energy

    def energy_totals(self) -> Sequence[Tensor]:
        """Gradients of the keys and of the parameters of the energy."""
        raise TypeError(f"{type(self).__name__} must define energy_totals")


class DotKernel(AttentionKernel):
    """Dot-product energies, e_s = query . key_s."""

    def energy(self, step: int) -> Tensor:
        return torch.bmm(self.queries[step].unsqueeze(1), self.keys.transpose(1, 2)).squeeze(1)

    def begin(self, d_contexts: Tensor, d_weights: Tensor) -> None:
        super().begin(d_contexts, d_weights)
        self.d_energies = torch.empty_like(self.weights[1:])

    def energy_backward(self, step: int, d_energy: Tensor) -> None:
        self.d_energies[step] = d_energy
        torch.bmm(d_energy.unsqueeze(1), self.keys, out=self.d_queries[step].unsqueeze(1))

    def energy_totals(self) -> Sequence[Tensor]:
        return (torch.einsum("ubs,ubk->bsk", self.d_energies, self.queries),)


class AdditiveKernel(AttentionKernel):
    """Additive energies, e_s = score . tanh(query + key_s)."""

    def __init__(self, memory: AttentionMemory, steps: int, recording: bool, query: Tensor, *energies: Tensor) -> None:
        super().__init__(memory, steps, recording, query, *energies)
        self.score = energies[0].squeeze(0)
        self.activations = self.keys.new_empty(steps if recording else 1, *self.keys.shape)

    def energy(self, step: int) -> Tensor:
        activation = self.tanh_input(step).add_(self.queries[step].unsqueeze(1)).tanh_()
        return torch.mv(activation.flatten(0, 1), self.score).view_as(self.mask)

    def tanh_input(self, step: int) -> Tensor:
        """The argument of tanh without the query, [B, S, K]."""
        return self.activations[step if self.recording else 0].copy_(self.keys)

    def begin(self, d_contexts: Tensor, d_weights: Tensor) -> None:
        super().begin(d_contexts, d_weights)
        self.d_keys, self.d_score = torch.zeros_like(self.keys), torch.zeros_like(self.score)

    def energy_backward(self, step: int, d_energy: Tensor) -> None:
        activation = self.activations[step]
        self.d_score.addmv_(activation.flatten(0, 1).t(), d_energy.flatten())
        d_tanh_input = tanh_backward(d_energy.unsqueeze(-1) * self.score, activation)
        self.d_keys += d_tanh_input
        torch.sum(d_tanh_input, 1, out=self.d_queries[step])
        self.tanh_input_backward(step, d_tanh_input)

    def tanh_input_backward(self, step: int, d_tanh_input: Tensor) -> None:
        """Backward pass of the terms beside query and keys; there are none here."""

    def energy_totals(self) -> Sequence[Tensor]:
        return self.d_keys, self.d_score.unsqueeze(0)


class LocationKernel(AdditiveKernel):
    """Location-aware energies, e_s = score . tanh(query + key_s + location (filters * previous weights)_s)."""

    def __init__(self, memory: AttentionMemory, steps: int, recording: bool, query: Tensor, *energies: Tensor) -> None:
        super().__init__(memory, steps, recording, query, *energies)
        _, self.filters, self.location = energies
        self.middle = self.filters.shape[2] // 2
        self.features = self.keys.new_empty(steps if recording else 1, *self.mask.shape, len(self.filters))

    def tanh_input(self, step: int) -> Tensor:
        row = step if self.recording else 0
        features = self.features[row]
        filtered = functional.conv1d(self.weights[step].unsqueeze(1), self.filters, padding=self.middle)
        features.copy_(filtered.transpose(1, 2))
        activation = self.activations[row]
        torch.addmm(self.keys.flatten(0, 1), features.flatten(0, 1), self.location.t(), out=activation.flatten(0, 1))
        return activation

    def begin(self, d_contexts: Tensor, d_weights: Tensor) -> None:
        super().begin(d_contexts, d_weights)
        self.d_location = torch.zeros_like(self.location.t())
        self.d_features = torch.empty_like(self.features)

    def tanh_input_backward(self, step: int, d_tanh_input: Tensor) -> None:
        features, rows = self.features[step].flatten(0, 1), d_tanh_input.flatten(0, 1)
        self.d_location.addmm_(features.t(), rows)
        d_features = torch.mm(rows, self.location, out=self.d_features[step].flatten(0, 1)).view_as(self.features[step])
        d_before = functional.conv_transpose1d(d_features.transpose(1, 2), self.filters, padding=self.middle)
        self.d_weights[step] += d_before.squeeze(1)

    def energy_totals(self) -> Sequence[Tensor]:
        before = self.weights[:-1].flatten(0, 1).unsqueeze(1)
        d_features = self.d_features.flatten(0, 1).transpose(1, 2)
        d_filters = conv1d_weight(before, self.filters.shape, d_features, padding=self.middle)
        return *super().energy_totals(), d_filters, self.d_location.t()


class WeightFeedbackKernel(AdditiveKernel):
    """Energies with weight feedback, e_s = score . tanh(query + key_s + feedback used_s).

    used_s is the sum of f_s * weight_s over the steps before; f_s, half the inverse fertility, is the last column of
    the keys.
    """

    def __init__(self, memory: AttentionMemory, steps: int, recording: bool, query: Tensor, *energies: Tensor) -> None:
        keys = memory.keys[..., :-1].contiguous()
        super().__init__(memory._replace(keys=keys), steps, recording, query, *energies)
        self.scale = memory.keys[..., -1].contiguous()
        self.feedback = energies[1].squeeze(1)
        self.used = torch.zeros_like(self.weights[:-1])

    def tanh_input(self, step: int) -> Tensor:
        if step:
            torch.addcmul(self.used[step - 1], self.weights[step], self.scale, out=self.used[step])
        activation = self.activations[step if self.recording else 0]
        return torch.addcmul(self.keys, self.used[step].unsqueeze(-1), self.feedback, out=activation)

    def begin(self, d_contexts: Tensor, d_weights: Tensor) -> None:
        super().begin(d_contexts, d_weights)
        self.d_used, self.d_scale = torch.zeros_like(self.scale), torch.zeros_like(self.scale)
        self.d_feedback = torch.zeros_like(self.feedback)

    def tanh_input_backward(self, step: int, d_tanh_input: Tensor) -> None:
        rows = d_tanh_input.flatten(0, 1)
        self.d_feedback.addmv_(rows.t(), self.used[step].flatten())
        self.d_used += torch.mv(rows, self.feedback).view_as(self.d_used)
        self.d_scale.addcmul_(self.d_used, self.weights[step])
        self.d_weights[step].addcmul_(self.d_used, self.scale)

    def energy_totals(self) -> Sequence[Tensor]:
        d_keys, d_score = super().energy_totals()
        return torch.cat([d_keys, self.d_scale.unsqueeze(-1)], -1), d_score, self.d_feedback.unsqueeze(1)
