"""Where things lie in the folder of the stand-in."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.files import At
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

    device_plugins = At("device-plugins")
    """As /var/lib/kubelet/device-plugins: sockets of the kubelet and of plugins."""
    registration = At("device-plugins/kubelet.sock")
    """Where plugins register."""
    checkpoint = At("device-plugins/kubelet_internal_checkpoint")
    """Which devices were given to whom."""
    pod_resources = At("pod-resources/kubelet.sock")
    """The socket that tells it."""

    def pod(self, uid: str) -> Path:
        """What a pod's processes are given."""
        return self.path / "pods" / uid

    def logs(self, uid: str) -> Path:
        """A pod's logs."""
        return self.path / "logs" / uid

    installations = At("installations.json")
    """Pods that have installed something on the host of a real node."""

    def host(self, path: str) -> Path:
        """A folder of the host, as a pod mounts it."""
        if path == HOST_FOLDER or path.startswith(f"{HOST_FOLDER}/"):
            return self.path / path.removeprefix(HOST_FOLDER).lstrip("/")
        return self.path / "host" / path.lstrip("/")


@dataclass(frozen=True, slots=True)
class KubeletFolder(ServerFolder):
    specs = At("kubelet.json")
    """What to play."""
    ports = At("ports.json")
    """The port of its log endpoint."""

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
