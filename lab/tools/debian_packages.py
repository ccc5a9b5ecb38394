"""Programs and data of several Debian packages that need each other, unpacked into one folder of the cache.

Nothing is installed on the machine.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.tools.cache import cache_root
from lab.tools.model import Tool, ToolError

_SECONDS = 120
_LAUNCHERS = Path(__file__).parent / "launchers"
TREE = "root"
"""Folder beside a launcher with all files of the packages."""


class FetchError(Exception):
    """Packages cannot be downloaded; the reason."""


def unpack(tool: Tool, folder: Path) -> Path:
    """The program of `tool`, unpacked into `folder`; one that needs libraries is its launcher, beside `TREE`.

    Raises `ToolError` where there is no apt, or the package cannot be had.
    """
    wanted = tool.debian
    if wanted is None:
        raise ToolError(f"{tool.name} is in no Debian package that the lab knows")
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ToolError(
            f"{tool.name} is not on PATH, cannot be downloaded, and there is no apt-get and dpkg-deb "
            f"to take it from Debian's package {wanted.package}; install {tool.name}"
        )
    tree = folder / TREE if wanted.launcher else folder
    try:
        fetch((wanted.package, *wanted.libraries), folder, tree)
    except FetchError as error:
        raise ToolError(_advice(tool, str(error))) from None
    program = tree / wanted.path
    if not program.is_file():
        raise ToolError(_advice(tool, f"there is no /{wanted.path} in it"))
    if not wanted.launcher:
        return program
    return Path(shutil.copy(_LAUNCHERS / wanted.launcher, folder / tool.name))


def fetch(packages: Sequence[str], folder: Path, tree: Path) -> None:
    """Download packages into `folder` and unpack them into `tree`; apt-get and dpkg-deb are there.

    Raises:
        FetchError: they cannot be downloaded, with the reason.
    """
    _asked(folder, "download", *packages)
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)


def _needed(packages: Sequence[str], folder: Path) -> Sequence[str]:
    """All that would be installed where nothing is."""
    nothing = ("-o", "Dir::State::status=/dev/null", "--simulate", "--no-install-recommends")
    words = map(str.split, _asked(folder, *nothing, "install", *packages).splitlines())
    return [word[1] for word in words if word[:1] == ["Inst"]]


def _asked(folder: Path, *arguments: str) -> str:
    """What apt-get prints; asked again with new lists of packages if it fails."""
    try:
        answer = _apt_get(folder, *arguments)
        if answer.returncode:
            # A machine just installed has no lists of packages, or old ones.
            _apt_get(folder, "update")
            answer = _apt_get(folder, *arguments)
    except subprocess.TimeoutExpired:
        raise FetchError(f"apt-get did not end within {_SECONDS} s") from None
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["it gave no reason"]
        raise FetchError(f"apt-get failed: {lines[0]}")
    return answer.stdout


def _apt_get(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # As root, apt would fetch as the user _apt, who may not write into the cache.
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _advice(tool: Tool, reason: str) -> str:
    package = tool.debian.package if tool.debian else tool.name
    return f"{tool.name} cannot be taken from Debian's package {package}: {reason}; install it"


def unpacked(name: str, packages: Sequence[str], *, whole_but: str = "") -> Path:
    """The folder `name` of the cache with the files of these packages.

    Args:
        name: of the folder.
        packages: what is wanted.
        whole_but: not empty: with all that they need on a machine that has nothing, but for this package.

    Raises:
        ToolError: they cannot be had; one sentence that says why.
    """
    folder = cache_root() / "debian" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            _unpack(folder, packages, whole_but)
    return folder


def _unpack(folder: Path, packages: Sequence[str], whole_but: str) -> None:
    wanted = ", ".join(packages)
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise ToolError(f"needs apt-get and dpkg-deb to fetch {wanted}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        if whole_but:
            packages = [one for one in _needed(packages, folder) if one != whole_but]
        fetch(packages, folder, folder)
    except FetchError as error:
        raise ToolError(f"{wanted} cannot be downloaded here: {error}") from None
    for archive in folder.glob("*.deb"):
        archive.unlink()
    (folder / ".complete").touch()
