"""The real thing on processes of this machine, over gloo, without a GPU; on GPUs, under torchrun, NCCL takes its place.

`run` starts processes and brings back what each returned; `jobs` are what the lesson has them do; `train` is the script
for whoever outgrows one card, run by torchrun with DDP or FSDP. The model of what it costs is
`lessons.shared.parallel`.
"""

from lessons.many_gpus.distributed.launch import run

__all__ = ["run"]
