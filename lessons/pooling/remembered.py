"""What a forward pass keeps for the backward pass, as autograd itself says: in eager mode and compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor, nn

# torch.compile up to the point where it has decided what to keep, without writing kernels: no C++ compiler is needed.
PLANNED = "aot_eager_decomp_partition"


def kept_by_type(module: nn.Module, images: Tensor, backend: str | None = None) -> pd.Series:
    """Bytes that one forward pass keeps for its backward pass, by dtype ("float32", "int8", …), largest first.

    Parameters, buffers and the images, which are there anyway, are left out; a tensor that two operators keep counts
    once. On tensors of the meta device nothing is computed and nothing allocated.

    Args:
        module: the network.
        images: what it is called with.
        backend: of `torch.compile`; None runs the network as it is.
    """
    there = {id_of(tensor) for tensor in (*module.parameters(), *module.buffers(), images)}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if id_of(tensor) not in there:
            kept[id_of(tensor)] = tensor
        return tensor

    run: Callable[[Tensor], Tensor] = module
    if backend is not None:
        torch._dynamo.reset()  # else the second network of a kind is compiled for sizes of any kind
        run = torch.compile(module, backend=backend)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run(images)
    assert output.requires_grad
    counts: Counter[str] = Counter()
    for tensor in kept.values():
        counts[str(tensor.dtype).removeprefix("torch.")] += tensor.untyped_storage().nbytes()
    return pd.Series(dict(counts.most_common()), dtype="int64")


def id_of(tensor: Tensor) -> int:
    """Which storage a tensor is a view of; tensors on meta have no address."""
    return int(tensor.untyped_storage()._cdata)
