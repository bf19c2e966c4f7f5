"""Exercise 09's hooks: what is said of answers in no catalogue, and the figures its takeaways quote."""

import itertools
import re

import numpy as np
import torch

from classroom.questions.core import Outcome
from course_utils.machine import hardware
from course_utils.techniques.offload import OUT
from lessons.offload import checks as offload
from lessons.offload import graded
from lessons.offload import judge as saved
from lessons.offload.answers import outside_by_tickets
from lessons.offload.claims import runs


def test_the_figures_in_takeaways_are_computed():
    schedule = runs().get("VGG-16", 128, "all")
    work, seconds = schedule.work, schedule.ends - schedule.begins
    layers = [*np.flatnonzero(work.begins_layer), work.kernels]  # where each begins
    beside = []
    for moved in (one for one in schedule.copies if one.direction == OUT):
        following = next(kernel for kernel in layers if kernel > moved.beside)
        beside.append((moved.bytes, float(seconds[moved.beside : following].sum())))
    copy = offload.copy_seconds.truth[0]
    assert f"takes {copy:.2f} s at 11.8 GB/s" in offload.copy_seconds.takeaway
    kernel = copy / offload.copy_over_kernel.reference(3, 1, 64, 64, 224, 128, 6.6 * 0.67, 11.8)
    assert f"{hardware.link('PCIe 3.0 x16').bytes_per_s / 1e9:.1f} GB/s" in offload.copy_seconds.takeaway
    assert f"conv1_2 runs for {kernel:.2f} s" in offload.copy_seconds.takeaway
    wanted = offload.least_link.reference(beside)
    assert 11.5 < wanted / hardware.link("PCIe 3.0 x16").bytes_per_s < 12.5
    assert "twelve times as fast as PCIe 3.0" in offload.least_link.takeaway


def test_the_network_has_a_tensor_for_every_slip():
    seen = saved.judge(saved.record(outside_by_tickets))
    assert all(seen.holds.values())
    sizes = [one.bytes for one in seen.to_move]
    assert seen.least in sizes  # at least, not more than
    assert any(seen.least < size < 4 * seen.least for size in sizes)  # bytes, not values
    assert any(one.parameter and one.bytes >= seen.least for one in seen.saved)
    assert any(one.bytes < seen.least for one in seen.saved if not one.parameter)


def says(answer):
    feedback = offload.keep_outside(answer)
    assert feedback.outcome is Outcome.WRONG
    return feedback.message


def test_a_crash_is_named_with_its_line():
    def broken(model, least, host):
        def pack(tensor):
            return host.put(tensor)

        return pack, lambda kept: host.take(kept + 10**6)

    feedback = offload.keep_outside(broken)
    assert feedback.outcome is Outcome.CRASHED
    assert "A training step with your hooks raised IndexError" in feedback.message
    assert graded.keep_outside.lines(broken) == ["keep_outside: crashed: IndexError"]


def test_one_function_or_something_else_is_no_pair_of_hooks():
    for wrong in (lambda *_: None, lambda *_: lambda tensor: tensor, lambda *_: (1, 2)):
        assert "Return two functions" in says(wrong)


def test_hooks_that_work_once_are_told_so():
    moved = sum(one.moved for one in saved.judge(saved.record(outside_by_tickets)).saved)

    def once(model, least, host):
        """The first step's tickets for ever."""
        pack, unpack = outside_by_tickets(model, least, host)
        numbers, tickets = itertools.count(), {}

        def reusing(tensor):
            packed = pack(tensor)
            return packed if packed is tensor else tickets.setdefault(next(numbers) % moved, packed)

        return reusing, unpack

    assert "The first step is right and the second is not: `unpack` gives back" in says(once)


def test_what_stays_and_what_comes_back_wrong_is_measured():
    def too_picky(model, least, host):
        return outside_by_tickets(model, 20 * least, host)

    assert re.search(r"\d of \d+ large maps stay, of [\d, ]+ bytes; `least` is 4,096", says(too_picky))

    def doubled(model, least, host):
        pack, unpack = outside_by_tickets(model, least, host)
        return pack, lambda kept: unpack(kept) * 2

    assert "not what `pack` was given: other values" in says(doubled)


def test_wrong_indices_of_a_pool_do_not_end_the_process():
    """PyTorch's kernel aborts on them: what comes back is compared before autograd gets it."""

    def far(model, least, host):
        pack, unpack = outside_by_tickets(model, least, host)
        return pack, lambda kept: unpack(kept) + 10**9

    assert "not what `pack` was given" in says(far)
    last = {}
    assert "not what" in says(lambda *_: ((lambda tensor: last.update(one=tensor)), (lambda kept: last["one"])))
    assert "a NoneType in place of a tensor" in says(lambda *_: ((lambda tensor: None), (lambda kept: None)))


def test_a_view_that_holds_the_bytes_is_found():
    def views(model, least, host):
        pack, unpack = outside_by_tickets(model, least, host)

        def keeping(tensor):
            kept = pack(tensor)
            return kept if isinstance(kept, torch.Tensor) else (kept, tensor.numpy())

        return keeping, lambda kept: kept if isinstance(kept, torch.Tensor) else unpack(kept[0])

    assert "still in memory" in says(views)


def test_an_empty_tensor_on_the_host_is_no_copy_there():
    def for_show(model, least, host):
        own = {parameter.data_ptr() for parameter in model.parameters()}

        def pack(tensor):
            if tensor.nbytes < least or tensor.data_ptr() in own:
                return tensor
            host.put(tensor[:0])
            return (tensor.detach().clone(),)

        return pack, lambda kept: kept[0] if isinstance(kept, tuple) else kept

    missed = [line for line in graded.keep_outside.lines(for_show) if line.endswith(": no")]
    assert missed == ["the host has them: no", "their memory is free: no"]
    assert "host" in says(for_show)
