"""Finding submissions: the right learner for each file, nothing unpacked, no file refuses a class."""

from __future__ import annotations

import contextlib
import os
import random
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classroom.grading import submissions
from classroom.grading.batch import file_name
from classroom.grading.intake import Bounds, TookTooMuch
from classroom.grading.submissions import collect
from classroom.notebooks import parse_notebook
from course_utils.units import MIB, CourseError


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def found(source: Path) -> dict[str, bytes | None]:
    return {one.learner: one.data for one in collect(source)}


FLAT = {"ann.ipynb": b"a", "Bob Smith.ipynb": b"b", "readme.txt": b"", ".ann.ipynb": b"no"}
NESTED = {"ann/03.ipynb": b"a", "bob/sub/03.IPYNB": b"b", "bob/.ipynb_checkpoints/03-checkpoint.ipynb": b"no"}
MOODLE = {
    "Ann Lee_1234_assignsubmission_file_/03_memory.ipynb": b"a",
    "Bo_b_77_assignsubmission_file/x.ipynb": b"b",
}
CANVAS = {"leeann_11_999_03_memory.ipynb": b"a", "smithbob_LATE_22_998_03_memory-1.ipynb": b"b"}


@pytest.mark.parametrize(
    ("files", "learners"),
    [
        (FLAT, {"ann": "", "Bob Smith": ""}),
        (NESTED, {"ann": "", "bob": ""}),
        (MOODLE, {"Ann Lee": "1234", "Bo_b": "77"}),
        (CANVAS, {"leeann": "11", "smithbob": "22"}),
        ({f"class of 2026/{name}": data for name, data in NESTED.items()}, {"ann": "", "bob": ""}),
    ],
)
def test_each_file_finds_its_learner_in_a_folder_and_in_a_zip(
    tmp_path: Path, files: dict[str, bytes], learners: dict[str, str]
) -> None:
    for source in (put(tmp_path / "folder", files), zipped(tmp_path / "all.zip", files)):
        got = collect(source)
        assert {one.learner: one.number for one in got} == learners
        assert sorted(one.data or b"" for one in got) == [b"a", b"b"]
        assert not any(one.problem or one.notes for one in got)


def numbers(source: Path) -> dict[str, str]:
    return {one.learner: one.number for one in collect(source)}


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("Ann Lee_1234_assignsubmission_file_x_77_assignsubmission_file_.ipynb", ("Ann Lee", "1234")),
        ("leeann_11_999_x_77_assignsubmission_file_.ipynb", ("leeann", "11")),
        ("leeann_LATE_11_999_bob_22_998_x.ipynb", ("leeann", "11")),
        ("Ann_12_assignsubmission_file_bob_22_998_x.ipynb", ("Ann", "12")),
    ],
)
def test_a_learner_is_who_the_platform_says_whatever_the_file_is_called(tmp_path, name: str, who) -> None:
    assert numbers(put(tmp_path / "flat", {name: b"a"})) == dict([who])
    assert numbers(zipped(tmp_path / "all.zip", {name: b"a"})) == dict([who])


def test_no_number_is_that_of_two(tmp_path: Path) -> None:
    files = {"Ann_7_assignsubmission_file_/1.ipynb": b"a", "Bob_7_assignsubmission_file_/1.ipynb": b"b"}
    got = {one.learner: one for one in collect(put(tmp_path, files | {"Cid_8_assignsubmission_file_/1.ipynb": b"c"}))}
    assert {name: one.number for name, one in got.items()} == {"Ann (7)": "", "Bob (7)": "", "Cid": "8"}
    assert [one.data for one in got.values()] == [b"a", b"b", b"c"]
    assert got["Ann (7)"].notes == ("number 7 is also that of Bob; it was given to neither",)
    assert got["Bob (7)"].notes == ("number 7 is also that of Ann; it was given to neither",)
    assert not got["Cid"].notes


@pytest.mark.parametrize(
    ("files", "learners"),
    [
        ({"ann/work/03.ipynb": b"a"}, {"ann"}),
        ({"ann/work/deep/03.ipynb": b"a", "ann/work/04.ipynb": b"b"}, {"ann"}),
        ({"all/ann/work/03.ipynb": b"a", "all/bob/work/03.ipynb": b"b"}, {"ann", "bob"}),
        ({"all/Ann_7_assignsubmission_file_/03.ipynb": b"a"}, {"Ann"}),
    ],
)
def test_a_folder_of_ones_own_names_nobody(tmp_path: Path, files: dict[str, bytes], learners: set[str]) -> None:
    assert found(put(tmp_path / "class", files)).keys() == learners
    assert found(zipped(tmp_path / "all.zip", files)).keys() == learners


def test_what_is_almost_a_notebook_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    files = {"ann.ipynb": b"a", "bob.ipynb.txt": b"b", ".eve.ipynb": b"e", "ann.ipynb.bak": b"", "._ann.ipynb": b""}
    for source in (put(tmp_path / "flat", files), zipped(tmp_path / "all.zip", files)):
        got = {one.learner: one for one in collect(source)}
        assert got.keys() == {"ann", "bob", "eve"}
        assert (got["ann"].data, got["ann"].problem, got["ann"].notes) == (b"a", "", ())
        why = "its name must end in .ipynb and not begin with a dot"
        assert got["bob"].problem == f"bob.ipynb.txt was not marked: {why}"
        assert got["eve"].problem == f".eve.ipynb was not marked: {why}"


def test_an_entry_that_is_packed_so_that_it_may_take_any_memory_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("ann.ipynb", b"a", zipfile.ZIP_LZMA)
        archive.writestr("bob.ipynb", b"b", zipfile.ZIP_STORED)
    ann, bob = collect(tmp_path / "all.zip")
    assert (ann.data, ann.problem.split(";")[0], bob.data) == (None, "it is packed in an unusual way", b"b")


def test_of_two_files_the_one_saved_last_counts_and_it_is_said(tmp_path: Path) -> None:
    put(tmp_path, {"ann/new.ipynb": b"new", "ann/old.ipynb": b"old", "bob/1.ipynb": b"b"})
    os.utime(tmp_path / "ann/old.ipynb", (1, 1))
    ann, _ = collect(tmp_path)
    assert ann.data == b"new"
    assert ann.notes == ("2 notebooks were handed in; the one saved last was marked, not ann/old.ipynb",)


def test_who_handed_in_nothing_is_still_there(tmp_path: Path) -> None:
    put(tmp_path, {"ann/1.ipynb": b"a", "bob/notes.txt": b"", "__MACOSX/x": b""})
    ann, bob = collect(tmp_path)
    assert (ann.data, bob.data, bob.problem) == (b"a", None, "no notebook was handed in")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a system with links and pipes")
def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    folder = put(tmp_path / "class", {"honest.ipynb": b"a"})
    (folder / "link.ipynb").symlink_to(secret)
    (folder / "dangling.ipynb").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "folder.ipynb").mkdir()
    got = {one.learner: one for one in collect(folder)}
    assert got["honest"].data == b"a"
    assert {name: (got[name].data, bool(got[name].problem)) for name in ("link", "dangling", "pipe")} == dict.fromkeys(
        ("link", "dangling", "pipe"), (None, True)
    )


def test_names_in_a_zip_lead_nowhere(tmp_path: Path) -> None:
    files = {"../../etc/x.ipynb": b"a", "/root/y.ipynb": b"b", "C:\\\\z.ipynb": b"c", "n\x00ull.ipynb": b"d"}
    before = set(tmp_path.parent.rglob("*"))
    got = collect(zipped(tmp_path / "all.zip", files))
    assert {one.data for one in got} <= {b"a", b"b", b"c", b"d"}
    assert set(tmp_path.parent.rglob("*")) - before == {tmp_path / "all.zip"}
    for one in got:
        name = file_name(one.learner, one.number)
        assert (tmp_path / name).resolve().parent == tmp_path


def test_a_link_in_a_zip_is_not_followed(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        entry = zipfile.ZipInfo("ann.ipynb")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    (ann,) = collect(tmp_path / "all.zip")
    assert (ann.data, "link" in ann.problem) == (None, True)


@pytest.mark.parametrize("folders", [True, False])
def test_a_name_that_a_learner_chose_among_others_of_a_platform_takes_nobodys_number(tmp_path: Path, folders) -> None:
    names = ["Ann Lee_123_assignsubmission_file", "eve_123_7_x_999_assignsubmission_file", "Bo_5_assignsubmission_file"]
    files = [f"{name}/x.ipynb" if folders else f"{name}_x.ipynb" for name in names]
    assert numbers(put(tmp_path, dict.fromkeys(files, b"a"))) == {"Ann Lee": "123", "eve_123_7_x": "999", "Bo": "5"}
    flat = ["annlee_123_1_x.ipynb", "eve_999_2_y_123_assignsubmission_file.ipynb", "bo_5_3_x.ipynb"]
    canvas = put(tmp_path.with_name("canvas"), dict.fromkeys(flat, b"a"))
    assert numbers(canvas) == {"annlee": "123", "eve": "999", "bo": "5"}


def test_a_file_named_after_anothers_is_its_own_learners(tmp_path: Path) -> None:
    put(tmp_path, {"ann.ipynb": b"a", "ann.ipynb.eve.ipynb": b"e"})
    assert {one.learner: one.data for one in collect(tmp_path)} == {"ann": b"a", "ann.ipynb.eve": b"e"}


def test_many_zeros_of_one_learner_take_nobodys_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "MOST_KEPT", 10**5)
    eve = {f"eve/{number}.ipynb": bytes(10**6) for number in range(20)}
    zipped(tmp_path / "all.zip", {**eve, "zoe/a.ipynb": b"z"})
    assert {one.learner: len(one.data or b"") for one in collect(tmp_path / "all.zip")} == {"eve": 10**6, "zoe": 1}
    put(tmp_path / "large", {"ann.ipynb": random.Random(0).randbytes(10**5 + 1), "bob.ipynb": b"b"})
    ann, bob = collect(tmp_path / "large")
    assert "grade it in parts" in ann.problem
    assert "grade it in parts" in bob.problem


def test_a_zip_bomb_is_stopped_whatever_it_says_of_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "LARGEST_FILE", 10**6)
    zipped(tmp_path / "all.zip", {"bomb.ipynb": bytes(10**7), "honest.ipynb": b"a"})
    bomb, honest = collect(tmp_path / "all.zip")
    assert (bomb.data, "more than" in bomb.problem) == (None, True)
    assert honest.data == b"a"


def member(name: str, repeats: int) -> bytes:
    """A zip with one member of so many times 16 MiB of zeroes, and what it says of their size is true."""
    pack = zlib.compressobj(1, wbits=-15)
    block = pack.compress(bytes(2**24)) + pack.flush(zlib.Z_FULL_FLUSH)
    packed = block * repeats + pack.flush()
    sizes = struct.pack("<LLL", 0, len(packed), min(repeats * 2**24, 2**32 - 2))
    lengths = struct.pack("<HH", len(name), 0)
    made = struct.pack("<HHHHH", 20, 0, 8, 0, 0x5021) + sizes + lengths
    local = b"PK\3\4" + made + name.encode() + packed
    central = b"PK\1\2" + struct.pack("<H", 20) + made + struct.pack("<HHHLL", 0, 0, 0, 0, 0) + name.encode()
    return local + central + b"PK\5\6" + struct.pack("<HHHHLLH", 0, 0, 1, 1, len(central), len(local), 0)


def test_a_member_of_4_gib_of_zeroes_is_one_line_and_no_zip_is_opened_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "zeroes.zip").write_bytes(member("ann.ipynb", 256))
    (tmp_path / "small.zip").write_bytes(member("bob.ipynb", 1))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    (ann,) = collect(tmp_path / "zeroes.zip")
    assert (ann.data, ann.problem.split(",")[0]) == (None, "it is 4.00 GiB large")
    monkeypatch.setattr(submissions, "BOUNDS", Bounds(memory_bytes=128 * MIB))
    (ann,) = collect(tmp_path / "zeroes.zip")
    assert ann.data is None
    assert ann.problem.startswith("it cannot be unpacked: ")
    with pytest.raises(CourseError, match="Bad CRC-32"):  # which says that its bytes were all unpacked
        raise CourseError(collect(tmp_path / "small.zip")[0].problem)


def test_too_many_members_are_one_line(tmp_path: Path) -> None:
    entry = member("x.ipynb", 0)
    start, end = entry.index(b"PK\1\2"), entry.index(b"PK\5\6")
    counts = struct.pack("<HHHHLLH", 0, 0, 2**16 - 1, 2**16 - 1, (end - start) * (2**16 - 1), start, 0)
    central = entry[start:end] * (2**16 - 1)  # as many as fit without the larger format
    (tmp_path / "all.zip").write_bytes(entry[:start] + central + b"PK\5\6" + counts)
    with pytest.raises(CourseError, match=r"all.zip holds more than 20,000 files; grade it in parts"):
        collect(tmp_path / "all.zip")


def test_a_member_that_ends_its_process_costs_itself_and_who_was_unpacked_with_it_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process ends at its third member, and at eve's."""
    path = zipped(tmp_path / "all.zip", {f"{name}.ipynb": name.encode() for name in ("a", "b", "c", "eve", "f")})
    started = []

    def ends(work: Callable[..., Iterator[bytes]], given: tuple[Any, ...], *_: object) -> Iterator[bytes]:
        started.append(given[2])
        for number, message in enumerate(work(*given)):
            if b"eve" in message or number == 8:
                if number % 3 == 0:
                    yield message
                raise TookTooMuch("takes too long to read")
            yield message

    monkeypatch.setattr(submissions, "confined", ends)
    got = {one.learner: one for one in collect(path)}
    assert {name: one.data for name, one in got.items()} == {"a": b"a", "b": b"b", "c": b"c", "eve": None, "f": b"f"}
    assert got["eve"].problem == "it cannot be unpacked: it takes too long to read"
    assert started == [0, 2, 3, 4]


def test_a_damaged_entry_costs_its_own_learner(tmp_path: Path) -> None:
    path = zipped(tmp_path / "all.zip", {"ann.ipynb": b"x" * 5000, "bob.ipynb": b"b"})
    data = bytearray(path.read_bytes())
    start = data.index(b"ann.ipynb") + len("ann.ipynb")
    data[start : start + 8] = b"\xff" * 8
    path.write_bytes(data)
    ann, bob = collect(path)
    assert (ann.data, bool(ann.problem), bob.data) == (None, True, b"b")


def test_a_zip_whose_names_are_of_no_encoding_is_refused_in_one_line(tmp_path: Path) -> None:
    path = zipped(tmp_path / "all.zip", {"äää.ipynb": b"a"})
    path.write_bytes(path.read_bytes().replace("äää".encode(), b"\xff" * 6))
    with pytest.raises(CourseError, match="cannot be read as a zip"):
        collect(path)


def test_names_are_said_on_one_line_and_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "a\nb.ipynb").write_bytes(b"1")
    (tmp_path / "\udcff.ipynb").write_bytes(b"2")
    assert {one.learner: one.file for one in collect(tmp_path)} == {"a?b": "a?b.ipynb", "?": "?.ipynb"}


def test_a_file_too_large_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "LARGEST_FILE", 100)
    put(tmp_path, {"ann.ipynb": b"x" * 101, "bob.ipynb": b"b"})
    ann, bob = collect(tmp_path)
    assert (ann.data, "clear its outputs" in ann.problem, bob.data) == (None, True, b"b")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path / "absent", "is not there; name the folder or zip"),
        (lambda path: put(path, {"file.txt": b"x"}) / "file.txt", "neither a folder nor a zip"),
        (lambda path: put(path, {"empty/readme": b"x"}), "holds no notebooks"),
    ],
)
def test_where_there_is_nothing_it_says_so(tmp_path: Path, make, message: str) -> None:
    with pytest.raises(CourseError, match=message):
        collect(make(tmp_path))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\x00/\\"), min_size=1, max_size=40)


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "7", "12"])), unique=True, max_size=8))
def test_learners_never_share_a_file_and_no_name_leads_out_of_the_folder(learners: list[tuple[str, str]]) -> None:
    names = {file_name(name, number) for name, number in learners}
    assert len(names) == len(learners)
    assert all(name.isascii() and "/" not in name and not name.startswith(".") for name in names)


PLAIN = b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}'


@pytest.mark.parametrize(
    "data", [PLAIN, b"\xef\xbb\xbf" + PLAIN, PLAIN.decode().encode("utf-16"), PLAIN.replace(b" ", b"\r\n")]
)
def test_notebooks_in_odd_encodings_are_read(data: bytes) -> None:
    assert parse_notebook(data, "x.ipynb").nbformat == 4


def test_half_characters_are_replaced_as_no_file_can_hold_them() -> None:
    half = PLAIN.replace(b"[]", b'[{"cell_type": "code", "source": "x\\ud800y", "metadata": {}, "outputs": []}]')
    assert parse_notebook(half, "x.ipynb").cells[0].source == "x?y"


BROKEN = [
    b"", b"  ", b"{", b"[]", b"null", b"3", b'"text"', b"\x00" * 50, os.urandom(200), PLAIN[:-5],
    PLAIN.replace(b"[]", b"null"), PLAIN.replace(b"[]", b"[1]"), PLAIN.replace(b"[]", b'[{"cell_type": 3}]'),
    b'{"nbformat": 4, "cells": ' + b"[" * 100_000, b'{"nbformat": "x", "cells": []}', b"\xff\xfe\x00",
    PLAIN.replace(b"{}", b'{"\x00": 1}'), "é".encode("latin-1") * 20,
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_notebook_is_one_line(data: bytes) -> None:
    with pytest.raises(CourseError) as error:
        parse_notebook(data, "x.ipynb")
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("x.ipynb ")


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_whatever_the_bytes_nothing_but_one_line_comes_of_them(data: bytes) -> None:
    with contextlib.suppress(CourseError):
        parse_notebook(data, "x.ipynb")
