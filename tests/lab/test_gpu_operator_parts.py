"""Parts of the lab's GPU Operator that need no cluster, and the chart as Helm renders it."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from lab import gpu_operator, tools
from lab.gpu_operator import faults, machines, operands, policy
from lab.gpu_operator.machines import HostMachines
from lab.gpu_operator.operands import Operand
from lab.gpu_operator.playing import RKE2_SOCKET
from lab.gpu_operator.sharing import Sharing, balanced, devices, layouts, product
from lab.gpu_operator.view import Memory, View
from lab.hosts import GpuState
from lab.hosts.rke2.rke2_cluster import Clusters
from tests.fixtures.control_plane import KubeCluster

CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / "gpu-operator"


def gpus(**changes: Any) -> GpuState:
    values: dict[str, Any] = {
        "product": "NVIDIA A100-SXM4-80GB",
        "count": 2,
        "usable": 2,
        "driver_version": "580.178.04",
        "installed_version": "580.178.04",
        "mig": {},
        "nouveau": False,
    }
    return GpuState(**values | changes)


def test_whole_gpus_are_offered_as_such_and_none_without_a_driver() -> None:
    assert devices(gpus(), "single", Sharing()) == {"nvidia.com/gpu": ["0", "1"]}
    assert devices(gpus(usable=0), "single", Sharing()) == {}


def test_slices_are_called_as_the_strategy_says() -> None:
    """ "Strategy single → resource `nvidia.com/gpu` counts slices …; mixed → `nvidia.com/mig-1g.10gb` plus
    `nvidia.com/gpu` for un-MIGed GPUs" (NVIDIA MIG support in Kubernetes)."""
    cut = gpus(mig={0: ("1g.10gb", "1g.10gb")})
    assert devices(cut, "mixed", Sharing()) == {
        "nvidia.com/mig-1g.10gb": ["0:0", "0:1"],
        "nvidia.com/gpu": ["1"],
    }
    assert devices(cut, "single", Sharing()) == {"nvidia.com/gpu": ["0:0", "0:1", "1"]}
    assert product(cut, "single", Sharing()) == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"
    assert product(cut, "mixed", Sharing()) == "NVIDIA-A100-SXM4-80GB"


@pytest.mark.parametrize("kind", ["timeSlicing", "mps"])
def test_shared_gpus_have_another_name_or_another_product(kind: str) -> None:
    """ "renameByDefault → resource `nvidia.com/gpu.shared`; otherwise the product label gets `-SHARED`"
    (NVIDIA/k8s-device-plugin, Shared Access to GPUs)."""
    rules: dict[str, Any] = {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}
    plain = Sharing.of(yaml.safe_dump({"sharing": {kind: rules}}))
    assert len(devices(gpus(), "none", plain)["nvidia.com/gpu"]) == 6
    assert product(gpus(), "none", plain).endswith("-SHARED")
    renamed = Sharing.of(yaml.safe_dump({"sharing": {kind: {**rules, "renameByDefault": True}}}))
    assert len(devices(gpus(), "none", renamed)["nvidia.com/gpu.shared"]) == 6
    assert not product(gpus(), "none", renamed).endswith("-SHARED")


def test_layouts_are_the_named_ones_or_those_of_a_config_map() -> None:
    assert layouts("all-disabled", 2, "") == [{}]
    assert layouts("all-enabled", 2, "") == [{0: (), 1: ()}]
    assert layouts("all-1g.10gb", 1, "")[0] == {0: ("1g.10gb",) * 7}
    assert layouts("nonsense", 1, "") == []
    assert balanced(1, ["1g.10gb", "2g.20gb", "3g.40gb"]) == [
        {0: ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb")}
    ]
    half = [
        {"devices": [0], "mig-enabled": False},
        {"devices": [1], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
    ]
    text = yaml.safe_dump({"version": "v1", "mig-configs": {"half": half}})
    assert layouts("half", 2, text) == [{1: ("3g.40gb", "3g.40gb")}]
    assert layouts("all-1g.10gb", 2, text) == []


@pytest.mark.parametrize(
    ("nfd", "nodes", "waiting", "reason", "state"),
    [
        (False, False, [], "NFDLabelsMissing", "ready"),
        (True, False, [], "NoGPUNodes", "ready"),
        (True, True, [], "Reconciled", "ready"),
        (True, True, ["state-driver"], "OperandNotReady", "notReady"),
    ],
)
def test_ready_is_also_said_with_nothing_to_do(
    *, nfd: bool, nodes: bool, waiting: list[str], reason: str, state: str
) -> None:
    """As `controllers/clusterpolicy_controller.go` of v26.7.0: "no NFD-labelled node in the cluster …
    Update CR state as ready as all states are complete"."""
    found = policy.status(
        {}, "gpu-operator", has_nfd_labels=nfd, has_gpu_nodes=nodes, not_ready=waiting
    )
    assert found["state"] == state
    holds = next(c for c in found["conditions"] if c["status"] == "True")
    assert holds["reason"] == reason
    if waiting:
        assert holds["message"] == "ClusterPolicy is not ready; states not ready: [state-driver]"


def test_an_operand_whose_section_was_pruned_is_not_deployed() -> None:
    spec = {"toolkit": {"enabled": True}, "driver": {"enabled": False}}
    names = [one.name for one in operands.wanted({"spec": spec})]
    assert names == ["nvidia-container-toolkit-daemonset", "nvidia-operator-validator"]


def test_faults_are_injected_by_name_and_refused_by_what_is_wrong(tmp_path: Path) -> None:
    faults.inject(tmp_path, faults.parse("operator-driver-slow", {"seconds": "2", "node": "a"}))
    (found,) = faults.read(tmp_path)
    assert isinstance(found, faults.DriverSlow)
    assert found.concerns("a")
    assert not found.concerns("b")
    faults.clear(tmp_path)
    assert faults.read(tmp_path) == []
    with pytest.raises(gpu_operator.OperatorError, match=r"'operator-driver-slow': .*seconds"):
        faults.parse("operator-driver-slow", {"seconds": "0"})
    with pytest.raises(gpu_operator.OperatorError, match="'no-such-fault'"):
        faults.parse("no-such-fault", {})


def view(tmp_path: Path, *ready: Operand, fault: Any = None, socket: bool = True) -> View:
    """One node on which these operands are ready; the others have a pod that is not."""
    env = [{"name": "CONTAINERD_SOCKET", "value": RKE2_SOCKET}] if socket else []
    sections = {one.section: {"enabled": True, "image": one.name} for one in operands.OPERANDS}
    sections["toolkit"] |= {"env": env}
    pods = [
        {
            "metadata": {"name": one.name, "labels": {"app": one.name}},
            "spec": {"nodeName": "gpu-01", "containers": [{"image": f"nvcr.io/{one.name}:1"}]},
            "status": {"conditions": [{"type": "Ready", "status": str(one in ready)}]},
        }
        for one in operands.OPERANDS
    ]
    return View(
        namespace="gpu-operator",
        policy={"spec": sections},
        nodes={"gpu-01": {"metadata": {"labels": {}}}},
        machines={"gpu-01": gpus(driver_version=None, usable=0)},
        pods=pods,
        configs={},
        faults=[fault] if fault else [],
        memory=Memory(tmp_path / "state.json"),
    )


@pytest.mark.parametrize(
    ("servers", "node", "restarted", "away"),
    [
        ([], "gpu-01", [], False),
        (["gpu-01"], "gpu-01", [("gpu-01", "server")], True),
        (["gpu-01"], "gpu-09", [("gpu-09", "agent")], False),
        (["gpu-01", "gpu-02", "gpu-03"], "gpu-01", [("gpu-01", "server")], False),
    ],
)
def test_the_toolkit_restarts_rke2_and_a_single_server_takes_its_api_along(
    servers: list[str],
    node: str,
    restarted: list[tuple[str, str]],
    *,
    away: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ "restarts containerd with a hangup call which restarts RKE2" (RKE2 documentation, GPU operators)."""
    hosts = dict.fromkeys(servers, "server") | ({"gpu-09": "agent"} if servers else {})
    for host in hosts:
        (tmp_path / host / "root" / "var/lib/rancher/rke2/agent").mkdir(parents=True)
    if servers:
        members = {host: {"role": role} for host, role in hosts.items()}
        Clusters(tmp_path).save({"id": "c", "names": [], "members": members})
    done: list[tuple[str, str]] = []
    gone: list[Path] = []

    async def restart(self: HostMachines, name: str, role: str) -> None:
        done.append((name, role))

    monkeypatch.setattr(HostMachines, "_restart", restart)
    monkeypatch.setattr(machines, "_api_goes_away", gone.append)
    asyncio.run(HostMachines(tmp_path, tmp_path).restart_rke2(node))
    assert done == restarted
    assert bool(gone) is away


@pytest.mark.lab
def test_the_process_is_started_once_found_and_stopped(
    kube_api: KubeCluster, tmp_path: Path
) -> None:
    def start() -> int | None:
        return gpu_operator.start(
            tmp_path / "operator",
            gpu_operator.OperatorSpec(control_plane=kube_api.folder, hosts=tmp_path / "hosts"),
        ).pid

    first = start()
    assert first is not None
    try:
        assert start() == first
        assert gpu_operator.status(tmp_path / "operator").running
    finally:
        gpu_operator.stop(tmp_path / "operator")
    assert not psutil.pid_exists(first)
    assert gpu_operator.status(tmp_path / "operator").detail == "not started"


def test_without_a_control_plane_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(gpu_operator.OperatorError, match="there is no control plane in"):
        gpu_operator.start(
            tmp_path / "operator",
            gpu_operator.OperatorSpec(control_plane=tmp_path, hosts=tmp_path / "hosts"),
        )
    assert not gpu_operator.status(tmp_path / "operator").running
    gpu_operator.stop(tmp_path / "operator")


def render(**values: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tools.resolve("helm")), "template", "gpu-operator", str(CHART), "-f", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("values", "refusal"),
    [
        (
            {"clusterPolicy": {"deployCR": True}, "gpuCluster": {"deployCR": True}},
            "clusterPolicy.deployCR and gpuCluster.deployCR cannot both be true",
        ),
        (
            {"cdi": {"enabled": False, "nriPluginEnabled": True}},
            "the NRI Plugin cannot be enabled when CDI is disabled",
        ),
        (
            {"cdi": {"nriPluginEnabled": True}, "toolkit": {"enabled": False}},
            "the NRI Plugin cannot be enabled when the Container Toolkit is disabled",
        ),
        (
            {"devicePlugin": {"config": {"create": True, "name": "x"}}},
            "devicePlugin.config.data cannot be empty",
        ),
        (
            {"devicePlugin": {"config": {"create": True, "data": {"a": "b"}}}},
            "devicePlugin.config.name cannot be empty",
        ),
        ({"sandboxWorkloads": {"enabled": True}}, "plays no sandbox workloads"),
    ],
)
def test_the_chart_refuses_what_the_real_one_refuses(
    tools_at_hand: None, values: dict[str, Any], refusal: str
) -> None:
    done = render(**values)
    assert done.returncode != 0
    assert refusal in done.stderr


def test_the_chart_ignores_keys_that_it_does_not_know_as_the_real_one_does(
    tools_at_hand: None,
) -> None:
    typo = render(driver={"useOpenKernelModules": True, "enabledd": True}, psp={"enabled": True})
    assert typo.returncode == 0
