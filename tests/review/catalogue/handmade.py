"""The changes of the catalogue that no preview could be made of here: other cluster types, by hand.

They have the shape of `preview --json`; types and properties are those of our components and of Pulumi's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.fixtures.tables import beside

MADE = beside(__file__, "handmade.yaml")

STACK = "prod"
PROJECT = "gpu-clusters"
ROOT = f"urn:pulumi:{STACK}::{PROJECT}::pulumi:pulumi:Stack::{PROJECT}-{STACK}"
CLUSTER = ("gpu-clusters:rke2:Rke2Cluster", "cluster")
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


RELEASE = "kubernetes:helm.sh/v3:Release"
INSTANCE = "gcp:compute/instance:Instance"
FIREWALL = "gcp:compute/firewall:Firewall"


def instance(name: str, zone: str) -> dict[str, Any]:
    (row,) = MADE["clusters"]["v100"]
    return {**row["inputs"], "name": name, "zone": zone}


def _inputs(row: Inputs) -> dict[str, Any]:
    inputs = dict(row["inputs"])
    if "connection" in inputs:
        inputs["connection"] = connection(inputs["connection"])
    return inputs


def _steps(rows: Iterable[Inputs]) -> Iterator[dict[str, Any]]:
    """Each with its `op`, the same if it has none; `new` is what an update changes."""
    types: dict[str, str] = {}
    for row in rows:
        op, name, inputs = row.get("op", "same"), row["name"], _inputs(row)
        types[name] = row["type"]
        entry = step(
            op,
            row["type"],
            name,
            None if op == "create" else inputs,
            None if op == "delete" else {**inputs, **row.get("new", {})},
            parent=(types[row["parent"]], row["parent"]) if "parent" in row else None,
            reasons=tuple(row.get("reasons", ())),
        )
        if "outputs" in row:
            entry["oldState"]["outputs"] = row["outputs"]
        yield entry


def rke2(op: str = "same") -> list[dict[str, Any]]:
    """A cluster of one server and two machines with eight A100 each."""
    return list(_steps({**row, "op": op} for row in MADE["clusters"]["rke2"]))


def document(name: str) -> dict[str, Any]:
    made = MADE["plans"][name]
    rows = []
    for row in (row for cluster in made["of"] for row in MADE["clusters"][cluster]):
        (op,) = [
            op for op in ("update", "create", "delete") if row["name"] in made.get(op, ())
        ] or ["same"]
        new = made["update"][row["name"]] if op == "update" else {}
        rows.append({**row, "op": op, "new": new})
    return plan(*_steps([*rows, *made.get("steps", ())]))
