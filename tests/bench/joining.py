"""Hosts that answer after a while and join after another, without SSH: what is left is our own waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.converge import Clock
from gpuclusters.domain import rke2_config
from gpuclusters.domain.reconcile_rke2 import ensure_node
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_node import Artifacts, ClusterNode, LiveHost, Rke2NodeInputs
from gpuclusters.domain.rke2_plan import Join
from gpuclusters.domain.rke2_ports import Progress

VERSION = "v1.35.7+rke2r1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
_SETTINGS = rke2_config.Settings(registration_address="10.20.0.100")


class OwnClock:
    """A clock that goes forward by what is waited for, and by nothing else."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        """Seconds."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._now += seconds


class Machine:
    """A host and its cluster: each call takes `latency`, joining takes `seconds` from the start on."""

    place = "bench"

    def __init__(self, clock: Clock, latency: float, seconds: float) -> None:
        self._clock, self._latency, self._seconds = clock, latency, seconds
        self._begun: float | None = None
        self._applied = self._owner = ""
        self.calls = self.polls = 0

    def _call(self) -> None:
        self.calls += 1
        self._clock.sleep(self._latency)

    @property
    def _is_up(self) -> bool:
        return self._begun is not None and self._clock.now() >= self._begun + self._seconds

    def inspect(self, paths: Sequence[str]) -> LiveHost:
        self._call()
        return LiveHost(owner=self._owner, applied=self._applied, architecture="x86_64")

    def unreachable(self, address: str) -> str:
        self._call()
        return ""

    def claim(self, owner: str) -> None:
        self._call()
        self._owner = owner

    def fetch(self, version: str, artifacts: Artifacts) -> None:
        self._call()

    def prepare(self, *, cis: bool) -> None:
        self._call()

    def write(self, path: str, content: str, *, mode: str) -> None:
        self._call()

    def remove(self, path: str) -> None:
        self._call()

    def install(self, version: str, artifacts: Artifacts, *, cis: bool) -> None:
        self._call()

    def start(self, role: Role) -> str:
        self._call()
        self._begun = self._clock.now()
        return ""

    def progress(self, role: Role, since: str) -> Progress:
        self.polls += 1
        self._call()
        return Progress("active" if self._is_up else "activating", 0, "")

    def finish(self, digest: str) -> None:
        self._call()
        self._applied = digest

    def kubeconfig(self) -> str:
        raise NotImplementedError

    def uninstall(self) -> None:
        raise NotImplementedError

    # As the servers know it.

    def clock(self) -> int:
        self._call()
        return 0

    def is_installed(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return True

    def node(self, name: str) -> ClusterNode | None:
        self._call()
        if not self._is_up:
            return None
        return ClusterNode(
            ready=True, version=VERSION, labels={}, unschedulable=False, drained_for=""
        )

    def servers(self) -> Mapping[str, ClusterNode]:
        self._call()
        return {}

    def drain(self, name: str, reason: str, timeout_seconds: int) -> None: ...
    def uncordon(self, name: str) -> None: ...
    def label(self, name: str, labels: Mapping[str, str | None]) -> None: ...
    def delete(self, name: str) -> None: ...


class Silent:
    """A journal that nobody reads."""

    def note(self, line: str) -> None:
        """Nothing."""


def inputs(join: Join) -> Rke2NodeInputs:
    """What this host is told."""
    connection: dict[str, Any] = {"host": join.host, "address": "192.0.2.1", "user": "ops"}
    connection |= {"port": 22, "host_key": KEY}
    return Rke2NodeInputs.model_validate(
        {
            "connection": connection,
            "cluster": "bench",
            "node_name": join.host,
            "role": join.role,
            "first": join.first,
            "control": [] if join.first else [{**connection, "host": "server-0"}],
            "registration_address": "10.20.0.100",
            "version": VERSION,
            "artifacts": {"location": "https://releases.test", "checksum": "0" * 64},
            "config": rke2_config.config(
                _SETTINGS, join.role, first=join.first, node_name=join.host
            ),
            "files": rke2_config.files(_SETTINGS, join.role),
            "token": "a-token-of-this-bench",
            **({"agent_token": "another-token-of-it"} if join.role is Role.SERVER else {}),
        }
    )


def run(join: Join, clock: Clock, latency: float, seconds: float) -> Machine:
    """Join one host; the machine afterwards."""
    machine = Machine(clock, latency, seconds)
    # A server that makes the cluster has no node to be found before it runs.
    ensure_node(inputs(join), machine, machine, [], clock, Silent(), before={})
    return machine
