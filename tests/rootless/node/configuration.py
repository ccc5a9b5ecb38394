"""What lies where on the host of a rootless node, and what its programs are told."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.images.names import PAUSE
from lab.kubeconfig import of_node
from lab.nodes import OWN_CAPACITY, node_files
from lab.nodes import configuration as rootful
from lab.nodes.folder import RealNodeFolder
from tests.rootless.node.node import DATA, LIBEXEC, RootlessSpec, places

SLIRP_HOST = "10.0.2.2"
"""Where slirp4netns shows the loopback of the machine underneath."""
FOLDER = RealNodeFolder(Path("/etc/kubernetes"))
PLUGINS = "/opt/cni/bin"

ROOMS = Path(__file__).resolve().parents[3] / "gpuclusters"
_PROGRAMS = Path(__file__).parent / "programs"
_PLACED = {
    _PROGRAMS / "launch.sh": f"{LIBEXEC}/launch.sh",
    _PROGRAMS / "node.sh": f"{LIBEXEC}/node.sh",
    _PROGRAMS / "systemctl.sh": f"{LIBEXEC}/systemctl",
    _PROGRAMS / "docker.sh": "/usr/local/bin/docker",
    # As Dockerfile.gpu puts them into the image of a node.
    ROOMS / "usernetes/overlay/node-gpus.sh": "/usr/local/libexec/gpu-clusters/node-gpus",
    ROOMS
    / "usernetes/overlay/usernetes-gpus.service": "/usr/lib/systemd/system/usernetes-gpus.service",
}
_CALLED = {"cni-bridge": f"{PLUGINS}/bridge", "cni-host-local": f"{PLUGINS}/host-local"}
"""Programs that have another name where they are called."""


def layer(folder: Path) -> Path:
    """The folder, with scripts of ours where a host and its node have them."""
    for source, target in _PLACED.items():
        place = folder / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        place.chmod(0o644 if source.suffix == ".service" else 0o755)
    # In a package this name is made when it is installed.
    iptables = folder / LIBEXEC.lstrip("/") / "iptables"
    iptables.unlink(missing_ok=True)
    iptables.symlink_to("/usr/sbin/xtables-nft-multi")
    return folder


def bound(programs: Mapping[str, Path], data: Path, groups: tuple[Path, ...]) -> dict[Path, str]:
    """What of the machine underneath the host has under other paths."""
    there = {path: _CALLED.get(name, f"/usr/local/bin/{name}") for name, path in programs.items()}
    return there | {data: DATA} | places(groups)


def give(path: Path, owner: int) -> None:
    """Let the account own a folder with all that is in it."""
    for entry in (path, *path.rglob("*")):
        os.chown(entry, owner, owner, follow_symlinks=False)


def write(spec: RootlessSpec, data: Path, port: int, api_port: int) -> None:
    """The files that containerd and the kubelet start from, with certificates by the lab's authority."""
    for folder in ("var-lib", "var-log", "etc/cdi", "etc/nvidia-container-runtime", "etc/cni/net.d",
                   "etc/kubernetes/pki", "etc/containerd"):  # fmt: skip
        (data / folder).mkdir(parents=True, exist_ok=True)
    issued = RealNodeFolder(data / "issued" / spec.name)
    # The API server asks the kubelet at the port that rootlesskit publishes.
    node_files.issue(Layout.of(spec.control_plane), issued, LOOPBACK)
    for name in ("ca.crt", "client.crt", "client.key", "serving.crt", "serving.key"):
        (issued.pki / name).replace(data / "etc/kubernetes/pki" / name)
    kubernetes, pki = data / "etc/kubernetes", FOLDER.pki
    # The API server of the machine underneath, by the name in its certificate.
    named = {"tls-server-name": LOOPBACK}
    server = f"https://{SLIRP_HOST}:{api_port}"
    kubeconfig = of_node(server, pki / "ca.crt", pki / "client.crt", **named)
    (kubernetes / "kubelet.yaml").write_text(_kubelet(spec, port))
    (kubernetes / "kubelet.conf").write_text(kubeconfig)
    containerd = (_PROGRAMS / "containerd.toml").read_text()
    containerd = containerd.format(PAUSE=PAUSE, PLUGINS=PLUGINS)
    (data / "etc/containerd/config.toml").write_text(containerd)
    (data / "name").write_text(f"{spec.name}\n")
    (data / "api-server").write_text(f"{SLIRP_HOST} {api_port}\n")


def _kubelet(spec: RootlessSpec, port: int) -> str:
    """The kubelet's configuration (JSON, which is YAML)."""
    node = replace(spec.node, capacity=OWN_CAPACITY, allocatable=OWN_CAPACITY)
    document: dict[str, Any] = json.loads(rootful.kubelet(FOLDER, node, ""))
    # Nothing leads from this node's network to services.
    document.pop("clusterDNS", None)
    document |= {
        "featureGates": {"KubeletInUserNamespace": True},
        # The same number outside, where rootlesskit listens for it.
        "port": port,
    }
    return json.dumps(document, indent=2) + "\n"
