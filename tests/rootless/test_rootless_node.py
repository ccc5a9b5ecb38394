"""A rootless node, as Usernetes has it, for real: kubelet, containerd and NVIDIA's toolkit of an account that
is not root, in the lab's cluster, by the scripts that prepare hosts and nodes. Skipped with the reason where
that cannot be."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpuclusters.proof.model import WHOLE
from gpuclusters.rootless.decide import LEAST_IDS
from lab.gpu_operator.labelling import features
from lab.gpu_operator.sharing import Sharing
from lab.gpu_operator.view import Memory, View
from lab.hosts import GpuState
from lab.nodes import cgroups
from lab.nodes.network import token
from tests.fixtures import go_programs
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import BUILD_SECONDS, cgroup_files, only_where_possible
from tests.rootless import gpu_layer
from tests.rootless.gpu_layer import CONTROL, DRIVER
from tests.rootless.node.machine import RootlessNodeError
from tests.rootless.node.node import SLIRP_HOST
from tests.rootless.rootless_lab import WITH_LIBC, RootlessLab, rootless_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS + 3 * go_programs.BUILD_SECONDS),
]
GPUS = tuple(gpu_layer.UUIDS)
OTHER = gpu_layer.OTHER
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def lab(kube_api: KubeCluster) -> Iterator[RootlessLab]:
    with rootless_lab(kube_api, GPUS) as made:
        yield made


@pytest.fixture(scope="module")
def offered(lab: RootlessLab) -> Iterator[RootlessLab]:
    """NVIDIA's device plugin, in a pod that sees all GPUs, offers them to the kubelet."""
    with lab.plugin():
        eventually(lambda: allocatable(lab) == len(GPUS), "the kubelet offers all GPUs")
        yield lab


def allocatable(lab: RootlessLab) -> int:
    """How many GPUs the node offers."""
    return int(lab.cluster.node(lab.name)["status"]["allocatable"].get(WHOLE, 0))


def uids(lab: RootlessLab) -> set[int]:
    """Owners of the node's processes on the machine."""
    found = set()
    for pid in cgroups.processes(lab.node.groups[0].name):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid).uids().real)
    return found


def test_the_node_is_one_of_the_cluster_and_as_our_inspection_wants_it(lab: RootlessLab) -> None:
    info = lab.cluster.node(lab.name)["status"]["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith("containerd://2.")
    assert info["kubeletVersion"].startswith("v1.36.")
    assert info["bootID"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    live = lab.inspected()
    assert (live.docker, live.container, live.kubelet_conf) == ("ok", "running", True)
    authority = (lab.node.kept / "etc/kubernetes/pki/ca.crt").read_bytes()
    assert live.cluster_id == hashlib.sha256(authority).hexdigest()
    assert live.gpu_unit == "active"
    assert set(live.cdi) == {*GPUS, "all"}
    assert live.host_gpu == live.node_gpu == GPUS
    # As containerd itself says it, out of kind's file and what nvidia-ctk laid over it.
    assert (live.runtime, live.runtime_mode) == ("nvidia", "cdi")


def test_all_of_it_belongs_to_an_account_that_is_not_root(lab: RootlessLab, namespace: str) -> None:
    user = {"securityContext": {"runAsUser": 1000}}
    lab.cluster.pod(namespace, "user", "sleep 100000", container=user)
    lab.cluster.ready(namespace, "user")
    account = lab.node.account_id
    name = lab.node.host.output("id", "-nu", str(account)).strip()
    ranges = lab.node.host.output("grep", f"^{name}:", "/etc/subuid").split()
    first, count = map(int, ranges[0].split(":")[1:])
    assert count == LEAST_IDS
    # An id in the namespace is one of the range outside, 0 the account's own. `pause` is 65535.
    assert {account, first + 999, first + 65534} == uids(lab)


def test_limits_are_set_and_hold(lab: RootlessLab, namespace: str) -> None:
    limits = {"resources": {"limits": {"memory": "24Mi", "cpu": "300m"}}}
    lab.cluster.pod(namespace, "small", "sleep 100000", container=limits)
    greedy = "dd if=/dev/zero of=/dev/null bs=64M count=1"
    lab.cluster.pod(namespace, "greedy", greedy, container=limits, restartPolicy="Never")
    lab.cluster.ready(namespace, "small")
    pod = lab.cluster.found(namespace, "small")["metadata"]["uid"]
    memory = cgroup_files(lab.node.groups, pod, "memory.limit_in_bytes", "memory.max")
    assert str(24 * MEBIBYTE) in memory
    processors = cgroup_files(lab.node.groups, pod, "cpu.cfs_quota_us", "cpu.max")
    assert {"30000", "30000 100000"} & processors

    def ended() -> int | None:
        (state,) = lab.cluster.found(namespace, "greedy")["status"].get("containerStatuses", [{}])
        code: int | None = state.get("state", {}).get("terminated", {}).get("exitCode")
        return code

    eventually(lambda: ended() is not None, "a process that takes more memory ends")
    assert ended() == 128 + signal.SIGKILL


def test_pods_have_a_network_and_the_api_server_reaches_containers(
    lab: RootlessLab, namespace: str
) -> None:
    page = "mkdir /tmp/w; echo hello >/tmp/w/index.html; echo serving; httpd -f -h /tmp/w"
    lab.cluster.pod(namespace, "web", page)
    lab.cluster.pod(namespace, "client", "sleep 100000")
    lab.cluster.ready(namespace, "web", "client")
    eventually(lambda: lab.cluster.logs(namespace, "web") == "serving\n", "it serves")
    address = lab.cluster.found(namespace, "web")["status"]["podIP"]
    assert address.startswith(lab.cluster.node(lab.name)["spec"]["podCIDR"].rpartition(".")[0])

    def gets(*command: str) -> str:
        return lab.cluster.run_in(namespace, "client", *command).stdout

    fetch = ("wget", "-qO-", f"http://{address}/")
    eventually(lambda: gets(*fetch) == "hello\n", "the page is fetched")
    reach = "nc -w 30 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && echo reached"
    eventually(lambda: gets("sh", "-c", reach) == "reached\n", "the API server is reached")
    # Another port of the machine, where somebody listens.
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = f"nc -w 60 {SLIRP_HOST} {server.getsockname()[1]} </dev/null"
        done = lab.cluster.run_in(namespace, "client", "sh", "-c", away)
        assert "refused" in done.stderr


def test_a_pod_gets_its_gpu_by_the_real_hooks_and_no_other(
    offered: RootlessLab, namespace: str
) -> None:
    lab = offered
    lab.look(namespace, "one", gpus=1)
    lab.look(namespace, "two", gpus=2)
    one, two = lab.seen(namespace, "one"), lab.seen(namespace, "two")
    assert (len(one.gpus), len(two.gpus)) == (1, 2)
    assert {*one.gpus, *two.gpus} == set(GPUS)
    for seen in (one, two):
        # The specification says so: whatever looks at the variable once more gives nothing twice.
        assert seen.visible == "void"
        # The nodes that were given, and what NVML finds by them.
        numbers = {GPUS.index(uuid) for uuid in seen.gpus}
        assert seen.devices == CONTROL | {f"/dev/nvidia{number}" for number in numbers}
    lab.look(namespace, "more", gpus=1)
    said = f"Insufficient {WHOLE}"
    eventually(lambda: said in str(lab.cluster.found(namespace, "more")["status"]), "more waits")
    # What hooks do: links to libraries, and the cache by which a program finds them.
    links = "readlink /usr/lib/*/libcuda.so.1; grep -c libnvidia-ml.so.1 /etc/ld.so.cache"
    made = lab.cluster.run_in(namespace, "one", "sh", "-c", links)
    assert re.fullmatch(r"libcuda\.so\.[0-9.]+\n[1-9]\n", made.stdout), made
    lab.cluster.kubectl("delete", "pod", f"--namespace={namespace}", "two", "--now")
    lab.cluster.ready(namespace, "more")
    # Who asks for none has nothing of a driver.
    lab.cluster.pod(namespace, "none", "sleep 100000", container={"image": WITH_LIBC})
    lab.cluster.ready(namespace, "none")
    look = "find / -xdev -name '*nvidia*' -o -name 'libcuda*'; ls /dev; mknod /tmp/gpu c 195 0 2>&1"
    said = lab.cluster.run_in(namespace, "none", "sh", "-c", look).stdout.split()
    assert "null" in said
    assert [word for word in said if "nvidia" in word or "cuda" in word] == []
    # Root of it cannot make itself one either.
    assert said[-3:] == ["Operation", "not", "permitted"]


def test_nvidias_feature_discovery_finds_what_the_labs_stand_in_says(
    lab: RootlessLab, namespace: str
) -> None:
    found = lab.features(namespace, "features")
    assert found["nvidia.com/gpu.product"] == "Tesla-V100-SXM2-16GB"
    assert found["nvidia.com/gpu.count"] == str(len(GPUS))
    assert found["nvidia.com/gpu.memory"] == "16384"
    assert found["nvidia.com/gpu.family"] == "volta"
    assert found["nvidia.com/gpu.sharing-strategy"] == "none"
    state = GpuState("Tesla V100-SXM2-16GB", len(GPUS), len(GPUS), DRIVER, DRIVER, None, False)
    view = View("gpu-operator", {}, {}, {"n": state}, (), {}, (), Memory(Path("state.json")))
    played = features(view, "n", Sharing.of(""))
    # It is asked for no strategy of MIG here, and says none where no GPU has any.
    assert played.pop("nvidia.com/mig.strategy") == "single"
    assert {key: found.get(key) for key in played} == played


def test_without_a_driver_our_step_fails_and_with_it_puts_the_node_right(
    offered: RootlessLab, namespace: str
) -> None:
    lab = offered
    lab.look(namespace, "before", visible=GPUS[0])
    assert lab.seen(namespace, "before").gpus == GPUS[:1]
    lab.replace_gpus()
    with pytest.raises(RootlessNodeError):
        lab.script("gpus.sh")
    broken = lab.inspected()
    assert (broken.gpu_unit, broken.cdi, broken.node_gpu) == ("failed", (), ())
    lab.replace_gpus(*GPUS)
    containerd = lab.node.output("cat", "/run/units/containerd.pid")
    lab.script("gpus.sh")
    assert lab.inspected().gpu_unit == "active"
    eventually(
        lambda: (
            lab.node.run("cat", "/run/units/containerd.pid").stdout not in ("", containerd)
            and lab.node.run("ctr", "version").returncode == 0
        ),
        "containerd was restarted",
    )
    assert set(lab.inspected().cdi) == {*GPUS, "all"}
    (state,) = lab.cluster.found(namespace, "before")["status"]["containerStatuses"]
    assert (state["restartCount"], "running" in state["state"]) == (0, True)


def test_after_a_restart_the_node_sets_the_gpus_of_now_up_by_itself(
    offered: RootlessLab, namespace: str
) -> None:
    lab = offered
    lab.look(namespace, "lives", visible="all")
    assert lab.seen(namespace, "lives").gpus == GPUS
    lab.node.stop()
    assert uids(lab) == set()
    with pytest.raises(RootlessNodeError, match="is not running"):
        lab.node.output("true")
    lab.replace_gpus(OTHER)
    lab.node.start()
    assert set(lab.inspected().cdi) == {OTHER, "all"}
    eventually(
        lambda: lab.seen(namespace, "lives").gpus == (OTHER,),
        "the pod runs again with what is there",
    )
    eventually(lambda: allocatable(lab) == 1, "the plugin offers the GPU of now")
    lab.look(namespace, "new", gpus=1)
    assert lab.seen(namespace, "new").gpus == (OTHER,)


def traces(mark: str, port: int) -> set[str]:
    """What runs of a rootless node on the machine: its processes, and its port if it answers."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            groups = (Path("/proc") / str(process.pid) / "cgroup").read_text()
            if mark in groups or mark in " ".join(process.cmdline()):
                found.add(f"process {process.pid} {process.name()}")
    with socket.socket() as probe:
        answers = probe.connect_ex(("127.0.0.1", port)) == 0
    return found | ({f"port {port}"} if answers else set())


def seen(folder: Path | None = None) -> this_machine.Seen:
    """What a node in this folder could change on the machine itself."""
    accounts = [file for file in (Path("/etc/passwd"), Path("/etc/subuid")) if file.exists()]
    lines = {line for file in accounts for line in file.read_text().splitlines()}
    return this_machine.seen(folder) | {"accounts": lines}


def test_nothing_is_left_when_its_holder_is_killed(kube_api: KubeCluster, tmp_path: Path) -> None:
    name = f"rootless-{os.getpid()}"
    before = seen()
    serve = (sys.executable, "-m", "tests.rootless.node")
    command = (*serve, str(tmp_path), str(kube_api.folder), name)
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        said = holder.stdout.readline()
        port = int(said.rpartition(":")[2])
        mark = token(tmp_path)
        assert {word.split()[0] for word in traces(mark, port)} == {"process", "port"}
        # All the time, not only afterwards.
        running = seen(tmp_path)
        assert this_machine.of(running, mark) != []
        assert this_machine.changed(before, running, tmp_path) == {}
        holder.kill()
        holder.wait()
        eventually(lambda: not traces(mark, port), "everything is gone")
        after = seen(tmp_path)
        assert this_machine.of(after, mark) == []
        assert this_machine.changed(before, after, tmp_path) == {}
    finally:
        holder.kill()
        with kube_api.api() as api:
            api.delete(f"/api/v1/nodes/{name}")
