"""What is found of one host of an RKE2 cluster: how it differs, what is kept, what is said of it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gpuclusters.domain import rke2, rke2_host_checks
from gpuclusters.domain.host_file import sha256_of
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_node import LiveHost, Rke2NodeInputs

CERTIFICATE_DAYS = 90
"""From when on a start of RKE2 renews certificates."""


def is_active(live: LiveHost, role: Role) -> bool:
    """Whether RKE2 runs on the host in this role."""
    return live.active.get(role) == "active"


def differing(inputs: Rke2NodeInputs, live: LiveHost) -> dict[str, str]:
    """Files that are not as they must be, tokens among them."""
    wanted = {**inputs.contents(), rke2.TOKENS: inputs.tokens()}
    return {
        path: content
        for path, content in wanted.items()
        if live.digests.get(path) != sha256_of(content.encode())
    }


def ignores_drop_in(inputs: Rke2NodeInputs, live: LiveHost) -> bool:
    """Whether the host has a drop-in of ours that containerd does not read."""
    return rke2.CONTAINERD_DROP_IN in inputs.contents() and live.imports_drop_ins is False


def drift(inputs: Rke2NodeInputs, live: LiveHost) -> list[str]:
    """What is not as it was left, in words."""
    found = [f"{path} differs" for path in sorted(differing(inputs, live))]
    if not is_active(live, inputs.role):
        found.append(f"{inputs.role.unit} is {live.active.get(inputs.role) or 'not there'}")
    if 0 < live.inotify < rke2_host_checks.LEAST_INOTIFY_INSTANCES:
        found.append(f"fs.inotify.max_user_instances is {live.inotify}: something lowers it")
    if ignores_drop_in(inputs, live):
        found.append(f"containerd does not read {rke2.CONTAINERD_DROP_IN}")
    if live.applied != inputs.digest:
        found.append("it has not joined with its present configuration")
    return found


def outputs(inputs: Rke2NodeInputs, live: LiveHost) -> dict[str, Any]:
    """What is kept of the host beside its inputs; nothing secret."""
    wanted = {**inputs.contents()}
    return {
        "joined": bool(live.applied) and is_active(live, inputs.role),
        "installed_version": live.version,
        "certificate_expires": live.expires,
        "written": {path: sha256_of(text.encode()) for path, text in sorted(wanted.items())},
        "drift": drift(inputs, live),
    }


def certificate_warning(inputs: Rke2NodeInputs, live: LiveHost) -> str | None:
    """What to say when the host's certificates end soon; None while there is time.

    RKE2 renews them when it starts within 90 days of their end, and only then (its documentation).
    """
    if not live.expires or not live.clock:
        return None
    ends = datetime.fromisoformat(live.expires)
    days = (ends - datetime.fromtimestamp(live.clock, UTC)).days
    if days >= CERTIFICATE_DAYS:
        return None
    state = f"end on {ends:%Y-%m-%d}, in {days} days" if days >= 0 else f"ended on {ends:%Y-%m-%d}"
    return (
        f"{inputs.connection.place}: its certificates {state}; RKE2 renews them when it starts: `sudo "
        f"systemctl restart {inputs.role.unit}`, one host after the other"
    )
