"""The GPU Operator on a real node that was there: containerd's default runtime, by NVIDIA's real toolkit.

The tests of this file build on each other's cluster, which has an API server of its own.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.cli import doctor
from gpuclusters.config import rke2_machines, rke2_plan
from gpuclusters.config.rke2_cluster import FoundCluster
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.gpu_operator.readiness import ReadinessInputs
from gpuclusters.kube.objects import KubernetesObjects
from lab import nodes, tools
from lab.gpu_operator import toolkit
from lab.nodes.folder import RealNodeFolder
from tests.fixtures import nvidia_plugin
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import (
    REAL_NODE,
    RealLab,
    found_cluster,
    install_operator,
    make_room_for_operator,
    simulated,
)
from tests.rootless import gpu_layer
from tests.unit.config.documents import document

pytestmark = REAL_NODE

NODE = "gpu-01"
GPUS = {f"/dev/nvidia{number}" for number in range(8)}
CONTROL = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}
LOOK = "ls -1 /dev/nvidia* 2>/dev/null; echo looked; sleep 100000"
STEP_SECONDS = 450
UUIDS = gpu_layer.UUIDS
DRIVER = "/usr/local/nvidia/driver"
"""Where the node has a driver whose NVML is a stand-in."""
PLUGIN = {
    # As the operator tells it where CDI is on.
    "DEVICE_LIST_STRATEGY": "cdi-cri",
    "NVIDIA_CDI_HOOK_PATH": f"{toolkit.FOLDER}/nvidia-cdi-hook",
    "NVIDIA_DRIVER_ROOT": DRIVER,
    "NVIDIA_DEV_ROOT": "/",
    "DRIVER_ROOT_CTR_PATH": "/driver-root",
}
MOUNTS = {
    "/var/lib/kubelet/device-plugins": "/var/lib/kubelet/device-plugins",
    "/var/run/cdi": "/run/cdi",
    "/driver-root": DRIVER,
    # To be seen, not to be opened.
    **{path: path for path in sorted(CONTROL | {f"/dev/nvidia{n}" for n in range(len(UUIDS))})},
}


def cluster(*, default: bool) -> FoundCluster:
    kubernetes = {"source": "existing", "distribution": "kubeadm", "default-runtime": default}
    gpu = {"product": "a100-sxm4-80gb", "count": 8}
    pools = [{"name": "a", "nodes": [NODE], "gpu": gpu}]
    case = {"found": True, "rke2": {"kubernetes": kubernetes, "pools": pools}}
    parsed = parse(document(ClusterType.RKE2, case))
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    assert isinstance(parsed.section, FoundCluster)
    return parsed.section


@dataclass(frozen=True)
class World:
    folder: Path
    lab: RealLab
    host: SimulatedHost

    @property
    def kubeconfig(self) -> str:
        return (self.folder / "kubeconfig").read_text()

    def doctor(self, *, default: bool = False) -> dict[str, str]:
        """What `doctor` says of the cluster, by code."""
        said = doctor.found_cluster(cluster(default=default), self.kubeconfig)
        return {one.id: f"{one.text}; {one.fix}" for one in said if one.id}

    def handlers(self) -> set[str]:
        """The runtimes that the node itself tells of."""
        status = self.lab.node(NODE)["status"]
        return {one["name"] for one in status.get("runtimeHandlers", ())}

    def containerd(self) -> dict[str, Any]:
        """The part about runtimes of what containerd reads."""
        main = RealNodeFolder(self.folder / "nodes" / NODE).containerd_configuration
        read: dict[str, Any] = tomllib.loads(self.lab.containerd(NODE, main))["plugins"]
        found: dict[str, Any] = read["io.containerd.cri.v1.runtime"]["containerd"]
        return found

    def install(self, *, default: bool) -> None:
        """The release as the configuration makes it, and what its readiness waits for."""
        config = cluster(default=default)
        install_operator(self.lab, rke2_plan.operator_values(config))
        inputs = ReadinessInputs(
            cluster=config.name,
            kubeconfig=self.kubeconfig,
            expected=rke2_machines.expected(config),
        )
        objects = KubernetesObjects(self.kubeconfig)

        def drift() -> Any:
            return inputs.look(objects)[0]["drift"]

        eventually(lambda: drift() == [], "all GPUs are ready", STEP_SECONDS)

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


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("found") / "lab"
    busybox = tools.ensure(["busybox"])["busybox"]
    plugin = nvidia_plugin.image(busybox, folder.parent / "images")
    with found_cluster(folder, NODE, plugin.archive) as real:
        make_room_for_operator(real)
        yield World(folder, real, simulated(folder, NODE))


def test_a_cluster_is_fit_unless_its_node_says_that_it_is_another_distributions(
    world: World,
) -> None:
    assert world.doctor() == {}
    assert not any(name.startswith("nvidia") for name in world.handlers())
    world.lab.kubectl("label", "node", NODE, "microk8s.io/cluster=true")
    said = world.doctor()
    assert set(said) == {"gpu-operator.distribution-differs"}
    assert "write kubernetes.distribution: microk8s" in said["gpu-operator.distribution-differs"]
    world.lab.kubectl("label", "node", NODE, "microk8s.io/cluster-")


def test_without_the_default_a_container_gets_what_it_asks_kubernetes_for(world: World) -> None:
    world.install(default=False)
    runtimes = world.containerd()
    assert runtimes["default_runtime_name"] == "runc"
    assert runtimes["runtimes"]["nvidia"]["options"]["BinaryName"] == toolkit.RUNTIME
    (given,) = world.seen("one", gpus=1) - CONTROL
    assert given in GPUS
    # A variable alone gives nothing, unless the pod has the class of containers that manage GPUs.
    assert world.seen("names-all", visible="all") == set()
    assert world.seen("manages", visible="all", runtimeClassName="nvidia") == GPUS | CONTROL


def test_with_the_default_a_variable_gives_any_pod_all_gpus(world: World) -> None:
    world.install(default=True)
    eventually(
        lambda: world.containerd()["default_runtime_name"] == "nvidia",
        "the toolkit made its runtime the default",
        STEP_SECONDS,
    )
    assert world.seen("takes-all", visible="all") == GPUS | CONTROL
    # Whoever asks Kubernetes gets its GPU all the same, and who asks nobody none.
    assert len(world.seen("asks", gpus=1) - CONTROL) == 1
    assert world.seen("asks-nobody") == set()
    assert world.doctor(default=True) == {}


def test_what_a_toolkit_left_is_found_by_what_the_node_says(world: World) -> None:
    world.lab.cluster.run("helm", "uninstall", "gpu-operator", "-n", "gpu-operator")
    path = "/apis/nvidia.com/v1/clusterpolicies"
    eventually(lambda: not world.lab.got(path)["items"], "no policy is left")
    eventually(lambda: "nvidia" in world.handlers(), "the node tells of the runtime")
    said = world.doctor()
    assert set(said) == {"gpu-operator.toolkit-left"}
    assert toolkit.DROP_IN in said["gpu-operator.toolkit-left"]
    assert world.host.sudo(f"rm {toolkit.DROP_IN}").returncode == 0
    nodes.control(world.folder / "nodes", NODE, "containerd", "restart")
    eventually(lambda: "nvidia" not in world.handlers(), "the node tells of it no more")
    assert world.doctor() == {}


def test_nvidias_device_plugin_gives_a_pod_its_gpu_by_cdi(world: World) -> None:
    """The last: the operator that played it is gone, and what it made of device nodes is still there."""
    gpu_layer.libraries(world.host.path(DRIVER), UUIDS)
    volumes = [
        {"name": f"v{number}", "hostPath": {"path": path}}
        for number, path in enumerate(MOUNTS.values())
    ]
    mounts = [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(MOUNTS)]
    container = {
        "image": nvidia_plugin.IMAGE,
        "command": ["nvidia-device-plugin"],
        "env": [{"name": name, "value": value} for name, value in PLUGIN.items()],
        "volumeMounts": mounts,
    }
    world.lab.pod("default", "plugin", "", container=container, volumes=volumes)

    def offers() -> str:
        offered = world.lab.node(NODE)["status"]["allocatable"]
        return str(offered.get("nvidia.com/gpu", ""))

    eventually(lambda: offers() == str(len(UUIDS)), "the plugin offers what NVML finds")
    given = world.seen("by-cdi", gpus=1) - CONTROL
    assert len(given) == 1
    assert given < {f"/dev/nvidia{number}" for number in range(len(UUIDS))}
    assert len(world.seen("two", gpus=2) - CONTROL) == 2
    world.lab.kubectl("delete", "pod", "plugin", "--now")
