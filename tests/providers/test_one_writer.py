"""A machine has one writer at a time, and a provider ends with its engine: nobody acts who should be gone."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuclusters.host import machine_lock
from gpuclusters.host.connect import find_credentials
from gpuclusters.host.machine_lock import MachineBusyError
from gpuclusters.host.model import HostConnection
from gpuclusters.host.resource import HostFileProvider
from gpuclusters.host.ssh import SshHost
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import PROJECT, StepFailed

SLOW = "x_slow_command"
SECONDS = 60.0
HOLDS = """
import sys
from gpuclusters.host.ssh import SshHost
from gpuclusters.host.connect import find_credentials
from gpuclusters.host.model import HostConnection
host = SshHost(HostConnection.model_validate_json(sys.argv[1]), find_credentials(None))
with host.writing("change something"):
    print("mine", flush=True)
    host.run(["sh", "-c", sys.argv[2]], tried="work", timeout_seconds=600)
    print("done", flush=True)
    sys.stdin.read()
"""


class Other:
    """Another run's process that has the machine."""

    def __init__(self, host: SimulatedHost, command: str) -> None:
        connection = HostConnection.model_validate(host.connection)
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDS, connection.model_dump_json(), command],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "GPU_CLUSTERS_SSH_KEY_FILE": str(host.client_key),
                "PULUMI_STACK": "prod",
            },
        )

    def says(self, word: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == word

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def other(host: SimulatedHost) -> Iterator[Callable[[str], Other]]:
    made: list[Other] = []

    def make(command: str) -> Other:
        made.append(Other(host, command))
        made[-1].says("mine")
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def reached(host: SimulatedHost, monkeypatch: pytest.MonkeyPatch) -> SshHost:
    monkeypatch.setenv("GPU_CLUSTERS_SSH_KEY_FILE", str(host.client_key))
    connection = HostConnection.model_validate(host.connection)
    return SshHost(connection, find_credentials(None))


def test_who_has_the_machine_is_named_to_the_one_who_waits(
    other: Callable[[str], Other], reached: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_lock, "PATIENCE_SECONDS", 1)
    first = other("true")
    first.says("done")
    with pytest.raises(MachineBusyError) as error, reached.writing("change something"):
        pytest.fail("two writers")
    said = str(error.value)
    assert f"process {first.process.pid} of " in said
    assert f"@{socket.gethostname()} (stack prod) since " in said


def test_the_lock_of_a_killed_process_falls_at_once(
    other: Callable[[str], Other], reached: SshHost
) -> None:
    first = other("true")
    first.says("done")
    got = threading.Event()

    def wait() -> None:
        with reached.writing("change something"):
            got.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert not got.wait(0.5), "two writers"
    begun = time.monotonic()
    first.process.kill()
    assert got.wait(SECONDS)
    waiting.join()
    assert time.monotonic() - begun < machine_lock.PATIENCE_SECONDS / 2


def test_a_command_that_outlives_its_connection_is_waited_for(
    host: SimulatedHost, other: Callable[[str], Other], reached: SshHost
) -> None:
    # sshd tells a command nothing: it ends when it is done, here after the next writer has come.
    first = other(f"touch /tmp/begun; exec 2>&-; sleep 1.2; touch /tmp/{SLOW}")
    eventually(host.path("/tmp/begun").exists)
    first.process.kill()
    with reached.writing("change something"):
        assert host.path(f"/tmp/{SLOW}").exists(), "it wrote while another had the machine"


def test_a_command_that_goes_on_for_long_is_said(
    host: SimulatedHost,
    other: Callable[[str], Other],
    reached: SshHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_lock, "PATIENCE_SECONDS", 1)
    first = other("touch /tmp/begun; sleep 30")
    eventually(host.path("/tmp/begun").exists)
    first.process.kill()
    with (
        pytest.raises(MachineBusyError, match=r"still at work .*fuser -v"),
        reached.writing("change something"),
    ):
        pytest.fail("a command of another run is at work")


def test_steps_of_one_process_do_not_wait_for_each_other_and_hand_on_one_lock(
    host: SimulatedHost, reached: SshHost
) -> None:
    holder = host.path("/run/gpu-clusters/holder")
    with reached.writing("one"), reached.writing("two"):
        taken = holder.read_text()
    time.sleep(0.1)
    assert f"process {os.getpid()} of " in taken
    with reached.writing("three"):
        reached.run(["true"], tried="work")
        assert holder.read_text() == taken, "it was let go and taken again between two steps"
    eventually(lambda: holder.read_text() == "")


def test_the_machine_is_taken_again_after_its_restart(
    host: SimulatedHost, reached: SshHost, other: Callable[[str], Other]
) -> None:
    with reached.writing("restart it"):
        host.reboot()
        reached.run(["true"], tried="work")
        assert "process " in host.path("/run/gpu-clusters/holder").read_text()


def inputs(host: SimulatedHost, content: str) -> dict[str, Any]:
    return {
        "connection": host.connection,
        "path": "/etc/one-writer.conf",
        "content": content,
        "mode": "0644",
        "owner": "root:root",
    }


def test_a_step_of_another_run_is_refused_with_the_holder_and_done_when_it_is_gone(
    host: SimulatedHost, other: Callable[[str], Other], start_provider: StartProvider
) -> None:
    first = other("true")
    first.says("done")
    provider = start_provider(host, own=True)
    with pytest.raises(StepFailed, match=r"\[remote\.machine-busy\]") as failed:
        provider.create(HostFileProvider, inputs(host, "mine\n"))
    assert "(stack prod)" in str(failed.value)
    assert not host.path("/etc/one-writer.conf").exists()
    first.end()
    provider.create(HostFileProvider, inputs(host, "mine\n"))
    assert host.path("/etc/one-writer.conf").read_text() == "mine\n"


def test_a_provider_ends_within_a_second_of_its_engine_and_so_does_what_it_does_on_machines(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host, own=True)
    made = provider.create(HostFileProvider, inputs(host, "one\n"))
    host.inject(faults.Slow(command="one-writer", seconds=30))

    def update() -> None:
        with pytest.raises(StepFailed):
            provider.update(HostFileProvider, made, inputs(host, "two\n"))

    step = threading.Thread(target=update)
    step.start()
    assert provider.process.poll() is None
    begun = time.monotonic()
    provider.engine.close()
    provider.process.wait(SECONDS)
    assert time.monotonic() - begun < 5  # a second, and as much as a busy computer takes
    step.join()
    host.clear_faults()
    assert host.path("/etc/one-writer.conf").read_text() == "one\n"


def test_a_provider_stays_while_its_engine_says_nothing(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider(host, own=True)
    provider.create(HostFileProvider, inputs(host, "one\n"))
    # As gRPC does with a connection on which nobody speaks.
    accepted, _ = provider.engine.accept()
    accepted.close()
    again, _ = provider.engine.accept()
    assert provider.process.poll() is None
    again.close()
