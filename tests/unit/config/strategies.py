"""Configurations that are right, for property tests here and of stacks."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gpuclusters.compat.platforms import PRESETS, Platform, SwitchAccess
from gpuclusters.fabric.table import TABLES, PartitionTable, plan_layout
from gpuclusters.kata.model import Shim
from tests.fixtures.made_up import host_key

labels = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
_flags = st.booleans()


def _all_layouts(total: int, sizes: tuple[int, ...]) -> list[list[int]]:
    if total == 0:
        return [[]]
    return [
        [size, *rest]
        for size in sizes
        if size <= total
        for rest in _all_layouts(total - size, tuple(one for one in sizes if one <= size))
    ]


LAYOUTS = _all_layouts(8, (8, 4, 2, 1))


@st.composite
def node_cuts(draw: st.DrawFn, table: PartitionTable) -> dict[str, Any]:
    """How one node of a mixed cluster is cut: by sizes or by numbers."""
    layout = draw(st.sampled_from(LAYOUTS))
    if draw(_flags):
        return {"partition-layout": draw(st.permutations(layout))}
    return {"partitions": draw(st.permutations([cut.id for cut in plan_layout(table, layout)]))}


@st.composite
def boards(draw: st.DrawFn, platform: Platform) -> dict[str, Any]:
    """PCI addresses of one node, where the preset has none or where they are written out."""
    preset = PRESETS[platform]
    if preset.gpus and not draw(_flags):
        return {}
    buses = draw(
        st.lists(st.integers(0x10, 0xFF), min_size=16, max_size=16, unique=True).map(
            lambda numbers: [f"0000:{number:02x}:00.0" for number in numbers]
        )
    )
    board: dict[str, Any] = {"gpus": {str(n): buses[n] for n in range(1, 9)}}
    if preset.switch_access is SwitchAccess.NVSWITCH:
        board["switches"] = buses[9:13]
        if preset.extra_functions:
            board["extra-functions"] = [buses[13]]
    else:
        board["extra-functions"] = buses[9:13]
    return board


@st.composite
def nodes(draw: st.DrawFn, platform: Platform, *, mixed: bool, most: int) -> list[dict[str, Any]]:
    """The nodes of a cluster, `most` of them at most."""
    table = TABLES[PRESETS[platform].baseboard]
    found = []
    for name in draw(st.lists(labels, min_size=1, max_size=most, unique=True)):
        node: dict[str, Any] = {"name": name, **draw(boards(platform))}
        if mixed:
            node |= draw(node_cuts(table))
        node |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "memory-gib": st.integers(1024, 4096),
                    "hugepages-gib-per-numa-node": st.integers(0, 500).map(lambda n: [n, n]),
                    "kernel": st.sampled_from(["6.17.0", "6.12", "6.8.0-45-generic"]),
                },
            )
        )
        found.append(node)
    return found


@st.composite
def tenants(draw: st.DrawFn, gpus: int) -> list[dict[str, Any]]:
    """Tenants of a cluster with this many GPUs."""
    found = []
    for name in draw(st.lists(labels, max_size=4, unique=True)):
        quota = draw(st.integers(1, gpus))
        tenant: dict[str, Any] = {"name": name, "gpus": quota}
        tenant |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "cpu": st.integers(20, 500),
                    "memory-gib": st.integers(100, 4000),
                    "storage-gib": st.integers(1, 9000),
                    "sizes": st.just([size for size in (1, 2, 4, 8) if size <= quota]),
                    "default-container": st.fixed_dictionaries(
                        {"cpu": st.integers(1, 16), "memory-gib": st.integers(1, 64)}
                    ),
                    "extra-quota": st.just({"count/configmaps": "100"}),
                    "egress": st.fixed_dictionaries(
                        {},
                        optional={
                            "internet": _flags,
                            "api-server": _flags,
                            "fqdns": st.just(["registry.example.com", "*.example.net"]),
                        },
                    ),
                    "nfs": st.fixed_dictionaries(
                        {"servers": st.just(["10.30.0.16/28"])},
                        optional={"mounted-by": st.just("guest")},
                    ),
                    "images": st.just({"allowed": ["registry.example.com"]}),
                },
            )
        )
        found.append(tenant)
    return found


def _existing(names: list[str]) -> dict[str, Any]:
    machines = [
        {"name": name, "address": f"10.20.0.{n}", "port": 22, "host-key": host_key(n)}
        for n, name in enumerate(names, start=1)
    ]
    return {
        "hosts": {"source": "existing", "user": "ops", "machines": machines},
        "service-vm": {
            "image": {"url": "https://images.example.com/fm.img", "sha256": "0" * 64},
            "memory-mib": 4096,
        },
    }


@st.composite
def kubernetes(draw: st.DrawFn, source: str) -> dict[str, Any]:
    """A cluster of a source, with versions that fit together."""
    containerd = draw(
        st.sampled_from(
            [
                {},
                {"version": "2.3.0", "config-version": "2"},
                {"version": "1.7.27"},
                {"version": "2.4.1"},
            ]
        )
    )
    version = draw(st.sampled_from([{}, {"version": "1.33.2"}]))
    level = draw(st.sampled_from(["restricted", "baseline"]))
    return {"source": source, "containerd": containerd, "pod-security": level, **version}


@st.composite
def _programs(draw: st.DrawFn, *, existing: bool) -> dict[str, Any]:
    """What runs inside the cluster; stated where the lab does not bring it."""
    recycling = st.sampled_from(
        [
            {"recycle-policy": "reset-only"},
            {"recycle-policy": "quarantine-always", "deadlines": {"scrubbing-seconds": 60}},
            {
                "recycle-policy": "full",
                "golden-firmware": {"versions": {"HGX_FW_GPU": ["1.0", "1.1"]}},
            },
        ]
    )
    if not existing:
        return {"leases": draw(recycling)} if draw(_flags) else {}
    return {
        "leases": draw(recycling),
        "api": {
            "issuer": "https://id.example.com",
            "audience": "gpus",
            "max-containers": 5,
            "exposure": {"kind": "external"},
            "proxies": ["192.0.2.128/25"],
        },
        "programs": {
            "image": "registry.example.com/gpu-clusters@sha256:" + "0" * 64,
            "replicas": draw(st.integers(1, 3)),
            "monitoring": draw(_flags),
        },
    }


@st.composite
def documents(draw: st.DrawFn, *, most_nodes: int = 4) -> dict[str, Any]:
    """A whole configuration that is right."""
    proven = [p for p in Platform if PRESETS[p].baseboard in TABLES]
    platform = draw(st.sampled_from(proven))
    mixed = draw(_flags)
    members = draw(nodes(platform, mixed=mixed, most=most_nodes))
    lab = draw(_flags)
    shim = draw(st.sampled_from(list(Shim)))
    section: dict[str, Any] = {
        "name": draw(labels),
        "platform": platform.value,
        "kubernetes": draw(kubernetes("lab" if lab else "existing")),
        "nodes": members,
        "partition-layout": "mixed" if mixed else draw(st.sampled_from([*LAYOUTS, "by-lease"])),
        "tenants": draw(tenants(8 * len(members))),
        "network": {
            "storage-cidrs": ["10.30.0.0/24"],
            "node-cidrs": ["10.20.0.0/24"],
            "bmc-cidrs": ["10.21.0.0/24"],
        },
        "kata": {"shim": shim.value},
        **({"hosts": {"source": "lab"}} if lab else _existing([one["name"] for one in members])),
    }
    section |= draw(_programs(existing=not lab))
    if not lab and section.get("leases", {}).get("recycle-policy") == "full":
        for number, member in enumerate(members, start=1):
            member["bmc"] = {"url": f"https://10.21.0.{number}", "user": "reader"}
    section["gpu-operator"] = draw(_flags)
    return {"cluster-type": "caas", "caas": section}
