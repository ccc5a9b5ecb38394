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
_UNINSTALL = "run `rke2-uninstall.sh` there first"


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
    yield from _host_repairs(inputs, host)
    if cluster is not None:
        yield from _node_repairs(inputs, before, cluster.node)


def machine(live: LiveHost, *, selinux: bool) -> Iterator[Finding]:
    """What no host with RKE2 may be, at any time."""
    if live.architecture not in ("", "x86_64"):
        yield blocked("rke2.architecture", f"its processor is {live.architecture}")
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
        problem = (
            f"{', '.join(live.stub)} takes the place of all that RKE2 writes for containerd, which then "
            "does not start"
        )
        remedy = 'remove it, or begin it with {{ template "base" . }}; a toolkit left it there'
        yield Finding("rke2.containerd-template", problem, remedy, live.stub)


def bare_machine(role: Role, live: LiveHost) -> Iterator[Finding]:
    """What keeps RKE2 from a host on which there is none yet."""
    if others := [unit for unit in live.runs if unit in _OTHER_CLUSTERS]:
        problem = f"{', '.join(others)} runs there: the host is a node of another cluster"
        yield blocked("rke2.other-cluster", problem)
    taken = live.ports & {KUBELET_PORT, *(_SERVER_PORTS if role is Role.SERVER else ())}
    if taken and not others:
        ports = ", ".join(map(str, sorted(taken)))
        problem = f"something listens on port {ports} already, which RKE2 needs"
        yield blocked("rke2.port-in-use", problem)
    if "docker.service" in live.runs:
        yield blocked("rke2.docker")
    if live.cgroup == "v1":
        yield blocked("rke2.cgroup-v1")
    if live.free_mib < LEAST_FREE_MIB:
        problem = f"{live.free_mib} MiB are free in /var/lib/rancher; images need {LEAST_FREE_MIB}"
        yield blocked("rke2.disk-space", problem)
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
    is_ = f"RKE2 is {live.version}" if live.version else "RKE2 is not installed"
    yield (
        blocked("rke2.upgrade-path", problem)
        if problem
        else _join("rke2.version", f"{is_} instead of {wanted}")
    )


def certificate(role: Role, live: LiveHost) -> Iterator[Finding]:
    """Certificates that end soon."""
    if not live.expires or not live.clock:
        return
    ends = datetime.fromisoformat(live.expires)
    days = (ends - datetime.fromtimestamp(live.clock, UTC)).days
    if days < CERTIFICATE_DAYS:
        left = f", in {days} days" if days >= 0 else ""
        state = f"{'end' if left else 'ended'} on {ends:%Y-%m-%d}{left}"
        problem = f"its certificates {state}; RKE2 renews them when it starts"
        remedy = f"`sudo systemctl restart {role.unit}`, one host after the other"
        yield Finding("rke2.certificate-expires", problem, remedy, level=Level.WARN)


def unit(role: Role, live: LiveHost) -> Iterator[Finding]:
    """RKE2 does not run."""
    if not is_active(live, role):
        state = live.active.get(role) or "not there"
        yield _join("rke2.unit-inactive", f"{role.unit} is {state}", path=role.unit)


def is_active(live: LiveHost, role: Role) -> bool:
    """Whether RKE2 runs on the host in this role."""
    return live.active.get(role) == "active"


def differing(inputs: Rke2NodeInputs, live: LiveHost) -> dict[str, str]:
    """Content of files that are not as they must be, tokens among them."""
    return host_files.differing({**inputs.contents(), releases.TOKENS: inputs.tokens()}, live.file)


def is_as_declared(inputs: Rke2NodeInputs, live: LiveHost) -> bool:
    """Whether the host, as far as it shows there, runs with exactly these inputs."""
    return not [*_host_repairs(inputs, live)]


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
        problem = f"without it the servers lose their majority: {', '.join(down)} not Ready"
        yield blocked("rke2.majority-lost", problem)


def _installed(inputs: Rke2NodeInputs, live: LiveHost) -> Iterator[Finding]:
    other = Role.AGENT if inputs.role is Role.SERVER else Role.SERVER
    if live.method == "rpm":
        problem = "RKE2 is installed there from RPM packages, which do not mix with an archive"
        yield Finding("rke2.rpm", problem, _UNINSTALL)
    if live.owner and live.owner != inputs.natural_id:
        yield blocked("rke2.other-owner", f"RKE2 on it belongs to {live.owner}")
    elif live.version and not live.owner and not inputs.adopt:
        problem = f"RKE2 {live.version} is there already and no stack of ours installed it"
        yield blocked("rke2.foreign", problem)
    if live.active.get(other) in ("active", "activating"):
        problem = f"it runs as {other}, and is to be {inputs.role}"
        yield Finding("rke2.other-role", problem, f"{_UNINSTALL}: a host cannot be both")


def _cluster(inputs: Rke2NodeInputs, live: LiveHost, cluster: LiveCluster) -> Iterator[Finding]:
    node = cluster.node
    if cluster.unreachable:
        yield blocked("rke2.unreachable", f"it does not reach the servers ({cluster.unreachable})")
    if cluster.rival:
        problem = f"the cluster lives on {cluster.rival}; this host would make another with the same token"
        yield blocked("rke2.second-cluster", problem)
    if node is not None and not live.owner and not inputs.adopt:
        yield nodes.name_taken("rke2.node-exists", inputs.cluster, inputs.node_name, node)
    if cluster.clock is not None:
        yield from nodes.clocks("rke2", live.clock, cluster.clock)
    for name, server in sorted(cluster.servers.items()):
        with suppress(ValueError):  # a release that is none of RKE2's
            skew = releases.skew_problem(parse_version(server.version), inputs.wanted)
            if skew is not None:
                remedy = "upgrade the servers first; `gpu-clusters up` does so in this order"
                yield Finding("rke2.version-skew", f"{name}: {skew}", remedy)


def _host_repairs(inputs: Rke2NodeInputs, live: LiveHost) -> Iterator[Finding]:
    yield from release(live, inputs.wanted)
    for path in sorted(differing(inputs, live)):
        yield _join("rke2.file-changed", f"{path} differs", path=path)
    yield from unit(inputs.role, live)
    if releases.CONTAINERD_DROP_IN in inputs.contents() and live.drop_ins is False:
        problem = (
            f"{releases.CONTAINERD_CONFIG} does not import {releases.CONTAINERD_DROP_INS}/*.toml: "
            f"Kata's handler and {releases.CONTAINERD_DROP_IN} are ignored"
        )
        remedy = (
            "write another version (docs/caas-kubernetes.md says which import them), and take templates of "
            "your own away: " + ", ".join(releases.CONTAINERD_TEMPLATES)
        )
        path = releases.CONTAINERD_DROP_IN
        yield _join("rke2.drop-in-ignored", problem, remedy=remedy, path=path)
    if 0 < live.inotify < LEAST_INOTIFY_INSTANCES:
        is_ = f"fs.inotify.max_user_instances is {live.inotify}"
        problem = f"{is_} and not {LEAST_INOTIFY_INSTANCES}"
        remedy = f"find what lowers it after {releases.INOTIFY} (`sysctl --system`)"
        yield Finding("rke2.inotify", problem, remedy, level=Level.WARN)
    if live.applied != inputs.digest:
        yield _join("rke2.not-joined", "it has not joined with its present configuration")


def _node_repairs(
    inputs: Rke2NodeInputs, before: Mapping[str, Any], node: ClusterNode | None
) -> Iterator[Finding]:
    yield from _node(inputs, node)
    if node is None:
        return
    name = inputs.node_name
    if label_changes(inputs, before, node):
        yield _settle("rke2.labels", f"node {name} has other labels", path=name)
    if node_taints(inputs, before, node):
        yield _settle("rke2.taints", f"node {name} has other taints", path=name)
    if node.drained_for:
        yield _settle("rke2.drained", f"node {name} was closed for {node.drained_for}", path=name)


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
        problem, remedy = "no node has come up", "look at the kubelet's log on the host"
    elif not node.ready:
        problem = f"node {inputs.node_name} is not Ready"
        cause = "most often its Cilium pod cannot start"
        remedy = f"`kubectl describe node {inputs.node_name}`: {cause}"
    elif node.version != inputs.version:
        problem = f"node {inputs.node_name} still runs {node.version}"
        remedy = "look whether another installation of RKE2 is on the host's PATH"
    else:
        return
    yield _join("rke2.node-not-ready", problem, remedy=remedy, path=inputs.node_name)
