"""What speaks against a node before its host is touched, all of it at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.usernetes_cluster import ClusterNode
from gpuclusters.domain.usernetes_node import UsernetesNodeInputs
from gpuclusters.domain.usernetes_node_live import ABSENT, LiveNode

LONGEST_CLOCK_DIFFERENCE_SECONDS = 30
"""More, and a certificate that the control plane has just made is not valid yet on the host."""
Finding = tuple[str, str]
"""What is wrong, and what to do."""


_ANEW = "change the cluster's name with it: then the old cluster goes and a new one is made"


def release_problem(old: UsernetesNodeInputs, new: UsernetesNodeInputs) -> str | None:
    """Why a control plane cannot become what is stated now; None if it can. For previews.

    Args:
        old: what it was last brought to.
        new: what it is to be.
    """
    if not new.is_control_plane or old.natural_id != new.natural_id or old.number != new.number:
        return None  # a worker can be made anew, and another cluster or network is
    if old.release == new.release:
        return None
    return (
        f"{old.source.tag} cannot become {new.source.tag}, nor can ports and ranges change, under the "
        "volumes "
        f"of the only control plane, which keep /etc and the data of etcd; put it back, or {_ANEW}"
    )


def require_possible(
    inputs: UsernetesNodeInputs, live: LiveNode, node: ClusterNode | None, *, known: bool
) -> None:
    """Refuse with everything that is wrong with the host, its old node or its name.

    Args:
        inputs: what it must be.
        live: the host.
        node: the cluster's node of this name, if it can be asked.
        known: whether the state says that this resource was made before.

    Raises:
        RefusalError: with all findings.
    """
    found = list(_host(inputs, live))
    if not found:
        found += [
            *_ownership(inputs, live),
            *_volumes(inputs, live),
            *_name(inputs, live, node, known=known),
        ]
    if found:
        raise RefusalError(inputs.connection.place, *_together(found))


def require_joinable(
    inputs: UsernetesNodeInputs, live: LiveNode, *, clock: int, version: str, unreachable: str
) -> None:
    """Refuse a join that would not end well, before a token is made.

    Args:
        inputs: what it must be.
        live: the host.
        clock: of the control plane.
        version: release that the control plane runs.
        unreachable: why its API cannot be reached from the host; empty if it can.

    Raises:
        RefusalError: with all findings.
    """
    found: list[Finding] = []
    difference = abs(clock - live.clock)
    if difference > LONGEST_CLOCK_DIFFERENCE_SECONDS:
        found.append(
            (
                f"its clock and that of the control plane are {difference} s apart, so that certificates are "
                "not valid yet or any more",
                "let chrony or systemd-timesyncd set both clocks (`timedatectl`)",
            )
        )
    if version and version != inputs.source.kubernetes:
        found.append(
            (
                f"the control plane runs Kubernetes {version}, and {inputs.source.tag} brings "
                f"{inputs.source.kubernetes}",
                "state one tag of Usernetes for the whole cluster; another one makes another cluster",
            )
        )
    if unreachable:
        port = inputs.network.ports.kube_apiserver
        found.append(
            (
                f"it does not reach the control plane's API ({unreachable})",
                f"open {port}/tcp from this host to the control plane, and between all hosts "
                f"{inputs.network.ports.kubelet}/tcp and {inputs.network.ports.flannel}/udp",
            )
        )
    if found:
        raise RefusalError(inputs.connection.place, *_together(found))


def _together(found: list[Finding]) -> tuple[str, str]:
    """All problems, and every remedy once."""
    problems = "; and ".join(problem for problem, _ in found)
    return problems, "; ".join(dict.fromkeys(remedy for _, remedy in found))


def _host(inputs: UsernetesNodeInputs, live: LiveNode) -> Iterator[Finding]:
    if live.docker != "ok":
        yield (
            f"the rootless Docker of {inputs.account} does not answer ({live.docker})",
            f"look at `systemctl --user -M {inputs.account}@ status docker` there",
        )
    if inputs.host_ip is None and not live.route:
        yield (
            "no address was found at which other hosts reach it (`ip route get 1`)",
            "give it a default route, or state its address",
        )
    if len(live.host_gpus) != inputs.gpus:
        yield (
            f"nvidia-smi lists {len(live.host_gpus)} GPUs there, and {inputs.gpus} are expected",
            "look at `nvidia-smi -L` on the host, or correct gpus.count",
        )


def _ownership(inputs: UsernetesNodeInputs, live: LiveNode) -> Iterator[Finding]:
    remedy = "run `make down-v` in its folder of Usernetes, or choose another account"
    if live.owner and live.owner != inputs.natural_id and not is_image_of_another(inputs, live):
        yield (
            f"the node on it belongs to {live.owner}",
            f"take it out of that stack first, or {remedy}",
        )
    elif not live.owner and (live.volumes or live.container != ABSENT):
        yield f"{inputs.account} has a Usernetes node already that no stack of ours made", remedy


def is_image_of_another(inputs: UsernetesNodeInputs, live: LiveNode) -> bool:
    """Whether the machine's disk was copied from one with a node of the same cluster.

    An image that was saved without `make down-v` carries the node, and with it the name, of the machine that
    it was saved from; that one may be alive.
    """
    other_host = live.owner.startswith(f"{inputs.cluster}/") and live.owner != inputs.natural_id
    return other_host and live.machine not in ("", inputs.connection.machine)


def _volumes(inputs: UsernetesNodeInputs, live: LiveNode) -> Iterator[Finding]:
    """A control plane's volumes are the cluster: nothing of it survives without them."""
    if not inputs.is_control_plane or live.owner != inputs.natural_id:
        return
    if live.release not in ("", inputs.release):
        yield (
            "another release of Usernetes, or other ports or ranges, cannot be put under the volumes "
            "of the only "
            "control plane, which keep /etc and the data of etcd",
            f"put it back, or {_ANEW}",
        )
    now = inputs.host_ip or live.route
    if live.host_ip and now and live.host_ip != now:
        yield (
            f"its address was {live.host_ip} and is {now} now, and the certificates and all workers "
            "name the old one",
            f"give it {live.host_ip} back (a reserved address), or {_ANEW}",
        )


def _name(
    inputs: UsernetesNodeInputs, live: LiveNode, node: ClusterNode | None, *, known: bool
) -> Iterator[Finding]:
    if inputs.is_control_plane or node is None or live.owner == inputs.natural_id or known:
        return
    state = "Ready" if node.ready else "not Ready"
    yield (
        f"{inputs.cluster} has a node {inputs.node_name} already ({state}), and this host is not it",
        f"give the host another name; if its host is gone, `kubectl delete node {inputs.node_name}` first",
    )
