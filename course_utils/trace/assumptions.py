"""What a trace takes for granted, in the words of `StepTrace.assumptions`."""

from collections.abc import Iterable, Iterator

from torch import nn

from course_utils.trace.inputs import LARGE_BATCH, LARGE_BATCH_OF_ROWS, SMALL_BATCH

# Of every trace of a training step, unless it is told where gradients are cleared; or of every one with lines.
CLEARED = (
    'gradients are cleared between two steps; if between forward and backward, as in Lightning, say zero_grad="before '
    'backward"; if they are zeroed and not freed, set_to_none=False'
)
SAME_WAY = "every batch runs the operators that batches {} and {:,} run: the step branches at no other batch"
STANDING = frozenset({CLEARED, *(SAME_WAY.format(SMALL_BATCH, one) for one in (LARGE_BATCH, LARGE_BATCH_OF_ROWS))})

COMPILED = "compiled, but traced as eager: a compiled step fuses operators, and mostly needs less"
CHOSEN_ON_CPU = "kernels chosen as on the CPU, because on meta tensors it looks at values"
OVERWRITTEN_VIEW = "a view written in place: without the two copies that its gradient may take"
OUTSIDE = "{}, which the step reaches outside of {}: on the card too"  # a network that only the loss or a hook knows
UNCLEARED = "gradients of {} parameters that the optimizer does not update: never cleared by its zero_grad"
MOVES_ON = "{}, an iterator, moves on with every step, those of the trace too: traced from where it is"
CPU_IS_CARD = '{} is the CPU here, and the step copies to it: taken for the card; let it be "cuda" there'
ONE_FOR_ALL = "the optimizer looks at numbers that depend on gradients or weights: each is taken to be 1"

HIDDEN_BUFFERS = (nn.RNN, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell)  # of CUDA's kernels, and of the CPU's LSTM


def of_recurrences(
    modules: Iterable[tuple[str, nn.Module]], operators: set[str], on_cuda: bool, whole: str
) -> Iterator[str]:
    """Recurrences run in kernels of libraries whose buffers no trace sees: their figures are estimates."""
    if not on_cuda and "mkldnn_rnn_layer" in operators:
        yield "LSTM: without the workspace that the CPU's library keeps for the backward pass"
    for path, child in modules if on_cuda else ():
        if isinstance(child, HIDDEN_BUFFERS):
            what = f"{path or whole} ({type(child).__name__})"
            yield f"{what}: traced cell by cell, while CUDA's kernel keeps buffers of its own"


def counted(names: list[str]) -> str:
    """Numbers, names or lengths that the step changes."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}: another after every step, traced as in the second one"


def by_lot(batch: int, peaks: list[int], drawn: bool, alike: bool) -> str:
    """A step that draws in Python, or that is another every time without."""
    why = "it draws random numbers in Python" if drawn else "it counts its steps"
    found = f"{len(peaks)} steps at batch {batch}"
    if alike:
        return f"{why}: {found} were alike, with a peak of {peaks[0]:,} bytes; others may not be"
    return (
        f"{why}, and is another step every time: {found} have their peaks from {min(peaks):,} to {max(peaks):,} bytes, "
        "and this is one of them"
    )
