"""The files that a node starts from: for its first process, and for its programs."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.control_plane import NodeSpec, pki
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.hosts.tree import LIB
from lab.kubeconfig import of_node
from lab.nodes import capacity, configuration, proxy
from lab.nodes.distribution import Distribution
from lab.nodes.folder import API, REGISTRY, RealNodeFolder, port_socket
from lab.nodes.model import Devices
from lab.nodes.network import API_SERVICE, MACHINE, REGISTRY_PORT
from lab.nodes.pod_network import PodNetwork
from lab.tools.cache import cache_root

_GROUP = "system:nodes"


def issue(layout: Layout, folder: RealNodeFolder, address: str) -> None:
    """Certificates with which the node's kubelet calls the API server and is called by it."""
    folder.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    user = f"system:node:{folder.name}"
    pki.issue(layout, folder.pki / "client.crt", pki.Client("client", user, _GROUP))
    pki.issue(
        layout,
        folder.pki / "serving.crt",
        pki.Client("serving", user, _GROUP),
        names=[folder.name],
        addresses=[address],
    )
    shutil.copyfile(layout.certificate(pki.CA), folder.pki / "ca.crt")


PROJECT = Path(__file__).resolve().parents[2]
_NAMED = {
    "bridge": "cni-bridge",
    "host-local": "cni-host-local",
    "runc": "runc",
    "ctr": "ctr",
    "containerd-shim-runc-v2": "containerd-shim-runc-v2",
}
"""Programs that a node's programs call, under the names by which they call them."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all nodes of a lab share. `port` is the API server's on loopback, the machine's and the nodes'.

    `network` is that of their pods.
    """

    layout: Layout
    port: int
    programs: Mapping[str, Path]
    log: Path
    hosts: Path | None
    network: PodNetwork


@dataclass(frozen=True, slots=True)
class Place:
    """What is one node's own. `bmc` is the address of its host's management controller.

    `root` is the root of the simulated host under which the node is, None where there is none.
    """

    number: int
    folder: RealNodeFolder
    address: str
    bmc: str
    cgroup: str
    root: Path | None


def write_boot(
    place: Place,
    around: Surroundings,
    spec: NodeSpec,
    devices: Devices,
    images: Sequence[Path],
) -> None:
    """What the first process needs to make the machine; raises `ValueError` for what no machine is."""
    place.folder.path.mkdir(parents=True, exist_ok=True)
    machine = capacity.hardware(spec.capacity)
    covers: dict[str, str] = {}
    if machine is not None:
        shutil.rmtree(place.folder.hardware, ignore_errors=True)
        covers = capacity.write(place.folder.hardware, machine)
    boot_id = place.root / LIB / "proc/boot_id" if place.root is not None else None
    if boot_id is not None and boot_id.exists():
        # By another boot the kubelet knows that its containers are gone.
        covers["/proc/sys/kernel/random/boot_id"] = str(boot_id)
    boot = {
        "devices": {path: list(numbers) for path, numbers in devices.items()},
        "read": _read(around, images),
        "written": [str(path) for path in (place.folder.path.parent, around.hosts) if path],
        "covers": covers,
    }
    place.folder.boot.write_text(json.dumps(boot, indent=2))


def write_programs(
    place: Place, around: Surroundings, spec: NodeSpec, distribution: Distribution
) -> None:
    folder = place.folder
    for path in (folder.networks, folder.plugins, folder.cdi):
        path.mkdir(parents=True, exist_ok=True)
    # Its pods' addresses are known once it has joined, and may be others than before.
    for old in folder.networks.iterdir():
        old.unlink()
    for name, tool in _NAMED.items():
        link = folder.plugins / name
        link.unlink(missing_ok=True)
        link.symlink_to(around.programs[tool])
    issue(around.layout, folder, place.address)
    runc = folder.plugins / "runc"
    folder.containerd_configuration.write_text(configuration.containerd(folder, runc, distribution))
    folder.kubelet_configuration.write_text(
        configuration.kubelet(folder, spec, place.cgroup, distribution)
    )
    (folder.registries / "_default").mkdir(parents=True, exist_ok=True)
    hosts = folder.registries / "_default" / "hosts.toml"
    hosts.write_text(configuration.registry(MACHINE, REGISTRY_PORT))
    text = of_node(
        f"https://{LOOPBACK}:{around.port}", folder.pki / "ca.crt", folder.pki / "client.crt"
    )
    folder.kubeconfig.write_text(text)
    proxy.write(around.layout, folder, around.port, around.programs)
    around.network.write(around.layout, folder, place.address, around.port)


def doors(around: Surroundings, ports: Sequence[int]) -> list[tuple[str, int, str]]:
    """Where a node listens, and the socket that each door leads to, from the folder of the lab."""
    found = [
        ("127.0.0.1", around.port, API),
        (API_SERVICE, 443, API),
        (MACHINE, REGISTRY_PORT, REGISTRY),
    ]
    return found + [(MACHINE, port, port_socket(port)) for port in ports]


def bound(place: Place, distribution: Distribution) -> list[tuple[str, str]]:
    """Folders that a node has of its host, or of its own where it has none: source and path in the node."""
    if place.root is None:
        return [(str(place.folder.cdi), "/etc/cdi")]
    return [(str(place.root / path[1:]), path) for path in (*distribution.bound, "/dev/vfio")]


def on_the_machine(place: Place, distribution: Distribution, path: Path) -> Path:
    """Where a path of the node below /var/lib lies: on its own disk, or on that of its host."""
    if place.root is not None and any(path.is_relative_to(one) for one in distribution.bound):
        return place.root / path.relative_to("/")
    return place.folder.var_lib / path.relative_to("/var/lib")


def forget_disk(folder: RealNodeFolder) -> None:
    for disk in (folder.var_lib, folder.var_log):
        for path in disk.iterdir() if disk.exists() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _read(around: Surroundings, images: Sequence[Path]) -> list[str]:
    """Folders of the machine that the node reads under their own paths wherever they lie."""
    found = {PROJECT, Path(sys.prefix), Path(sys.base_prefix), cache_root()}
    found |= {path.parent for path in around.programs.values()}
    found |= {image.parent for image in images}
    return sorted(map(str, found))
