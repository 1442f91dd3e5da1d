"""Layer norm gate by gate with a cap on the memory, as lingvo's layer-normalised cells have it (`cell_value_cap`):

c_t = clip(sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(g), -cap, cap)
"""

from typing import Any

from las.nn.cells.base import Hidden
from las.nn.cells.ln_per_gate import LNPerGateLSTMCell
from las.runtime.errors import ArgumentError


class LNPerGateCappedLSTMCell(LNPerGateLSTMCell):
    """An `LNPerGateLSTMCell` whose memory stays within bounds, before any norm of it; no gradient passes beyond them.

    Only the plain kernel computes it.

    Args:
        cell_cap: largest absolute value of c, above 0.
        options: those of `LNPerGateLSTMCell`.
    """

    def __init__(self, input_size: int, hidden_size: int, *, cell_cap: float = 10.0, **options: Any) -> None:
        super().__init__(input_size, hidden_size, **options)
        if not cell_cap > 0:
            raise ArgumentError(f"cell_cap={cell_cap} must be above 0")
        self.cell_cap = cell_cap

    def bounded(self, cell: Hidden) -> Hidden:
        return cell.clamp(-self.cell_cap, self.cell_cap)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, cell_cap={self.cell_cap:g}"
