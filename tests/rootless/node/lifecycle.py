"""A rootless node from its start to the last trace of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab import tools
from lab.control_plane import ControlPlaneError, ports
from lab.control_plane.commands import API_SERVER, KUBELET
from lab.control_plane.kube import KubeApi, UnavailableError
from lab.control_plane.layout import Layout
from lab.control_plane.ports import LOOPBACK
from lab.files import write_atomic
from lab.nodes import cgroups, objects
from lab.nodes import configuration as rootful
from lab.nodes.choice import obstacles
from lab.nodes.facts import machine_facts
from lab.nodes.leftovers import remove_groups
from lab.nodes.network import token
from lab.tools import debian_packages
from tests.rootless.node import configuration
from tests.rootless.node.machine import PrivateMachine, RootlessNodeError, private_machine
from tests.rootless.node.node import (
    NODE_PACKAGES,
    PACKAGES,
    TOOLS,
    RootlessNode,
    RootlessSpec,
    delegate,
    places,
)

_FIRST_ID, _IDS = 100000, 65536
"""SUB_UID_MIN and SUB_UID_COUNT of login.defs(5)."""
_ACCOUNT = configuration.ROOMS / "rootless/scripts/account.sh"
_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
_SECONDS = 300.0
REQUEST_SECONDS = 60.0
"""For one answer of the API server, beside a node that starts."""
_POLL_SECONDS = 0.1


def prepare(machine: PrivateMachine, spec: RootlessSpec, groups: tuple[Path, ...]) -> int:
    """Make the account with all that it needs; gives its number."""
    for name, major, minor in spec.devices:
        machine.output("mknod", "-m", "0666", f"/dev/{name}", "c", str(major), str(minor))
    # Libraries of layers are found from now on.
    machine.output("ldconfig")
    machine.script(_ACCOUNT, "create", spec.account)
    ranges = [
        line.split(":") for line in machine.output("cat", "/etc/subuid", "/etc/subgid").split()
    ]
    if spec.account not in [owner for owner, _, _ in ranges]:
        first = str(max([_FIRST_ID, *(int(begin) + int(count) for _, begin, count in ranges)]))
        machine.script(_ACCOUNT, "ids", spec.account, first, str(_IDS))
    tried = machine.run("unshare", "--user", "true", account=spec.account)
    if tried.returncode:
        said = tried.stderr.strip()
        raise RootlessNodeError(f"the kernel gives accounts no user namespaces: {said}")
    owner = machine.output("id", "-u", spec.account).strip()
    machine.output("install", "-d", "-m", "0700", "-o", owner, "-g", owner, f"/run/user/{owner}")
    delegate(groups, int(owner))
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
    layer = configuration.layer(folder / "layer")
    configuration.write(spec, data, port, api_port)
    group = f"gpu-clusters-{token(folder)}-rootless"
    # Of a run that was killed together with what cleans up after it.
    remove_groups([group])
    cgroups.make(group)
    groups = tuple(root / group for root in cgroups.roots())
    bound = configuration.bound(programs, data, groups)
    with (
        private_machine(*packages, layer, *spec.layers, bound=bound, groups=groups) as machine,
        KubeApi(layout, api_port, REQUEST_SECONDS) as api,
    ):
        account_id = prepare(machine, spec, groups)
        configuration.give(data, account_id)
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
