"""Two customers on one machine: what each gets, what neither sees, and what happens to a GPU in between.

It is told twice: on nodes that are played (test_dev_stack.py), and on real ones (test_story.py), where there
are containers to look into. docs/lab.md lists what only these can show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.reach import container_api
from gpuclusters.config.caas import CaasConfig
from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.lease.model import GPU_LEASE
from lab.hosts.hardware import tenant
from lab.hosts.hardware.board import board
from lab.kata_runtime import ANNOTATION, sentence, stand_in
from lab.nodes import Kind
from tests.e2e.conftest import Checkout
from tests.fixtures.waiting import eventually

CYCLE = ["Releasing", "Resetting", "Scrubbing", "Verifying", "Free"]


@dataclass(frozen=True)
class Tenants:
    """The dev stack, with its API as each tenant calls it."""

    dev: Checkout
    api: ContainerApi
    real: bool

    @staticmethod
    def of(dev: Checkout) -> Tenants:
        """Those of a stack that is up."""
        config = read_valid(Project(dev.folder, dev.lab), "dev").section
        assert isinstance(config, CaasConfig)
        api = container_api(Project(dev.folder, dev.lab), config)
        assert api is not None
        return Tenants(dev, api, real=dev.nodes == "real")

    def call(self, who: str, method: str, path: str, body: Any = None) -> Answer:
        token = (self.dev.lab / "tokens" / who).read_text()
        return self.api.call(method, path, token, body)

    def run(self, who: str, gpus: int) -> str:
        """Ask for a container and wait until it runs; gives its id."""
        body = {"image": "registry.example.com/train:1", "gpus": gpus}

        def asked() -> Answer | None:
            made = self.call(who, "POST", "/v1/containers", body)
            return None if made.status == 503 else made  # which says that one may come again

        made = eventually(asked, f"an answer to {who}")
        assert made.status == 201, made
        path = f"/v1/containers/{made.body['id']}"
        eventually(
            # Also where it cannot say at this moment.
            lambda: self.call(who, "GET", path).body.get("state") == "running",
            f"{who}'s container",
        )
        return str(made.body["id"])

    def leases(self) -> dict[str, Any]:
        return {
            lease["metadata"]["name"]: lease.get("status", {})
            for lease in self.dev.objects(GPU_LEASE.path())
        }

    def phases(self) -> dict[str, str]:
        return {name: str(status.get("phase")) for name, status in self.leases().items()}

    def held_by(self, who: str) -> set[str]:
        return {
            name
            for name, status in self.leases().items()
            if (status.get("holder") or {}).get("tenant") == who
        }

    def history(self, lease: str) -> list[str]:
        """The phases that a GPU went through, oldest first."""
        events = self.dev.objects("/apis/events.k8s.io/v1/events")
        of_lease = [e for e in events if e.get("regarding", {}).get("name") == lease]
        of_lease.sort(key=lambda e: e["eventTime"])
        return [e["reason"] for e in of_lease]

    def capacity(self) -> tuple[dict[str, int], dict[int, int]]:
        """GPUs by what becomes of them, and how many requests of each size would be met."""
        said = self.call("acme", "GET", "/v1/capacity").body
        return said["gpus"], {one["gpus"]: one["free"] for one in said["sizes"]}

    def all_free(self) -> bool:
        phases = self.phases()
        return len(phases) == 16 and set(phases.values()) == {"Free"}


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


def says_once_what_stands_for_kata(real: bool, outputs: Mapping[str, str]) -> None:
    """Whatever speaks of Kata's class or of VMs names the stand-in of these nodes, and no other."""
    own, other = (Kind.REAL, Kind.SIMULATED) if real else (Kind.SIMULATED, Kind.REAL)
    for name, said in outputs.items():
        assert said.count(sentence(own)) == 1, f"{name}: {said}"
        assert sentence(other) not in said, f"{name}: {said}"


def every_output_says_once_what_stands_for_kata(cluster: Tenants) -> None:
    """Also that an `up` which finds nothing to do says so between its first line and what to try."""
    dev = cluster.dev
    before = (dev.folder / "Pulumi.dev.yaml").read_bytes()
    outputs = {"up": dev.up(), "doctor": dev.run("doctor").stdout}
    for words in (("lab", "status"), ("lab", "status", "--json")):
        outputs[" ".join(words)] = dev.run(*words).stdout
    says_once_what_stands_for_kata(cluster.real, outputs)
    assert (dev.folder / "Pulumi.dev.yaml").read_bytes() == before
    lines = outputs["up"].splitlines()
    assert lines[0].startswith("engine: embedded")
    assert "no changes: everything is as the configuration says" in lines
    assert "run a container with two GPUs (on real machines: in a VM)" in outputs["up"]
    processes = [one for one in json.loads(outputs["lab status --json"]) if one["pid"]]
    assert [one["name"] for one in processes if not one["rss-bytes"]] == []
    assert {"node hgx-01", "node hgx-02"} <= {one["name"] for one in processes} or not cluster.real
    own = stand_in(Kind.REAL if cluster.real else Kind.SIMULATED)
    for name, node in dev.nodes_of_api().items():
        if name.startswith("hgx-"):
            assert node["metadata"]["annotations"][ANNOTATION] == own


def computed_in_containers(cluster: Tenants, folder: Path, sizes: Sequence[int]) -> None:
    """The evidence of the proof, which is the only one in this folder; these sizes are possible."""
    (evidence,) = folder.glob("proof-*.json")
    found = json.loads(evidence.read_text())
    computed = [c["subject"] for c in found["checks"] if c["what"] == "multiplies matrices"]
    assert sorted(computed) == [f"size-{size} cpu-{n}" for size in sizes for n in range(size)]
    assert {c["outcome"] for c in found["checks"]} == {"passed"}
    left_out = [line for line in found["remarks"] if "is not possible" in line]
    assert len(left_out) == 4 - len(sizes)
    assert any("on this machine's processor" in line for line in found["remarks"])
    assert cluster.call("globex", "GET", "/v1/containers").body["items"] == []


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
    if cluster.real:
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
    says_once_what_stands_for_kata(cluster.real, outputs)
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
