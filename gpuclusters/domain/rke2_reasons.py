"""Why a host does not join: what RKE2 says in its journal, in our words.

A unit of RKE2 tries for ever (`Restart=always`, no start timeout), so the end of patience says nothing. The
journal does. Wording after the sources of RKE2 and K3s, and threads about them (rke2#4659, rke2#3214,
rke2#7372, rke2-docs#548).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause. `final`: waiting longer cannot help."""

    cause: str
    remedy: str
    final: bool


_TABLE: Sequence[tuple[str, Reason]] = (
    (
        r"Node password rejected|duplicate hostname",
        Reason(
            "another machine is or was in the cluster under this node name",
            "give the host a name of its own; if it was reinstalled, delete the old node and the secret "
            "<name>.node-password.rke2 in kube-system",
            final=True,
        ),
    ),
    (
        r"duplicate node name found",
        Reason(
            "etcd has a member of this name already",
            "delete the old server's node and let its member go, then run again",
            final=True,
        ),
    ),
    (
        r"[Tt]oken CA hash does not match|CA hash does not match",
        Reason(
            "the token belongs to another cluster's certificate authority",
            "check the registration address: it leads to servers of another cluster, or the host kept data "
            "of one (rke2-uninstall.sh removes it)",
            final=True,
        ),
    ),
    (
        r"401 Unauthorized|not authorized|invalid token|failed to validate token|password is incorrect",
        Reason(
            "the servers do not accept the token",
            "check that all servers were started with the token of this stack; a changed token needs "
            "`rke2 token rotate` on a server first",
            final=True,
        ),
    ),
    (
        r"critical configuration (value )?mismatch",
        Reason(
            "a setting that all servers must share differs from the first server's",
            "bring the servers' files in /etc/rancher/rke2 in line; ranges and CNI of a running cluster "
            "cannot change",
            final=True,
        ),
    ),
    (
        r"certificate has expired or is not yet valid",
        Reason(
            "the clocks of this host and of the servers differ",
            "let chrony or systemd-timesyncd set the clock (`timedatectl`), then run again",
            final=True,
        ),
    ),
    (
        r"(missing required: )?(user: unknown user|group: unknown group) etcd",
        Reason(
            "the CIS profile needs the user and group etcd",
            "run again: they are made before the start; a directory service may forbid local users",
            final=True,
        ),
    ),
    (
        r"invalid kernel parameter value",
        Reason(
            "the CIS profile needs kernel parameters that something on the host sets otherwise",
            "look for vm.panic_on_oom, vm.overcommit_memory, kernel.panic and kernel.panic_on_oops in "
            "/etc/sysctl.d and take the other values out",
            final=True,
        ),
    ),
    (
        r"default runtime .* was not found",
        Reason(
            "default-runtime names a runtime whose program is not on the host",
            "remove default-runtime from /etc/rancher/rke2: with CDI it is not needed",
            final=True,
        ),
    ),
    (
        r"no default routes found",
        Reason(
            "the host has no default route",
            "add one; in a closed network that of a dummy interface is enough",
            final=True,
        ),
    ),
    (
        r"too many open files",
        Reason(
            "the limits of inotify are too low",
            "run again: /etc/sysctl.d/90-gpu-clusters-rke2.conf raises them; look for a later file there "
            "that lowers them",
            final=False,
        ),
    ),
    (
        r"no space left on device",
        Reason("a disk of the host is full", "free space in /var/lib/rancher", final=True),
    ),
    (
        r"address already in use",
        Reason(
            "another program listens on a port of RKE2",
            "find it with `ss -ltnp` (6443, 9345, 10250, 2379, 2380) and stop it",
            final=True,
        ),
    ),
    (
        r"(connection refused|i/o timeout|no route to host|context deadline exceeded)",
        Reason(
            "the host does not reach a server",
            "open ports 9345 and 6443 from this host to the servers, and 2379 to 2381 between servers; "
            "check the registration address",
            final=False,
        ),
    ),
    (
        r"failed to pull|ErrImagePull|failed to get image|x509: certificate signed by unknown authority",
        Reason(
            "images of RKE2 cannot be pulled",
            "check registries and system-default-registry, or bring the release's image archives",
            final=False,
        ),
    ),
    (
        r"learner|etcdserver: too many learner",
        Reason(
            "etcd is still taking in another server",
            "run again when `kubectl get nodes` shows it Ready",
            final=False,
        ),
    ),
)


def explain(journal: str) -> Reason | None:
    """The cause that the newest lines name; None if they name none that we know."""
    for line in reversed(journal.splitlines()):
        for pattern, reason in _TABLE:
            if re.search(pattern, line):
                return reason
    return None


def last_words(journal: str, count: int = 3) -> str:
    """The newest lines that are more than information, on one line."""
    lines = [line.strip() for line in journal.splitlines() if line.strip()]
    loud = [line for line in lines if re.search(r"level=(error|fatal|warning)|rror", line)]
    return " | ".join((loud or lines)[-count:])[:600]
