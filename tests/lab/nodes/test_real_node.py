"""Two real nodes beside the control plane: pods, Services and names on them; nothing of them stays."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lab import nodes, tools
from lab.nodes import Kind, Wanted, choose, machine_facts
from lab.nodes.choice import INOTIFY_NEEDED
from lab.nodes.network import token
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import REAL_NODE, RealLab, cgroup_files, lives, real_lab
from tests.lab.nodes.this_machine import Seen

pytestmark = REAL_NODE

_SERVES = "echo $HOSTNAME > /tmp/index.html; exec httpd -f -h /tmp -p 8000"
_TRIES = 30
_BOTH = {"one", "two"}
_OTHERS = "of-somebody-else"
_NAMED = {"kubelet", "dockerd", "cri-dockerd", "crio", "k3s-server", "rke2", "k0s", "kubelite"}


@pytest.fixture(scope="module")
def before(kube_api: KubeCluster) -> Seen:
    """The machine without these nodes."""
    return this_machine.seen()


@pytest.fixture(scope="module")
def lab(kube_api: KubeCluster, before: Seen) -> Iterator[RealLab]:
    """A pod with a name of its own on each of two nodes, behind two Services; and a pod that asks."""
    with real_lab(kube_api, 2) as made:
        made.kubectl("create", "namespace", made.token)
        try:
            fill(made, made.token)
            yield made
        finally:
            made.kubectl("delete", "namespace", made.token, "--wait=false")


def fill(made: RealLab, space: str) -> None:
    for name, address in (("web", {}), ("peers", {"clusterIP": "None"})):
        spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8000}], **address}
        metadata = {"name": name, "namespace": space}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        made.kubectl("create", "-f", "-", given=json.dumps(service))
    labels = {"labels": {"app": "web"}}
    for name, node in zip(("one", "two"), made.names, strict=True):
        its = {"nodeName": node, "hostname": name, "subdomain": "peers"}
        made.pod(space, name, _SERVES, metadata=labels, **its)
    made.pod(space, "asks", "sleep 1000", nodeName=made.names[0])
    made.ready(space, "one", "two", "asks")


def said(lab: RealLab, script: str, pod: str = "asks") -> str:
    """What a script prints in a pod."""
    return lab.run_in(lab.token, pod, "sh", "-c", script).stdout


def fetched(lab: RealLab, host: str, pod: str = "asks", times: int = 1) -> set[str]:
    """What a pod gets at an address; nothing where nobody answers."""
    return {*said(lab, f"for i in $(seq {times}); do wget -qO- http://{host}/; done", pod).split()}


def through(port: int) -> str:
    """What the machine gets at a port of its loopback; empty if nothing."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120) as answer:
            return str(answer.read().decode().strip())
    except (OSError, http.client.HTTPException):
        return ""


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every process that has to do with the folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                found.append(process)
    return found


def test_the_nodes_are_what_kubectl_shows_of_real_ones_and_a_second_start_changes_nothing(
    lab: RealLab,
) -> None:
    for name in lab.names:
        info = lab.node(name)["status"]["nodeInfo"]
        assert info["containerRuntimeVersion"].startswith("containerd://2.")
        assert info["kubeletVersion"] == "v1.36.3"
    before = nodes.status(lab.folder)
    assert lab.start() == before


@pytest.mark.parametrize("pod", ["asks", "one"])
def test_a_service_leads_to_pods_of_all_nodes_also_those_behind_it(lab: RealLab, pod: str) -> None:
    eventually(lambda: fetched(lab, "web", pod, _TRIES) == _BOTH, "both answer")


def test_names_of_the_cluster_are_found_and_nothing_beyond_it(lab: RealLab) -> None:
    for name in _BOTH:
        host = f"{name}.peers.{lab.token}.svc.cluster.local:8000"
        # Names of what is there are known a moment later.
        eventually(lambda host=host: fetched(lab, host) != set(), f"{name} is found by its name")
        assert fetched(lab, host) == {name}
    # The API server, and who answers names, over TCP too.
    for server in ("kubernetes.default 443", "10.96.0.10 53"):
        reach = f"nc -w 30 {server} </dev/null && echo reached"
        eventually(lambda reach=reach: said(lab, reach) == "reached\n", server)
    for name, answer in (
        ("kubernetes.default.svc.cluster.local", "10.96.0.1\n"),
        ("example.com", "NXDOMAIN"),
    ):
        look = f"nslookup {name}"
        eventually(lambda look=look, answer=answer: answer in said(lab, look), look)
    done = lab.run_in(lab.token, "asks", "sh", "-c", "nc -w 3 192.0.2.1 80 </dev/null")
    assert done.returncode != 0


def test_the_machine_reaches_a_service_by_its_entrance_also_while_a_node_is_cut_off(
    lab: RealLab,
) -> None:
    port = nodes.entrance(lab.folder, lab.token, "web", 80)
    eventually(lambda: through(port) != "", "the Service answers")
    assert {through(port) for _ in range(_TRIES)} == _BOTH
    assert nodes.entrance(lab.folder, lab.token, "web", 80) == port
    assert nodes.entrance(lab.folder, lab.token, "peers", 80) != port
    assert through(nodes.entrance(lab.folder, lab.token, "none", 80)) == ""
    # The cluster does not know yet: half of what each node tries leads to the pod of the other.
    nodes.control(lab.folder, lab.names[1], "cable", "stop")
    try:
        answers = {through(port) for _ in range(5)}
    finally:
        nodes.control(lab.folder, lab.names[1], "cable", "start")
    assert answers <= _BOTH


def test_kube_proxy_is_a_program_of_the_node_and_its_rules_are_not_on_the_machine(
    lab: RealLab,
) -> None:
    first = lab.names[0]
    before = nodes.control(lab.folder, first, "kube-proxy", "state")
    after = nodes.control(lab.folder, first, "kube-proxy", "restart")
    assert before
    assert after not in (None, before)
    # Its rules stay while it is away.
    assert fetched(lab, "web")
    with this_machine.filter_command("iptables-save") as save:
        assert f"{lab.token}/web" in lab.in_node(first, str(save))
        # The machine may be a node of somebody else's cluster.
        here = subprocess.run([save], capture_output=True, text=True, check=True).stdout
        assert lab.token not in here


def test_limits_are_set_in_the_cgroups_of_the_node(lab: RealLab, namespace: str) -> None:
    container = {"resources": {"limits": {"memory": "32Mi", "cpu": "100m"}}}
    lab.pod(namespace, "small", "sleep 1000", container=container)
    lab.ready(namespace, "small")
    pod = lab.found(namespace, "small")
    group = f"gpu-clusters-{token(lab.folder)}-{pod['spec']['nodeName']}"
    groups = [Path("/sys/fs/cgroup/memory", group), Path("/sys/fs/cgroup", group)]
    limits = cgroup_files(groups, pod["metadata"]["uid"], "memory.limit_in_bytes", "memory.max")
    assert str(32 << 20) in limits


@pytest.mark.attack(
    by="whoever may make pods on a real node of the lab",
    tries="write as root into the computer's /opt, /home and /root from a container",
    stopped_by="the node's folders are copies in memory",
)
def test_root_in_a_hostpath_pod_writes_nothing_on_the_computer(
    lab: RealLab, namespace: str
) -> None:
    name = f"by-a-pod-{lab.token}"
    places = ("/opt", "/home", "/root")
    mounts = [{"name": p[1:], "mountPath": f"/machine{p}"} for p in places]
    volumes = [{"name": p[1:], "hostPath": {"path": p}} for p in places]
    write = "; ".join(f"echo here > /machine{p}/{name}" for p in places)
    script = f"{write}; cat /machine/*/{name}; sleep 1000"
    lab.pod(namespace, "writes", script, container={"volumeMounts": mounts}, volumes=volumes)
    eventually(lambda: lab.logs(namespace, "writes") == "here\n" * 3, "what it wrote")
    assert [place for place in places if Path(place, name).exists()] == []


def test_pods_live_on_while_their_kubelet_is_restarted(lab: RealLab) -> None:
    first = lab.names[0]
    assert nodes.control(lab.folder, first, "kubelet", "stop") is None
    assert nodes.control(lab.folder, first, "kubelet", "start")
    assert nodes.control(lab.folder, first, "containerd", "restart")
    eventually(lambda: said(lab, "echo lives") == "lives\n", "its kubelet answers again")
    assert lab.restarts(lab.token, "asks") == 0
    for node, program, refusal in (
        (first, "docker", "no program 'docker'"),
        ("other", "kubelet", "no node 'other'"),
    ):
        with pytest.raises(nodes.NodesError, match=refusal):
            nodes.control(lab.folder, node, program, "start")


def test_after_a_kill_of_everything_a_start_begins_anew(lab: RealLab) -> None:
    before = nodes.status(lab.folder)
    for process in processes_of(lab.folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    eventually(lambda: not nodes.status(lab.folder).running, "it is seen to be gone")
    assert "gone without having been stopped" in nodes.status(lab.folder).detail
    after = lab.start()
    assert after.running
    assert after.pid != before.pid
    assert after.subnet == before.subnet
    eventually(lambda: said(lab, "echo again") == "again\n", "the pod runs once more")


def test_a_stop_leaves_the_machine_as_it_was_and_a_start_keeps_entrances(
    lab: RealLab, before: Seen
) -> None:
    own = token(lab.folder)
    port = nodes.entrance(lab.folder, lab.token, "web", 80)
    running = this_machine.seen(lab.folder)
    assert any(own in name for name in running["interfaces"])
    nodes.stop(lab.folder)
    stopped = this_machine.seen(lab.folder)
    nodes.stop(lab.folder)
    try:
        assert this_machine.of(stopped, own) == []
        # While the nodes ran, the machine had their interface, its routes and their cgroups: nothing else.
        assert this_machine.changed(running, stopped, lab.folder) == {}
        assert this_machine.changed(before, stopped, lab.folder) == {}
        assert not processes_of(lab.folder)
        assert not (lab.folder / "undo.json").exists()
        assert through(port) == ""
    finally:
        lab.start()
    eventually(lambda: through(port) != "", "the same entrance leads there")


def test_kubelets_and_runtimes_of_the_machine_are_named_and_nothing_else(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        pids = {}
        for name in (*_NAMED, "kubectl", "containerd-shim-runc-v2"):
            (tmp_path / name).symlink_to(sys.executable)
            # Its name is there when the call returns: that waits until the program was found.
            line = [str(tmp_path / name), "-I", "-S", "-c", "import sys; sys.stdin.read()"]
            pids[name] = stack.enter_context(subprocess.Popen(line, stdin=subprocess.PIPE)).pid
        told = machine_facts().others
        ours = {name for name, pid in pids.items() if f"(pid {pid})" in " ".join(told)}
        assert ours == _NAMED
        assert {f"{name} (pid {pids[name]})" for name in _NAMED} <= {*told}


@contextlib.contextmanager
def containerd(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[str]]]:
    """One that is no node's, with everything of it in this folder; and the words by which ctr asks it."""
    programs = tools.ensure(["containerd", "ctr"])
    # They would make folders in /opt, /etc and /run of the machine, where tests beside compare.
    without = [f"io.containerd.{name}" for name in ("internal.v1.opt", "nri.v1.nri", "grpc.v1.cri")]
    configuration = folder / "containerd.toml"
    configuration.write_text(
        f"version = 3\nroot = '{folder}/root'\nstate = '{folder}/state'\n"
        f"disabled_plugins = {json.dumps(without)}\n"
        f"[grpc]\n  address = '{folder}/c.sock'\n"
    )
    with (folder / "log").open("wb") as log:
        line = [str(programs["containerd"]), "--config", str(configuration)]
        process = subprocess.Popen(line, stdout=log, stderr=log)
    ask = [str(programs["ctr"]), "--address", str(folder / "c.sock")]
    create = [*ask, "namespaces", "create", _OTHERS]
    try:
        eventually(
            lambda: process.poll() is not None or subprocess.run(create).returncode == 0,
            "it answers",
        )
        assert process.poll() is None, (folder / "log").read_text()
        yield process, ask
    finally:
        process.terminate()
        process.wait()


def test_a_lab_beside_a_containerd_leaves_it_alone_and_ends_when_its_folder_is_removed(
    kube_api: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # The path of a socket must be short.
    folder = tmp_path_factory.mktemp("c")
    with containerd(folder) as (process, ask):
        socket = (folder / "c.sock").stat().st_ino

        def works_on() -> bool:
            """Whether it is the one that has its namespace still."""
            listed = subprocess.check_output([*ask, "namespaces", "list"], text=True)
            return process.poll() is None and _OTHERS in listed

        # What tests beside take of inotify at this moment is another reason than the one looked at.
        choice = choose(Wanted.AUTO, replace(machine_facts(), inotify=INOTIFY_NEEDED))
        assert choice.kind is Kind.REAL
        assert f"containerd (pid {process.pid})" in choice.why
        assert "already there, left alone" in choice.why
        with real_lab(kube_api) as other:
            # It has a containerd of its own, which is not the one that was there.
            spaces = other.in_node(other.names[0], ask[0], "namespaces", "list")
            assert ("k8s.io" in spaces, _OTHERS in spaces) == (True, False)
            assert works_on()
            own = token(other.folder)
            held = nodes.status(other.folder).pid
            assert held is not None
            (other.folder / "process.json").unlink()
            eventually(lambda: not lives(held), "the process has ended")
            assert this_machine.of(this_machine.seen(other.folder), own) == []
        assert works_on()
        assert (folder / "c.sock").stat().st_ino == socket
