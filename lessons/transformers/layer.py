"""One layer of GPT-2 as it is written, each line with what it leaves for the backward pass: by hand, and traced."""

from __future__ import annotations

from course_utils.memory import ROLE, Ledger
from course_utils.units import MIB
from lessons.shared.language_models import Shape

# A line; its bytes by hand, in sbh and in as²b; which of the tensors that the trace has, by (part, operator), it makes.
LINES: tuple[tuple[str, tuple[int, int], dict[tuple[str, str], slice]], ...] = (
    ("y = norm1(x)", (2, 0), {("norm1", "native_layer_norm"): slice(None)}),
    ("q, k, v = heads(qkv(y))", (6, 0), {("attention", "clone"): slice(3)}),
    ("w = softmax(mask(q @ k.T / √d))", (0, 2), {("attention", "_softmax"): slice(None)}),
    ("w = dropout(w)", (0, 3), {("attention", "empty_like"): slice(None), ("attention", "mul"): slice(None)}),
    (
        "x = x + dropout(project(w @ v))", (5, 0),
        {("attention", "clone"): slice(3, None), ("drop1", "empty_like"): slice(None), ("", "add"): slice(1)},
    ),
    ("y = norm2(x)", (2, 0), {("norm2", "native_layer_norm"): slice(None)}),
    ("z = up(y)", (8, 0), {("up", "addmm"): slice(None)}),
    ("g = gelu(z)", (8, 0), {("gelu", "gelu"): slice(None)}),
    ("x = x + dropout(down(g))", (3, 0), {("drop2", "empty_like"): slice(None), ("", "add"): slice(1, None)}),
)  # fmt: skip


def kept_by_line(ledger: Ledger, layer: int) -> list[int]:
    """Bytes that each of LINES leaves alive for the backward pass, in a step of GPT-2, written out, with dropout.

    Args:
        ledger: of `language_step("GPT-2", …, Options("eager", dropout=…))`.
        layer: which of the layers.
    """
    tape = ledger.tape
    last = int((tape.event_phase == 0).nonzero()[0][-1])
    kept = (tape.role == ROLE["feature maps"]) & (tape.birth <= last) & (tape.death > last + 1)
    found: dict[tuple[str, str], list[int]] = {}
    for tensor in sorted(kept.nonzero()[0], key=lambda tensor: int(tape.birth[tensor])):
        name = f"{tape.layer_names[tape.layer[tensor]]}."
        if name.startswith(f"layers.{layer}."):
            part = name.removeprefix(f"layers.{layer}.").rstrip(".")
            found.setdefault((part, tape.event_ops[tape.birth[tensor]]), []).append(int(ledger.size[tensor]))
    return [sum(sum(found.get(key, [])[which]) for key, which in made.items()) for _, _, made in LINES]


def lines_of_a_layer(ledger: Ledger, layer: int, sequence: int, shape: Shape) -> str:
    """LINES as text, each with its bytes by hand and as traced, and their sums. Arguments as for `kept_by_line`."""
    state = sequence * ledger.batch * shape.hidden
    scores = sequence * sequence * ledger.batch * shape.heads
    rows, hand, traced = [], 0, 0
    for (line, (states, of_scores), _), size in zip(LINES, kept_by_line(ledger, layer), strict=True):
        formula = f"{states} sbh" if states else f"{of_scores} as²b"
        by_hand = states * state + of_scores * scores
        rows.append(f"{line:<34}{formula:>8}{by_hand / MIB:>9.2f}{size / MIB:>9.2f}")
        hand, traced = hand + by_hand, traced + size
    head = f"{'':<34}{'by hand':>8}{'MiB':>9}{'traced':>9}"
    return "\n".join([head, *rows, f"{'together':<34}{'':>8}{hand / MIB:>9.2f}{traced / MIB:>9.2f}"])
