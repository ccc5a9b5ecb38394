"""The host of a rootless node: an account with subordinate ids and cgroups of its own, programs, devices.

What our scripts for hosts do is done by them; systemd's part (delegation, the account's runtime folder) is
done here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.rootless.node import delegation
from tests.rootless.node.configuration import PLUGINS
from tests.rootless.node.machine import PrivateMachine
from tests.rootless.node.model import DATA, LIBEXEC, RootlessNodeError, RootlessSpec

_ROOMS = Path(__file__).resolve().parents[3] / "gpuclusters"
_FIRST_ID, _IDS = 100000, 65536
"""SUB_UID_MIN and SUB_UID_COUNT of login.defs(5)."""
_HERE = Path(__file__).parent / "programs"
_PLACED = {
    _HERE / "launch.sh": f"{LIBEXEC}/launch.sh",
    _HERE / "node.sh": f"{LIBEXEC}/node.sh",
    _HERE / "systemctl.sh": f"{LIBEXEC}/systemctl",
    _HERE / "docker.sh": "/usr/local/bin/docker",
    # As Dockerfile.gpu puts them into the image of a node.
    _ROOMS / "usernetes/overlay/node-gpus.sh": "/usr/local/libexec/gpu-clusters/node-gpus",
    _ROOMS
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
    places = {path: _CALLED.get(name, f"/usr/local/bin/{name}") for name, path in programs.items()}
    return places | {data: DATA} | delegation.places(groups)


def prepare(machine: PrivateMachine, spec: RootlessSpec, groups: tuple[Path, ...]) -> int:
    """Make the account with all that it needs; gives its number.

    Raises:
        RootlessNodeError: the kernel gives accounts no user namespaces, or a script failed.
    """
    for name, major, minor in spec.devices:
        machine.output("mknod", "-m", "0666", f"/dev/{name}", "c", str(major), str(minor))
    # Libraries of layers are found from now on.
    machine.output("ldconfig")
    machine.script(_ROOMS / "rootless/scripts/account.sh", "create", spec.account)
    ranges = [
        line.split(":") for line in machine.output("cat", "/etc/subuid", "/etc/subgid").split()
    ]
    if spec.account not in [owner for owner, _, _ in ranges]:
        first = str(max([_FIRST_ID, *(int(begin) + int(count) for _, begin, count in ranges)]))
        machine.script(
            _ROOMS / "rootless/scripts/account.sh", "ids", spec.account, first, str(_IDS)
        )
    tried = machine.run("unshare", "--user", "true", account=spec.account)
    if tried.returncode:
        said = tried.stderr.strip()
        raise RootlessNodeError(f"the kernel gives accounts no user namespaces: {said}")
    owner = machine.output("id", "-u", spec.account).strip()
    machine.output("install", "-d", "-m", "0700", "-o", owner, "-g", owner, f"/run/user/{owner}")
    delegation.give(groups, int(owner))
    return int(owner)


def give(path: Path, owner: int) -> None:
    """Let the account own a folder with all that is in it."""
    for entry in (path, *path.rglob("*")):
        os.chown(entry, owner, owner, follow_symlinks=False)
