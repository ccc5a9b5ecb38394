"""A host of an RKE2 cluster: read, compare, act, so that a run that was killed anywhere can be repeated.

What was begun is marked on the host (`claim`), what was finished too (`finish`, with a digest of all that
RKE2 has read). A later run starts again exactly what was not finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.domain import known_errors, rke2
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_node import ClusterNode, LiveHost, Rke2NodeInputs, taint_changes
from gpuclusters.domain.rke2_ports import Control, Host, JoinError, Progress
from gpuclusters.domain.rke2_refusals import before_joining
from gpuclusters.domain.rke2_state import differing, ignores_drop_in, is_active

POLL_SECONDS = 2.0
_FIRST_POLL_SECONDS = 0.25
API_PATIENCE_SECONDS = 60.0
"""How long a server that restarts is given before it counts as gone."""
_PRIVATE = "0600"


def answering(controls: Sequence[Control], clock: Clock) -> Control:
    """The first server that answers.

    Raises:
        JoinError: none does within a minute.
    """
    deadline = clock.now() + API_PATIENCE_SECONDS
    while True:
        for control in controls:
            if control.is_ready():
                return control
        if clock.now() >= deadline:
            raise JoinError(
                ", ".join(control.place for control in controls),
                "ask the cluster",
                "the API of no server answers there",
                "look at `systemctl status rke2-server` on them, then run again",
            )
        clock.sleep(POLL_SECONDS)


def ensure_node(
    inputs: Rke2NodeInputs,
    host: Host,
    control: Control,
    others: Sequence[Control],
    clock: Clock,
    reporter: Reporter,
    *,
    before: Mapping[str, Any],
) -> LiveHost:
    """Bring the host into the cluster as the inputs say; answers what is there then.

    Args:
        inputs: what it must be.
        host: the host.
        control: a server to ask; the host itself where it makes the cluster.
        others: further servers, only looked at before a cluster is made.
        clock: for waiting.
        reporter: hears of what is put back.
        before: outputs of the last time, empty at the first.

    Raises:
        RefusalError: it must not be done; nothing was changed.
        JoinError: it was begun and did not end well; running again goes on.
    """
    contents = inputs.contents()
    live = host.inspect([*contents, rke2.TOKENS])
    known = None if inputs.first and not live.applied else _node(control, inputs, live)
    # Found out now it costs seconds; RKE2 would try for as long as one has patience.
    unreachable = ""
    if not inputs.first and not live.owner:
        unreachable = host.unreachable(inputs.registration_address)
    before_joining(inputs, live, known, control, others, unreachable=unreachable)
    changed = differing(inputs, live)
    done = live.applied == inputs.digest and not changed and is_active(live, inputs.role)
    if done and known is not None and known.ready and known.version == inputs.version:
        _settle(inputs, control, known, before)
        return live
    host.claim(inputs.natural_id)
    if live.version != inputs.version:
        host.fetch(inputs.version, inputs.artifacts)
    if live.version and live.version != inputs.version and known is not None:
        _drain(inputs, control, inputs.version)
    host.prepare(cis=inputs.cis)
    for path in sorted(set(before.get("files") or ()) - set(contents)):
        host.remove(path)
    for path, content in changed.items():
        ours = (before.get("written") or {}).get(path)
        if ours is not None and live.digests.get(path) not in (None, ours):
            reporter.note(f"{host.place}: {path} was changed by somebody else; it is put back")
        host.write(path, content, mode=_PRIVATE)
    if live.version != inputs.version:
        host.install(inputs.version, inputs.artifacts, cis=inputs.cis)
    since = host.start(inputs.role)
    joined = _wait(inputs, host, control, clock, since)
    _refuse_ignored_drop_in(inputs, host)
    _settle(inputs, control, joined, before)
    host.finish(inputs.digest)
    return host.inspect([*contents, rke2.TOKENS])


def remove_node(
    inputs: Rke2NodeInputs, host: Host, others: Sequence[Control], clock: Clock
) -> None:
    """Take the host out: drain, delete the node, uninstall. What is gone already is fine.

    Raises:
        RefusalError: the cluster would lose its majority of servers.
        JoinError: no server answers, or pods do not leave.
    """
    live = host.inspect([])
    if not live.owner and not live.version:
        # Reinstalled or never begun; only its node may be left.
        _forget(inputs, _living(others, clock))
        return
    if live.owner and live.owner != inputs.natural_id:
        raise RefusalError(
            host.place,
            f"RKE2 on it belongs to {live.owner}, not to {inputs.natural_id}",
            "leave it to that stack and take this resource out with `pulumi state delete`",
        )
    control = _living(others, clock)
    if control is not None:
        if inputs.role is Role.SERVER:
            _keep_majority(inputs, host, control)
        if control.node(inputs.node_name) is not None:
            _drain(inputs, control, "removal")
        _forget(inputs, control)
    host.uninstall()


def _node(control: Control, inputs: Rke2NodeInputs, live: LiveHost) -> ClusterNode | None:
    """The node as the cluster knows it; None where the cluster cannot be asked because it is this host."""
    if inputs.first and not is_active(live, Role.SERVER):
        return None
    if inputs.first and not control.is_ready():
        return None
    return control.node(inputs.node_name)


def _drain(inputs: Rke2NodeInputs, control: Control, reason: str) -> None:
    if inputs.drain_timeout_seconds:
        control.drain(inputs.node_name, reason, inputs.drain_timeout_seconds)


def _wait(
    inputs: Rke2NodeInputs, host: Host, control: Control, clock: Clock, since: str
) -> ClusterNode:
    """Until the node is Ready with its release, a cause that waiting does not help, or the deadline."""
    tried = f"join {inputs.cluster} as {inputs.role} {inputs.node_name}"
    deadline = clock.now() + inputs.join_timeout_seconds
    pause = _FIRST_POLL_SECONDS
    while True:
        progress = host.progress(inputs.role, since)
        reason = known_errors.explain_newest("rke2", progress.journal)
        node = None
        if progress.active == "active" and (not inputs.first or control.is_ready()):
            node = control.node(inputs.node_name)
            if node is not None and node.ready and node.version == inputs.version:
                return node
        elif progress.active == "failed" or (reason is not None and reason.final):
            raise _failure(host, inputs, tried, progress, reason)
        if clock.now() >= deadline:
            raise _late(host, inputs, tried, progress, node, reason)
        clock.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS)


def _refuse_ignored_drop_in(inputs: Rke2NodeInputs, host: Host) -> None:
    """RKE2 has written containerd's configuration by now: before, nobody can look."""
    if ignores_drop_in(inputs, host.inspect([])):
        raise JoinError(
            host.place,
            f"configure the containerd of RKE2 {inputs.version}",
            f"{rke2.CONTAINERD_CONFIG} does not import {rke2.CONTAINERD_DROP_INS}/*.toml: Kata's handler and "
            f"{rke2.CONTAINERD_DROP_IN} would be ignored",
            "write another version (docs/caas-kubernetes.md says which import them), and take templates of "
            "your own away: " + ", ".join(rke2.CONTAINERD_TEMPLATES),
        )


def _failure(
    host: Host,
    inputs: Rke2NodeInputs,
    tried: str,
    progress: Progress,
    reason: known_errors.KnownError | None,
) -> JoinError:
    said = known_errors.last_words(progress.journal, 3)
    cause = reason.cause if reason else f"{inputs.role.unit} failed"
    remedy = reason.remedy if reason else f"read `journalctl -u {inputs.role.unit}` on the host"
    return JoinError(host.place, tried, cause + (f" ({said})" if said else ""), remedy)


def _late(
    host: Host,
    inputs: Rke2NodeInputs,
    tried: str,
    progress: Progress,
    node: ClusterNode | None,
    reason: known_errors.KnownError | None,
) -> JoinError:
    if reason is not None and progress.active != "active":
        state, remedy = reason.cause, reason.remedy
    elif progress.active != "active":
        state = f"{inputs.role.unit} is still {progress.active or 'not there'}"
        remedy = f"read `journalctl -u {inputs.role.unit}` on the host"
    elif node is None:
        state, remedy = (
            "the unit runs and no node has come up",
            "look at the kubelet's log on the host",
        )
    elif not node.ready:
        state = "the node is there and not Ready"
        remedy = (
            f"`kubectl describe node {inputs.node_name}`: most often its Cilium pod cannot start"
        )
    else:
        state = f"the node still runs {node.version}"
        remedy = "look whether another installation of RKE2 is on the host's PATH"
    said = known_errors.last_words(progress.journal, 3)
    return JoinError(
        host.place,
        tried,
        f"not done after {inputs.join_timeout_seconds} s and {progress.restarts} restarts: {state}"
        + (f" ({said})" if said else ""),
        f"{remedy}; it goes on by itself, and the next run looks again",
    )


def _settle(
    inputs: Rke2NodeInputs, control: Control, node: ClusterNode, before: Mapping[str, Any]
) -> None:
    """Labels and taints as they must be, and open again if we closed it."""
    wanted: dict[str, str | None] = {
        key: value for key, value in inputs.labels.items() if node.labels.get(key) != value
    }
    gone = set(before.get("labels") or ()) - set(inputs.labels)
    wanted |= {key: None for key in gone if key in node.labels}
    if wanted:
        control.label(inputs.node_name, wanted)
    given = (before.get("config") or {}).get("node-taint") or ()
    changes = taint_changes(inputs.config.get("node-taint") or (), given, node.taints)
    if changes:
        control.taint(inputs.node_name, changes)
    if node.drained_for:
        control.uncordon(inputs.node_name)


def _living(others: Sequence[Control], clock: Clock) -> Control | None:
    """A server that answers; None if no other has RKE2 any more, so that nothing is left to be told."""
    there = [one for one in others if one.is_installed()]
    if not there:
        return None
    return answering(there, clock)


def _forget(inputs: Rke2NodeInputs, control: Control | None) -> None:
    if control is not None:
        control.delete(inputs.node_name)


def _keep_majority(inputs: Rke2NodeInputs, host: Host, control: Control) -> None:
    servers = control.servers()
    if inputs.node_name not in servers:
        return
    rest = {name: node for name, node in servers.items() if name != inputs.node_name}
    down = sorted(name for name, node in rest.items() if not node.ready)
    if down and len(down) * 2 >= len(rest):
        raise RefusalError(
            host.place,
            f"without it the servers lose their majority: {', '.join(down)} not Ready",
            "bring those back first, or restore an etcd snapshot (`rke2 server --cluster-reset`)",
        )
