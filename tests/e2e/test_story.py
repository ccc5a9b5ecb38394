"""Two customers on one machine: what each gets, what neither sees, and what happens to a GPU in between.

On real nodes, from `make up` to `make down`, where there are containers to look into.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts.hardware import tenant
from lab.hosts.hardware.board import board
from lab.nodes.network import token
from tests.e2e.conftest import Checkout, checkout
from tests.e2e.tenants import (
    Tenants,
    computed_in_containers,
    every_output_says_once_what_stands_for_kata,
    says_once_what_stands_for_kata,
)
from tests.fixtures.waiting import eventually
from tests.lab.nodes import this_machine
from tests.lab.nodes.real_lab import REAL_NODE

pytestmark = REAL_NODE

CYCLE = ["Releasing", "Resetting", "Scrubbing", "Verifying", "Free"]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The dev stack on real nodes, up; this machine is left as it was found."""
    folder = tmp_path_factory.mktemp("story-real")
    nodes = folder / "lab" / "nodes"
    before = this_machine.seen()
    with checkout(folder, nodes="real") as dev:
        dev.up()
        yield dev
    # `make down` has run.
    after = this_machine.seen(nodes)
    assert this_machine.of(after, token(nodes)) == []
    assert this_machine.changed(before, after, nodes) == {}


def looks_into_its_container(cluster: Tenants, who: str, container: str) -> None:
    """What only a real node can show: the container itself, with its devices and no others."""
    nodes = cluster.dev.nodes_of_api()
    assert set(nodes) == {"hgx-01", "hgx-02"}
    for node in nodes.values():
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")
    namespace = f"tenant-{who}"
    pod = cluster.dev.kubectl("get", "pod", container, "-n", namespace)
    machine, gpus = pod["spec"]["nodeName"], board("supermicro-hgx-h100").gpus
    leased = [name.rpartition("gpu")[2] for name in cluster.held_by(who) if machine in name]
    groups = {str(gpus[int(module)].iommu_group) for module in leased}
    listed = cluster.dev.kubectl_text("exec", "-n", namespace, container, "--", "ls", "/dev/vfio")
    assert set(listed.split()) == {*groups, "vfio"}
    # Its log streams through our API.
    log = f"/v1/containers/{container}/logs"
    # It runs a moment before it says so.
    eventually(
        lambda: "stand-in" in str(cluster.call(who, "GET", log).body),
        "what the container says in its log",
    )


def two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(
    cluster: Tenants, tmp_path: Path
) -> None:
    """Tell it: from sixteen free GPUs to sixteen free GPUs."""
    # Nobody knows who had a new GPU: each is reset, cleared and verified before the first tenant.
    eventually(cluster.all_free, "sixteen free GPUs")
    machines = cluster.dev.lab / "hosts"

    ours = cluster.run("acme", 2)
    theirs = cluster.run("globex", 4)
    acmes, globexs = cluster.held_by("acme"), cluster.held_by("globex")
    assert (len(acmes), len(globexs)) == (2, 4)
    assert not acmes & globexs
    looks_into_its_container(cluster, "acme", ours)
    hosts = {name.rpartition("-")[0] for name in acmes | globexs}
    assert len(hosts) == 1, "the second request fits beside the first"
    (host,) = hosts

    # Neither sees the other, not even that it exists.
    listed = cluster.call("acme", "GET", "/v1/containers").body["items"]
    assert [one["id"] for one in listed] == [ours]
    foreign = cluster.call("acme", "GET", f"/v1/containers/{theirs}")
    never = cluster.call("acme", "GET", "/v1/containers/c-00000000000000000000")
    assert foreign.status == never.status == 404
    assert foreign.body["title"] == never.body["title"]

    done = cluster.dev.run("verify", "--level", "isolation", "--evidence", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (evidence,) = tmp_path.glob("*.json")
    outputs = {"verify": done.stdout, "evidence": evidence.read_text()}
    outputs["for people"] = evidence.with_suffix(".md").read_text()
    says_once_what_stands_for_kata(outputs, real=True)
    tried = len(json.loads(evidence.read_text())["findings"])
    assert tried > 114
    verdict = done.stdout.splitlines()[-1]
    assert verdict == f"{tried} of {tried} attempts were refused: isolation holds"
    assert cluster.dev.run("verify", "--check", str(evidence)).returncode == 0

    # acme goes: its GPUs come back by the whole way.
    before = {name: status["cycle"] for name, status in cluster.leases().items()}
    assert cluster.call("acme", "DELETE", f"/v1/containers/{ours}").status in (202, 204)
    eventually(lambda: {cluster.phases()[name] for name in acmes} == {"Free"}, "acme's GPUs free")
    # Events are sent behind what they tell of.
    eventually(
        lambda: all(cluster.history(name)[-5:] == CYCLE for name in acmes), "events of acme's GPUs"
    )
    for name in acmes:
        assert cluster.leases()[name]["cycle"] == before[name] + 1
    assert {cluster.phases()[name] for name in globexs} == {"Leased"}, "globex is not disturbed"

    # globex had root in its VM and put other firmware on one of its four GPUs.
    tampered = sorted(globexs)[1]
    module = int(tampered.rpartition("gpu")[2])
    tenant.use(machines, host, [module], "globex", firmware="66.6.66")
    cluster.call("globex", "DELETE", f"/v1/containers/{theirs}")
    eventually(
        lambda: {cluster.phases()[name] for name in globexs} <= {"Free", "Quarantined"},
        "globex's GPUs came back",
    )
    status = cluster.leases()[tampered]
    assert [name for name, phase in cluster.phases().items() if phase == "Quarantined"] == [
        tampered
    ]
    assert "66.6.66" in status["message"]

    # Capacity falls by the partitions that have this GPU, and by nothing else.
    gpus = {
        "total": 16, "free": 15, "unschedulable": 0, "unschedulableBy": {},
        "recycling": 0, "quarantined": 1,
    }  # fmt: skip
    eventually(lambda: cluster.capacity() == (gpus, {1: 4, 2: 2, 4: 1}), "less capacity")

    # The next tenant finds nothing of the last one, anywhere.
    again = cluster.run("acme", 4)
    assert not {tampered} & cluster.held_by("acme")
    cluster.call("acme", "DELETE", f"/v1/containers/{again}")
    cluster.dev.unharmed("hgx-01", "hgx-02")

    # An operator has repaired it and asks for another look.
    tenant.repair(machines, host, [module])
    cluster.dev.kubectl("annotate", "gpulease", tampered, "gpu-clusters.dev/recheck=repaired")
    eventually(cluster.all_free, "sixteen free GPUs again")
    assert cluster.dev.plan("--refresh") == [], "Pulumi sees no drift after hand-overs"


def test_the_story_of_two_tenants_whose_containers_compute(real: Checkout, tmp_path: Path) -> None:
    tenants = Tenants.of(real)
    every_output_says_once_what_stands_for_kata(tenants)
    done = real.run("verify", "--level", "proof", "--evidence", str(tmp_path / "proof"))
    assert done.returncode == 0, done.stdout + done.stderr
    computed_in_containers(tenants, tmp_path / "proof", sizes=(1, 2, 4))
    two_tenants_on_one_machine_and_a_gpu_that_was_tampered_with(tenants, tmp_path / "isolation")
