"""What CUDA's kernels allocate, where that differs from the meta kernels a trace runs.

The named differences of CUDA eager mode that `target="cuda"` applies: to the operators while they run
(`course_utils.trace.overrides`), or to the recording afterwards. Each says where it comes from and what has confirmed
it. "By a T4" (A100, H100): peaks measured by others on a real card and published, `python -m benchmarks gpu_peaks`.

1. Dropout keeps a bool mask, one byte a value, not a float one. Source: aten/native/Dropout.cpp,
   `is_fused_kernel_acceptable`. Confirmed: by reading.
2. The optimizer updates all tensors at once (`foreach`), so Adam's temporaries are as large as the network. Source:
   torch/optim/optimizer.py, `_default_to_fused_or_foreach`. Confirmed: against `foreach=True` on real CPU tensors.
3. The engine adds the gradients of a branch in place. Source: torch/csrc/autograd/input_buffer.cpp,
   `can_accumulate_inplace`. Confirmed: by the allocator's records of unwatched CPU runs. It is an effect of not being
   watched: under any dispatch mode the engine adds out of place, so `target="cpu"`, which must equal what such an
   observer sees, does not apply it.
4. cuBLAS workspace, kept from the first product on: one for the thread that runs forward, one for autograd's. Source:
   aten/cuda/CublasHandlePool.cpp. Confirmed: two of 8,519,680 bytes, by an A100.
5. Attention runs flash attention in half precision without a mask, also where heads share keys and values; the
   memory-efficient kernel in float32 and with a mask, but not where heads share; else it is not fused. Source:
   aten/native/transformers/cuda/sdp_utils.cpp. Confirmed: half precision without a mask, by a T4. Which kernel runs on
   a card is not known here, so that every trace with attention says it (`StepTrace.assumptions`);
   `torch.nn.attention.sdpa_kernel` around the trace chooses another.
6. Adam's step counters stay in host memory. Source: torch/optim/adam.py, `capturable=False`. Confirmed: by reading.
7. Softmax of float16 with a float32 result is one kernel, without a float32 copy of its input; the backward of any
   softmax makes a temporary as large as its gradient. Source: aten/native/SoftMax.cpp, `softmax`, and
   cuda/SoftMax.cu, `softmax_backward_cuda_out`. Confirmed: by a T4.
8. Mish's backward and `rms_norm` are one kernel each, which shapes alone take apart. Source:
   aten/native/native_functions.yaml (`mish_backward`, `_fused_rms_norm`). Confirmed: by reading.
9. Autocast has lists of its own, which hold in what a checkpoint computes again too. Source: ATen/autocast_mode.h.
   Confirmed: by reading.
10. Layer norm, RMS norm and roll copy what is not contiguous before they read it: maps, and gradients such as those
   that a permutation or a sum hands back. Source: aten/native/cuda/layer_norm_kernel.cu,
   `LayerNormBackwardKernelImpl`; TensorTransformations.cu, `roll_cuda`. Confirmed: RMS norm's gradient, by an H100.
11. Group norm makes factors for each channel of each sample, forward two and backward three, and two for each group.
    Source: aten/native/cuda/group_norm_kernel.cu, `GroupNormKernelImplInternal` and
    `GroupNormBackwardKernelImplInternal`. Confirmed: backward, by peaks of Liger-Kernel's seven sizes on an A100.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from course_utils.trace.operators import READS_IN_ORDER, TOUCHES_FEW
from course_utils.trace.record import Event

# Bytes a cuBLAS handle asks of the allocator by default on cards before Hopper: 2 x 4096 KiB + 8 x 16 KiB
# (CUBLAS_WORKSPACE_CONFIG ":4096:2:16:8"). On Hopper it is 32 MiB.
CUBLAS_WORKSPACE = 2 * 4096 * 1024 + 8 * 16 * 1024


def flat_tensors(values: Any) -> list[Tensor]:
    """The tensors among arguments or results, lists of tensors opened."""
    if isinstance(values, Tensor):
        return [values]
    found: list[Tensor] = []
    for value in values if isinstance(values, (tuple, list)) else ():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found.extend(v for v in value if isinstance(v, Tensor))
    return found


def traffic(operator: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes that an operator's kernel reads and writes: each operand and each result once.

    Of an operand that it picks from, it reads what it picks. Of one that it scatters into, it writes what is scattered,
    and reads as much where that is added. One number put into places is charged the whole: it may fill rows.
    """
    whole = sum([tensor.nbytes for tensor in (*inputs, *outputs)])
    kind = next((kind for kind, operators in TOUCHES_FEW.items() if operator in operators), None)
    if kind is None or (kind.startswith("puts") and inputs[-1].dim() == 0):
        return whole
    if kind == "second_unread":
        return whole - inputs[1].nbytes
    first, *others = inputs
    if kind.startswith("picks"):
        picked = outputs[0] if kind == "picks_results" else others[0]
        return whole - first.nbytes + picked.numel() * first.element_size()
    given = max(tensor.numel() for tensor in others) * first.element_size()
    return whole - 2 * first.nbytes + (2 if kind == "puts_sums" else 1) * given


# -- The differences of CUDA eager mode --------------------------------------------------------------------------


def dropout_masks(events: Iterable[Event]) -> Iterator[int]:
    """Storages that are one byte a value on CUDA: float masks of dropout.

    Each is made by `empty_like`, filled by `bernoulli_` and multiplied out of place.
    """
    made: set[int] = set()
    filled: set[int] = set()
    for event in events:
        if event.op == "empty_like":
            made.update(event.writes)
        elif event.op == "bernoulli_":
            filled.update(made.intersection(event.writes))
        elif event.op == "mul_":  # in place: not fused
            filled.difference_update(event.reads, event.writes)
        elif event.op == "mul":
            masks = filled.intersection(event.reads)
            filled -= masks
            yield from masks


def scratch_on_cuda(operator: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes that an operator's kernel makes beside its results, and gives back when it ends: differences 7, 10, 11."""
    if operator == "_softmax_backward_data":
        return inputs[0].nbytes
    if operator == "index" and len(inputs) == 2 and inputs[1].dtype == torch.bool:
        return 8 * inputs[1].dim() * outputs[0].shape[0]  # its places (TensorAdvancedIndexing.cpp, `expandTensors`)
    if operator == "native_group_norm":
        half = inputs[0].element_size() == 2
        return _group_norm_scratch(inputs[0], outputs[1], 2 if len(inputs) > 1 else 0, two_a_group=half)
    if operator == "native_group_norm_backward":
        _gradient, x, mean, _rstd, *weight = inputs
        of_input = outputs[0].shape == x.shape
        return _group_norm_scratch(x, mean, 2 + (1 if weight and of_input else 0), two_a_group=of_input)
    if operator not in READS_IN_ORDER:
        return 0
    return sum(tensor.nbytes for tensor in inputs[: READS_IN_ORDER[operator]] if not tensor.is_contiguous())


def _group_norm_scratch(x: Tensor, mean: Tensor, a_channel: int, two_a_group: bool) -> int:
    """`a_channel` numbers for each channel of each sample, none for one pixel; in half precision they are float32.

    Forward `a` and `b`, and in half precision the statistics; backward `ds`, `db` and, for the gradient of the input,
    `c1` a channel, `c2` and `c3` a group.
    """
    channels = x.shape[0] * x.shape[1]
    count = a_channel * channels if x.numel() > channels else 0
    if two_a_group:
        count += 2 * mean.numel()
    return count * max(4, x.element_size())
