"""Hosts that answer after a while and join after another, without SSH: what is left is our own waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.converge import Clock, converge
from gpuclusters.host.model import sha256_of
from gpuclusters.host.node import ClusterNode
from gpuclusters.rke2 import host_config
from gpuclusters.rke2.host import Rke2Capability, SshRke2Control
from gpuclusters.rke2.model import (
    Join,
    LiveHost,
    Progress,
    Rke2NodeInputs,
)
from gpuclusters.rke2.releases import Role

VERSION = "v1.35.7+rke2r1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
_SETTINGS = host_config.Settings(registration_address="10.20.0.100")


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


class Machine(Rke2Capability):
    """A host and its cluster: each call takes `latency`, joining takes `seconds` from the start on."""

    target = "bench"

    def __init__(
        self, inputs: Rke2NodeInputs, clock: Clock, latency: float, seconds: float
    ) -> None:
        self._inputs, self._before, self._reporter = inputs, {}, Silent()
        self._clock, self._latency, self._seconds = clock, latency, seconds
        self.others = [self.local_control()]
        self._begun: float | None = None
        self._applied = self._owner = self._version = ""
        self._role: Role | None = None
        self._digests: dict[str, str] = {}
        self.calls = self.polls = 0
        self._files = self

    def call(self) -> None:
        self.calls += 1
        self._clock.sleep(self._latency)

    @property
    def is_up(self) -> bool:
        return self._begun is not None and self._clock.now() >= self._begun + self._seconds

    def inspect(self, paths: Sequence[str]) -> LiveHost:
        self.call()
        return LiveHost(
            owner=self._owner,
            applied=self._applied,
            architecture="x86_64",
            version=self._version,
            active={role: "active" for role in [self._role] if role and self.is_up},
            file=self._digests,
        )

    def _run(self, _tried: str, name: str, *arguments: str, **_: object) -> str:
        self.call()
        match name:
            case "mark" if arguments[0] == "owner":
                self._owner = arguments[1]
            case "mark":
                self._applied = arguments[1]
            case "install":
                self._version = arguments[0]
            case "start":
                self._begun, self._role = self._clock.now(), Role(arguments[0][5:-8])
        return ""

    def write(self, path: str, content: bytes, **_: object) -> None:
        self.call()
        self._digests[path] = sha256_of(content)

    def remove(self, path: str) -> None:
        self.call()

    def _progress(self, since: str) -> Progress:
        self.polls += 1
        self.call()
        return Progress("active" if self.is_up else "activating", 0, "")

    def _kubeconfig(self) -> str:
        return ""

    def local_control(self) -> Servers:
        return Servers(self)


class Servers(SshRke2Control):
    """The cluster as the servers know it."""

    target = "bench"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def clock(self) -> int:
        self._machine.call()
        return 0

    def is_installed(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return True

    def node(self, name: str) -> ClusterNode | None:
        self._machine.call()
        if not self._machine.is_up:
            return None
        taints = frozenset({host_config.CONTROL_PLANE_TAINT})
        return ClusterNode(ready=True, version=VERSION, taints=taints)

    def servers(self) -> Mapping[str, ClusterNode]:
        self._machine.call()
        return {}


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
            "config": host_config.config(
                _SETTINGS, join.role, first=join.first, node_name=join.host
            ),
            "files": host_config.files(_SETTINGS, join.role),
            "token": "a-token-of-this-bench",
            **({"agent_token": "another-token-of-it"} if join.role is Role.SERVER else {}),
        }
    )


def run(join: Join, clock: Clock, latency: float, seconds: float) -> Machine:
    """Join one host; the machine afterwards."""
    machine = Machine(inputs(join), clock, latency, seconds)
    converge(machine, Silent())
    return machine
