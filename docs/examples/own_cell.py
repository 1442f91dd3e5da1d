"""A cell of your own in `las.LSTM`: coupled gates, f = 1 - i, on the sum of the first values of a sequence."""

import torch
from torch import Tensor, nn

import las


class CoupledLSTMCell(las.PlainLSTMCell):
    """gates = W x + U h + b, with -i in the place of f: sigmoid(-i) = 1 - sigmoid(i)."""

    def gates(self, input_gates: Tensor, hidden: Tensor) -> Tensor:
        i, _, g, o = super().gates(input_gates, hidden).chunk(4, -1)
        return torch.cat([i, -i, g, o], -1)


torch.manual_seed(1)
lstm = las.LSTM(2, 16, batch_first=True, cell=CoupledLSTMCell, cell_norm="output")
readout = nn.Linear(16, 1)
optimiser = torch.optim.Adam([*lstm.parameters(), *readout.parameters()], lr=0.02)
frames, lengths = torch.randn(32, 10, 2), torch.randint(3, 11, (32,))
targets = (frames[:, :, 0] * (torch.arange(10) < lengths.unsqueeze(1))).sum(1)
losses = []
for _ in range(60):
    _, (hidden, _) = lstm(frames, lengths=lengths)
    loss = (readout(hidden[-1]).squeeze(-1) - targets).square().mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
print(f"own cell: mean squared error {losses[0]:.2f} before, {losses[-1]:.2f} after {len(losses)} updates")
