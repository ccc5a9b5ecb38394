"""Decisions about NVIDIA's driver on a host: what is refused, what is done, what is drift.

Rows of tables are in gpu_driver_rules.yaml."""

from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Level
from gpuclusters.driver import decide
from gpuclusters.driver.model import Gpu, GpuDriverInputs, LiveDriver, packages
from gpuclusters.host.model import sha256_of
from tests.fixtures import made_up
from tests.fixtures.tables import beside

KERNEL = "6.8.0-60-generic"
CASES = beside(__file__, "gpu_driver_rules.yaml")
CONNECTION = {**made_up.CONNECTION, "host": "gpu-1"}


def inputs(**changes: Any) -> GpuDriverInputs:
    values = {"connection": CONNECTION, "version": "580.178.04", "gpus": 1, **changes}
    return GpuDriverInputs.model_validate(values)


def nvrm(version: str) -> str:
    """What the kernel says of the driver that it runs."""
    return f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build"


def live(**changes: Any) -> LiveDriver:
    """An Ubuntu machine with one A100 and nothing installed."""
    return LiveDriver(
        system="ubuntu",
        family="debian",
        release="24.04",
        kernel=KERNEL,
        architecture="x86_64",
        gpu=(Gpu("0000:07:00.0", "10de:20b2"),),
    ).model_copy(update=changes)


def read(changes: dict[str, Any]) -> dict[str, Any]:
    """Facts as a script prints them."""
    facts = LiveDriver.model_validate(changes)
    return {name: getattr(facts, name) for name in changes}


def served(wanted: GpuDriverInputs, **changes: Any) -> LiveDriver:
    """As it is when all is done, but for the changes."""
    bare = live()
    brought = packages(wanted, bare)
    done = {
        "nvrm": nvrm("580.178.04"),
        "module": "580.178.04",
        "package": {name: version.replace("*", "-1") or "1" for name, version in brought.wanted},
        "held": frozenset(brought.names),
        "shown": ("NVIDIA A100-SXM4-80GB",),
        "smi": 0,
        "initramfs": decide.initramfs_digest(),
        "applied": wanted.digest,
        "file": {path: sha256_of(t.encode()) for path, t in decide.contents(bare).items()},
    }
    return bare.model_copy(update={**done, **changes})


def found_in(wanted: GpuDriverInputs, there: LiveDriver, *, drained: bool = False) -> list[Finding]:
    """All findings; each has a code that is listed, and can be told as drift."""
    found = [*decide.findings(wanted, there, drained=drained)]
    assert all(codes.listed()[one.code].severity for one in found)
    return found


def blocking(wanted: GpuDriverInputs, there: LiveDriver, *, drained: bool = False) -> str:
    found = found_in(wanted, there, drained=drained)
    return "\n".join(str(one) for one in found if one.level is Level.BLOCK)


@pytest.mark.parametrize(("changes", "there", "words"), CASES["refused"])
def test_what_cannot_work_is_refused_with_its_remedy(
    changes: dict[str, Any], there: dict[str, Any], words: str
) -> None:
    assert words in blocking(inputs(**changes), live(**read(there)))


def test_a_node_with_servers_to_ask_is_drained_instead() -> None:
    wanted = inputs(control=[{**CONNECTION, "host": "server-1"}], node_name="gpu-1")
    there = live(nvrm=nvrm("570.1.2"), user=("7 train.py",), node=True)
    assert decide.disturbs(there, found_in(wanted, there))
    assert blocking(wanted, there) == ""
    # Who computes after that is no pod.
    assert "in use by processes 7 train.py" in blocking(wanted, there, drained=True)


@pytest.mark.parametrize("changes", CASES["senseless"])
def test_inputs_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    machines = {"SELF": CONNECTION, "OTHER": {**CONNECTION, "host": "server-1"}}
    if "control" in changes:
        changes = {**changes, "control": [machines[one] for one in changes["control"]]}
    with pytest.raises(ValidationError):
        inputs(**changes)


def test_a_host_at_rest_needs_nothing() -> None:
    assert found_in(inputs(), served(inputs())) == []


@pytest.mark.parametrize(("there", "code", "words"), CASES["drift"])
def test_every_difference_is_drift(there: dict[str, Any], code: str, words: str) -> None:
    found = found_in(inputs(), served(inputs(), **read(there)))
    said = [one.problem for one in found if one.code == f"driver.{code}"]
    assert words in "; ".join(said)


def test_a_driver_that_serves_is_not_disturbed_for_a_kernel_that_waits() -> None:
    (found,) = found_in(inputs(), served(inputs(), reboot_required=True))
    assert (found.level, found.step) == (Level.WARN, "")


@pytest.mark.parametrize("source", ["host", "operator"])
def test_the_kernel_stays_whoever_brings_the_driver(source: str) -> None:
    wanted = inputs(source=source, version="580.178.04" if source == "host" else None)
    there = live(package={"linux-image-generic": "6.8.0.60", "linux-generic": "6.8.0.60"})
    (held,) = [one.problem for one in found_in(wanted, there) if one.step == "hold"]
    assert "linux-generic, linux-image-generic" in held


def test_a_newer_kernel_is_booted_before_modules_are_chosen_for_it() -> None:
    found = found_in(inputs(), live(reboot_required=True))
    # With the blacklist in the same restart, nouveau costs none of its own.
    assert {one.step for one in found} == {"files", "initramfs", "boot"}
    assert "newer kernel" in "; ".join(one.problem for one in found if one.step == "boot")


@pytest.mark.parametrize(("there", "changes", "names"), CASES["packages"])
def test_packages_by_operating_system(
    there: dict[str, Any], changes: dict[str, Any], names: str
) -> None:
    brought = packages(inputs(**changes), live(**there))
    assert " ".join(brought.names) == names
    assert set(brought.names[1:]) <= set(brought.held)


@pytest.mark.parametrize(("release", "stream"), CASES["streams"])
def test_the_rhel_family_has_streams_up_to_its_ninth_release(release: str, stream: str) -> None:
    there = live(family="rhel", system="rhel", release=release)
    brought = packages(inputs(packages="nvidia"), there)
    assert brought.stream == stream
