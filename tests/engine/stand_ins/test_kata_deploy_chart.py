"""The lab's chart kata-deploy: Helm installs it for real, its pods install on simulated hosts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from engine.answers import ProviderError
from gpuclusters.boot.guest_profile import BootProfile, Guest
from gpuclusters.kata import model as kata_model
from gpuclusters.kata.model import KATA_LABEL, DeploymentMode, Installation, Shim, ShimConfiguration
from tests.engine.stand_ins.plugin import Plugin, urn
from tests.fixtures.waiting import eventually

CHART = Path(__file__).resolve().parents[3] / "lab" / "charts" / "kata-deploy"
RELEASE = urn("kubernetes:helm.sh/v3:Release", "kata")
CONFIGURATION = ShimConfiguration(
    shim=Shim.GO, profile=BootProfile.of(Guest(gpus=8, memory_gib=64))
)


def values(node: str, installation: Installation | None = None) -> dict[str, Any]:
    return kata_model.chart_values(
        shim=Shim.GO,
        installation=installation or Installation(),
        distribution="k8s",
        drop_in=CONFIGURATION.toml(),
        snapshotter="overlayfs",
        node_selector={"kubernetes.io/hostname": node},
    )


def label(kube_api: Any, node: str) -> str | None:
    with kube_api.api() as api:
        found = api.get(f"/api/v1/nodes/{node}")
    return (found["metadata"].get("labels") or {}).get(KATA_LABEL)


@pytest.mark.lab
def test_a_release_is_ready_when_kata_is_on_its_node_and_gone_when_it_is_not(
    kubernetes: Plugin, kube_api: Any, namespace: str, kubelets: Any, tmp_path: Path
) -> None:
    node = kubelets(hosts=tmp_path).name
    root = tmp_path / node / "root"
    inputs = {
        "chart": str(CHART),
        "name": kata_model.RELEASE,
        "namespace": namespace,
        "timeout": 250,
        "values": values(node),
    }
    assert kubernetes.up(RELEASE, inputs).op == "create"
    assert label(kube_api, node) == "true"
    containerd = tomllib.loads((root / Installation().containerd_drop_in.lstrip("/")).read_text())
    runtimes = containerd["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert runtimes.keys() == {"kata-qemu-nvidia-gpu"}
    drop_in = root / CONFIGURATION.folder.lstrip("/") / "config.d/50-user-overrides.toml"
    assert drop_in.read_text() == CONFIGURATION.toml()
    assert kubernetes.up(RELEASE, inputs).op == "same"

    other = values(node, Installation(DeploymentMode.JOB))
    changed = kubernetes.changes(RELEASE, {**inputs, "values": other})
    # By this path the component has the release replaced.
    assert f"values.{kata_model.IMMUTABLE[0]}" in changed
    with pytest.raises(ProviderError, match="deploymentMode is immutable for an existing release"):
        kubernetes.up(RELEASE, {**inputs, "values": other})

    kubernetes.delete(RELEASE)
    eventually(lambda: label(kube_api, node) is None)
    assert not drop_in.exists()
    assert not (root / Installation().containerd_drop_in.lstrip("/")).exists()
