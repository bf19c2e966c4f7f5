"""Find the submissions of a class: notebooks named by learner, folders per learner, or a learning platform's zip.

Nothing is unpacked to disk: files are read where they lie, those in a zip by a process with limits (`intake`). Links
are not followed, and names serve to tell learners apart and for nothing else. Whatever cannot be read is a submission
with a problem, in one line; a class is never refused for one file.
"""

import json
import os
import re
import stat
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from classroom.grading.graft import short
from classroom.grading.intake import Bounds, TookTooMuch, confined
from course_utils.units import MIB, CourseError, format_bytes

LARGEST_FILE = 64 * MIB
MOST_KEPT = 2048 * MIB  # of all notebooks together, packed: a learner's millions of zeros take nobody's room
MOST_FILES = 20_000
BOUNDS = Bounds(seconds=60)  # of a process that unpacks a zip; what is left then is left to the next
# What Moodle and Canvas put around the names they export; the learner's number there is what they import marks by. What
# follows is the learner's own name for the file, and in Moodle's what comes first the learner's own name.
MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_file(?:_.*)?")
CANVAS = re.compile(r"(?P<name>[a-z\d-]+)(?:_LATE)?_(?P<number>\d+)_\d+_.+")


@dataclass(frozen=True)
class Submission:
    """What one learner handed in."""

    learner: str  # what tells the learner apart from the others, and names the feedback
    number: str = ""  # in the learning platform, "" if there is none
    file: str = ""  # the one to be marked, as it was named, "" if there is none
    data: bytes | None = None  # its bytes; None if it could not be read
    problem: str = ""  # why not, in one line
    notes: tuple[str, ...] = ()  # what was odd, in words


@dataclass(frozen=True)
class _Found:
    """A file that may be a notebook: where it lies, when it was saved, and its bytes or why there are none."""

    place: PurePosixPath
    saved: float
    data: bytes | None  # as they were read; what `_kept` gives has them packed
    problem: str


def collect(source: Path) -> list[Submission]:
    """The submissions of a class, one a learner, in the order of their names.

    Of several notebooks of one learner the one saved last counts. `source` is a folder of notebooks, a folder of
    folders, or a zip of either. Raises CourseError if there is no such, or no submission in it.
    """
    if source.is_dir():
        found = list(_kept(_in_folder(source)))
    elif zipfile.is_zipfile(source):
        found = list(_kept(_in_zip(source)))
    else:
        what = "neither a folder nor a zip" if source.exists() else "not there"
        raise CourseError(f"{source} is {what}; name the folder or zip that holds the submissions")
    found, wrapper = _without_wrapper(found)
    form = _platform([_own_name(one.place) for one in found])
    by_learner: dict[tuple[str, str], list[_Found]] = defaultdict(list)
    for one in sorted(found, key=lambda one: _passed_over(one.place) is not None):
        files = by_learner[_learner(_own_name(one.place), form)]
        if not (_passed_over(one.place) and files):
            files.append(one)
    # Folders are learners, and one may hold no notebook.
    if source.is_dir() and any(len(one.place.parts) > 1 for one in found):
        inside = source.joinpath(*wrapper)
        for name in sorted(entry.name for entry in os.scandir(inside) if entry.is_dir(follow_symlinks=False)):
            if not name.startswith((".", "__")):
                by_learner.setdefault(_learner(_shown(name), form), [])
    chosen = [_choose(*who, files) for who, files in sorted(by_learner.items())]
    submissions = [*_without_shared_numbers(chosen)]
    if not submissions:
        raise CourseError(f"{source} holds no notebooks; submissions end in .ipynb")
    return submissions


def _without_wrapper(found: list[_Found]) -> tuple[list[_Found], tuple[str, ...]]:
    """Leave out folders that everything lies in, as zips of a folder have; returns which were left out too.

    A folder with one folder in it is a learner with a folder of their own, unless a platform named that.
    """
    wrapper: tuple[str, ...] = ()
    while found and all(len(one.place.parts) > 2 for one in found) and len({one.place.parts[0] for one in found}) == 1:
        inner = {one.place.parts[1] for one in found}
        if len(inner) == 1 and not any(form.fullmatch(min(inner)) for form in (MOODLE, CANVAS)):
            break
        wrapper += found[0].place.parts[:1]
        found = [replace(one, place=PurePosixPath(*one.place.parts[1:])) for one in found]
    return found, wrapper


def _without_shared_numbers(submissions: list[Submission]) -> Iterator[Submission]:
    """No number stands for two learners: those that share one are marked without it, and it is said of each."""
    for one in submissions:
        others = [other.learner for other in submissions if other.number == one.number and other is not one]
        if one.number and others:
            note = f"number {one.number} is also that of {short(', '.join(others))}; it was given to neither"
            one = replace(one, learner=f"{one.learner} ({one.number})", number="", notes=(*one.notes, note))
        yield one


def _own_name(place: PurePosixPath) -> str:
    """What tells whose file this is: its folder's name, else its own without the ending."""
    own = re.sub(r"^\._?|\.ipynb(?!.*\.ipynb).*$", "", place.name, flags=re.IGNORECASE | re.DOTALL)
    return _shown(place.parts[0] if len(place.parts) > 1 else own or place.name)


def _platform(names: Collection[str]) -> re.Pattern[str]:
    """Whose export this is: the form of most names, as each holds a part that its learner chose; else the earlier."""
    matches = {form: [*filter(None, map(form.fullmatch, names))] for form in (MOODLE, CANVAS)}
    return max(matches, key=lambda form: (len(matches[form]), -sum(one.start("number") for one in matches[form])))


def _learner(name: str, form: re.Pattern[str]) -> tuple[str, str]:
    """(name, number) of whom a file or a folder of this name is, if platforms name it so."""
    known = form.fullmatch(name)
    return (known["name"], known["number"]) if known else (name, "")


def _shown(name: str | PurePosixPath) -> str:
    """A name on one line, in characters that can be written and turn no writing round; others become question marks."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]", "?", str(name))


def _choose(learner: str, number: str, files: list[_Found]) -> Submission:
    if not files:
        return Submission(learner, number, problem="no notebook was handed in")
    files = sorted(files, key=lambda one: (one.data is not None, one.saved, str(one.place)))
    chosen, notes = files[-1], []
    if len(files) > 1:
        others = ", ".join(_shown(one.place) for one in files[:-1])
        notes.append(f"{len(files)} notebooks were handed in; the one saved last was marked, not {others}")
    data = None if chosen.data is None else zlib.decompress(chosen.data)
    return Submission(learner, number, _shown(chosen.place), data, chosen.problem, tuple(notes))


def _is_submission(place: PurePosixPath) -> bool:
    """What may be a notebook by its name, but not in the folders that editors and archives keep beside them."""
    hidden = any(part.startswith((".", "__MACOSX")) for part in place.parts[:-1])
    return ".ipynb" in place.name.lower() and not hidden


def _passed_over(place: PurePosixPath) -> _Found | None:
    """What is said of a file whose name is not quite a notebook's; None if it is one.

    It counts where its learner handed in nothing else.
    """
    if place.suffix.lower() == ".ipynb" and not place.name.startswith("."):
        return None
    why = "its name must end in .ipynb and not begin with a dot"
    return _Found(place, 0.0, None, f"{short(_shown(place.name))} was not marked: {why}")


def _kept(found: Iterable[_Found]) -> Iterator[_Found]:
    """The same with their bytes packed, as long as all together take no more than MOST_KEPT."""
    left = MOST_KEPT
    for one in found:
        if one.data is not None:
            data = zlib.compress(one.data, 1)
            left -= len(data)
            too_much = f"all notebooks take over {format_bytes(MOST_KEPT)}; grade it in parts"
            one = replace(one, data=data) if left >= 0 else replace(one, data=None, problem=too_much)
        yield one


def _in_folder(folder: Path) -> Iterator[_Found]:
    seen = 0
    for directory, names, files in os.walk(folder):  # does not follow links to folders
        names.sort()
        for name in sorted(files):
            path = Path(directory) / name
            place = PurePosixPath(path.relative_to(folder).as_posix())
            if not _is_submission(place):
                continue
            seen += 1
            if seen > MOST_FILES:
                raise CourseError(f"{folder} holds more than {MOST_FILES:,} notebooks; grade it in parts")
            yield _passed_over(place) or _read_file(path, place)


def _read_file(path: Path, place: PurePosixPath) -> _Found:
    """Read a plain file; anything else that bears its name is a problem, and is not even opened for long."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        if path.is_symlink():
            return _Found(place, 0.0, None, "it is a link; the file itself has to be handed in")
        with os.fdopen(os.open(path, flags), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return _Found(place, 0.0, None, "it is no plain file")
            if facts.st_size > LARGEST_FILE:
                return _Found(place, facts.st_mtime, None, _too_large(facts.st_size, LARGEST_FILE))
            return _Found(place, facts.st_mtime, file.read(LARGEST_FILE + 1), "")
    except OSError as error:
        return _Found(place, 0.0, None, f"it cannot be read: {error.strerror or error}")


def _too_large(size: int, most: int) -> str:
    return f"it is {format_bytes(size)} large, more than {format_bytes(most)}; clear its outputs and hand it in anew"


def _in_zip(path: Path) -> Iterator[_Found]:
    """The files in a zip, which is opened and unpacked in a process with limits: a member that ends it costs itself."""
    start = 0
    while True:
        place, saved, first = None, 0.0, start
        given = str(path), os.path.abspath(path), start, LARGEST_FILE
        messages = confined(_members, given, BOUNDS, LARGEST_FILE + MIB)
        try:
            for message in messages:
                start, name, saved = json.loads(message)
                place = PurePosixPath(name)
                problem = json.loads(next(messages))
                yield _Found(place, saved, None if problem else next(messages), problem)
                place, start = None, start + 1
            return
        except TookTooMuch as error:
            if place is None:
                raise CourseError(f"{path} cannot be read as a zip: it {error}") from None
            if start == first:  # by itself: what was unpacked before it in this process is not to blame
                yield _Found(place, saved, None, f"it cannot be unpacked: it {error}")
                start += 1


def _members(name: str, path: str, start: int, largest: int) -> Iterator[bytes]:
    """In the process with limits: of each member from this one on where it lies, then what is said of it, its bytes."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CourseError(f"{name} cannot be read as a zip: {error}") from None
    with archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MOST_FILES:
            raise CourseError(f"{name} holds more than {MOST_FILES:,} files; grade it in parts")
        for number, entry in list(enumerate(entries))[start:]:
            # A name is taken apart, never used as a path: ".." and drive letters lead nowhere.
            parts = [part for part in re.split(r"[/\\]", entry.filename) if part not in ("", ".", "..")]
            place = PurePosixPath(*parts) if parts else PurePosixPath("unnamed")
            if _is_submission(place):
                saved = float("".join(f"{part:02}" for part in entry.date_time))  # orders as time does
                yield json.dumps([number, str(place), saved]).encode()
                one = _passed_over(place) or _read_entry(archive, entry, place, saved, largest)
                yield json.dumps(one.problem).encode()
                if one.data is not None:
                    yield one.data


def _read_entry(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, place: PurePosixPath, saved: float, most: int
) -> _Found:
    if stat.S_ISLNK(entry.external_attr >> 16):
        return _Found(place, saved, None, "it is a link; the file itself has to be handed in")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others may take memory without limit
        return _Found(place, saved, None, "it is packed in an unusual way; pack it as zip programs do by default")
    if entry.flag_bits & 1:
        return _Found(place, saved, None, "it is encrypted; hand it in without a password")
    try:
        with archive.open(entry) as file:
            data = file.read(most + 1)  # what the entry says of its size is not to be trusted
    except Exception as error:  # noqa: BLE001 - zipfile and zlib have errors of many kinds
        return _Found(place, saved, None, f"it cannot be unpacked: {short(error) or type(error).__name__}")
    if len(data) > most:
        return _Found(place, saved, None, _too_large(max(entry.file_size, len(data)), most))
    return _Found(place, saved, data, "")
