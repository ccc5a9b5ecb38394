"""The page about the API is true: its commands are run, and answered as it says.

After a change of the API, `RECORD_DOCS=1 pytest` on this file writes the new answers into it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from caas.api.__main__ import HEALTH_LISTEN, LISTEN
from caas.api.problems import TYPES, Problem
from caas.settings import SETTINGS_VARIABLE
from gpuclusters.lease.model import GPULeaseSpec, lease_object
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import CLAIM, Mounter, TenantVolume
from lab import issuer
from tests.caas.api import apikit
from tests.caas.lognode import LogNode, log_node
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.tenancies import LEASES, PATIENCE_SECONDS, Operator, Request, Tenants
from tests.fixtures.waiting import eventually

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
_STEP = re.compile(
    r"<!-- then: (?P<then>[^>]+) -->|"
    r"```bash\n(?P<command>.*?)```\n\n```(?P<form>json|text)\n(?P<answer>.*?)```",
    re.S,
)
# What differs from run to run, and how it is shown.
_SHOWN = (
    (re.compile(r"c-[0-9a-f]{20}"), "c-4f0a1b2c3d4e5f607182"),
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z"), "2026-11-21T12:00:00Z"),
    (re.compile(r'"requestId": ?"[0-9a-f]{16}"'), '"requestId": "5f0c1d2e3a4b5968"'),
)


@contextmanager
def served(folder: Path, cluster: KubeCluster, settings: dict[str, Any]) -> Iterator[str]:
    """The program as it runs in a cluster; gives its address."""
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    log = folder / "api.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "caas.api"],
            stderr=output,
            env={
                **os.environ,
                SETTINGS_VARIABLE: str(folder / "settings.yaml"),
                "KUBECONFIG": str(cluster.kubeconfig),
                LISTEN: "127.0.0.1:0",
                HEALTH_LISTEN: "127.0.0.1:0",
            },
        )
    try:
        said = eventually(lambda: _listening(log), what="listening")
        health = f"http://127.0.0.1:{said['healthPort']}"
        eventually(lambda: _ready(health), what="ready")
        yield f"http://127.0.0.1:{said['port']}"
    finally:
        process.terminate()
        try:
            code = process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
    assert code == 0, log.read_text()
    assert all(json.loads(line) for line in log.read_text().splitlines())


def _listening(log: Path) -> dict[str, Any]:
    # A line that is just being written is not one yet.
    for line in log.read_text().split("\n")[:-1]:
        said = json.loads(line)
        if said["message"] == "listening":
            return dict(said["fields"])
    return {}


def _ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=60) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_gpu(request: Request, node: str, module: int) -> None:
    """A GPU that has been through its cycle."""
    spec = GPULeaseSpec(node=node, module=module, pci=f"0000:0{module}:00.0", device=f"gpu{module}")
    body = lease_object(spec)
    code, answer = request("POST", LEASES, body)
    assert code == 201, answer
    shown = [
        {
            "type": kind,
            "status": "True",
            "reason": "Test",
            "message": "",
            "lastTransitionTime": "2026-11-21T12:00:00Z",
        }
        for kind in ("ResetDone", "MemoryCleared", "FirmwareVerified")
    ]
    path = f"{LEASES}/{body['metadata']['name']}/status"
    for phase in ("Resetting", "Scrubbing", "Verifying", "Free"):
        status = {"phase": phase, "since": "2026-11-21T12:00:00Z", "cycle": 1, "conditions": shown}
        request.merge(path, {"status": status})


@contextmanager
def declared_volume(request: Request, namespace: str) -> Iterator[None]:
    """A folder of the tenant's, as the stack declares it, bound by Kubernetes itself."""
    volume = TenantVolume(
        tenant=namespace, namespace=namespace, name="data", server="192.0.2.7", path="/export/a",
        size_gib=100,
    )  # fmt: skip
    volumes = "/api/v1/persistentvolumes"
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    objects = (
        (volumes, "PersistentVolume", volume.volume_name,
         volume.persistent_volume_spec(Mounter.KUBELET)),
        (claims, CLAIM.kind, volume.name, volume.claim_spec()),
    )  # fmt: skip
    try:
        for path, kind, name, spec in objects:
            metadata = {"name": name, "labels": {TENANT_LABEL: namespace}}
            body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
            code, answer = request("POST", path, body)
            assert code == 201, answer
        claim = f"{claims}/{volume.name}"
        eventually(
            lambda: ((request.get(claim) or {}).get("status") or {}).get("phase") == "Bound",
            what="bound",
        )
        yield
    finally:
        request("DELETE", f"{volumes}/{volume.volume_name}")


@pytest.mark.lab
@pytest.mark.skipif(not shutil.which("curl"), reason="the page shows curl, which is not here")
def test_every_command_of_the_page_is_answered_as_it_says(
    kube_api: KubeCluster, lease_api: Request, tenants: Tenants, operator: Operator, tmp_path: Path
) -> None:
    tenant = tenants.make()
    tenants.ready(tenant)
    url = issuer.start(tmp_path / "issuer").url
    try:
        with declared_volume(lease_api, tenant), log_node(kube_api, lease_api) as node:
            for module in range(1, 9):
                free_gpu(lease_api, node.name, module)
            settings = apikit.settings(issuer=url).model_dump(mode="json", by_alias=True)
            settings["hosts"] = [{**settings["hosts"][0], "name": node.name}]
            with served(tmp_path, kube_api, settings) as address:
                token = issuer.token(tmp_path / "issuer", tenant)
                environment = {**os.environ, "API": address, "TOKEN": token}
                page = _run(environment, _Happenings(node, tenant, environment), tenant)
            log = (tmp_path / "api.log").read_text()
            assert token not in log
            assert "NCCL_DEBUG" not in log
    finally:
        issuer.stop(tmp_path / "issuer")
        for module in range(1, 9):
            lease_api("DELETE", f"{LEASES}/{node.name}-gpu{module}")
    if os.environ.get("RECORD_DOCS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


class _Happenings:
    """What the cluster does between the commands."""

    def __init__(self, node: LogNode, tenant: str, environment: dict[str, str]) -> None:
        self._node = node
        self._tenant = tenant
        self._environment = environment

    def let_it_go(self) -> None:
        container = self._environment["CONTAINER"]
        self._node.let_go(self._tenant, container)
        self._node.run(self._tenant, container)
        self._node.lines += [
            b"epoch 1: loss 0.42\n",
            b"epoch 2: loss 0.31\n",
            b"epoch 3: loss 0.27\n",
        ]
        eventually(lambda: '"state":"running"' in self._get(f"/v1/containers/{container}"))

    def use_up_the_quota(self) -> None:
        # By the two containers of the page.
        eventually(lambda: '"used":4' in self._get("/v1/capacity"))

    def it_has_ended(self) -> None:
        container = self._environment["CONTAINER"]
        self._node.end(self._tenant, container)
        eventually(lambda: '"status": 404' in self._get(f"/v1/containers/{container}"))

    def _get(self, path: str) -> str:
        return _shell(f'curl -s -H "Authorization: Bearer $TOKEN" "$API{path}"', self._environment)


def _run(environment: dict[str, str], happenings: _Happenings, tenant: str) -> str:
    """Run the page's commands in their order; gives the page with what they answered."""
    page = PAGE.read_text()
    steps = list(_STEP.finditer(page))
    assert len([step for step in steps if step["command"]]) >= 10

    def told(step: re.Match[str]) -> str:
        if step["then"]:
            act: Callable[[], None] = getattr(happenings, step["then"].strip().replace(" ", "_"))
            act()
            return step[0]
        answer = _shell(step["command"], environment).replace(tenant, "acme")
        if step["form"] == "json":
            said = json.loads(answer)
            environment.setdefault("CONTAINER", said.get("id") or "")
            if not environment["CONTAINER"]:
                del environment["CONTAINER"]
            answer = json.dumps(said, indent=2, ensure_ascii=False)
        for pattern, shown in _SHOWN:
            answer = pattern.sub(shown, answer)
        return f"```bash\n{step['command']}```\n\n```{step['form']}\n{answer.rstrip()}\n```"

    return _STEP.sub(told, page)


def _shell(command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_page_names_every_problem_and_no_other() -> None:
    table = PAGE.read_text().split(f"`type`, after `{TYPES}`")[1].split("\n## ")[0]
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| \d{3}", line)]
    told = {(name, int(s)) for row in rows for name in re.findall(r"`([a-z-]+)`", row[2])
            for s in re.findall(r"\d{3}", row[1])}  # fmt: skip
    real = {(problem.value[0], problem.status) for problem in Problem}
    assert {name for name, _ in told} == {name for name, _ in real}
    assert real <= told
