"""Claims of lesson 09: each verdict follows from its number, and another number gives another."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from verdicts import assert_none_was_certain, finding

from classroom.claims import PARTLY, RIGHT, WRONG
from lessons.offload import claims as offload
from lessons.offload.claims import TenNetworks, runs, winograd, winograd_costs
from lessons.offload.published import NETWORKS, Runs

# From the abstract (89, 91, 95 percent; 18 percent at batch 256), Lavin and Gray's 36 / 16, and GoogLeNet's nine
# modules, each of which begins with a map that four branches read.
EXPECTED = {31: PARTLY, 32: PARTLY, 33: PARTLY, 34: RIGHT}


@pytest.mark.parametrize("number", EXPECTED)
def test_verdict(number):
    found = finding(number)
    assert found.verdict == EXPECTED[number], found


def test_the_evidence_is_the_literatures():
    assert "up to AlexNet 89, OverFeat 91, GoogLeNet 95 %" in finding(31).evidence
    assert "12.62 of 12.88 GB" in finding(32).evidence
    assert "tiles of 2 × 2 need 1/2.25 of the multiplications and hold 4 times the input" in finding(33).evidence
    assert "9 of 79 moved maps have later readers" in finding(34).evidence
    assert "VGG-16: 0 of 18" in finding(34).evidence


def test_another_abstract_another_verdict(monkeypatch):
    for claimed, verdict in (((89, 95), RIGHT), ((91, 96), WRONG)):
        monkeypatch.setattr(offload, "CLAIMED", dict(zip(("AlexNet", "GoogLeNet"), claimed, strict=True)))
        assert finding(31).verdict == verdict


def test_another_card_or_loss_another_verdict(monkeypatch):
    on = {gib: Runs(TenNetworks(), replace(runs().device, memory_gb=gib)) for gib in (11.0, 12.5)}
    for its in on.values():
        monkeypatch.setattr(its, "loss", lambda *_: 0.0)
    monkeypatch.setattr(offload, "runs", lambda: on[12.5])  # room for the context beside the tensors
    assert finding(32).verdict == RIGHT
    monkeypatch.setattr(offload, "sensitivity", lambda steps: pd.DataFrame({"dyn": [1.0, 2.0]}))
    assert finding(32).verdict == PARTLY
    monkeypatch.setattr(offload, "runs", lambda: on[11.0])
    assert finding(32).verdict == WRONG


def test_another_algorithm_or_order_another_verdict(monkeypatch):
    monkeypatch.setattr(offload, "winograd", lambda maps, weight: (2 * F.conv2d(maps, weight, padding=1), 1, 1))
    assert finding(33).verdict == WRONG
    monkeypatch.setattr(offload, "winograd", winograd)
    monkeypatch.setattr(offload, "winograd_costs", lambda out: (2.25 * out / 2, 2.0 * out))
    assert finding(33).verdict == RIGHT
    monkeypatch.setattr(offload, "waits_for_last_reader", lambda schedule: np.zeros(3))
    assert finding(34).verdict == WRONG


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_winograd_is_the_convolution(batch, channels, out, rows, columns):
    generator = torch.Generator().manual_seed(batch)
    maps = torch.randn(batch, channels, 2 * rows, 2 * columns, dtype=torch.float64, generator=generator)
    weight = torch.randn(out, channels, 3, 3, dtype=torch.float64, generator=generator)
    result, multiplications, workspace = winograd(maps, weight)
    assert torch.allclose(result, F.conv2d(maps, weight, padding=1), atol=1e-12)
    assert multiplications == 16 * out * channels * batch * rows * columns
    assert workspace == 4 * maps.numel()
    direct = 9 * out * channels * result[0, 0].numel() * batch
    assert winograd_costs(2) == (direct / multiplications, workspace / maps.numel())


def test_the_ten_networks_are_traced_under_their_names():
    assert list(TenNetworks()) == list(NETWORKS)
    assert len(TenNetworks()) == len(NETWORKS)
    assert TenNetworks()["VGG-116"].name == "VGG-116"


def test_no_verdict_is_certain():
    assert_none_was_certain(EXPECTED)
