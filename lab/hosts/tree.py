"""Builds a host's file system, and says what of the machine is mounted into it.

Ordinary programs (shell, coreutils, awk, …) are the machine's own, mounted read-only, so that real
scripts run unchanged. All that a script may change is the host's: /etc, /var, /run, /sys, /dev,
/home, /root, /tmp, /usr/local, /usr/share.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.hosts import client
from lab.hosts.folder import HostFolder
from lab.hosts.hardware import sysfs
from lab.hosts.hardware.board import Board
from lab.hosts.machine import FILES
from lab.hosts.model import USER

OPERATOR_ID = 1000
LIB = "usr/local/lib/lab-host"
SOCKET = f"{LIB}/socket"

_OWN_USR = frozenset({"local", "share", "src", "include", "games"})
_OWN_DIRECTORIES = (
    "etc/apt/apt.conf.d",
    "etc/apt/sources.list.d",
    "etc/containerd/conf.d",
    "etc/default",
    "etc/kubernetes/manifests",
    "etc/modprobe.d",
    "etc/modules-load.d",
    "etc/sysctl.d",
    "etc/systemd/system",
    "home",
    "mnt",
    "opt",
    "proc",
    "root",
    "run/cdi",
    "srv",
    "usr/local/sbin",
    "usr/share/nvidia/nvswitch",
    "var/cache",
    "var/lib/dpkg",
    "var/lib/kubelet",
    "var/lib/nvidia-fabricmanager",
    "var/log",
)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_MACHINE_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
PERL = "/usr/bin/perl"
_SENDMSG = {"x86_64": 46, "aarch64": 211}
"""The number of the system call, on machines whose structures `client.pl` knows."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """What a view mounts into the host's root: pairs of a path on the machine and one on the host.

    `proc` covers single files of the fresh /proc, which the kernel would otherwise answer for the
    machine.
    """

    read_only: tuple[tuple[str, str], ...]
    devices: tuple[tuple[str, str], ...]
    proc: tuple[tuple[str, str], ...]


def build(host: HostFolder, board: Board, identity: Mapping[str, str], *, many_users: bool) -> None:
    """Write the host's own files. Done once, in a draft, so that they are there whole or not at all.

    `identity`: the host's boot_id and public host_key.
    `many_users`: views have root and the operator as two users (not so in a user namespace), and
    device nodes can be made.
    """
    if host.root.exists():
        # Hosts of earlier versions have neither.
        _lock_folder(host.root)
        _write_proc(host.root, board)
        return
    draft = host.path / "root.draft"
    if draft.exists():
        shutil.rmtree(draft)
    for name in _OWN_DIRECTORIES:
        (draft / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (draft / name).mkdir(parents=True)
        (draft / name).chmod(0o1777)
    _lock_folder(draft)
    (draft / "var/run").symlink_to("../run")
    home = draft / "home" / USER
    home.mkdir(mode=0o750)
    if many_users:
        os.chown(home, OPERATOR_ID, OPERATOR_ID)
    for path, content in _files(host.name, board, identity).items():
        (draft / path).parent.mkdir(parents=True, exist_ok=True)
        (draft / path).write_text(content)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (draft / "dev").mkdir(exist_ok=True)
        (draft / "dev" / name).symlink_to(f"/proc/self/fd{target}")
    (draft / "dev/shm").mkdir(mode=0o1777)
    _write_proc(draft, board)
    sysfs.write(draft, board, device_nodes=many_users)
    draft.rename(host.root)


def _lock_folder(root: Path) -> None:
    """Where programs of any user keep their locks (`flock`)."""
    folder = root / "run/lock"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o1777)


def _write_proc(root: Path, board: Board) -> None:
    """What /proc says of the machine, where it does not say so yet."""
    for name, content in sysfs.proc_files(board).items():
        path = root / LIB / "proc" / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


def _files(name: str, board: Board, identity: Mapping[str, str]) -> dict[str, str]:
    """What every machine has (`files/root`), and what is its own."""
    root = FILES / "root"
    common = {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}
    boot_id = identity["boot_id"]
    return common | {
        "etc/hostname": f"{name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {name}\n",
        "etc/machine-id": boot_id.replace("-", "") + "\n",
        "etc/ssh/ssh_host_ed25519_key.pub": f"{identity['host_key']} root@{name}\n",
        f"{LIB}/proc/boot_id": f"{boot_id}\n",
        f"{LIB}/README": f"This machine is simulated ({board.platform}).\n",
    }


def mounts(host: HostFolder, stand_ins: frozenset[str]) -> Mounts:
    """Make the mount points below the host's root and say what belongs on each.

    A stand-in covers the machine's own program of that name, so that a script which calls
    `/usr/bin/systemctl` by its path cannot reach the machine's.
    """
    root = host.root
    read_only = [(str(path), f"/{path.name}") for path in _top_level(root)]
    read_only += [(str(path), f"/usr/{path.name}") for path in _usr(root)]
    read_only += [(name, name) for name in _MACHINE_FILES if Path(name).exists()]
    for name in ("perl", "perl5"):
        source = Path("/usr/share") / name
        if source.is_dir():
            (root / "usr/share" / name).mkdir(exist_ok=True)
            read_only.append((str(source), str(source)))
    for path_on_machine, _ in read_only:
        _mount_point(root, Path(path_on_machine))
    python_home = f"{LIB}/python"
    (root / python_home).mkdir(parents=True, exist_ok=True)
    read_only.append((sys.base_prefix, f"/{python_home}"))
    read_only += _install_stand_ins(root, stand_ins)
    devices = []
    for name in _DEVICES:
        (root / "dev" / name).touch()
        devices.append((f"/dev/{name}", f"/dev/{name}"))
    fake = str(root / LIB / "proc")
    return Mounts(
        read_only=tuple(read_only),
        devices=tuple(devices),
        proc=(
            (f"{fake}/boot_id", "/proc/sys/kernel/random/boot_id"),
            (f"{fake}/cmdline", "/proc/cmdline"),
            (f"{fake}/modules", "/proc/modules"),
            (f"{fake}/cpuinfo", "/proc/cpuinfo"),
            (f"{fake}/meminfo", "/proc/meminfo"),
            (f"{fake}/osrelease", "/proc/sys/kernel/osrelease"),
            (f"{fake}/driver", "/proc/driver"),
        ),
    )


def _top_level(root: Path) -> list[Path]:
    """/bin, /sbin, /lib…: the same links as the machine has, or mounts where they are folders."""
    found: list[Path] = []
    for path in sorted(Path("/").glob("*bin")) + sorted(Path("/").glob("lib*")):
        if path.is_symlink():
            link = root / path.name
            if not link.is_symlink():
                link.symlink_to(path.readlink())
        elif path.is_dir():
            found.append(path)
    return found


def _usr(root: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(Path("/usr").iterdir()):
        own = root / "usr" / path.name
        if path.name in _OWN_USR:
            continue
        if path.is_symlink():
            if not own.is_symlink():
                own.symlink_to(path.readlink())
        elif path.is_dir():
            found.append(path)
    return found


def _mount_point(root: Path, source: Path) -> None:
    target = root / source.relative_to("/")
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


def _install_stand_ins(root: Path, names: frozenset[str]) -> list[tuple[str, str]]:
    """Write the stand-ins' script under each name; returns what covers the machine's programs."""
    generic = install_client(root)
    covers: list[tuple[str, str]] = []
    for name in sorted(names):
        link = root / "usr/local/bin" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(f"../lib/lab-host/{generic.name}")
        for folder in ("bin", "sbin"):
            covered = Path("/usr") / folder / name
            if covered.exists() and not covered.is_symlink():
                covers.append((str(generic), str(covered)))
    return covers


def install_client(root: Path) -> Path:
    """Install what asks the server, whatever its name: the file of all stand-ins.

    Perl starts in a fifth of the time; Python is there everywhere.
    """
    number = _SENDMSG.get(os.uname().machine)
    asks = Path(client.__file__)
    if number is not None and Path(PERL).exists():
        text = asks.with_suffix(".pl").read_text().replace("SENDMSG", str(number))
        script = f"#!{PERL}\n{text}"
    else:
        shutil.copyfile(asks, root / LIB / asks.name)
        python = f"/{LIB}/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        line = f'LD_LIBRARY_PATH=/{LIB}/python/lib exec {python} -I -S /{LIB}/{asks.name} "$0" "$@"'
        script = f"#!/bin/sh\n# Stand-in: this host is simulated.\n{line}\n"
    generic = root / LIB / "stand-in"
    generic.write_text(script)
    generic.chmod(0o755)
    return generic
