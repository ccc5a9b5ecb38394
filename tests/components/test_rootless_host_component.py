"""A host of a Usernetes cluster, without an engine."""

from typing import Any

import pytest

from components.host_connection import HostConnection
from components.usernetes import RootlessHost
from gpuclusters.boot.model import RebootPolicy
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.driver.model import Modules, PackageSource, WantedDriver
from tests.components.recorder import record

DRIVER = WantedDriver(
    version="580.178.04",
    modules=Modules.PROPRIETARY,
    packages=PackageSource.DISTRIBUTION,
    reboot=RebootPolicy.REFUSE,
    reboot_timeout_seconds=600,
)


def declare(**changes: Any) -> RootlessHost:
    connection = HostConnection(
        host="v100-1", address="192.0.2.1", port=22, user="ubuntu", host_key="ssh-ed25519 AAAA"
    )
    values: dict[str, Any] = {
        "connection": connection,
        "account": "ubuntu",
        "gpus": 4,
        "driver": DRIVER,
        "versions": version_set("current"),
        "sudo": True,
        "ports": (10250, 6443),
    }
    return RootlessHost("v100-1", **{**values, **changes})


@pytest.mark.parametrize("preview", [False, True], ids=["up", "preview"])
def test_a_host_has_its_driver_and_its_docker(preview: bool) -> None:
    engine = record(declare, preview=preview)
    assert engine.types() == [
        "gpu-clusters:gpu:GpuDriver",
        "gpu-clusters:gpu:RootlessHost",
        "gpu-clusters:usernetes:RootlessHost",
    ]
    ((name, driver),) = engine.of("GpuDriver").items()
    assert name == "v100-1-driver"
    assert (driver["modules"], driver["reboot"], driver["gpus"]) == ("proprietary", "refuse", 4)
    ((name, prepared),) = engine.of("gpu-clusters:gpu:RootlessHost").items()
    assert name == "v100-1-rootless"
    versions = version_set("current")
    assert (prepared["docker"], prepared["container_toolkit"]) == (
        versions.docker,
        versions.container_toolkit,
    )
    assert prepared["probe_image"] == versions.node_image
    assert (prepared["account"], prepared["ports"]) == ("ubuntu", [6443, 10250])


def test_a_driver_that_is_there_is_checked_alone() -> None:
    engine = record(lambda: declare(driver=None, sudo=False))
    assert engine.of("GpuDriver") == {}
    assert list(engine.of("gpu-clusters:gpu:RootlessHost")) == ["v100-1-rootless"]
