"""A Usernetes cluster as components: its hosts, its nodes, and its device plugin."""

from typing import Any

from components.host_connection import HostConnection
from components.usernetes import (
    GpuPlugin,
    RootlessHost,
    UsernetesCluster,
    UsernetesHost,
)
from gpuclusters.boot.model import RebootPolicy
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.driver.model import Modules, PackageSource, WantedDriver
from gpuclusters.proof.resource import PluginGateProvider
from gpuclusters.providers import properties
from gpuclusters.usernetes.addresses import ApiAccess
from gpuclusters.usernetes.model import UsernetesNodeInputs
from tests.components.recorder import Recorder, record

DRIVER = WantedDriver(
    version="580.178.04",
    modules=Modules.PROPRIETARY,
    packages=PackageSource.DISTRIBUTION,
    reboot=RebootPolicy.REFUSE,
    reboot_timeout_seconds=600,
)


def test_a_driver_that_is_there_is_checked_alone_and_another_one_is_put_there() -> None:
    connection = HostConnection(
        host="v100-1", address="192.0.2.1", port=22, user="ubuntu", host_key="ssh-ed25519 AAAA"
    )
    for driver, sudo in ((DRIVER, True), (None, False)):
        args: dict[str, Any] = {
            "connection": connection,
            "account": "ubuntu",
            "gpus": 4,
            "driver": driver,
            "versions": version_set("current"),
            "sudo": sudo,
            "ports": (10250, 6443),
        }
        engine = record(lambda args=args: RootlessHost("v100-1", **args))
        assert list(engine.of("GpuDriver")) == (["v100-1-driver"] if driver else [])
        (prepared,) = engine.of("gpu-clusters:gpu:RootlessHost").values()
        assert (prepared["sudo"], prepared["ports"]) == (sudo, [6443, 10250])
        assert prepared["probe_image"] == version_set("current").node_image


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


NODES = {"a": 2, "b": 2}


def plugin(**changes: Any) -> Recorder:
    args: dict[str, Any] = {
        "cluster": "v100",
        "kubeconfig": "clusters: []",
        "versions": version_set("current"),
        "nodes": NODES,
    }
    return record(lambda: GpuPlugin("gpus", **(args | changes)))


def of(recorder: Recorder, kind: str) -> dict[str, Any]:
    (inputs,) = recorder.of(kind).values()
    return {k: v for k, v in inputs.items() if v is not None}


def test_another_set_of_versions_is_another_plugin_and_another_look() -> None:
    old = plugin(versions=version_set("proven"))
    (container,) = of(old, "apps/v1:DaemonSet")["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":v0.18.2")
    before, after = of(old, ":PluginGate"), of(plugin(), ":PluginGate")
    difference = PluginGateProvider().diff("v100/device-plugin", before, after)
    assert difference.changes
    assert difference.replaces == []


def test_the_exporter_comes_only_where_it_is_wanted() -> None:
    assert len(plugin().of("apps/v1:DaemonSet")) == 1
    more = plugin(metrics=True)
    made = more.of("apps/v1:DaemonSet")["gpus-exporter"]
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("nvcr.io/nvidia/k8s/dcgm-exporter:4.6.1")
    assert container["ports"] == [{"name": "metrics", "containerPort": 9400}]
    (service,) = more.of(":Service").values()
    assert service["spec"]["selector"] == made["spec"]["selector"]["matchLabels"]


def test_the_gate_waits_for_the_nodes_that_are_declared() -> None:
    inputs = of(plugin(), ":PluginGate")
    assert PluginGateProvider().check({}, inputs).failures == []
    assert inputs["expected"] == NODES
    assert of(plugin(), ":RuntimeClass")["handler"] == "nvidia"
