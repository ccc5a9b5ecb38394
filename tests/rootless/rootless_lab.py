"""A rootless node for tests, in the cluster of the run, with GPUs of a stand-in of the driver."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.proof.model import WHOLE
from gpuclusters.usernetes import device_plugin
from gpuclusters.usernetes.model import LiveNode
from lab import images, tools
from lab.control_plane import NodeSpec, Taint
from lab.images import archive
from lab.images.archive import Image, Settings
from lab.images.interpreter import LIBRARIES, libraries
from lab.images.small import PATH, SYSTEM, tools_of
from lab.pods.names import VISIBLE
from tests.fixtures import nvidia_plugin
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import TAINT, RealLab
from tests.rootless import gpu_layer
from tests.rootless.node.machine import RootlessNodeError, needed
from tests.rootless.node.node import ACCOUNT, RootlessNode, RootlessSpec, running

WITH_LIBC = "lab.local/with-libc:1"
LOOK = (
    "{ nvidia-smi -L; ls -1 /dev/nvidia*; echo visible $NVIDIA_VISIBLE_DEVICES; } >/tmp/seen; "
    "cat /tmp/seen; sleep 100000"
)
_NODE_SCRIPTS = Path(__file__).resolve().parents[2] / "gpuclusters/usernetes/scripts"


@dataclass(frozen=True, slots=True)
class Seen:
    """What of GPUs a container finds in itself."""

    gpus: tuple[str, ...]
    """UUIDs, as its nvidia-smi says them."""
    devices: frozenset[str]
    visible: str
    """What the variable says inside, by which it was told what to see."""


@dataclass(frozen=True, slots=True)
class RootlessLab:
    """A rootless node, the cluster that it is in, and what our program's scripts say of it."""

    node: RootlessNode
    cluster: RealLab

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.spec.name

    def script(self, name: str, *arguments: str) -> str:
        """What a script for nodes prints, sent as our program sends it: with `environment.sh` before it."""
        text = "".join((_NODE_SCRIPTS / file).read_text() for file in ("environment.sh", name))
        return self.node.host.output("sh", "-s", "--", *arguments, account=ACCOUNT, stdin=text)

    def inspected(self) -> LiveNode:
        """What our program knows of the node."""
        return LiveNode.parse(self.script("inspect.sh"))

    def look(self, namespace: str, name: str, *, gpus: int = 0, visible: str = "") -> None:
        """Create a pod that says which GPUs it sees: of those it asks for, or of those it names itself."""
        named = [{"name": VISIBLE, "value": visible}] if visible else []
        limits = {"limits": {WHOLE: gpus}} if gpus else {}
        container = {"image": WITH_LIBC, "env": named, "resources": limits}
        self.cluster.pod(namespace, name, LOOK, container=container)

    def seen(self, namespace: str, name: str) -> Seen:
        """What such a pod sees, once it has looked."""
        self.cluster.ready(namespace, name)
        said: list[str] = []

        def looked() -> bool:
            answer = self.cluster.run_in(namespace, name, "cat", "/tmp/seen")
            said[:] = answer.stdout.splitlines()
            return bool(said) and said[-1].startswith("visible")

        eventually(looked, f"pod {name} has looked for GPUs")
        return Seen(
            tuple(uuid for line in said for uuid in re.findall(r"UUID: (\S+)\)", line)),
            frozenset(line for line in said if line.startswith("/dev/")),
            said[-1].removeprefix("visible").strip(),
        )

    @contextlib.contextmanager
    def plugin(self) -> Iterator[None]:
        """NVIDIA's device plugin runs by our manifest and offers what it finds until the end of the block."""
        daemons = device_plugin.device_plugin(nvidia_plugin.IMAGE)
        name = daemons["metadata"]["name"] = f"nvidia-device-plugin-{self.cluster.token}"
        labels = {"plugin-of": self.cluster.token}
        daemons["spec"]["selector"] = {"matchLabels": labels}
        template = daemons["spec"]["template"]
        template["metadata"]["labels"] = labels
        template["spec"]["nodeSelector"] = {TAINT: self.cluster.token}
        template["spec"]["tolerations"].append({"key": TAINT, "operator": "Exists"})
        self.cluster.kubectl("create", "-f", "-", given=json.dumps(daemons))
        try:
            yield
        finally:
            where = f"--namespace={device_plugin.NAMESPACE}"
            self.cluster.kubectl("delete", "daemonset", name, where, "--cascade=foreground")

    def features(self, namespace: str, name: str) -> dict[str, str]:
        """The labels that NVIDIA's GPU feature discovery has for the node, from a pod that sees all GPUs."""
        find = (
            "gpu-feature-discovery --oneshot --no-timestamp --use-node-feature-api=false "
            "--output-file=/tmp/labels && cat /tmp/labels && echo found; sleep 100000"
        )
        self.cluster.pod(namespace, name, find, container={"image": nvidia_plugin.IMAGE})
        self.cluster.ready(namespace, name)
        eventually(
            lambda: self.cluster.logs(namespace, name).endswith("found\n"), "labels are found"
        )
        lines = self.cluster.logs(namespace, name).splitlines()
        return dict(line.split("=", 1) for line in lines if line.startswith("nvidia.com/"))

    def replace_gpus(self, *uuids: str) -> None:
        """Another machine's GPUs are in this one."""
        name = gpu_layer.LIBRARIES[0]
        made = self.node.folder / "library.so"
        gpu_layer.library(name, made, uuids)
        place = f"/{gpu_layer.LIBRARY_FOLDER}/{name}.so.{gpu_layer.DRIVER}"
        self.node.host.write(place, made.read_bytes())


@contextlib.contextmanager
def rootless_lab(cluster: KubeCluster, uuids: Sequence[str]) -> Iterator[RootlessLab]:
    """A node that is Ready, gone afterwards; skips, with the reason, where something cannot be had."""
    needed()
    token = secrets.token_hex(4)
    # Below the folder of the run: it goes with that, whatever happens to this process.
    folder = Path(tempfile.mkdtemp(prefix="rootless-", dir=cluster.folder))
    layer = folder / "gpus"
    gpu_layer.lay(layer, version_set("current").container_toolkit, uuids)
    kubectl = tools.ensure(["kubectl", "busybox"])
    archives = (
        *images.basic(print),
        _with_libc(kubectl["busybox"], layer, folder).archive,
        nvidia_plugin.image(kubectl["busybox"], folder).archive,
    )
    name = f"rootless-{token}"
    spec = RootlessSpec(
        cluster.folder,
        NodeSpec(name, {TAINT: token}, taints=(Taint(TAINT, "NoSchedule", token),)),
        archives,
        (layer,),
        gpu_layer.NODES,
    )
    asked = RealLab(folder, cluster, (name,), token)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        try:
            node = stack.enter_context(running(folder, spec))
        except (RootlessNodeError, tools.ToolError) as error:
            if "namespaces" in str(error):
                pytest.skip(f"no rootless node: {error}")
            raise
        yield RootlessLab(node, asked)


def _with_libc(busybox: Path, layer: Path, folder: Path) -> Image:
    """Busybox and the C library of this machine, which programs of the driver are linked with."""
    entries = [*tools_of(busybox), *SYSTEM, *libraries([layer / "usr/bin/nvidia-smi"])]
    settings = Settings(
        command=("/bin/sh",), environment={"PATH": PATH, "LD_LIBRARY_PATH": f"/{LIBRARIES}"}
    )
    return archive.build(WITH_LIBC, [entries], settings, folder)
