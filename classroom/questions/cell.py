"""What the check cell below an answer calls: `check("map_bytes")`, with an end whatever the answer does.

It finds the answer by its name, so that it has something to say when there is none: after a restart, or when the
answer's cell failed to run. What was run is read from IPython's own list of inputs. Where a later text of the answer
failed, the definition from before it is not judged.
"""

import _thread
import linecache
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython import get_ipython

from classroom.questions.core import Feedback, Outcome, defines, file_of, place_in
from classroom.questions.functions import Check
from course_utils.units import CourseError, require_one_of

SECONDS = 30.0  # the longest check of a right answer takes about 4
SLICE = 0.2  # seconds: Windows interrupts no wait, so none is long
SLACK = 4  # times as long by the clock where other processes hold the processor, or the answer sleeps
AGAIN = 5.0  # seconds: an answer may catch what interrupts it, so it is interrupted again
GIVEN_CELL = re.compile(r"#\s*%%(?!.*\b(?:markdown|question|answer|check|hint|graded)\b)")
RUN_ABOVE = "Run > Run All Above Selected Cell runs all that it needs"
MISSING = re.compile(r"NameError: name '(\w+)' is not defined")
ABSENT = object()


class CheckCell:
    """The checks of one exercise, as its check cells call them.

    Args:
        module: the global names of the module that holds them, by question.
    """

    def __init__(self, module: Mapping[str, Any], seconds: float = SECONDS) -> None:
        self.module = module
        self.seconds = seconds
        for check in module.values():
            if isinstance(check, Check):
                check.package = module.get("__package__", "")

    def __call__(self, question: str) -> Feedback:
        """Check what the learner's notebook defines for this question. Raises CourseError."""
        known = [name for name, one in self.module.items() if getattr(one, "question", None) == name]
        require_one_of("question", question, known)
        check = self.module[question]
        name = getattr(check, "name", question)
        shell = get_ipython()
        if shell is None:
            raise CourseError(f"this is for notebooks; elsewhere call the check itself: checks.{question}({name})")
        answer, inputs = shell.user_ns.get(name, ABSENT), shell.user_ns.get("In", ())
        if failed := failed_since(name, answer, inputs):
            return Feedback(question, Outcome.CRASHED, failed)
        if answer is ABSENT:
            missing = f"`{name}` is not defined: run its cell above, then this one. After a restart, {RUN_ABOVE}."
            return Feedback(question, Outcome.NOT_ATTEMPTED, missing)
        if len(inputs) > 1:
            return self._within_limit(check, question, answer)
        feedback: Feedback = check(answer)  # whoever marks keeps no list of inputs, and has limits of its own
        return feedback

    def _within_limit(self, check: Any, question: str, answer: object) -> Feedback:
        begun = time.monotonic()
        try:
            with interrupted_after(self.seconds):
                feedback: Feedback = check(answer)
        except KeyboardInterrupt as stop:
            took = time.monotonic() - begun
            how = f"{'Stopped' if took < self.seconds else 'It had not ended'} after {took:.0f} s"
            said = f"{how}{place_in(stop, answer)}. Is there a loop that does not end?"
            return Feedback(question, Outcome.CRASHED, said)
        missing = MISSING.search(feedback.message) if feedback.outcome is Outcome.CRASHED else None
        if missing and self._is_given(missing[1]):
            hint = f"`{missing[1]}` comes from a cell of this notebook that was not run since the kernel started"
            return replace(feedback, message=f"{feedback.message}. {hint}: {RUN_ABOVE}.")
        return feedback

    def _is_given(self, name: str) -> bool:
        """Whether one of the exercise's own code cells defines a name, where its source lies beside the checks."""
        with suppress(OSError, KeyError):
            source = Path(self.module["__file__"]).with_name("exercise.py").read_text(encoding="utf-8")
            cells = filter(GIVEN_CELL.match, re.split(r"(?m)^(?=#\s*%%)", source))
            return any(defines(cell, [name]) for cell in cells)
        return False


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt in the main thread after so long, from then on again and again, until the block ends.

    The seconds are those of the clock; where this process got less than half of them, more are given, up to four times
    as many. On Linux and macOS it is a signal, which ends a sleep as well; on Windows it waits for Python's own code.
    Called from another thread than the main one, it interrupts nothing.
    """
    main, ended = threading.main_thread(), threading.Event()
    concerns = threading.current_thread() is main

    def watch() -> None:
        own, wait = time.process_time(), seconds
        last = time.monotonic() + SLACK * seconds
        while not ended.wait(wait):
            if time.process_time() - own < seconds / 2 and time.monotonic() < last:
                wait = SLICE
                continue
            wait = AGAIN
            if concerns and hasattr(signal, "pthread_kill") and main.ident is not None:
                signal.pthread_kill(main.ident, signal.SIGINT)
            elif concerns:
                _thread.interrupt_main()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()  # nothing interrupts what comes after


def failed_since(name: str, answer: object, inputs: Sequence[str]) -> str:
    """What to know where a text of an answer failed, later than the one that made the answer what it is; else "".

    Args:
        name: the answer's.
        answer: what it is now; `ABSENT` if it is not defined.
        inputs: IPython's `In`: the texts that were run, failed ones as well, the first of them at 1.
    """
    numbered = list(enumerate(inputs))[1:-1]  # the last is the check cell's own
    judged = 0
    if answer is not ABSENT:
        text = "".join(linecache.getlines(file_of(answer) or "")).strip()
        judged = max((number for number, one in numbered if text and one.strip() == text), default=0)
        if not judged or hasattr(answer, "__wrapped__") or not defines(text, [name]):
            return ""  # nobody can tell which text made it: another file, another name's, a wrapped one
    failed = max((number for number, one in numbered if number > judged and defines(one, [name])), default=0)
    earlier = f" `{name}` is still what In [{judged}] made it, and was not judged." if judged else ""
    said = f"The cell of `{name}` failed when it last ran, as In [{failed}].{earlier} Mend it and run it first."
    return said if failed else ""
