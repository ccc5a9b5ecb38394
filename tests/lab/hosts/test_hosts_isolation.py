"""A command on a simulated host sees and changes nothing of the machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from lab.hosts import tree, views
from lab.hosts.folder import HostFolder
from lab.hosts.hardware.board import board
from lab.hosts.machine import resolve
from lab.hosts.registry import NAMES
from tests.fixtures.hosts import SimulatedHost


@pytest.fixture(scope="module")
def host(hosts_pool: Any) -> SimulatedHost:
    made: SimulatedHost = hosts_pool.add(1, "supermicro-hgx-h100")[0]
    return made


def test_files_processes_and_environment_of_the_machine_are_out_of_sight(
    host: SimulatedHost, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the machine")
    assert host.sudo(f"cat {secret}").returncode != 0
    listed = set(host.sudo("ls -a /").stdout.split()) - {".", ".."}
    machine = {path.name for path in Path("/usr").parent.glob("*bin")} | {"usr"}
    assert machine <= listed
    assert host.sudo("ls -A /root /mnt /opt /srv | grep -v :").stdout.strip() == ""
    pids = host.run("ls /proc | grep '^[0-9]'").stdout.split()
    assert str(os.getpid()) not in pids
    assert len(pids) < 10
    known = "PATH HOME USER LOGNAME SHELL LANG PWD OLDPWD _ SHLVL LC_CTYPE PERL_BADLANG"
    assert {line.split("=")[0] for line in host.run("env").stdout.splitlines()} <= {*known.split()}
    # Nor does a mount of a view reach the machine.
    assert host.name not in Path("/proc/self/mountinfo").read_text()


POWERS = (
    "touch /usr/bin/probe",
    "touch /bin/probe",
    "echo 1 > /proc/sys/vm/overcommit_memory",
    "mount -t tmpfs none /mnt",
    "mknod /tmp/disk b 8 0",
    "cat /dev/vfio/vfio",
    "ls /proc/1/root",
    "nsenter -t 1 -m true",
    "date -s 2001-01-01",
)


def test_root_on_a_host_has_no_power_over_the_machine(host: SimulatedHost) -> None:
    if not views.check_possible():
        assert [power for power in POWERS if host.sudo(power).returncode == 0] == []


def test_links_and_climbing_do_not_lead_out(host: SimulatedHost, tmp_path: Path) -> None:
    done = host.sudo("cd /; ls ../../../..; ln -s /etc/hostname /tmp/link; cat /tmp/link")
    assert done.stdout.splitlines()[-1] == host.name
    assert "proc" in done.stdout
    assert host.path("/tmp/link") == host.root / "etc/hostname"
    (tmp_path / "etc").mkdir()
    for name, target in (("absolute", "/etc"), ("relative", "etc"), ("climbing", "../../../..")):
        (tmp_path / name).symlink_to(target)
    for path, expected in (
        ("/etc/hostname", "etc/hostname"),
        ("/../../etc", "etc"),
        ("/absolute/x", "etc/x"),
        ("/relative/x", "etc/x"),
        ("/climbing/etc", "etc"),
        ("/etc/./../etc//x", "etc/x"),
    ):
        assert resolve(tmp_path, path) == tmp_path / expected
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        resolve(tmp_path, "/a")


def test_subsystems_terminals_and_forwarding_are_refused(host: SimulatedHost) -> None:
    async def act() -> tuple[int | None, object]:
        async with host.connect() as connection:
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.start_sftp_client()
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.run("true", term_type="xterm")
            with pytest.raises(asyncssh.ChannelOpenError):
                await connection.open_connection("127.0.0.1", host.endpoint.port)
            with pytest.raises(asyncssh.ChannelListenError):
                await connection.forward_remote_port("127.0.0.1", 0, "127.0.0.1", 1)
            async with connection.create_process(subsystem="netconf") as process:
                done = await process.wait()
                return done.exit_status, done.stderr

    assert asyncio.run(act()) == (1, "no subsystem 'netconf' on this host\n")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no OpenSSH client here")
def test_openssh_itself_can_log_in(host: SimulatedHost, tmp_path: Path) -> None:
    endpoint = host.endpoint
    known = tmp_path / "known_hosts"
    known.write_text(f"[{endpoint.address}]:{endpoint.port} {endpoint.host_key}\n")
    options = [f"-oUserKnownHostsFile={known}", "-oBatchMode=yes", "-oIdentitiesOnly=yes"]
    options += ["-i", str(host.client_key), "-p", str(endpoint.port)]
    login = f"{endpoint.user}@{endpoint.address}"
    done = subprocess.run(
        ["ssh", "-F", "none", *options, login, "cat; hostname; exit 3"],
        input="in\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (3, f"in\n{host.name}\n"), done.stderr


def test_views_work_with_user_namespaces_alone(tmp_path: Path) -> None:
    if not views._can_unshare(["--user", "--map-root-user"]):
        pytest.skip("this machine allows no user namespaces")
    folder = HostFolder(tmp_path / "hgx-01")
    folder.path.mkdir()
    identity = {"boot_id": "boot", "host_key": "ssh-ed25519 AAAA"}
    tree.build(folder, board("supermicro-hgx-h100"), identity, many_users=False)
    mounts = tree.mounts(folder, NAMES)
    script = "hostname; id -u; cat /proc/sys/kernel/random/boot_id; echo x > /etc/y; ls /dev/vfio"

    async def act() -> tuple[int, str]:
        launcher = views.Launcher(user_namespace=True)
        read, write = os.pipe()
        try:
            command = views.Command(["/bin/sh", "-c", script])
            streams = (os.open(os.devnull, os.O_RDONLY), write, sys.stderr.fileno())
            running = await launcher.start(folder.root, folder.name, mounts, command, streams)
            os.close(write)
            os.close(streams[0])
            exit_code = await running.wait()
            assert running.problem is None
            return exit_code, os.read(read, 65536).decode()
        finally:
            os.close(read)
            launcher.close()

    exit_code, output = asyncio.run(act())
    assert (exit_code, output.splitlines()[:3]) == (0, ["hgx-01", "0", "boot"])
    assert (folder.root / "etc/y").read_text() == "x\n"
