"""Waiting for a machine that was just made: as long as it starts, and no longer than it makes sense."""

import subprocess
from pathlib import Path

import pytest

from gpuclusters.core.errors import (
    CommandFailedError,
    DeniedError,
    HostKeyMismatchError,
    UnreachableError,
)
from gpuclusters.gcp.resource import wait_until_ready
from gpuclusters.host.ssh import Completed
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.waiting import Waiting
from tests.providers.answering import Answers
from tests.providers.conftest import StartProvider

SCRIPT = Path(__file__).resolve().parents[2] / "gpuclusters/gcp/scripts/first-login.sh"
DONE = Completed(0, b"", "")
REFUSED = UnreachableError("gpu-1", "wait", "Connection refused", "check that the host is up")
NO_ACCOUNT = DeniedError("gpu-1", "wait", "user ubuntu is not let in", "add its key")

ANOTHER_KEY = HostKeyMismatchError("gpu-1", "wait", "the host shows another key", "compare")
SET_UP_FAILED = Completed(1, b"", "cloud-init ended with an error:\nstatus: error\n")


def test_it_is_tried_until_the_machine_lets_us_in() -> None:
    clock = Waiting()
    wait_until_ready(Answers(REFUSED, REFUSED, NO_ACCOUNT, DONE), clock, 600)
    assert clock.time == 15


@pytest.mark.parametrize("error", [REFUSED, NO_ACCOUNT])
def test_a_machine_that_never_comes_is_given_up_with_the_last_reason(error: Exception) -> None:
    clock = Waiting()
    with pytest.raises(type(error), match="for 60 s since it was made") as late:
        wait_until_ready(Answers(error), clock, 60)
    assert "get-serial-port-output" in str(late.value)
    assert clock.time < 60


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (ANOTHER_KEY, HostKeyMismatchError, "the host shows another key"),
        (SET_UP_FAILED, CommandFailedError, "cloud-init ended with an error"),
    ],
    ids=["another host key", "its set-up failed"],
)
def test_what_does_not_get_better_is_not_waited_for(
    answer: Completed | Exception, kind: type[Exception], said: str
) -> None:
    clock = Waiting()
    with pytest.raises(kind, match=said):
        wait_until_ready(Answers(answer, DONE), clock, 600)
    assert clock.time == 0


def test_a_machine_is_reached_over_ssh(host: SimulatedHost, start_provider: StartProvider) -> None:
    inputs = {"connection": host.connection, "instance": "1001", "timeout_seconds": 60}
    login = start_provider(host).of("FirstLogin", inputs)
    assert login.create()["reached"] == "1001"
    assert not login.differs()
    other = login.diff(instance="1002")
    assert (other.changes, other.replaces) == (True, [])
    login.delete()


@pytest.mark.parametrize(("code", "status"), [(0, 0), (2, 0), (1, 1)])
def test_only_an_error_of_cloud_init_is_one(tmp_path: Path, code: int, status: int) -> None:
    program = tmp_path / "cloud-init"
    program.write_text(f'#!/bin/sh\n[ "$2" = --wait ] && exit {code}\necho "errors: [no mirror]"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-s"],
        input=SCRIPT.read_text(),
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status
    assert ("errors: [no mirror]" in done.stderr) is bool(status)
