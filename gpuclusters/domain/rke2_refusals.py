"""What is known to go wrong before a host is touched, all of it at once.

Sources: RKE2's known issues (firewalld, NetworkManager, nm-cloud-setup), requirements, hardening guide;
Kubernetes' version skew policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuclusters.domain import rke2, rke2_host_checks
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rke2 import Role, parse_version
from gpuclusters.domain.rke2_node import (
    LONGEST_CLOCK_DIFFERENCE_SECONDS,
    ClusterNode,
    LiveHost,
    Rke2NodeInputs,
)
from gpuclusters.domain.rke2_ports import Control

Finding = tuple[str, str]
"""What is wrong, and what to do."""


def before_joining(
    inputs: Rke2NodeInputs,
    live: LiveHost,
    node: ClusterNode | None,
    control: Control,
    others: Sequence[Control],
    *,
    unreachable: str = "",
) -> None:
    """Everything that speaks against it, in one refusal.

    Args:
        inputs: what it must be.
        live: the host.
        node: its node, if the cluster has one of that name.
        control: a server.
        others: further servers.
        unreachable: why the registration address does not answer from there; empty if it does.

    Raises:
        RefusalError: with all findings.
    """
    found = [*_host(inputs, live), *_installed(inputs, live)]
    # Where RKE2 is already, its own ports and files would speak against it.
    if not live.owner and not live.version:
        found += rke2_host_checks.findings(inputs.role, live)
    if not live.applied:
        found += _cluster(inputs, live, node, control, others)
    if unreachable:
        found.append(
            (
                f"it does not reach the servers ({unreachable})",
                "open ports 9345 and 6443 from this host to the servers, and 2379 and 2380 between servers; "
                "check the registration address",
            )
        )
    if inputs.role is Role.AGENT and not found:
        found += _skew(inputs, control)
    if found:
        raise RefusalError(
            inputs.connection.place,
            "; and ".join(problem for problem, _ in found),
            "; ".join(dict.fromkeys(remedy for _, remedy in found)),
        )


def _host(inputs: Rke2NodeInputs, live: LiveHost) -> Iterator[Finding]:
    if live.architecture not in ("", "x86_64"):
        yield f"its processor is {live.architecture}", "use an x86_64 machine"
    if not live.default_route:
        yield (
            "it has no default route, without which RKE2 does not start",
            "add one; in a closed network that of a dummy interface is enough",
        )
    if live.firewalld:
        yield (
            "firewalld runs, which drops the traffic of pods",
            "`systemctl disable --now firewalld`; close ports with Cilium's host firewall or nftables",
        )
    if live.nm_cloud_setup:
        yield (
            "nm-cloud-setup is enabled, which changes the routes of pods",
            "`systemctl disable --now nm-cloud-setup.service nm-cloud-setup.timer` and reboot",
        )
    if inputs.selinux and live.selinux == "Disabled":
        yield "selinux is asked for and SELinux is off", "switch it on, or leave selinux out"
    if live.stubs:
        yield (
            f"{', '.join(live.stubs)} takes the place of all that RKE2 writes for containerd, which "
            "then does not start",
            'remove it, or begin it with {{ template "base" . }}; a container toolkit left it there',
        )
    if live.selinux == "Enforcing" and not live.selinux_policy:
        yield (
            "SELinux enforces and the policy of RKE2 is not installed",
            "install the package rke2-selinux from rpm.rancher.io",
        )


def _installed(inputs: Rke2NodeInputs, live: LiveHost) -> Iterator[Finding]:
    other = Role.AGENT if inputs.role is Role.SERVER else Role.SERVER
    if live.method == "rpm":
        yield (
            "RKE2 is installed there from RPM packages, which do not mix with an archive",
            "run `rke2-uninstall.sh` there first",
        )
    if live.owner and live.owner != inputs.natural_id:
        yield (
            f"RKE2 on it belongs to {live.owner}",
            "take the host out of that stack first, or run `rke2-uninstall.sh` there",
        )
    elif live.version and not live.owner and not inputs.adopt:
        yield (
            f"RKE2 {live.version} is there already and no stack of ours installed it",
            "run `rke2-uninstall.sh` there, or take it over (adopt)",
        )
    if live.active.get(other) in ("active", "activating"):
        yield (
            f"it runs as {other}, and is to be {inputs.role}",
            "run `rke2-uninstall.sh` there first: a host cannot be both",
        )
    release = live.release()
    if release is not None:
        problem = rke2.step_problem(release, inputs.wanted)
        if problem is not None:
            yield problem, "change version"


def _cluster(
    inputs: Rke2NodeInputs,
    live: LiveHost,
    node: ClusterNode | None,
    control: Control,
    others: Sequence[Control],
) -> Iterator[Finding]:
    if inputs.first:
        # One that is taken over has proven by its token that the cluster is its own.
        taken_over = inputs.adopt and live.active.get(Role.SERVER) == "active"
        for other in () if taken_over else others:
            if other.is_installed() and other.is_ready():
                yield (
                    f"the cluster lives on {other.place}, and this host would make a second one with "
                    "the same token",
                    "name that server first in servers; this host then joins it",
                )
        return
    if node is not None and not live.owner and not inputs.adopt:
        state = "Ready" if node.ready else "not Ready"
        yield (
            f"{inputs.cluster} has a node {inputs.node_name} already ({state}), and this host is not it",
            "give the host another name; if it was reinstalled, `kubectl delete node "
            f"{inputs.node_name}` first",
        )
    difference = abs(control.clock() - live.clock)
    if difference > LONGEST_CLOCK_DIFFERENCE_SECONDS:
        yield (
            f"its clock and that of {control.place} are {difference} s apart, so that certificates are "
            "not valid yet or any more",
            "let chrony or systemd-timesyncd set both clocks (`timedatectl`)",
        )


def _skew(inputs: Rke2NodeInputs, control: Control) -> Iterator[Finding]:
    for name, server in sorted(control.servers().items()):
        try:
            problem = rke2.skew_problem(parse_version(server.version), inputs.wanted)
        except ValueError:
            continue
        if problem is not None:
            yield (
                f"{name}: {problem}",
                "upgrade the servers first; `pulumi up` does so in this order",
            )
