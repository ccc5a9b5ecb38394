"""A tenant's container on a real node: asked for at our API, leased by our controllers, run by containerd.

API, controllers and device plugin run as the pods that we ship, with the rights that we ship. The machine
under the node is a simulated HGX host, which they reach over SSH; its CDI specification is what `CdiSpec`
wrote there. The virtual machine is a second handler of runc, and the GPUs are device numbers without driver.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.caas.kata_runtime import KataRuntime, KataRuntimeArgs
from components.caas.program import LABEL
from components.caas.programs import Programs, ProgramsArgs
from components.caas.system import System, SystemArgs
from components.caas.tenancy_api import TenancyApi, TenancyApiArgs
from gpuclusters.adapters.container_api import Answer, ContainerApi
from gpuclusters.domain import cdi, isolation, lease_resource, tenancy_resource
from gpuclusters.domain.tenancy_resource import TenancySpec, tenancy_object
from gpuclusters.providers.cdi_spec import CdiSpecProvider
from lab import control_plane, images, issuer, nodes, tools
from lab.control_plane import pki
from lab.control_plane.layout import Layout
from lab.hosts.board import board
from lab.issuer.model import IssuerFolder
from lab.nodes.configuration import KATA_HANDLER
from lab.nodes.network import MACHINE
from tests.caas.leasekit import settings_of
from tests.components.recorder import record
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.lab.real_gpus import IMAGE, RESOURCE
from tests.lab.real_lab import BUILD_SECONDS, RealLab, eventually, only_where_possible, real_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]

_SYSTEM = "gpu-clusters-system"
_PATIENCE = 60.0
_GPUS = {str(module): gpu for module, gpu in board("supermicro-hgx-h100").gpus.items()}


@dataclass(frozen=True)
class Story:
    """The cluster with its programs, and the API as a tenant calls it."""

    lab: RealLab
    api: ContainerApi
    tokens: Path
    port: int
    """Of the API, on this machine."""

    def call(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        return self.api.call(method, path, issuer.token(self.tokens, who), body)

    def phases(self) -> list[str]:
        found = json.loads(self.lab.kubectl("get", "gpuleases", "--output=json"))["items"]
        return [lease.get("status", {}).get("phase", "") for lease in found]


def settings(node: str, host: SimulatedHost, issued: str, keys: int, authority: str) -> str:
    """What the programs are told; in a pod the machine's loopback has another address."""
    found = settings_of([(node, host)]).model_dump(mode="json", by_alias=True)
    found["namespace"] = _SYSTEM
    gpus = [{"module": int(m), "pci": gpu.address, "device": m} for m, gpu in sorted(_GPUS.items())]
    found["hosts"][0] |= {"address": MACHINE, "gpus": gpus}
    found["hosts"][0]["bmc"]["url"] = f"https://{MACHINE}:{bmc_port(host)}"
    found["api"] |= {
        "issuer": issued, "jwksUrl": f"https://{MACHINE}:{keys}/keys", "caCertificate": authority,
    }  # fmt: skip
    return yaml.safe_dump(found)


def bmc_port(host: SimulatedHost) -> int:
    """Where its management controller answers on the machine's loopback."""
    return int(host.endpoint.bmc.url.rpartition(":")[2])


@contextmanager
def keys_over_tls(layout: Layout, published: Path, folder: Path) -> Iterator[int]:
    """The issuer's keys where pods see them, at this port: beyond loopback only HTTPS is trusted."""
    certificate = folder / "issuer.crt"
    pki.issue(layout, certificate, pki.Client("issuer", "issuer"), addresses=[MACHINE])

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(published.read_bytes())

        def log_message(self, format: str, *args: Any) -> None:
            return

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def manifests(node: str, configured: str, host: SimulatedHost) -> list[dict[str, Any]]:
    """What the stack declares of a caas cluster's programs and rules, in order."""

    def declare() -> None:
        secrets = {
            "ssh-private-key": host.client_key.read_text(),
            "bmc-password": host.endpoint.bmc.password,
        }
        args = SystemArgs(namespace=_SYSTEM, settings=configured, secrets=secrets)
        system = System("system", args)
        runtime = KataRuntimeArgs(
            runtime_class=KATA_HANDLER, overhead_cpu="10m", overhead_memory="10Mi", node_selector={}
        )
        KataRuntime("kata", runtime)
        TenancyApi(
            "tenancy",
            TenancyApiArgs(
                custom_resource_definitions=[tenancy_resource.crd(), lease_resource.crd()],
                runtime_classes=[KATA_HANDLER],
                runtime_selector=[],
                gpu_resource=RESOURCE,
                network=isolation.Network((), ()),
                controllers=f"system:serviceaccount:{_SYSTEM}:controllers",
            ),
        )
        Programs("programs", ProgramsArgs(image=IMAGE, replicas=1, nodes=[node], system=system))

    made = [json.loads(json.dumps(one.inputs)) for one in record(declare).seen]
    return [one for one in made if "apiVersion" in one and "kind" in one]


def write_cdi(host: SimulatedHost, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Have `CdiSpec` write its file on the host, over SSH; gives what it wrote."""
    monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(host.client_key))
    path = cdi.spec_path(RESOURCE, cdi.VfioBackend.LEGACY)
    CdiSpecProvider().create(
        {
            "connection": host.connection,
            "path": path,
            "kind": RESOURCE,
            "devices": [
                {"name": m, "pci_address": gpu.address} for m, gpu in sorted(_GPUS.items())
            ],
        }
    )
    return host.path(path).read_bytes()


@pytest.fixture
def story(
    tools_at_hand: None, hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    try:
        programs = images.caas(f"docker.io/{IMAGE}", print)
    except tools.ToolError as error:
        pytest.skip(f"no image of our programs: {error}")
    (host,) = hosts()
    plane = control_plane.start(tmp_path / "lab", [])
    cluster = KubeCluster(tmp_path / "lab", plane.kubeconfig, plane.url, ())
    tokens = tmp_path / "issuer"
    issued = issuer.start(tokens).url
    assert issued is not None
    vfio = {"/dev/vfio/vfio": (240, 0)}
    vfio |= {f"/dev/vfio/{g.iommu_group}": (240, g.iommu_group) for g in _GPUS.values()}
    layout = Layout.of(cluster.folder)
    authority = layout.certificate(pki.CA).read_text()
    try:
        with (
            keys_over_tls(layout, IssuerFolder(tokens).keys, tmp_path) as keys,
            real_lab(
                cluster, 1, lambda _: vfio, [programs.archive], (host.endpoint.port, bmc_port(host), keys),
                open_to_all=True,
            ) as lab,
        ):  # fmt: skip
            (node,) = nodes.status(lab.folder).nodes.values()
            (node.folder / "cdi" / "pgpu.json").write_bytes(write_cdi(host, monkeypatch))
            configured = settings(node.name, host, issued, keys, authority)
            for manifest in manifests(node.name, configured, host):
                declared(lab, manifest)
            for kind in ("deployment/controllers", "deployment/api", "daemonset/device-plugin"):
                eventually(lambda kind=kind: rolled_out(lab, kind), f"{kind} is ready", _PATIENCE)
            api = ("get", "pods", f"--namespace={_SYSTEM}", f"--selector={LABEL}=gpu-clusters-api")
            (pod,) = json.loads(lab.kubectl(*api, "--output=json"))["items"]
            with nodes.forwarded(node.folder, pod["status"]["podIP"], 8080) as port:
                yield Story(lab, ContainerApi(f"http://127.0.0.1:{port}"), tokens, port)
    finally:
        issuer.stop(tokens)
        control_plane.stop(tmp_path / "lab")


def rolled_out(lab: RealLab, kind: str) -> bool:
    """Whether all of its pods are ready."""
    status = json.loads(lab.kubectl("get", kind, f"--namespace={_SYSTEM}", "--output=json"))[
        "status"
    ]
    return 1 in (status.get("readyReplicas"), status.get("numberReady"))


def declared(lab: RealLab, manifest: dict[str, Any]) -> None:
    """Create it; a custom resource has to wait until its kind is served."""
    name = f"{manifest['kind']} {manifest['metadata']['name']}"

    def made() -> bool:
        command = [*lab.client, "apply", "--server-side", "-f", "-"]
        text = json.dumps(manifest)
        return subprocess.run(command, input=text, text=True, capture_output=True).returncode == 0

    eventually(made, f"{name} is taken")


def play_network_agent(lab: RealLab) -> None:
    """Say of the node what Cilium's agent says when it is up: no tenant is let in without it."""
    condition = {
        "type": "NetworkUnavailable", "status": "False", "reason": "CiliumIsUp",
        "message": "played by a test", "lastTransitionTime": "2026-11-21T10:00:00Z",
    }  # fmt: skip
    patch = json.dumps({"status": {"conditions": [condition]}})
    lab.kubectl("patch", "node", lab.names[0], "--subresource=status", f"--patch={patch}")


def test_a_tenant_gets_a_container_with_its_gpus(story: Story) -> None:
    lab = story.lab
    play_network_agent(lab)
    size = {"cpu": "100m", "memory": "64Mi"}
    tenancy = TenancySpec.model_validate(
        {
            "tenant": "acme", "namespace": "tenant-acme", "gpus": 4, "sizes": [1, 2, 4],
            "quota": {"hard": {f"requests.{RESOURCE}": "4", "pods": "10"}},
            "limits": [{"type": "Container", "default": size, "defaultRequest": size}],
            "runtimeClasses": [KATA_HANDLER],
        }
    )  # fmt: skip
    declared(lab, tenancy_object(tenancy))
    eventually(lambda: story.phases() == ["Free"] * 8, "eight GPUs are free", _PATIENCE)
    asked = {
        "image": images.BUSYBOX, "gpus": 2, "cpu": 1, "memoryGib": 1,
        "command": ["sh", "-c", "echo it runs; sleep 1000"],
    }  # fmt: skip
    answers: list[Answer] = []

    def accepted() -> bool:
        answers.append(story.call("acme", "POST", "/v1/containers", asked))
        return answers[-1].status == 201

    eventually(accepted, "the tenancy is ready")
    path = f"/v1/containers/{answers[-1].body['id']}"
    eventually(
        lambda: story.call("acme", "GET", path).body["state"] == "running", "it runs", _PATIENCE
    )

    # In the container: the two GPUs of its lease, by the host's own numbers.
    (pod,) = json.loads(lab.kubectl("get", "pods", "-n", "tenant-acme", "--output=json"))["items"]
    assert pod["spec"]["runtimeClassName"] == KATA_HANDLER
    name = pod["metadata"]["name"]
    leases = json.loads(lab.kubectl("get", "gpuleases", "--output=json"))["items"]
    mine = {
        str(_GPUS[str(lease["spec"]["module"])].iommu_group)
        for lease in leases
        if (lease["status"].get("holder") or {}).get("podUid") == pod["metadata"]["uid"]
    }
    assert len(mine) == 2
    seen = lab.run_in("tenant-acme", name, "ls", "/dev/vfio").stdout.split()
    assert set(seen) == {*mine, "vfio"}

    # Its log comes through our API, and only to its tenant.
    log = f"http://127.0.0.1:{story.port}{path}/logs"
    assert read(log, issuer.token(story.tokens, "acme")) == "it runs\n"
    assert story.call("globex", "GET", path).status in (403, 404)

    assert story.call("acme", "DELETE", path).status in (200, 202, 204)
    eventually(lambda: story.phases() == ["Free"] * 8, "all GPUs are free again", _PATIENCE)


def read(url: str, token: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())
