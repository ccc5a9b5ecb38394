"""Configurations that are right, for property tests here and of stacks."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fixtures.made_up import host_key
from tests.fixtures.tables import beside
from tests.unit.config.documents import base, patched

CHOICES = beside(__file__, "choices.yaml")
labels = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)


@st.composite
def documents(draw: st.DrawFn, *, most_nodes: int = 4) -> dict[str, Any]:
    """A whole configuration that is right."""
    names = draw(st.lists(labels, min_size=1, max_size=most_nodes, unique=True))
    section, nodes = base()["caas"], [{"name": name} for name in names]
    for group in CHOICES.values():
        choice = draw(st.sampled_from(group))
        section = patched(section, choice.get("caas", {}))
        own = st.sampled_from(choice.get("node", [{}]))
        nodes = [node | draw(own) for node in nodes]
    if section["platform"] == "hgx-b200":  # its partitions are counted from 1
        for node in nodes:
            if "partitions" in node:
                node["partitions"] = [number + 1 for number in node["partitions"]]
    if section["hosts"]["source"] == "existing":
        section["hosts"]["machines"] = [
            {"name": name, "address": f"10.20.0.{n}", "port": 22, "host-key": host_key(n)}
            for n, name in enumerate(names, 1)
        ]
        if section["leases"]["recycle-policy"] == "full":
            for n, node in enumerate(nodes, 1):
                node["bmc"] = {"url": f"https://10.21.0.{n}", "user": "reader"}
    return {"cluster-type": "caas", "caas": {**section, "nodes": nodes}}
