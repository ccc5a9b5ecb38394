"""What prepares one machine, without an engine."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from components.caas.host_preparation import HostPreparation, HostPreparationArgs
from components.host_connection import HostConnection
from gpuclusters.boot import model as host_boot
from gpuclusters.vfio import model as vfio
from tests.components.recorder import record

CONNECTION = HostConnection(
    host="hgx-01", address="192.0.2.1", port=22, user="ops", host_key="ssh-ed25519 AAAA"
)


def args(**changes: Any) -> HostPreparationArgs:
    functions = vfio.board_functions(
        gpus={n: f"0000:0{n}:00.0" for n in range(1, 9)},
        gpu_pci_id="10de:2330",
        switches=["0000:0a:00.0"],
    )
    values: dict[str, Any] = {
        "connection": CONNECTION,
        "private_key": None,
        "kernel_arguments": ["intel_iommu=on", "iommu=pt"],
        "files": host_boot.host_files(),
        "vfio_functions": [function.model_dump() for function in functions],
        "huge_pages_1g_by_numa_node": {0: 8, 1: 8},
        "packages": {"psmisc": None, "ovmf": "2024.02-2"},
    }
    return HostPreparationArgs(**{**values, **changes})


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
def test_a_machine_has_three_resources_however_many_gpus_it_has(preview: bool) -> None:
    engine = record(lambda: HostPreparation("hgx-01", args()), preview=preview)
    assert engine.types() == [
        "command:remote:Command",
        "gpu-clusters:caas:HostPreparation",
        "gpu-clusters:gpu:HostBoot",
        "gpu-clusters:gpu:VfioBinding",
    ]
    (binding,) = engine.of("VfioBinding").values()
    assert len(binding["functions"]) == 9
    (boot,) = engine.of("HostBoot").values()
    assert boot["huge_pages_1g"] == {"0": 8, "1": 8}
    assert boot["reboot"] == "refuse", "nobody is rebooted who did not ask for it"


def test_packages_are_named_in_the_command_and_pinned_where_that_is_asked_for() -> None:
    engine = record(lambda: HostPreparation("hgx-01", args()))
    (command,) = engine.of("remote:Command").values()
    assert command["create"] == "sudo -n sh -s -- ovmf=2024.02-2 psmisc"
    assert command["connection"]["hostKey"] == "ssh-ed25519 AAAA"
    assert command["stdin"].startswith("#!/bin/sh")


def test_what_needs_a_prepared_machine_depends_on_the_last_step() -> None:
    made: list[pulumi.Resource] = []

    def declare() -> object:
        preparation = HostPreparation("hgx-01", args(may_reboot=True))
        made.append(preparation.ready)
        return preparation.boot_id

    engine = record(declare)
    assert type(made[0]).__name__ == "VfioBinding"
    (boot,) = engine.of("HostBoot").values()
    assert boot["reboot"] == "allow"
