"""Units and commands for hosts with rootless Docker, read by the machine's own programs where it has them."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuclusters.host.model import sha256_of
from gpuclusters.rootless import files
from gpuclusters.rootless.model import LiveRootless


def test_systemd_reads_our_unit_without_a_word(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed here")
    # What it comes after has to be known, and the account's daemon is not this machine's.
    for name in ("nvidia-cdi-refresh.service", "systemd-logind.service"):
        (tmp_path / name).write_text("[Service]\nType=oneshot\nExecStart=true\n")
    unit = tmp_path / files.BOOT_UNIT
    unit.write_text(files.boot_unit("ubuntu"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if files.BOOT_UNIT in line]
    assert ours == []
    assert "--machine=ubuntu@.host restart docker.service" in unit.read_text()


def test_what_an_administrator_types_writes_the_file(tmp_path: Path) -> None:
    for path, text in files.host_files("ubuntu").items():
        command = files.write_command(f"{tmp_path}{path}", text)
        subprocess.run(["sh", "-c", command], check=True)
        written = (tmp_path / path[1:]).read_text().splitlines()
        assert written == [line for line in text.splitlines() if line and line[0] not in "#/"]


def test_a_machine_is_looked_at_whatever_is_installed_on_it() -> None:
    if not Path("/etc/os-release").exists():
        pytest.skip("this is no Linux")
    script = Path(files.__file__).with_name("scripts") / "inspect.sh"
    name = pwd.getpwuid(os.getuid()).pw_name
    done = subprocess.run(
        ["sh", str(script), name, "tun no_such_module", "/etc/os-release", "/no/such/file"],
        capture_output=True,
        text=True,
        check=True,
    )
    live = LiveRootless.parse(done.stdout)
    assert (live.uid, live.architecture) == (os.getuid(), os.uname().machine)
    assert "no_such_module" in live.module_missing
    assert live.file == {"/etc/os-release": sha256_of(Path("/etc/os-release").read_bytes())}
    # The files themselves say which ranges are taken: all of them, whoever has them.
    lines = [
        line.split(":")
        for path in (Path("/etc/subuid"), Path("/etc/subgid"))
        for line in (path.read_text().splitlines() if path.exists() else ())
    ]
    assert sorted(live.taken) == sorted((int(f[1]), int(f[2])) for f in lines if len(f) == 3)
