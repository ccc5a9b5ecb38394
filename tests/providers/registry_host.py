"""A host on which a Usernetes node is made from upstream's Makefile: a simulated or a given one.

Given by GPU_CLUSTERS_REGISTRY_HOST=user@address[:port]: a machine with rootless Docker of that user, who
needs no `sudo`. Its key has to be in ~/.ssh/known_hosts; ours is in GPU_CLUSTERS_SSH_KEY_FILE or in an agent.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import yaml

from components.usernetes import OVERLAY
from gpuclusters.compat.usernetes_versions import VersionSet, version_set
from gpuclusters.core.errors import AdapterError
from gpuclusters.host import connect
from gpuclusters.host import ssh as ssh_forward
from gpuclusters.host.model import KEY_TYPES, HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.kube.objects import PatientObjects
from gpuclusters.providers import reconciling
from gpuclusters.usernetes.host import NodeCapability, inspect
from gpuclusters.usernetes.model import LiveNode, UsernetesNodeInputs
from gpuclusters.usernetes.resource import UsernetesNodeProvider

VARIABLE = "GPU_CLUSTERS_REGISTRY_HOST"
CLUSTER = "registry-test"
API_PORT = 6443
STAND_IN = "GPU-00000000-0000-4000-8000-000000000000"
"""Stands for a GPU on a host without one: a name in the node's CDI specification, and no device behind it."""
_FOLDER = Path(__file__).resolve().parents[2] / "gpuclusters/usernetes/overlay"
_GENERATE = 'nvidia-ctk cdi generate --output="$specification" --device-name-strategy=uuid\n'
_PULL_SECONDS = 600.0
_BEFORE = """set -eu
DOCKER_HOST=unix:///run/user/$(id -u)/docker.sock
export DOCKER_HOST
state=$HOME/.local/share/gpu-clusters/usernetes
docker version >/dev/null
"""
_LEFT = """
if docker inspect usernetes-node >/dev/null 2>&1; then echo container; fi
if docker inspect usernetes_default >/dev/null 2>&1; then echo network; fi
docker volume ls --quiet --filter label=com.docker.compose.project=usernetes
if [ -e "$state" ]; then echo "$state"; fi
"""
_TRACES = """
docker inspect --format '{{.Id}} {{.State.StartedAt}} {{.State.Status}}' usernetes-node
find "$state" -type f -printf '%P %s %T@\\n' | sort
"""
_DIGEST = """
file=$(mktemp)
trap 'rm -f "$file"' EXIT
curl --fail --silent --show-error --location --retry 3 --output "$file" "$1"
sha256sum <"$file" | cut -d ' ' -f 1
"""


class UnusableHostError(Exception):
    """The host cannot be used for the test; the text says why, and what would help."""


def given(text: str, known_hosts: Path) -> HostConnection:
    """The host that somebody gives.

    Args:
        text: `user@address[:port]`, an IPv6 address in brackets.
        known_hosts: where its key is.

    Raises:
        UnusableHostError: it is written otherwise, or its key is not known.
    """
    found = re.fullmatch(
        r"(?P<user>[^@]+)@(\[(?P<six>[^]]+)\]|(?P<four>[^@:\[]+))(:(?P<port>\d+))?", text
    )
    if found is None:
        raise UnusableHostError(f"{VARIABLE}={text}: write user@address, or user@address:port")
    address, port = found["six"] or found["four"], int(found["port"] or 22)
    keys: Sequence[asyncssh.SSHKey] = ()
    if known_hosts.exists():
        known = asyncssh.read_known_hosts(str(known_hosts))
        keys = known.match(address, "", None if port == 22 else port)[0]
    lines = [key.export_public_key().decode() for key in keys]
    usable = [line for kind in KEY_TYPES for line in lines if line.split()[0] == kind]
    if not usable:
        raise UnusableHostError(
            f"{VARIABLE}={text}: {known_hosts} has no key of this host; log in once with ssh and compare it"
        )
    return HostConnection(
        host="registry-host", address=address, port=port, user=found["user"], host_key=usable[0]
    )


def log_in_with(environment: Mapping[str, str]) -> dict[str, str]:
    """What of the environment lets providers log in."""
    names = (connect.KEY_FILE_VARIABLE, connect.AGENT_VARIABLE)
    return {name: environment[name] for name in names if environment.get(name)}


def overlay() -> dict[str, str]:
    """Our files beside upstream's, by name."""
    return {name: (_FOLDER / name).read_text() for name in OVERLAY}


def without_gpus(files: Mapping[str, str]) -> dict[str, str]:
    """The overlay for a host without GPUs: compose asks for no device, and the node's specification has the
    names that it would have with one GPU, behind which a variable stands instead of a device."""
    compose = yaml.safe_load(files["compose.yaml"])
    del compose["services"]["node"]["devices"]
    edits = {"env": ["GPU_CLUSTERS_STAND_IN=no GPU is behind this name"]}
    specification = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": edits} for name in (STAND_IN, "all")],
    }
    before, _, after = files["node-gpus.sh"].partition(_GENERATE)
    assert after, "node-gpus.sh makes the specification in another way"
    written = f"cat >\"$specification\" <<'END'\n{yaml.safe_dump(specification)}END\n"
    return {
        **files,
        "compose.yaml": yaml.safe_dump(compose),
        "node-gpus.sh": before + written + after,
    }


class CapabilityWithStandIn(NodeCapability):
    """Says that a host without GPUs has the one that stands for one, and that its container was given it."""

    def inspect(self) -> LiveNode:
        live = super().inspect()
        if live.host_gpu:
            return live
        given = (STAND_IN,) if live.is_running else ()
        return live.model_copy(update={"host_gpu": (STAND_IN,), "node_gpu": given})


class NodeWithStandIn(UsernetesNodeProvider):
    """The provider for a host without GPUs, which refuses such a host otherwise."""

    def capability(
        self, inputs: UsernetesNodeInputs, before: dict[str, Any]
    ) -> CapabilityWithStandIn:
        reach = partial(reconciling.host, ssh_key=self.ssh_key)
        return CapabilityWithStandIn.on(inputs, reach, before)


@dataclass
class Site:
    """The host of a test."""

    connection: HostConnection
    environment: Mapping[str, str]
    """With which providers log in."""
    local_port: int | None = None
    """Of the tunnel to the API; None on a simulated host, which has no tunnels and whose API is here."""
    versions: VersionSet = field(default_factory=lambda: version_set("current"))

    @property
    def account(self) -> str:
        """Whose rootless Docker it is: that of whoever logs in."""
        return self.connection.user

    @property
    def natural_id(self) -> str:
        """Of the node."""
        return f"{CLUSTER}/{self.connection.host}"

    @property
    def credentials(self) -> connect.SshCredentials:
        """With which this process logs in."""
        return connect.find_credentials(None, self.environment)

    @property
    def ssh(self) -> SshHost:
        """The host for this process."""
        return SshHost(self.connection, self.credentials)

    def run(self, script: str, *arguments: str) -> str:
        """What a script prints there, as the account and with its daemon."""
        done = self.ssh.run(
            ["sh", "-c", _BEFORE + script, "sh", *arguments],
            tried="look at it",
            as_root=False,
            timeout_seconds=_PULL_SECONDS,
        )
        assert done.status == 0, done.stderr
        return done.stdout.decode()

    def usable(self) -> LiveNode:
        """What is there before.

        Raises:
            UnusableHostError: it is not reached, has no rootless Docker, or has a node of somebody.
        """
        try:
            live = inspect(self.ssh, self.account)
        except AdapterError as error:
            raise UnusableHostError(f"{VARIABLE}: {error}") from error
        place = self.connection.target
        if live.docker != "ok":
            raise UnusableHostError(
                f"{VARIABLE}: {place}: the rootless Docker of {self.account} does not answer "
                f"({live.docker}); prepare the host as docs/usernetes-nodes.md says"
            )
        if live.is_begun and live.owner != self.natural_id:
            raise UnusableHostError(
                f"{VARIABLE}: {place}: {self.account} has a Usernetes node already, of "
                f"{live.owner or 'nobody that is known'}, which the test would remove; name another host "
                "or account"
            )
        return live

    def left(self) -> str:
        """Everything of a node that is there."""
        return self.run(_LEFT)

    def traces(self) -> str:
        """What any step on the node would leave another: its container, and the files that we keep."""
        return self.run(_TRACES)

    def archive(self) -> str:
        """sha256 of upstream's archive as this host gets it: that it stays the same is all that is shown."""
        return self.run(_DIGEST, self.versions.archive_url).strip()

    def inputs(
        self, gpus: Sequence[str], files: Mapping[str, str], *, sha256: str
    ) -> dict[str, Any]:
        """Of a control plane with these GPUs, this overlay, and an archive with this digest."""
        return {
            "connection": self.connection.model_dump(exclude_none=True),
            "account": self.account,
            "cluster": CLUSTER,
            "role": "control-plane",
            "node_name": self.connection.host,
            "number": 1,
            "source": {
                "tag": self.versions.usernetes,
                "location": self.versions.archive_url,
                "sha256": sha256,
                "kubernetes": self.versions.kubernetes,
            },
            "container_toolkit": self.versions.container_toolkit,
            "overlay": dict(files),
            "network": {"ports": {"kube_apiserver": API_PORT}},
            "gpus": len(gpus),
            "slirp4netns": self.versions.slirp4netns,
            # The API server of a simulated host has pods of other tests too, which must not come here.
            "schedule_on_control_plane": False,
            "api": {"through": "tunnel", "local_port": self.local_port}
            if self.local_port
            else {"through": "loopback"},
        }

    @contextmanager
    def cluster(self, kubeconfig: str) -> Iterator[PatientObjects]:
        """The cluster that a kubeconfig leads to, through the tunnel that it is for."""
        with ExitStack() as open_ways:
            if self.local_port:
                tunnel = ssh_forward.forward(
                    self.connection,
                    self.credentials,
                    local_port=self.local_port,
                    remote_port=API_PORT,
                )
                open_ways.enter_context(tunnel)
            yield PatientObjects(kubeconfig)
