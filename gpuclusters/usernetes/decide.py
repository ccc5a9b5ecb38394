"""What forbids to make a host a node, how a node differs from what it must be, and what is done. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from gpuclusters.core import scripts
from gpuclusters.core.finding import Finding, blocked, repair
from gpuclusters.driver.decide import gpu_count
from gpuclusters.host import node as nodes
from gpuclusters.host.model import differing
from gpuclusters.host.node import ClusterNode, readdressed
from gpuclusters.usernetes.addresses import ApiAccess
from gpuclusters.usernetes.model import ABSENT, LiveNode, UsernetesNodeInputs

HOST_IP = "usernetes/host-ip"
"""Label that upstream's entrypoint gives a node."""
PUBLIC_IP = "flannel.alpha.coreos.com/public-ip-overwrite"
ANNOUNCED_IP = "flannel.alpha.coreos.com/public-ip"
"""What flannel on the node tells the others; it looks at the one above when it starts, and not again."""
UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
LOOPBACK = "127.0.0.1"
DEFAULT_RUNTIME, RUNTIME_MODE = "nvidia", "cdi"
ALL = "all"
"""Name in the node's CDI specification that means every GPU."""
_ANEW = "change the cluster's name with it: then the old cluster goes and a new one is made"
_late = partial(repair, step="ready")


def release_problem(old: UsernetesNodeInputs, new: UsernetesNodeInputs) -> str | None:
    """Why a control plane cannot become what is stated now; None if it can. For previews."""
    if not new.is_control_plane or old.natural_id != new.natural_id or old.number != new.number:
        return None  # a worker can be made anew, and another cluster or network is
    if old.release == new.release:
        return None
    return (
        f"{old.source.tag} cannot become {new.source.tag}, nor can ports and ranges change, under the "
        "volumes of the only control plane, which keep /etc and the data of etcd; put it back, or "
        f"{_ANEW}"
    )


@dataclass(frozen=True, slots=True)
class Meeting:
    """What a host that has yet to join and its control plane know of each other."""

    clock: int
    """Of the control plane."""
    version: str
    """Release that it runs."""
    unreachable: str
    """Why its API cannot be reached from the host; empty if it can."""


@dataclass(frozen=True, slots=True)
class LivePlace:
    """A host, and its place in the cluster."""

    host: LiveNode
    node: ClusterNode | None = None
    """As the cluster knows it; None where it cannot be asked, has none, or is yet to be made."""
    meeting: Meeting | None = None
    """None where the host has joined, makes the cluster itself, or the control plane does not answer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done about the container, in this order."""

    leave: str
    """Why the old node has to be removed with its volumes first; empty if it has not."""
    fetch: bool
    overlay: tuple[str, ...]
    """Files of ours to write."""
    recreate: str
    """Why the container is made anew around its volumes; empty if it is not."""
    up: bool
    """Whether the container has to be made or started."""
    reset: bool
    """Whether what kubeadm began has to be undone."""
    join: bool
    """Whether it has yet to make its cluster, or to join it."""

    @property
    def disturbs(self) -> bool:
        """Whether pods that run on the node now are ended by it."""
        return bool(self.leave or self.recreate)


def plan(inputs: UsernetesNodeInputs, live: LiveNode) -> Plan:
    """The steps for a host that nothing speaks against."""
    leave = _leaving(inputs, live)
    overlay = tuple(sorted(inputs.overlay if leave else differing(inputs.overlay, live.overlay)))
    fetch = bool(leave) or live.source_differs
    there = live.is_begun and not leave
    recreate = _recreating(inputs, live, fetched=fetch) if there and live.is_running else ""
    joined = there and bool(live.joined)
    return Plan(
        leave=leave,
        fetch=fetch,
        overlay=overlay,
        recreate=recreate,
        up=bool(recreate) or not (there and live.is_running),
        # A file of kubeadm without our mark: it was killed, or we were.
        reset=there and not joined and (live.began or live.kubelet_conf),
        join=not joined,
    )


def address(inputs: UsernetesNodeInputs, live: LiveNode) -> str:
    """At which other hosts reach it now."""
    return inputs.host_ip or live.route


def _leaving(inputs: UsernetesNodeInputs, live: LiveNode) -> str:
    if not live.owner:
        return ""
    if is_image_of_another(inputs, live):
        return f"its disk is a copy that carries the node of {live.owner}"
    if inputs.is_control_plane:
        return ""  # its volumes are the cluster; what does not fit is refused before
    if live.joined and inputs.cluster_id and live.joined != inputs.cluster_id:
        return "the control plane was made anew, and it belongs to the cluster before"
    if live.release not in ("", inputs.release):
        return "its volumes are of another release of Usernetes, or of other ports or ranges"
    return _moved(inputs, live) if live.joined else ""


def _moved(inputs: UsernetesNodeInputs, live: LiveNode) -> str:
    now = address(inputs, live)
    moved = live.host_ip not in ("", now)
    return f"its address was {live.host_ip} and is {now} now" if moved else ""


def _recreating(inputs: UsernetesNodeInputs, live: LiveNode, *, fetched: bool) -> str:
    if live.image != inputs.image:
        return "its image or our files are others now"
    if fetched:
        return "upstream's files were brought anew, which it has mounted"
    if live.has_other_devices:
        return "its host has other GPUs now"
    return _moved(inputs, live)


def is_image_of_another(inputs: UsernetesNodeInputs, live: LiveNode) -> bool:
    """Whether the machine's disk was copied from one with a node of the same cluster.

    An image that was saved without `make down-v` carries the node, and with it the name, of the machine that
    it was saved from; that one may be alive.
    """
    other_host = live.owner.startswith(f"{inputs.cluster}/") and live.owner != inputs.natural_id
    return other_host and live.machine not in ("", inputs.connection.machine)


def findings(inputs: UsernetesNodeInputs, live: LivePlace, *, known: bool) -> Iterator[Finding]:
    """How a node differs from its inputs, what forbids to change its host; `known`: it was made before."""
    host = live.host
    if host.docker != "ok":
        yield blocked("usernetes.docker-down", inputs=inputs, live=host)
    if not address(inputs, host):
        yield blocked("usernetes.no-address")
    yield from gpu_count(len(host.host_gpu), inputs.gpus)
    if host.docker != "ok":
        return
    yield from _ownership(inputs, live, known=known)
    yield from _volumes(inputs, host)
    if live.meeting is not None:
        yield from _meeting(inputs, host, live.meeting)
    yield from _container(inputs, host)
    if host.is_running:
        yield from gpu_faults(host)
        yield from _membership(inputs, live)


def _ownership(inputs: UsernetesNodeInputs, live: LivePlace, *, known: bool) -> Iterator[Finding]:
    host, node = live.host, live.node
    if host.owner and host.owner != inputs.natural_id and not is_image_of_another(inputs, host):
        yield blocked("usernetes.other-owner", live=host)
    elif not host.owner and (host.volumes or host.container != ABSENT):
        yield blocked("usernetes.foreign", inputs=inputs)
    if inputs.is_control_plane or node is None or host.owner == inputs.natural_id or known:
        return
    yield nodes.name_taken("usernetes.name-taken", inputs.cluster, inputs.node_name, node)


def _volumes(inputs: UsernetesNodeInputs, live: LiveNode) -> Iterator[Finding]:
    """A control plane's volumes are the cluster: nothing of it survives without them."""
    if not inputs.is_control_plane or live.owner != inputs.natural_id:
        return
    if live.release not in ("", inputs.release):
        yield blocked("usernetes.other-release")
    if address(inputs, live) and (moved := _moved(inputs, live)):
        yield blocked("usernetes.address-changed", moved=moved, live=live)


def _meeting(inputs: UsernetesNodeInputs, live: LiveNode, meeting: Meeting) -> Iterator[Finding]:
    """What would end a join badly, before a token is made; kubeadm would try for minutes."""
    yield from nodes.clocks("usernetes", live.clock, meeting.clock)
    if meeting.version and meeting.version != inputs.source.kubernetes:
        yield blocked("usernetes.version-skew", meeting=meeting, source=inputs.source)
    if meeting.unreachable:
        yield blocked("usernetes.unreachable", meeting=meeting, ports=inputs.network.ports)


def _container(inputs: UsernetesNodeInputs, live: LiveNode) -> Iterator[Finding]:
    steps, anew = plan(inputs, live), partial(repair, step="node")
    if steps.leave:
        yield anew("usernetes.volumes-unfit", steps=steps)
    if live.source_differs:
        yield anew("usernetes.source-changed", case="" if live.source else "gone")
    for name in sorted(differing(inputs.overlay, live.overlay)):
        yield anew("usernetes.overlay-changed", name)
    if live.machine != inputs.connection.machine:
        yield anew("usernetes.other-machine")
    if not live.is_running:
        yield anew("usernetes.container-down", live=live)
    elif live.has_other_devices:
        yield anew("usernetes.gpus-changed")
    elif steps.recreate and not live.source_differs:
        yield anew("usernetes.container-changed", steps=steps)


def gpu_faults(live: LiveNode) -> Iterator[Finding]:
    """What is wrong with the GPUs in the node; nothing if pods can use them all."""
    unusable = partial(repair, "usernetes.gpus-unusable", step="gpus", live=live)
    if live.gpu_unit != "active":
        yield unusable(case="unit", state=live.gpu_unit or "not there")
    if missing := [gpu for gpu in live.host_gpu if gpu not in live.cdi]:
        yield unusable(case="not-in-cdi", gpus=missing)
    if live.host_gpu and ALL not in live.cdi:
        yield unusable(case="no-all")
    if stale := sorted(n for n in live.cdi if n.startswith("GPU-") and n not in live.host_gpu):
        yield unusable(case="stale", gpus=stale)
    if live.runtime != DEFAULT_RUNTIME:
        yield unusable(case="runtime", found=live.runtime or "not known", wanted=DEFAULT_RUNTIME)
    if live.runtime_mode != RUNTIME_MODE:
        yield unusable(case="mode", found=live.runtime_mode or "unknown", wanted=RUNTIME_MODE)


def _membership(inputs: UsernetesNodeInputs, live: LivePlace) -> Iterator[Finding]:
    host, node = live.host, live.node
    if not host.joined or host.joined != host.cluster_id or host.began:
        yield repair("usernetes.not-joined", step="ready" if host.joined else "join")
    if not host.joined:
        return
    if node is None:
        yield _late("usernetes.node-unknown")
        return
    yield from node_faults(inputs, node, address(inputs, host))
    if node.drained_for:
        yield _late("usernetes.node-closed", node=node)
    if inputs.is_control_plane and taint_differs(inputs, node):
        yield _late("usernetes.taint")


def taint_differs(inputs: UsernetesNodeInputs, node: ClusterNode) -> bool:
    """Whether pods may run on a control plane that should have none, or the other way round."""
    return node.has_taint(CONTROL_PLANE) == inputs.schedule_on_control_plane


def node_faults(
    inputs: UsernetesNodeInputs, node: ClusterNode | None, host_ip: str
) -> Iterator[Finding]:
    """Why a node is not Ready and reached from outside."""
    if node is None:
        yield _late("usernetes.node-unknown", case="not-up", inputs=inputs)
        return
    for problem in sync_faults(node, host_ip):
        yield _late("usernetes.node-unreached", problem=problem)
    if not node.ready:
        yield _late("usernetes.node-not-ready", reason=node.reason or "no word of its kubelet")
    if (announced := node.annotations.get(ANNOUNCED_IP, host_ip)) != host_ip:
        yield _late("usernetes.flannel-address", announced=announced, host_ip=host_ip)


def sync_faults(node: ClusterNode, host_ip: str) -> list[str]:
    """What `make sync-external-ip` would put right, in words."""
    found = []
    if host_ip not in node.external_ips:
        found.append(f"the node has no ExternalIP {host_ip}: logs and exec do not reach it")
    if node.annotations.get(PUBLIC_IP) != host_ip:
        found.append(f"flannel does not know {host_ip}: pods of other nodes do not reach its pods")
    if node.has_taint(UNINITIALIZED):
        found.append(f"the node has the taint {UNINITIALIZED}: no pod starts there")
    return found


def kubeconfig(text: str, access: ApiAccess, *, name: str, node_name: str, host_ip: str) -> str:
    """The admin kubeconfig as others can use it; ValueError unless it has exactly one cluster.

    The certificate of the API server is for 127.0.0.1, the node's name and the host's address. With another
    address (one that only the outside knows) the client is told to look for the node's name in it.
    """
    if access.through == "address":
        host = access.address or host_ip
        tls_name = "" if host in (LOOPBACK, node_name, host_ip) else node_name
        return readdressed(text, name=name, host=host, tls_name=tls_name)
    tunnelled = access.through == "tunnel" and access.local_port
    port = str(access.local_port) if tunnelled else None
    return readdressed(text, name=name, host=LOOPBACK, port=port)


# Upstream's `make join-command` is not used: it writes a token that lives for a day into a file that every
# account of the host can read, and `kubeadm join --token` shows it in the process list. The file here is run
# by the same target, `make kubeadm-join`.
_LINE = re.compile(
    r"kubeadm join (?P<endpoint>\S+) --token (?P<token>[a-z0-9]{6}\.[a-z0-9]{16}) "
    r"--discovery-token-ca-cert-hash (?P<hash>sha256:[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class Invitation:
    """What `kubeadm token create --print-join-command` answered."""

    endpoint: str
    token: str = field(repr=False)
    ca_hash: str

    @property
    def token_id(self) -> str:
        """The part of the token that is no secret."""
        return self.token.partition(".")[0]


def parse_invitation(text: str) -> Invitation:
    """Read kubeadm's command; a ValueError does not repeat it: it may hold a token."""
    found = _LINE.search(text)
    if found is None:
        raise ValueError("kubeadm printed no join command")
    return Invitation(found["endpoint"], found["token"], found["hash"])


def join_file(invitation: Invitation, *, control_ip: str, control_name: str) -> str:
    """What `make kubeadm-join` runs in the node. Secret."""
    return scripts.read("usernetes/manifests/kubeadm-join.sh").format(
        host_ip=control_ip,
        node_name=control_name,
        endpoint=invitation.endpoint,
        token=invitation.token,
        hash=invitation.ca_hash,
    )


def lifetime(hours: float) -> str:
    """As kubeadm wants a duration."""
    return f"{max(1, round(hours * 60))}m"
