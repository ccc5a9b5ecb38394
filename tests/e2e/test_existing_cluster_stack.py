"""The GPU Operator on a cluster that was there: up, changed, and down by the embedded engine.

Nobody logs in to a machine of it: what is known of it is the kubeconfig, a secret of the stack.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.gpu_operator import objects
from lab import tools
from tests.e2e.conftest import SOURCE, Checkout, linked
from tests.engine.warmkit import warm_project
from tests.fixtures.control_plane import KubeCluster
from tests.lab.nodes.real_lab import REAL_NODE, found_cluster

pytestmark = REAL_NODE

NODE = "gpu-01"
CHART = "gpu-operator.tgz"
OWNERS = {"labels": {"example.com/rack": "7"}, "annotations": {"example.com/owner": "ops"}}
"""What the owner of the cluster has written to its node."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COLLECTIONS = (
    "/api/v1/namespaces",
    "/api/v1/nodes",
    DEFINITIONS,
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/daemonsets",
    "/api/v1/configmaps",
    "/api/v1/secrets",
)


@dataclass(frozen=True)
class World:
    dev: Checkout
    cluster: KubeCluster

    def get(self, path: str) -> dict[str, Any]:
        with self.cluster.api() as api:
            return api.get(path)

    def node(self) -> dict[str, Any]:
        return self.get(f"/api/v1/nodes/{NODE}")

    def comes_up(self, gpus: dict[str, str], default_runtime: str) -> None:
        """What the node offers, and whether NVIDIA's toolkit is told to make its runtime the default."""
        self.dev.up("--yes")
        found: Mapping[str, str] = self.node()["status"]["allocatable"]
        offered = {k: v for k, v in found.items() if k.startswith("nvidia.com/") and v != "0"}
        assert offered == gpus
        (policy,) = self.get("/apis/nvidia.com/v1/clusterpolicies")["items"]
        env = {one["name"]: one["value"] for one in policy["spec"]["toolkit"]["env"]}
        assert env["NVIDIA_RUNTIME_SET_AS_DEFAULT"] == default_runtime
        self.dev.up_again()

    def names(self) -> dict[str, set[str]]:
        """All objects of some collections, with their namespaces."""
        found = {}
        for path in COLLECTIONS:
            metadata = [item["metadata"] for item in self.get(path)["items"]]
            found[path] = {f"{m.get('namespace', '')}/{m['name']}" for m in metadata}
        return found

    def configure(self, *, default_runtime: bool, **pool: Any) -> None:
        """The committed stack of such a cluster, for this node and with the chart as a file."""
        document = yaml.safe_load((SOURCE / "tests/stacks/Pulumi.existing.yaml").read_text())
        section = document["config"]["gpu-clusters:rke2"]
        section["kubernetes"]["default-runtime"] = default_runtime
        gpu = {"product": "a100-sxm4-80gb", "count": 8}
        section["pools"] = [{"name": "a", "nodes": [NODE], "gpu": gpu, **pool}]
        if not pool:
            section["sharing"] = {"kind": "none"}
        chart = self.dev.folder / CHART
        digest = hashlib.sha256(chart.read_bytes()).hexdigest()
        section["operator"]["chart"] = {"source": "file", "path": chart.name, "sha256": digest}
        file = self.dev.folder / "Pulumi.dev.yaml"
        kept = yaml.safe_load(file.read_text()) if file.exists() else {"config": {}}
        kept["config"] |= document["config"]
        file.write_text(yaml.safe_dump(kept))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A stack with the cluster's kubeconfig as its secret, and the chart as a file."""
    with found_cluster(tmp_path / "theirs", NODE) as found, warm_project() as warm:
        with found.cluster.api() as api:
            api.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, **OWNERS}})
        own = tmp_path / "ours"
        state = own / "state"
        state.mkdir(parents=True)
        dev = Checkout(linked(tmp_path / "project"), own, warm)
        chart = (tools.resolve("helm"), "package", SOURCE / "lab/charts/gpu-operator", "-d", own)
        subprocess.run(chart, capture_output=True, check=True)
        (archive,) = own.glob("*.tgz")
        archive.rename(dev.folder / CHART)
        dev.extra["PULUMI_BACKEND_URL"] = f"file://{state}"
        dev.extra["PULUMI_CONFIG_PASSPHRASE"] = "gpu-clusters-lab"
        made = World(dev, found.cluster)
        made.configure(default_runtime=False)
        kubeconfig = found.cluster.kubeconfig.read_text()
        secret = ("config", "set", "--secret", "gpu-clusters:kubeconfig", kubeconfig)
        for command in (("stack", "init"), secret):
            done = dev.engine(*command)
            assert done.returncode == 0, done.stdout + done.stderr
        yield made


def test_the_operator_comes_up_changes_and_goes_and_the_cluster_is_its_owners_again(
    world: World,
) -> None:
    before, metadata = world.names(), world.node()["metadata"]
    world.comes_up({"nvidia.com/gpu": "8"}, "false")
    key = yaml.safe_load(world.cluster.kubeconfig.read_text())["users"][0]["user"]
    assert key["client-key-data"] not in str(world.dev.state())

    world.configure(default_runtime=True, mig="all-1g.10gb")
    world.comes_up({"nvidia.com/mig-1g.10gb": "56"}, "true")

    world.dev.destroy()
    after, left = world.names(), world.node()["metadata"]
    # Definitions stay: deleting one deletes all objects of its kind, also those of somebody else.
    definitions = after.pop(DEFINITIONS) - before.pop(DEFINITIONS)
    assert all(name.endswith((".nvidia.com", ".nfd.k8s-sigs.io")) for name in definitions)
    assert after == before
    # What the operator found out about the node stays on it, and nothing of this program's.
    more = left["labels"].keys() - metadata["labels"].keys()
    assert all(name.startswith(("nvidia.com/", "feature.node.kubernetes.io/")) for name in more)
    assert objects.PLUGIN_CONFIG_LABEL not in more
    # Where no layout is asked for any more, an operator that still runs asks for its own default.
    assert left["labels"].get("nvidia.com/mig.config") in (None, "all-disabled")
    assert left["labels"].items() >= metadata["labels"].items()
    assert left["annotations"] == metadata["annotations"]
