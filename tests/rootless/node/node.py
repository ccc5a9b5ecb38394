"""The rootless node of one host, from its start to the last trace of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from lab import tools
from lab.control_plane import ControlPlaneError, NodeSpec, ports
from lab.control_plane.commands import API_SERVER, KUBELET
from lab.control_plane.kube import KubeApi, UnavailableError
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.files import write_atomic
from lab.images.names import PAUSE
from lab.kubeconfig import of_node
from lab.nodes import OWN_CAPACITY, cgroups, node_files, objects
from lab.nodes import configuration as rootful
from lab.nodes.choice import obstacles
from lab.nodes.facts import machine_facts
from lab.nodes.folder import RealNodeFolder
from lab.nodes.leftovers import remove_groups
from lab.nodes.network import token
from lab.tools import debian_packages
from tests.rootless.node.machine import PrivateMachine, RootlessNodeError, private_machine

PACKAGES = ("rootlesskit", "slirp4netns", "uidmap", "libslirp0", "libsubid4")
"""Debian's packages with the programs that an account makes its namespaces with."""
NODE_PACKAGES = ("iptables", "libxtables12", "libmnl0", "libnftnl11")
"""Debian's packages with the program that leads packets of the node's pods."""

LIBEXEC = "/usr/local/libexec/usernetes-node"
"""On the host: programs that only the node has on its PATH."""

DATA = "/srv/usernetes-node"
"""On the host: what the node keeps over its restarts, as volumes of its container would."""

TOOLS = (
    "containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "cni-bridge", "cni-host-local",
)  # fmt: skip
SLIRP_HOST = "10.0.2.2"
"""Where slirp4netns shows the loopback of the machine underneath."""
FOLDER = RealNodeFolder(Path("/etc/kubernetes"))
PLUGINS = "/opt/cni/bin"

_ROOMS = Path(__file__).resolve().parents[3] / "gpuclusters"
_OVERLAY = _ROOMS / "usernetes/overlay"
_PROGRAMS = Path(__file__).parent / "programs"
_PLACED = {
    _PROGRAMS / "launch.sh": f"{LIBEXEC}/launch.sh",
    _PROGRAMS / "node.sh": f"{LIBEXEC}/node.sh",
    _PROGRAMS / "systemctl.sh": f"{LIBEXEC}/systemctl",
    _PROGRAMS / "docker.sh": "/usr/local/bin/docker",
    # As Dockerfile.gpu puts them into the image of a node.
    _OVERLAY / "node-gpus.sh": "/usr/local/libexec/gpu-clusters/node-gpus",
    _OVERLAY / "usernetes-gpus.service": "/usr/lib/systemd/system/usernetes-gpus.service",
}
_CALLED = {"cni-bridge": f"{PLUGINS}/bridge", "cni-host-local": f"{PLUGINS}/host-local"}
"""Programs that have another name where they are called."""
CONTAINER = "usernetes-node"
ACCOUNT = "usernetes"
"""Of the host; it owns everything."""
_MTU = "65520"
_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_SECONDS = 300.0
"""For what takes seconds, on a machine that has much else to do."""
_REQUEST_SECONDS = 60.0
"""For one answer of the API server, beside a node that starts."""
_POLL_SECONDS = 0.05
_GIVEN = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks")
"""Files of a group by which processes and controllers are moved within it; limits stay root's."""


@dataclass(frozen=True, slots=True)
class RootlessSpec:
    """One rootless node on a host of its own.

    `control_plane` is the folder of the lab whose API server it joins. Of `node`, name, labels and taints
    count: capacity is what the machine has. `images` are OCI archives that the node has from the start.
    `layers` are folders whose files lie over those of the host, such as a driver; `devices` are character
    devices of the host's /dev by name: major and minor number.
    """

    control_plane: Path
    node: NodeSpec
    images: tuple[Path, ...] = ()
    layers: tuple[Path, ...] = ()
    devices: tuple[tuple[str, int, int], ...] = ()

    @property
    def name(self) -> str:
        return self.node.name


@dataclass
class RootlessNode:
    """One node. `host` is the machine that it runs on, `account_id` the number of its account."""

    spec: RootlessSpec
    host: PrivateMachine
    account_id: int
    port: int
    """Of the kubelet, in the node and on the machine's loopback."""
    places: Sequence[str]
    """The account's cgroups, as the host sees them."""
    groups: Sequence[Path]
    """The same, as this machine sees them."""
    folder: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What the account's commands are given, as `node/environment.sh` states it."""
        return {"XDG_RUNTIME_DIR": f"/run/user/{self.account_id}"}

    @property
    def kept(self) -> Path:
        """What the node keeps over its restarts."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """A process that is in the node's namespaces, as this machine sees it."""
        state = f"/run/user/{self.account_id}/usernetes-node/child_pid"
        known = self.host.run("cat", state).stdout.strip()
        if self._process is not None and known:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(OSError):
                    if _number(process.pid) == known:
                        return process.pid
        raise RootlessNodeError(f"the rootless node {self.spec.name} does not run")

    def start(self) -> None:
        """Start its namespaces and programs; returns when containerd answers."""
        words = ["sh", f"{LIBEXEC}/launch.sh", ACCOUNT, DATA, " ".join(self.places)]
        said = self.folder / "rootlesskit.log"
        with said.open("ab") as log:
            process = self._process = subprocess.Popen(
                self.host.command(*words, str(self.port), _MTU),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.host.environment(),
                start_new_session=True,
            )
        deadline = time.monotonic() + _SECONDS
        while self.run("ctr", "version").returncode:
            ended = process.poll() is not None
            if ended or time.monotonic() > deadline:
                last = " ".join(said.read_text(errors="replace").strip().splitlines()[-3:])
                state = "ended" if ended else "is not there"
                raise RootlessNodeError(
                    f"the rootless node {self.spec.name} {state} before containerd answers: {last}"
                )
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End all that runs in it, as if its power was cut; what it keeps stays."""
        if self._process is None:
            return
        # Everything ends with the first process of its namespace; what is around ends with that.
        with contextlib.suppress(RootlessNodeError, ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + _SECONDS
        while self._process.poll() is None or cgroups.processes(self.groups[0].name):
            if time.monotonic() > deadline:
                raise RootlessNodeError(f"the rootless node {self.spec.name} does not end")
            time.sleep(_POLL_SECONDS)
        clear(self.groups)
        self._process = None

    def run(self, *argv: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        """A command in the node, as its root: what `docker exec` is for a node of Usernetes."""
        words = ("docker", "exec", CONTAINER, *argv)
        return self.host.run(*words, account=ACCOUNT, stdin=stdin, environment=self.environment)

    def output(self, *argv: str, stdin: str | bytes = "") -> str:
        """What a command in the node prints that must succeed."""
        words = ("docker", "exec", CONTAINER, *argv)
        return self.host.output(*words, account=ACCOUNT, stdin=stdin, **self.environment)

    def load(self, archive: Path) -> None:
        # The archive lies where the account may not read.
        load = ("ctr", "--namespace", "k8s.io", "images", "import", "--local", "-")
        self.output(*load, stdin=archive.read_bytes())


def _number(pid: int) -> str:
    """Which number a process has on the host, one level below this machine."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    numbers = next(line.split()[1:] for line in lines if line.startswith("NSpid:"))
    return numbers[1] if len(numbers) > 1 else ""


def clear(made: Sequence[Path]) -> None:
    """Remove the groups below, whose processes are gone: with a container goes its group.

    A kubelet that finds containers in groups which are none any more takes seconds for each.
    """
    for group in made:
        for folder, _, _ in os.walk(group, topdown=False):
            if Path(folder) != group:
                Path(folder).rmdir()


def places(made: Sequence[Path]) -> dict[Path, str]:
    """Where each group is to be seen by the account: in place of its hierarchy's top."""
    if cgroups.is_unified():
        return dict.fromkeys(made, "/sys/fs/cgroup")
    return {group: f"/sys/fs/cgroup/{group.parent.name}" for group in made}


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


def prepare(machine: PrivateMachine, spec: RootlessSpec, groups: tuple[Path, ...]) -> int:
    """Make the account with all that it needs; gives its number."""
    for name, major, minor in spec.devices:
        machine.output("mknod", "-m", "0666", f"/dev/{name}", "c", str(major), str(minor))
    # Libraries of layers are found from now on.
    machine.output("ldconfig")
    machine.script(_ROOMS / "rootless/scripts/account.sh", "create", ACCOUNT)
    tried = machine.run("unshare", "--user", "true", account=ACCOUNT)
    if tried.returncode:
        said = tried.stderr.strip()
        raise RootlessNodeError(f"the kernel gives accounts no user namespaces: {said}")
    owner = machine.output("id", "-u", ACCOUNT).strip()
    machine.output("install", "-d", "-m", "0700", "-o", owner, "-g", owner, f"/run/user/{owner}")
    for group in groups:
        # Limits of the group itself stay root's.
        for path in (group, *(group / name for name in _GIVEN)):
            if path.exists():
                os.chown(path, int(owner), int(owner))
    return int(owner)


def _join(api: KubeApi, spec: RootlessSpec, networks: Path, kubelet_log: Path) -> None:
    """Give the node its address, and its pods a network; returns when it is Ready.

    The kubelet cannot say by which address it is reached: within its namespaces it has another. So it says
    that a cloud will, as in Usernetes, and this is the cloud.
    """
    objects.admit_api_server(api)
    deadline = time.monotonic() + _SECONDS
    while True:
        # The control plane may be at its limits.
        with contextlib.suppress(UnavailableError):
            node = objects.read(api, spec.name)
            if (
                node is not None
                and node["spec"].get("podCIDR")
                and _placed(api, spec, node, networks)
            ):
                return
        if time.monotonic() > deadline:
            raise RootlessNodeError(
                f"the rootless node {spec.name} was not Ready within {_SECONDS:.0f} s; see {kubelet_log}"
            )
        time.sleep(_POLL_SECONDS)


def _placed(api: KubeApi, spec: RootlessSpec, node: dict[str, Any], networks: Path) -> bool:
    name = spec.name
    text = rootful.network(node["spec"]["podCIDR"])
    write_atomic(networks / "10-lab.conflist", text.encode())
    addresses = [{"type": "InternalIP", "address": LOOPBACK}, {"type": "Hostname", "address": name}]
    if node["status"].get("addresses") != addresses:
        path, body = f"/api/v1/nodes/{name}/status", {"status": {"addresses": addresses}}
        api.request("PATCH", path, body, "application/merge-patch+json")
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    if _UNINITIALIZED in taints:
        place = f"/spec/taints/{taints.index(_UNINITIALIZED)}"
        # Refused when the taints are others by now; then it is done at the next look.
        patch = [
            {"op": "test", "path": f"{place}/key", "value": _UNINITIALIZED},
            {"op": "remove", "path": place},
        ]
        api.request("PATCH", f"/api/v1/nodes/{name}", patch, "application/json-patch+json")
        labelled = {"name": name, "labels": dict(spec.node.labels)}
        api.apply({"apiVersion": "v1", "kind": "Node", "metadata": labelled})
        return False
    return objects.is_usable(node)


@contextlib.contextmanager
def running(
    folder: Path, spec: RootlessSpec, report: Callable[[str], None] = lambda _: None
) -> Iterator[RootlessNode]:
    """A node that is Ready, until the end of the block; then nothing of it is left but the folder."""
    if found := obstacles(machine_facts()):
        raise RootlessNodeError("; ".join(found))
    layout = Layout.of(spec.control_plane)
    api_port = ports.kept(layout.ports).get(API_SERVER, 0)
    if not api_port:
        raise RootlessNodeError(
            f"there is no control plane in {spec.control_plane}; start it first"
        )
    programs = tools.ensure(TOOLS, report)
    packages = (
        debian_packages.unpacked("rootless", PACKAGES),
        debian_packages.unpacked("rootless-node", NODE_PACKAGES),
    )
    # Kept for this node alone: between a stop and the next start nobody else gets it.
    data, port = folder / "data", ports.reserve(folder / "ports.json", [KUBELET])[KUBELET]
    write(spec, data, port, api_port)
    group = f"gpu-clusters-{token(folder)}-rootless"
    # Of a run that was killed together with what cleans up after it.
    remove_groups([group])
    cgroups.make(group)
    groups = tuple(root / group for root in cgroups.roots())
    there = bound(programs, data, groups)
    layers = (*packages, layer(folder / "layer"), *spec.layers)
    with (
        private_machine(*layers, bound=there, groups=groups) as machine,
        KubeApi(layout, api_port, _REQUEST_SECONDS) as api,
    ):
        account_id = prepare(machine, spec, groups)
        give(data, account_id)
        seen = tuple(places(groups).values())
        node = RootlessNode(spec, machine, account_id, port, seen, groups, folder)
        try:
            report(f"starting the rootless node {spec.name}")
            node.start()
            for archive in spec.images:
                node.load(archive)
            _join(api, spec, data / "etc/cni/net.d", data / "var-log/kubelet.log")
            yield node
        finally:
            node.stop()
            with contextlib.suppress(ControlPlaneError, UnavailableError):
                api.delete(f"/api/v1/nodes/{spec.name}")
