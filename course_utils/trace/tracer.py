"""From runs of a step at two batches, or three, and of its update, to the step at every batch."""

from course_utils.memory import Ledger, Tape
from course_utils.surroundings import no_garbage_collection
from course_utils.trace import assumptions, devices, overrides
from course_utils.trace.affine import NotAffine, Update, check_third, in_proportion, make_tape
from course_utils.trace.inputs import ROUND_BATCH, THIRD_BATCH
from course_utils.trace.optimizers import UpdateTracer
from course_utils.trace.record import Run
from course_utils.trace.refusals import LeakError, TraceError
from course_utils.trace.runs import Runs


class Tracer(Runs):
    """One network on shapes, and the step at every batch."""

    def tape_at(self, batch: int) -> Tape:
        """The step traced at one batch: every size fixed. Raises TraceError where the step fails at this batch."""
        return self._tape(self.run(batch), None)

    @overrides.registered()
    def affine(self) -> tuple[Tape | None, str]:
        """The step at every batch, or None and the reason why no straight line fits."""
        first, second = self.batches
        if self.optimizer is not None and self.step.zero_grad is None and self.step.set_to_none:
            self._assume(assumptions.CLEARED)
        try:
            small = self.run(first)
        except LeakError:
            raise
        except TraceError as error:
            for batch in (second, ROUND_BATCH):
                try:
                    self.run(batch)
                except TraceError:
                    continue
                return None, f"the step fails at batch {first} but not at {batch}"
            raise error from None
        update = self._update()  # an optimizer that fails does so at every batch
        if update is not None and update.uncleared:
            self._uncleared = {id(self._trained[index]) for index in update.uncleared}
            self._assume(assumptions.UNCLEARED.format(len(self._uncleared)))
            small = self.run(first)
        try:
            large = self.run(second)
            found, why = self._tape(small, large), ""
            if not in_proportion(small, large, self.batches):
                check_third(found, self.run(THIRD_BATCH), THIRD_BATCH)
        except (NotAffine, TraceError) as reason:
            found, why = None, str(reason)
        self._assume(*map(assumptions.MOVES_ON.format, self._state.iterators))
        if found is None or self.draws.seen or self._state.iterators:
            self._try_again(first)
        else:
            self._assume(assumptions.SAME_WAY.format(first, second))
        return found, why

    def _try_again(self, batch: int) -> None:
        """Notice a step that is another every time, though its batch is the same."""
        with self.draws.watched(self._state.generators):
            runs = [self._run(batch) for _ in range(4 if self.draws.seen else 2)]
        peaks = [Ledger(self.name, self._tape(run, None), batch).peak_bytes for run in runs]
        alike = all(run == runs[0] for run in runs)
        if self.draws.seen or not alike:
            self._assume(assumptions.by_lot(batch, peaks, self.draws.seen, alike))

    def _tape(self, small: Run, large: Run | None) -> Tape:
        large, update = large or small, self._update()
        return make_tape(small, large, self.batches, update, self.layer_parameters, self.step.clears_at_end)

    def _update(self) -> Update | None:
        """The optimizer's step: it does not depend on the batch, so it is run once."""
        if self.optimizer is None:
            return None
        trained = tuple(map(id, self._trained))
        if trained not in self._updates:
            alive = ((reference(), index) for reference, index in self._own)
            own = [(one, self.parameters[i] if i >= 0 else None) for one, i in alive if one is not None]
            with no_garbage_collection(), devices.of(self.target, True, self._assume):
                tracer = UpdateTracer(self.optimizer, own, self.target == "cuda", self._assume)
                self._updates[trained] = tracer.update(self._trained, [self.owner[id(p)] for p in self._trained])
        return self._updates[trained]
