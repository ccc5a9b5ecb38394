"""Pods on a node that the stand-in of the kubelet plays: as on a real one, seen from the API."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from gpuclusters.proof.manifests import LABEL, REACH
from gpuclusters.proof.model import Matmul
from gpuclusters.tenancy.isolation import TENANT_LABEL
from lab import kata_runtime
from lab.control_plane.kube import KubeApi
from lab.kubelet import reachable
from lab.nodes import Kind
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.kubelet import IMAGE, KubeletStandIn, playing
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def kubelet(kube_api: KubeCluster) -> Iterator[KubeletStandIn]:
    """Two nodes; pods of tests are in namespaces of their own, and those of our image end with their test."""
    with playing(kube_api) as make:
        yield make("a", "b")


def post(client: KubeApi, path: str, body: dict[str, Any]) -> None:
    status, answer = client.request("POST", path, body)
    assert status == 201, answer


def pod_on(node: str, name: str = "p", **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 100,
            "containers": [{"name": "main", "image": "any:1", **container}],
        },
    }


def in_phase(client: KubeApi, path: str, phase: str) -> Callable[[], Any]:
    def look() -> dict[str, Any] | None:
        pod = client.get(path)
        return pod if pod["status"]["phase"] == phase else None

    return look


def is_ready(client: KubeApi, path: str, restarts: int = 0) -> Callable[[], Any]:
    def look() -> dict[str, Any] | None:
        pod = client.get(path)
        status = pod["status"]
        ready = any(
            c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ())
        )
        return pod if ready and status["containerStatuses"][0]["restartCount"] == restarts else None

    return look


def is_gone(client: KubeApi, path: str) -> Callable[[], bool]:
    return lambda: bool(client.request("GET", path)[0] == 404)


def test_a_node_is_ready_and_an_ordinary_pod_on_it_runs_has_a_log_and_goes(
    kube_api: KubeCluster, namespace: str, kubelet: KubeletStandIn
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with kube_api.api() as client:
        for name in kubelet.names:
            node = client.get(f"/api/v1/nodes/{name}")
            ready = {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"]
            assert ready == "True"
            assert "nvidia.com/pgpu" not in node["status"]["allocatable"]
            assert node["metadata"]["labels"]["gpu-clusters.dev/stand-in"] == "kubelet"
            notes = node["metadata"]["annotations"]
            assert notes[kata_runtime.ANNOTATION] == kata_runtime.stand_in(Kind.SIMULATED)
        assert "stand-in" in kubelet.log().splitlines()[0]
        post(client, pods, pod_on(kubelet.name, command=["serve", "me"]))
        pod = eventually(in_phase(client, f"{pods}/p", "Running"))
        assert pod["status"]["podIP"].startswith("10.")
        log = kube_api.run("kubectl", "logs", "-n", namespace, "p", "--timestamps")
        assert log.endswith(" simulated container any:1 serve me\n")
        assert log[:4].isdigit()
        for way in (("exec", "p", "--", "ls"), ("attach", "p"), ("port-forward", "p", ":80")):
            said = kube_api.run("kubectl", "--namespace", namespace, *way, fails=True)
            assert f"{namespace}/p is a played pod: there is no container to reach" in said
        client.delete(f"{pods}/p")
        eventually(is_gone(client, f"{pods}/p"))


PROGRAM = """
import http.server, os, signal, sys
token = open("/var/run/mine/token").read().split(".")
print("up", os.environ["GREETING"], open("/etc/keys/key").read(), len(token), os.environ["WHERE"], flush=True)
def bye(*_):
    print("bye", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, bye)
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/crash":
            os._exit(3)
        self.send_response(200)
        self.end_headers()
        with open(sys.argv[1]) as file:
            self.wfile.write(file.read().encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer((os.environ["POD_IP"], 8080), Answer).serve_forever()
"""


def fetch(address: str, path: str = "/") -> str:
    try:
        return httpx.get(f"http://{address}:8080{path}", timeout=120).text
    except httpx.HTTPError:
        return ""


@pytest.mark.attack(
    by="a tenant",
    tries="have a played node run a program of its own as the computer's user",
    stopped_by="in tenants' namespaces the lab's kubelet plays every pod and runs none",
)
def test_no_pod_of_a_tenant_is_a_process_of_this_computer(
    kube_api: KubeCluster, kubelet: KubeletStandIn, tmp_path: Path
) -> None:
    name, mark = f"test-{secrets.token_hex(5)}", tmp_path / "run"
    write = f"open({str(mark)!r}, 'w')"
    sleeps = ["python", "-c", write]
    ours = pod_on(kubelet.name, "ours", command=sleeps, image=f"{IMAGE}:1")
    program = pod_on(kubelet.name, "program", command=sleeps)
    program["metadata"]["labels"] = {LABEL: REACH}
    proof = pod_on(kubelet.name, "proof", command=sleeps)
    proof["metadata"]["labels"] = {LABEL: Matmul.name}
    proof["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "program"}}]
    core = f"/api/v1/namespaces/{name}"
    with kube_api.api() as client:
        tenant = {"name": name, "labels": {TENANT_LABEL: "acme"}}
        post(client, "/api/v1/namespaces", {"metadata": tenant})
        try:
            eventually(lambda: client.request("GET", f"{core}/serviceaccounts/default")[0] == 200)
            content = {"metadata": {"name": "program"}, "data": {Matmul.program: write}}
            post(client, f"{core}/configmaps", content)
            for pod in (ours, program, proof):
                post(client, f"{core}/pods", pod)
            for pod in (ours, program, proof):
                called = pod["metadata"]["name"]
                eventually(is_ready(client, f"{core}/pods/{called}"))
                assert "simulated container" in kube_api.run("kubectl", "logs", "-n", name, called)
                client.delete(f"{core}/pods/{called}")
                # Once it is gone, whatever it ran has ended.
                eventually(is_gone(client, f"{core}/pods/{called}"))
        finally:
            client.delete(f"/api/v1/namespaces/{name}")
    assert not mark.exists()


def test_a_pod_of_our_image_is_a_process_with_all_that_its_spec_names(
    kube_api: KubeCluster, namespace: str, kubelet: KubeletStandIn
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    with kube_api.api() as client:
        text = Path(__file__).with_name("our_pod.yaml").read_text()
        keys, config, pod = yaml.safe_load_all(text)
        pod["spec"]["nodeName"] = kubelet.name
        pod["spec"]["containers"][0]["command"] = ["python", "-c", PROGRAM]
        post(client, f"{core}/secrets", keys)
        post(client, f"{core}/pods", pod)
        # The volume's content is missing at first; the pod waits for it, as on a real node.
        eventually(lambda: "not found" in str(client.get(f"{core}/pods/real")["status"]))
        post(client, f"{core}/configmaps", config)
        pod = eventually(is_ready(client, f"{core}/pods/real"))
        address = reachable(pod["status"]["podIP"])
        assert address.startswith("127.")
        assert not address.startswith("127.0.")
        assert fetch(address) == "from the config map"
        plugins = kubelet.node().device_plugins
        up = f"up hello k 3 {plugins}/{kubelet.name}\n"
        assert kube_api.run("kubectl", "logs", "-n", namespace, "real") == up

        assert fetch(address, "/crash") == ""
        restarted = eventually(is_ready(client, f"{core}/pods/real", restarts=1))
        status = restarted["status"]["containerStatuses"][0]
        assert status["lastState"]["terminated"]["exitCode"] == 3
        assert fetch(address) == "from the config map"

        follow = subprocess.Popen(
            kube_api.command("kubectl", "logs", "-f", "-n", namespace, "real"),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follow.stdout is not None
        assert follow.stdout.readline().startswith("up ")
        client.delete(f"{core}/pods/real")
        assert follow.stdout.read() == "bye\n"
        assert follow.wait(150) == 0
        eventually(is_gone(client, f"{core}/pods/real"))
    assert processes_of(kubelet.pid, PROGRAM) == []


SLEEPS = "import time; time.sleep(600)"


def test_what_the_stand_in_does_not_do_is_refused(
    kube_api: KubeCluster, namespace: str, kubelet: KubeletStandIn
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    with kube_api.api() as client:
        pod = pod_on(kubelet.name, image=IMAGE, livenessProbe={"exec": {"command": ["true"]}})
        post(client, f"{core}/pods", pod)
        status = eventually(in_phase(client, f"{core}/pods/p", "Failed"))["status"]
        assert "livenessProbe of container main" in status["message"]
        other = pod_on(kubelet.name, "other", image=IMAGE, command=["sh", "-c", "true"])
        post(client, f"{core}/pods", other)
        eventually(
            lambda: "runs Python programs" in str(client.get(f"{core}/pods/other")["status"])
        )


def processes_of(pid: int, program: str) -> list[int]:
    """Children that run the program; pods of other tests may still be ending."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if program in child.cmdline():
                found.append(child.pid)
    return found


def test_killed_kubelets_leave_no_process_behind_and_are_started_again(
    kube_api: KubeCluster, namespace: str, kubelet: KubeletStandIn
) -> None:
    """The last one here: it ends the kubelets that all share."""
    core = f"/api/v1/namespaces/{namespace}"
    sleeper = ["python", "-c", SLEEPS]
    with kube_api.api() as client:
        post(client, f"{core}/pods", pod_on(kubelet.name, image=IMAGE, command=sleeper))
        eventually(is_ready(client, f"{core}/pods/p"))
        (child,) = processes_of(kubelet.pid, SLEEPS)
        kubelet.kill()
        eventually(lambda: not psutil.pid_exists(child))
        kubelet.start()
        eventually(is_ready(client, f"{core}/pods/p", restarts=1))
        kubelet.start()
        (again,) = processes_of(kubelet.pid, SLEEPS)
        kubelet.stop()
        assert not psutil.pid_exists(again)
