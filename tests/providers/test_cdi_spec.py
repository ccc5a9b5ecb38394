"""The CDI spec of a host's GPUs, through the SDK's provider process and real SSH."""

import json
from typing import Any

import pytest
import yaml

from gpuclusters.cdi.resource import CdiSpecProvider
from tests.fixtures.cdi_rules import faults_in
from tests.fixtures.hosts import SimulatedHost
from tests.providers.provider_process import ProviderProcess, StepFailed

PATH = "/etc/cdi/nvidia.com-pgpu.json"
GPUS = {"1": "86", "2": "b8", "3": "87", "4": "bb", "5": "0f", "6": "41", "7": "10", "8": "44"}
FOREIGN = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/pgpu",
    "devices": [{"name": "3", "containerEdits": {"env": ["A=b"]}}],
}


def wanted(host: SimulatedHost, modules: str = "12345678", **changes: Any) -> dict[str, Any]:
    devices = [{"name": m, "pci_address": f"0000:{GPUS[m]}:00.0"} for m in modules]
    return {
        "connection": host.connection,
        "path": PATH,
        "kind": "nvidia.com/pgpu",
        "devices": devices,
    } | changes


def on_host(host: SimulatedHost) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(host.path(PATH).read_text())
    return document


def group_of(host: SimulatedHost, address: str) -> str:
    return host.path(f"/sys/bus/pci/devices/{address}/iommu_group").name


def test_a_spec_names_the_vfio_group_of_each_gpu(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(CdiSpecProvider, wanted(host))
    assert made.id == f"{host.name}:{PATH}"
    assert made.outputs["qualified_names"] == [f"nvidia.com/pgpu={n}" for n in range(1, 9)]
    assert made.outputs["content"] == host.path(PATH).read_text()
    document = on_host(host)
    assert faults_in(document) == []
    assert document["cdiVersion"] == "0.6.0"
    for device in document["devices"]:
        address = device["annotations"]["gpu-clusters.dev/pci-address"]
        assert address == f"0000:{GPUS[device['name']]}:00.0"
        assert device["containerEdits"]["deviceNodes"] == [
            {"path": f"/dev/vfio/{group_of(host, address)}", "type": "c", "permissions": "rw"}
        ]
    common = document["containerEdits"]["deviceNodes"]
    assert [node["path"] for node in common] == ["/dev/vfio/vfio"]

    fewer = wanted(host, "1357")
    assert provider.diff(CdiSpecProvider, made.outputs, fewer).changes
    made = provider.update(CdiSpecProvider, made, fewer)
    assert [d["name"] for d in on_host(host)["devices"]] == ["1", "3", "5", "7"]
    assert not provider.diff(CdiSpecProvider, made.outputs, fewer).changes
    provider.delete(CdiSpecProvider, made)
    assert not host.path(PATH).exists()


def test_a_file_of_ours_from_an_interrupted_run_is_taken_on_even_when_the_inputs_changed(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    provider.create(CdiSpecProvider, wanted(host))
    made = provider.create(CdiSpecProvider, wanted(host, "12"))
    assert [d["name"] for d in on_host(host)["devices"]] == ["1", "2"]
    assert not provider.diff(CdiSpecProvider, made.outputs, wanted(host, "12")).changes


def test_a_file_without_our_mark_is_refused_kept_and_adopted_only_if_it_hands_out_the_same(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    host.path(PATH).parent.mkdir(parents=True, exist_ok=True)
    host.path(PATH).write_text(json.dumps(FOREIGN))
    with pytest.raises(StepFailed, match=r"the file is not ours.*adopt"):
        provider.create(CdiSpecProvider, wanted(host))
    assert on_host(host) == FOREIGN
    with pytest.raises(
        StepFailed, match=r"what is there differs.*it has no device 1; it has no device 2"
    ):
        provider.create(CdiSpecProvider, wanted(host, adopt=True))
    assert on_host(host) == FOREIGN

    by_hand = same_by_hand(host)
    by_hand["devices"][2]["containerEdits"]["deviceNodes"][0]["path"] = "/dev/vfio/999"
    host.path(PATH).write_text(json.dumps(by_hand))
    with pytest.raises(
        StepFailed, match=r"device 3 is .*/dev/vfio/999.* instead of .*; declare it as it is"
    ):
        provider.create(CdiSpecProvider, wanted(host, adopt=True))
    assert on_host(host) == by_hand

    host.path(PATH).write_text(yaml.safe_dump(same_by_hand(host)))
    made = provider.create(CdiSpecProvider, wanted(host, adopt=True))
    assert len(on_host(host)["devices"]) == 8
    assert not provider.diff(CdiSpecProvider, made.outputs, wanted(host)).changes
    provider.delete(CdiSpecProvider, made)
    assert not host.path(PATH).exists()


def same_by_hand(host: SimulatedHost) -> dict[str, Any]:
    """What an administrator may have written: no marks, access in full, another order."""
    devices = [
        {
            "name": device["name"],
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/vfio/{group_of(host, device['pci_address'])}"}]
            },
        }
        for device in wanted(host)["devices"]
    ]
    return {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/pgpu",
        "devices": devices,
        "containerEdits": {"deviceNodes": [{"path": "/dev/vfio/vfio", "permissions": "mrw"}]},
    }


def test_drift_is_named_by_a_refresh_and_put_back(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(CdiSpecProvider, wanted(host))
    assert provider.read(CdiSpecProvider, made).outputs == made.outputs

    document = on_host(host)
    del document["devices"][3]
    host.path(PATH).write_text(json.dumps(document))
    live = provider.read(CdiSpecProvider, made)
    assert [one["code"] for one in live.outputs["drift"]] == ["cdi.devices-changed"]
    assert len(live.inputs["devices"]) == 7
    assert provider.diff(CdiSpecProvider, live.outputs, wanted(host)).changes

    host.path(PATH).write_text(json.dumps(FOREIGN))
    live = provider.read(CdiSpecProvider, made)
    assert [one["code"] for one in live.outputs["drift"]] == ["cdi.file-replaced"]
    with pytest.raises(StepFailed, match="not ours"):
        provider.delete(CdiSpecProvider, made)

    provider.update(CdiSpecProvider, made, wanted(host))
    assert host.path(PATH).read_text() == made.outputs["content"]
    assert "was replaced by a file that is not ours; put back" in provider.stderr.read_text()


def test_a_file_that_says_nothing_any_more_leaves_a_state_that_can_be_worked_with(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(CdiSpecProvider, wanted(host))
    host.path(PATH).write_text("{}")
    live = provider.read(CdiSpecProvider, made)
    assert provider.diff(CdiSpecProvider, live.outputs, wanted(host)).changes
    made.outputs = live.outputs
    assert provider.read(CdiSpecProvider, made).outputs == live.outputs
    made = provider.update(CdiSpecProvider, made, wanted(host))
    assert made.outputs["drift"] == []
    provider.delete(CdiSpecProvider, made)
