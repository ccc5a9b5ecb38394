"""A host of a Usernetes cluster: read, compare, act, so that a run that was killed anywhere can be repeated.

What was begun is marked on the host before it is done, what was finished after it. Workers join side by side;
what ends pods that run already is done to one node at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from gpuclusters.domain import usernetes_join
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.usernetes_cluster import ClusterNode
from gpuclusters.domain.usernetes_node import ControlPlane, UsernetesNodeInputs, words
from gpuclusters.domain.usernetes_node_live import LiveNode, gpu_faults
from gpuclusters.domain.usernetes_node_plan import Plan, plan
from gpuclusters.domain.usernetes_node_ports import (
    MakeFailedError,
    NodeControl,
    UsernetesNodeError,
)
from gpuclusters.domain.usernetes_node_refusals import (
    is_image_of_another,
    require_joinable,
    require_possible,
)
from gpuclusters.domain.usernetes_node_wait import (
    Site,
    drain,
    failed,
    ready,
    require_answer,
    settle,
    started,
)

STEP_TIMEOUT_SECONDS = 900.0


def ensure_node(site: Site, *, before: Mapping[str, Any]) -> LiveNode:
    """Bring the host into its cluster as the inputs say; answers what is there then.

    Args:
        site: the node.
        before: outputs of the last time, empty at the first.

    Raises:
        RefusalError: it must not be done; nothing was changed.
        UsernetesNodeError: it was begun and did not end well; running again goes on.
    """
    inputs, host, control = site.inputs, site.host, site.control
    live = host.inspect()
    host_ip = inputs.host_ip or live.route
    if inputs.control is not None:
        require_answer(control, site.clock)
    node = _node(inputs, live, control)
    require_possible(inputs, live, node, known=bool(before))
    steps = plan(inputs, live, host_ip)
    if steps.join and inputs.control is not None:
        _require_joinable(site, inputs.control, live)
    with _one_at_a_time(site, steps):
        left = _prepare(site, steps, live, node, host_ip)
    faults = gpu_faults(left)
    if faults:
        _set_up_gpus(site, faults)
    if steps.join:
        _join(site, steps, node)
    settle(site, ready(site, host_ip))
    if left is live and not faults:
        return live  # nothing was done to the host
    return _finished(site)


def remove_node(site: Site) -> None:
    """Take the host out: drain, delete the Node, remove container and volumes. Gone already is fine.

    Raises:
        RefusalError: the node on it is another one's.
        UsernetesNodeError: the control plane does not answer, or pods do not leave.
    """
    inputs, host, control = site.inputs, site.host, site.control
    live = host.inspect()
    if live.owner and live.owner != inputs.natural_id:
        raise RefusalError(
            host.place,
            f"the node on it belongs to {live.owner}, not to {inputs.natural_id}",
            "leave it to that stack and take this resource out with `pulumi state delete`",
        )
    if inputs.control is not None and control.is_installed():
        require_answer(control, site.clock)
        node = control.node(inputs.node_name)
        if node is not None:
            with control.exclusive:
                drain(site, node, "removal")
            control.delete(inputs.node_name)
    if live.is_begun or live.source or live.overlay:
        host.remove()


def _node(inputs: UsernetesNodeInputs, live: LiveNode, control: NodeControl) -> ClusterNode | None:
    """The node as the cluster knows it; None where the cluster is yet to be made."""
    if inputs.is_control_plane and not (live.is_running and live.joined and control.is_ready()):
        return None
    return control.node(inputs.node_name)


def _require_joinable(site: Site, control_plane: ControlPlane, live: LiveNode) -> None:
    # Found out now it costs seconds; kubeadm would try for minutes.
    port = site.inputs.network.ports.kube_apiserver
    require_joinable(
        site.inputs,
        live,
        clock=site.control.clock(),
        version=site.control.version(),
        unreachable=site.host.unreachable(control_plane.host_ip, port),
    )


def _one_at_a_time(site: Site, steps: Plan) -> AbstractContextManager[object]:
    # The control plane is asked on its own host, whose commands wait for nobody.
    return site.control.exclusive if steps.disturbs and site.inputs.control else nullcontext()


def _prepare(
    site: Site, steps: Plan, live: LiveNode, node: ClusterNode | None, host_ip: str
) -> LiveNode:
    """Everything up to a container that runs; nothing where it does already."""
    inputs, host = site.inputs, site.host
    if steps.leave:
        _leave(site, steps.leave, live, node)
    is_marked = (live.owner, live.machine) == (inputs.natural_id, inputs.connection.machine)
    if not (steps.is_empty and is_marked):
        variables = words(inputs.environment(host_ip))
        machine = inputs.connection.machine
        host.claim(inputs.natural_id, machine, inputs.release, host_ip, variables)
    if steps.fetch:
        if live.source and not steps.leave:
            site.reporter.note(
                f"{host.place}: the files of Usernetes are not those of the tag; brought anew"
            )
        host.fetch(inputs.source)
    for name in steps.overlay:
        host.write_overlay(name, inputs.overlay[name])
    if not steps.up:
        return live if is_marked and steps.is_empty else host.inspect()
    is_worker = inputs.control is not None
    if steps.recreate:
        site.reporter.note(f"{host.place}: the node container is made anew: {steps.recreate}")
        if node is not None and is_worker:
            drain(site, node, "another container")
        _make(site, "take the node container down", "down", seconds=STEP_TIMEOUT_SECONDS)
    _make(site, "start the node", "up", seconds=inputs.build_timeout_seconds)
    live = started(site)
    if steps.recreate and node is not None and is_worker:
        # The next node is disturbed when this one is back.
        settle(site, ready(site, host_ip))
    return live


def _leave(site: Site, why: str, live: LiveNode, node: ClusterNode | None) -> None:
    site.reporter.note(f"{site.host.place}: the node is removed first: {why}")
    if node is not None and not is_image_of_another(site.inputs, live):
        drain(site, node, "replacement")
        site.control.delete(site.inputs.node_name)
    site.host.remove()


def _set_up_gpus(site: Site, faults: Sequence[str]) -> None:
    """The GPUs in the node, of which something is off."""
    tried = f"set up the GPUs in node {site.inputs.node_name}"
    site.reporter.note(f"{site.host.place}: {'; '.join(faults)}; the GPUs are set up again")
    try:
        site.host.set_up_gpus()
    except MakeFailedError as error:
        raise failed(site, tried, error) from None
    faults = gpu_faults(started(site))
    if faults:
        raise UsernetesNodeError(
            site.host.place,
            tried,
            "; ".join(faults),
            "read `docker exec usernetes-node journalctl -u usernetes-gpus` there",
        )


def _join(site: Site, steps: Plan, node: ClusterNode | None) -> None:
    """Make the cluster, or join it; what was begun before is undone."""
    inputs, host, control = site.inputs, site.host, site.control
    if steps.reset:
        _make(site, "reset what kubeadm began", "kubeadm-reset", seconds=STEP_TIMEOUT_SECONDS)
    host.mark("began", "yes")
    if inputs.control is None:
        tried = f"make the cluster {inputs.cluster}"
        targets = ("kubeadm-init", inputs.source.install_target)
        _make(site, tried, *targets, seconds=inputs.join_timeout_seconds)
        require_answer(control, site.clock)
        return
    if node is not None and not steps.leave:
        # Its host was made anew, or an attempt ended half-way: the new one must not inherit from it.
        control.delete(inputs.node_name)
    invitation = control.invite(usernetes_join.lifetime(inputs.join_token_hours))
    content = usernetes_join.join_file(
        invitation, control_ip=inputs.control.host_ip, control_name=inputs.control.node_name
    )
    try:
        host.join(content, inputs.join_timeout_seconds)
    except MakeFailedError as error:
        tried = f"join {inputs.cluster} as worker {inputs.node_name}"
        raise failed(site, tried, error) from None
    finally:
        control.revoke(invitation.token_id)


def _finished(site: Site) -> LiveNode:
    live = site.host.inspect()
    if live.joined == live.cluster_id and not live.began:
        return live
    site.host.mark("joined", live.cluster_id)
    site.host.mark("began", None)
    return replace(live, joined=live.cluster_id, began=False)


def _make(site: Site, tried: str, *targets: str, seconds: float) -> None:
    try:
        site.host.make(targets, seconds)
    except MakeFailedError as error:
        raise failed(site, f"{tried} (`make {' '.join(targets)}`)", error) from None
