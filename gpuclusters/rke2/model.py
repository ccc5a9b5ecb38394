"""One host of an RKE2 cluster: its inputs, and what is found on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gpuclusters.core.facts import Facts, Yes
from gpuclusters.core.model import Strict, matches
from gpuclusters.host.model import HostConnection, check_path
from gpuclusters.host.node import ClusterNode
from gpuclusters.rke2 import host_config, releases
from gpuclusters.rke2.releases import Role, Version, parse_version

SHORTEST_TOKEN = 16


class Source(StrEnum):
    """Where the artifacts of a release come from."""

    DOWNLOAD = "download"
    FOLDER = "folder"


def _version(text: str) -> str:
    parse_version(text)
    return text


def _token(text: str) -> str:
    if len(text) < SHORTEST_TOKEN:
        raise ValueError(f"a token has at least {SHORTEST_TOKEN} characters")
    if text.startswith("K10"):
        # The full form names the hash of a certificate authority that the first server has yet to make.
        raise ValueError("write the short token, without K10…::server: before it")
    if not text.isascii() or not text.isprintable() or any(c in text for c in " :'\"\\"):
        raise ValueError("a token is made of letters, digits and signs other than : ' \" \\")
    return text


class Artifacts(Strict):
    """The files of a release, by one digest: that of the release's own list of digests."""

    source: Source = Source.DOWNLOAD
    location: str
    """Address up to and without the release (`…/releases/download`), or a folder on the host."""
    checksum: Annotated[
        str, matches(r"[0-9a-f]{64}", "write the sha256 of sha256sum-amd64.txt, 64 digits")
    ]
    images: tuple[str, ...] = ()
    """Archives of images that are brought along; none where nodes pull from a registry."""


class Rke2NodeInputs(Strict):
    """Inputs of one host. `config` and `files` hold no secret; tokens come apart."""

    connection: HostConnection
    cluster: Annotated[str, Field(min_length=1, max_length=63)]
    node_name: Annotated[
        str, matches(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", "write a name that Kubernetes accepts")
    ]
    role: Role
    first: bool = False
    control: tuple[HostConnection, ...] = ()
    """Servers that can be asked about the cluster, in order of preference; never the host itself."""
    registration_address: Annotated[str, Field(min_length=1, max_length=253)]
    version: Annotated[str, AfterValidator(_version)]
    artifacts: Artifacts
    config: dict[str, Any]
    files: Mapping[Annotated[str, AfterValidator(check_path)], str] = {}
    labels: Mapping[str, str] = {}
    cis: bool = False
    selinux: bool = False
    token: Annotated[str, AfterValidator(_token)]
    agent_token: Annotated[str, AfterValidator(_token)] | None = None
    join_timeout_seconds: Annotated[int, Field(ge=1, le=7200)] = 900
    drain_timeout_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """0: pods are left where they are."""
    adopt: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Rke2NodeInputs:
        if self.first and self.role is not Role.SERVER:
            raise ValueError("first: only a server makes a cluster; an agent joins one")
        if not self.first and not self.control:
            raise ValueError("control: name the servers of the cluster that this host joins")
        if any(one.host == self.connection.host for one in self.control):
            raise ValueError("control: a host cannot vouch for itself; leave it out")
        return self

    @property
    def natural_id(self) -> str:
        return f"{self.cluster}/{self.connection.host}"

    @property
    def wanted(self) -> Version:
        return parse_version(self.version)

    def contents(self) -> dict[str, str]:
        """Every file of the host that holds no secret, by path."""
        return {releases.CONFIG: host_config.document(self.config), **self.files}

    def tokens(self) -> str:
        """The file with the tokens."""
        known = {"token": self.token}
        if self.role is Role.SERVER and self.agent_token is not None:
            known["agent-token"] = self.agent_token
        return host_config.document(known)

    @property
    def digest(self) -> str:
        """Of all that a start of RKE2 reads: when it is written on the host, the host runs with it.

        The token is part of it, yet cannot be found from it: it has far more than 64 random bits.
        """
        files, checksum = (self.contents(), self.tokens()), self.artifacts.checksum
        known = [self.version, self.role.value, *files, checksum]
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


Number = Annotated[int, BeforeValidator(lambda said: said or 0)]
"""0 where it cannot be told."""


class LiveHost(Facts):
    """What is on the host now: what `inspect.sh` prints."""

    version: str = ""
    """Of the program that is installed; empty if there is none."""
    method: str = ""
    """How it was installed: `tar` or `rpm`."""
    active: Mapping[str, str] = {}
    applied: str = ""
    """Digest of what it last joined with; empty if that was never finished."""
    owner: str = ""
    """`cluster/host` that wrote the digest, or began to write."""
    file: Mapping[str, str] = {}
    """sha256 of our files that are there, by path."""
    clock: Number = 0
    architecture: str = ""
    default_route: Yes = True
    selinux: str = ""
    selinux_policy: Yes = False
    firewalld: str = ""
    nm_cloud_setup: Yes = False
    system: str = ""
    cgroup: str = ""
    """`v1` or `v2`; empty where it cannot be told."""
    free_mib: Number = 1_000_000
    """Space where RKE2 keeps images and etcd its data."""
    apparmor_parser: Yes = True
    """False where the kernel has AppArmor and nothing loads profiles."""
    kernel_modules_extra: Yes = True
    """False where the modules of iptables are in a package that is missing."""
    runs: tuple[str, ...] = ()
    """Units of other clusters, container engines and network managers that run."""
    ports: frozenset[int] = frozenset()
    inotify: Number = 0
    stub: tuple[str, ...] = ()
    """Templates of containerd's configuration that leave out what RKE2 would write."""
    drop_ins: Yes | None = None
    """Whether what RKE2 wrote for containerd imports drop-ins; None before its first start."""
    expires: str = ""
    """When the first of its certificates ends; empty if it has none."""

    def release(self) -> Version | None:
        """The installed release; None if there is none."""
        try:
            return parse_version(self.version)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class Progress:
    active: str
    restarts: int
    journal: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveCluster:
    """The cluster as a host that joins it has to know it."""

    node: ClusterNode | None = None
    unreachable: str = ""
    """Why the registration address does not answer from the host; empty if it does."""
    clock: int | None = None
    """Time of the server that was asked; None where it does not matter."""
    servers: Mapping[str, ClusterNode] = field(default_factory=dict)
    """By node name; only where their releases matter."""
    rival: str = ""
    """A server on which the cluster lives that this host would make a second time."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A host, and its cluster where that was asked."""

    host: LiveHost
    cluster: LiveCluster | None = None
    kubeconfig: str = ""


def taint_changes(
    wanted: Iterable[str], before: Iterable[str], there: Collection[str]
) -> tuple[str, ...]:
    """What `kubectl taint` is told, so that a node has its taints; those of others stay.

    The configuration of RKE2 counts at the first registration alone.
    """
    now = {_spelled(taint) for taint in wanted}
    missing = now - set(there)
    kept = {_slot(taint) for taint in now}
    gone = {
        _slot(taint)
        for taint in map(_spelled, before)
        if taint in there and _slot(taint) not in kept
    }
    return (*sorted(missing), *(f"{slot}-" for slot in sorted(gone)))


def _spelled(taint: str) -> str:
    """With its value, also where it is empty."""
    key, _, effect = taint.rpartition(":")
    return f"{key if '=' in key else key + '='}:{effect}"


def _slot(taint: str) -> str:
    """Key and effect: a node has one taint of both."""
    key, _, effect = taint.rpartition(":")
    return f"{key.partition('=')[0]}:{effect}"


# The order in which hosts join and are upgraded (RKE2's documentation of high availability): the first server
# until its API answers, then the other servers one at a time (each is an etcd learner first), then agents.

MOST_AGENTS_AT_ONCE = 50
"""RKE2's documentation advises against more joining at the same time."""
SERVER_COUNTS = (1, 3, 5)
"""An even number tolerates no more failures than one less; more than five slow every write of etcd."""


@dataclass(frozen=True, slots=True)
class Join:
    host: str
    role: Role
    first: bool
    """Whether it makes the cluster instead of joining one."""
    after: str | None


def join_order(
    servers: Sequence[str], agents: Sequence[str], agents_at_once: int
) -> tuple[Join, ...]:
    """Every host with the one it waits for.

    Agents follow each other in a sliding window: each waits for the one that many places before it, so that
    never more than `agents_at_once` are on their way, and a slow one holds up one place instead of a batch.
    """
    names = [*servers, *agents]
    if not servers or len(set(names)) != len(names) or agents_at_once < 1:
        raise ValueError("a cluster needs a server, names that differ and a window of at least 1")
    order = [
        Join(name, Role.SERVER, first=n == 0, after=servers[n - 1] if n else None)
        for n, name in enumerate(servers)
    ]
    for n, name in enumerate(agents):
        after = servers[-1] if n < agents_at_once else agents[n - agents_at_once]
        order.append(Join(name, Role.AGENT, first=False, after=after))
    return tuple(order)
