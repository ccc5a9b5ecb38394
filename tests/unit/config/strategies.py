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


def _some(**keys: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these keys, `_` for `-`; a value that is no strategy is the only one."""
    optional = {
        key.replace("_", "-"): one if isinstance(one, st.SearchStrategy) else st.just(one)
        for key, one in keys.items()
    }
    return st.fixed_dictionaries({}, optional=optional)


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
CONTAINERDS = (
    {},
    {"version": "2.3.0", "config-version": "2"},
    {"version": "1.7.27"},
    {"version": "2.4.1"},
)
RECYCLING = (
    {"recycle-policy": "reset-only"},
    {"recycle-policy": "quarantine-always", "deadlines": {"scrubbing-seconds": 60}},
    {"recycle-policy": "full", "golden-firmware": {"versions": {"HGX_FW_GPU": ["1.0", "1.1"]}}},
)
NETWORK = {
    "storage-cidrs": ["10.30.0.0/24"],
    "node-cidrs": ["10.20.0.0/24"],
    "bmc-cidrs": ["10.21.0.0/24"],
}


@st.composite
def _cuts(draw: st.DrawFn, table: PartitionTable) -> dict[str, Any]:
    """How one node of a mixed cluster is cut: by sizes or by numbers."""
    layout = draw(st.sampled_from(LAYOUTS))
    if draw(_flags):
        return {"partition-layout": draw(st.permutations(layout))}
    return {"partitions": draw(st.permutations([cut.id for cut in plan_layout(table, layout)]))}


@st.composite
def _board(draw: st.DrawFn, platform: Platform) -> dict[str, Any]:
    """PCI addresses of one node, where the preset has none or where they are written out."""
    preset = PRESETS[platform]
    if preset.gpus and not draw(_flags):
        return {}
    numbers = draw(st.lists(st.integers(0x10, 0xFF), min_size=16, max_size=16, unique=True))
    buses = [f"0000:{number:02x}:00.0" for number in numbers]
    board: dict[str, Any] = {"gpus": {str(n): buses[n] for n in range(1, 9)}}
    if preset.switch_access is not SwitchAccess.NVSWITCH:
        return board | {"extra-functions": buses[9:13]}
    more = {"extra-functions": [buses[13]]} if preset.extra_functions else {}
    return board | {"switches": buses[9:13], **more}


@st.composite
def _tenant(draw: st.DrawFn, name: str, gpus: int) -> dict[str, Any]:
    quota = draw(st.integers(1, gpus))
    more = _some(
        cpu=st.integers(20, 500),
        memory_gib=st.integers(100, 4000),
        storage_gib=st.integers(1, 9000),
        sizes=[size for size in (1, 2, 4, 8) if size <= quota],
        default_container=st.fixed_dictionaries(
            {"cpu": st.integers(1, 16), "memory-gib": st.integers(1, 64)}
        ),
        extra_quota={"count/configmaps": "100"},
        egress=_some(
            internet=_flags, api_server=_flags, fqdns=["registry.example.com", "*.example.net"]
        ),
        nfs=_some(mounted_by="guest").map(lambda nfs: {"servers": ["10.30.0.16/28"], **nfs}),
        images={"allowed": ["registry.example.com"]},
    )
    return {"name": name, "gpus": quota, **draw(more)}


@st.composite
def _existing(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    """What a lab brings, stated."""
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
        "leases": draw(st.sampled_from(RECYCLING)),
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
    table = TABLES[PRESETS[platform].baseboard]
    mixed, lab = draw(_flags), draw(_flags)
    stated = _some(
        memory_gib=st.integers(1024, 4096),
        hugepages_gib_per_numa_node=st.integers(0, 500).map(lambda n: [n, n]),
        kernel=st.sampled_from(["6.17.0", "6.12", "6.8.0-45-generic"]),
    )
    names = draw(st.lists(labels, min_size=1, max_size=most_nodes, unique=True))
    nodes: list[dict[str, Any]] = [
        {
            "name": name,
            **draw(_board(platform)),
            **(draw(_cuts(table)) if mixed else {}),
            **draw(stated),
        }
        for name in names
    ]
    section: dict[str, Any] = {
        "name": draw(labels),
        "platform": platform.value,
        "kubernetes": {
            "source": "lab" if lab else "existing",
            "containerd": draw(st.sampled_from(CONTAINERDS)),
            "pod-security": draw(st.sampled_from(["restricted", "baseline"])),
            **draw(_some(version="1.33.2")),
        },
        "nodes": nodes,
        "partition-layout": "mixed" if mixed else draw(st.sampled_from([*LAYOUTS, "by-lease"])),
        "tenants": [
            draw(_tenant(name, 8 * len(nodes)))
            for name in draw(st.lists(labels, max_size=4, unique=True))
        ],
        "network": NETWORK,
        "kata": {"shim": draw(st.sampled_from(list(Shim))).value},
        "gpu-operator": draw(_flags),
    }
    if lab:
        section |= {"hosts": {"source": "lab"}, **draw(_some(leases=st.sampled_from(RECYCLING)))}
    else:
        section |= draw(_existing(names))
        if section["leases"]["recycle-policy"] == "full":
            for number, node in enumerate(nodes, start=1):
                node["bmc"] = {"url": f"https://10.21.0.{number}", "user": "reader"}
    return {"cluster-type": "caas", "caas": section}
