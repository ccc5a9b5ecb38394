"""Decisions about NVIDIA's driver on a host: what is refused, what is done, what is drift."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from gpuclusters.domain import gpu_driver, gpu_driver_packages, gpu_driver_plan
from gpuclusters.domain.gpu_driver import Gpu, GpuDriverInputs, LiveDriver
from gpuclusters.domain.gpu_driver_refusals import before_changing
from gpuclusters.domain.host_file import sha256_of
from gpuclusters.domain.reconcile_gpu_driver import packages_of
from gpuclusters.domain.refusals import RefusalError

KERNEL = "6.8.0-60-generic"
CONNECTION = {
    "host": "gpu-1",
    "address": "192.0.2.1",
    "port": 22,
    "user": "ops",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0Zs8dbjpwDwPYSLyTTzHbHV8ikvsGJDNc1zLwrMyRV",
}


def inputs(**changes: Any) -> GpuDriverInputs:
    values = {"connection": CONNECTION, "version": "580.178.04", "gpus": 1, **changes}
    return GpuDriverInputs.model_validate(values)


def live(**changes: Any) -> LiveDriver:
    """An Ubuntu machine with one A100 and nothing installed."""
    return replace(
        LiveDriver(
            system="ubuntu",
            family="debian",
            release="24.04",
            kernel=KERNEL,
            architecture="x86_64",
            gpus=(Gpu("0000:07:00.0", "10de:20b2"),),
        ),
        **changes,
    )


def served(wanted: GpuDriverInputs) -> LiveDriver:
    """As it is when all is done."""
    bare = live()
    packages = packages_of(wanted, bare)
    assert isinstance(packages, gpu_driver_packages.Packages)
    files = gpu_driver_plan.contents(bare)
    return replace(
        bare,
        loaded="580.178.04",
        loaded_open=True,
        module="580.178.04",
        packages={name: version.replace("*", "-1") or "1" for name, version in packages.wanted},
        held=frozenset(packages.names),
        shown=("NVIDIA A100-SXM4-80GB",),
        smi=0,
        initramfs=gpu_driver_plan.initramfs_digest(),
        digests={path: sha256_of(text.encode()) for path, text in files.items()},
    )


def refused(wanted: GpuDriverInputs, there: LiveDriver) -> str:
    packages = packages_of(wanted, there)
    known = packages if isinstance(packages, gpu_driver_packages.Packages) else None
    todo = gpu_driver_plan.plan(wanted, there, known)
    with pytest.raises(RefusalError) as refusal:
        before_changing(wanted, there, packages if packages is not None else "", todo)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "there", "words"),
    [
        ({"version": "595.91.07"}, {"gpus": (Gpu("a", "10de:1db5"),)}, "driver.branch: 580"),
        ({}, {"gpus": (Gpu("a", "10de:15f8"),)}, "driver.modules: proprietary"),
        ({"modules": "proprietary"}, {"gpus": (Gpu("a", "10de:2901"),)}, "driver.modules: open"),
        ({"version": "620.10.01", "modules": "proprietary"}, {}, "no proprietary modules any more"),
        ({}, {"gpus": ()}, "shows 0 GPUs of NVIDIA on the bus and 1 are declared"),
        ({}, {"switches": 6}, "correct the pool's gpu.nvswitch"),
        (
            {},
            {"gpus": (Gpu("a", "10de:20b2", "vfio-pci"),)},
            "to pass its GPUs to virtual machines",
        ),
        (
            {},
            {"command_line": "ro module_blacklist=nouveau,nvidia"},
            "take it out of the `caas` stack",
        ),
        ({}, {"architecture": "aarch64"}, "use an x86_64 machine"),
        ({}, {"free_mib": 900}, "has 900 MiB free"),
        (
            {},
            {"packages": {"nvidia-driver-535": "535.309.01-1"}},
            "another driver is installed there",
        ),
        ({}, {"foreign": ("NVIDIA's .run installer",)}, "`nvidia-uninstall`"),
        ({}, {"system": "arch", "family": "other"}, "use Ubuntu, the RHEL family or SLES"),
        ({}, {"system": "rocky", "family": "rhel"}, "driver.packages: nvidia"),
        ({"packages": "nvidia"}, {"secure_boot": True}, "Secure Boot is on"),
        ({"reboot": "never"}, {"nouveau": True}, "restarts are not allowed"),
        ({}, {"nouveau": True, "node": True}, "no server is known that could drain it"),
        ({}, {"loaded": "570.1.2", "users": ("7 train.py",)}, "in use by processes 7 train.py"),
        ({"source": "operator", "version": None}, {"module": "580.178.04"}, "driver.source: host"),
    ],
)
def test_what_cannot_work_is_refused_with_its_remedy(
    changes: dict[str, Any], there: dict[str, Any], words: str
) -> None:
    assert words in refused(inputs(**changes), live(**there))


def test_a_node_with_servers_to_ask_is_drained_instead() -> None:
    wanted = inputs(control=[{**CONNECTION, "host": "server-1"}], node_name="gpu-1")
    there = live(loaded="570.1.2", users=("7 train.py",), node=True)
    packages = packages_of(wanted, there)
    assert isinstance(packages, gpu_driver_packages.Packages)
    todo = gpu_driver_plan.plan(wanted, there, packages)
    assert todo.disturbs
    before_changing(wanted, there, packages, todo)
    # Who computes after that is no pod.
    with pytest.raises(RefusalError, match=r"in use by processes 7 train\.py"):
        before_changing(wanted, there, packages, todo, drained=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": None},
        {"version": "580"},
        {"source": "operator"},
        {"gpus": 0},
        {"control": [CONNECTION], "node_name": "gpu-1"},
        {"control": [{**CONNECTION, "host": "server-1"}]},
    ],
)
def test_inputs_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        inputs(**changes)


def test_a_host_at_rest_needs_nothing() -> None:
    wanted = inputs()
    there = served(wanted)
    packages = packages_of(wanted, there)
    assert isinstance(packages, gpu_driver_packages.Packages)
    assert gpu_driver_plan.plan(wanted, there, packages).is_empty
    assert gpu_driver_plan.drift(wanted, there, packages) == []


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({"loaded": ""}, "the kernel runs no driver"),
        ({"loaded": "570.1.2"}, "the kernel runs driver 570.1.2"),
        ({"loaded_open": False}, "the kernel runs proprietary modules"),
        ({"module": "595.91.07"}, "module 595.91.07 is on the disk"),
        ({"nouveau": True}, "nouveau is loaded"),
        ({"held": frozenset()}, "packages are not held"),
        ({"shown": ()}, "nvidia-smi shows 0 of 1 GPUs"),
        ({"gpus": ()}, "0 of 1 GPUs are on the bus"),
        ({"digests": {}}, f"{gpu_driver.NOUVEAU_FILE} differs"),
        ({"packages": {}}, "packages are not there"),
    ],
)
def test_every_difference_is_drift(there: dict[str, Any], words: str) -> None:
    wanted = inputs()
    now = replace(served(wanted), **there)
    packages = packages_of(wanted, now)
    assert isinstance(packages, gpu_driver_packages.Packages)
    assert words in "; ".join(gpu_driver_plan.drift(wanted, now, packages))


@pytest.mark.parametrize("source", ["host", "operator"])
def test_the_kernel_stays_whoever_brings_the_driver(source: str) -> None:
    wanted = inputs(source=source, version="580.178.04" if source == "host" else None)
    there = live(packages={"linux-image-generic": "6.8.0.60", "linux-generic": "6.8.0.60"})
    packages = packages_of(wanted, there)
    known = packages if isinstance(packages, gpu_driver_packages.Packages) else None
    assert {"linux-image-generic", "linux-generic"} <= set(
        gpu_driver_plan.plan(wanted, there, known).hold
    )


def test_a_newer_kernel_is_booted_before_modules_are_chosen_for_it() -> None:
    wanted = inputs()
    there = live(reboot_required=True)
    packages = packages_of(wanted, there)
    assert isinstance(packages, gpu_driver_packages.Packages)
    first = gpu_driver_plan.plan(wanted, there, packages)
    assert "newer kernel" in first.reboot
    assert first.install == ()
    # With the blacklist in the same restart, nouveau costs none of its own.
    assert gpu_driver.NOUVEAU_FILE in first.write
    assert first.initramfs


@pytest.mark.parametrize(
    ("there", "changes", "names"),
    [
        (
            {},
            {"nvswitch": True},
            f"linux-modules-nvidia-580-server-open-{KERNEL} nvidia-headless-no-dkms-580-server-open "
            "nvidia-utils-580-server nvidia-fabricmanager-580",
        ),
        ({}, {"packages": "nvidia"}, f"linux-headers-{KERNEL} nvidia-open-580"),
        (
            {},
            {"packages": "nvidia", "nvswitch": True},
            f"linux-headers-{KERNEL} nvidia-open-580 nvidia-fabricmanager-580",
        ),
        (
            {},
            {"packages": "nvidia", "version": "595.91.07", "nvswitch": True},
            f"linux-headers-{KERNEL} nvidia-open nvidia-fabricmanager",
        ),
        (
            # packages.ubuntu.com, noble: nvidia-fabricmanager-595; nvidia-fabricmanager is virtual there.
            {},
            {"version": "595.91.07", "nvswitch": True},
            f"linux-modules-nvidia-595-server-open-{KERNEL} nvidia-headless-no-dkms-595-server-open "
            "nvidia-utils-595-server nvidia-fabricmanager-595",
        ),
        (
            {},
            {"packages": "nvidia", "version": "595.91.07", "modules": "proprietary"},
            f"linux-headers-{KERNEL} cuda-drivers",
        ),
        (
            {"family": "rhel", "system": "rhel", "release": "9.6"},
            {"packages": "nvidia"},
            f"kernel-devel-{KERNEL} nvidia-open nvidia-driver-cuda",
        ),
        (
            {"family": "suse", "system": "sles", "release": "15.7"},
            {},
            "nvidia-open-driver-G06-signed-kmp-default nvidia-compute-utils-G06",
        ),
    ],
)
def test_packages_by_operating_system(
    there: dict[str, Any], changes: dict[str, Any], names: str
) -> None:
    packages = packages_of(inputs(**changes), live(**there))
    assert isinstance(packages, gpu_driver_packages.Packages)
    assert " ".join(packages.names) == names
    assert set(packages.names[1:]) <= set(packages.held)


@pytest.mark.parametrize(
    ("release", "stream"), [("8.10", "580-open"), ("9.6", "580-open"), ("10.1", "")]
)
def test_the_rhel_family_has_streams_up_to_its_ninth_release(release: str, stream: str) -> None:
    there = live(family="rhel", system="rhel", release=release)
    packages = packages_of(inputs(packages="nvidia"), there)
    assert isinstance(packages, gpu_driver_packages.Packages)
    assert packages.stream == stream


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.178.04  Release Build  (dvs)",
            ("580.178.04", True),
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Tue", ("535.309.01", False)),
        ("", ("", False)),
    ],
)
def test_what_the_kernel_says_of_its_driver(line: str, found: tuple[str, bool]) -> None:
    assert gpu_driver.parse_version_file(line) == found
