"""Timeouts follow from one estimate and cannot contradict each other."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.boot.guest_profile import BootProfile, Guest, install_timeout_seconds

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kata.md"

guests = st.builds(
    Guest,
    gpus=st.integers(0, 16),
    memory_gib=st.integers(0, 16_384),
    huge_pages=st.booleans(),
    iommufd=st.booleans(),
    kernel=st.none() | st.tuples(st.integers(4, 8), st.integers(0, 30)),
)
timeouts = st.fixed_dictionaries(
    dict.fromkeys(
        ("cdi_timeout", "create_container_timeout", "dial_timeout", "kubelet_request_timeout"),
        st.none() | st.integers(1, 86_400),
    )
)
TABLE_SIZES = (1, 2, 4, 8)
KERNELS = ((5, 15), (6, 8), (6, 15))


@pytest.mark.parametrize(
    ("guest", "measured"),
    [
        # Published for one machine: seven H100, 125 GiB, Linux 6.8.
        (Guest(gpus=7, memory_gib=117, kernel=(6, 8)), 183),
        (Guest(gpus=7, memory_gib=117, kernel=(6, 8), huge_pages=True), 146),
        (Guest(gpus=7, memory_gib=117, kernel=(6, 8), huge_pages=True, iommufd=True), 114),
        # "More than thirty minutes" for eight H100 on Linux 5.15.
        (Guest(gpus=8, memory_gib=117, kernel=(5, 15)), 1900),
    ],
)
def test_the_estimate_gives_what_was_measured(guest: Guest, measured: int) -> None:
    assert guest.estimate().total == pytest.approx(measured, rel=0.03)


def seconds_on(kernel: tuple[int, int]) -> list[int]:
    """To boot VMs of one machine, by their size."""
    guests = (Guest(gpus=n, memory_gib=192 * n, kernel=kernel) for n in TABLE_SIZES)
    return [guest.estimate().total for guest in guests]


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_machine_boots_one_gpu_in_two_minutes_and_eight_in_thirty(
    kernel: tuple[int, int],
) -> None:
    one, *_, eight = seconds_on(kernel)
    assert not (one < 180 and eight >= 1800)
    row = f"| Linux {kernel[0]}.{kernel[1]} | {' | '.join(map(str, seconds_on(kernel)))} |"
    assert row in PAGE.read_text()
    assert Guest(gpus=1, memory_gib=1, kernel=kernel).linux == row.split(" | ", maxsplit=1)[0][2:]


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_with_huge_pages_and_a_new_kernel_a_vm_boots_in_under_two_minutes(gpus: int) -> None:
    guest = Guest(gpus=gpus, memory_gib=32 * gpus, huge_pages=True, kernel=(6, 17))
    assert guest.estimate().total < 120


def test_katas_own_wait_for_cdi_does_for_four_gpus_and_not_for_eight() -> None:
    for gpus, enough in ((4, True), (8, False)):
        profile = BootProfile.of(Guest(gpus=gpus, memory_gib=64)).stated(cdi_timeout=100)
        assert ("cdi_timeout" not in profile.problems()) is enough


@given(guests)
def test_a_derived_profile_never_contradicts_itself(guest: Guest) -> None:
    profile = BootProfile.of(guest)
    assert not profile.problems()
    assert profile.kubelet_request_timeout >= profile.create_container_timeout
    assert profile.create_container_timeout >= profile.cdi_timeout + 60
    assert profile.create_container_timeout > profile.estimate.total
    assert profile.pod_start_deadline > profile.kubelet_request_timeout


@given(guests, guests)
def test_a_vm_that_takes_more_gets_at_least_as_much_time(one: Guest, other: Guest) -> None:
    more = replace(one, gpus=one.gpus + other.gpus, memory_gib=one.memory_gib + other.memory_gib)
    less, most = BootProfile.of(one), BootProfile.of(more)
    assert most.cdi_timeout >= less.cdi_timeout
    assert most.kubelet_request_timeout >= less.kubelet_request_timeout


@given(guests, timeouts)
def test_a_stated_timeout_is_kept_and_is_a_problem_only_while_it_is_too_short(
    guest: Guest, stated: dict[str, int | None]
) -> None:
    profile = BootProfile.of(guest).stated(**stated)
    kept = {name: value for name, value in stated.items() if value is not None}
    assert {name: getattr(profile, name) for name in kept} == kept
    problems = profile.problems()
    assert all(getattr(profile, name) < least for name, least in problems.items())
    if not kept:
        assert not problems


def test_more_machines_get_more_time_but_not_for_each_one() -> None:
    assert install_timeout_seconds(1) == 1800
    assert install_timeout_seconds(10) == install_timeout_seconds(100) == 4500
    assert install_timeout_seconds(0) == install_timeout_seconds(1)


def table(memory_gib_per_gpu: int, one: Guest) -> str:
    """The profiles of all sizes as the Markdown table in docs/kata.md."""
    guests = [replace(one, gpus=n, memory_gib=n * memory_gib_per_gpu) for n in TABLE_SIZES]
    profiles = [BootProfile.of(guest) for guest in guests]
    rows: list[tuple[str, list[object]]] = [
        ("Memory of the container, GiB", [p.guest.memory_gib for p in profiles]),
        ("Boot, estimated, s", [p.estimate.total for p in profiles]),
        ("… firmware and guest kernel", [round(p.estimate.firmware) for p in profiles]),
        ("… memory cleared and pinned", [round(p.estimate.memory) for p in profiles]),
        ("… GPUs' memory mapped", [round(p.estimate.bars) for p in profiles]),
        ("… guest's driver, fabric, CDI", [p.estimate.guest for p in profiles]),
        ("`agent.cdi_timeout`, s", [p.cdi_timeout for p in profiles]),
        ("`create_container_timeout`, s", [p.create_container_timeout for p in profiles]),
        ("`dial_timeout`, s; `reconnect_timeout_ms` / 1000", [p.dial_timeout for p in profiles]),
        ("kubelet `runtimeRequestTimeout`, s", [p.kubelet_request_timeout for p in profiles]),
        ("pod must run after, s", [p.pod_start_deadline for p in profiles]),
        ("RuntimeClass overhead, MiB", [p.memory_overhead_mib for p in profiles]),
    ]
    head = " | ".join(f"{gpus} GPU{'s' if gpus > 1 else ''}" for gpus in TABLE_SIZES)
    lines = [f"| | {head} |", "|---|" + "---|" * len(TABLE_SIZES)]
    lines += [f"| {name} | {' | '.join(map(str, values))} |" for name, values in rows]
    return "\n".join(lines) + "\n"


def test_the_table_of_the_documents_is_the_derived_one() -> None:
    page = PAGE.read_text()
    assert table(32, Guest(gpus=0, memory_gib=0, kernel=(6, 17), huge_pages=True)) in page
    assert table(192, Guest(gpus=0, memory_gib=0, kernel=(6, 8))) in page
