"""A host on which a Usernetes node is made from upstream's Makefile: a simulated or a given one.

Given by GPU_CLUSTERS_REGISTRY_HOST=user@address[:port]: a machine with rootless Docker of that user, who
needs no `sudo`. Its key has to be in ~/.ssh/known_hosts; ours is in GPU_CLUSTERS_SSH_KEY_FILE or in an agent.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import yaml

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
from tests.providers.provider_process import ProviderProcess, Resource
from tests.providers.usernetes_kit import Cluster

VARIABLE = "GPU_CLUSTERS_REGISTRY_HOST"
CLUSTER = "registry-test"
API_PORT = 6443
STAND_IN = "GPU-00000000-0000-4000-8000-000000000000"
"""Stands for a GPU on a host without one: a name in the node's CDI specification, and no device behind it."""
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
    """The host that somebody gives as `user@address[:port]`, an IPv6 address in brackets.

    Raises:
        UnusableHostError: it is written otherwise, or its key is not among the known hosts.
    """
    found = re.fullmatch(r"([^@]+)@(?:\[([^]]+)\]|([^@:\[]+))(?::(\d+))?", text)
    if found is None:
        raise UnusableHostError(f"{VARIABLE}={text}: write user@address, or user@address:port")
    user, six, four, number = found.groups()
    address, port = six or four, int(number or 22)
    lines: list[str] = []
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
        host="registry-host", address=address, port=port, user=user, host_key=usable[0]
    )


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

    at: HostConnection
    environment: Mapping[str, str]
    """With which providers log in."""
    local_port: int | None = None
    """Of the tunnel to the API; None on a simulated host, which has no tunnels and whose API is here."""
    versions: VersionSet = field(default_factory=lambda: version_set("current"))

    @property
    def name(self) -> str:
        return self.at.host

    @property
    def connection(self) -> dict[str, Any]:
        return self.at.model_dump(exclude_none=True)

    @property
    def account(self) -> str:
        """Whose rootless Docker it is: that of whoever logs in."""
        return self.at.user

    @property
    def natural_id(self) -> str:
        """Of the node."""
        return f"{CLUSTER}/{self.name}"

    @property
    def ssh(self) -> SshHost:
        """The host for this process."""
        return SshHost(self.at, connect.find_credentials(None, self.environment))

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
        wrong = ""
        if live.docker != "ok":
            wrong = (
                f"the rootless Docker of {self.account} does not answer ({live.docker}); "
                "prepare the host as docs/usernetes-nodes.md says"
            )
        elif live.is_begun and live.owner != self.natural_id:
            wrong = (
                f"{self.account} has a Usernetes node already, of "
                f"{live.owner or 'nobody that is known'}, which the test would remove; name another host "
                "or account"
            )
        if wrong:
            raise UnusableHostError(f"{VARIABLE}: {self.at.target}: {wrong}")
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

    def node(
        self, process: ProviderProcess, gpus: int, *, stand_in: bool, sha256: str = "0" * 64
    ) -> Resource:
        """A control plane of so many GPUs, or of the one that stands for them."""
        versions = self.versions
        cluster = Cluster([self], process)
        inputs = cluster.inputs(
            self,
            account=self.account,
            cluster=CLUSTER,
            source={
                "tag": versions.usernetes,
                "location": versions.archive_url,
                "sha256": sha256,
                "kubernetes": versions.kubernetes,
            },
            container_toolkit=versions.container_toolkit,
            gpus=gpus,
            slirp4netns=versions.slirp4netns,
            # The API server of a simulated host has pods of other tests too, which must not come here.
            schedule_on_control_plane=False,
            api={"through": "tunnel", "local_port": self.local_port}
            if self.local_port
            else {"through": "loopback"},
        )
        del inputs["join_timeout_seconds"]
        if stand_in:
            inputs["overlay"] = without_gpus(inputs["overlay"])
        return process.of(NodeWithStandIn if stand_in else UsernetesNodeProvider, inputs)

    @contextmanager
    def cluster(self, kubeconfig: str) -> Iterator[PatientObjects]:
        """The cluster that a kubeconfig leads to, through the tunnel that it is for."""
        with ExitStack() as open_ways:
            if self.local_port:
                credentials = connect.find_credentials(None, self.environment)
                ports = {"local_port": self.local_port, "remote_port": API_PORT}
                open_ways.enter_context(ssh_forward.forward(self.at, credentials, **ports))
            yield PatientObjects(kubeconfig)
