"""The catalogue: what it may hold, how a faulty file is refused, and the laws of the roofline."""

from __future__ import annotations

import csv
import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_utils.machine import hardware
from course_utils.machine.catalogue import NEEDED
from course_utils.machine.hardware import (
    ARITHMETIC_EFFICIENCY,
    BANDWIDTH_EFFICIENCY,
    DEVICES_FILE,
    LINK_EFFICIENCY,
    LINKS_FILE,
    Device,
    Link,
    device,
    devices,
    link,
    links,
    load_devices,
    load_links,
    peers,
    roofline_seconds,
)
from course_utils.units import CourseError

WORK = st.integers(min_value=0, max_value=10**15)
ANY_DEVICE = st.sampled_from(devices())


def test_the_catalogue_is_in_order_of_the_years() -> None:
    assert [item.year for item in devices()] == sorted(item.year for item in devices())


def test_every_device_names_a_page_that_it_quotes() -> None:
    for item in devices():
        assert item.address, f"{item.name}: give the address of its data sheet, and quote a figure of this row from it"


# Every row again, typed from the publications apart from the file: year, GB and GB/s of one die, float32 and its clock,
# plain float16, dense tensor rate, bfloat16, PCIe, launch price of the card; None is what nobody confirmed. Then the
# architecture.
CONFIRMED = {
    "GTX Titan": (2013, 6, 288.4, 4.5, "base", None, None, False, None, 999, "Kepler"),
    "Tesla K40": (2013, 12, 288, 4.29, "base", None, None, False, 3, 5499, "Kepler"),
    "GTX 980": (2014, 4, 224, 4.6, "base", None, None, False, None, 549, "Maxwell"),
    "Tesla K80": (2014, 12, 240, 8.74 / 2, "boost", None, None, False, None, 5000, "Kepler"),
    "Titan X (Maxwell)": (2015, 12, 336.5, 6.6, "boost", None, None, False, None, 999, "Maxwell"),
    "Tesla M40": (2015, 12, 288, 6.84, "boost", None, None, False, 3, None, "Maxwell"),
    "P100": (2016, 16, 732, 9.5, "boost", 19.1, None, False, 3, 5699, "Pascal"),
    "GTX 1080": (2016, 8, 320, 8.87, "boost", None, None, False, None, 599, "Pascal"),
    "Titan X (Pascal)": (2016, 12, 480, 10.2, "base", None, None, False, None, 1200, "Pascal"),
    "V100": (2017, 16, 900, 15.7, "boost", None, 125, False, 3, None, "Volta"),
    "RTX 2080": (2018, 8, 448, 10.1, "boost", None, 40.3, False, 3, 699, "Turing"),
    "T4": (2018, 16, 320, 8.1, "boost", None, 65, False, 3, None, "Turing"),
    "A100": (2020, 40, 1555, 19.5, "boost", None, 312, True, 4, None, "Ampere"),
    "RTX 3090": (2020, 24, 936, 35.6, "boost", None, 71, True, 4, 1499, "Ampere"),
    "RTX 4090": (2022, 24, 1008, 82.6, "boost", None, 165, True, None, 1599, "Ada"),
    "H100 SXM": (2022, 80, 3350, 67, "boost", None, 989, True, 5, None, "Hopper"),
    "H200 SXM": (2023, 141, 4800, 67, "boost", None, 989, True, None, None, "Hopper"),
    "B200": (2024, 192, 7700, 75, "boost", None, 2250, True, None, None, "Blackwell"),
    "RTX 5090": (2025, 32, 1792, 104, "boost", None, 209.5, True, None, 1999, "Blackwell"),
}


def test_every_row_is_what_the_publications_say_and_what_they_do_not_is_none() -> None:
    assert [item.name for item in devices()] == list(CONFIRMED), "type each new row's figures into CONFIRMED too"
    for item in devices():
        found = (
            item.year, item.memory_gb, item.bandwidth_gb_s, item.float32_tflops, item.float32_clock,
            item.float16_tflops, item.tensor_tflops, item.bfloat16, item.pcie, item.launch_usd,
            item.architecture,
        )  # fmt: skip
        assert found == CONFIRMED[item.name], item.name


def test_no_sparse_rate_is_in_the_catalogue() -> None:
    sparse = {1979, 624, 285, 4500, 1321, 330, 142, 80.5, 838, 419}  # as sold, or with float16 sums
    assert not sparse & {item.tensor_tflops for item in devices()}


def test_what_programs_see_is_what_the_issues_named_report() -> None:
    seen = {item.name: item.usable_gb for item in devices() if "usable_gb: what PyTorch reports" in item.sources}
    assert seen == {"Tesla K80": 11.17, "T4": 14.56, "RTX 3090": 23.7, "RTX 4090": 23.64,
                    "RTX 5090": 31.36}  # fmt: skip


def test_only_the_k80_has_two_dies_and_its_figures_are_one_dies() -> None:
    assert [item.name for item in devices() if item.dies != 1] == ["Tesla K80"]
    k80 = device("Tesla K80")
    assert (k80.memory_gb * 2, k80.bandwidth_gb_s * 2, k80.float32_tflops * 2) == (24, 480, 8.74)


DERIVED = {  # what the column `derived` says, done
    ("GTX Titan", "bandwidth_gb_s"): 1.502 * 4 * 384 / 8,
    ("GTX 980", "bandwidth_gb_s"): 7 * 256 / 8,
    ("Tesla K80", "float32_tflops"): 8.74 / 2,
    ("Titan X (Maxwell)", "float32_tflops"): 3072 * 2 * 1.075e-3,
    ("RTX 2080", "tensor_tflops"): 368 * 64 * 2 * 1.710e-3 / 2,
    ("RTX 3090", "tensor_tflops"): 328 * 128 * 2 * 1.695e-3 / 2,
    ("RTX 4090", "tensor_tflops"): 512 * 128 * 2 * 2.520e-3 / 2,
    ("H100 SXM", "usable_gb"): 81559 / 1024,
    ("RTX 5090", "tensor_tflops"): 680 * 128 * 2 * 2.407e-3 / 2,
    ("PCIe 2.0 x16", "nominal_gb_s"): 16 * 5 * 8 / 10 / 8,
    ("PCIe 3.0 x16", "nominal_gb_s"): 16 * 8 * 128 / 130 / 8,
    ("PCIe 4.0 x16", "nominal_gb_s"): 16 * 16 * 128 / 130 / 8,
    ("PCIe 5.0 x16", "nominal_gb_s"): 16 * 32 * 128 / 130 / 8,
}


def test_every_derived_value_follows_from_what_the_file_says() -> None:
    named = {
        (item.name, part.partition(": ")[0]): item
        for item in (*devices(), *links())
        for part in filter(None, item.derived.split("; "))
    }
    assert named.keys() == DERIVED.keys()
    for (name, column), item in named.items():
        assert DERIVED[name, column] == pytest.approx(getattr(item, column), rel=5e-3), name


def test_memory_is_in_binary_units_and_what_programs_can_have() -> None:
    assert device("Titan X (Maxwell)").memory_bytes == 12 * 2**30
    assert device("B200").memory_bytes == 179 * 2**30
    assert device("T4").memory_bytes == int(14.56 * 2**30)


def test_halves_are_faster_on_tensor_cores_alone_and_bfloat16_is_only_where_there_is_some() -> None:
    assert device("H100 SXM").flops_per_s("bfloat16") == 989e12
    for card in devices():
        if card.tensor_tflops is None:  # whatever its plain float16 arithmetic: PyTorch's sums are float32
            assert card.flops_per_s("float16") == card.flops_per_s(), card.name
    made = replace(device("P100"), float32_tflops=1, float16_tflops=2)
    assert (made.flops_per_s("float16"), replace(made, tensor_tflops=4).flops_per_s("float16")) == (1e12, 4e12)
    with pytest.raises(CourseError, match=r"V100 does not compute in bfloat16: choose float16 or float32"):
        device("V100").flops_per_s("bfloat16")
    with pytest.raises(CourseError, match="unknown precision 'tf32': choose one of float32"):
        device("A100").flops_per_s("tf32")


def test_links_are_as_the_standards_say_and_unconfirmed_practice_is_none() -> None:
    rates = {item.generation: (item.nominal_gb_s, item.practical_gb_s) for item in links()}
    assert rates == {2: (8, 6), 3: (15.75, 10), 4: (31.5, None), 5: (63, None)}
    assert device("P100").link == link("pcie 3.0 x16")
    assert device("GTX 980").link is None


def test_every_link_is_expected_to_reach_one_share_of_its_paper_rate_within_what_was_measured() -> None:
    assert {item.bytes_per_s / item.nominal_gb_s for item in peers()} == {LINK_EFFICIENCY * 1e9}
    shares = [item.practical_gb_s / item.nominal_gb_s for item in peers() if item.practical_gb_s is not None]
    assert sorted(round(share, 2) for share in shares) == [0.63, 0.75, 0.78, 0.82]
    assert min(shares) < LINK_EFFICIENCY < max(shares)
    assert pytest.approx(sum(shares) / len(shares), abs=0.01) == LINK_EFFICIENCY


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("K40", "did you mean Tesla K40?"),
        ("titan x", "did you mean Titan X (Maxwell) or Titan X (Pascal)?"),
        ("RTX 4O90", "did you mean RTX 4090 or RTX 5090?"),
        ("wheelbarrow", "known are GTX Titan, Tesla K40"),
        ("", "known are GTX Titan, Tesla K40"),
        ("this machine", "this machine is not in the catalogue: measure its rates, as lesson 01 does, for a Device"),
    ],
)
def test_an_unknown_device_is_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(CourseError) as error:
        device(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_match_whatever_their_case() -> None:
    assert device("tesla k40") is device("Tesla K40")


def test_importing_the_catalogue_needs_no_torch() -> None:
    code = "import sys, course_utils.machine.speed as s; s.hardware.devices(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- Faulty files ------------------------------------------------------------------------------------------------

Rows = list[list[str]]


def changed(column: str, text: str, line: int = 2) -> Callable[[Rows], Rows]:
    """An edit that writes `text` into one cell; line 1 is the heading."""

    def edit(rows: Rows) -> Rows:
        rows[line - 1][rows[0].index(column)] = text
        return rows

    return edit


def headed(name: str, new: str) -> Callable[[Rows], Rows]:
    def edit(rows: Rows) -> Rows:
        rows[0][rows[0].index(name)] = new
        return rows

    return edit


FAULTS: list[tuple[Callable[[Rows], Rows], str]] = [
    (headed("memory_gb", "memory_gib"), "line 1, column memory_gib: unknown; did you mean memory_gb?"),
    (headed("memory_gb", "zzz"), "line 1, column zzz: unknown; use name, year"),
    (headed("memory_gb", "year"), "line 1, column year: appears twice"),
    (lambda rows: [row[:-1] for row in rows], "line 1, column remarks: is missing"),
    (lambda rows: [], "line 1, column name: is missing"),
    (lambda rows: [rows[0], rows[1][:5]], "line 2, column memory_gb: 5 cells in a row of 20: an empty cell keeps"),
    (lambda rows: [rows[0], [*rows[1], "x"]], "line 2, column remarks: 21 cells in a row of 20: a cell with a comma"),
    (lambda rows: [*rows[:3], rows[2], *rows[3:]], "line 4, column name: Tesla K40 has a row already"),
    (changed("sources", ""), "line 2, column sources: every value needs its source"),
    (changed("name", "  "), "line 2, column name: must not be empty"),
    (changed("bandwidth_gb_s", ""), "line 2, column bandwidth_gb_s: must not be empty"),
    (changed("bandwidth_gb_s", "-288", 3), "line 3, column bandwidth_gb_s: -288 must be a number above 0; leave the"),
    (changed("bandwidth_gb_s", "0"), "line 2, column bandwidth_gb_s: 0 must be a number above 0"),
    (changed("bandwidth_gb_s", "nan"), "line 2, column bandwidth_gb_s: nan must be a number above 0"),
    (changed("bandwidth_gb_s", "inf"), "line 2, column bandwidth_gb_s: inf must be a number above 0"),
    (changed("launch_usd", "?"), "line 2, column launch_usd: '?' is not a number; leave the cell empty"),
    (changed("launch_usd", "-1"), "line 2, column launch_usd: -1 must be a number above 0"),
    (changed("year", "2013.5"), "line 2, column year: 2013.5 must be a whole number"),
    (changed("dies", "two"), "line 2, column dies: 'two' is not a number"),
    (changed("float32_clock", "vendor"), "line 2, column float32_clock: 'vendor' must be one of base, boost"),
    (changed("bfloat16", "maybe"), "line 2, column bfloat16: 'maybe' must be one of yes, no"),
    (changed("pcie", "9"), "line 2, column pcie: generation 9 is not in links.csv"),
    (changed("derived", "guessed"), "line 2, column derived: 'guessed' must read COLUMN: how it was computed"),
    (changed("derived", "colour: red"), "line 2, column derived: 'colour: red' must read COLUMN: how"),
    (changed("tensor_kind", "sparse", 17), "line 17, column tensor_kind: sparse rates count weights that are zero"),
    (changed("tensor_kind", "", 17), 'line 17, column tensor_kind: must be "dense" where tensor_tflops is given'),
    (changed("tensor_kind", "dense"), 'line 2, column tensor_kind: must be "dense" where tensor_tflops is given'),
    (changed("tensor_tflops", "1979 sparse", 17), "line 17, column tensor_tflops: '1979 sparse' is not a number"),
    (changed("tensor_tflops", "60", 17), "line 17, column tensor_tflops: is below float32_tflops"),
    (changed("usable_gb", "7"), "line 2, column usable_gb: is above memory_gb"),
    (changed("address", "NVIDIA"), "line 2, column address: 'NVIDIA' is no address such as https://"),
    (changed("address", ""), "line 2, column quote: an address and a quotation come together"),
    (changed("quote", ""), "line 2, column quote: an address and a quotation come together"),
    (changed("quote", "6 Go de mémoire"), "line 2, column quote: holds none of this row's bandwidth_gb_s, "),
    (changed("bandwidth_gb_s", "325", 9), "line 9, column quote: holds none of this row's bandwidth_gb_s, "),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), FAULTS, ids=[message[:60] for _, message in FAULTS])
def test_a_faulty_catalogue_is_refused_with_its_place(
    edit: Callable[[Rows], Rows], message: str, tmp_path: Path
) -> None:
    with DEVICES_FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    path = tmp_path / "mine.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(edit(rows))
    with pytest.raises(CourseError) as error:
        load_devices(path)
    assert str(error.value).startswith(f"mine.csv, {message}")
    assert "\n" not in str(error.value)


def test_every_optional_cell_may_be_empty_and_every_other_may_not(tmp_path: Path) -> None:
    with DEVICES_FILE.open(encoding="utf-8", newline="") as file:
        heading, *rows = csv.reader(file)
    row = next(row for row in rows if row[0] == "Tesla K40")
    for column, rule in hardware.DEVICE_COLUMNS.items():
        away = {"address", "quote"} if column in ("address", "quote") else {column}  # which come together
        cells = [("" if name in away else cell) for name, cell in zip(heading, row, strict=True)]
        path = tmp_path / "one.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([heading, cells])
        if rule.empty is NEEDED:
            with pytest.raises(CourseError, match=f"one.csv, line 2, column {column}: "):
                load_devices(path)
        else:
            assert getattr(load_devices(path)[0], column, rule.empty) == rule.empty


def test_a_link_faster_in_use_than_on_paper_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    path.write_text(LINKS_FILE.read_text(encoding="utf-8").replace("15.75,10.0", "15.75,16.0"), encoding="utf-8")
    with pytest.raises(CourseError, match=r"links.csv, line 3, column practical_gb_s: is above nominal_gb_s"):
        load_links(path)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"none.csv cannot be read"):
        load_devices(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes(b"name,\xff\n")
    with pytest.raises(CourseError, match=r"latin.csv cannot be read"):
        load_devices(tmp_path / "latin.csv")


# -- The roofline ------------------------------------------------------------------------------------------------


def faster(item: Device, arithmetic: float, bandwidth: float) -> Device:
    return replace(
        item, float32_tflops=item.float32_tflops * arithmetic, bandwidth_gb_s=item.bandwidth_gb_s * bandwidth
    )


@given(WORK, WORK, WORK, WORK, ANY_DEVICE)
def test_more_work_never_takes_less_time(flops: int, traffic: int, more: int, wider: int, item: Device) -> None:
    assert roofline_seconds(flops + more, traffic + wider, item) >= roofline_seconds(flops, traffic, item)


@given(WORK, WORK, ANY_DEVICE)
def test_time_is_never_below_either_ceiling_and_reaches_one(flops: int, traffic: int, item: Device) -> None:
    seconds = roofline_seconds(flops, traffic, item)
    arithmetic = flops / (ARITHMETIC_EFFICIENCY * item.float32_tflops * 1e12)
    bandwidth = traffic / (BANDWIDTH_EFFICIENCY * item.bandwidth_gb_s * 1e9)
    assert seconds >= flops / item.flops_per_s()
    assert seconds >= traffic / (item.bandwidth_gb_s * 1e9)
    assert seconds == pytest.approx(max(arithmetic, bandwidth), rel=1e-12)


@given(WORK, WORK, ANY_DEVICE, st.floats(1, 100), st.floats(1, 100))
def test_a_faster_device_is_never_slower(flops: int, traffic: int, item: Device, more: float, wider: float) -> None:
    assert roofline_seconds(flops, traffic, faster(item, more, wider)) <= roofline_seconds(flops, traffic, item)


@given(st.lists(st.tuples(WORK, WORK), max_size=8), ANY_DEVICE)
def test_arrays_give_what_numbers_give(work: list[tuple[int, int]], item: Device) -> None:
    flops, traffic = (np.array([pair[i] for pair in work], dtype=np.int64) for i in (0, 1))
    assert roofline_seconds(flops, traffic, item).tolist() == [roofline_seconds(f, t, item) for f, t in work]


@given(WORK.filter(bool), ANY_DEVICE)
def test_at_the_ridge_both_ceilings_take_as_long(traffic: int, item: Device) -> None:
    flops = item.ridge() * traffic
    assert roofline_seconds(flops, 0, item) == pytest.approx(roofline_seconds(0, traffic, item), rel=1e-12)


def test_measured_rates_are_taken_as_they_are() -> None:
    here = replace(device("GTX 980"), name="this machine", measured=True, float32_tflops=2.0, bandwidth_gb_s=10.0)
    assert roofline_seconds(4e12, 0, here) == 2.0
    assert roofline_seconds(0, 20e9, here) == 2.0


def test_negative_work_is_refused() -> None:
    for flops, traffic in ((-1, 0), (0, -1)):
        with pytest.raises(CourseError, match="operations and bytes must be 0 or more"):
            roofline_seconds(flops, traffic, device("T4"))


@pytest.mark.parametrize("kind", [Device, Link])
def test_every_field_of_a_device_and_a_link_is_explained(kind: type) -> None:
    lines = inspect.getsource(kind).splitlines()
    for field in fields(kind):
        (at,) = (i for i, line in enumerate(lines) if line.startswith(f"    {field.name}: "))
        assert "  # " in lines[at] or lines[at - 1].startswith("    # "), field.name
