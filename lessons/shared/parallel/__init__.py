"""Many cards: what each computes, keeps and sends, read from a traced step and the catalogue of devices and links.

`ring` is the all-reduce, `schemes` one step on several cards under data parallelism, a split by units, or both
(Krizhevsky's "one weird trick"), `pipeline` the split into stages, `sharding` the bytes that ZeRO and FSDP leave on
each card. The real thing on processes is `lessons.many_gpus.distributed`.
"""

from lessons.shared.parallel.card_step import DATA, MIXED, SCHEMES, STAGES, UNITS, CardStep, Span
from lessons.shared.parallel.ring import STEP_SECONDS, all_reduce_seconds, ring_bytes, ring_states
from lessons.shared.parallel.schemes import buckets, bytes_by_layer, on_cards
from lessons.shared.parallel.sharding import sent_bytes, sharded, state_bytes

__all__ = [
    "DATA", "MIXED", "SCHEMES", "STAGES", "STEP_SECONDS", "UNITS", "CardStep", "Span", "all_reduce_seconds", "buckets",
    "bytes_by_layer", "on_cards", "ring_bytes", "ring_states", "sent_bytes", "sharded", "state_bytes",
]  # fmt: skip
