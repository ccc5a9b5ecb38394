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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from caas.api.__main__ import HEALTH_LISTEN, LISTEN
from caas.api.problems import TYPES, Problem
from caas.settings import SETTINGS_VARIABLE
from gpuclusters.tenancy.isolation import TENANT_LABEL
from gpuclusters.tenancy.model import CLAIM, Mounter, TenantVolume
from lab import issuer
from tests.caas.api import apikit
from tests.caas.leasesteps import EVIDENCE, drive, new_lease, shown
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


@contextmanager
def declared_volume(request: Request, namespace: str) -> Iterator[None]:
    """A folder of the tenant's, as the stack declares it, bound by Kubernetes itself."""
    volume = TenantVolume(
        tenant=namespace, namespace=namespace, name="data", server="192.0.2.7", path="/export/a",
        size_gib=100,
    )  # fmt: skip
    claim = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{volume.name}"
    whole = f"/api/v1/persistentvolumes/{volume.volume_name}"
    named = {"labels": {TENANT_LABEL: namespace}}
    spec = volume.persistent_volume_spec(Mounter.KUBELET)
    try:
        request.apply(whole, "v1", "PersistentVolume", spec=spec, metadata=named)
        request.apply(claim, "v1", CLAIM.kind, spec=volume.claim_spec(), metadata=named)
        eventually(
            lambda: ((request.get(claim) or {}).get("status") or {}).get("phase") == "Bound",
            what="bound",
        )
        yield
    finally:
        request("DELETE", whole)


@pytest.mark.lab
@pytest.mark.skipif(not shutil.which("curl"), reason="the page shows curl, which is not here")
def test_every_command_of_the_page_is_answered_as_it_says(
    kube_api: KubeCluster, lease_api: Request, tenants: Tenants, operator: Operator, tmp_path: Path
) -> None:
    tenant = tenants.make()
    tenants.ready(tenant)
    folder, leases = tmp_path / "issuer", []
    try:
        with declared_volume(lease_api, tenant), log_node(kube_api, lease_api) as node:
            for module in range(1, 9):
                leases.append(new_lease(lease_api, node.name, module))
                cycle = ("Resetting", "Scrubbing", "Verifying", "Free")
                drive(lease_api.get, lease_api, leases[-1], *cycle, conditions=shown(*EVIDENCE))
            hosts = {node.name: {}}
            settings = apikit.settings(hosts, issuer=issuer.start(folder).url)
            document = settings.model_dump(mode="json", by_alias=True)
            with served(tmp_path, kube_api, document) as address:
                token = issuer.token(folder, tenant)
                environment = {**os.environ, "API": address, "TOKEN": token}
                page = _run(environment, node, tenant)
            log = (tmp_path / "api.log").read_text()
            assert token not in log
            assert "NCCL_DEBUG" not in log
    finally:
        issuer.stop(folder)
        for name in leases:
            lease_api("DELETE", f"{LEASES}/{name}")
    if os.environ.get("RECORD_DOCS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def _run(environment: dict[str, str], node: LogNode, tenant: str) -> str:
    """Run the page's commands in their order; gives the page with what they answered."""
    page = PAGE.read_text()
    assert len([step for step in _STEP.finditer(page) if step["command"]]) >= 10

    def happen(what: str) -> None:
        """What the cluster does between the commands."""
        container = environment["CONTAINER"]
        path, said = f"/v1/containers/{container}", '"state":"running"'
        if what == "let it go":
            node.let_go(tenant, container)
            node.run(tenant, container)
            losses = ((1, "0.42"), (2, "0.31"), (3, "0.27"))
            node.lines += [f"epoch {number}: loss {loss}\n".encode() for number, loss in losses]
        elif what == "use up the quota":
            # By the two containers of the page.
            path, said = "/v1/capacity", '"used":4'
        else:
            assert what == "it has ended"
            node.end(tenant, container)
            said = '"status": 404'
        ask = f'curl -s -H "Authorization: Bearer $TOKEN" "$API{path}"'
        eventually(lambda: said in _shell(ask, environment), what=what)

    def told(step: re.Match[str]) -> str:
        if step["then"]:
            happen(step["then"].strip())
            return step[0]
        answer = _shell(step["command"], environment).replace(tenant, "acme")
        if step["form"] == "json":
            said = json.loads(answer)
            if "id" in said:
                environment.setdefault("CONTAINER", said["id"])
            answer = json.dumps(said, indent=2, ensure_ascii=False)
        for pattern, constant in _SHOWN:
            answer = pattern.sub(constant, answer)
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
