"""A control plane from upstream's Makefile and our overlay, from nothing to nothing.

Always on a simulated host, and on a real one with rootless Docker where somebody gives it (`registry_host`).
"""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import lab.hosts
import lab.kubelet
import lab.usernetes
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked, is_ready
from gpuclusters.host.connect import AGENT_VARIABLE, KEY_FILE_VARIABLE
from gpuclusters.host.model import HostConnection
from gpuclusters.kube.objects import PatientObjects
from gpuclusters.proof import checks as proof
from gpuclusters.proof import hosts
from gpuclusters.proof.checks import CheckLevel
from gpuclusters.rootless.model import DEFAULT_PROBE_IMAGE
from gpuclusters.rootless.resource import RootlessHostProvider
from gpuclusters.tenancy.objects import NAMESPACE, NODE, POD, SERVICE_ACCOUNT
from lab.control_plane import NodeSpec
from lab.hosts.model import HostSpec
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.kubelet import IMAGE
from tests.fixtures.waiting import eventually
from tests.providers import provider_process, registry_host
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Made, ProviderProcess, Resource
from tests.providers.registry_host import (
    STAND_IN,
    VARIABLE,
    NodeWithStandIn,
    Site,
    UnusableHostError,
    given,
)

HOURS = 3600
LOG_IN = (KEY_FILE_VARIABLE, AGENT_VARIABLE)
PULL_SECONDS = 1200.0
"""For the image of a pod, through a network in user space, by a kubelet that backs off."""


@pytest.fixture(
    params=[
        pytest.param("simulated", marks=[pytest.mark.lab, pytest.mark.timeout(HOURS)]),
        pytest.param("given", marks=[pytest.mark.registry, pytest.mark.timeout(3 * HOURS)]),
    ]
)
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The host; one that is given has neither a node nor the time of a simulated one."""
    if request.param == "simulated":
        with simulated(request.getfixturevalue("kube_api")) as made:
            process = request.getfixturevalue("shared_processes")(made.environment)
            prepared(made, process, 4).create()
            yield made
        return
    text = os.environ.get(VARIABLE)
    if not text:
        pytest.skip(
            f"{VARIABLE}=user@address[:port] names no host with rootless Docker that can pull images"
        )
    # The image of the node is built there.
    monkeypatch.setattr(provider_process, "_STEP_SECONDS", 2 * HOURS)
    unusable = ""
    try:
        there = Site(
            given(text, Path.home() / ".ssh" / "known_hosts"),
            {name: os.environ[name] for name in LOG_IN if os.environ.get(name)},
            request.getfixturevalue("own_port"),
        )
        there.usable()
    except UnusableHostError as error:
        unusable = str(error)
    if unusable:
        pytest.fail(unusable, pytrace=False)
    yield there


@contextmanager
def simulated(kube_api: KubeCluster) -> Iterator[Site]:
    """A simulated host whose node is one of the run's API server, played by the lab's kubelets."""
    folder = Path(tempfile.mkdtemp(prefix="gck-"))
    name = f"u7s-{secrets.token_hex(4)}"
    hosts, kubelets = folder / "hosts", folder / "kubelet"
    (folder / "kubeconfig").write_bytes(kube_api.kubeconfig.read_bytes())
    try:
        endpoints = lab.hosts.start(hosts, [HostSpec(name, "plain-gpu-v100")])
        host = SimulatedHost(name, hosts, endpoints[name], folder / "ssh" / "id_ed25519")
        lab.kubelet.start(
            kubelets,
            lab.kubelet.KubeletSpec(
                control_plane=kube_api.folder,
                nodes=(NodeSpec(name),),
                image=IMAGE,
                boot_seconds=0.05,
                hosts=hosts,
                joins=(name,),
            ),
        )
        lab.usernetes.start(
            folder / "usernetes", control_plane=kube_api.folder, hosts=hosts, kubelets=kubelets
        )
        yield reached(host)
    finally:
        lab.usernetes.stop(folder / "usernetes")
        lab.kubelet.stop(kubelets)
        lab.hosts.stop(hosts)
        with kube_api.api() as api:
            api.delete(f"/api/v1/nodes/{name}")
        shutil.rmtree(folder)


WITH_STAND_IN = {"TEST_PROVIDERS": f"NodeWithStandIn={NodeWithStandIn.__module__}:NodeWithStandIn"}


def reached(host: SimulatedHost) -> Site:
    """A simulated host as a site."""
    connection = HostConnection.model_validate(host.connection)
    return Site(connection, {KEY_FILE_VARIABLE: str(host.client_key)})


def prepared(site: Site, process: ProviderProcess, gpus: int, **changes: Any) -> Resource:
    """The host's preparation."""
    wanted = {
        "connection": site.connection,
        "account": site.account,
        "gpus": gpus,
        "docker": site.versions.docker,
        "container_toolkit": site.versions.container_toolkit,
        "ports": [registry_host.API_PORT],
    }
    return process.of(RootlessHostProvider, wanted | changes)


def test_a_control_plane_comes_from_upstreams_makefile_and_goes_without_a_trace(
    site: Site, shared_processes: StartProvider
) -> None:
    process = shared_processes({**site.environment, **WITH_STAND_IN})
    live = site.usable()
    gpus, real = live.host_gpu or (STAND_IN,), bool(live.host_gpu)
    node = site.node(process, len(gpus), stand_in=not real, sha256=site.archive())
    node.made = Made(site.natural_id, node.wanted)
    if live.is_begun:
        node.delete()  # of a run that was killed
    assert site.left() == ""
    the_preparation_finds_nothing_to_do(site, process, live.host_gpu)
    try:
        made = node.create()
        assert (node.id, made["joined"], made["drift"]) == (site.natural_id, True, [])
        assert made["gpu_uuids"] == sorted(gpus)
        assert made["kubernetes"] == site.versions.kubernetes
        with site.cluster(made["kubeconfig"]) as cluster:
            the_node_is_ready_and_starts_a_pod_that_names_a_gpu(site, cluster, gpus[0])
        the_proof_holds_as_far_as_there_are_gpus(site, gpus, real=real)
        there, before = site.left().split(), site.traces()
        assert "container" in there  # so that its absence below says something
        assert any(line.endswith("/usernetes") for line in there)
        assert "running" in before
        assert "make.log" in before
        assert (node.create(), site.traces()) == (made, before)
        assert node.drift() == ""
        assert not node.differs()
    finally:
        node.delete()
    assert site.left() == ""
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
    versions = {"docker": docker, "container_toolkit": toolkit or site.versions.container_toolkit}
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
        lambda: ready(cluster.get(NODE, name)), what=f"node {name} is Ready by its kubeconfig"
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


def ready(node: Mapping[str, Any] | None) -> bool:
    """Whether a Node says so."""
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


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
    with pytest.raises(UnusableHostError, match="rootless Docker of operator does not answer"):
        site.usable()
    too_few = "nvidia-smi shows 0 GPUs and 1 are declared"
    site.node(process, 1, stand_in=False).refused("create", too_few)
    # With the one that stands for a GPU only Docker is missing.
    said = site.node(process, 1, stand_in=True).refused("create", "does not answer")
    assert too_few not in said
    assert not host.path("/home/operator/.local/share/gpu-clusters").exists()
