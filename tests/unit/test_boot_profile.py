"""Timeouts follow from one estimate and cannot contradict each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.domain import boot_profile
from gpuclusters.domain.boot_profile import BootProfile, Guest, install_timeout_seconds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kata.md"

guests = st.builds(
    Guest,
    gpus=st.integers(0, 16),
    memory_gib=st.integers(0, 16_384),
    huge_pages=st.booleans(),
    iommufd=st.booleans(),
    kernel=st.none() | st.tuples(st.integers(4, 8), st.integers(0, 30)),
)
seconds = st.none() | st.integers(1, 86_400)


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


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_with_huge_pages_and_a_new_kernel_a_vm_boots_in_under_two_minutes(gpus: int) -> None:
    guest = Guest(gpus=gpus, memory_gib=32 * gpus, huge_pages=True, kernel=(6, 17))
    assert guest.estimate().total < 120


@pytest.mark.parametrize(("gpus", "enough"), [(4, True), (8, False)])
def test_katas_own_wait_for_cdi_does_for_four_gpus_and_not_for_eight(
    gpus: int, enough: bool
) -> None:
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
    probe = profile.startup_probe
    assert probe["periodSeconds"] * probe["failureThreshold"] >= profile.pod_start_deadline


@given(guests, guests)
def test_a_vm_that_takes_more_gets_at_least_as_much_time(one: Guest, other: Guest) -> None:
    more = replace(one, gpus=one.gpus + other.gpus, memory_gib=one.memory_gib + other.memory_gib)
    less, most = BootProfile.of(one), BootProfile.of(more)
    assert most.cdi_timeout >= less.cdi_timeout
    assert most.kubelet_request_timeout >= less.kubelet_request_timeout


@given(guests, seconds, seconds, seconds, seconds)
def test_a_stated_timeout_is_kept_and_is_a_problem_only_while_it_is_too_short(
    guest: Guest, cdi: int | None, create: int | None, dial: int | None, kubelet: int | None
) -> None:
    stated = {
        "cdi_timeout": cdi,
        "create_container_timeout": create,
        "dial_timeout": dial,
        "kubelet_request_timeout": kubelet,
    }
    profile = BootProfile.of(guest).stated(
        cdi_timeout=cdi,
        create_container_timeout=create,
        dial_timeout=dial,
        kubelet_request_timeout=kubelet,
    )
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


def test_the_table_of_the_documents_is_the_derived_one() -> None:
    for known in (
        boot_profile.table(memory_gib_per_gpu=32, kernel=(6, 17), huge_pages=True, iommufd=False),
        boot_profile.table(memory_gib_per_gpu=192, kernel=(6, 8), huge_pages=False, iommufd=False),
    ):
        assert known in PAGE.read_text()
