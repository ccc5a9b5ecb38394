"""Waiting for a node of a Usernetes cluster, and what is put right in the cluster while one waits."""

from __future__ import annotations

from dataclasses import dataclass

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain import known_errors
from gpuclusters.domain.known_errors import last_words
from gpuclusters.domain.usernetes_cluster import (
    CONTROL_PLANE,
    ClusterNode,
    flannel_fault,
    sync_faults,
)
from gpuclusters.domain.usernetes_node import UsernetesNodeInputs
from gpuclusters.domain.usernetes_node_live import LiveNode
from gpuclusters.domain.usernetes_node_ports import (
    MakeFailedError,
    NodeControl,
    NodeHost,
    UsernetesNodeError,
)

POLL_SECONDS = 2.0
_FIRST_POLL_SECONDS = 0.1
API_PATIENCE_SECONDS = 120.0
"""How long a control plane whose host has just started is given."""
START_PATIENCE_SECONDS = 60.0
"""How long systemd in a node container needs to get to our unit, at most."""


@dataclass(frozen=True, slots=True)
class Site:
    """One node on its way: what it must be, where, in which cluster, and what is needed to work on it."""

    inputs: UsernetesNodeInputs
    host: NodeHost
    control: NodeControl
    """Asked on the host itself where it is the control plane."""
    clock: Clock
    reporter: Reporter


def require_answer(control: NodeControl, clock: Clock) -> None:
    """Wait until the control plane answers.

    Raises:
        UsernetesNodeError: it does not within two minutes.
    """
    deadline = clock.now() + API_PATIENCE_SECONDS
    while not control.is_ready():
        if clock.now() >= deadline:
            raise UsernetesNodeError(
                control.place,
                "ask the cluster",
                "its API does not answer there",
                "look at `docker ps` of its account and at `docker logs usernetes-node`, then run again",
            )
        clock.sleep(POLL_SECONDS)


def started(site: Site) -> LiveNode:
    """Wait until systemd in the container has come to the unit of the GPUs; answers what is there then.

    Raises:
        UsernetesNodeError: the container does not stay up.
    """
    deadline = site.clock.now() + START_PATIENCE_SECONDS
    while True:
        live = site.host.inspect()
        is_late = site.clock.now() >= deadline
        if live.is_running and (is_late or live.gpu_unit in ("active", "failed")):
            return live
        if is_late:
            raise UsernetesNodeError(
                site.host.place,
                "start the node",
                f"its container is {live.container}",
                "read `docker logs usernetes-node` there",
            )
        site.clock.sleep(POLL_SECONDS)


def ready(site: Site, host_ip: str) -> ClusterNode:
    """Wait until the node is Ready and reached from outside.

    What the cluster says in between is no reason to give up: when many nodes join at once,
    `CIDRAssignmentFailed` and restarts of flannel come and go.

    Raises:
        UsernetesNodeError: it is not in time; with what the cluster says of it.
    """
    deadline = site.clock.now() + site.inputs.join_timeout_seconds
    name, control = site.inputs.node_name, site.control
    pause, node = _FIRST_POLL_SECONDS, None
    while True:
        if control.is_ready():
            node = control.node(name)
        if node is not None and sync_faults(node, host_ip):
            # At once, so that flannel finds its address when it starts.
            _sync(site)
            node = control.node(name)
        if node is not None and node.ready and not sync_faults(node, host_ip):
            if flannel_fault(node, host_ip) is None:
                return node
            control.restart_flannel(name)
        if site.clock.now() >= deadline:
            raise _late(site, node, host_ip)
        site.clock.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS)


def settle(site: Site, node: ClusterNode) -> None:
    """The taint of a control plane as it must be, and the node open again if we closed it."""
    inputs, control = site.inputs, site.control
    if inputs.is_control_plane:
        is_tainted = CONTROL_PLANE in node.taints
        if is_tainted and inputs.schedule_on_control_plane:
            control.untaint(inputs.node_name, CONTROL_PLANE)
        elif not is_tainted and not inputs.schedule_on_control_plane:
            control.taint(inputs.node_name, f"{CONTROL_PLANE}:NoSchedule")
    if node.drained_for:
        control.uncordon(inputs.node_name)


def drain(site: Site, node: ClusterNode, reason: str) -> None:
    """Let the node's pods end in order, if it still can."""
    # The pods of a node that is gone cannot end in order; deleting it lets them start elsewhere.
    if node.ready and site.inputs.drain_timeout_seconds:
        site.control.drain(site.inputs.node_name, reason, site.inputs.drain_timeout_seconds)


def failed(site: Site, tried: str, error: MakeFailedError) -> UsernetesNodeError:
    """The error of a step of upstream's that failed: its cause, if it is a known one."""
    reason, said = known_errors.explain("usernetes", error.said), last_words(error.said)
    cause = reason.cause if reason else f"{error.target} failed"
    remedy = reason.remedy if reason else "run it by hand there, as the account that owns the node"
    place = site.host.place
    return UsernetesNodeError(place, tried, cause + (f" ({said})" if said else ""), remedy)


def _sync(site: Site) -> None:
    """Upstream's target goes through all nodes, so that one that just comes or goes can make it fail."""
    try:
        site.control.sync()
    except MakeFailedError as error:
        site.reporter.note(
            f"{site.control.place}: `make sync-external-ip` failed ({last_words(error.said)}); tried again"
        )


def _late(site: Site, node: ClusterNode | None, host_ip: str) -> UsernetesNodeError:
    inputs = site.inputs
    remedy = "it goes on by itself, and the next run looks again"
    if node is None:
        state = "no node has come up"
        remedy = f"read `docker exec usernetes-node journalctl -u kubelet` there; {remedy}"
    else:
        faults = sync_faults(node, host_ip)
        said = node.reason or "no word of its kubelet"
        state = "; ".join(faults) if faults else f"the node is not Ready: {said}"
        events = last_words(site.control.events(inputs.node_name))
        state += f" ({events})" if events else ""
        remedy = f"look at `kubectl -n kube-flannel get pods -o wide` first; {remedy}"
    return UsernetesNodeError(
        site.host.place,
        f"bring node {inputs.node_name} into {inputs.cluster}",
        f"not done after {inputs.join_timeout_seconds:g} s: {state}",
        remedy,
    )
