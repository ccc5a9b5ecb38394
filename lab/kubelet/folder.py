"""Where things lie in the folder of the stand-in.

<folder>/kubelet.json             what to play; written by whoever starts it
<folder>/ready.json               what it plays; written when all nodes are Ready
<folder>/process.json             pid and start time
<folder>/ports.json               port of its log endpoint, chosen once
<folder>/server.log
<folder>/<node>/device-plugins    as /var/lib/kubelet/device-plugins, checkpoint included
<folder>/<node>/pod-resources     as /var/lib/kubelet/pod-resources
<folder>/<node>/pods/<uid>        volumes of a pod's processes
<folder>/<node>/logs/<uid>        logs by container and run
<folder>/<node>/host              other folders of the host that pods mount
<folder>/<node>/installations.json   of a real node: pods that have installed something on its host
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.kubelet.model import KubeletError
from lab.server_process import ServerFolder

_LONGEST_SOCKET = 107
_PLUGIN_SOCKET = 32
"""Room for the name of a plugin's own socket."""
HOST_FOLDER = "/var/lib/kubelet"


@dataclass(frozen=True, slots=True)
class NodeFolder:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def device_plugins(self) -> Path:
        """Sockets of the kubelet and of plugins."""
        return self.path / "device-plugins"

    @property
    def registration(self) -> Path:
        """Where plugins register."""
        return self.device_plugins / "kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        """Which devices were given to whom."""
        return self.device_plugins / "kubelet_internal_checkpoint"

    @property
    def pod_resources(self) -> Path:
        """The socket that tells it."""
        return self.path / "pod-resources" / "kubelet.sock"

    def pod(self, uid: str) -> Path:
        """What a pod's processes are given."""
        return self.path / "pods" / uid

    def logs(self, uid: str) -> Path:
        """A pod's logs."""
        return self.path / "logs" / uid

    @property
    def installations(self) -> Path:
        """Pods that have installed something on the host of a real node."""
        return self.path / "installations.json"

    def host(self, path: str) -> Path:
        """A folder of the host, as a pod mounts it."""
        if path == HOST_FOLDER or path.startswith(f"{HOST_FOLDER}/"):
            return self.path / path.removeprefix(HOST_FOLDER).lstrip("/")
        return self.path / "host" / path.lstrip("/")


@dataclass(frozen=True, slots=True)
class KubeletFolder(ServerFolder):
    @property
    def specs(self) -> Path:
        """What to play."""
        return self.path / "kubelet.json"

    @property
    def ports(self) -> Path:
        """The port of its log endpoint."""
        return self.path / "ports.json"

    def node(self, name: str) -> NodeFolder:
        return NodeFolder(self.path / name)

    @property
    def link(self) -> Path:
        """A short name for the folder, for sockets whose path would be too long."""
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"gpu-clusters-kubelet-{digest}"

    @property
    def reachable(self) -> KubeletFolder:
        """The folder by its short name where it got one, because its own is too long for sockets."""
        return KubeletFolder(self.link) if self.has_link else self

    @property
    def has_link(self) -> bool:
        """Whether the short name is there and this user's: anybody can make one in a shared folder."""
        try:
            own = self.link.lstat().st_uid == os.getuid()
            return own and self.link.readlink() == self.path
        except OSError:
            return False

    def within_reach(self, nodes: list[str]) -> KubeletFolder:
        """The folder under a name by which sockets can be reached: itself, or a link to it.

        Raises:
            KubeletError: the link's place is taken by something else.
        """
        longest = max((len(name) for name in nodes), default=0)
        needed = len(os.fsencode(self.path)) + len("//device-plugins/") + longest + _PLUGIN_SOCKET
        if needed <= _LONGEST_SOCKET:
            return self
        if self.has_link:
            return KubeletFolder(self.link)
        try:
            self.link.symlink_to(self.path)
        except OSError as error:
            raise KubeletError(
                f"sockets below {self.path} would have too long a path, and {self.link} cannot be "
                f"made a short name for it ({error.strerror}); choose a folder with a shorter path"
            ) from error
        return KubeletFolder(self.link)
