"""Starting, stopping and repairing the server of simulated hosts; their ports; machines installed anew."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import lab.hosts
from lab.hosts import faults, injecting, ports
from lab.hosts.__main__ import main
from lab.hosts.model import HostsError, HostSpec
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import lives

ONE = [HostSpec("hgx-01")]
TWO = [HostSpec("hgx-01"), HostSpec("hgx-02")]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("shared") / "hosts"
    yield path
    lab.hosts.stop(path)


@pytest.fixture
def folder(shared: Path) -> Path:
    """One host, served; what a test stopped or killed is started again. A test leaves the host as it was."""
    lab.hosts.start(shared, ONE)
    return shared


def line(*words: object) -> list[str]:
    """A call of the program of hosts."""
    return [sys.executable, "-m", "lab.hosts", *map(str, words)]


def run(folder: Path, host: str, command: str) -> int | None:
    """Exit code of a command; without a process of its own, which would cost most of a second."""
    endpoint = lab.hosts.status(folder).hosts[host]
    key = folder.parent / "ssh" / "id_ed25519"
    simulated = SimulatedHost(host, folder, endpoint, key)
    return simulated.run(command).returncode


def test_a_stopped_server_comes_back_with_ports_keys_files_partitions_and_faults(
    folder: Path,
) -> None:
    before = lab.hosts.status(folder)
    lines: list[str] = []
    assert lab.hosts.start(folder, ONE, lines.append) == before.hosts
    assert (lab.hosts.status(folder), lines) == (before, []), "starting again changes nothing"
    assert run(folder, "hgx-01", "sudo -n touch /etc/kept && fmpm -a 7") == 0
    injecting.inject(folder, "hgx-01", faults.RefuseConnections())
    lab.hosts.stop(folder)
    port = before.hosts["hgx-01"].port
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(HostsError, match=f"hgx-01: its port {port} .* taken"):
            lab.hosts.start(folder, ONE)
        assert not lab.hosts.status(folder).running
    assert lab.hosts.start(folder, ONE) == before.hosts
    with pytest.raises(ConnectionRefusedError):
        run(folder, "hgx-01", "true")
    injecting.clear(folder, "hgx-01")
    assert run(folder, "hgx-01", "test -e /etc/kept && fmpm -a 7") == 239
    assert run(folder, "hgx-01", "fmpm -d 7") == 0
    names = ("host_key", "journal.jsonl", "host.json", "bmc.key")
    private = [folder / "hgx-01" / name for name in names]
    private += [folder / "bmc-password", folder.parent / "ssh" / "id_ed25519"]
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_hosts_are_added_and_removed_while_others_keep_running(folder: Path) -> None:
    before = lab.hosts.status(folder)
    both = lab.hosts.start(folder, TWO)
    assert both["hgx-01"] == before.hosts["hgx-01"]
    assert lab.hosts.status(folder).pid == before.pid
    assert run(folder, "hgx-02", "test $(hostname) = hgx-02") == 0
    assert set(lab.hosts.start(folder, ONE)) == {"hgx-01"}
    assert not (folder / "hgx-02").exists()


def stop(folder: Path, server: psutil.Process) -> None:
    lab.hosts.stop(folder)
    eventually(lambda: not lives(server.pid))
    assert str(folder) not in Path("/proc/mounts").read_text()
    lab.hosts.stop(folder)


def kill(folder: Path, server: psutil.Process) -> None:
    server.send_signal(signal.SIGKILL)
    eventually(lambda: not lab.hosts.status(folder).running)
    assert "gone without having been stopped" in lab.hosts.status(folder).detail


@pytest.mark.parametrize("end", [stop, kill])
def test_a_server_that_ends_takes_its_commands_along_and_comes_back(
    folder: Path, end: Callable[[Path, psutil.Process], None]
) -> None:
    before = lab.hosts.status(folder)
    server = psutil.Process(before.pid)
    nothing = subprocess.DEVNULL
    command = line("exec", folder, "hgx-01", "sleep 600")
    client = subprocess.Popen(command, stdin=nothing, stderr=nothing)
    eventually(lambda: len(server.children(recursive=True)) >= 4)
    family = server.children(recursive=True)
    end(folder, server)
    eventually(lambda: not any(lives(process.pid) for process in family))
    client.wait(150)
    assert lab.hosts.start(folder, ONE) == before.hosts
    assert run(folder, "hgx-01", "true") == 0


def test_several_starts_at_once_make_one_server(tmp_path: Path) -> None:
    folder = tmp_path / "hosts"
    command = line("start", folder, "hgx-01")
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        outputs = [starter.communicate(timeout=150)[0].splitlines()[-1] for starter in starters]
        assert len(set(outputs)) == 1
        assert all(starter.returncode == 0 for starter in starters)
    finally:
        lab.hosts.stop(folder)


def test_what_cannot_be_served_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", "Hgx", "a/b", "..", "x" * 64, "-a"):
        with pytest.raises(HostsError, match="cannot name a host"):
            HostSpec(name)
    with pytest.raises(HostsError, match="two hosts are called 'hgx-01'"):
        lab.hosts.start(tmp_path / "hosts", [*ONE, *ONE])
    with pytest.raises(HostsError, match="platform 'abacus' cannot be simulated"):
        lab.hosts.start(tmp_path / "hosts", [HostSpec("hgx-01", "abacus")])
    monkeypatch.setattr("lab.hosts.views._can_unshare", lambda _flags: False)
    with pytest.raises(HostsError, match="need Linux with root or with user namespaces"):
        lab.hosts.start(tmp_path / "hosts", ONE)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / "file").touch()
    with pytest.raises(HostsError, match=r"file/hosts cannot be started: .*Not a directory"):
        lab.hosts.start(tmp_path / "file" / "hosts", ONE)


def test_the_command_line_runs_commands_and_injects_faults(folder: Path) -> None:
    where = str(folder)
    command = line("exec", where, "hgx-01", "echo out; echo err >&2; exit 3")
    nothing = subprocess.DEVNULL
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=150, stdin=nothing
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    # In this process: that streams and the exit code are passed on is seen above.
    assert main(["fault", where, "hgx-01", "partition-busy", "partition=7"]) == 0
    assert run(folder, "hgx-01", "fmpm -a 7") == 244
    assert main(["fault", where, "hgx-01", "none"]) == 0
    assert run(folder, "hgx-01", "fmpm -a 7") == 0
    assert main(["in-use", where, "hgx-01", "7", "vm-acme"]) == 0
    assert run(folder, "hgx-01", "sudo -n fuser -s /dev/vfio/91") == 0
    assert main(["status", where]) == 0
    assert main(["in-use", where, "hgx-01", "7"]) == 0
    assert run(folder, "hgx-01", "fmpm -d 7") == 0


def test_a_deep_folder_is_no_obstacle_to_sockets_and_a_server_ends_with_its_folder(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ("d" * 100) / ("e" * 100) / "hosts"
    lab.hosts.start(folder, ONE)
    try:
        assert run(folder, "hgx-01", "fmpm -l") == 0
        server = psutil.Process(lab.hosts.status(folder).pid)
        shutil.rmtree(folder)
        eventually(lambda: not lives(server.pid))
    finally:
        lab.hosts.stop(folder)


IDENTITY = "cat /proc/sys/kernel/random/boot_id; ls /sys/bus/pci/devices"


def test_a_machine_installed_anew_has_nothing_but_its_hardware(
    hosts: Hosts, capsys: pytest.CaptureFixture[str]
) -> None:
    (host,) = hosts()
    host.run("sudo -n sh -c 'echo ours >/etc/ours'")
    boot, *hardware = host.run(IDENTITY).stdout.splitlines()
    with pytest.raises(HostsError, match=f"there is no host 'x' in .*; there are: .*{host.name}"):
        lab.hosts.reinstall(host.folder, "x")

    assert main(["reinstall", str(host.folder), host.name]) == 0
    after = lab.hosts.status(host.folder).hosts[host.name]
    assert capsys.readouterr().out == f"{after.host_key}\n"
    assert (after.address, after.port) == (host.endpoint.address, host.endpoint.port)
    assert after.host_key != host.endpoint.host_key
    assert after.bmc == host.endpoint.bmc

    anew = SimulatedHost(host.name, host.folder, after, host.client_key)
    assert anew.run("test -e /etc/ours").returncode == 1
    new_boot, *new_hardware = anew.run(IDENTITY).stdout.splitlines()
    assert new_boot != boot
    assert new_hardware == hardware
    assert anew.run("virsh list --all").returncode == 127, "bare: libvirt is not installed"


def test_ports_that_others_have_or_only_hold_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    turns = tmp_path / "gpu-clusters" / "next-host-port"

    def chosen() -> socket.socket:
        return others.enter_context(ports.listen("x", None))

    with contextlib.ExitStack() as others:
        taken = [chosen().getsockname()[1] for _ in range(300)]
        turns.write_text(str(taken[0]))
        with ports.listen("x", None) as server:
            free = server.getsockname()[1]
        assert free not in taken
        held = others.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", free))
        turns.write_text(str(free))
        assert chosen().getsockname()[1] != free
