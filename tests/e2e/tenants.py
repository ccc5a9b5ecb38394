"""The dev stack as its tenants use it, and what its outputs say of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.reach import container_api
from gpuclusters.config.caas import CaasConfig
from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.core.errors import UnreachableError
from gpuclusters.lease.model import GPU_LEASE
from lab.kata_runtime import ANNOTATION, sentence, stand_in
from lab.nodes import Kind
from tests.e2e.conftest import Checkout
from tests.fixtures.waiting import eventually


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

    def run(self, who: str, gpus: int, **more: Any) -> str:
        """Ask for a container and wait until it runs; gives its id."""
        body = {"image": "registry.example.com/train:1", "gpus": gpus} | more

        def asked() -> Answer | None:
            # On a machine that stands still nobody may answer; 503 says that one may come again.
            with contextlib.suppress(UnreachableError):
                made = self.call(who, "POST", "/v1/containers", body)
                return None if made.status == 503 else made
            return None

        made = eventually(asked, f"an answer to {who}")
        assert made.status == 201, made
        path = f"/v1/containers/{made.body['id']}"

        def runs() -> bool:
            # Also where it cannot say at this moment.
            with contextlib.suppress(UnreachableError):
                return bool(self.call(who, "GET", path).body.get("state") == "running")
            return False

        eventually(runs, f"{who}'s container")
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


def says_once_what_stands_for_kata(outputs: Mapping[str, str], *, real: bool) -> None:
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
    says_once_what_stands_for_kata(outputs, real=cluster.real)
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
