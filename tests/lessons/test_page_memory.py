"""What the text of lesson 03 says beside its cells: of the message, of what stays, of the update, of the guess."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from course_utils import networks
from course_utils.allocator import CachingAllocator, OutOfMemory
from course_utils.machine.measure import cpu_peak_above
from course_utils.memory import StepTrace
from course_utils.techniques import capacity
from course_utils.trace import training_step
from course_utils.units import GIB, MIB


def vgg16(optimizer: object = "momentum") -> StepTrace:
    with torch.device("meta"):
        model = networks.vgg16()
    return training_step(model, (3, 224, 224), 1000, optimizer)


def segment_for(size: int) -> int:
    with pytest.raises(OutOfMemory) as caught:
        CachingAllocator(0).allocate(size)
    return caught.value.asked


def test_the_segment_asked_for_is_less_than_2_mib_above_the_tensor_but_where_it_is_20() -> None:
    sizes = [*range(1, 12 * MIB, 100_003), *range(12 * MIB, 40 * MIB, 77_777)]
    above = {size: segment_for(size) - size for size in sizes}
    far = [size for size, more in above.items() if more >= 2 * MIB]
    assert all(MIB < size < 10 * MIB and size + above[size] == 20 * MIB for size in far)
    assert min(far) < 1.1 * MIB
    assert max(far) > 9.9 * MIB
    assert {segment_for(size) for size in (20 * MIB + 1, 21 * MIB, 22 * MIB)} == {22 * MIB}
    assert [segment_for(size) for size in (20 * MIB, 22 * MIB + 1)] == [20 * MIB, 24 * MIB]


def test_a_message_of_20_mib_may_be_of_a_tensor_that_would_find_room_without_gaps() -> None:
    card = CachingAllocator(40 * MIB)
    blocks = [card.allocate(5 * MIB // 4) for _ in range(32)]
    for block in blocks[:12:2]:
        card.release(block)
    with pytest.raises(OutOfMemory) as caught:
        card.allocate(3 * MIB // 2)
    assert caught.value.asked == 20 * MIB
    assert (card.limit - card.reserved, card.reserved - card.allocated) == (0, 15 * MIB // 2)


def left_behind(run: Callable[[], object]) -> int:
    """Bytes that the CPU's allocator has handed out and not got back when `run` is over."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as records:
        run()
    return sum(e.nbytes() for e in records.profiler.kineto_results.events() if e.name() == "[memory]")


@pytest.mark.parametrize("backward", [True, False])
def test_a_loss_added_up_keeps_maps_only_where_no_backward_pass_runs(backward: bool) -> None:
    net, images, labels = networks.small_cnn(size=32), torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    total = torch.zeros(())

    def step() -> None:
        nonlocal total
        loss = nn.functional.cross_entropy(net(images), labels)
        if backward:
            loss.backward()
            net.zero_grad()
        total = total + loss

    step()
    kept = [left_behind(step) for _ in range(3)]
    assert max(kept) <= 4 if backward else min(kept) > MIB / 4


def test_an_update_inside_the_backward_pass_peaks_below_what_training_keeps() -> None:
    weights = 20 * 300**2
    net, sample = nn.Sequential(*(nn.Linear(300, 300, bias=False) for _ in range(20))), torch.randn(1, 300)
    inside = copy.deepcopy(net)

    def update(weight: Tensor) -> None:
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        weight.grad = None

    def after() -> None:
        net(sample).sum().backward()
        torch.optim.SGD(net.parameters(), 0.1).step()

    for weight in inside.parameters():
        weight.register_post_accumulate_grad_hook(update)
    assert cpu_peak_above(after) >= 4 * weights
    assert cpu_peak_above(lambda: inside(sample).sum().backward()) < 0.4 * 4 * weights


def test_momentum_makes_nothing_for_a_moment_but_with_weight_decay_and_adam_does_by_default() -> None:
    def other(make: Callable[..., torch.optim.Optimizer], **options: object) -> float:
        at = vgg16(lambda weights: make(weights, lr=0.1, **options)).at(2)
        return at.timeline()["other"].max() / at.by_role()["parameters"]

    assert other(torch.optim.SGD, momentum=0.9) == 0
    assert other(torch.optim.SGD, momentum=0.9, weight_decay=1e-4) == pytest.approx(1, abs=0.01)
    assert other(torch.optim.Adam) == pytest.approx(1, abs=0.01)
    assert other(torch.optim.Adam, fused=True) == 0


def test_in_inference_a_relu_of_a_chain_has_two_maps_and_in_place_one() -> None:
    twice = {}
    for build in (networks.vgg16, networks.googlenet):
        alive = []
        for inplace in (False, True):
            with torch.device("meta"):
                model = build()
            for relu in (layer for layer in model.modules() if isinstance(layer, nn.ReLU)):
                relu.inplace = inplace
            timeline = training_step(model, (3, 224, 224), 1000, None).at(2).timeline()
            alive.append(timeline[timeline["event"].str.startswith("relu")]["feature maps"].to_numpy())
        twice[build] = alive[0] == 2 * alive[1]
    assert twice[networks.vgg16].all()
    assert not twice[networks.googlenet].all()


def test_vgg16_with_few_images_is_mostly_parameters_gradients_and_state() -> None:
    fixed = ["parameters", "weight gradients", "optimizer state"]
    for optimizer, batch, mostly in (("adam", 7, True), ("momentum", 8, True), ("momentum", 128, False)):
        at = vgg16(optimizer).at(batch)
        assert (at.by_role()[fixed].sum() > at.peak_bytes / 2) == mostly
        assert (at.by_role()["feature maps"] > at.peak_bytes / 2) != mostly


@pytest.mark.parametrize(("percent", "fits"), [(90, 110), (95, 92), (99, 106), (100, 101), (110, 89)])
def test_the_edge_moves_with_the_guess_of_the_workspace(
    monkeypatch: pytest.MonkeyPatch, percent: int, fits: int
) -> None:
    monkeypatch.setattr(capacity, "WORKSPACE_SHARE", capacity.WORKSPACE_SHARE * percent / 100)
    assert capacity.largest_batch(vgg16(), 11 * GIB).fits == fits
