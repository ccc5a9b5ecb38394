"""What the file system of a node is: the machine's to read, and the node's own wherever anything is written.

All of it happens in a mount namespace of the node and ends with its last process: the machine sees nothing,
whatever root of a container with a volume of kind hostPath writes.
"""

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.nodes.model import Devices

_DEVICES = {
    "/dev/null": (1, 3),
    "/dev/zero": (1, 5),
    "/dev/full": (1, 7),
    "/dev/random": (1, 8),
    "/dev/urandom": (1, 9),
    "/dev/kmsg": (1, 11),
    "/dev/tty": (5, 0),
    "/dev/fuse": (10, 229),
    "/dev/net/tun": (10, 200),
}
_KEPT_OF_DEV = ("pts", "shm", "mqueue")
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "fd/0",
    "stdout": "fd/1",
    "stderr": "fd/2",
    "ptmx": "pts/ptmx",
}
# What a kubelet wants of the kernel and would set for the whole machine: an oops would restart it.
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
    # What an agent of Cilium wants of it; the first of them could never be taken back.
    "kernel/unprivileged_bpf_disabled": "1",
    "kernel/timer_migration": "0",
}


_NOT_COPIED = ("/dev", "/proc", "/run", "/sys")
"""Of the folders in `/` those that are the kernel's, or that a node has of its own."""
_CONTAINERS = ("/run", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/rancher")
_MOUNT_POINT = 4


class Mounts:
    """Makes the mounts of one node; call it in the node's own mount namespace."""

    def __init__(self, folder: Path, read: Sequence[Path], written: Sequence[Path]) -> None:
        """What stays reachable on the machine, under its paths.

        Args:
            folder: the node's.
            read: folders that the node only reads.
            written: folders that it writes to as well.
        """
        self._folder = folder
        self._written = {folder, *written}
        # Opened now: once something lies over them, their paths lead nowhere.
        kept = sorted({*read, *self._written})
        self._kept = {path: os.open(path, os.O_PATH) for path in kept}
        self._points: set[str] = set()

    def make(self, devices: Devices, covers: Mapping[str, str]) -> None:
        """Everything, in its order, once; raises `OSError` or `CalledProcessError`.

        `covers` are files and folders put over others of the machine: source, by the path that it covers.
        """
        self._own_dev(devices)
        self._own_kernel_settings()
        for covered, source in covers.items():
            _mount("--bind", source, covered)
        self._over(Path("/run"), None)
        for place in sorted(Path("/").iterdir()):
            if place.is_dir() and not place.is_symlink() and str(place) not in _NOT_COPIED:
                self._copy(place)
        self._over(Path("/var/lib"), self._folder / "var-lib")
        self._over(Path("/var/log"), self._folder / "var-log")
        _mount("-o", "remount,bind,ro", "/")
        # What a kubelet mounts must reach the containers that ask for it.
        _mount("--make-rshared", "/")
        self._points = _mount_points()

    def own(self, folder: Path) -> None:
        """Have this folder without making it on the machine."""
        folder.mkdir(parents=True, exist_ok=True)

    def bind(self, source: Path, target: Path) -> None:
        """Have a folder of the machine under another path; it is made if it is not there."""
        # Who removed the folder from outside took the mount with it.
        if target.is_mount():
            return
        source.mkdir(parents=True, exist_ok=True)
        self.own(target)
        _mount("--bind", str(source), str(target))
        self._points.add(str(target))

    def add(self, target: Path, *arguments: str) -> None:
        """Mount something more at a folder, which is made if it is not there; done already is fine."""
        if str(target) in self._points:
            return
        target.mkdir(parents=True, exist_ok=True)
        _mount(*arguments, str(target))
        self._points.add(str(target))

    def clear(self) -> None:
        """Take away what containers and pods mounted; their processes are gone."""
        for point in sorted(_mount_points() - self._points, reverse=True):
            if any(Path(point).is_relative_to(folder) for folder in _CONTAINERS):
                subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)

    def _copy(self, place: Path) -> None:
        """The machine's folder, and what the node writes there kept in memory.

        Mounts of the machine below it are not seen. Where its file system cannot be copied, it is read only.
        """
        layers, like = Path("/run/copied") / place.name, place.stat()
        for name in ("upper", "work"):
            (layers / name).mkdir(parents=True)
        os.chown(layers / "upper", like.st_uid, like.st_gid)
        (layers / "upper").chmod(stat.S_IMODE(like.st_mode))
        options = f"lowerdir={place},upperdir={layers}/upper,workdir={layers}/work"
        try:
            self._lay(place, "-t", "overlay", "-o", options, "copied")
        except subprocess.CalledProcessError:
            self._lay(place, "--bind", str(place))
            _mount("-o", "remount,bind,ro", str(place))

    def _own_dev(self, devices: Devices) -> None:
        """A /dev of its own: GPUs that the machine has not, none of the disks that it has."""
        dev = self._folder / "dev"
        dev.mkdir(exist_ok=True)
        _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(dev))
        for path, (major, minor) in {**_DEVICES, **devices}.items():
            node = dev / Path(path).relative_to("/dev")
            node.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            node.chmod(0o666)
        for name, target in _LINKS.items():
            (dev / name).symlink_to(target)
        for name in _KEPT_OF_DEV:
            (dev / name).mkdir()
            if (Path("/dev") / name).is_dir():
                _mount("--rbind", f"/dev/{name}", str(dev / name))
        _mount("--move", str(dev), "/dev")

    def _own_kernel_settings(self) -> None:
        """Files that say what the kubelet wants to read: it finds nothing to set."""
        folder = self._folder / "kernel"
        for name, value in _KERNEL.items():
            setting = Path("/proc/sys") / name
            said = folder / name
            said.parent.mkdir(parents=True, exist_ok=True)
            said.write_text(f"{value}\n")
            if setting.exists():
                _mount("--bind", str(said), str(setting))

    def _over(self, place: Path, source: Path | None) -> None:
        """Put a folder, or an empty one in memory, over a folder of the machine."""
        if source is None:
            self._lay(place, "-t", "tmpfs", "-o", "mode=0755", "tmpfs")
        else:
            source.mkdir(parents=True, exist_ok=True)
            self._lay(place, "--bind", *_opened(os.open(source, os.O_PATH)))

    def _lay(self, place: Path, *arguments: str) -> None:
        """Mount something over a folder; what must stay reachable below it stays."""
        _mount(*arguments, str(place))
        for path, descriptor in self._kept.items():
            if path.is_relative_to(place) and path != place:
                path.mkdir(parents=True, exist_ok=True)
                _mount("--rbind", *_opened(descriptor), str(path))
                if path not in self._written:
                    _mount("-o", "remount,bind,ro", str(path))


def _mount_points() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {line.split()[_MOUNT_POINT].replace("\\040", " ") for line in lines}


def _opened(descriptor: int) -> tuple[str, str]:
    """What a descriptor was opened for, as a source for `mount`, which would take its path of today."""
    return "--no-canonicalize", f"/proc/{os.getpid()}/fd/{descriptor}"


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True)
