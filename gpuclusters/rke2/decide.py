"""What keeps a host from its place in an RKE2 cluster, and what has to be repaired. Pure.

Sources: RKE2's requirements (cgroups, AppArmor, RHEL 10, ports), known issues (firewalld, NetworkManager,
nm-cloud-setup) and hardening guide; Kubernetes' version skew policy; etcd's hardware guide.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from gpuclusters.compat import known_errors
from gpuclusters.core.finding import Finding, Level, blocked, repair
from gpuclusters.host import model as host_files
from gpuclusters.host import node as nodes
from gpuclusters.host.node import ClusterNode
from gpuclusters.rke2 import releases
from gpuclusters.rke2.model import (
    LiveCluster,
    LiveHost,
    LiveNode,
    Progress,
    Rke2NodeInputs,
    taint_changes,
)
from gpuclusters.rke2.releases import API_PORT, SUPERVISOR_PORT, Role, Version, parse_version

CERTIFICATE_DAYS = 90
"""A start of RKE2 renews certificates that end within so many days, and nothing else does."""
LEAST_FREE_MIB = 15 * 1024
"""The images of a release unpacked take some 8 GiB; the kubelet evicts pods from 85 % on."""
LEAST_INOTIFY_INSTANCES = 8192
"""What `rke2_config.INOTIFY` sets."""
KUBELET_PORT = 10250
_SERVER_PORTS = (API_PORT, SUPERVISOR_PORT, 2379, 2380)
_join = partial(repair, step="join")
_settle = partial(repair, step="settle")
_OTHER_CLUSTERS = ("k3s.service", "k3s-agent.service", "kubelet.service")


def findings(
    inputs: Rke2NodeInputs, before: Mapping[str, Any], live: LiveNode
) -> Iterator[Finding]:
    """How a host differs from its inputs; `before` are the inputs of the last time, empty at the first."""
    host, cluster = live.host, live.cluster
    yield from machine(host, selinux=inputs.selinux)
    yield from _installed(inputs, host)
    # Where RKE2 is already, its own ports and files would speak against it.
    if not host.owner and not host.version:
        yield from bare_machine(inputs.role, host)
    if cluster is not None:
        yield from _cluster(inputs, host, cluster)
    yield from certificate(inputs.role, host)
    yield from host_repairs(inputs, host)
    if cluster is not None:
        yield from _node_repairs(inputs, before, cluster.node)


def machine(live: LiveHost, *, selinux: bool) -> Iterator[Finding]:
    """What no host with RKE2 may be, at any time."""
    if live.architecture not in ("", "x86_64"):
        yield blocked("rke2.architecture", live=live)
    if not live.default_route:
        yield blocked("rke2.default-route")
    if live.firewalld == "active":
        yield blocked("rke2.firewalld")
    if live.nm_cloud_setup:
        yield blocked("rke2.nm-cloud-setup")
    if selinux and live.selinux == "Disabled":
        yield blocked("rke2.selinux-off")
    if live.selinux == "Enforcing" and not live.selinux_policy:
        yield blocked("rke2.selinux-policy")
    if live.stub:
        found = blocked("rke2.containerd-template", live=live, base='{{ template "base" . }}')
        yield replace(found, path=live.stub)


def bare_machine(role: Role, live: LiveHost) -> Iterator[Finding]:
    """What keeps RKE2 from a host on which there is none yet."""
    if others := [unit for unit in live.runs if unit in _OTHER_CLUSTERS]:
        yield blocked("rke2.other-cluster", units=others)
    taken = live.ports & {KUBELET_PORT, *(_SERVER_PORTS if role is Role.SERVER else ())}
    if taken and not others:
        yield blocked("rke2.port-in-use", ports=sorted(taken))
    if "docker.service" in live.runs:
        yield blocked("rke2.docker")
    if live.cgroup == "v1":
        yield blocked("rke2.cgroup-v1")
    if live.free_mib < LEAST_FREE_MIB:
        yield blocked("rke2.disk-space", live=live, least=LEAST_FREE_MIB)
    if not live.apparmor_parser:
        yield blocked("rke2.apparmor-parser")
    if not live.kernel_modules_extra:
        yield blocked("rke2.kernel-modules-extra")


def release(live: LiveHost, wanted: Version) -> Iterator[Finding]:
    """Another release than wanted: whether one may follow the other."""
    if live.version == str(wanted):
        return
    installed = live.release()
    problem = releases.step_problem(installed, wanted) if installed else None
    if problem:
        yield blocked("rke2.upgrade-path", problem=problem)
    else:
        yield _join("rke2.version", there=live.version or "not installed", wanted=wanted)


def certificate(role: Role, live: LiveHost) -> Iterator[Finding]:
    """Certificates that end soon."""
    if not live.expires or not live.clock:
        return
    ends = datetime.fromisoformat(live.expires)
    days = (ends - datetime.fromtimestamp(live.clock, UTC)).days
    if days < CERTIFICATE_DAYS:
        case, date = "" if days >= 0 else "ended", f"{ends:%Y-%m-%d}"
        found = blocked("rke2.certificate-expires", case=case, date=date, days=days, role=role)
        yield replace(found, level=Level.WARN)


def unit(role: Role, live: LiveHost) -> Iterator[Finding]:
    """RKE2 does not run."""
    if not is_active(live, role):
        yield _join("rke2.unit-inactive", role.unit, state=live.active.get(role) or "not there")


def is_active(live: LiveHost, role: Role) -> bool:
    """Whether RKE2 runs on the host in this role."""
    return live.active.get(role) == "active"


def differing(inputs: Rke2NodeInputs, live: LiveHost) -> dict[str, str]:
    """Content of files that are not as they must be, tokens among them."""
    return host_files.differing({**inputs.contents(), releases.TOKENS: inputs.tokens()}, live.file)


def waiting(
    inputs: Rke2NodeInputs, progress: Progress, node: ClusterNode | None
) -> Iterator[Finding]:
    """What a host that was started waits for; a BLOCK if waiting cannot help."""
    reason = known_errors.explain_newest("rke2", progress.journal)
    remedy = f"read `journalctl -u {inputs.role.unit}` on the host"
    if progress.active == "active":
        yield from _node(inputs, node)
        return
    failed = progress.active == "failed"
    problem = f"{inputs.role.unit} failed"
    if reason is not None:
        problem, remedy = reason.cause, reason.remedy
    elif not failed:
        problem = f"{inputs.role.unit} is still {progress.active or 'not there'}"
    final = failed or (reason is not None and reason.final)
    level = Level.BLOCK if final else Level.REPAIR
    yield Finding("rke2.join-failed", problem, remedy, level=level)


def not_joined(inputs: Rke2NodeInputs, progress: Progress, found: Finding) -> Finding:
    """The error for a host that did not join; `found` is what it still waited for."""
    said = known_errors.last_words(progress.journal, 3)
    problem, remedy = found.problem, found.remedy
    if found.level is not Level.BLOCK:
        time = f"{inputs.join_timeout_seconds} s and {progress.restarts} restarts"
        problem = f"not done after {time}: {problem}"
        remedy += "; it goes on by itself, and the next run looks again"
    tried = f"could not join {inputs.cluster} as {inputs.role} {inputs.node_name}"
    problem = f"{tried}: {problem}" + (f" ({said})" if said else "")
    return replace(found, problem=problem, remedy=remedy)


def majority(inputs: Rke2NodeInputs, servers: Mapping[str, ClusterNode]) -> Iterator[Finding]:
    """Why this server cannot leave the others."""
    rest = {name: node for name, node in servers.items() if name != inputs.node_name}
    down = sorted(name for name, node in rest.items() if not node.ready)
    if inputs.node_name in servers and down and len(down) * 2 >= len(rest):
        yield blocked("rke2.majority-lost", down=down)


def _installed(inputs: Rke2NodeInputs, live: LiveHost) -> Iterator[Finding]:
    other = Role.AGENT if inputs.role is Role.SERVER else Role.SERVER
    if live.method == "rpm":
        yield blocked("rke2.rpm")
    if live.owner and live.owner != inputs.natural_id:
        yield blocked("rke2.other-owner", live=live)
    elif live.version and not live.owner and not inputs.adopt:
        yield blocked("rke2.foreign", live=live)
    if live.active.get(other) in ("active", "activating"):
        yield blocked("rke2.other-role", other=other, inputs=inputs)


def _cluster(inputs: Rke2NodeInputs, live: LiveHost, cluster: LiveCluster) -> Iterator[Finding]:
    node = cluster.node
    if cluster.unreachable:
        yield blocked("rke2.unreachable", cluster=cluster)
    if cluster.rival:
        yield blocked("rke2.second-cluster", cluster=cluster)
    if node is not None and not live.owner and not inputs.adopt:
        yield nodes.name_taken("rke2.node-exists", inputs.cluster, inputs.node_name, node)
    if cluster.clock is not None:
        yield from nodes.clocks("rke2", live.clock, cluster.clock)
    for name, server in sorted(cluster.servers.items()):
        with suppress(ValueError):  # a release that is none of RKE2's
            skew = releases.skew_problem(parse_version(server.version), inputs.wanted)
            if skew is not None:
                yield blocked("rke2.version-skew", name=name, skew=skew)


def host_repairs(inputs: Rke2NodeInputs, live: LiveHost) -> Iterator[Finding]:
    yield from release(live, inputs.wanted)
    for path in sorted(differing(inputs, live)):
        yield _join("rke2.file-changed", path)
    yield from unit(inputs.role, live)
    if releases.CONTAINERD_DROP_IN in inputs.contents() and live.drop_ins is False:
        path = releases.CONTAINERD_DROP_IN
        yield _join("rke2.drop-in-ignored", path, releases=releases)
    if 0 < live.inotify < LEAST_INOTIFY_INSTANCES:
        found = blocked("rke2.inotify", live=live, least=LEAST_INOTIFY_INSTANCES)
        yield replace(found, level=Level.WARN)
    if live.applied != inputs.digest:
        yield _join("rke2.not-joined")


def _node_repairs(
    inputs: Rke2NodeInputs, before: Mapping[str, Any], node: ClusterNode | None
) -> Iterator[Finding]:
    yield from _node(inputs, node)
    if node is None:
        return
    name = inputs.node_name
    if label_changes(inputs, before, node):
        yield _settle("rke2.labels", name)
    if node_taints(inputs, before, node):
        yield _settle("rke2.taints", name)
    if node.drained_for:
        yield _settle("rke2.drained", name, node=node)


def label_changes(
    inputs: Rke2NodeInputs, before: Mapping[str, Any], node: ClusterNode
) -> dict[str, str | None]:
    """Labels to set; None takes one away that we had set before."""
    gone = set(before.get("labels") or ()) - set(inputs.labels)
    wrong = {k: v for k, v in inputs.labels.items() if node.labels.get(k) != v}
    return {**wrong, **{key: None for key in gone if key in node.labels}}


def node_taints(
    inputs: Rke2NodeInputs, before: Mapping[str, Any], node: ClusterNode
) -> tuple[str, ...]:
    """Taints to set, and to take away that we had set before."""
    given = (before.get("config") or {}).get("node-taint") or ()
    return taint_changes(inputs.config.get("node-taint") or (), given, node.taints)


def _node(inputs: Rke2NodeInputs, node: ClusterNode | None) -> Iterator[Finding]:
    if node is None:
        case = "none"
    elif not node.ready:
        case = "not-ready"
    elif node.version != inputs.version:
        case = "other-release"
    else:
        return
    yield _join("rke2.node-not-ready", inputs.node_name, case, node=node)
