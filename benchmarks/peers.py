"""What other estimators say of the training step that `course trace` traces: ten language models by published shapes.

Each is asked by its own functions, without a network: fitcheck by a config, accelerate by an empty model, DeepSpeed by
the number of parameters. What is not installed is left out, and said. All of it is full training in float32 with AdamW,
on sequences of 1,024 tokens; accelerate and DeepSpeed ask neither how many nor how large a batch is.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from course_utils.machine.context import CONTEXT_BYTES
from course_utils.trace_command.builders import transformer
from course_utils.trace_command.network import Network, Settings
from course_utils.units import GIB, MIB
from lessons.shared.language_models import SHAPES, Shape

CONSOLE = Console()
MODELS = (
    "GPT-2", "GPT-2 XL", "SmolLM2-135M", "SmolLM2-360M", "SmolLM2-1.7B", "TinyLlama-1.1B", "Llama-3.2-1B",
    "Qwen2.5-1.5B", "Llama-3.2-3B", "Llama-3-8B",
)  # fmt: skip
BATCHES, TOKENS = (1, 8), 1024


def config(shape: Shape) -> dict[str, Any]:
    """A shape as the config.json of transformers."""
    if shape.family == "gpt2":
        return {
            "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": shape.layers,
            "n_embd": shape.hidden, "n_head": shape.heads, "vocab_size": shape.vocabulary,
        }  # fmt: skip
    kind = ("qwen2", "Qwen2ForCausalLM") if shape.bias else ("llama", "LlamaForCausalLM")
    return {
        "model_type": kind[0], "architectures": [kind[1]], "hidden_size": shape.hidden,
        "intermediate_size": shape.inner, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.hidden // shape.heads,
        "vocab_size": shape.vocabulary, "tie_word_embeddings": shape.tied, "max_position_embeddings": shape.positions,
    }  # fmt: skip


def built(shape: Shape) -> Network:
    """The model of transformers, without numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config(shape)), encoding="utf-8")
        return transformer(path, TOKENS)


def _accelerate() -> Callable[[Network, Shape, int], float]:
    usage = import_module("accelerate.commands.estimate").estimate_training_usage
    sizes = import_module("accelerate.utils").calculate_maximum_sizes
    return lambda network, shape, batch: max(usage(sizes(network.model)[0], "float32").values())


def _fitcheck() -> Callable[[Network, Shape, int], float | None]:
    estimator, parsed = import_module("fitcheck.estimator"), import_module("fitcheck.config_parser")
    card = import_module("fitcheck.gpu_db").GPU_DB["a100-80"]

    def asked(network: Network, shape: Shape, batch: int) -> float | None:
        if shape.family == "gpt2":
            return None  # it takes an MLP to have three matrices, and refuses what differs by more
        model = parsed.ModelConfig(
            shape.name, shape.parameters, shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.inner,
            shape.vocabulary, shape.hidden // shape.heads, shape.tied,
        )  # fmt: skip
        training = estimator.TrainingConfig("fp32", lora_rank=None, batch_size=batch, seq_len=TOKENS)
        return float(estimator.estimate(model, training, card).total_mib * MIB)

    return asked


def _deepspeed() -> Callable[[Network, Shape, int], float]:
    estimate = import_module("deepspeed.runtime.zero.stage_1_and_2").estimate_zero2_model_states_mem_needs
    return lambda network, shape, batch: estimate(shape.parameters, 1, 1, cpu_offload=False)[1]


PEERS = {"fitcheck": _fitcheck, "accelerate": _accelerate, "DeepSpeed": _deepspeed}
ASK_THE_BATCH = ("fitcheck",)


def peers() -> None:
    """A table of what each says, in GiB."""
    asked: dict[str, Callable[[Network, Shape, int], float | None]] = {}
    for name, find in PEERS.items():
        try:
            asked[name] = find()
        except ImportError as error:
            CONSOLE.print(f"{name} is not installed ({error}), so left out.")
    columns = {f"trace × {batch}": ("trace", batch) for batch in BATCHES}
    columns |= {f"{name} × {batch}": (name, batch) for name in asked if name in ASK_THE_BATCH for batch in BATCHES}
    columns |= {name: (name, 1) for name in asked if name not in ASK_THE_BATCH}
    table = Table(title=f"GiB to train in float32 with AdamW, by sequences of {TOKENS:,} tokens", title_justify="left")
    for index, column in enumerate(("model", *columns)):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    seconds = dict.fromkeys(("trace", *asked), 0.0)
    for name in track(MODELS, "peers", console=CONSOLE, transient=True):
        shape = SHAPES[name]
        network = built(shape)
        row = []
        for who, batch in columns.values():
            began = time.process_time()
            if who == "trace":
                ledger = network.step(Settings(batch, sequence=TOKENS)).at(batch)
                said: float | None = ledger.reserved_bytes() + CONTEXT_BYTES
            else:
                said = asked[who](network, shape, batch)
            seconds[who] += time.process_time() - began
            row.append("refused" if said is None else f"{said / GIB:.1f}")
        table.add_row(name, *row)
    CONSOLE.print(table)
    CONSOLE.print("trace: reserved by PyTorch's allocator, replayed, and the context: what nvidia-smi would show.")
    CONSOLE.print("DeepSpeed: ZeRO-2, states of mixed precision on one GPU (20 bytes a parameter), no feature maps.")
    CONSOLE.print(", ".join(f"{who} {took:.1f} s" for who, took in seconds.items()) + " of processor.\n")
