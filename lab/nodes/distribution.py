"""How a way of installing Kubernetes lays out a node: sockets, folders, which files its programs read.

All paths are those inside of the node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuclusters.domain.drop_ins import CDI_DIRECTORIES, CONTAINERD_DROP_IN, KUBELET_DROP_IN
from lab.nodes.folder import RealNodeFolder


@dataclass(frozen=True, slots=True)
class Distribution:
    """One such way. The defaults are those of upstream: packages of containerd and kubelet.

    `containerd_drop_ins` are patterns of files that containerd merges into its configuration, in this order;
    a pattern has a `*`, because a file that is named and not there would end containerd. They are chosen
    so that kata-deploy's is none of them: its shim is no program here.
    `bound` are folders of the simulated host that the node has under the same path: what is written there
    over SSH is what the programs of the node read.
    `containerd_configuration` is the file that containerd is started with, where the distribution writes
    it itself; empty: the lab's own (`lab.nodes.configuration.containerd`).
    `prepare` writes what the distribution generates at each of its starts: it is called with the folder of
    the node and the host's root before containerd starts, and may raise `ValueError` with a sentence.
    """

    name: str = "upstream"
    containerd_socket: str = "/run/containerd/containerd.sock"
    containerd_state: str = "/run/containerd"
    containerd_root: str = "/var/lib/containerd"
    containerd_drop_ins: tuple[str, ...] = (CONTAINERD_DROP_IN.replace(".toml", "*.toml"),)
    kubelet_drop_ins: str = KUBELET_DROP_IN.rpartition("/")[0]
    containerd_configuration: str = ""
    cdi: tuple[str, ...] = CDI_DIRECTORIES
    bound: tuple[str, ...] = (
        "/etc/cdi",
        "/run/cdi",
        CONTAINERD_DROP_IN.rpartition("/")[0],
        KUBELET_DROP_IN.rpartition("/")[0],
    )
    prepare: Callable[[RealNodeFolder, Path], None] | None = None


UPSTREAM = Distribution()
