"""A rootless node from its start to the last trace of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from lab import tools
from lab.control_plane import ControlPlaneError, ports
from lab.control_plane.commands import API_SERVER, KUBELET
from lab.control_plane.kube import KubeApi, UnavailableError
from lab.control_plane.layout import Layout
from lab.nodes.choice import obstacles
from lab.nodes.facts import machine_facts
from lab.nodes.leftovers import remove_groups
from lab.nodes.network import token
from lab.tools import debian_packages
from tests.rootless.node import delegation, host, joining
from tests.rootless.node.machine import private_machine
from tests.rootless.node.model import (
    NODE_PACKAGES,
    PACKAGES,
    TOOLS,
    RootlessNodeError,
    RootlessSpec,
)
from tests.rootless.node.node import RootlessNode

Report = Callable[[str], None]


@contextlib.contextmanager
def running(
    folder: Path, spec: RootlessSpec, report: Report = lambda _: None
) -> Iterator[RootlessNode]:
    """A node that is Ready, until the end of the block; then nothing of it is left but the folder.

    Args:
        folder: an empty one, for what the node keeps and its logs.
        spec: what it is.
        report: receives a line for each step that takes time.

    Raises:
        RootlessNodeError: it did not come up, or this machine cannot have one; the message says why.
        lab.tools.ToolError: a program cannot be had.
    """
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
    layer = host.layer(folder / "layer")
    joining.write(spec, data, port, api_port)
    group = f"gpu-clusters-{token(folder)}-rootless"
    # Of a run that was killed together with what cleans up after it.
    remove_groups([group])
    delegation.make(group)
    groups = delegation.groups(group)
    bound = host.bound(programs, data, groups)
    with (
        private_machine(*packages, layer, *spec.layers, bound=bound, groups=groups) as machine,
        KubeApi(layout, api_port, joining.REQUEST_SECONDS) as api,
    ):
        account_id = host.prepare(machine, spec, groups)
        host.give(data, account_id)
        places = tuple(delegation.places(groups).values())
        node = RootlessNode(spec, machine, account_id, port, places, groups, folder)
        try:
            report(f"starting the rootless node {spec.name}")
            node.start()
            for archive in spec.images:
                node.load(archive)
            joining.join(api, spec, data / "etc/cni/net.d", data / "var-log/kubelet.log")
            yield node
        finally:
            node.stop()
            with contextlib.suppress(ControlPlaneError, UnavailableError):
                api.delete(f"/api/v1/nodes/{spec.name}")
