"""Programs of several cards: recorded one by one, replayed together on other values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from classroom.questions.core import Outcome
from lessons.many_gpus import judge as rings
from lessons.many_gpus.answers import RIGHT
from lessons.many_gpus.behaviour import ring_average
from lessons.shared.replay.cards import record_cards, replay_cards
from lessons.shared.replay.form import Received, Refused, Sent, from_texts, to_texts
from lessons.shared.replay.replayer import replay


def held(cards, numbers=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(numbers, generator=draw, dtype=torch.float64) for _ in range(cards)]


def talk(program, own, others=None):
    """What a program comes to, recorded on what the cards hold, and replayed on that or on other values."""
    records = from_texts(to_texts(record_cards(program, own)))
    return replay_cards(records, [{"values": one} for one in others or own])


def returned(found):
    return [one.handed["returned Tensor"] for one in found.cards]


def passed_on(rank, values, send, receive):
    """Card 0 sends, each next one doubles and sends on; all return what they have."""
    if rank:
        values = 2 * receive(rank - 1)
    if rank < 3:
        send(rank + 1, values)
    return values


def test_what_comes_by_a_message_is_the_other_cards_on_whatever_values():
    others = held(4, seed=1)
    found = talk(passed_on, held(4), others)
    for rank, one in enumerate(returned(found)):
        assert torch.equal(one, others[0] * 2**rank)
    assert [(card, to, len(part)) for card, to, part in found.sent] == [(0, 1, 6), (1, 2, 6), (2, 3, 6)]
    assert found.silence == []


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(0, 20), st.integers(0, 2))
def test_a_right_program_averages_whatever_the_ring(cards, numbers, which):
    others = held(cards, numbers, seed=1)

    def program(rank, values, send, receive):
        return RIGHT["ring_average"][which](rank, cards, values, send, receive)

    found = talk(program, held(cards, numbers), others)
    mean = torch.stack(others).mean(dim=0)
    assert all(torch.allclose(one, mean) for one in returned(found))
    assert sum(len(part) for _, _, part in found.sent) <= 2 * (cards - 1) * -(-numbers // cards) * cards


def test_messages_of_one_sender_arrive_in_their_order():
    def program(rank, values, send, receive):
        if rank:
            return receive(0) - receive(0)
        send(1, values)
        send(1, 2 * values)
        return values

    own = held(2)
    assert torch.equal(returned(talk(program, own))[1], -own[0])


def test_what_a_message_held_when_it_left_is_what_arrives():
    def program(rank, values, send, receive):
        if rank:
            return receive(0).add_(1)
        send(1, values)
        values.zero_()
        return values

    own = held(2)
    first, second = returned(talk(program, own))
    assert torch.equal(first, torch.zeros(6, dtype=torch.float64))
    assert torch.equal(second, own[0] + 1)


def test_whoever_waits_in_vain_is_found_where_it_is_replayed():
    def program(rank, values, send, receive):
        return receive(1 - rank) if rank < 2 else values

    found = talk(program, held(3))
    assert found.silence == [(0, 1), (1, 0)]
    assert "returned Tensor" in found.cards[2].handed


def test_a_program_is_run_again_for_each_wait_and_prints_once(capsys):
    def program(rank, values, send, receive):
        print("card", rank)
        return passed_on(rank, values, send, receive)

    record_cards(program, held(4))
    assert capsys.readouterr().out == "".join(f"card {rank}\n" for rank in range(4))


def test_what_goes_past_the_messages_is_another_cards_no_more_on_other_values():
    left = {}

    def program(rank, values, send, receive):
        left[rank] = values
        send(1 - rank, values[:1])
        receive(1 - rank)
        return left[0] + left[1]

    own, others = held(2), held(2, seed=1)
    assert torch.equal(returned(talk(program, own))[0], own[0] + own[1])
    assert not torch.allclose(returned(talk(program, own, others))[0], others[0] + others[1])


def test_what_a_program_raises_is_raised():
    def program(rank, values, send, receive):
        send(2, values)

    with pytest.raises(ValueError, match="card 0 cannot send to card 2: there are cards 0 to 1"):
        record_cards(program, held(2))


def test_a_record_of_one_card_is_no_program_by_itself():
    records = record_cards(passed_on, held(4))
    with pytest.raises(Refused, match="is alone"):
        replay(records[0], {"values": held(1)[0]})


def forged(change):
    """The records of `passed_on` with the entries of card 1 changed."""
    records = record_cards(passed_on, held(4))
    entries = [new for entry in records[1].entries for new in change(entry)]
    records[1] = type(records[1])(records[1].inputs, tuple(entries))
    return records


@pytest.mark.parametrize(
    "change",
    [
        lambda one: [Received(one.source, None)] if isinstance(one, Received) else [one],
        lambda one: [Received(0, type(one.ref)(one.ref.storage, "torch.float32", (6,), (1,), 0))]
        if isinstance(one, Received) else [one],
        lambda one: [Received(0, type(one.ref)(one.ref.storage, "torch.float64", (3,), (1,), 0))]
        if isinstance(one, Received) else [one],
        lambda one: [Received(0, type(one.ref)(1, "torch.float64", (6,), (1,), 0))]
        if isinstance(one, Received) else [one],
        lambda one: [Sent(one.to, type(one.ref)(99, "torch.float64", (6,), (1,), 0))]
        if isinstance(one, Sent) else [one],
        lambda one: [Sent(one.to, type(one.ref)(one.ref.storage, "torch.float64", (7,), (1,), 0))]
        if isinstance(one, Sent) else [one],
    ],
    ids=["none", "another dtype", "another size", "into what is there", "of nothing", "beyond its end"],
)  # fmt: skip
def test_a_forged_message_is_refused(change):
    with pytest.raises(Refused):
        replay_cards(forged(change), [{"values": one} for one in held(4)])


def test_a_message_that_was_invented_is_waited_for_in_vain():
    found = replay_cards(
        forged(lambda one: [Received(3, one.ref)] if isinstance(one, Received) else [one]),
        [{"values": one} for one in held(4)],
    )
    assert found.silence == [(1, 3), (2, 1), (3, 2)]


def test_a_ring_without_one_of_its_cards_is_refused():
    records = rings.record(RIGHT["ring_average"][0])
    with pytest.raises(Refused, match="a card is missing"):
        rings.judge(records[1:])


def numpy_ring(rank, cards, values, send, receive):
    """Right, and computed where no operator of torch's runs."""
    chunks = [chunk.copy() for chunk in np.array_split(values.numpy(), cards)]
    for step in range(2 * (cards - 1)):
        adding = step < cards - 1
        out = (rank - step + (0 if adding else cards)) % cards
        send((rank + 1) % cards, torch.from_numpy(chunks[out]))
        arrived = receive((rank - 1) % cards).numpy()
        chunks[(out - 1) % cards] = arrived + (chunks[(out - 1) % cards] if adding else 0)
    return torch.from_numpy(np.concatenate(chunks) / cards)


def test_what_numpy_computed_is_told_in_one_line_and_not_taken_for_shared_memory():
    own = held(4)
    assert torch.allclose(numpy_ring(0, 1, own[0], None, None), own[0])
    feedback = ring_average(numpy_ring)
    assert feedback.outcome is Outcome.WRONG
    assert "on the values that it ran on it does what is asked for" in feedback.message.lower()
    assert "NumPy" in feedback.message
