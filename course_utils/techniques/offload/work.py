"""What a schedule runs: the kernels of one traced step with their times, and which tensors each of them uses."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from course_utils.machine.hardware import Device, Float64
from course_utils.machine.speed import predict_step
from course_utils.memory import IN_PLACE_2016, PHASES, ROLE, Int64, Ledger, Tape
from course_utils.units import CourseError

Bools = npt.NDArray[np.bool_]

FORWARD, BACKWARD, UPDATE = range(len(PHASES))
# The two convolution algorithms of 2016. "p", performance-optimal, is the fastest and reaches the efficiency of
# `course_utils.machine.hardware`. "m", memory-optimal, needs no workspace and is slower. Each constant is read off one
# published row, used for every network, and that row tests nothing any more:
# VGG-A, batch 64, Maxwell Titan X: 529 ms with cuDNN 4, which had the fast algorithms, 1,099 ms with cuDNN 2, which had
# implicit products (convnet-benchmarks, 2016).
SLOW_SPEED = 529 / 1099
# VGG-16, batch 128: about 14 GB in all (Rhu et al., 2016) where maps, gradient buffers and weights are 12.20 GB; the
# rest, over the input and output of its largest convolution, 3.29 GB.
WORKSPACE_SHARE = (14.0 - 12.20) / 3.29
# Operators that belong to the layer before them: frameworks of 2016 ran them in place, as that layer's last part, and
# their backward as the first part of its backward. A copy is waited for between layers, not before these.
ACTIVATIONS = frozenset({op for op in IN_PLACE_2016 if op not in ("clone", "_to_copy")} | {"div_"})
ACTIVATIONS_BACKWARD = frozenset(
    {
        "threshold_backward", "sigmoid_backward", "tanh_backward", "hardtanh_backward", "leaky_relu_backward",
        "elu_backward", "gelu_backward", "silu_backward", "native_dropout_backward", "mul", "div", "clone",
    }
)  # fmt: skip
DENSE_BACKWARD = frozenset({("mm", "mm"), ("mm", "sum")})  # one dense layer's backward, in several kernels
CONVOLVED = ("input", "feature maps", "gradient maps")
NEVER = -1


@dataclass(frozen=True)
class Work:
    """One step as a schedule runs it: K kernels, one after another, and S tensors.

    A tensor is allocated when kernel `birth` begins and freed when kernel `death` begins. It may be away from the
    device between its last use in the forward pass and its first in the backward pass.
    """

    name: str  # the network
    batch: int  # samples in the batch
    ops: tuple[str, ...]  # (K,) operator names
    layers: tuple[str, ...]  # (K,) the layer of each
    phase: Int64  # (K,) index into PHASES
    begins_layer: Bools  # (K,) False for an activation's kernel, which runs as a part of the layer before it
    convolution: Bools  # (K,) True for a convolution and its backward, which have two algorithms
    fast: Float64  # (K,) seconds with the fastest algorithm
    slow: Float64  # (K,) seconds with the algorithm without workspace; the same where there is no choice
    workspace: Int64  # (K,) bytes the fastest algorithm needs while it runs
    size: Int64  # (S,) bytes
    role: Int64  # (S,) index into ROLES
    owners: tuple[str, ...]  # (S,) the layer that made each tensor
    birth: Int64  # (S,) first kernel with it
    death: Int64  # (S,) first kernel without it
    allowed: Bools  # (S,) True for tensors that a policy may move
    uses: Int64  # (U, 3) kernel, tensor, 1 if written and 0 if read, in the order of kernels

    @property
    def kernels(self) -> int:
        """K, the number of kernels."""
        return len(self.ops)

    @cached_property
    def last_forward_use(self) -> Int64:
        """(S,) the last kernel of the forward pass that uses each tensor, NEVER if none does."""
        kernel, tensor, _ = self.uses[self.phase[self.uses[:, 0]] == FORWARD].T
        last = np.full(len(self.size), NEVER, dtype=np.int64)
        np.maximum.at(last, tensor, kernel)
        return last

    @cached_property
    def first_backward_use(self) -> Int64:
        """(S,) the first kernel of the backward pass that uses each tensor, NEVER if none does."""
        kernel, tensor, _ = self.uses[self.phase[self.uses[:, 0]] == BACKWARD].T
        first = np.full(len(self.size), self.kernels, dtype=np.int64)
        np.minimum.at(first, tensor, kernel)
        return np.where(first < self.kernels, first, NEVER)

    @cached_property
    def leaves(self) -> Int64:
        """(S,) the kernel beside which a copy to the host may begin: the last of the forward pass to use the tensor.

        A kernel that only reads lets the copy run beside it. One that writes must end first: then it is the next one.
        NEVER where the tensor is not allowed to move, or not used in both passes.
        """
        written = np.zeros(len(self.size), dtype=np.int64)
        kernel, tensor, wrote = self.uses.T
        at_last = kernel == self.last_forward_use[tensor]
        np.maximum.at(written, tensor[at_last], wrote[at_last])
        leaves = self.last_forward_use + written
        # Still in the forward pass: of several, when micro-batches are accumulated, in that of the tensor.
        forward = (leaves < self.first_backward_use) & (self.phase[np.minimum(leaves, self.kernels - 1)] == FORWARD)
        can = self.allowed & (self.last_forward_use >= 0) & forward
        return np.where(can & (self.birth <= self.last_forward_use), leaves, NEVER)

    @cached_property
    def movable(self) -> Bools:
        """(S,) True for the tensors a policy can choose from."""
        return self.leaves >= 0

    @cached_property
    def feeds_convolution(self) -> Bools:
        """(S,) True for tensors that a convolution of the forward pass reads: what the policy "conv" moves."""
        kernel, tensor, wrote = self.uses.T
        reads = (self.phase[kernel] == FORWARD) & self.convolution[kernel] & (wrote == 0)
        feeds = np.zeros(len(self.size), dtype=np.bool_)
        feeds[tensor[reads]] = True
        return feeds

    @cached_property
    def levels(self) -> Int64:
        """(K,) bytes allocated while each kernel runs if nothing moves, without workspace."""
        change = np.zeros(self.kernels + 1, dtype=np.int64)
        np.add.at(change, self.birth, self.size)
        np.subtract.at(change, self.death, self.size)
        return np.cumsum(change)[:-1]


def pytorch_step(ledger: Ledger, device: Device | str, precision: str = "float32") -> Work:
    """The step as PyTorch runs it: every operator a kernel, every tensor alive as the trace says.

    What may move is what autograd keeps: the maps, indices and masks made in the forward pass and used in the backward
    pass. Input and labels stay, as the training loop holds them. No workspace is counted. Raises CourseError if the
    trace does not say which tensors its operators use.
    """
    tape = step_of(ledger)
    fast, slow = kernel_seconds(ledger, device, precision)
    forward_born = tape.event_phase[np.minimum(tape.birth, tape.events - 1)] == FORWARD
    return Work(
        name=ledger.name,
        batch=ledger.batch,
        ops=tape.event_ops,
        layers=tuple(tape.layer_names[layer] for layer in tape.event_layer),
        phase=tape.event_phase,
        begins_layer=begins_layer(tape),
        convolution=tape.convolutions,
        fast=fast,
        slow=slow,
        workspace=np.zeros(tape.events, dtype=np.int64),
        size=ledger.size,
        role=tape.role,
        owners=tuple(tape.layer_names[layer] for layer in tape.layer),
        birth=tape.birth,
        death=tape.death,
        allowed=(tape.role == ROLE["feature maps"]) & forward_born,
        uses=tape.uses,
    )


# -- from a tape -------------------------------------------------------------------------------------------------------


def step_of(ledger: Ledger) -> Tape:
    """The tape of a ledger. Raises CourseError if it does not say which tensors its operators use."""
    if not len(ledger.tape.uses):
        raise CourseError(f"{ledger.name}: this trace does not say which tensors each operator uses; trace it anew")
    return ledger.tape


def kernel_seconds(ledger: Ledger, device: Device | str, precision: str) -> tuple[Float64, Float64]:
    """(K,) seconds of each event with the fastest algorithm, and with the one without workspace."""
    time = predict_step(ledger, device, precision)
    arithmetic = time.flops / (SLOW_SPEED * time.device.reached_flops_per_s(precision))
    slow = np.where(ledger.tape.convolutions, np.maximum(time.work, arithmetic), time.work)
    return time.seconds, time.launch + slow


def begins_layer(tape: Tape) -> Bools:
    """(E,) False for an activation's kernel, and for a dense layer's second product: parts of the layer before."""
    begins = np.ones(tape.events, dtype=np.bool_)
    for event, op in enumerate(tape.event_ops):
        if tape.event_phase[event] == FORWARD:
            begins[event] = op not in ACTIVATIONS
        elif tape.event_phase[event] == BACKWARD and tape.event_phase[event - 1] == BACKWARD:
            before = tape.event_ops[event - 1]
            same_layer = tape.event_layer[event] == tape.event_layer[event - 1]
            one_product = same_layer and (before, op) in DENSE_BACKWARD
            begins[event] = before not in ACTIVATIONS_BACKWARD and not one_product
    return begins


def convolution_maps(tape: Tape, size: Int64) -> Int64:
    """(E,) bytes of the maps each convolution reads and writes; a backward has those of its forward."""
    maps = np.zeros(tape.events, dtype=np.int64)
    event, storage, wrote = tape.uses.T
    backward = np.array([op.endswith("backward") for op in tape.event_ops])
    counted = tape.convolutions[event] & np.isin(tape.role[storage], [ROLE[role] for role in CONVOLVED])
    counted &= (wrote == 0) | ~backward[event]
    np.add.at(maps, event[counted], size[storage[counted]])
    return maps
