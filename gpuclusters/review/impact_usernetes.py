"""What happens to the nodes of a usernetes cluster: containers of an account, and the Docker they run in."""

from __future__ import annotations

from gpuclusters.review.impact_case import Case, Impact, Weight
from gpuclusters.review.impact_machines import changed_roots
from gpuclusters.review.plan import Action
from gpuclusters.review.text import plural

_HARMLESS = {
    "api",
    "connection",
    "drain_timeout_seconds",
    "join_timeout_seconds",
    "build_timeout_seconds",
    "join_token_hours",
    "schedule_on_control_plane",
}
"""Nothing of a node is made anew for them; a certificate or a taint at the most."""
_RELEASE = {"network", "number", "source"}
"""The volumes of a node keep what it was made with: another one of these makes the node anew."""
_ENGINE = {"account", "docker", "container_toolkit"}


def node(case: Case) -> Impact | None:
    """The node of a host."""
    machine, gpus = case.machine, case.gpus
    first = case.old.text("role") == "control-plane"
    if case.step.action in (Action.DELETE, Action.REPLACE):
        says = (
            f"{machine} is the control plane: the cluster ends, with everything that is kept in it"
            if first
            else f"{machine} leaves the cluster: all pods on it end"
        )
        return Impact(Weight.DANGER, case.step, says, machine, gpus)
    changed = changed_roots(case) - _HARMLESS
    if not changed:
        return None
    ends = f"pods on its {plural(gpus, 'GPU')} end" if gpus else "its pods end"
    if changed & _RELEASE:
        says = f"the node of {machine} is made anew: {ends}"
        if first:
            says += ", and so does the cluster with everything that is kept in it"
        return Impact(Weight.DANGER, case.step, says, machine, gpus)
    says = f"the container of the node on {machine} is made anew around its volumes: {ends}"
    return Impact(Weight.DANGER, case.step, says, machine, gpus)


def host(case: Case) -> Impact | None:
    """The rootless Docker of a host, in which its node runs."""
    machine, gpus = case.machine, case.gpus
    if case.step.action in (Action.DELETE, Action.REPLACE):
        what = "are deleted" if case.old.at("remove_data") else "stay"
        says = f"the account's Docker on {machine} is stopped; its images and volumes {what}"
        return Impact(Weight.DANGER, case.step, says, machine, gpus)
    if not changed_roots(case) & _ENGINE:
        return None
    ends = f", and pods on its {plural(gpus, 'GPU')} end" if gpus else ""
    says = f"the account's Docker on {machine} restarts: its node is away for a moment{ends}"
    return Impact(Weight.DANGER, case.step, says, machine, gpus)
