"""A machine has one writer at a time, and a provider ends with its engine: nobody acts who should be gone."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from gpuclusters.host import machine_lock
from gpuclusters.host.machine_lock import MachineBusyError
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import PROJECT, Resource

FILE = "/etc/one-writer.conf"
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


Begin = Callable[[str], subprocess.Popen[str]]


def says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


@pytest.fixture
def other(host: SimulatedHost) -> Iterator[Begin]:
    """Another run's process that has the machine and runs a command there; killed in the end."""
    connection = HostConnection.model_validate(host.connection).model_dump_json()
    named = {"GPU_CLUSTERS_SSH_KEY_FILE": str(host.client_key), "PULUMI_STACK": "prod"}
    with ExitStack() as stack:

        def begin(command: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", HOLDS, connection, command],
                    cwd=PROJECT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **named},
                )
            )
            stack.callback(process.kill)
            says(process, "mine")
            return process

        yield begin


@pytest.fixture
def reached(host: SimulatedHost) -> SshHost:
    return host.ssh


def test_who_has_the_machine_is_named_to_the_one_who_waits(
    other: Begin, reached: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = other("true")
    says(first, "done")
    with monkeypatch.context() as patched:
        patched.setattr(machine_lock, "PATIENCE_SECONDS", 1)
        with pytest.raises(MachineBusyError) as error, reached.writing("change something"):
            pytest.fail("two writers")
    assert error.value.error_id == "remote.machine-busy"
    said = str(error.value)
    assert f"process {first.pid} of " in said
    assert f"@{socket.gethostname()} (stack prod) since " in said


def test_a_command_that_outlives_its_connection_is_waited_for(
    host: SimulatedHost, other: Begin, reached: SshHost
) -> None:
    # sshd tells a command nothing: it ends when it is done, here after the next writer has come.
    first = other(f"touch /tmp/begun; exec 2>&-; sleep 1.2; touch /tmp/{SLOW}")
    eventually(host.path("/tmp/begun").exists)
    first.kill()
    with reached.writing("change something"):
        assert host.path(f"/tmp/{SLOW}").exists(), "it wrote while another had the machine"


def test_a_command_that_goes_on_for_long_is_said(
    host: SimulatedHost, other: Begin, reached: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_lock, "PATIENCE_SECONDS", 1)
    first = other("touch /tmp/begun; sleep 30")
    eventually(host.path("/tmp/begun").exists)
    first.kill()
    busy = pytest.raises(MachineBusyError, match=r"still at work .*fuser -v")
    with busy, reached.writing("change something"):
        pytest.fail("a command of another run is at work")


def test_steps_of_one_process_hand_on_one_lock_which_is_taken_again_after_a_restart(
    host: SimulatedHost, reached: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = host.path("/run/gpu-clusters/holder")
    monkeypatch.setattr(machine_lock, "LINGER_SECONDS", 600)
    with reached.writing("one"), reached.writing("two"):
        assert f"process {os.getpid()} of " in holder.read_text()
        taken = holder.stat().st_mtime_ns
    with reached.writing("three"):
        reached.run(["true"], tried="work")
        assert holder.stat().st_mtime_ns == taken, "let go and taken again between two steps"
        monkeypatch.setattr(machine_lock, "LINGER_SECONDS", 0)
    eventually(lambda: holder.read_text() == "")
    with reached.writing("restart it"):
        host.reboot()
        reached.run(["true"], tried="work")
        assert "process " in holder.read_text()


@pytest.fixture
def file(host: SimulatedHost, start_provider: StartProvider) -> Resource:
    """One on the machine, by a provider that may be killed."""
    return start_provider(host, own=True).on("HostFile", host, path=FILE, content="one\n")


def test_a_step_waits_for_the_writer_of_another_run_and_a_killed_one_has_the_machine_no_more(
    host: SimulatedHost, other: Begin, file: Resource
) -> None:
    first = other("true")
    says(first, "done")
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(file.create)
        with pytest.raises(TimeoutError):
            step.result(2)
        assert not host.path(FILE).exists(), "two writers"
        begun = time.monotonic()
        first.kill()
        step.result(SECONDS)
    assert time.monotonic() - begun < machine_lock.PATIENCE_SECONDS / 2
    assert host.path(FILE).read_text() == "one\n"


def test_a_provider_ends_within_a_second_of_its_engine_and_so_does_what_it_does_on_machines(
    host: SimulatedHost, file: Resource
) -> None:
    file.create()
    process = file.process
    # It stays while its engine says nothing, as gRPC does with a connection on which nobody speaks.
    accepted, _ = process.engine.accept()
    accepted.close()
    again, _ = process.engine.accept()
    assert process.process.poll() is None

    host.inject(faults.Slow(command="one-writer", seconds=30))
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(file.refused, "update", content="two\n")
        begun = time.monotonic()
        process.engine.close()
        again.close()
        process.process.wait(SECONDS)
        assert time.monotonic() - begun < 5  # a second, and as much as a busy computer takes
        step.result()
    host.clear_faults()
    assert host.path(FILE).read_text() == "one\n"
