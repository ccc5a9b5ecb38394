"""The host of a rootless node: an account with subordinate ids and cgroups of its own, programs, devices.

What our scripts for hosts do is done by them; systemd's part (delegation, the account's runtime folder) is
done here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gpuclusters.rootless import files
from gpuclusters.rootless.decide import LEAST_IDS, next_range
from gpuclusters.rootless.model import LiveRootless
from lab.rootless_node import delegation
from lab.rootless_node.configuration import PLUGINS
from lab.rootless_node.machine import PrivateMachine
from lab.rootless_node.model import DATA, LIBEXEC, RootlessNodeError, RootlessSpec

SCRIPTS = files.SCRIPTS.parent
_HERE = Path(__file__).parent / "programs"
_PLACED = {
    _HERE / "launch.sh": f"{LIBEXEC}/launch.sh",
    _HERE / "node.sh": f"{LIBEXEC}/node.sh",
    _HERE / "systemctl.sh": f"{LIBEXEC}/systemctl",
    _HERE / "docker.sh": "/usr/local/bin/docker",
    # As Dockerfile.gpu puts them into the image of a node.
    SCRIPTS / "overlay/node-gpus.sh": "/usr/local/libexec/gpu-clusters/node-gpus",
    SCRIPTS / "overlay/usernetes-gpus.service": "/usr/lib/systemd/system/usernetes-gpus.service",
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


def prepare(machine: PrivateMachine, spec: RootlessSpec, groups: tuple[Path, ...]) -> LiveRootless:
    """Make the account with all that it needs; gives what our inspection says of the host then.

    Raises:
        RootlessNodeError: the kernel gives accounts no user namespaces, or a script failed.
    """
    for name, major, minor in spec.devices:
        machine.output("mknod", "-m", "0666", f"/dev/{name}", "c", str(major), str(minor))
    # Libraries of layers are found from now on.
    machine.output("ldconfig")
    machine.script(SCRIPTS / "host/account.sh", "create", spec.account)
    live = _seen(machine, spec.account)
    if not live.subuid or not live.subgid:
        first = str(next_range(live))
        machine.script(SCRIPTS / "host/account.sh", "ids", spec.account, first, str(LEAST_IDS))
        live = _seen(machine, spec.account)
    tried = machine.run("unshare", "--user", "true", account=spec.account)
    if tried.returncode or live.uid is None:
        said = tried.stderr.strip()
        raise RootlessNodeError(f"the kernel gives accounts no user namespaces: {said}")
    owner = str(live.uid)
    machine.output("install", "-d", "-m", "0700", "-o", owner, "-g", owner, f"/run/user/{owner}")
    delegation.give(groups, live.uid)
    return live


def give(path: Path, owner: int) -> None:
    """Let the account own a folder with all that is in it."""
    for entry in (path, *path.rglob("*")):
        os.chown(entry, owner, owner, follow_symlinks=False)


def _seen(machine: PrivateMachine, account: str) -> LiveRootless:
    return LiveRootless.parse(machine.script(SCRIPTS / "host/inspect.sh", account, "tun"))
