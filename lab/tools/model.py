"""What a program of the lab is: its version, and where it can come from."""

import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Write a line to standard error at once."""
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`8s`, `2m10s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class ToolError(RuntimeError):
    """A tool that could not be had; the message is one sentence for the user and says what to do."""


_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and a processor, in the words of Go and of release file names."""

    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}-{self.arch}"


def host_platform() -> Platform:
    machine = platform.machine().lower()
    return Platform(platform.system().lower(), _ARCHITECTURES.get(machine, machine))


@dataclass(frozen=True, slots=True)
class Release:
    """An official download.

    `url` and `checksums_url` may use {version}, {os} and {arch}. `sha256` pins the digest of the
    downloaded file per platform; for a platform without a pin the vendor's own checksum file is
    fetched over HTTPS. `member` is the program inside an archive, empty when the file is the
    program.
    """

    url: str
    checksums_url: str = ""
    member: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)
    systems: tuple[str, ...] = ("linux",)


@dataclass(frozen=True, slots=True)
class DebianFile:
    """A file of a Debian package, such as usr/sbin/runc of runc.

    It must do with the C library alone, unless `libraries` names the packages of what else it needs: then all
    of them are kept, unpacked, and `launcher` under `launchers/` is what is called.
    """

    package: str
    path: str
    libraries: tuple[str, ...] = ()
    launcher: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """One program.

    `module` is the folder, under `modules/` or absolute, whose go.mod pins its source, `package` the Go main
    package in there, `link_variables` what the linker has to set so that the program knows its own
    version. `version_arguments` print the version; `version_digits` says how many leading parts
    of a version found on PATH must equal ours. `file` is what a build or an archive calls it, `tags` leave
    parts out of a build. A tool with `debian` comes from there when there is no official download, instead
    of being built, and needs no `module`. One that is not `on_path` is not looked for there: another
    program may have its name.
    """

    name: str
    version: str
    version_arguments: tuple[str, ...]
    version_digits: int
    module: str = ""
    package: str = ""
    link_variables: Mapping[str, str] = field(default_factory=dict)
    release: Release | None = None
    file: str = ""
    tags: tuple[str, ...] = ()
    debian: DebianFile | None = None
    on_path: bool = True

    @property
    def file_name(self) -> str:
        return self.file or self.name

    def accepts(self, found: str) -> bool:
        """Whether a program of version `found` (like 1.36.1) can be used in place of ours."""
        wanted = self.version.split(".")
        given = found.split(".")
        digits = self.version_digits
        return len(given) >= digits and given[:digits] == wanted[:digits]

    @property
    def accepted(self) -> str:
        """The accepted versions, for messages: `1.36.x`."""
        return ".".join([*self.version.split(".")[: self.version_digits], "x"])


def parse_version(output: str) -> str | None:
    """The first version in the output of `--version` and its like, without a leading v."""
    found = re.search(r"\bv?(\d+\.\d+\.\d+)\b", output)
    return found.group(1) if found else None
