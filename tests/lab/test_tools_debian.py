"""Tools that come out of a Debian package where nothing else has them; scripts stand for apt and dpkg."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from lab.tools import debian_packages
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, Platform
from lab.tools.model import ToolError
from lab.tools.resolver import Resolver

PACKAGE = """\
mkdir -p "$3/usr/sbin"
printf '#!/bin/sh\\necho runc version 1.1.5+ds1\\n' > "$3/usr/sbin/runc"
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with apt-get and dpkg-deb, of which each is a script that a test can replace."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    say(
        folder / "apt-get",
        f'echo "$*" >> {tmp_path}/asked; case "$*" in *download*) : > runc.deb;; esac',
    )
    say(folder / "dpkg-deb", PACKAGE)
    return folder


def say(program: Path, script: str) -> None:
    program.write_text("#!/bin/sh\n" + textwrap.dedent(script) + "\n")
    program.chmod(0o755)


def ensured(folder: Path, name: str = "runc", said: list[str] | None = None, **how: bool) -> Path:
    resolver = Resolver(
        tools={name: TOOLS[name]},
        cache=ToolCache(folder / "tools"),
        platform=Platform("linux", "amd64"),
        download=lambda *_: None,
        **{"offline": False, **how},
    )
    return resolver.ensure([name], ([] if said is None else said).append)[name]


def test_what_cannot_be_downloaded_comes_out_of_its_package_once(
    tmp_path: Path, distribution: Path
) -> None:
    said: list[str] = []
    program = ensured(tmp_path, said=said)
    assert "1.1.5" in program.read_text()
    assert "unpacked runc from its Debian package" in said
    assert (program.parent / "origin").read_text() == "Debian package\n"
    say(distribution / "apt-get", "exit 100")
    assert ensured(tmp_path) == program


def test_a_program_with_libraries_is_kept_with_all_of_them_behind_its_launcher(
    tmp_path: Path, distribution: Path
) -> None:
    say(
        distribution / "apt-get",
        f'echo "$*" >> {tmp_path}/asked; : > libmnl0.deb; : > iptables.deb',
    )
    say(
        distribution / "dpkg-deb",
        r"""
        mkdir -p "$3/usr/sbin" "$3/usr/lib/any-linux-gnu"
        printf '#!/bin/sh\necho "$1 v1.8.9 with $LD_LIBRARY_PATH"\n' > "$3/usr/sbin/xtables-nft-multi"
        chmod +x "$3/usr/sbin/xtables-nft-multi"
        """,
    )
    program = ensured(tmp_path, "iptables")
    assert "download iptables libxtables12 libmnl0 libnftnl11" in (tmp_path / "asked").read_text()
    # Called by a link, as a node does: the name says which of them, the libraries are found.
    (tmp_path / "iptables-save").symlink_to(program)
    said = subprocess.run([tmp_path / "iptables-save"], capture_output=True, text=True, check=True)
    libraries = program.parent / "root/usr/lib/any-linux-gnu"
    assert said.stdout == f"iptables-save v1.8.9 with {libraries}\n"


def test_lists_of_packages_are_fetched_when_there_are_none(
    tmp_path: Path, distribution: Path
) -> None:
    say(
        distribution / "apt-get",
        f"""\
        case "$*" in
          *update*) : > {tmp_path}/updated;;
          *download*) [ -e {tmp_path}/updated ] || exit 100; : > runc.deb;;
        esac""",
    )
    assert ensured(tmp_path).is_file()


def test_what_is_not_to_be_had_is_named_with_the_reason(
    tmp_path: Path, distribution: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ToolError, match="GPU_CLUSTERS_OFFLINE=1 forbids fetching it"):
        ensured(tmp_path, offline=True)
    assert not (tmp_path / "asked").exists()
    say(distribution / "dpkg-deb", PACKAGE.replace("1.1.5", "2.0.0"))
    with pytest.raises(ToolError, match=r"runc \(Debian package\) says it is version 2\.0\.0"):
        ensured(tmp_path)
    say(distribution / "apt-get", "echo 'E: Unable to locate package runc' >&2; exit 100")
    with pytest.raises(ToolError, match=r"Debian's package runc: .*Unable to locate.*install it"):
        ensured(tmp_path)
    # Others use the name of the program on PATH.
    say(distribution / "busybox", "echo BusyBox v1.35.0")
    with pytest.raises(ToolError, match="busybox"):
        ensured(tmp_path, "busybox", offline=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match=r"no apt-get and dpkg-deb .* install runc"):
        debian_packages.unpack(TOOLS["runc"], tmp_path)
