"""A control plane from upstream's Makefile and our overlay, from nothing to nothing.

Always on a simulated host, and on one that GPU_CLUSTERS_REGISTRY_HOST=user@address[:port] gives: a machine
with rootless Docker of that user, who needs no `sudo`. Its key has to be in ~/.ssh/known_hosts; ours is in
GPU_CLUSTERS_SSH_KEY_FILE or in an agent.
"""

import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import pytest
import yaml

from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked, is_ready
from gpuclusters.host import connect
from gpuclusters.host import ssh as ssh_forward
from gpuclusters.host.connect import AGENT_VARIABLE, KEY_FILE_VARIABLE
from gpuclusters.host.model import KEY_TYPES, HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.kube.objects import PatientObjects
from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.providers import reconciling
from gpuclusters.rootless.model import DEFAULT_PROBE_IMAGE
from gpuclusters.rootless.resource import RootlessHostProvider
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD, SERVICE_ACCOUNT
from gpuclusters.usernetes.host import NodeCapability, inspect
from gpuclusters.usernetes.model import LiveNode, UsernetesNodeInputs
from gpuclusters.usernetes.resource import UsernetesNodeProvider
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually
from tests.providers import provider_process
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Made, ProviderProcess, Resource, inputs_of
from tests.providers.usernetes_kit import Cluster

VARIABLE = "GPU_CLUSTERS_REGISTRY_HOST"
VERSIONS = version_set("current")
API_PORT = 6443
HOURS = 3600
PULL_SECONDS = 1200.0
"""For the image of a pod, through a network in user space, by a kubelet that backs off."""
STAND_IN = "GPU-00000000-0000-4000-8000-000000000000"
"""Stands for a GPU on a host without one: a name in the node's CDI specification, and no device behind it."""
GENERATE = 'nvidia-ctk cdi generate --output="$specification" --device-name-strategy=uuid\n'
SCRIPTS = beside(__file__, "registry_host.yaml")


def given(text: str, known_hosts: Path) -> HostConnection:
    """The host that somebody gives as `user@address[:port]`, an IPv6 address in brackets."""
    found = re.fullmatch(r"([^@]+)@(?:\[([^]]+)\]|([^@:\[]+))(?::(\d+))?", text)
    assert found, f"{VARIABLE}={text}: write user@address, or user@address:port"
    user, six, four, number = found.groups()
    address, port = six or four, int(number or 22)
    known = asyncssh.read_known_hosts(str(known_hosts) if known_hosts.exists() else [])
    keys = known.match(address, "", None if port == 22 else port)[0]
    lines = [key.export_public_key().decode() for key in keys]
    usable = [line for kind in KEY_TYPES for line in lines if line.split()[0] == kind]
    assert usable, f"{VARIABLE}={text}: {known_hosts} has no key of it; log in once and compare it"
    reached = {"address": address, "port": port, "user": user, "host_key": usable[0]}
    return HostConnection(host="registry-host", **reached)


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
    before, _, after = files["node-gpus.sh"].partition(GENERATE)
    assert after, "node-gpus.sh makes the specification in another way"
    written = f"cat >\"$specification\" <<'END'\n{yaml.safe_dump(specification)}END\n"
    changed = {"compose.yaml": yaml.safe_dump(compose), "node-gpus.sh": before + written + after}
    return {**files, **changed}


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


HERE = "tests.providers.test_usernetes_from_registry"
WITH_STAND_IN = {"TEST_PROVIDERS": f"NodeWithStandIn={HERE}:NodeWithStandIn"}


@dataclass
class Site:
    """The host of a test."""

    at: HostConnection
    environment: Mapping[str, str]
    """With which providers log in."""
    local_port: int | None = None
    """Of the tunnel to the API; None on a simulated host, which has neither a tunnel nor pods."""

    def __post_init__(self) -> None:
        self.name, self.account = self.at.host, self.at.user
        self.connection = self.at.model_dump(exclude_none=True)
        self.natural_id = f"registry-test/{self.name}"
        self.ssh = SshHost(self.at, connect.find_credentials(None, self.environment))

    def run(self, script: str, *arguments: str) -> str:
        """What a script prints there, as the account and with its daemon."""
        done = self.ssh.run(
            ["sh", "-c", SCRIPTS["before"] + SCRIPTS.get(script, script), "sh", *arguments],
            tried="look at it",
            as_root=False,
            timeout_seconds=600,
        )
        assert done.status == 0, done.stderr
        return done.stdout.decode()

    def usable(self) -> LiveNode:
        """What is there before; the test fails where there is no rootless Docker, or a node of somebody."""
        live = inspect(self.ssh, self.account)
        of, owner = self.account, live.owner or "nobody that is known"
        silent = f"the rootless Docker of {of} does not answer ({live.docker})"
        assert live.docker == "ok", f"{silent}; prepare the host as docs/usernetes-nodes.md says"
        ours = not live.is_begun or live.owner == self.natural_id
        assert ours, f"{of} has a Usernetes node of {owner}, which would go; name another account"
        return live

    def node(
        self, process: ProviderProcess, gpus: int, *, stand_in: bool, sha256: str = "0" * 64
    ) -> Resource:
        """A control plane of so many GPUs, or of the one that stands for them."""
        inputs = Cluster([self], process).inputs(
            self,
            account=self.account,
            cluster="registry-test",
            source={
                "tag": VERSIONS.usernetes,
                "location": VERSIONS.archive_url,
                "sha256": sha256,
                "kubernetes": VERSIONS.kubernetes,
            },
            container_toolkit=VERSIONS.container_toolkit,
            gpus=gpus,
            slirp4netns=VERSIONS.slirp4netns,
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
    def cluster(self, kubeconfig: str, port: int) -> Iterator[PatientObjects]:
        """The cluster that a kubeconfig leads to, through the tunnel that it is for."""
        credentials = connect.find_credentials(None, self.environment)
        with ssh_forward.forward(self.at, credentials, local_port=port, remote_port=API_PORT):
            yield PatientObjects(kubeconfig)


@pytest.fixture(
    params=[
        "simulated",
        pytest.param("given", marks=[pytest.mark.registry, pytest.mark.timeout(3 * HOURS)]),
    ]
)
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The host; one that is given has neither a node nor the time of a simulated one."""
    if request.param == "simulated":
        (host,) = request.getfixturevalue("hosts")(1, platform="plain-gpu-v100")
        made = reached(host)
        start = request.getfixturevalue("shared_processes")
        prepared(made, start(made.environment), 4).create()
        yield made
        return
    text = os.environ.get(VARIABLE)
    if not text:
        pytest.skip(
            f"{VARIABLE}=user@address[:port] names no host with rootless Docker that can pull images"
        )
    # The image of the node is built there.
    monkeypatch.setattr(provider_process, "_STEP_SECONDS", 2 * HOURS)
    log_in = (KEY_FILE_VARIABLE, AGENT_VARIABLE)
    there = Site(
        given(text, Path.home() / ".ssh" / "known_hosts"),
        {name: os.environ[name] for name in log_in if os.environ.get(name)},
        request.getfixturevalue("own_port"),
    )
    there.usable()
    yield there


def reached(host: SimulatedHost) -> Site:
    """A simulated host as a site."""
    connection = HostConnection.model_validate(host.connection)
    return Site(connection, {KEY_FILE_VARIABLE: str(host.client_key)})


def prepared(site: Site, process: ProviderProcess, gpus: int, **changes: Any) -> Resource:
    """The host's preparation."""
    versions = {"docker": VERSIONS.docker, "container_toolkit": VERSIONS.container_toolkit}
    wanted = inputs_of("RootlessHost", site, account=site.account, gpus=gpus, **versions)
    return process.of(RootlessHostProvider, wanted | changes)


def test_a_control_plane_comes_from_upstreams_makefile_and_goes_without_a_trace(
    site: Site, shared_processes: StartProvider
) -> None:
    process = shared_processes({**site.environment, **WITH_STAND_IN})
    live = site.usable()
    gpus, real = live.host_gpu or (STAND_IN,), bool(live.host_gpu)
    node = site.node(
        process,
        len(gpus),
        stand_in=not real,
        sha256=site.run("digest", VERSIONS.archive_url).strip(),
    )
    node.made = Made(site.natural_id, node.wanted)
    if live.is_begun:
        node.delete()  # of a run that was killed
    assert site.run("left") == ""
    the_preparation_finds_nothing_to_do(site, process, live.host_gpu)
    try:
        made = node.create()
        assert (node.id, made["joined"], made["drift"]) == (site.natural_id, True, [])
        assert made["gpu_uuids"] == sorted(gpus)
        assert made["kubernetes"] == VERSIONS.kubernetes
        if site.local_port:
            with site.cluster(made["kubeconfig"], site.local_port) as cluster:
                the_node_is_ready_and_starts_a_pod_that_names_a_gpu(site, cluster, gpus[0])
        the_proof_holds_as_far_as_there_are_gpus(site, gpus, real=real)
        there, before = site.run("left").split(), site.run("traces")
        assert "container" in there  # so that its absence below says something
        assert any(line.endswith("/usernetes") for line in there)
        assert "running" in before
        assert "make.log" in before
        assert (node.create(), site.run("traces")) == (made, before)
        assert node.drift() == ""
        assert not node.differs()
    finally:
        node.delete()
    assert site.run("left") == ""
    node.delete()  # gone already is done
    assert node.look().id == ""


def the_preparation_finds_nothing_to_do(
    site: Site, process: ProviderProcess, gpus: tuple[str, ...]
) -> None:
    """What goes before the node, without root: a container sees all GPUs, or it is said that there are none.

    The host has the versions that it has: which ones the node needs is not what is tried here.
    """
    docker = site.run("docker version --format '{{.Server.Version}}'").strip()
    toolkit = site.run(
        "dpkg-query --show --showformat='${Version}' nvidia-container-toolkit || true"
    ).partition("-")[0]
    versions = {"docker": docker, "container_toolkit": toolkit or VERSIONS.container_toolkit}
    host = prepared(site, process, len(gpus) or 1, sudo=False, **versions)
    if not gpus:
        host.refused("create", "its driver serves no GPU")
        return
    assert sorted(host.create()["gpu_uuids"]) == sorted(gpus)
    assert host.drift() == ""


def the_node_is_ready_and_starts_a_pod_that_names_a_gpu(
    site: Site, cluster: PatientObjects, gpu: str
) -> None:
    """As its kubeconfig shows it. A name that NVIDIA's runtime in the node did not know would end the pod."""
    name, namespace = site.name, f"registry-{secrets.token_hex(4)}"
    eventually(
        lambda: is_ready(cluster.get(NODE, name) or {}), f"{name} is Ready by its kubeconfig"
    )
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    cluster.create(NAMESPACE, body)
    try:
        eventually(lambda: cluster.get(SERVICE_ACCOUNT, "default", namespace), what="its account")
        visible = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": gpu}]
        container = {"name": "looks", "image": DEFAULT_PROBE_IMAGE, "env": visible}
        spec = {
            "nodeName": name,
            "terminationGracePeriodSeconds": 0,
            "containers": [container | {"command": ["sleep", "100000"]}],
        }
        metadata = {"name": "looks", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        cluster.create(POD, pod)
        deadline = time.monotonic() + PULL_SECONDS
        while not is_ready(seen := cluster.get(POD, "looks", namespace) or pod):
            why = blocked(seen, cluster.list(EVENT, namespace))
            assert "unresolvable" not in why, why
            assert time.monotonic() < deadline, why
            time.sleep(0.2)
    finally:
        cluster.delete(NAMESPACE, namespace)


def the_proof_holds_as_far_as_there_are_gpus(
    site: Site, gpus: tuple[str, ...], *, real: bool
) -> None:
    """Rungs 1 to 4; without a GPU the first says so, and the names in the node are there none the less."""
    said = hosts.ask(site.ssh, site.account, CheckLevel.NODE_CDI)
    checks = hosts.judge(site.name, len(gpus), said)
    listed = {
        line.partition("=")[2]
        for line in said.of("node-cdi").text.splitlines()
        if line.startswith("nvidia.com/gpu=")
    }
    assert {*gpus, "all"} <= listed
    if real:
        assert proof.proven(checks), proof.faults(checks)
        assert [check.level for check in checks] == ["R1", "R2", "R3", "R4"]
    else:
        assert [(check.level, check.outcome) for check in checks] == [("R1", proof.Outcome.FAILED)]


def test_a_host_without_a_gpu_is_refused_with_what_is_missing(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-server")
    site = reached(host)
    process = start_provider(host, **WITH_STAND_IN)
    prepared(site, process, 1).refused("create", "its driver serves no GPU")
    with pytest.raises(AssertionError, match="rootless Docker of operator does not answer"):
        site.usable()
    too_few = "nvidia-smi shows 0 GPUs and 1 are declared"
    site.node(process, 1, stand_in=False).refused("create", too_few)
    # With the one that stands for a GPU only Docker is missing.
    said = site.node(process, 1, stand_in=True).refused("create", "does not answer")
    assert too_few not in said
    assert not host.path("/home/operator/.local/share/gpu-clusters").exists()
