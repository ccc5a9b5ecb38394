"""Cilium as the network of real nodes: what a node has for it, and how its two programs are told what to do.

Agent, operator and CNI plugin are Cilium's own. Agent and operator run as pods in the node's file system, so
that the kubelet starts and asks them, and the operator judges by the pods, as on any cluster. Options are
those that Cilium's Helm chart gives, less what a lab has no use for: Hubble, Envoy, health checks of nodes
among each other, addresses of load balancers.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template

import yaml

from lab.control_plane import pki
from lab.control_plane.commands import POD_RANGE
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.kubeconfig import of_node
from lab.nodes import cgroups
from lab.nodes.folder import RealNodeFolder

NAME = "cilium"
USER = "gpu-clusters-cilium"
LIBRARY = "/var/lib/cilium"
"""In a node: its agent writes beside the sources that it compiles, so that each node has its own."""
GROUPS = "/run/cilium/cgroupv2"
"""In a node: the only group of processes at whose programs the agent looks, that of the node."""
_PINNED = "/sys/fs/bpf"
_PLUGIN = "cilium-cni"


def _options(program: str, **own: str) -> list[str]:
    text = Path(__file__).with_name("options.yaml").read_text()
    places = {"pod_range": POD_RANGE, "pinned": _PINNED, "groups": GROUPS, "library": LIBRARY}
    stated = yaml.safe_load(Template(text).substitute(places))
    values = {**stated["both"], **stated[program], **own}
    return [f"--{name}={value}" for name, value in sorted(values.items())]


def agent(folder: str) -> list[str]:
    """The options of an agent; `folder` is the node's, in whatever words a pod has for it."""
    return _options(
        "agent",
        **{
            "k8s-kubeconfig-path": f"{folder}/{NAME}.kubeconfig",
            "write-cni-conf-when-ready": f"{folder}/net.d/05-cilium.conflist",
        },
    )


def operator(folder: str) -> list[str]:
    return _options("operator", **{"k8s-kubeconfig-path": f"{folder}/{NAME}.kubeconfig"})


def write(
    layout: Layout, folder: RealNodeFolder, port: int, tools: Mapping[str, Path], sources: Path
) -> None:
    """What a node has for it on its disk. `port` is the API server's on the node's loopback."""
    certificate = folder.pki / f"{NAME}.crt"
    pki.issue(layout, certificate, pki.Client(NAME, USER))
    text = of_node(f"https://{LOOPBACK}:{port}", folder.pki / "ca.crt", certificate)
    (folder.path / f"{NAME}.kubeconfig").write_text(text)
    for name, tool in {_PLUGIN: _PLUGIN, "clang": "clang"}.items():
        link = folder.plugins / name
        link.unlink(missing_ok=True)
        link.symlink_to(tools[tool])
    own = folder.var_lib / Path(LIBRARY).relative_to("/var/lib") / "bpf"
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(sources, own)


def mounts(cgroup: str) -> dict[str, tuple[str, ...]]:
    """What is mounted in a node whose group has this name: arguments of `mount`, by place."""
    found: dict[str, tuple[str, ...]] = {_PINNED: ("-t", "bpf", "bpf")}
    top = cgroups.MOUNT if cgroups.is_unified() else cgroups.MOUNT / "unified"
    # Without version 2 on the machine the agent mounts an empty one.
    if (top / "cgroup.procs").exists():
        found[GROUPS] = ("--bind", str(top / cgroup))
    return found
