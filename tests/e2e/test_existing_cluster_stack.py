"""The GPU Operator on a cluster that was there: up, changed, and down by the embedded engine.

Nobody logs in to a machine of it: what is known of it is the kubeconfig, a secret of the stack.
"""

from __future__ import annotations

import hashlib
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.cli import doctor
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.config.rke2_cluster import FoundCluster
from gpuclusters.gpu_operator import objects
from lab import nodes, tools
from lab.gpu_operator import toolkit
from lab.nodes.folder import RealNodeFolder
from tests.e2e.conftest import SOURCE, Checkout, linked
from tests.engine.warmkit import warm_project
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import REAL_NODE, RealLab, found_cluster, simulated

pytestmark = REAL_NODE

NODE = "gpu-01"
CHART = "gpu-operator.tgz"
OWNERS = {"labels": {"example.com/rack": "7"}, "annotations": {"example.com/owner": "ops"}}
"""What the owner of the cluster has written to its node."""
GPUS = {f"/dev/nvidia{number}" for number in range(8)}
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
LOOK = "ls -1d /dev/nvidia* 2>/dev/null; echo looked; sleep 100000"
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
    lab: RealLab

    def node(self) -> dict[str, Any]:
        return self.lab.node(NODE)

    def doctor(self) -> dict[str, str]:
        """What `doctor` says of the cluster, by code."""
        config = read_valid(Project(self.dev.folder, self.dev.lab), "dev").section
        assert isinstance(config, FoundCluster)
        said = doctor.found_cluster(config, self.lab.cluster.kubeconfig.read_text())
        return {one.id: f"{one.text}; {one.fix}" for one in said if one.id}

    def handlers(self) -> set[str]:
        """The runtimes that the node itself tells of."""
        return {one["name"] for one in self.node()["status"].get("runtimeHandlers", ())}

    def containerd(self) -> dict[str, Any]:
        """The part about runtimes of what containerd reads."""
        main = RealNodeFolder(self.lab.folder / NODE).containerd_configuration
        read: dict[str, Any] = tomllib.loads(self.lab.containerd(NODE, main))["plugins"]
        found: dict[str, Any] = read["io.containerd.cri.v1.runtime"]["containerd"]
        return found

    def seen(self, name: str, *, visible: str = "", gpus: int = 0, **spec: Any) -> set[str]:
        """The device nodes of GPUs that a container has."""
        container = {
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": visible}] if visible else [],
            "resources": {"limits": {"nvidia.com/gpu": gpus}} if gpus else {},
        }
        self.lab.pod("default", name, LOOK, container=container, **spec)
        self.lab.ready("default", name)
        eventually(lambda: self.lab.logs("default", name).endswith("looked\n"), "it looked")
        lines = self.lab.logs("default", name).splitlines()
        self.lab.kubectl("delete", "pod", name, "--now")
        return {line for line in lines if line.startswith("/dev/")}

    def comes_up(self, gpus: dict[str, str], default_runtime: str) -> None:
        """What the node offers, and whether NVIDIA's toolkit is told to make its runtime the default."""
        self.dev.up("--yes")
        found: Mapping[str, str] = self.node()["status"]["allocatable"]
        offered = {k: v for k, v in found.items() if k.startswith("nvidia.com/") and v != "0"}
        assert offered == gpus
        (policy,) = self.lab.got("/apis/nvidia.com/v1/clusterpolicies")["items"]
        env = {one["name"]: one["value"] for one in policy["spec"]["toolkit"]["env"]}
        assert env["NVIDIA_RUNTIME_SET_AS_DEFAULT"] == default_runtime
        self.dev.up_again()

    def names(self) -> dict[str, set[str]]:
        """All objects of some collections, with their namespaces."""
        found = {}
        for path in COLLECTIONS:
            metadata = [item["metadata"] for item in self.lab.got(path)["items"]]
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
        made = World(dev, found)
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
    assert world.doctor() == {}
    assert not any(name.startswith("nvidia") for name in world.handlers())
    world.lab.kubectl("label", "node", NODE, "microk8s.io/cluster=true")
    said = world.doctor()
    assert set(said) == {"gpu-operator.distribution-differs"}
    assert "write kubernetes.distribution: microk8s" in said["gpu-operator.distribution-differs"]
    world.lab.kubectl("label", "node", NODE, "microk8s.io/cluster-")

    before, metadata = world.names(), world.node()["metadata"]
    world.comes_up({"nvidia.com/gpu": "8"}, "false")
    key = yaml.safe_load(world.lab.cluster.kubeconfig.read_text())["users"][0]["user"]
    assert key["client-key-data"] not in str(world.dev.state())
    # Without the default a container gets what it asks Kubernetes for.
    runtimes = world.containerd()
    assert runtimes["default_runtime_name"] == "runc"
    assert runtimes["runtimes"]["nvidia"]["options"]["BinaryName"] == toolkit.RUNTIME
    (given,) = world.seen("one", gpus=1) - CONTROL
    assert given in GPUS
    # A variable alone gives nothing, unless the pod has the class of containers that manage GPUs.
    assert world.seen("names-all", visible="all") == set()
    assert world.seen("manages", visible="all", runtimeClassName="nvidia") == GPUS | CONTROL

    world.configure(default_runtime=True, mig="all-1g.10gb")
    world.comes_up({"nvidia.com/mig-1g.10gb": "56"}, "true")
    # With the default a variable gives any pod all GPUs; who asks nobody gets none.
    default = "the toolkit made its runtime the default"
    eventually(lambda: world.containerd()["default_runtime_name"] == "nvidia", default)
    assert world.seen("takes-all", visible="all") >= GPUS | CONTROL
    assert world.seen("asks-nobody") == set()
    assert world.doctor() == {}

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

    # What a toolkit left is found by what the node says.
    eventually(lambda: "nvidia" in world.handlers(), "the node tells of the runtime")
    said = world.doctor()
    assert set(said) == {"gpu-operator.toolkit-left"}
    assert toolkit.DROP_IN in said["gpu-operator.toolkit-left"]
    host = simulated(world.lab.cluster.folder, NODE)
    assert host.sudo(f"rm {toolkit.DROP_IN}").returncode == 0
    nodes.control(world.lab.folder, NODE, "containerd", "restart")
    eventually(lambda: "nvidia" not in world.handlers(), "the node tells of it no more")
    assert world.doctor() == {}
