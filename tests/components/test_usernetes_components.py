"""A Usernetes cluster as components: its nodes, and its device plugin."""

from typing import Any

from components.host_connection import HostConnection
from components.usernetes import GpuPlugin, UsernetesCluster, UsernetesHost
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.proof.resource import PluginGateProvider
from gpuclusters.providers import properties
from gpuclusters.usernetes.addresses import ApiAccess
from gpuclusters.usernetes.model import UsernetesNodeInputs
from tests.components.recorder import Recorder, record

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
NODE = ":UsernetesNode"


def host(name: str, number: int) -> UsernetesHost:
    connection = HostConnection(host=name, address="192.0.2.1", port=22, user="ops", host_key=KEY)
    return UsernetesHost(connection=connection, account="ubuntu", number=number, gpus=4)


def cluster(*workers: UsernetesHost, **changes: Any) -> Recorder:
    def declare() -> None:
        args: dict[str, Any] = {
            "versions": version_set("current").model_copy(update={"usernetes_sha256": "a" * 64}),
            "control_plane": host("v-1", 1),
            "workers": workers,
            "api": ApiAccess(through="tunnel", local_port=16443),
            **changes,
        }
        UsernetesCluster("c", **args)

    return record(declare)


def test_a_worker_that_leaves_the_middle_changes_no_other() -> None:
    three = cluster(host("v-2", 2), host("v-3", 3)).of(NODE)
    two = cluster(host("v-3", 3)).of(NODE)
    assert two == {name: three[name] for name in ("v-1-node", "v-3-node")}


def test_what_is_declared_are_inputs_that_the_provider_takes() -> None:
    for versions in ("current", "proven"):
        found = version_set(versions).model_copy(update={"usernetes_sha256": "a" * 64})
        node = cluster(versions=found).of(NODE)["v-1-node"]
        inputs = properties.inputs_of(UsernetesNodeInputs, node)
        inputs["connection"] = {k: v for k, v in inputs["connection"].items() if v is not None}
        checked = UsernetesNodeInputs.model_validate(inputs, by_name=True)
        assert checked.source.kubernetes == found.kubernetes


def test_another_set_of_versions_is_another_look_at_the_plugin() -> None:
    def gate(versions: str) -> dict[str, Any]:
        args: dict[str, Any] = {"cluster": "v100", "kubeconfig": "clusters: []"}
        args |= {"versions": version_set(versions), "nodes": {"a": 2, "b": 2}}
        (inputs,) = record(lambda: GpuPlugin("gpus", **args)).of(":PluginGate").values()
        return {k: v for k, v in inputs.items() if v is not None}

    before, after = gate("proven"), gate("current")
    assert PluginGateProvider().check({}, after).failures == []
    difference = PluginGateProvider().diff("v100/device-plugin", before, after)
    assert (difference.changes, difference.replaces) == (True, [])
