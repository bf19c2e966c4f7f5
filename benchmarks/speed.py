"""How far the predicted step time is from measured ones: published times on GPUs, this CPU, a recorded GPU.

    python benchmarks/speed.py [--batch 2] [--seconds 2] [--published | --recording FILE]

A ratio is predicted / measured: 1 is right, 2 is twice too long. Nothing is fitted to a row: the two efficiencies and
the launch cost are those of `course_utils.machine.hardware`, of which the one for arithmetic is read off the row marked
so; for this CPU and for a recorded GPU they are what was measured there. The spread of the ratios is printed below each
table.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from course_utils import networks
from course_utils.machine.hardware import THIS_MACHINE, Device
from course_utils.machine.speed import StepTime, predict_step
from course_utils.machine.timing import measure_step_time, memory_bytes, time_copy, time_launch, time_product
from course_utils.memory import StepTrace
from course_utils.networks import NETWORKS, Network
from course_utils.recordings import Recording, read_recording
from course_utils.recordings.making import QUICK
from course_utils.trace import training_step
from course_utils.units import GB, GIB, MIB, CourseError
from lessons.shared.published import TIMES, XEONS

SIDE, COPIED = 2048, 256 * MIB  # of this CPU: rows of the matrices multiplied, and bytes copied, well beyond its caches
CALIBRATION = ("VGG-16", 16, "Titan X (Maxwell)", "cuDNN 4.0")
GPU_TIMES = [row for row in TIMES if row.device != XEONS]


def vgg_a() -> nn.Sequential:
    """VGG-A of Simonyan and Zisserman (2015), eight convolutions, as convnet-benchmarks ran it."""
    layers: list[nn.Module] = []
    before = 3
    for maps in (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"):
        if isinstance(maps, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(before, maps, 3, padding=1), nn.ReLU()]
            before = maps
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


BUILT = {
    **NETWORKS,
    **QUICK.networks,
    "AlexNet, two columns": Network("AlexNet, two columns", networks.alexnet_two_column, (3, 224, 224), 1000),
    "OverFeat": Network("OverFeat", networks.overfeat, (3, 231, 231), 1000),
    "VGG-A": Network("VGG-A", vgg_a, (3, 224, 224), 1000),
    "ResNet-101": Network("ResNet-101", networks.resnet101, (3, 224, 224), 1000),
}

WHY = """% of peak: the operations of the formula by the time published, as a share of the card's peak. Above 100 the
card cannot have done them all, and what it skipped is the error.
Why the model misses, as far as these rows show:
- Too long where kernels skip arithmetic: 3x3 convolutions by Winograd from cuDNN 5 on (VGG-16), large kernels by FFT in
  cuDNN 4 (AlexNet and OverFeat at batch 128; for the 3x3 of VGG-A presumably its tiled FFT). ResNet-101 agrees where
  the gain offsets the next two losses.
- Too short on Kepler (K40), whose kernels reach 0.2 to 0.4 of its peak, all layers together, and not 0.67.
- Too short for ResNets and GoogLeNet without Winograd, the backward pass above all: many small kernels, and batch norm
  that reads its input more than once where the trace counts one read. Torch also computes the picture's gradient.
- The row the efficiency is from comes out high by the traffic of its other layers, and is left so.
Update and transfer are predicted too; nothing published here says how well."""


@lru_cache(maxsize=32)
def _step(name: str, target: str, precision: str = "float32", optimizer: str = "momentum") -> StepTrace:
    network = BUILT[name]
    with torch.device("meta"):
        module = network.build()
    return training_step(
        module, network.input_shape, network.classes, optimizer, precision=precision, target=target, name=name
    )


def spread(ratios: Sequence[float]) -> str:
    """The spread of ratios in words; how far off is counted alike for twice too long and half too short."""
    values = np.asarray(ratios, dtype=float)
    low, quarter, median, three, high = np.percentile(values, [0, 25, 50, 75, 100])
    off = np.exp(np.abs(np.log(values)))
    return (
        f"{len(values)} rows: median ratio {median:.2f}, middle half {quarter:.2f} to {three:.2f}, all {low:.2f} to "
        f"{high:.2f}; typically off by a factor of {np.median(off):.2f}, {np.mean(off <= 1.5):.0%} within 1.5"
    )


def _milliseconds(time: StepTime, *phases: str) -> float:
    return 1e3 * float(time.by_phase()[list(phases)].sum())


def _both_flops(time: StepTime) -> float:
    return float(time.flops[time.ledger.phases != "update"].sum())


def published_table() -> pd.DataFrame:
    """Every published row beside its prediction: forward, and forward with backward, in ms, with their ratios."""
    rows = []
    for row in GPU_TIMES:
        time = predict_step(_step(row.network, "cuda").at(row.batch), row.device)
        forward, both = _milliseconds(time, "forward"), _milliseconds(time, "forward", "backward")
        rows.append(
            {
                "source": row.source,
                "network": row.network,
                "batch": row.batch,
                "device": row.device,
                "library": row.library,
                "forward": row.forward_ms,
                "model": forward,
                "ratio": None if row.forward_ms is None else forward / row.forward_ms,
                "both": row.both_ms,
                "% of peak": 100 * _both_flops(time) / row.both_ms * 1e3 / time.device.flops_per_s(),
                "model both": both,
                "ratio both": both / row.both_ms,
                "": "calibration" if (row.network, row.batch, row.device, row.library) == CALIBRATION else "",
            }
        )
    return pd.DataFrame(rows)


def print_published() -> None:
    """The published rows, and the spread of their ratios: of all but the calibration, by device and by network."""
    table = published_table()
    print("Published GPU times, milliseconds, float32; ratio = predicted / published\n")
    print(table_text([table]))
    tests = table[table[""] == ""]
    print(f"\nForward and backward, without the row of the calibration. {spread(tests['ratio both'])}\n")
    for by in ("device", "network"):
        ratios = tests.groupby(by, sort=False)["ratio both"]
        print(f"Median ratio by {by}: {', '.join(f'{name} {value:.2f}' for name, value in ratios.median().items())}")
    print(f"\n{WHY}")


def measured_device(
    name: str, machine: str, flops_per_s: dict[str, float], bytes_per_s: float, launch_seconds: float, held: int
) -> Device:
    """A device of the catalogue's kind with measured rates in place of published peaks, `flops_per_s` by precision."""
    half = flops_per_s.get("float16")
    return Device(
        name=name, year=0, dies=1, memory_gb=held / GIB, bandwidth_gb_s=bytes_per_s / GB,
        float32_tflops=flops_per_s["float32"] / 1e12, tensor_tflops=None if half is None else half / 1e12,
        bfloat16="bfloat16" in flops_per_s, sources=f"measured: {machine}", measured=True,
        launch_seconds=launch_seconds,
    )  # fmt: skip


def measure_cpu(seconds: float) -> Device:
    """This CPU: arithmetic by a large product, bandwidth by a large copy (both beyond its caches), and launch.

    Each is measured for so many `seconds` at least, the launch for a fifth of one.
    """
    product, copy = time_product(SIDE, "float32", "cpu", seconds), time_copy(COPIED, "cpu", seconds)
    launch = time_launch("cpu", min(seconds, 0.2))
    rates = {"float32": 2 * SIDE**3 / product.median}, 2 * COPIED / copy.median, launch.median
    return measured_device(THIS_MACHINE, f"CPU, torch {torch.__version__}", *rates, memory_bytes("cpu"))


def measured_table(batch: int, seconds: float, only: Iterable[str]) -> pd.DataFrame:
    """Real steps on this CPU beside predictions from its own rates, measured just before and just after each."""
    rows = []
    for name in only:
        network = BUILT[name]
        before = measure_cpu(seconds / 2)
        real = measure_step_time(
            network.build(), network.input_shape, network.classes, batch, device="cpu", seconds=seconds
        )
        after = measure_cpu(seconds / 2)
        ledger = _step(name, "cpu").at(batch)
        times = [predict_step(ledger, here) for here in (before, after)]
        forward = sum(_milliseconds(time, "forward") for time in times) / 2
        step = sum(1e3 * time.total_seconds for time in times) / 2
        rows.append(
            {
                "network": name,
                "batch": batch,
                "GFLOP/s": " to ".join(f"{1e3 * here.float32_tflops:.0f}" for here in (before, after)),
                "GB/s": " to ".join(f"{here.bandwidth_gb_s:.1f}" for here in (before, after)),
                "forward": 1e3 * real.forward.median,
                "±": 1e3 * real.forward.spread / 2,
                "model": forward,
                "ratio": forward / (1e3 * real.forward.median),
                "step": 1e3 * real.step.median,
                "± ": 1e3 * real.step.spread / 2,
                "model step": step,
                "ratio step": step / (1e3 * real.step.median),
            }
        )
        print(f"  measured {name}", flush=True)
    return pd.DataFrame(rows)


def recorded_device(recording: Recording) -> Device:
    """The best product of each precision, the largest copy, which no cache holds, and the launch of a recording.

    Raises CourseError where a float32 product, a copy or the launch is not in it.
    """
    contents, where = recording.contents, recording.contents.provenance
    rates = [(2 * each.side**3 / each.time.median, each.precision) for each in contents.products]
    best = {precision: rate for rate, precision in sorted(rates)}
    copies = sorted(contents.copies, key=lambda each: each.size_bytes)
    launches = [each.time for each in contents.launches if each.kind == "issued"]
    if "float32" not in best or not copies or not launches:
        raise CourseError(f"{recording.path.name} has no ceilings: a float32 product, a copy or the launch is missing")
    bandwidth = 2 * copies[-1].size_bytes / copies[-1].time.median
    machine = f"{where.name}, torch {where.torch}"
    return measured_device(where.name, machine, best, bandwidth, launches[0].median, where.memory_bytes)


def recorded_table(recording: Recording) -> pd.DataFrame:
    """Every step of a recording beside its prediction from the ceilings recorded with it; its peak beside the trace.

    Steps whose maps were moved or computed again are left out: the trace is of a plain step.
    """
    card = recorded_device(recording)
    target = recording.contents.provenance.device
    rows = []
    for step in recording.contents.steps:
        if step.memory is None or step.step is None or step.way != "kept" or step.network not in BUILT:
            continue
        ledger = _step(step.network, target, step.precision, step.optimizer).at(step.batch)
        predicted = 1e3 * predict_step(ledger, card).total_seconds
        rows.append(
            {
                "network": step.network,
                "batch": step.batch,
                "precision": step.precision,
                "optimizer": step.optimizer,
                "step": 1e3 * step.step.median,
                "model": predicted,
                "ratio": predicted / (1e3 * step.step.median),
                "peak MiB": step.memory.peak_bytes / MIB,
                "trace MiB": ledger.peak_bytes / MIB,
                "ratio of peaks": ledger.peak_bytes / step.memory.peak_bytes,
            }
        )
    if not rows:
        raise CourseError(f"{recording.path.name} has no steps of networks known here")
    return pd.DataFrame(rows)


def print_recorded(recording: Recording) -> None:
    """The steps of a recording, and the spread of both ratios."""
    table = recorded_table(recording)
    print(f"{recording.sentence()}\n")
    print("Steps, milliseconds; ratio = predicted from the recorded ceilings / recorded\n")
    print(table_text([table]))
    print(f"\nTime. {spread(table['ratio'])}\nPeak, trace / allocated. {spread(table['ratio of peaks'])}")
    for precision, ratios in table.groupby("precision", sort=False)["ratio"]:
        print(f"Time, {precision}: median ratio {ratios.median():.2f}")


def operator_table(network: str, batch: int, here: Device) -> pd.DataFrame:
    """Where a prediction for this CPU goes wrong: forward and backward by operator, predicted and profiled, in ms."""
    built = BUILT[network]
    module, x = built.build(), torch.randn(batch, *built.input_shape)
    y = torch.randint(built.classes, (batch,))
    for _ in range(2):
        nn.functional.cross_entropy(module(x), y).backward()
    module.zero_grad(set_to_none=True)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler otherwise prints its stages
    with profile(activities=[ProfilerActivity.CPU]) as records:
        nn.functional.cross_entropy(module(x), y).backward()
    profiled = {entry.key: entry.cpu_time_total / 1e3 for entry in records.key_averages()}
    events = predict_step(_step(network, "cpu").at(batch), here).timeline()
    table = 1e3 * events[events["phase"] != "update"].groupby("event")["seconds"].agg(["sum", "count"])
    table = pd.DataFrame(
        {
            "network": network,
            "operator": table.index,
            "times": (table["count"] / 1e3).astype(int),
            "model": table["sum"],
            "profiled": [profiled.get(f"aten::{name}", 0.0) for name in table.index],
        }
    )
    return table.sort_values("profiled", ascending=False).head(6)


def table_text(tables: Iterable[pd.DataFrame]) -> str:
    """Tables below each other, as printed."""
    return pd.concat(list(tables)).to_string(index=False, float_format=_number, na_rep="-")


def _number(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2f}"


def say_how_quiet() -> None:
    """One line on what else this machine does: measured times can be trusted as far as it does nothing."""
    busy, cores = psutil.getloadavg()[0], psutil.cpu_count() or 1
    if busy > 0.3 * cores:
        print(f"NOT QUIET: {busy:.1f} processes want {cores} cores. The times below are too long, and scatter.")
    else:
        print(f"Quiet: {busy:.1f} processes on {cores} cores.")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Predicted against measured time of training steps.")
    parser.add_argument("--batch", type=int, default=2, help="samples of the steps measured here")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each figure is measured at least")
    parser.add_argument("--network", action="append", choices=list(BUILT), help="measured here; may be repeated")
    parser.add_argument("--threads", type=int, help="of torch on this CPU; one is steadier where others work too")
    parser.add_argument("--published", action="store_true", help="only the published times, nothing measured here")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="only the steps of a recording, not this CPU")
    options = parser.parse_args(arguments)
    if options.recording:
        print_recorded(read_recording(options.recording))
        return
    print_published()
    if options.published:
        return
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"\nThis CPU ({torch.get_num_threads()} threads), milliseconds")
    say_how_quiet()
    chosen = options.network or list(NETWORKS)
    steps = measured_table(options.batch, options.seconds, chosen)
    say_how_quiet()
    print("\n" + table_text([steps]) + "\n")
    print(f"Whole steps. {spread(steps['ratio step'])}\n")
    print("By operator, forward and backward; torch has no formula for the arithmetic of pooling and batch norm\n")
    here = measure_cpu(options.seconds / 2)
    print(table_text(operator_table(network, options.batch, here) for network in chosen))


if __name__ == "__main__":
    main()
