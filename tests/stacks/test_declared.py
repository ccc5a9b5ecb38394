"""From keys of the configuration to what is declared; `declared.yaml` says how its cases are written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.config.stack import ClusterType
from gpuclusters.kata.model import unknown_keys
from gpuclusters.providers import properties
from gpuclusters.usernetes.model import UsernetesNodeInputs
from tests.components.recorder import Recorder
from tests.fixtures.authority import Authority
from tests.fixtures.tables import beside
from tests.stacks import declaring
from tests.unit.config import documents

TABLE = beside(__file__, "declared.yaml")


def declared(case: Mapping[str, Any]) -> Recorder:
    kind = next(kind for kind in ClusterType if kind.value in case)
    start = documents.base(kind)
    if base := TABLE["bases"].get(case.get("base")):
        start[kind.value] = documents.patched(start[kind.value], base)
    keys = documents.patched(start, {kind.value: case[kind.value]})
    preview = case.get("preview", True)
    return declaring.declared(keys, preview=preview, more=case.get("secrets"))


def named(seen: Recorder, title: str) -> list[dict[str, Any]]:
    """What is declared of a type, or of a type and with a name: that of the resource or of the object."""
    kind, _, name = title.partition(" ")
    every = [one for one in seen.seen if one.type.rpartition(":")[2] == kind]
    return [
        one.inputs
        for one in every
        if name in ("", one.name, one.inputs.get("metadata", {}).get("name"))
    ]


def unlike(found: Any, wanted: Any, at: str) -> Iterator[str]:
    """Where what is declared is not as wanted."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key, value in wanted.items():
            yield from unlike(found.get(key), value, f"{at}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, value in enumerate(wanted):
            yield from unlike(found[number], value, f"{at}[{number}]")
    elif isinstance(wanted, list) and isinstance(found, str):
        for value in wanted:
            yield from unlike(found, value, at)
    elif isinstance(wanted, str) and wanted[:1] in ("~", "!"):
        if (wanted[1:] in str(found)) is wanted.startswith("!"):
            yield f"{at} is {found!r}"
    elif found != wanted:
        yield f"{at} is {found!r}"


def check(seen: Recorder, case: Mapping[str, Any]) -> None:
    for title, wanted in case.get("has", {}).items():
        assert len(named(seen, title)) == 1, title
        assert list(unlike(named(seen, title)[0], wanted, title)) == []
    for release in named(seen, "Release kata-deploy-release"):
        assert [*unknown_keys(release["values"])] == []
    assert [title for title in case.get("lacks", ()) if named(seen, title)] == []
    for kind, names in case.get("all", {}).items():
        assert sorted(seen.of(f":{kind}")) == names


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test(case: dict[str, Any]) -> None:
    check(declared(case), case)


def test_the_key_of_a_given_certificate_is_in_one_secret_and_nowhere_else(
    tmp_path: Path,
) -> None:
    case = TABLE["given certificate"]
    exposure = case["caas"]["api"]["exposure"]
    exposure["certificate"]["chain"], key = Authority(tmp_path).pair(exposure["host"])
    seen = declared({**case, "secrets": {"api-private-key": key}})
    check(seen, case)
    holders = [
        one for one in seen.seen if key.splitlines()[1] in json.dumps(one.inputs, default=str)
    ]
    assert [holder.inputs["metadata"]["name"] for holder in holders] == ["api-tls"]


def known(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs but for what a preview without a lab does not know: how to get there, and tokens."""
    out = {key: value for key, value in inputs.items() if key not in ("token", "agent_token")}
    out["connection"] = inputs["connection"]["host"]
    out["control"] = [one["host"] for one in inputs["control"]]
    return out


def test_another_release_changes_hosts_in_place_and_a_machine_that_goes_no_other() -> None:
    def nodes(agents: str, version: str = "v1.35.7+rke2r1") -> dict[str, dict[str, Any]]:
        machines = [{"name": name} for name in agents.split()]
        changes = {"nodes": machines, "kubernetes": {"version": version}}
        found = declared({"base": "own cluster", "caas": changes}).of(":Rke2Node")
        return {name: known(inputs) for name, inputs in found.items()}

    before = nodes("hgx-01 hgx-02 hgx-03")
    after = nodes("hgx-01 hgx-02 hgx-03", version="v1.36.3+rke2r1")
    for name, inputs in before.items():
        assert {key for key in inputs if inputs[key] != after[name][key]} == {"version"}
    fewer = nodes("hgx-01 hgx-03")
    assert {name: before[name] for name in fewer} == fewer
    assert set(before) - set(fewer) == {"hgx-02-rke2"}


def shown(case: Mapping[str, Any]) -> dict[str, str]:
    """Inputs to compare by name; one unknown is as good as another."""
    return {
        one.name: json.dumps(one.inputs, sort_keys=True, default=lambda v: type(v).__name__)
        for one in declared(case).seen
    }


def test_a_worker_that_leaves_the_middle_changes_no_other() -> None:
    before = shown({"usernetes": {}})
    after = shown({"usernetes": {"workers": [{"host": "v3", "number": 3}]}})
    nodes = [name for name in after if name.endswith("-node")]
    assert nodes == ["v1-node", "v3-node"]
    assert [after[name] for name in nodes] == [before[name] for name in nodes]


@pytest.mark.parametrize("versions", ["current", "proven"])
def test_what_is_declared_are_inputs_that_the_provider_takes(versions: str) -> None:
    node = declared({"usernetes": {"versions": versions}}).of(":UsernetesNode")["v1-node"]
    inputs = properties.inputs_of(UsernetesNodeInputs, node)
    inputs["connection"] = {k: v for k, v in inputs["connection"].items() if v is not None}
    assert UsernetesNodeInputs.model_validate(inputs, by_name=True).source.kubernetes


def test_maintenance_adds_one_resource_and_changes_no_other() -> None:
    before = shown({"caas": {}})
    after = shown({"caas": {"nodes": {1: {"maintenance": "evict"}}}})
    added = json.loads(after.pop("hgx-02-maintenance"))
    assert (added["node"], added["drain"]) == ("hgx-02", "evict")
    assert after == before
