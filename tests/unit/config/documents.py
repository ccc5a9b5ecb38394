"""Documents for tests: the smallest configuration, and changes to it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpuclusters.config.fault import render_path
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.core.finding import Finding
from tests.fixtures.made_up import host_key
from tests.fixtures.tables import beside

CASES = Path(__file__).with_name("cases")
FILE = Path("Pulumi.absent.yaml")


def lines(found: Iterable[Finding]) -> list[str]:
    """What is said, without the file and the codes."""
    return [f"{render_path(one.path)}: {one.problem}; {one.remedy}" for one in found]


@cache
def _read(path: Path) -> Any:
    return beside(str(path), path.name)


def _of(kind: ClusterType, name: str) -> dict[str, Any]:
    """What stands in a file of a cluster type, for the caller to change."""
    found: dict[str, Any] = copy.deepcopy(_read(CASES / kind.value / f"{name}.yaml"))
    return found


def tables(kind: ClusterType) -> Iterator[tuple[str, dict[str, Any]]]:
    """Cases of a cluster type, each with the name of its file."""
    for path in sorted((CASES / kind.value).glob("*.yaml")):
        if path.stem not in {"base", "google", "found"}:
            for case in _read(path):
                yield path.stem, case


def document(kind: ClusterType, case: Mapping[str, Any]) -> Any:
    """What a case is about: all of it, or changes to the smallest configuration."""
    if "whole" in case:
        return case["whole"]
    start = base(kind)
    if case.get("google"):
        start[kind.value]["hosts"] = google()
    if case.get("found"):
        start[kind.value] = _of(kind, "found")
    patch = case.get("document") or {kind.value: case[kind.value]}
    return patched(start, patch, keep_null=case.get("keep-null", False))


def base(kind: ClusterType = ClusterType.CAAS) -> dict[str, Any]:
    """The smallest configuration."""
    return _of(kind, "base")


def google(**changes: Any) -> dict[str, Any]:
    """Machines on Google Cloud: the `hosts` of a configuration."""
    return _of(ClusterType.USERNETES, "google") | changes


def patched(document: Any, patch: Any, *, keep_null: bool = False) -> Any:
    """A JSON merge patch: mappings are merged, everything else is replaced, null removes.

    Of a list the patch may name places by their numbers.
    """
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    by_place = isinstance(document, list) and bool(patch) and all(isinstance(k, int) for k in patch)
    merged = dict(enumerate(document)) if by_place else {}
    if isinstance(document, Mapping):
        merged = dict(document)
    for key, value in patch.items():
        if value is None and not keep_null:
            merged.pop(key, None)
        else:
            merged[key] = patched(merged.get(key), value, keep_null=keep_null)
    return list(merged.values()) if by_place else merged


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """A document and all that is in it, each with the way to it."""
    yield path, value
    inside = value.items() if isinstance(value, dict) else ()
    for key, below in enumerate(value) if isinstance(value, list) else inside:
        yield from places(below, (*path, key))


def caas(**changes: Any) -> dict[str, Any]:
    """The smallest configuration with other sections; keys with `_` for `-`."""
    patch = {"caas": {key.replace("_", "-"): value for key, value in changes.items()}}
    document: dict[str, Any] = patched(base(), patch)
    return document


def on_existing(*addresses: str, **changes: Any) -> dict[str, Any]:
    """The smallest configuration of machines and a cluster that exist: hgx-01, hgx-02, …"""
    names = [f"hgx-{number:02}" for number, _ in enumerate(addresses, 1)]
    machines = [
        {"name": name, "address": address, "host-key": host_key(number)}
        for number, (name, address) in enumerate(zip(names, addresses, strict=True), 1)
    ]
    made = {
        "hosts": {"source": "existing", "user": "ops", "machines": machines},
        "nodes": [{"name": name} for name in names],
        "kubernetes": {"source": "existing"},
        "service_vm": {"image": {"path": "/srv/fm.img", "sha256": "0" * 64}},
    }
    return caas(**{**made, **changes})


def inventory(folder: Path, **changes: Any) -> Path:
    """That of a running lab with hgx-01 and hgx-02, with the files that it names."""
    lab = _read(CASES / "lab.yaml")
    for name, text in lab["files"].items():
        (folder / name).write_text(text)
    written = json.loads(json.dumps(lab["inventory"]).replace("FOLDER", str(folder))) | changes
    where = folder / ".lab"
    where.mkdir(exist_ok=True)
    (where / "inventory.json").write_text(json.dumps(written))
    return folder


def faults(document: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with a document; nothing if it is right."""
    parsed = parse(document)
    return parsed if isinstance(parsed, list) else []


def accepted(document: Mapping[str, Any]) -> StackConfig:
    """A document that is right."""
    parsed = parse(document)
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    return parsed
