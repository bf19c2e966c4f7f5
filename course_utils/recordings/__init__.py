"""Recordings of a GPU, for lessons read where there is none: `gpu()` answers from this machine's GPU or a recording.

`course record` makes one (`making`), `schema` is what its file holds, `reading` the questions lessons ask. Files of
GPUs lie in this folder. Needs torch, NumPy and this package alone; must never import pandas, psutil, matplotlib or
ipywidgets.
"""

from course_utils.recordings.reading import NO_RECORDING, Live, Recording, gpu, read_recording, sentence

__all__ = ["NO_RECORDING", "Live", "Recording", "gpu", "read_recording", "sentence"]
