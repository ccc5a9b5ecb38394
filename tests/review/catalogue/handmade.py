"""The changes of the catalogue that no preview could be made of here: other cluster types, by hand.

They have the shape of `preview --json`; types and properties are those of our components and of Pulumi's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

STACK = "prod"
PROJECT = "gpu-clusters"
ROOT = f"urn:pulumi:{STACK}::{PROJECT}::pulumi:pulumi:Stack::{PROJECT}-{STACK}"
CLUSTER = ("gpu-clusters:rke2:Rke2Cluster", "cluster")
GPU_STACK = ("gpu-clusters:rke2:GpuOperator", "operator")
MACHINES = ("gpu-clusters:gcp:Machines", "machines")
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINjnSvjiVc3NyLhiZ3U1zwicC37SnCP8s6oO7+zrF6YO"

Inputs = Mapping[str, Any]
Component = tuple[str, str]


def urn(type_: str, name: str, parent: Component | None = None) -> str:
    types = f"{parent[0]}${type_}" if parent else type_
    return f"urn:pulumi:{STACK}::{PROJECT}::{types}::{name}"


def state(
    type_: str, name: str, inputs: Inputs, parent: Component | None, protect: bool
) -> dict[str, Any]:
    return {
        "urn": urn(type_, name, parent),
        "custom": not type_.startswith("gpu-clusters:"),
        "type": type_,
        "inputs": dict(inputs),
        "parent": urn(*parent) if parent else ROOT,
        **({"protect": True} if protect else {}),
    }


def step(
    op: str,
    type_: str,
    name: str,
    old: Inputs | None = None,
    new: Inputs | None = None,
    *,
    parent: Component | None = None,
    protect: bool = False,
    reasons: tuple[str, ...] = (),
) -> dict[str, Any]:
    entry: dict[str, Any] = {"op": op, "urn": urn(type_, name, parent), "detailedDiff": None}
    if old is not None:
        entry["oldState"] = state(type_, name, old, parent, protect)
    if new is not None:
        entry["newState"] = state(type_, name, new, parent, protect)
    if reasons:
        entry["replaceReasons"] = list(reasons)
    return entry


def same(
    type_: str, name: str, inputs: Inputs, *, parent: Component | None = None
) -> dict[str, Any]:
    return step("same", type_, name, inputs, inputs, parent=parent)


def plan(*steps: dict[str, Any], config: Mapping[str, str] | None = None) -> dict[str, Any]:
    root = {"urn": ROOT, "custom": False, "type": "pulumi:pulumi:Stack"}
    every = [{"op": "same", "urn": ROOT, "oldState": root, "newState": root}, *steps]
    summary: dict[str, int] = {}
    for entry in every:
        summary[entry["op"]] = summary.get(entry["op"], 0) + 1
    return {"config": dict(config or {}), "steps": every, "duration": 0, "changeSummary": summary}


def connection(host: str) -> dict[str, Any]:
    number = int(host[-2:])
    return {
        "host": host,
        "address": f"10.0.0.{number}",
        "port": 22,
        "user": "ops",
        "host_key": HOST_KEY,
    }


def node(host: str, role: str, version: str = "v1.34.2+rke2r1") -> dict[str, Any]:
    return {
        "connection": connection(host),
        "cluster": "a100",
        "node_name": host,
        "role": role,
        "version": version,
    }


def driver(host: str, version: str) -> dict[str, Any]:
    return {"connection": connection(host), "version": version, "modules": "open", "gpus": 8}


NODE = "gpu-clusters:gpu:Rke2Node"
DRIVER = "gpu-clusters:gpu:GpuDriver"
RELEASE = "kubernetes:helm.sh/v3:Release"
INSTANCE = "gcp:compute/instance:Instance"
FIREWALL = "gcp:compute/firewall:Firewall"
OPERATOR: dict[str, Any] = {
    "chart": "gpu-operator",
    "version": "v26.3.0",
    "repositoryOpts": {"repo": "https://helm.ngc.nvidia.com/nvidia"},
    "namespace": "gpu-operator",
    "values": {
        "driver": {"enabled": False},
        "toolkit": {
            "enabled": True,
            "env": [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}],
        },
        "devicePlugin": {"config": {"name": "", "default": ""}},
        "dcgmExporter": {"serviceMonitor": {"enabled": True}},
    },
}


def rke2(op: str = "same") -> list[dict[str, Any]]:
    """A cluster of one server and two machines with eight A100 each."""
    made = [
        (NODE, "server-01", node("server-01", "server"), CLUSTER),
        (NODE, "gpu-01", node("gpu-01", "agent"), CLUSTER),
        (NODE, "gpu-02", node("gpu-02", "agent"), CLUSTER),
        (DRIVER, "gpu-01-driver", driver("gpu-01", "580.95.05"), GPU_STACK),
        (DRIVER, "gpu-02-driver", driver("gpu-02", "580.95.05"), GPU_STACK),
        (RELEASE, "gpu-operator", OPERATOR, GPU_STACK),
    ]
    steps = [step(op, *CLUSTER, *sides(op, {})), step(op, *GPU_STACK, *sides(op, {}))]
    return steps + [
        step(op, type_, name, *sides(op, inputs), parent=parent)
        for type_, name, inputs, parent in made
    ]


def sides(op: str, inputs: Inputs) -> tuple[Inputs | None, Inputs | None]:
    return (None if op == "create" else inputs), (None if op == "delete" else inputs)


def changed(name: str, **fields: Any) -> list[dict[str, Any]]:
    """The rke2 cluster, one of its resources updated."""
    steps = rke2()
    for index, entry in enumerate(steps):
        if entry["urn"].endswith(f"::{name}"):
            old = entry["oldState"]["inputs"]
            type_ = entry["oldState"]["type"]
            parent = GPU_STACK if type_ != NODE else CLUSTER
            steps[index] = step("update", type_, name, old, {**old, **fields}, parent=parent)
    return steps


def operator_upgraded() -> dict[str, Any]:
    values = {**OPERATOR["values"], "cdi": {"enabled": True, "nriPluginEnabled": False}}
    return plan(*changed("gpu-operator", version="v26.7.1", values=values))


def driver_bumped_on_rke2() -> dict[str, Any]:
    steps = changed("gpu-01-driver", version="580.105.08")
    other = changed("gpu-02-driver", version="580.105.08")
    return plan(*[b if b["op"] == "update" else a for a, b in zip(steps, other, strict=True)])


def rke2_upgraded() -> dict[str, Any]:
    new = "v1.35.1+rke2r1"
    steps = []
    for entry in rke2():
        if entry["oldState"]["type"] == NODE:
            old = entry["oldState"]["inputs"]
            entry = step(
                "update", NODE, old["node_name"], old, {**old, "version": new}, parent=CLUSTER
            )
        steps.append(entry)
    return plan(*steps)


def server_removed() -> dict[str, Any]:
    gone = node("server-02", "server")
    return plan(*rke2(), step("delete", NODE, "server-02", gone, parent=CLUSTER))


def time_slicing_across_tenants() -> dict[str, Any]:
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "4"}}}
    config = (
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n"
        "    - name: nvidia.com/gpu\n      replicas: 4\n"
    )
    return plan(
        *changed(
            "gpu-operator",
            values={**OPERATOR["values"], "devicePlugin": {"config": {"name": "slices"}}},
        ),
        same("kubernetes:core/v1:ResourceQuota", "team-a", quota),
        same("kubernetes:core/v1:ResourceQuota", "team-b", quota),
        step(
            "create",
            "kubernetes:core/v1:ConfigMap",
            "slices",
            None,
            {"metadata": {"name": "slices"}, "data": {"any": config}},
            parent=GPU_STACK,
        ),
    )


def instance(name: str, zone: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "machineType": "n1-standard-8",
        "zone": zone,
        "guestAccelerators": [{"type": "nvidia-tesla-v100", "count": 1}],
        "scheduling": {"onHostMaintenance": "TERMINATE", "automaticRestart": True},
        "bootDisk": {"initializeParams": {"size": 100, "type": "pd-balanced"}},
        "labels": {"cluster": "lab-v100"},
        **more,
    }


def zone_moved() -> dict[str, Any]:
    return plan(
        step("same", *MACHINES, {}, {}),
        step(
            "replace",
            INSTANCE,
            "v100-0",
            instance("v100-0", "us-central1-a"),
            instance("v100-0", "us-west1-b"),
            parent=MACHINES,
            reasons=("zone",),
        ),
        same(INSTANCE, "v100-1", instance("v100-1", "us-central1-a"), parent=MACHINES),
    )


def machine_added_on_google_cloud() -> dict[str, Any]:
    return plan(
        step("same", *MACHINES, {}, {}),
        same(INSTANCE, "v100-0", instance("v100-0", "us-central1-a"), parent=MACHINES),
        step(
            "create", INSTANCE, "v100-1", None, instance("v100-1", "us-central1-a"), parent=MACHINES
        ),
    )


def spot_server_and_open_firewall() -> dict[str, Any]:
    spot = {"provisioningModel": "SPOT", "preemptible": True, "automaticRestart": False}
    server = instance("rke2-server-0", "us-central1-a", guestAccelerators=[])
    rule = {
        "network": "gpus",
        "direction": "INGRESS",
        "sourceRanges": ["10.0.0.0/8"],
        "allows": [{"protocol": "tcp", "ports": ["6443"]}],
    }
    return plan(
        step("same", *MACHINES, {}, {}),
        step(
            "replace",
            INSTANCE,
            "rke2-server-0",
            server,
            {**server, "scheduling": spot},
            parent=MACHINES,
            reasons=("scheduling.provisioningModel",),
        ),
        step(
            "update",
            FIREWALL,
            "api",
            rule,
            {**rule, "sourceRanges": ["0.0.0.0/0"]},
            parent=MACHINES,
        ),
    )


def disk_deleted() -> dict[str, Any]:
    return plan(
        step("same", *MACHINES, {}, {}),
        same(INSTANCE, "v100-0", instance("v100-0", "us-central1-a"), parent=MACHINES),
        step(
            "delete",
            "gcp:compute/disk:Disk",
            "datasets",
            {"size": 2000, "type": "pd-ssd", "zone": "us-central1-a"},
            parent=MACHINES,
        ),
    )


def found_different_on_the_machine() -> dict[str, Any]:
    """What a refresh has written into the outputs."""
    entry = step(
        "update",
        "gpu-clusters:gpu:HostFile",
        "gpu-01-limits",
        {
            "connection": connection("gpu-01"),
            "path": "/etc/security/limits.d/90-gpu-clusters.conf",
            "content": "a\n",
        },
        {
            "connection": connection("gpu-01"),
            "path": "/etc/security/limits.d/90-gpu-clusters.conf",
            "content": "a\n",
        },
        parent=CLUSTER,
    )
    entry["oldState"]["outputs"] = {
        "drift": ["the file has other permissions: 0600 instead of 0644"]
    }
    return plan(*rke2(), entry)


PLANS: Mapping[str, Callable[[], dict[str, Any]]] = {
    made.__name__.replace("_", "-"): made
    for made in (
        operator_upgraded,
        driver_bumped_on_rke2,
        rke2_upgraded,
        server_removed,
        time_slicing_across_tenants,
        zone_moved,
        machine_added_on_google_cloud,
        spot_server_and_open_firewall,
        disk_deleted,
        found_different_on_the_machine,
    )
}
