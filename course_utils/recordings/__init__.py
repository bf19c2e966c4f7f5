"""Recordings of a GPU, for lessons read where there is none: `gpu()` answers from this machine's GPU or a recording.

`course record` makes one (`making`), `schema` is what its file holds, `reading` the questions lessons ask. Files of
GPUs lie in this folder. Needs torch, NumPy and this package alone; must never import pandas, psutil, matplotlib or
ipywidgets.
"""

from course_utils.recordings.reading import (
    NO_RECORDING,
    Live,
    Recording,
    beside_trace,
    gpu,
    load,
    read_recording,
    sentence,
)
from course_utils.recordings.schema import (
    Contest,
    Context,
    Copy,
    Launch,
    Product,
    Provenance,
    RecordingError,
    Step,
    Transfer,
    Workspace,
)

__all__ = [
    "NO_RECORDING", "Contest", "Context", "Copy", "Launch", "Live", "Product", "Provenance", "Recording",
    "RecordingError", "Step", "Transfer", "Workspace", "beside_trace", "gpu", "load", "read_recording", "sentence",
]  # fmt: skip
