"""Where the machines of an rke2 cluster come from, and what each waits for."""

from __future__ import annotations

from typing import Any

from tests.components.recorder import Recorder
from tests.stacks.declaring import declared
from tests.unit.config.documents import google

SECTION: dict[str, Any] = {
    "name": "a100",
    "version": "v1.35.7+rke2r1",
    "artifacts": {"source": "download", "checksum": "a" * 64},
    "registration-address": "10.10.0.100",
    "servers": ["cp-1"],
    "operating-system": "ubuntu-24.04",
    "pools": [
        {
            "name": "gpus",
            "nodes": ["gpu-1", "gpu-2"],
            "gpu": {"product": "a100-sxm4-40gb", "count": 8},
        }
    ],
    "operator": {"version": "v26.7.0"},
}
GOOGLE = google(
    access={"source": "ranges", "ranges": ["10.99.0.0/24"]},
    groups=[
        {
            "name": "control",
            "role": "controller",
            "machines": ["cp-1"],
            "machine-type": "n1-standard-4",
        },
        {
            "name": "gpus",
            "role": "worker",
            "machines": ["gpu-1", "gpu-2"],
            "machine-type": "a2-highgpu-8g",
            "gpu": {"product": "a100-sxm4-40gb", "count": 8},
            "disk": {"size-gib": 512},
        },
    ],
)


def stack(**changes: Any) -> Recorder:
    """What is declared in a preview."""
    return declared({"cluster-type": "rke2", "rke2": {**SECTION, **changes}}, preview=True)


def test_machines_on_google_cloud_are_made_and_then_prepared() -> None:
    made = stack(hosts=GOOGLE)
    assert sorted(made.of(":GcpMachine")) == ["cp-1-machine", "gpu-1-machine", "gpu-2-machine"]
    assert sorted(made.of(":GpuDriver")) == ["gpu-1-driver", "gpu-2-driver"]
    assert sorted(made.of(":Rke2Node")) == ["cp-1-rke2", "gpu-1-rke2", "gpu-2-rke2"]
    for rule in made.of("gcp:compute/firewall:Firewall").values():
        assert "0.0.0.0/0" not in str(rule)
    for node in made.of(":Rke2Node").values():
        assert node["registration_address"] == "10.10.0.100"


def test_a_machine_that_is_made_anew_is_prepared_anew() -> None:
    made = stack(hosts=GOOGLE)
    for kind in (":GpuDriver", ":Rke2Node"):
        for inputs in made.of(kind).values():
            assert "machine" in inputs["connection"], "else nobody notices that it is another one"


def test_without_monitoring_nothing_of_it_is_declared() -> None:
    made = stack(hosts=GOOGLE, metrics={"kind": "none"})
    assert not made.of(":Metrics")
    assert not made.of(":PrometheusRule")
    assert list(made.of(":Release")) == ["gpu-operator-release"]
