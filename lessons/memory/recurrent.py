"""A recurrent network, whose maps grow with the sequence and whose parameters do not."""

from torch import Tensor, nn


class RecurrentNet(nn.Module):
    """One recurrent cell applied at every step of a sequence, and a dense layer on its last state."""

    def __init__(self, inputs: int, units: int, classes: int) -> None:
        super().__init__()
        self.cell = nn.RNNCell(inputs, units)
        self.fc = nn.Linear(units, classes)

    def forward(self, sequence: Tensor) -> Tensor:
        """(batch, steps, inputs) to (batch, classes)."""
        state: Tensor | None = None
        for step in sequence.unbind(dim=1):
            state = self.cell(step, state)
        scores: Tensor = self.fc(state)
        return scores


def rnn_from_cells(inputs: int = 4, units: int = 100, classes: int = 10) -> RecurrentNet:
    """A recurrent network written out step by step: input (steps, inputs) for any number of steps.

    The cell has units·(inputs + units + 2) parameters, 10,600 by default (PyTorch keeps two biases), whatever the
    number of steps; the dense layer adds 1,010. Elman, "Finding structure in time" (1990).
    """
    return RecurrentNet(inputs, units, classes)
