"""The vote of lesson A: no verdict shows before the last vote, and what counts as agreeing."""

import re
from itertools import pairwise

import pytest

from classroom import ROOT
from classroom.claims import MISLEADING, OPEN, OUTDATED, PART, PARTLY, RIGHT, SOME, WRONG, Finding
from course_utils.machine.hardware import device
from course_utils.techniques.capacity import fit
from course_utils.units import GIB, CourseError
from lessons.claims import CLAIMS, Claim, judge
from lessons.hardware.claims import dense_net
from lessons.myths_and_facts.ballot import HOLDS, IN_PART, MEANS, NO, ONCE, ballot, count
from lessons.myths_and_facts.told import COUNTED, REPLIES, SAID_OF, Told, told
from lessons.one_card.fine_tuning import step
from lessons.shared.sources import ADDRESSES, SOURCES


@pytest.fixture
def claims(monkeypatch):
    """Three claims with made-up verdicts, numbered from 901."""

    def made(*verdicts):
        for number, verdict in enumerate(verdicts, 901):
            finding = Finding(verdict, f"evidence of {number}", "why")

            def judged(finding=finding):
                return finding

            judged.__module__ = CLAIMS[20].judge.__module__
            monkeypatch.setitem(CLAIMS, number, Claim(number, f"sentence <{number}>", "somebody", judged))
        return list(range(901, 901 + len(verdicts)))

    return made


def test_nothing_of_the_verdicts_shows_before_the_last_vote(claims):
    votes = ballot(claims(RIGHT, WRONG, PARTLY))
    counted = count(votes, judge(votes.numbers))
    for number, to_go in zip((901, 902), (2, 1), strict=True):
        votes.buttons[number].value = HOLDS
        assert counted.words == f"Vote above first: {to_go} to go."
        assert "Verdict" not in counted.content.value
    votes.buttons[903].value = IN_PART
    assert counted.words == "2 of your 3 votes agree with the verdict."
    assert f"You: {HOLDS}. Verdict: <b>wrong</b>" in counted.content.value
    assert "<902>" not in counted.content.value
    votes.buttons[902].value = NO
    assert counted.words == "3 of your 3 votes agree with the verdict."


@pytest.mark.parametrize(
    ("verdict", "vote"), [(RIGHT, HOLDS), (PARTLY, IN_PART), (OUTDATED, ONCE), (MISLEADING, NO), (WRONG, NO)]
)
def test_one_vote_agrees_with_each_verdict(claims, verdict, vote):
    assert MEANS[verdict] == vote
    votes = ballot(claims(verdict))
    counted = count(votes, judge(votes.numbers))
    agreed = 0
    for one in (HOLDS, IN_PART, ONCE, NO):
        votes.buttons[901].value = one
        agreed += counted.words.startswith("1 of your 1")
    assert agreed == 1


def test_the_still_of_the_ballot_tells_no_verdict_and_that_of_the_count_folds_them(claims):
    votes = ballot(claims(WRONG, RIGHT))
    still = votes._repr_mimebundle_()["text/html"]
    assert "sentence &lt;901&gt;" in still
    assert "wrong" not in still
    assert "(somebody)" in still  # no lesson judges it
    assert "; judged in lesson 03)" in ballot([22])._repr_mimebundle_()["text/html"]
    folded = count(votes, judge(votes.numbers))._repr_mimebundle_()["text/html"]
    assert folded.index("<details") < folded.index("<b>wrong</b>") < folded.index("</details>")


def test_a_sentence_is_told_with_its_vote_verdict_and_better_words_its_numbers_and_rule_folded_and_nothing_unescaped():
    claim = Claim(901, "sentence <901>", "somebody", CLAIMS[20].judge)
    finding = Finding(WRONG, "evidence <5", "why", rule="right if > 5")
    page = Told(claim, finding, HOLDS, "less < more")._repr_html_()
    assert "sentence &lt;901&gt;" in page
    assert f"You voted: <b>{HOLDS}</b>. Verdict: <b>wrong</b>.</p><p>It should have said: <b>less &lt; more</b>" in page
    folded = page.partition("<details>")[2].partition("</details>")[0]
    assert "Rule: right if &gt; 5. Found: evidence &lt;5." in folded
    assert "<p>More exactly: <b>less" in Told(claim, Finding(RIGHT, "1", "why"), HOLDS, "less")._repr_html_()
    one = Told(claim, finding, HOLDS)
    assert "should have said" not in one._repr_html_()
    reply = Told(CLAIMS[59], finding, NO)._repr_html_()
    assert "Verdict: <b>wrong</b>. It does in few cases" in reply
    assert repr(one) == "“sentence <901>” (somebody): wrong"
    votes = ballot([20, 21])
    votes.buttons[20].value = IN_PART
    assert repr(told(20, judge([20]), votes)).endswith(": partly right")
    assert f"You voted: <b>{IN_PART}</b>" in told(20, judge([20]), votes)._repr_html_()
    assert "You voted" not in told(21, judge([21]), votes)._repr_html_()


def test_a_sentence_is_told_with_what_the_voter_would_count_what_was_counted_and_of_what_it_was_said():
    votes = ballot([2])
    votes.counts[2].value = "bytes <cached>"
    page = told(2, judge([2]), votes)._repr_html_().partition("<details>")[0]
    assert "You would count: bytes &lt;cached&gt;. We counted: the peak of a step" in page
    assert "Said of: his own network" in page
    assert "Verdict: <b>misleading</b>" in page
    assert "You would count" not in told(2, judge([2]), ballot([2]))._repr_html_()


def test_cases_are_tallied():
    kinds = {claim.number: finding.kind for claim, finding in judge([4, 40, 42, 71, 87]).rows}
    assert kinds == {
        4: f"{SOME}: 6 of 12",
        40: f"{SOME}: 11 of 12 cards and those that they replaced",
        42: f"{SOME}: 16 of 17",
        71: f"{SOME}: 2 of 4",
        87: f"{SOME}: 1 of 8",
    }


def test_a_source_with_an_address_is_linked_in_the_fold():
    assert set(ADDRESSES) < set(SOURCES)
    found, votes = judge([2, 81]), ballot([2, 81])
    linked, plain = (told(number, found, votes)._repr_html_() for number in (2, 81))
    folded = linked.partition("<details>")[2]
    assert "Source: <a href='https://timdettmers.wordpress.com/2014/08/14/which-gpu-for-deep-learning/'>" in folded
    assert "Source:" not in plain


def twelve():
    """The numbers of the claims that lesson A's ballot has, in its order."""
    text = (ROOT / "lessons/myths_and_facts/lesson.py").read_text(encoding="utf-8")
    return [int(number) for number in re.search(r"^TWELVE = \(([\d, ]+)\)$", text, re.M)[1].split(",")]


def test_what_was_counted_is_told_of_the_twelve_and_half_of_them_no_lesson_has_judged():
    numbers = set(twelve())
    assert numbers == set(COUNTED) > set(SAID_OF)
    assert sum(not CLAIMS[number].lesson for number in numbers) >= len(numbers) / 2
    partly = [(claim, f) for claim, f in judge(sorted(numbers)).rows if f.verdict == PARTLY]
    assert all(f.kind and f.rule for _, f in partly)
    for claim, f in partly:  # which part holds and which does not, in the sentence's own words
        parts = re.findall("“(.+?)”", f.kind)
        assert all(part in claim.text for part in parts), f.kind
        assert f.kind == SOME or (f.kind.startswith((f"{PART}, ", f"{SOME}: ")) and len(parts) != 1)


def test_what_the_source_of_92_reports_is_told_alike_wherever_it_is():
    text = (ROOT / "lessons/myths_and_facts/lesson.py").read_text(encoding="utf-8")
    assert all("reports 18.9 GiB" in words for words in (text, SAID_OF[92], judge([92]).rows[0][1].why))


def test_what_lesson_a_says_of_room_on_two_cards_is_computed():
    text = (ROOT / "lessons/myths_and_facts/lesson.py").read_text(encoding="utf-8").replace("\n# ", " ")
    card, ledger = device("RTX 4090"), step("Llama-3-8B", "state on the CPU + step in backward", batch=2, kept=True)
    room = card.memory_bytes - fit(ledger, card).context.most - ledger.peak_bytes
    assert 0.045 < room / ledger.peak_bytes < 0.055
    assert "The room is 5 % of the peak; of 20 traces in lesson 14 none was over 2.1 % too low." in text
    lesson = (ROOT / "lessons/one_card/lesson.py").read_text(encoding="utf-8")
    assert "we trace 20 runs on a T4, 0.0 to 2.1 % below what was measured" in lesson
    filled = [dense_net(way).at(60_000).peak_bytes / (6 * GIB) for way in ("momentum", "adam")]
    assert max(abs(share - 1) for share in filled) < 0.05
    assert "It takes about 60,000 samples for the network alone to fill 6 GiB." in text


def test_every_verdict_but_open_is_on_the_ballot_and_no_two_alike_but_in_part_follow_each_other():
    given = [finding.verdict for _, finding in judge(twelve()).rows]
    assert set(given) == {*MEANS}
    assert given.count(PARTLY) <= 7
    assert not [pair for pair in pairwise(given) if pair[0] == pair[1] != PARTLY]


def test_a_reply_is_to_a_vote_that_does_not_agree():
    verdicts = {claim.number: finding.verdict for claim, finding in judge(sorted({n for n, _ in REPLIES})).rows}
    assert not [asked for asked in REPLIES if MEANS[verdicts[asked[0]]] == asked[1]]


def test_only_what_is_partly_right_says_what_is():
    assert Finding(PARTLY, "1", "why", kind=SOME).in_full == "partly right: some cases"
    assert Finding(RIGHT, "1", "why", kind=SOME).in_full == RIGHT
    assert Finding(PARTLY, "1", "why", cited=True).in_full == "partly right (cited)"


def test_what_cannot_be_voted_on_is_one_line(claims):
    with pytest.raises(CourseError, match=r"^no claim number 999; there are 1 to "):
        ballot([999])
    votes = ballot(claims(OPEN))
    with pytest.raises(CourseError, match=r"^claim 901 is open: vote on claims that a number decides$"):
        count(votes, judge([901]))
    with pytest.raises(CourseError, match=r"^count needs what ballot\(\.\.\.\) returned, got int$"):
        count(3, judge([20]))
