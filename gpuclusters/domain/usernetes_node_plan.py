"""What has to be done about one host of a Usernetes cluster: decided from what is there. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpuclusters.domain.usernetes_node import UsernetesNodeInputs
from gpuclusters.domain.usernetes_node_live import (
    LiveNode,
    differing_overlay,
    has_other_devices,
    source_differs,
)
from gpuclusters.domain.usernetes_node_refusals import is_image_of_another


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, in the order in which they are taken."""

    leave: str
    """Why the old node has to be removed with its volumes first; empty if it has not."""
    fetch: bool
    overlay: tuple[str, ...]
    """Files of ours to write."""
    recreate: str
    """Why the container is made anew around its volumes; empty if it is not."""
    up: bool
    """Whether the container has to be made or started."""
    reset: bool
    """Whether what kubeadm began has to be undone."""
    join: bool
    """Whether it has yet to make its cluster, or to join it."""

    @property
    def disturbs(self) -> bool:
        """Whether pods that run on the node now are ended by it."""
        return bool(self.leave or self.recreate)

    @property
    def is_empty(self) -> bool:
        """Nothing to be done about the container and its membership."""
        return self == Plan("", False, (), "", False, False, False)  # noqa: FBT003


def plan(inputs: UsernetesNodeInputs, live: LiveNode, host_ip: str) -> Plan:
    """The steps for a host that nothing speaks against.

    Args:
        inputs: what it must be.
        live: what is there.
        host_ip: at which other hosts reach it now.
    """
    leave = _leaving(inputs, live, host_ip)
    overlay = tuple(sorted(inputs.overlay if leave else differing_overlay(inputs, live)))
    fetch = bool(leave) or source_differs(live)
    there = live.is_begun and not leave
    recreate = (
        _recreating(inputs, live, host_ip, fetched=fetch) if there and live.is_running else ""
    )
    joined = there and bool(live.joined)
    return Plan(
        leave=leave,
        fetch=fetch,
        overlay=overlay,
        recreate=recreate,
        up=bool(recreate) or not (there and live.is_running),
        # A file of kubeadm without our mark: it was killed, or we were.
        reset=there and not joined and (live.began or live.kubelet_conf),
        join=not joined,
    )


def _leaving(inputs: UsernetesNodeInputs, live: LiveNode, host_ip: str) -> str:
    if not live.owner:
        return ""
    if is_image_of_another(inputs, live):
        return f"its disk is a copy that carries the node of {live.owner}"
    if inputs.is_control_plane:
        return ""  # its volumes are the cluster; what does not fit is refused before
    if live.joined and inputs.cluster_id and live.joined != inputs.cluster_id:
        return "the control plane was made anew, and it belongs to the cluster before"
    if live.release not in ("", inputs.release):
        return "its volumes are of another release of Usernetes, or of other ports or ranges"
    if live.joined and live.host_ip not in ("", host_ip):
        return f"its address was {live.host_ip} and is {host_ip} now"
    return ""


def _recreating(inputs: UsernetesNodeInputs, live: LiveNode, host_ip: str, *, fetched: bool) -> str:
    if live.image != inputs.image:
        return "its image or our files are others now"
    if fetched:
        return "upstream's files were brought anew, which it has mounted"
    if has_other_devices(live):
        return "its host has other GPUs now"
    if live.host_ip not in ("", host_ip):
        return f"its address was {live.host_ip} and is {host_ip} now"
    return ""
