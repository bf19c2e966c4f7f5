"""The published figures of offload beside the model: the arithmetic of both sides, and the verdicts."""

from __future__ import annotations

import pytest

from course_utils.machine import hardware
from lessons.capstone.judge import GEN3
from lessons.offload import published
from lessons.offload.claims import TenNetworks
from lessons.offload.published import Runs, comparison, overview, sensitivity


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(TenNetworks())


def test_baselines_are_network_wide_and_workspace(runs: Runs) -> None:
    # Maps, two gradient buffers, weights twice, by hand; and 0.547 of the input and output of the largest convolution.
    share = (14 - 12.20) / 3.29
    alexnet = 1.06e9 + share * 4 * 128 * (3 * 224**2 + 64 * 55**2)
    assert runs.baseline_gb("AlexNet", 128) == pytest.approx(alexnet / 1e9, abs=0.005)
    for batch, maps_and_weights in ((128, 12.20), (256, 23.29)):
        scratch = share * 2 * 4 * batch * 64 * 224**2 / 1e9
        assert runs.baseline_gb("VGG-16", batch) == pytest.approx(maps_and_weights + scratch, abs=0.01)


def test_verdicts(runs: Runs) -> None:
    found = comparison(runs)
    verdicts = dict(
        zip(zip(found["network"], found["batch"], found["quantity"], strict=True), found["verdict"], strict=True)
    )
    assert verdicts == {
        ("AlexNet", 128, "all memory, GB"): "agrees",
        ("VGG-16", 128, "all memory, GB"): "calibration",
        ("VGG-16", 256, "all memory, GB"): "agrees",
        ("VGG-416", 32, "all memory, GB"): "agrees",
        ("AlexNet", 128, "average saving, %"): "misses",
        ("AlexNet", 128, "average saving, % of features"): "misses",
        ("OverFeat", 128, "average saving, %"): "misses",
        ("OverFeat", 128, "average saving, % of features"): "misses",
        ("GoogLeNet", 128, "average saving, %"): "agrees",
        ("six", "", "average saving, %"): "agrees",
        ("six", "", "performance lost, %"): "agrees",
        ("VGG-16", 256, "performance lost, %"): "misses",
        ("VGG-16", 256, "peak with all moved, GB of 12.88"): "agrees",
        ("first four", "", "lost with faster kernels, %"): "misses",
    }
    assert found["why"].str.len().min() > 20


def test_the_words_on_misses_are_true(runs: Runs) -> None:
    # Counting features alone raises the savings of networks with large dense layers, and hardly GoogLeNet's.
    for name, least in (("AlexNet", 25), ("OverFeat", 25)):
        whole, features = (runs.average_saving(name, 128, "all", "m", only) for only in (False, True))
        assert features - whole > least
    assert (
        runs.average_saving("GoogLeNet", 128, "all", "m", True) - runs.average_saving("GoogLeNet", 128, "all", "m") < 1
    )
    # VGG-416's figure is nearer in GiB.
    gigabytes = runs.baseline_gb("VGG-416", 32)
    assert abs(gigabytes * 1e9 / 2**30 - 67) < abs(gigabytes - 67)
    # AlexNet without workspace is below 1.1.
    assert runs.steps["AlexNet"].at(128).network_wide_bytes() < 1.1e9
    # The search moves what feeds convolutions, slows one kernel down, and leaves next to nothing.
    dyn = runs.get("VGG-16", 256, "dyn")
    assert dyn.traffic_bytes() == runs.get("VGG-16", 256, "conv").traffic_bytes()
    assert int((~dyn.fast).sum()) == 1
    assert 0 < runs.device.memory_bytes - dyn.peak_bytes < 0.3e9
    assert runs.loss("VGG-16", 256, "dyn") < runs.loss("VGG-16", 256, "all") < 18


def test_the_six_are_those_that_exceed_the_card(runs: Runs) -> None:
    table = overview(runs)
    bases = table.drop_duplicates(["network", "batch"])
    over = bases[bases["all GB"] * 1e9 > hardware.device(published.DEVICE).memory_bytes]
    assert tuple(zip(over["network"], over["batch"], strict=True)) == published.SIX
    assert len(bases) == 10
    assert (table["peak saved %"] >= 0).all()
    assert (table["lost %"] >= 0).all()
    assert (
        table.loc[table["policy"] == "all", "moved GB"].to_numpy()
        > table.loc[table["policy"] == "conv", "moved GB"].to_numpy()
    ).all()


def test_losses_grow_with_faster_kernels_and_slower_links() -> None:
    table = sensitivity(TenNetworks(), (0.3, 0.67, 1.34), (0.63, 0.75))
    for _, rows in table.groupby("link"):
        for policy in ("conv", "all"):
            assert rows[policy].is_monotonic_increasing
    slow, fast = (table[table["link"] == share].reset_index() for share in (0.63, 0.75))
    assert (slow["all"] > fast["all"]).all()


def test_appendix_and_capstone_move_over_one_link(runs: Runs) -> None:
    assert published.LINK == GEN3
    assert runs.link.bytes_per_s == hardware.link(GEN3).bytes_per_s == pytest.approx(0.75 * 15.75e9)
