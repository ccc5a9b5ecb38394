"""The CDI spec of a host's GPUs, through the SDK's provider process and real SSH."""

import json
from typing import Any

import pytest
import yaml

from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import INPUTS, ProviderProcess, Resource

PATH = INPUTS["CdiSpec"]["path"]
FOREIGN = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/pgpu",
    "devices": [{"name": "3", "containerEdits": {"env": ["A=b"]}}],
}


def devices(modules: str) -> list[dict[str, str]]:
    return [one for one in INPUTS["CdiSpec"]["devices"] if one["name"] in modules]


@pytest.fixture
def host(machine: SimulatedHost) -> SimulatedHost:
    """The module's, without the specification."""
    machine.path(PATH).unlink(missing_ok=True)
    return machine


@pytest.fixture
def spec(host: SimulatedHost, provider: ProviderProcess) -> Resource:
    return provider.on("CdiSpec", host)


def on_host(host: SimulatedHost) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(host.path(PATH).read_text())
    return document


def names(host: SimulatedHost) -> str:
    return "".join(device["name"] for device in on_host(host)["devices"])


def node_of(host: SimulatedHost, address: str) -> str:
    return f"/dev/vfio/{host.path(f'/sys/bus/pci/devices/{address}/iommu_group').name}"


def test_a_spec_names_the_vfio_group_of_each_gpu(host: SimulatedHost, spec: Resource) -> None:
    made = spec.create()
    assert spec.id == f"{host.name}:{PATH}"
    assert made["qualified_names"] == [f"nvidia.com/pgpu={n}" for n in range(1, 9)]
    assert made["content"] == host.path(PATH).read_text()
    document = on_host(host)
    assert document["cdiVersion"] == "0.6.0"
    for device in document["devices"]:
        address = device["annotations"]["gpu-clusters.dev/pci-address"]
        assert [address] == [one["pci_address"] for one in devices(device["name"])]
        assert device["containerEdits"]["deviceNodes"] == [
            {"path": node_of(host, address), "type": "c", "permissions": "rw"}
        ]
    common = document["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in common] == ["/dev/vfio/vfio"]

    fewer = {"devices": devices("1357")}
    assert spec.differs(**fewer)
    spec.update(**fewer)
    assert names(host) == "1357"
    assert not spec.differs(**fewer)
    # One of ours from an interrupted run is taken on, even when the inputs changed.
    spec.create(devices=devices("12"))
    assert names(host) == "12"


def test_a_file_without_our_mark_is_refused_kept_and_adopted_only_if_it_hands_out_the_same(
    host: SimulatedHost, spec: Resource
) -> None:
    host.path(PATH).parent.mkdir(parents=True, exist_ok=True)
    host.path(PATH).write_text(json.dumps(FOREIGN))
    spec.refused("create", "the file is not ours", "adopt")
    spec.wanted["adopt"] = True
    spec.refused("create", "what is there differs", "it has no device 1; it has no device 2")
    assert on_host(host) == FOREIGN

    # As an administrator may have written it: no marks, access in full, another order.
    nodes = {
        one["name"]: {"path": node_of(host, one["pci_address"])} for one in spec.wanted["devices"]
    }
    every = [{"name": m, "containerEdits": {"deviceNodes": [n]}} for m, n in nodes.items()]
    shared = {"deviceNodes": [{"path": "/dev/vfio/vfio", "permissions": "mrw"}]}
    by_hand = FOREIGN | {"cdiVersion": "0.6.0", "devices": every, "containerEdits": shared}
    same, nodes["3"]["path"] = yaml.safe_dump(by_hand), "/dev/vfio/999"
    host.path(PATH).write_text(json.dumps(by_hand))
    spec.refused("create", "device 3 is ", "/dev/vfio/999", " instead of ", "; declare it as it is")
    assert on_host(host) == by_hand

    host.path(PATH).write_text(same)
    spec.create()
    assert names(host) == "12345678"
    assert not spec.differs(adopt=False)
    spec.delete()
    assert not host.path(PATH).exists()


def test_drift_is_named_by_a_refresh_and_put_back(host: SimulatedHost, spec: Resource) -> None:
    made = spec.create()
    assert spec.refresh().outputs == made

    document = on_host(host)
    del document["devices"][3]
    host.path(PATH).write_text(json.dumps(document))
    live = spec.drifted()
    assert [one["code"] for one in live.outputs["drift"]] == ["cdi.devices-changed"]
    assert len(live.inputs["devices"]) == 7

    host.path(PATH).write_text(json.dumps(FOREIGN))
    assert "[cdi.file-replaced]" in spec.drift()
    spec.refused("delete", "not ours")
    spec.update()
    assert host.path(PATH).read_text() == made["content"]
    said = spec.process.stderr.read_text()
    assert "was replaced by a file that is not ours; put back" in said

    # A file that says nothing any more leaves a state that can be worked with.
    host.path(PATH).write_text("{}")
    seen = spec.refresh().outputs
    assert spec.differs()
    assert spec.refresh().outputs == seen
    assert spec.update()["drift"] == []
