"""What is on one host of a Usernetes cluster now, and how it differs from what it must be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuclusters.domain.usernetes_node import UsernetesNodeInputs
from gpuclusters.host.model import sha256_of

RUNNING = "running"
ABSENT = "absent"
DEFAULT_RUNTIME = "nvidia"
RUNTIME_MODE = "cdi"
ALL = "all"
"""Name in the node's CDI specification that means every GPU."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """The host's marks, its container and what runs in it."""

    owner: str = ""
    """`cluster/host` that made the node, or began to."""
    machine: str = ""
    """Id of the machine that it was made on; empty where machines have none."""
    release: str = ""
    """What its volumes were made with."""
    host_ip: str = ""
    """What its certificates and labels were made with."""
    began: bool = False
    """kubeadm has begun and did not end."""
    joined: str = ""
    """Id of the cluster that it was Ready in; empty if that was never reached."""
    source: str = ""
    """Digest over upstream's files; empty without them."""
    source_brought: str = ""
    """The same when they were brought."""
    overlay: Mapping[str, str] = field(default_factory=dict)
    """sha256 of our files that are there, by name."""
    clock: int = 0
    route: str = ""
    """Address that the host's default route goes out with."""
    host_gpus: tuple[str, ...] = ()
    docker: str = ""
    """`ok`, or why the account's daemon does not answer."""
    container: str = ABSENT
    image: str = ""
    """What the container says that it was made of."""
    volumes: int = 0
    kubelet_conf: bool = False
    admin_conf: bool = False
    cluster_id: str = ""
    gpu_unit: str = ""
    cdi: tuple[str, ...] = ()
    """Names in the node's CDI specification, without `nvidia.com/gpu=`."""
    node_gpus: tuple[str, ...] = ()
    """UUIDs of the devices that the container was given."""
    runtime: str = ""
    runtime_mode: str = ""
    certificates: str = ""
    """All as PEM, in base64."""

    @property
    def is_running(self) -> bool:
        """Whether the node container runs."""
        return self.container == RUNNING

    @property
    def is_begun(self) -> bool:
        """Whether anything of a node is there."""
        return bool(self.owner or self.volumes or self.container != ABSENT)


_LISTS = ("overlay", "host-gpu", "cdi", "node-gpu")


def parse_live(text: str) -> LiveNode:
    """What `scripts/usernetes/node/inspect.sh` printed: `key value` lines."""
    single: dict[str, str] = {}
    several: dict[str, list[str]] = {key: [] for key in _LISTS}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in several:
            several[key].append(value.strip())
        else:
            single[key] = value.strip()
    overlay = (line.partition(" ") for line in several["overlay"])
    clock, volumes = single.get("clock", ""), single.get("volumes", "")
    return LiveNode(
        owner=single.get("owner", ""),
        machine=single.get("machine", ""),
        release=single.get("release", ""),
        host_ip=single.get("host-ip", ""),
        began="began" in single,
        joined=single.get("joined", ""),
        source=single.get("source", ""),
        source_brought=single.get("content", ""),
        overlay={name: digest for digest, _, name in overlay},
        clock=int(clock) if clock.isdecimal() else 0,
        route=single.get("route", ""),
        host_gpus=tuple(several["host-gpu"]),
        docker=single.get("docker", ""),
        container=single.get("container", ABSENT),
        image=single.get("image", ""),
        volumes=int(volumes) if volumes.isdecimal() else 0,
        kubelet_conf=single.get("kubelet-conf") == "yes",
        admin_conf=single.get("admin-conf") == "yes",
        cluster_id=single.get("cluster-id", ""),
        gpu_unit=single.get("gpu-unit", ""),
        cdi=tuple(several["cdi"]),
        node_gpus=tuple(several["node-gpu"]),
        runtime=single.get("runtime", ""),
        runtime_mode=single.get("runtime-mode", ""),
        certificates=single.get("certificates", ""),
    )


def differing_overlay(inputs: UsernetesNodeInputs, live: LiveNode) -> dict[str, str]:
    """Files of the overlay that are not as they must be."""
    return {
        name: text
        for name, text in inputs.overlay.items()
        if live.overlay.get(name) != sha256_of(text.encode())
    }


def source_differs(live: LiveNode) -> bool:
    """Whether upstream's files are missing, or somebody has changed them since they were brought."""
    return not live.source or live.source != live.source_brought


def gpu_faults(live: LiveNode) -> list[str]:
    """What is wrong with the GPUs in the node, in words; nothing if pods can use them all."""
    found: list[str] = []
    if live.gpu_unit != "active":
        found.append(f"usernetes-gpus.service in the node is {live.gpu_unit or 'not there'}")
    missing = [gpu for gpu in live.host_gpus if gpu not in live.cdi]
    if missing:
        found.append(
            f"the node's CDI specification lacks {', '.join(missing)}: pods would end with "
            "'unresolvable CDI devices'"
        )
    if live.host_gpus and ALL not in live.cdi:
        found.append(
            "the node's CDI specification has no name 'all', which the device plugin asks for"
        )
    stale = sorted(
        name for name in live.cdi if name.startswith("GPU-") and name not in live.host_gpus
    )
    if stale:
        found.append(
            f"the node's CDI specification names GPUs of another machine: {', '.join(stale)}"
        )
    if live.runtime != DEFAULT_RUNTIME:
        found.append(
            f"the default runtime in the node is {live.runtime or 'not known'} and not {DEFAULT_RUNTIME}: "
            "the device plugin would find no GPU"
        )
    if live.runtime_mode != RUNTIME_MODE:
        found.append(
            f"NVIDIA's runtime in the node is in mode {live.runtime_mode or 'unknown'} and not {RUNTIME_MODE}"
        )
    return found


def has_other_devices(live: LiveNode) -> bool:
    """Whether the container was given devices that the host no longer has."""
    return live.is_running and set(live.node_gpus) != set(live.host_gpus)


def drift(inputs: UsernetesNodeInputs, live: LiveNode) -> list[str]:
    """What is not as it was left, in words; without what only the cluster knows."""
    if live.docker != "ok":
        return [f"the rootless Docker of {inputs.account} does not answer ({live.docker})"]
    found: list[str] = []
    if source_differs(live):
        found.append("the files of Usernetes were changed" if live.source else "Usernetes is gone")
    found += [f"{name} of the overlay differs" for name in sorted(differing_overlay(inputs, live))]
    if live.machine != inputs.connection.machine:
        found.append("the machine is another one")
    if not live.is_running:
        found.append(f"the node container is {live.container}")
        return found
    if live.image != inputs.image:
        found.append("the node container is made of another image")
    if has_other_devices(live):
        found.append("the node container has other GPUs than its host")
    found += gpu_faults(live)
    if not live.joined or live.joined != live.cluster_id:
        found.append("it has not joined its cluster")
    return found
