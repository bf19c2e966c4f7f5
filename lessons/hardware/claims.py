"""Claims of lesson 02, which hardware, or none.

Verdicts come from traces and from the catalogue. Three claims are about history alone (56, 57, 62): their evidence is
cited, with the publication, and says so. Prices are those of the launch, not adjusted for inflation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import nn

from classroom.claims import MISLEADING, OPEN, OUTDATED, PARTLY, RIGHT, SOME, WRONG, Finding, by_cases, claim
from course_utils import networks
from course_utils.machine import hardware
from course_utils.machine.speed import predict_step
from course_utils.machine.timing import measure_step_time
from course_utils.memory import ROLES, StepTrace
from course_utils.techniques.capacity import NO, fit, largest_batch
from course_utils.trace import MakeOptimizer, training_step
from course_utils.units import GB, GIB, MIB, format_bytes, format_seconds, in_gb
from lessons.shared.language_models import SHAPES
from lessons.shared.parallel import on_cards
from lessons.shared.published import ON_BOTH
from lessons.shared.reference_cpu import REFERENCE_CPU
from lessons.shared.sources import DATAGURU, DETTMERS, EXCHANGE, MATHWORKS, SYNCED, traced

BUFFER = 400 * MIB  # the rule of 2014 keeps this much of every card free
PRINTED = 512_128_000  # weights of the 9000×4000×4000×32 network, as the text of 2014 prints them
FAR, NEAR_FAR = 2, (1.9, 2.1)  # times as fast, and more is far faster: our choice, and two beside it
# The two switches of Caffe's Makefile.config.example as shipped (BVLC/caffe on GitHub); a line with # is off.
CAFFE_SWITCHES = ("# USE_CUDNN := 1", "# CPU_ONLY := 1")
CONTEXTS_MB = (200, 1000)  # of a process: PyTorch's issues 28113 and 107667
GPT_3 = 175e9  # parameters: Brown et al. (2020)
PATIENCE, ANSWER_TOKENS = 2.0, 100  # seconds somebody waits, and the length of a short answer: our choices


@lru_cache(maxsize=4)
def dense_net(optimizer: str | MakeOptimizer = "momentum") -> StepTrace:
    """The training step of the 52-million-weight dense network of 2014."""
    with torch.device("meta"):
        module = networks.kaggle_mlp()
    return training_step(module, (9000,), 32, optimizer, name="52 M dense net")


def weights(module: nn.Module, biases: bool = True) -> int:
    """Parameters of a network, or without the vectors among them, which are biases in a dense one."""
    return sum(p.numel() for p in module.parameters() if biases or p.dim() > 1)


def bytes_a_parameter(optimizer: str | MakeOptimizer) -> float:
    """What a traced step has for each parameter at the worst moment of its update.

    That is what stays (parameters, optimizer state, weight gradients), and what the update itself makes for a moment.
    """
    ledger = dense_net(optimizer).at(2)
    update = ledger.matrix[ledger.phases == "update"]
    of_parameters = [ROLES.index(role) for role in ("parameters", "optimizer state", "weight gradients", "other")]
    return float(update[:, of_parameters].sum(axis=1).max()) / weights(_meta(networks.kaggle_mlp))


def _meta(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return build()


@claim(2, DETTMERS, "A dense network of two hidden layers for a Kaggle contest barely fitted into 6 GB.")
def _barely_fitted() -> Finding:
    ways = {"momentum": dense_net(), "Adam": dense_net("adam")}
    peaks = {(name, batch): step.at(batch).peak_bytes for name, step in ways.items() for batch in (128, 1024)}
    shares = [peak / (6 * GIB) for peak in peaks.values()]
    kept = float(dense_net().at(128).by_role()[["parameters", "weight gradients", "optimizer state"]].sum())
    told = ", ".join(f"{in_gb(peak):.2f} GB ({name}, batch {batch:,})" for (name, batch), peak in peaks.items())
    return Finding(
        RIGHT if min(shares) > 0.8 else PARTLY if max(shares) > 0.5 else MISLEADING,
        f"52 M dense net: weights, gradients and momentum {in_gb(kept):.2f} GB; peaks {told}",
        "He reports it of his own card, so it may be true of his program. With these batches it is not of the network.",
        rule="right if each peak is over 80% of 6 GiB, partly right if one is over half; if none is, misleading and "
        "not wrong, since its author reports that his card was full. The batches that vote are our choice",
    )


@claim(8, DETTMERS, "For occasional use on less than 10 to 15 GB of data, several GPUs may not be needed.")
def _size_of_the_data() -> Finding:
    card, batch, size = "Titan X (Maxwell)", 128, 3 * 224 * 224  # images as bytes
    ledger = traced(networks.vgg16).at(batch)
    step = predict_step(ledger, card).total_seconds
    hours = {gb: gb * GB / size / batch * step / 3600 for gb in (15, 150)}
    return Finding(
        RIGHT if hours[15] < 24 else WRONG,
        f"VGG-16 on one {card}, modelled: an epoch over 15 GB of images takes {hours[15]:.1f} h, over 150 GB "
        f"{hours[150]:.1f} h; {format_bytes(ledger.peak_bytes)} a step of {batch} either way",
        'True with its "may". More data makes an epoch longer; what a card must hold stays the same.',
    )


@claim(11, DETTMERS, "Keep 400 MB of the card free as a buffer.")
def _buffer() -> Finding:
    steps = {"the 52 M dense net": dense_net().at(128), "VGG-16": traced(networks.vgg16).at(128)}
    gaps = {name: ledger.reserved_bytes() - ledger.peak_bytes for name, ledger in steps.items()}
    return Finding(
        by_cases(gap + 1e6 * context <= BUFFER for gap in gaps.values() for context in CONTEXTS_MB),
        "the allocator's gaps in PyTorch, batch 128: "
        + ", ".join(f"{name} {format_bytes(gap)}" for name, gap in gaps.items())
        + f"; the context of a process {CONTEXTS_MB[0]} to {CONTEXTS_MB[1]:,} MB (PyTorch's issues 28113 and 107667)",
        "Enough for the dense net with the smaller context, and for no other of the four cases.",
    )


@claim(12, DETTMERS, "Divide the card's memory by two, because momentum keeps a number for every weight.")
def _divide_by_two() -> Finding:
    sizes = {name: bytes_a_parameter(name) for name in ("sgd", "momentum", "adam")}
    verdict = RIGHT if round(sizes["momentum"]) == 8 else PARTLY
    evidence = ", ".join(f"{name} {size:.0f} bytes" for name, size in sizes.items())
    return Finding(
        verdict,
        f"traced, for each parameter, at the worst moment of the update: {evidence}",
        "Momentum does keep a number for every weight. The gradients are missing: divide by three. With PyTorch's "
        "default Adam by five: its update makes one more value for a moment. A fused one does not.",
    )


@claim(13, DETTMERS, "A card of 6 GB trains (6144 − 400) · 1024 · 1024 / (4 · 2) = 752,877,568 parameters.")
def _capacity_of_2014() -> Finding:
    room = 6144 * MIB - BUFFER
    printed = room // 8
    corrected, adam = (room // round(bytes_a_parameter(name)) for name in ("momentum", "adam"))
    verdict = WRONG if printed != 752_877_568 else RIGHT if corrected == printed else PARTLY
    return Finding(
        verdict,
        f"the division gives {printed:,}; with gradients {corrected:,}, with Adam {adam:,}",
        "The arithmetic is right, the divisor is not, and a batch of no images is assumed.",
    )


@claim(14, DETTMERS, "A dense network of 9000, 4000, 4000 and 32 units has 512,128,000 weights.")
def _printed_weights() -> Finding:
    module = _meta(networks.kaggle_mlp)
    own, with_biases = weights(module, biases=False), weights(module)
    return Finding(
        RIGHT if PRINTED in (own, with_biases) else WRONG,
        f"{own:,} weights, {with_biases:,} parameters with biases",
        "One digit too many was printed.",
    )


@claim(15, DETTMERS, "That network fits a card of 1,536 MB.")
def _fits_a_small_card() -> Finding:
    found = fit(dense_net().at(128), 1536 * MIB)
    return Finding(
        RIGHT if found.state != NO else WRONG,
        f"momentum, batch 128: {format_bytes(found.tensor_bytes)} {found.words}; {PRINTED:,} weights would need "
        f"{format_bytes(8 * PRINTED)} by the rule",
        "It does, and so contradicts the number of weights printed beside it.",
    )


@claim(16, DETTMERS, "AlexNet has 60,000,000 parameters.")
def _alexnet_parameters() -> Finding:
    counts = [weights(_meta(build)) for build in (networks.alexnet_two_column, networks.alexnet)]
    verdict = RIGHT if all(abs(count / 60e6 - 1) < 0.025 for count in counts) else WRONG
    return Finding(
        verdict, f"{counts[0]:,} in two columns, {counts[1]:,} as a single tower", "Rounded, as in the paper itself."
    )


@claim(17, DETTMERS, "With 1,536 MB or more, people in Kaggle contests need not worry about memory.")
def _kaggle_need_not_worry() -> Finding:
    largest = {
        name: largest_batch(traced(networks.NETWORKS[name].build), 1536 * MIB).fits for name in ("ResNet-50", "VGG-16")
    }
    table = largest_batch(dense_net(), 1536 * MIB).fits
    images = min(largest.values()) >= 32
    return Finding(
        RIGHT if images and table >= 32 else PARTLY if images or table >= 32 else WRONG,
        f"fits 1,536 MiB up to batch: the 52 M dense net {table:,}, "
        + ", ".join(f"{name} {batch}" for name, batch in largest.items()),
        "True of dense networks on tables. Feature maps, which images bring, were not counted.",
    )


def largest_card(until: int | None = None) -> hardware.Device:
    """The device of the catalogue with the most memory, of all or of those announced until the end of a year."""
    return max(
        (card for card in hardware.devices() if until is None or card.year <= until),
        key=lambda card: card.memory_bytes,
    )


@claim(18, DETTMERS, "One GPU is enough for nearly everything.")
def _one_is_enough() -> Finding:
    then, now = largest_card(2014), largest_card()
    batch = largest_batch(traced(networks.vgg16), then).fits
    most = now.memory_bytes / bytes_a_parameter("adam")
    return Finding(
        OPEN,
        "No number of this course decides it: we know of no count of what share of all training fits one card. "
        f"VGG-16, of 2014, fits a {then.name} with batches up to {batch}. The {now.name}, of which programs see "
        f"{now.memory_bytes / GIB:g} GiB, has room for {most / 1e9:.1f} billion parameters with PyTorch's default Adam "
        f"in float32 and no maps; GPT-3 has {GPT_3 / 1e9:.0f} (Brown et al., 2020)",
        "One network that fits and one that does not say nothing of nearly everything.",
    )


@claim(25, SYNCED, "The Titan X with its 12 GB is the state of the art.")
def _state_of_the_art() -> Finding:
    titan = hardware.device("Titan X (Maxwell)")
    larger = [device for device in hardware.devices() if device.memory_bytes > titan.memory_bytes]
    most = largest_card()
    then = [device for device in larger if device.year <= 2017]
    told = f"in 2017 {then[0].name} held {then[0].memory_gb:g} GB; " if then else ""
    return Finding(
        WRONG if then else OUTDATED if larger else RIGHT,
        f"{told}{len(larger)} of {len(hardware.devices())} devices of the catalogue hold more; {most.name} "
        f"{most.memory_gb:g} GB",
        f"It was so in {titan.year}.",
    )


@claim(41, MATHWORKS, "The Tesla K40 is a card of 2014.")
def _k40_year() -> Finding:
    year = hardware.device("Tesla K40").year
    return Finding(RIGHT if year == 2014 else WRONG, f"announced on 18 November {year}", "Nothing hangs on it.")


@claim(42, MATHWORKS, "To train a network, the Titan X is far faster than the K40.")
def _titan_against_k40() -> Finding:
    found = {by: {net: slow / fast for net, (slow, fast) in times.items()} for by, times in ON_BOTH.items()}
    told = "; ".join(f"{min(r.values()):.2f} to {max(r.values()):.2f} with {by} on {len(r)}" for by, r in found.items())
    far = {f"{net} with {by}, {x:.2f}": x > FAR for by, of in found.items() for net, x in of.items()}
    without = ", ".join(case for case, is_far in far.items() if not is_far)
    beside = (f"over {n} in {sum(x > n for of in found.values() for x in of.values())}" for n in NEAR_FAR)
    steps = traced(networks.vgg16).at(16), dense_net().at(128)
    old, new = ([predict_step(s, card).total_seconds for s in steps] for card in ("Tesla K40", "Titan X (Maxwell)"))
    return Finding(
        by_cases(far.values()),
        "forward and backward, 16 images, both cards with one library (cnn-benchmarks, July 2016), times as fast: "
        f"{told} convolutional networks. Over {FAR} in {sum(far.values())} of {len(far)} cases"
        f"{'; not ' + without if without else ''}; {', '.join(beside)}",
        f"No other networks were timed. By the rates on paper VGG-16 would be {old[0] / new[0]:.1f} times as fast, the "
        f"52 M dense net {old[1] / new[1]:.1f}, although the Titan X's is at boost clock and the K40's at base clock.",
        rule=f"far faster is over {FAR} times, our choice; right if it is so in each case, partly right if in one",
        kind=f"{SOME}: {sum(far.values())} of {len(far)}",
    )


@claim(43, MATHWORKS, "The number of classes matters only through the number of samples.")
def _classes_and_time() -> Finding:
    many, two = (
        predict_step(traced(networks.vgg16, classes=n).at(128), "Titan X (Maxwell)").total_seconds for n in (1000, 2)
    )
    share, language = 1 - two / many, SHAPES["GPT-2"]
    tokens = language.vocabulary * language.hidden / language.parameters
    fails = [share >= 0.01, tokens >= 0.01]
    return Finding(
        WRONG if all(fails) else PARTLY if any(fails) else RIGHT,
        f"VGG-16, batch 128, 2 classes in place of 1,000: the step is {share:.2%} shorter by the model. In GPT-2, "
        f"which chooses among {language.vocabulary:,} tokens, that choice holds {tokens:.0%} of the weights",
        "For a classifier of 2015 the last layer is a sliver of the work. A vocabulary is a number of classes too.",
    )


@claim(44, MATHWORKS, "A Tesla K40 costs 500 dollars.")
def _k40_price() -> Finding:
    card, said, dated = hardware.device("Tesla K40"), 500, 2020  # the column gives its prices as of April 2020
    launch = card.launch_usd
    near = launch is not None and abs(launch / said - 1) < 0.1
    new = launch is not None and dated <= card.year
    price = "no confirmed price" if launch is None else f"{launch:,.0f} dollars, {launch / said:.0f} times as much,"
    return Finding(
        RIGHT if near else WRONG if new else OPEN,
        f"{price} at launch in {card.year}; the column is of {dated}, and we know of no published second-hand price",
        "It may have been that second-hand. A price needs its year and its seller.",
    )


@claim(45, MATHWORKS, "An RTX 2080 costs less than 1,000 dollars.")
def _rtx_2080_price() -> Finding:
    launch = hardware.device("RTX 2080").launch_usd or 0.0
    return Finding(RIGHT if 0 < launch < 1000 else WRONG, f"{launch:,.0f} dollars at launch", "So it cost in 2018.")


@claim(46, MATHWORKS, "Four to eight GPUs, rented in the cloud, speed training up.")
def _several_in_the_cloud() -> Finding:
    links, resnet = ("PCIe 3.0 x16", "NVLink 2"), traced(networks.resnet50).at(32)
    gains = [on_cards(resnet, "V100", links[0], cards).speed_up for cards in (4, 8)]
    dense = [on_cards(dense_net().at(128), "V100", link, 4).speed_up for link in links]
    return Finding(
        by_cases(gain > least for gain, least in zip(gains + dense, (2, 4, 2, 2), strict=True)),
        f"modelled, V100s on PCIe 3.0: ResNet-50 {gains[0]:.1f} times as fast on 4, {gains[1]:.1f} on 8; "
        f"the 52 M dense net {dense[0]:.1f} on 4, over {links[1]} {dense[1]:.1f}",
        "Networks with much arithmetic for each byte of gradient gain; a dense one can lose, if the link is slow.",
    )


@claim(47, MATHWORKS, "Feature extraction and transfer learning are cheaper than training from scratch.")
def _transfer_is_cheaper() -> Finding:
    head = _meta(networks.vgg16)
    head.requires_grad_(False)
    last = head.get_submodule("fc8")
    last.requires_grad_(True)
    steps = [step.at(64) for step in (traced(networks.vgg16), training_step(head, (3, 224, 224), 1000, name="VGG-16"))]
    peaks = [step.peak_bytes for step in steps]
    seconds = [predict_step(step, "Titan X (Maxwell)").total_seconds for step in steps]
    table = steps[1].by_layer().set_index("layer").drop(index=["fc8", "loss"], errors="ignore")
    below = int(table[["gradient maps", "weight gradients"]].sum().sum())
    cheaper = [after < before for after, before in zip((peaks[1], seconds[1]), (peaks[0], seconds[0]), strict=True)]
    return Finding(
        PARTLY if not below and all(cheaper) else WRONG,
        f"VGG-16, batch 64, only fc8 trained: {format_bytes(peaks[1])} in place of {format_bytes(peaks[0])}, "
        f"{seconds[0] / seconds[1]:.1f} times as fast by the model; gradients below the head: {below} bytes",
        "Frozen layers below the head keep no gradients, no optimizer state, and no maps but the head's own input. "
        "Where all layers are trained, a step costs as much as from scratch: then only fewer steps would be cheaper.",
    )


@claim(48, MATHWORKS, "For inference a CPU will do.")
def _inference_on_a_cpu() -> Finding:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a busy machine slows many threads down more than one
    try:
        with torch.random.fork_rng(devices=[]):
            timing = measure_step_time(networks.googlenet(), (3, 224, 224), 1000, 1, None, "cpu", seconds=0.2).step
    finally:
        torch.set_num_threads(threads)
    text = ANSWER_TOKENS * 2 * SHAPES["Llama-3-8B"].parameters / REFERENCE_CPU.reached_bytes_per_s()
    soon = timing.median < PATIENCE, text < PATIENCE
    return Finding(
        RIGHT if all(soon) else PARTLY if any(soon) else WRONG,
        f"GoogLeNet, one image, one thread, measured on this CPU: {format_seconds(timing.median)}; an answer of "
        f"{ANSWER_TOKENS} tokens by Llama-3-8B, whose weights two Xeons of 2014 must read for each token: "
        f"{format_seconds(text)} at least, their bandwidth being assumed",
        f"It depends on the network, the machine and who waits; the limit here is {PATIENCE:g} s.",
    )


@claim(56, EXCHANGE, "Traffic between the GPUs of two machines must pass through both CPUs.")
def _through_both_cpus() -> Finding:
    gradients = 4 * weights(_meta(networks.kaggle_mlp), biases=False)
    rate = hardware.link("PCIe 2.0 x16").bytes_per_s
    return Finding(
        PARTLY,
        "since GPUDirect RDMA (NVIDIA, 2013) a network card can read the GPU's memory. Computed: "
        f"what a detour cost, {format_seconds(gradients / rate)} over PCIe 2.0 for the {in_gb(gradients):.2f} GB of "
        "the dense net's gradients",
        "True where the network card or its driver lacks that, in 2014 as today; so not of what must be.",
        cited=True,
    )


@claim(57, EXCHANGE, "That is why Google and Microsoft use clusters of CPUs.")
def _clusters_of_cpus() -> Finding:
    card = hardware.device("V100")
    return Finding(
        OUTDATED,
        "Google's DistBelief (Dean et al., 2012) and Microsoft's Adam (Chilimbi et al., 2014) were clusters of CPUs. "
        f"GPT-3 was trained on {card.name}s, cards of {card.year}, in a cluster that Microsoft provided (Brown et al., "
        "2020), PaLM on Google's TPUs (Chowdhery et al., 2022)",
        "So it was with these two at the time. Whether the detour through the CPUs was the reason, none of them says.",
        cited=True,
    )


@claim(58, EXCHANGE, "PCIe moves about 6 GiB/s.")
def _pcie_rate() -> Finding:
    rates = {link.name: link.nominal_gb_s for link in hardware.links()}
    old = hardware.link("PCIe 2.0 x16")
    measured, claimed = hardware.link("PCIe 3.0 x16").practical_gb_s, 6 * GIB / GB
    verdict = by_cases(claimed <= rate < 2 * claimed for rate in rates.values())
    listed = ", ".join(f"{name.removesuffix(' x16').removeprefix('PCIe ')}: {rate:g}" for name, rate in rates.items())
    return Finding(
        verdict,
        f"6 GiB/s are {claimed:.1f} GB/s. 16 lanes, one way, nominal GB/s by generation: {listed}; in use "
        f"{old.practical_gb_s:g} for 2.0 and {measured:g} for 3.0, with a Tesla K40 of 2013 (Microway)",
        "PCIe 2.0 in practice, and no later one: each generation about doubles it.",
    )


@claim(62, DATAGURU, "A default installation of Caffe gives GPU and cuDNN.")
def _default_caffe() -> Finding:
    cudnn, cpu_only = (not line.startswith("#") for line in CAFFE_SWITCHES)
    verdict = RIGHT if cudnn and not cpu_only else PARTLY if not cpu_only else WRONG
    return Finding(
        verdict,
        f"Caffe's Makefile.config.example ships `{CAFFE_SWITCHES[0]}` and `{CAFFE_SWITCHES[1]}`",
        "The GPU yes; the cuDNN switch is commented out.",
        cited=True,
    )


@claim(63, DATAGURU, "AMD has no serious software for deep learning.")
def _amd() -> Finding:
    knows = hasattr(torch.version, "hip")
    ours = sum("AMD" in device.name or "Instinct" in device.name for device in hardware.devices())
    return Finding(
        OUTDATED if knows else RIGHT,
        f"PyTorch is also built for AMD's ROCm: torch.version.hip {'exists' if knows else 'does not exist'}; of the "
        f"{len(hardware.devices())} devices of this catalogue {ours} are AMD's, which is a gap of the catalogue",
        "PyTorch itself is of 2017; its first packages for ROCm came with release 1.8, in 2021.",
    )


@claim(64, DATAGURU, "Neural networks parallelise badly over several GPUs.")
def _parallelise_badly() -> Finding:
    steps = {
        "the 52 M dense net, batch 128,": dense_net().at(128),
        "ResNet-50, batch 32,": traced(networks.resnet50).at(32),
    }
    cases = ("Tesla K40", "PCIe 2.0 x16"), ("A100", "PCIe 4.0 x16"), ("A100", "NVLink 3")
    gains = {name: [on_cards(step, *case, 4).speed_up for case in cases] for name, step in steps.items()}
    then, *now = ([gain < 2 for gain in found] for found in zip(*gains.values(), strict=True))
    today = [bad for found in now for bad in found]
    told = "; ".join(
        f"{name} {old:.2f} times as fast on K40s, {new:.2f} on A100s, {fast:.2f} if those have NVLink"
        for name, (old, new, fast) in gains.items()
    )
    return Finding(
        OUTDATED if all(then) and not any(today) else by_cases([*then, *today]),
        f"modelled, 4 cards against one: {told}",
        "It depends on the network and on the link, and in this model not on the year.",
    )


@claim(65, DATAGURU, "GTX 1080, Titan X and GTX 980 are the current cards.")
def _current_cards() -> Finding:
    named = [hardware.device(name).year for name in ("GTX 1080", "Titan X (Pascal)", "GTX 980")]
    newer = [device for device in hardware.devices() if device.year > max(named)]
    return Finding(
        OUTDATED if newer else RIGHT,
        f"cards of {min(named)} to {max(named)}; {len(newer)} devices of the catalogue are newer, {newer[-1].name} of "
        f"{newer[-1].year}"
        if newer
        else f"cards of {min(named)} to {max(named)}; none of the catalogue is newer",
        "The line of descent it tells (Kepler, Maxwell, Pascal) is right.",
    )


@claim(83, DATAGURU, "A Quadro costs far more than a GeForce of the same design.")
def _professional_price() -> Finding:
    dear, plain = hardware.device("Tesla K40"), hardware.device("GTX Titan")
    ratio = (dear.launch_usd or 0.0) / (plain.launch_usd or 1.0)
    asked = [card for card in hardware.devices() if "Quadro" in card.name]
    return Finding(
        OPEN if not asked else RIGHT if ratio > 2 else WRONG,
        f"{dear.name} {dear.launch_usd:,.0f} dollars, {plain.name} {plain.launch_usd:,.0f}, both of {dear.year}: "
        f"{ratio:.1f} times, for {dear.memory_gb / plain.memory_gb:g} times the memory",
        "So it was for a Tesla. The catalogue has no Quadro, and one line's price says little about another's.",
    )
