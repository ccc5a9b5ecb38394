"""A node of the cluster that runs nothing, and has the logs that a test gives it.

Its kubelet is this process: the API server asks it for logs over TLS, as it asks any kubelet.
"""

import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpuclusters.container_api.container import LEASE_ANNOTATION
from gpuclusters.tenancy.programs import Program
from gpuclusters.tenancy.proof import AGENT_IS_UP
from lab.control_plane.kube import UnavailableError
from lab.control_plane.layout import Layout
from lab.control_plane.pki import SERVING
from tests.fixtures.accounts import Account
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import Request
from tests.fixtures.waiting import eventually

NOW = "2026-11-21T12:00:00Z"
_BEAT_SECONDS = 5.0


@dataclass
class LogNode:
    """The node. `lines` is every container's log."""

    request: Request
    name: str
    lines: list[bytes] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)
    """Set, its kubelet says nothing any more: the node controller takes it for lost after a while."""

    def let_go(self, namespace: str, pod: str) -> None:
        """What the lease controller does when the GPUs are leased; waits until it is scheduled."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        annotation = LEASE_ANNOTATION.replace("/", "~1")
        selector = {"kubernetes.io/hostname": self.name}
        patch = [
            {"op": "remove", "path": "/spec/schedulingGates"},
            {"op": "add", "path": f"/metadata/annotations/{annotation}", "value": f"{self.name}/3"},
            {"op": "add", "path": "/spec/nodeSelector", "value": selector},
        ]
        controllers = Account(self.request.cluster, Program.CONTROLLERS, token="")
        kind = "application/json-patch+json"
        status, said = controllers("PATCH", path, patch, kind=kind, every_right=True)
        assert status == 200, said
        eventually(
            lambda: (self.request.get(path) or {"spec": {}})["spec"].get("nodeName") == self.name,
            what=f"{pod} on {self.name}",
        )

    def run(self, namespace: str, pod: str) -> None:
        """Say that it runs."""
        main = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
        state = {"state": {"running": {"startedAt": NOW}}}
        status = {"phase": "Running", "containerStatuses": [main | state]}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
        self.request.merge(path, {"status": status})

    def end(self, namespace: str, pod: str) -> None:
        """What a kubelet does when a pod that is being deleted has ended."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self.request("DELETE", f"{path}?gracePeriodSeconds=0")
        eventually(lambda: self.request.get(path) is None, what=f"the end of {pod}")


@contextmanager
def log_node(cluster: KubeCluster, request: Request) -> Iterator[LogNode]:
    """A Ready node with eight GPUs, for as long as the context lasts."""
    made = LogNode(request, f"log-{secrets.token_hex(4)}")
    layout = Layout.of(cluster.folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(layout.certificate(SERVING), layout.key(SERVING))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.daemon_threads = True
    # Shaking hands is each connection's own: one that says nothing must not keep out the others.
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    port = server.server_address[1]
    over = threading.Event()
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}),
        threading.Thread(target=_beat, args=(made, port, over)),
    ]
    try:
        labels = {"kubernetes.io/hostname": made.name}
        body = {"metadata": {"name": made.name, "labels": labels}}
        code, answer = request("POST", "/api/v1/nodes", body)
        assert code == 201, answer
        request.merge(f"/api/v1/nodes/{made.name}/status", {"status": _status(port)})
        for thread in threads:
            thread.start()

        def usable() -> bool:
            found = request.get(f"/api/v1/nodes/{made.name}") or {"spec": {"taints": ["?"]}}
            return not found["spec"].get("taints")

        eventually(usable, what=f"{made.name} ready")
        yield made
    finally:
        over.set()
        if threads[0].is_alive():
            server.shutdown()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        request("DELETE", f"/api/v1/nodes/{made.name}")
        server.server_close()


def _beat(node: LogNode, port: int, over: threading.Event) -> None:
    """Say again and again that it is Ready: of a node that is silent for 40 s nobody expects anything."""
    while not over.wait(_BEAT_SECONDS):
        if node.silent.is_set():
            continue
        # Missing one is no fault.
        with suppress(UnavailableError, AssertionError):
            path = f"/api/v1/nodes/{node.name}/status"
            node.request.merge(path, {"status": _status(port)})
    node.request.close()


def _status(port: int) -> dict[str, Any]:
    # Room for the one pod that is sent here, not for those of other tests.
    amounts = {
        "cpu": "1",
        "memory": "1Gi",
        "ephemeral-storage": "1Ti",
        "pods": "1",
        "nvidia.com/pgpu": "8",
    }
    beat = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    # A node without an agent of Cilium would make every tenancy of the cluster not ready.
    since = {"message": "", "lastHeartbeatTime": beat, "lastTransitionTime": beat}
    conditions = [
        {"type": "NetworkUnavailable", "status": "False", "reason": AGENT_IS_UP, **since},
        {"type": "Ready", "status": "True", "reason": "Test", **since},
    ]
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }


def _handler(node: LogNode) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            for line in node.lines[-int(query.get("tailLines", ["1000000"])[0]) :]:
                self.wfile.write(line)

        def log_message(self, *_: Any) -> None:
            """Nothing to say."""

    return Handler
