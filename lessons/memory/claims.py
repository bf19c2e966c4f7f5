"""Claims of lesson 03, where the memory goes."""

from __future__ import annotations

import math

import torch
from torch import nn

from classroom.claims import OPEN, OUTDATED, PARTLY, RIGHT, SOME, WRONG, Finding, by_cases, claim
from course_utils import networks
from course_utils.allocator import CachingAllocator
from course_utils.machine import hardware
from course_utils.memory import StepTrace
from course_utils.techniques.capacity import largest_batch
from course_utils.trace import training_step
from course_utils.units import GIB, format_bytes, in_gb
from lessons.memory.clearing import CLEARED, freeing_saves, plain_frees
from lessons.memory.recurrent import rnn_from_cells
from lessons.shared.sources import DATAGURU, EXCHANGE, SYNCED, ZERO_GRAD, traced


def _count(module: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(child, kind) for child in module.modules())


@claim(19, SYNCED, "The memory a network needs follows from the model and the batch, without running it.")
def _follows_from_the_model() -> Finding:
    ledger = traced(networks.vgg16).at(128)
    extra = ledger.reserved_bytes() / ledger.peak_bytes - 1
    return Finding(
        PARTLY if extra > 0.01 else RIGHT,
        f"VGG-16, batch 128: {format_bytes(ledger.peak_bytes)} of tensors, allocator holds {extra:.0%} more",
        "Tensors follow to the byte. Gaps depend on the allocator too, scratch memory on the library, the context on "
        "the driver.",
    )


@claim(20, SYNCED, "AlexNet with a batch of 128 takes 1.1 GB.")
def _alexnet_total() -> Finding:
    ledger = traced(networks.alexnet).at(128)
    total, peak = in_gb(ledger.network_wide_bytes()), in_gb(ledger.peak_bytes)
    return Finding(
        by_cases(round(size, 1) == 1.1 for size in (total, peak)),
        f"{total:.2f} GB as the paper counts: every map kept, two shared gradient buffers, no workspace; the trace of "
        f"a step in PyTorch, with momentum, peaks at {peak:.2f}",
        "Right for the count it comes from.",
    )


@claim(21, SYNCED, "AlexNet has five convolutions and two dense layers.")
def _alexnet_layers() -> Finding:
    with torch.device("meta"):
        model = networks.alexnet()
    found = (_count(model, nn.Conv2d), _count(model, nn.Linear))
    verdict = by_cases((found[0] == 5, found[1] == 2))
    return Finding(verdict, f"{found[0]} convolutions, {found[1]} dense layers", "The classifier is a layer too.")


@claim(22, SYNCED, "VGG-16 with a batch of 128 takes about 14 GB.")
def _vgg_total() -> Finding:
    total = in_gb(traced(networks.vgg16).at(128).network_wide_bytes())
    verdict = RIGHT if abs(total / 14 - 1) < 0.05 else PARTLY if abs(total / 14 - 1) < 0.15 else WRONG
    why = f"The published figure includes workspace, without saying how much of the missing {14 - total:.1f} GB it is."
    peak = traced(networks.vgg16).at(128).peak_bytes
    traces = f"the trace peaks at {in_gb(peak):.2f} ({format_bytes(peak)})"
    return Finding(verdict, f"by the papers' sum {total:.2f} GB before workspace; {traces}", why)


@claim(23, SYNCED, "VGG-16 has 16 convolutions and three dense layers.")
def _vgg_layers() -> Finding:
    with torch.device("meta"):
        model = networks.vgg16()
    found = (_count(model, nn.Conv2d), _count(model, nn.Linear))
    verdict = by_cases((found[0] == 16, found[1] == 3))
    return Finding(verdict, f"{found[0]} convolutions, {found[1]} dense layers", "16 counts both kinds together.")


@claim(24, SYNCED, "VGG-16 is much smaller than ResNets of a hundred layers.")
def _vgg_against_resnet() -> Finding:
    tables = [traced(builder).at(2).by_layer() for builder in (networks.vgg16, networks.resnet101)]
    (vgg, vgg_flops), (resnet, resnet_flops) = [(t["parameters"].sum(), t["flops"].sum() / 2) for t in tables]
    steps = traced(networks.vgg16), traced(networks.resnet101)
    maps, others = (step.at(129).peak_bytes - step.at(128).peak_bytes for step in steps)
    return Finding(
        by_cases((maps < others, vgg < resnet, vgg_flops < resnet_flops)),
        f"{vgg / 1e6:.1f} M parameters and {vgg_flops / 2e9:.1f} G multiply-adds an image, "
        f"ResNet-101 {resnet / 1e6:.1f} M and {resnet_flops / 2e9:.1f} G",
        "It has fewer layers, three times the parameters and twice the operations. Only its maps take fewer bytes: "
        f"each further image adds {format_bytes(maps, 0)} to the peak, and {format_bytes(others, 0)} to that of "
        "ResNet-101.",
    )


@claim(27, SYNCED, "Training memory is parameters, feature maps, gradient maps and workspace.")
def _four_parts() -> Finding:
    ledger = traced(networks.vgg16).at(128)
    roles = ledger.by_role()
    missing = int(roles["optimizer state"] + roles["weight gradients"])
    verdict = PARTLY if missing > 0.01 * ledger.peak_bytes else RIGHT
    return Finding(
        verdict,
        f"weight gradients and momentum: {format_bytes(missing)} of {format_bytes(ledger.peak_bytes)}",
        "Optimizer state is not in the list, nor are the context and the allocator's gaps.",
    )


SHARED_AT = (8, 16, 32, 64, 128, 256)  # batches of VGG-16


@claim(28, SYNCED, "Feature maps are over half of VGG-16's memory, and more the deeper the network.")
def _feature_map_share() -> Finding:
    def share(step: StepTrace, batch: int) -> float:
        ledger = step.at(batch)
        return ledger.network_wide_parts()["feature maps"] / ledger.network_wide_bytes()

    vgg = {batch: share(traced(networks.vgg16), batch) for batch in SHARED_AT}
    deep = share(traced(networks.vgg_deep, layers=416), 32)
    over = [batch for batch, value in vgg.items() if value > 0.5]
    deeper = deep > max(vgg.values())
    return Finding(
        RIGHT if len(over) == len(vgg) and deeper else PARTLY if over and deeper else WRONG,
        ", ".join(f"{value:.0%}" for value in vgg.values())
        + f" at batch {', '.join(map(str, vgg))}; VGG-416 {deep:.0%} at 32",
        "As they counted in 2016. Maps grow with the batch, and weights do not"
        + (f": it holds from batch {over[0]} on." if 0 < len(over) < len(vgg) else "."),
        rule="right if maps are over half at every batch, and more in the deeper network",
    )


def shared_maps(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """How many results in a network's forward pass are used by more than one operator.

    Counted on the autograd graph of a run on meta tensors: results that receive gradients from several operators.
    """
    meta = module.to("meta")
    out = meta(torch.empty((2, *input_shape), device="meta", requires_grad=True))
    users: dict[tuple[object, int], int] = {}
    seen: set[object] = set()
    waiting = [out.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        for source, position in node.next_functions:
            if source is not None and type(source).__name__ != "AccumulateGrad":
                users[source, position] = users.get((source, position), 0) + 1
                waiting.append(source)
    return sum(count > 1 for count in users.values())


@claim(29, SYNCED, "A feature map is used once in the forward pass and once in the backward pass.")
def _used_once() -> Finding:
    counts = {}
    for name in ("VGG-16", "GoogLeNet", "ResNet-50"):
        network = networks.NETWORKS[name]
        with torch.device("meta"):
            counts[name] = shared_maps(network.build(), network.input_shape)
    verdict = RIGHT if not any(counts.values()) else PARTLY if counts["VGG-16"] == 0 else WRONG
    evidence = ", ".join(f"{name} {count}" for name, count in counts.items())
    return Finding(
        verdict,
        f"maps with several users in the forward pass: {evidence}",
        "True of chains, there; branches and shortcuts share maps. The backward pass was not counted.",
    )


@claim(30, SYNCED, "At any moment most of the memory is idle.")
def _mostly_idle() -> Finding:
    ledger = traced(networks.vgg16).at(128)
    parts = ledger.network_wide_parts()
    working = 3 * parts["gradient maps"] // 2  # conv1_2 reads X and dY and writes dX, all as large as the largest map
    idle = 1 - working / ledger.network_wide_bytes()
    touched = ledger.tape.event_traffic @ (1, ledger.batch)
    least = 1 - float((touched / ledger.total).max())
    return Finding(
        by_cases(share > 0.5 for share in (idle, least)),
        f"VGG-16, batch 128, all memory taken for the whole step, as in 2016: {idle:.0%} idle when most is used. In "
        f"PyTorch, of what is alive at each moment: {least:.0%} at the least",
        "conv1_2 works on its input and two gradient maps. In PyTorch most other maps are not there yet, or are gone.",
    )


@claim(35, SYNCED, "Workspace is freed when the convolution returns.")
def _workspace_freed() -> Finding:
    allocator = CachingAllocator()
    block = allocator.allocate(GIB)
    allocator.release(block)
    held = allocator.reserved
    return Finding(
        PARTLY if held else RIGHT,
        f"after 1 GiB was freed, {format_bytes(held)} stay reserved",
        "It goes back to PyTorch's pool. The step's other tensors can have it; other programs cannot.",
    )


def recurrent_and_dense(inputs: int, units: int) -> tuple[int, int]:
    """Parameters of a recurrent cell, and of a dense layer, of as many inputs and units."""
    layers = nn.RNNCell(inputs, units, device="meta"), nn.Linear(inputs, units, device="meta")
    recurrent, dense = (sum(p.numel() for p in layer.parameters()) for layer in layers)
    return recurrent, dense


@claim(60, EXCHANGE, "A recurrent layer of 100 units has the same number of parameters as a dense one.")
def _recurrent_parameters() -> Finding:
    counts = {inputs: recurrent_and_dense(inputs, 100) for inputs in (4, 100, 784)}
    with torch.device("meta"):
        model = rnn_from_cells(4, 100)
    saved = [training_step(model, (steps, 4), 10).at(32).by_layer()["saved feature maps"].sum() for steps in (50, 100)]
    told = "; ".join(f"{inputs} inputs: {few:,} dense, {more:,} recurrent" for inputs, (more, few) in counts.items())
    return Finding(
        by_cases(recurrent == dense for recurrent, dense in counts.values()),
        f"100 units, {told}",
        "The 100 × 100 weights for what the step before hands on make the difference, and in PyTorch a second bias. "
        f"Twice the steps keep {saved[1] / saved[0]:.1f} times the maps, with the same parameters.",
        rule="right if they are equal in each case, wrong if in none",
    )


@claim(94, EXCHANGE, "A recurrent network always has more parameters than a dense one.")
def _always_more_parameters() -> Finding:
    more = all(recurrent > dense for recurrent, dense in (recurrent_and_dense(4, n) for n in (1, 10, 100, 1000)))
    recurrent, _ = recurrent_and_dense(4, 100)
    overtaken = next((n for n in range(1, 1000) if recurrent_and_dense(4 * n, 100)[1] > recurrent), None)
    return Finding(
        WRONG if not more else RIGHT if overtaken is None else PARTLY,
        f"with as many inputs and units, always: {recurrent:,} with 4 inputs and 100 units; but a dense layer that "
        f"reads {overtaken} steps of the sequence at once has more",
        "A recurrent cell uses the same weights at every step; the dense layer has its own for each.",
    )


@claim(66, DATAGURU, "Activations and their errors dominate: add up both for every layer.")
def _data_and_errors() -> Finding:
    ledger = traced(networks.vgg16).at(128)
    both = 2 * in_gb(ledger.network_wide_parts()["feature maps"])
    errors = in_gb(ledger.matrix[:, 5].max())
    verdict = PARTLY if errors < both / 4 else RIGHT
    return Finding(
        verdict,
        f"both for every layer: {both:.1f} GB; alive at once in PyTorch: {errors:.1f} GB of gradient maps",
        "Right for Caffe, which keeps a gradient beside every map. Autograd frees them as it goes.",
    )


@claim(67, DATAGURU, "The first layers need most of the memory.")
def _first_layers() -> Finding:
    builders = {"VGG-16": networks.vgg16, "ResNet-50": networks.resnet50, "AlexNet": networks.alexnet}
    maps, both = {}, {}
    for name, builder in builders.items():
        table = traced(builder).at(128).by_layer()
        kept, first = table["saved feature maps"], len(table) // 4
        whole = kept + 12 * table["parameters"]  # with their gradients and momentum
        maps[name], both[name] = (float(one[:first].sum() / one.sum()) for one in (kept, whole))
    return Finding(
        by_cases(share > 0.5 for share in both.values()),
        "the first quarter of the layers, batch 128: "
        + ", ".join(f"{name} {share:.0%}" for name, share in both.items())
        + " of maps, weights, gradients and momentum; of the maps alone "
        + ", ".join(f"{share:.0%}" for share in maps.values()),
        "Maps are largest at the beginning, and weights, in AlexNet most of all, at the end.",
    )


@claim(68, DATAGURU, "The best results on ImageNet need a card of at least 12 GB.")
def _at_least_12_gb() -> Finding:
    best_of_2015 = traced(networks.resnet101).at(32).peak_bytes
    largest = max(hardware.devices(), key=lambda device: device.memory_gb)
    verdict = WRONG if best_of_2015 < 12 * GIB else OUTDATED if largest.memory_gb > 12 else RIGHT
    return Finding(
        verdict,
        f"ResNet-101, batch 32: {format_bytes(best_of_2015)}; the largest card of the catalogue, {largest.name}, "
        f"has {largest.memory_gb:.0f} GB",
        "Batch and technique can be chosen, and with them what a card must hold.",
    )


@claim(69, DATAGURU, "Images of 112² need 4 to 6 GB where 224² need 12.")
def _smaller_pictures() -> Finding:
    large, small = (in_gb(traced(networks.vgg16, size).at(128).network_wide_bytes()) for size in (224, 112))
    return Finding(
        by_cases((4 <= small <= 6, round(large) == 12)),
        f"VGG-16, batch 128, every map kept: {large:.2f} GB and {small:.2f} GB",
        "A quarter of the maps, and all of the parameters. Workspace and the allocator's gaps come on top of both.",
    )


@claim(70, DATAGURU, "Video of 25 × 75 × 75 × 3 may not fit 12 GB.")
def _video() -> Finding:
    images = 25 * 75 * 75 * 3 / (224 * 224 * 3)
    largest = largest_batch(traced(networks.vgg16), 12 * GIB).fits
    return Finding(
        RIGHT if 128 * images > largest else WRONG,
        f"a clip has as many values as {images:.2f} images of 224²; of VGG-16 {largest} images fit, as many as "
        f"{largest / images:.0f} clips, and not a batch of 128",
        'True with its "may". Network and batch were not named.',
    )


def epoch_peak(images: int, batch: int = 64, kept: bool = False) -> int:
    """Bytes at the peak of an epoch of training on so many digits, measured on the CPU, with weights and momentum.

    A dense network; each batch is copied from the images, which were there before. If they are `kept` beside the
    network, their bytes are added. Fewer images than a batch are repeated until they fill one.
    """
    from course_utils.machine.measure import cpu_peak_above
    from lessons.shared import digits

    x, y, _, _ = digits.load()
    model = networks.mlp((64, 128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    batches = (torch.arange(max(images, batch)) % images).split(batch)

    def epoch() -> None:
        for rows in batches:
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    with digits.one_thread():
        epoch()  # momentum is there from now on
        standing = 2 * sum(parameter.nbytes for parameter in model.parameters())
        return standing + cpu_peak_above(epoch) + (x[:images].nbytes + y[:images].nbytes if kept else 0)


@claim(71, DATAGURU, "Fewer training images need less GPU memory.")
def _data_set_size() -> Finding:
    whole, *fewer = (epoch_peak(images) for images in (1280, 128, 16))
    tenth, few, of_batch = (peak / whole for peak in (*fewer, epoch_peak(16, 16)))
    kept = epoch_peak(128, kept=True) / epoch_peak(1280, kept=True)
    less = [peak < 0.99 for peak in (tenth, few, of_batch, kept)]
    return Finding(
        by_cases(less),
        "an epoch of a small dense network on digits, measured on the CPU. In batches of 64, with 128 images "
        f"{100 * tenth:.0f} % of the peak with 1,280, with 16, each four times in its batch, {100 * few:.0f} %; with "
        f"16 in one batch of 16 {100 * of_batch:.0f} %; with all images kept beside the network, 128 take "
        f"{100 * kept:.0f} % of what 1,280 do",
        "A step holds one batch. Less data means fewer steps, or lets a smaller model do.",
        rule="right if fewer images lower the peak by more than 1% in each of the four cases, partly right if in one, "
        "else wrong",
        kind=f"{SOME}: {sum(less)} of {len(less)}",
    )


@claim(72, DATAGURU, "A tenth of the data overfits quickly.")
def _tenth_of_the_data() -> Finding:
    from lessons.shared.digits import gap

    found = {steps: (gap(0.1, steps), gap(1.0, steps)) for steps in (20, 100)}
    tenth, whole = (extreme(few) for extreme, few in zip((min, max), zip(*found.values(), strict=True), strict=True))
    # in steps of 5 points: on another processor a training ends an image or two elsewhere
    over, under = 5 * math.floor(20 * tenth), 5 * math.ceil(20 * whole)
    return Finding(
        by_cases(small > 0.1 > large for small, large in found.values()),
        f"digits, after 20 steps and after 100: training minus test accuracy over {over} points with a tenth, under "
        f"{under} with all",
        "Measured on a small dense network, the only one tried.",
    )


@claim(73, DATAGURU, "On several GPUs a small data set overfits easily.")
def _several_gpus() -> Finding:
    from lessons.shared.digits import difference_of_halves, gap

    difference, small, whole = difference_of_halves(), gap(0.1), gap(1.0)
    overfits, devices_matter = small > 0.1 > whole, difference >= 1e-5
    largest = f"{difference:.0e}" if devices_matter else "below 1e-05"  # below that it is rounding, which varies
    return Finding(
        OPEN if devices_matter else PARTLY if overfits else WRONG,
        f"a tenth of the digits: {'over' if small > 0.1 else 'under'} 10 points between training and test, all of "
        f"them: {'over' if whole > 0.1 else 'under'} 10; gradient of one batch against the mean of its two halves: "
        f"largest difference {largest} of the largest value",
        "A small data set does overfit. The number of GPUs adds nothing: the halves of a batch give its gradient.",
    )


LESS = 0.01  # of the peak: what saves no more is next to nothing


@claim(74, DATAGURU, "Two classes need less memory than a thousand.")
def _two_classes() -> Finding:
    many, two = traced(networks.vgg16), traced(networks.vgg16, classes=2)
    fewer = int(many.at(2).by_layer()["parameters"].sum() - two.at(2).by_layer()["parameters"].sum())
    saved = {
        batch: (many.at(batch).peak_bytes - two.at(batch).peak_bytes) / many.at(batch).peak_bytes for batch in (128, 8)
    }
    return Finding(
        by_cases(share > LESS for share in saved.values()),
        f"VGG-16, {fewer:,} parameters fewer: "
        + ", ".join(f"{share:.1%} of the peak at batch {batch}" for batch, share in saved.items()),
        "The last layer shrinks by as much at any batch. With many images maps make that next to nothing.",
        rule=f"less is over {LESS:.0%} of the peak; right if it is so at both batches, partly right if at one",
    )


@claim(75, DATAGURU, "Fewer parameters make overfitting easier.")
def _fewer_parameters() -> Finding:
    from lessons.shared.digits import memorised

    small, large = memorised(units=2), memorised(units=256)
    verdict = WRONG if large > small + 0.2 else RIGHT
    under = 10 * math.floor(10 * small + 1)  # in tens: which few it learns depends on the processor
    evidence = f"random labels learned by heart: under {under}% with 2 hidden units, {large:.0%} with 256"
    return Finding(verdict, evidence, "Learning noise by heart takes capacity; the argument runs the other way.")


@claim(97, ZERO_GRAD, "In PyTorch, zero_grad(set_to_none=True) leaves less in memory than plain zero_grad().")
def _set_to_none() -> Finding:
    then, now = ([freeing_saves(name, plain) for name in CLEARED] for plain in (False, plain_frees()))
    peaks = [freeing_saves(name, False, way)[1] for way in ("momentum", "adam") for name in CLEARED]
    less, today = ([left > LESS for left, _ in of] for of in (then, now))
    shares = ", ".join(f"{left:.0%} ({name})" for name, (left, _) in zip(CLEARED, then, strict=True))
    return Finding(
        OUTDATED if all(less) and not any(today) else by_cases(less + today),
        f"traced, batch 32, SGD with momentum. Against zeros, which plain zero_grad() wrote, less is left behind a "
        f"step by {shares}; against the plain zero_grad() that runs here, by {max(left for left, _ in now):.0%}. The "
        f"peak of a step, with momentum or Adam, is lower than with zeros in {sum(peak > LESS for peak in peaks)} of "
        f"{len(peaks)} cases, by up to {max(peaks):.0%}; it does not vote",
        "Release 2.0 of PyTorch (2023) made set_to_none=True the default. The documentation still says that it takes "
        "less memory; less than zeros do.",
        rule=f"less is over {LESS:.0%} of what is left. The cases are three networks, each against zeros, which plain "
        "zero_grad() wrote through release 1.13, and against what it does here. Right if less is left in all six, "
        "outdated if in all against zeros and in none here, wrong if in none; otherwise partly right",
    )
