"""How a way of installing Kubernetes lays out a node: sockets, folders, which files its programs read.

All paths are those inside of the node.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.nodes.folder import RealNodeFolder

_CONTAINERD_DROP_INS = "/etc/containerd/conf.d"
"""`imports` in the configuration that containerd 2.2 and newer have by default."""
_KUBELET_DROP_INS = "/etc/kubernetes/kubelet.conf.d"
"""`--config-dir` as in Kubernetes' page "Set Kubelet Parameters Via A Configuration File"."""


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
    containerd_drop_ins: tuple[str, ...] = tuple(
        f"{_CONTAINERD_DROP_INS}/{which}.toml" for which in ("50-*", "99-nvidia*")
    )
    kubelet_drop_ins: str = _KUBELET_DROP_INS
    containerd_configuration: str = ""
    cdi: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    bound: tuple[str, ...] = (
        *("/etc/cdi", "/run/cdi", _CONTAINERD_DROP_INS, _KUBELET_DROP_INS),
        "/usr/local/nvidia",
    )
    prepare: Callable[[RealNodeFolder, Path], None] | None = None


UPSTREAM = Distribution()
