"""What this machine is, for the choice between real and simulated nodes."""

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil

from lab.nodes import cgroups
from lab.nodes.choice import INOTIFY_NEEDED, MachineFacts
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, host_platform

COMMANDS = ("ip", "mount", "nsenter", "unshare")
_OTHERS = frozenset(
    (
        *("kubelet", "containerd", "dockerd", "cri-dockerd", "crio", "cri-o"),
        # Distributions that have the kubelet in a program of theirs: k3s calls itself by its part, microk8s
        # has one for all of Kubernetes.
        *("k3s", "k3s-server", "k3s-agent", "rke2", "rke2-server", "rke2-agent", "k0s", "kubelite"),
    )
)
"""Programs by the names that their processes have. Not the shims of containers, of which there are many."""
_SECONDS = 60


def machine_facts() -> MachineFacts:
    """Look at this machine; nothing on it is changed."""
    system = platform.system().lower()
    if system != "linux":
        return MachineFacts(system, root=False)
    root = os.geteuid() == 0
    missing = tuple(name for name in COMMANDS if shutil.which(name) is None)
    if not _has_iptables():
        missing += ("iptables",)
    return MachineFacts(
        system=system,
        root=root,
        commands_missing=missing,
        controllers_missing=cgroups.missing(),
        cgroups_writable=not root or cgroups.writable(),
        namespaces=not root or "unshare" in missing or _namespaces(),
        overlay=_overlay(),
        inotify=_inotify(),
        others=_others(),
    )


def _has_iptables() -> bool:
    """Whether kube-proxy can have it: from PATH, the cache, or its Debian package."""
    iptables = TOOLS["iptables"]
    return (
        shutil.which(iptables.name) is not None
        or ToolCache().find(iptables, host_platform()) is not None
        or all(shutil.which(name) is not None for name in ("apt-get", "dpkg-deb"))
    )


def _namespaces() -> bool:
    command = [
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--uts",
        "--ipc",
        "--fork",
        "--mount-proc",
        "true",
    ]
    try:
        return (
            subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _overlay() -> bool:
    try:
        return "\toverlay\n" in Path("/proc/filesystems").read_text()
    except OSError:
        return False


def _inotify() -> int:
    """How many more instances there may be, up to those that are needed: taken, and given back."""
    libc = ctypes.CDLL(None, use_errno=True)
    taken: list[int] = []
    try:
        while len(taken) < INOTIFY_NEEDED:
            instance = libc.inotify_init1(os.O_CLOEXEC)
            if instance < 0:
                break
            taken.append(instance)
        return len(taken)
    finally:
        for instance in taken:
            os.close(instance)


def _others() -> tuple[str, ...]:
    """Kubelets and runtimes in the machine's own process namespace: those of labs are in theirs."""
    own = _namespace(os.getpid())
    found = []
    for process in psutil.process_iter():
        try:
            name = process.name()
            if name in _OTHERS and _namespace(process.pid) == own:
                found.append(f"{name} (pid {process.pid})")
        except (psutil.Error, OSError):
            # Gone meanwhile.
            continue
    return tuple(found)


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
