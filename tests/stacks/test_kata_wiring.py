"""From keys of the configuration to what is declared of Kata and of tenants' storage."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.kata import model as kata_model
from tests.components.recorder import Recorder
from tests.stacks.declaring import declared

SECTION = {
    "name": "test",
    "platform": "supermicro-hgx-h100",
    "hosts": {"source": "lab"},
    "kubernetes": {"source": "lab"},
    "nodes": [{"name": "hgx-01", "kernel": "6.17.0"}],
    "partition-layout": [8],
    "tenants": [
        {"name": "acme", "gpus": 8, "max-container": {"cpu": 64, "memory-gib": 256}},
    ],
    "leases": {"recycle-policy": "reset-only"},
}


@pytest.fixture(autouse=True)
def no_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_LAB", str(tmp_path))


def declare(**changes: Any) -> Recorder:
    return declared(
        {"cluster-type": "caas", "caas": {**copy.deepcopy(SECTION), **changes}}, preview=True
    )


def release(engine: Recorder, name: str = "kata-deploy-release") -> dict[str, Any]:
    return engine.of("helm.sh/v3:Release")[name]


def test_one_boot_profile_is_behind_the_shim_and_the_kubelet() -> None:
    engine = declare()
    values = release(engine)["values"]
    assert not [*kata_model.unknown_keys(values)]
    shim = tomllib.loads(values["shims"]["qemu-nvidia-gpu"]["dropIn"])
    assert shim["runtime"]["create_container_timeout"] == 1200
    assert "agent.cdi_timeout=600" in shim["hypervisor"]["qemu"]["kernel_params"]
    kubelet = next(text for text in _contents(engine) if "runtimeRequestTimeout" in text)
    assert "runtimeRequestTimeout: 1260s" in kubelet


def test_more_memory_gives_everybody_more_time() -> None:
    tenant = {"name": "acme", "gpus": 8, "max-container": {"cpu": 64, "memory-gib": 1500}}
    engine = declare(tenants=[tenant])
    drop_in = release(engine)["values"]["shims"]["qemu-nvidia-gpu"]["dropIn"]
    create = tomllib.loads(drop_in)["runtime"]["create_container_timeout"]
    assert create > 1200
    assert any(f"runtimeRequestTimeout: {create + 60}s" in text for text in _contents(engine))


def test_a_second_installation_is_called_otherwise_everywhere() -> None:
    engine = declare(kata={"multi-install-suffix": "b"})
    assert release(engine)["values"]["env"] == {"multiInstallSuffix": "b"}
    (made,) = engine.of(":RuntimeClass").values()
    assert made["handler"] == "kata-qemu-nvidia-gpu-b"
    (looked,) = [c for n, c in engine.of("remote:Command").items() if n == "hgx-01-kata"]
    assert "kata-qemu-nvidia-gpu-b /opt/kata-b " in looked["create"]
    (policy,) = [p for n, p in engine.of(":TenancyPolicy").items() if n.startswith("acme")]
    assert policy["spec"]["runtimeClasses"] == ["kata-qemu-nvidia-gpu-b"]


def test_kata_that_somebody_else_installs_is_left_alone() -> None:
    engine = declare(kata={"chart": {"source": "none"}})
    assert not engine.of("helm.sh/v3:Release")
    assert not engine.of(":NodePatch")
    assert engine.of(":RuntimeClass")


def test_more_values_reach_the_chart_beside_ours() -> None:
    engine = declare(kata={"values": {"priorityClassName": "mine", "image": {"tag": "x"}}})
    values = release(engine)["values"]
    assert values["priorityClassName"] == "mine"
    assert values["image"] == {"tag": "x"}
    assert values["runtimeClasses"]["enabled"] is False


def test_a_registry_is_asked_for_the_version_that_is_pinned() -> None:
    engine = declare(
        kata={"chart": {"source": "registry"}},
        storage={"mounter": "csi", "csi-driver-chart": {"source": "registry"}},
    )
    kata = release(engine)
    assert (kata["chart"], kata["version"]) == (kata_model.REPOSITORY, "4.1.0")
    csi = release(engine, "csi-nfs-release")
    assert (csi["chart"], csi["version"]) == ("csi-driver-nfs", "4.13.5")
    assert csi["repositoryOpts"]["repo"].startswith("https://")


def test_vms_of_huge_pages_have_them_in_the_shim_the_class_and_the_limits() -> None:
    node = {"name": "hgx-01", "kernel": "6.17.0", "hugepages-gib-per-numa-node": [512, 512]}
    engine = declare(nodes=[node], kata={"huge-pages": True})
    shim = tomllib.loads(release(engine)["values"]["shims"]["qemu-nvidia-gpu"]["dropIn"])
    assert shim["hypervisor"]["qemu"]["enable_hugepages"] is True
    (made,) = engine.of(":RuntimeClass").values()
    assert made["overhead"]["podFixed"]["hugepages-1Gi"] == "8Gi"
    (policy,) = [p for n, p in engine.of(":TenancyPolicy").items() if n.startswith("acme")]
    assert policy["spec"]["limits"][0]["default"]["hugepages-1Gi"] == "64Gi"


def _contents(engine: Recorder) -> list[str]:
    return [file.get("content", "") for file in engine.of("HostFile").values()]
