"""A loss of your own for a whole model: cross-entropy, and a tenth of the entropy of every prediction."""

from functools import partial
from typing import Any

import torch

import las


class ConfidentLoss(las.TrainingLoss):
    """-log p(token) + 0.1 H(p), summed over the tokens and the ends of the sentences."""

    def objective(self, model: torch.nn.Module, output: Any, batch: Any) -> torch.Tensor:
        cross_entropy = las.LabelSmoothedCrossEntropy()(output.logits, batch.targets, batch.num_tokens).loss
        return cross_entropy + 0.1 * torch.distributions.Categorical(logits=output.logits).entropy().sum()


torch.manual_seed(1)
model = las.ListenAttendSpell(
    16000,
    6,
    features=partial(las.LogMel, num_mels=8, normalisation="utterance"),
    listener=partial(las.Listener, cell=las.LNGlobalLSTMCell, hidden_size=8),
    speller=partial(las.Speller, cell=las.PlainLSTMCell, attention=las.AdditiveAttention, hidden_size=8),
)
num_tokens = torch.tensor([3, 2])
targets = torch.tensor([[1, 2, 3], [4, 5, 0]])
batch = las.Batch(["u1", "u2"], torch.randn(2, 16000), torch.tensor([16000, 9000]), targets, num_tokens)
criterion, optimiser = ConfidentLoss(), torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for _ in range(30):
    output = model(batch.waveforms, batch.num_samples, batch.targets)
    loss = criterion.objective(model, output, batch) / criterion.divisor(model.num_targets(batch))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"own loss: {losses[0]:.2f} per token before, {losses[-1]:.2f} after {len(losses)} updates")
