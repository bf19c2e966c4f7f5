"""The skyline: memory over one training step, stacked by role, with a card's limit across it.

The course's signature figure. A reading (`memory.Ledger`) goes in, a `scene.Picture` comes out; every number in words
comes from the ledger. With a `speed.StepTime` the horizontal axis is predicted time instead of one operator after
another. Here is what it says; `skyline_plot` draws it.
"""

from course_utils.figures.events import by_operator, by_time, under
from course_utils.figures.scene import WIDTH, Picture, Scene, text_width
from course_utils.figures.skyline_plot import COLUMN_DASH, COLUMN_KEY, COLUMN_MARGIN, HEIGHT, LEFT, TITLE_GAP, Plot
from course_utils.figures.style import COLUMN_GAP, SIZE, percent, write_title
from course_utils.machine.hardware import Device
from course_utils.machine.speed import StepTime
from course_utils.memory import Ledger
from course_utils.techniques.capacity import Fit, fit
from course_utils.units import CourseError, format_bytes, format_seconds


def finding(ledger: Ledger, verdict: Fit | None = None) -> str:
    """The skyline's finding in words: whether the step fits the card; without one, what makes up the peak."""
    head = f"{ledger.name}, batch {ledger.batch:,}"
    peak = format_bytes(ledger.peak_bytes)
    if verdict is not None:
        return f"{head}: the peak of {peak} {verdict.words}"
    shares = ledger.by_role()
    role = str(shares.idxmax())
    verb = "are" if role.endswith("s") else "is"
    return f"{head}: {role} {verb} {percent(shares[role], ledger.peak_bytes)} of the {peak} at the peak"


def describe(ledger: Ledger, verdict: Fit | None = None, time: StepTime | None = None) -> str:
    """Alternative text of a skyline: what is drawn, the peak, what it consists of, the time, and the verdict."""
    parts = [f"{role} {format_bytes(count)}" for role, count in ledger.by_role().items() if count]
    text = (
        f"Memory over one training step of {ledger.name} at batch {ledger.batch:,}, stacked by role. "
        f"Peak {format_bytes(ledger.peak_bytes)}, {ledger.peak_phase}, at {ledger.peak_layer}: {', '.join(parts)}."
    )
    if time is not None:
        took = [f"{phase} {format_seconds(s)}" for phase, s in time.by_phase().items() if s]
        whole = format_seconds(time.total_seconds)
        text += f" Over the {whole} predicted for {time.device.name}: {', '.join(took)}."
    return text if verdict is None else f"{text} Limit: {verdict.card}. {verdict.sentence}"


def skyline(
    ledger: Ledger,
    limit_bytes: Device | float | None = None,
    before: Ledger | None = None,
    title: str | None = None,
    limit: str | None = None,
    before_name: str = "before",
    time: StepTime | None = None,
    before_time: StepTime | None = None,
    part: tuple[str, int] | None = None,
) -> Picture:
    """Memory over one training step, stacked by role, with a card's limit across it.

    Args:
        ledger: the step to draw.
        limit_bytes: the card, a device or what it holds. The line is what its context leaves (`Fit.limit_bytes`); what
            rises above it is striped, and where the step first exceeds it is ringed. Whether the step fits is
            `course_utils.techniques.capacity.fit`'s to say: tensors below the line may still be too much.
        before: another step, drawn as a dashed outline over this one, phase under phase.
        title: the finding; computed by `finding` if not given.
        limit: the name of the card, "12 GiB card" if not given.
        before_name: what the outline is called.
        time: the predicted time of this step, `predict_step(ledger, device)`. The horizontal axis is then time: every
            operator as wide as the seconds it takes, the transfer before the step if there is one.
        before_time: the predicted time of `before`, drawn on the same scale; needed where both are given.
        part: a part of the peak that is no role, such as the logits: its name, and its bytes. A bracket marks how much
            of the stack that is, from the top down.

    Raises:
        CourseError: a time that is another step's, or an outline that has no time where the axis is time.
    """
    if time is None and before_time is not None:
        raise CourseError("before_time is given and time is not: both steps need one, or neither")
    if time is not None and before is not None and before_time is None:
        raise CourseError("before needs its own before_time where the axis is time: give predict_step(before, device)")
    for what, step, own in (("time", ledger, time), ("before_time", before, before_time)):
        if own is not None and own.ledger is not step:
            raise CourseError(f"{what} must be the time of the very step drawn: predict_step of the same ledger")
    verdict = None if limit_bytes is None else fit(ledger, limit_bytes, limit)
    name = f"{verdict.card} − context" if verdict else ""
    scene = Scene(WIDTH, HEIGHT, describe(ledger, verdict, time))
    head = write_title(scene, title or finding(ledger, verdict))
    ghost_name = f"{before_name}: {format_bytes(before.peak_bytes)}" if before else ""
    if before_time is not None:
        ghost_name += f", {format_seconds(before_time.total_seconds)}"
    named = max(text_width(f"↑ {name}", SIZE, True), text_width(ghost_name, SIZE) + COLUMN_DASH)
    column = max(text_width("weight gradients", SIZE) + COLUMN_KEY, named) + COLUMN_GAP + COLUMN_MARGIN
    right = WIDTH - min(column, WIDTH / 2)
    if time is None:
        events = by_operator(ledger, LEFT, right)
        ghost = under(before, events.spans) if before else None
        heading = "alive after each event of the step"
    else:
        times = [each for each in (time, before_time) if each is not None]
        longest = max(each.total_seconds for each in times) or 1.0
        events, *rest = (by_time(each, LEFT, (right - LEFT) / longest) for each in times)
        ghost = rest[0] if rest else None
        heading = f"alive over the {format_seconds(time.total_seconds)} predicted for {time.device.name}"
    line = verdict.limit_bytes if verdict else None
    plot = Plot(scene, ledger, line, events, ghost, heading, head + TITLE_GAP, right)
    plot.draw()
    if part is not None:
        plot.bracket(*part)
    plot.label(name, ghost_name)
    return Picture.from_scene(scene)
