"""Recompute instead of store: segments of a chain keep their input alone, and compute the rest again when it is needed.

`real` is the network that does so, `cuts` chooses the segments, `chain` traces every way to recompute one network.
"""

from lessons.shared.recompute.chain import Chain, kept_and_again
from lessons.shared.recompute.real import Checkpointed, Segment, checkpointed, evenly

__all__ = ["Chain", "Checkpointed", "Segment", "checkpointed", "evenly", "kept_and_again"]
