"""An attention of your own in a speller: cosines of query and states (Graves et al. 2014), learning to copy."""

import torch
from torch import Tensor, nn
from torch.nn import functional

import las


class CosineAttention(las.Attention):
    """energy_s = 10 cos(W query, encoded_s)"""

    def __init__(self, query_size: int, value_size: int) -> None:
        super().__init__(query_size, value_size)
        self.query = nn.Linear(query_size, value_size)

    def energy(self, query: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        return 10 * functional.normalize(self.query(query), dim=-1) @ functional.normalize(keys, dim=-1).transpose(1, 2)


torch.manual_seed(1)
speller = las.Speller(6, 16, cell=las.PlainLSTMCell, attention=CosineAttention, hidden_size=32, embedding_size=8)
optimiser = torch.optim.Adam(speller.parameters(), lr=0.02)
states = torch.randn(6, 16)  # what the listener would write for each of the symbols
targets, num_tokens = torch.randint(1, 6, (16, 4)), torch.full((16,), 4)
losses = []
for _ in range(60):
    memory = speller.attention.prepare(states[targets], num_tokens)
    logits = speller(memory, targets).logits
    loss = las.LabelSmoothedCrossEntropy()(logits, targets, num_tokens).loss / logits[..., 0].numel()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"own attention: cross-entropy {losses[0]:.2f} before, {losses[-1]:.2f} after {len(losses)} updates")
