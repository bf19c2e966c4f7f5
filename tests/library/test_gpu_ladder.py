"""What the step of timm's search in 2022 had that today's has not, each on a network of two layers."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.gpu_ladder import NEAR, Verdict, best_limit, least_room, torch_1_12, written_over
from course_utils.memory import ROLE, StepTrace
from course_utils.trace import training_step
from course_utils.trace.operators import AUTOCAST
from course_utils.units import MIB

BATCH, SIDE, CHANNELS = 4, 8, 16
MAP = 2 * BATCH * CHANNELS * SIDE * SIDE  # bytes in float16


def traced(*layers: nn.Module) -> StepTrace:
    narrow = nn.Conv2d(CHANNELS, 1, 1)  # behind it are no maps of that size
    return training_step(nn.Sequential(*layers, narrow, nn.Flatten()), (3, SIDE, SIDE), precision="float16")


def kept(step: StepTrace) -> list[int]:
    """Bytes of the large feature maps that are alive when backward begins."""
    ledger = step.at(BATCH)
    tape, begins = ledger.tape, ledger.tape.event_phase.tolist().index(1)
    there = (tape.role == ROLE["feature maps"]) & (tape.birth < begins) & (tape.death > begins) & (ledger.size >= MAP)
    return sorted(ledger.size[there].tolist())


def test_maps_were_resized_in_float16() -> None:
    def largest() -> int:
        ledger = traced(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.Upsample(scale_factor=2)).at(BATCH)
        return int(ledger.size.max())

    lists = {kind: list(names) for kind, names in AUTOCAST.items()}
    today = largest()
    with torch_1_12():
        then = largest()
    assert (then, today) == (4 * MAP, 8 * MAP)
    assert lists == AUTOCAST


def test_a_norm_that_is_written_over_its_input_keeps_one_map() -> None:
    def network() -> nn.Sequential:
        first, second = nn.Conv2d(3, CHANNELS, 3, padding=1), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        return nn.Sequential(first, nn.BatchNorm2d(CHANNELS), second, nn.BatchNorm2d(CHANNELS))

    then = network()
    written_over(then)
    assert kept(traced(network())) == [MAP] * 4
    assert kept(traced(then)) == [MAP] * 2


def test_what_is_written_over_runs_backward() -> None:
    network = nn.Sequential(nn.Conv2d(3, CHANNELS, 3), nn.BatchNorm2d(CHANNELS), nn.Flatten())
    parameters = [p.shape for p in network.parameters()]
    written_over(network)
    network(torch.zeros(2, 3, SIDE, SIDE)).sum().backward()
    assert [p.grad.shape for p in network.parameters() if p.grad is not None] == parameters


def rung(model: str, ran_at: int, failed_at: int) -> list[Verdict]:
    """A batch that ran and needs so much, and one that failed and needs so much."""
    return [Verdict(model, "nchw", 1, ran, "", "", 0, needs) for ran, needs in ((True, ran_at), (False, failed_at))]


def test_the_best_limit_meets_most_and_calls_few_failed_batches_fits() -> None:
    found = [one for i in range(40) for one in rung(str(i), 10, 20)]
    assert best_limit(found, lambda one: one.needs_mib) == 40
    # One that ran beside 21 is met by a limit that is wrong on all that failed at 20; two that failed at 9 by none.
    assert best_limit([*found, *rung("large", 21, 30)], lambda one: one.needs_mib) == 40
    assert best_limit([*found, *rung("a", 5, 9)], lambda one: one.needs_mib) == 40  # 1 of 41 may be wrong
    assert best_limit([*found, *rung("a", 5, 9), *rung("b", 5, 9)], lambda one: one.needs_mib) == 2  # 2 of 42 may not


def test_the_least_room_is_what_a_replay_gets_through_in() -> None:
    requests = traced(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU()).at(2048).requests
    found = least_room(requests)
    assert requests.fit_in(found * MIB)
    assert not requests.fit_in((found - NEAR) * MIB)
