"""`python -m caas.controllers` as it runs in the cluster: elected, watched by probes, ended by a signal."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from caas.settings import Settings
from gpuclusters.lease import model as lease_model
from gpuclusters.tenancy import model as tenancy_model
from tests.caas.leasekit import PATIENCE_SECONDS, settings_of
from tests.fixtures.control_plane import KubeCluster, start_cluster, stop_cluster
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tenancies import LEASES, TENANCIES, Request
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab


@pytest.fixture
def own_cluster(tools_at_hand: None, tmp_path: Path) -> Iterator[KubeCluster]:
    """A cluster that no other test sees: the whole program works on everything that it finds."""
    folder = tmp_path / "lab"
    yield start_cluster(folder, "hgx-01")
    stop_cluster(folder)


# As `python -m caas.controllers`, but for the times of the election: a machine that pauses for ten seconds
# loses its leadership, and with it the program, as it should; here that would end the test.
_PROGRAM = """
import runpy
from caas.leader import Leader
Leader.__init__.__kwdefaults__.update(duration=60.0, valid=50.0)
runpy.run_module("caas.controllers", run_name="__main__", alter_sys=True)
"""


class Program:
    """One copy of the controllers, on a loopback address of its own."""

    def __init__(self, folder: Path, kube_api: KubeCluster) -> None:
        self.identity = f"copy-{secrets.token_hex(3)}"
        numbers = secrets.token_bytes(2)
        self.address = f"127.77.{numbers[0]}.{max(1, numbers[1] % 255)}"
        self._log = (folder / f"{self.identity}.log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env={
                **os.environ,
                "GPU_CLUSTERS_SETTINGS": str(folder / "settings.yaml"),
                "GPU_CLUSTERS_SECRETS": str(folder / "secrets"),
                "KUBECONFIG": str(kube_api.kubeconfig),
                "POD_NAME": self.identity,
                "POD_IP": self.address,
            },
            stderr=self._log,
        )

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 when nothing answers yet."""
        try:
            address = f"http://{self.address}:8081{path}"
            with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    def leads(self) -> bool:
        return f'gpu_clusters_leader{{identity="{self.identity}"}} 1.0' in self.get("/metrics")[1]

    def end(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self._log.close()


def prepare(folder: Path, settings: Settings, host: SimulatedHost) -> None:
    document = settings.model_dump(mode="json", by_alias=True)
    (folder / "settings.yaml").write_text(yaml.safe_dump(document))
    (folder / "secrets").mkdir()
    (folder / "secrets" / "ssh-private-key").write_text(host.client_key.read_text())
    (folder / "secrets" / "bmc-password").write_text(host.endpoint.bmc.password)


def wait_for(holds: Callable[[], object], *programs: Program) -> None:
    def look() -> object:
        for program in programs:
            assert program.process.poll() is None, program.log[-3000:]
        return holds()

    eventually(look, lambda: "\n".join(p.log[-3000:] for p in programs), PATIENCE_SECONDS)


def test_one_copy_leads_and_frees_gpus_and_another_follows_when_it_ends(
    own_cluster: KubeCluster, hosts: Hosts, tmp_path: Path
) -> None:
    kube_api = own_cluster
    (host,) = hosts()
    settings = settings_of([(host.name, host)])
    request = Request(own_cluster)

    def phases() -> list[str | None]:
        leases = (request.get(LEASES) or {}).get("items", [])
        return [body.get("status", {}).get("phase") for body in leases]

    for definition in (lease_model.crd(), tenancy_model.crd()):
        request.define(definition)
    eventually(lambda: request("GET", LEASES)[0] == request("GET", TENANCIES)[0] == 200)
    request.apply("/api/v1/namespaces/gpu-clusters-controllers", "v1", "Namespace")
    prepare(tmp_path, settings, host)
    first = Program(tmp_path, kube_api)
    second: Program | None = None
    try:
        wait_for(lambda: first.get("/readyz")[0] == 200, first)
        assert first.get("/healthz")[0] == 200
        wait_for(first.leads, first)
        second = Program(tmp_path, kube_api)
        wait_for(lambda: second.get("/readyz")[0] == 200, first, second)
        wait_for(lambda: phases() == ["Free"] * 8, first, second)
        assert not second.leads()
        counted = f'gpu_clusters_leases{{host="{host.name}",phase="Free"}} 8.0'
        wait_for(lambda: counted in first.get("/metrics")[1], first)
        assert first.end() == 0, first.log[-3000:]
        wait_for(second.leads, second)
        assert second.end() == 0, second.log[-3000:]
        for program in (first, second):
            assert host.endpoint.bmc.password not in program.log
            assert "Traceback" not in program.log
    finally:
        request.close()
        first.close()
        if second is not None:
            second.close()


def test_settings_that_cannot_be_used_are_named_in_one_line(
    kube_api: KubeCluster, tmp_path: Path
) -> None:
    (tmp_path / "settings.yaml").write_text("cluster: [")
    (tmp_path / "secrets").mkdir()
    program = Program(tmp_path, kube_api)
    try:
        assert program.process.wait(PATIENCE_SECONDS) == 1
        assert "settings.yaml is not YAML" in program.log
        assert "Traceback" not in program.log
    finally:
        program.close()
