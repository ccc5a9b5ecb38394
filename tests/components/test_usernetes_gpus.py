"""The device plugin of a rootless cluster as declared."""

from typing import Any

from components.usernetes import GpuPlugin
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.proof.resource import PluginGateProvider
from tests.components.recorder import Recorder, record

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
