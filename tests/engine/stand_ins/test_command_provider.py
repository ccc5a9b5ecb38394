"""The command stand-in: inputs that are refused, commands on simulated hosts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from google.protobuf import empty_pb2

from engine.stand_ins.command import inputs as command_inputs
from engine.stand_ins.command.ssh import LIMIT_BYTES, Output
from engine.values import UNKNOWN, Secret, Unknown
from lab.hosts import faults
from tests.engine.stand_ins.plugin import Plugin, StepError, in_background, running, urn
from tests.fixtures.waiting import eventually

REMOTE = urn("command:remote:Command", "bootstrap")
PATIENCE_SECONDS = 120
ALONE = {"addPreviousOutputInEnv": False}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJHkmCmMOZ2rvTH1wKnkGYB5HHNR7QkfHdQMGNHCq1h5"


@pytest.fixture
def host(hosts):
    (one,) = hosts()
    return one


@pytest.fixture
def connection(host) -> dict:
    return connection_to(host)


def connection_to(host, **more) -> dict:
    return {
        "host": host.connection["address"],
        "port": host.connection["port"],
        "user": host.connection["user"],
        "hostKey": host.connection["host_key"],
        "privateKey": host.client_key.read_text(),
        **more,
    }


@pytest.mark.parametrize(
    ("connection", "word"),
    [
        ({"host": "h"}, "hostKey is missing. The real provider would connect without checking"),
        ({"hostKey": KEY}, "host is missing"),
        ({"host": "h", "hostKey": "nonsense"}, "not a public key"),
        (
            {"host": "h", "hostKey": KEY, "knownHosts": "x"},
            "knownHosts is not a connection's field",
        ),
        ({"host": "h", "hostKey": KEY, "port": "22"}, "port must be a number"),
        ({"host": "h", "hostKey": KEY, "proxy": {"host": "p"}}, "proxy is not supported"),
        ({"host": "h", "hostKey": KEY, "password": Secret("p")}, "password is not supported"),
    ],
)
def test_a_connection_that_is_not_safe_or_not_clear_is_refused(connection, word) -> None:
    token = "command:remote:Command"
    (failure,) = command_inputs.check(
        token, {**ALONE, "connection": Secret(connection), "create": "true"}
    ).failures
    assert word in failure.reason


@pytest.mark.parametrize(
    ("token", "news", "word"),
    [
        ("command:remote:Command", {"assetPaths": ["*"]}, "assetPaths is not supported"),
        ("command:remote:Command", {"logging": "none"}, "logging is not supported"),
        ("command:remote:Command", {"environment": {"A": "1"}}, "environment is not supported"),
        ("command:remote:Command", {"addPreviousOutputInEnv": True}, "set addPreviousOutputInEnv"),
        ("command:remote:Command", {"interpreter": []}, "interpreter is not an input"),
        ("command:local:Command", {}, "local:Command is not part of the command stand-in"),
        ("command:remote:CopyToRemote", {}, "CopyToRemote is not part of the command stand-in"),
    ],
)
def test_other_inputs_that_cannot_be_followed_are_refused_by_name(token, news, word) -> None:
    connection = {"host": "h", "hostKey": KEY}
    (failure,) = command_inputs.check(token, {**ALONE, "connection": connection, **news}).failures
    assert word in failure.reason


def test_a_connection_is_completed_and_kept_as_the_real_plugin_keeps_it() -> None:
    given = {
        "host": "h", "hostKey": KEY, "privateKey": "k",
    }  # fmt: skip
    defaults = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
    checked = command_inputs.check(
        "command:remote:Command", {**ALONE, "connection": given, "create": "true"}
    )
    hidden = {"privateKey": Secret("k")}
    assert checked.inputs["connection"] == Secret({**given, **defaults, **hidden})


def test_a_connection_not_known_yet_is_not_refused() -> None:
    checked = command_inputs.check(
        "command:remote:Command", {**ALONE, "connection": UNKNOWN, "create": "true"}
    )
    assert not checked.failures
    assert checked.inputs["connection"] == Secret(UNKNOWN)


def test_output_is_kept_up_to_a_limit() -> None:
    output = Output()
    output.add("stdout", "ü".encode()[:1])
    output.add("stdout", "ü".encode()[1:] + b"a\nb")
    assert output.text("stdout") == "üa\nb"
    output.add("stderr", b"x" * (LIMIT_BYTES + 1))
    assert output.cut == {"stderr"}
    assert len(output.text("stderr")) == LIMIT_BYTES


def test_a_command_runs_once_and_again_when_its_inputs_change(
    command: Plugin, host, connection
) -> None:
    inputs = {
        **ALONE,
        "connection": connection,
        "create": "echo run >> /tmp/log; cat",
        "delete": "echo gone > /tmp/gone",
        "stdin": "in\n",
    }
    assert command.up(REMOTE, inputs).op == "create"
    assert command.outputs(REMOTE)["stdout"] == "in"
    assert command.up(REMOTE, inputs).op == "same"
    assert command.up(REMOTE, {**inputs, "stdin": "other\n"}).diff == {"stdin": "UPDATE"}
    assert command.outputs(REMOTE)["stdout"] == "other"
    assert host.path("/tmp/log").read_text() == "run\nrun\n"
    command.delete(REMOTE)
    assert host.path("/tmp/gone").read_text() == "gone\n"


def test_update_runs_instead_of_create_where_there_is_one(command: Plugin, connection) -> None:
    inputs = {**ALONE, "connection": connection, "create": "echo made"}
    command.up(REMOTE, inputs)
    command.up(REMOTE, {**inputs, "update": "echo changed"})
    assert command.outputs(REMOTE)["stdout"] == "changed"


def test_any_change_of_a_trigger_replaces(command: Plugin, connection) -> None:
    inputs = {**ALONE, "connection": connection, "create": "true"}
    command.up(REMOTE, {**inputs, "triggers": [1, "a"]})
    step = command.up(REMOTE, {**inputs, "triggers": [2, "a"]})
    assert step.op == "replace"
    assert step.diff == {"triggers[0]": "UPDATE_REPLACE"}


def test_a_preview_runs_nothing(command: Plugin, host, connection) -> None:
    inputs = command.check(REMOTE, {**ALONE, "connection": connection, "create": "touch /tmp/made"})
    shown = command.create(REMOTE, inputs, preview=True)
    assert isinstance(shown.outputs["stdout"], Unknown)
    assert not host.path("/tmp/made").exists()


def test_a_command_without_create_runs_nothing(command: Plugin, connection) -> None:
    command.up(REMOTE, {**ALONE, "connection": connection, "delete": "true"})
    assert command.outputs(REMOTE)["stdout"] == ""


def test_a_failure_says_which_command_how_it_ended_and_its_last_words(
    command: Plugin, connection
) -> None:
    inputs = {
        **ALONE,
        "connection": connection,
        "create": "echo out; echo why >&2; exit 3",
        "stdin": Secret("hunter22"),
    }
    with pytest.raises(StepError, match=r"command 'echo out; .* failed with exit code 3:\nwhy"):
        command.up(REMOTE, inputs)


def test_no_message_and_no_log_shows_a_secret(command: Plugin, connection) -> None:
    inputs = {
        **ALONE,
        "connection": connection,
        "create": "cat >&2; exit 1",
        "stdin": Secret("hunter22-x"),
    }
    with pytest.raises(StepError) as caught:
        command.up(REMOTE, inputs)
    assert "hunter22" not in str(caught.value)
    assert "hunter22" not in str(command.engine.texts())
    inputs["create"] = "cat"
    command.up(REMOTE, inputs)
    assert command.state[REMOTE].outputs["stdout"] == Secret("hunter22-x")


def test_a_command_cannot_be_imported_and_a_refresh_changes_nothing(
    command: Plugin, connection
) -> None:
    with pytest.raises(StepError, match="cannot be imported"):
        command.read(REMOTE, "x")
    command.up(REMOTE, {**ALONE, "connection": connection, "create": "date +%N"})
    assert command.refresh(REMOTE) == {}


def test_a_remote_command_runs_as_the_user_with_stdin(command: Plugin, host, connection) -> None:
    inputs = {
        **ALONE,
        "connection": connection,
        "create": "id -un; cat; touch /tmp/made",
        "delete": "rm /tmp/made",
        "stdin": "given",
    }
    command.up(REMOTE, inputs)
    assert command.outputs(REMOTE)["stdout"] == "operator\ngiven"
    assert isinstance(command.state[REMOTE].outputs["connection"], Secret)
    assert host.path("/tmp/made").exists()
    assert command.up(REMOTE, inputs).op == "same"
    command.delete(REMOTE)
    assert not host.path("/tmp/made").exists()


def test_a_new_connection_runs_the_command_again(command: Plugin, host, connection) -> None:
    inputs = {**ALONE, "connection": connection, "create": "true"}
    command.up(REMOTE, inputs)
    other = {**connection, "perDialTimeout": 30}
    assert command.up(REMOTE, {**inputs, "connection": other}).diff == {
        "connection.perDialTimeout": "UPDATE"
    }
    assert host.commands() == ["true", "true"]


def test_a_remote_failure_names_host_command_and_exit_code(
    command: Plugin, host, connection
) -> None:
    with pytest.raises(StepError) as caught:
        command.up(
            REMOTE, {**ALONE, "connection": connection, "create": "echo no such disk >&2; exit 4"}
        )
    address = f"operator@{connection['host']}:{connection['port']}"
    assert f"on {address} failed with exit code 4:\nno such disk" in str(caught.value)


def test_a_host_with_another_key_is_not_talked_to(command: Plugin, host, connection) -> None:
    with pytest.raises(StepError, match="shows another host key than hostKey pins"):
        command.up(
            REMOTE, {**ALONE, "connection": {**connection, "hostKey": KEY}, "create": "true"}
        )
    assert host.commands() == []


def test_a_host_that_refuses_us_is_not_asked_again(command: Plugin, connection) -> None:
    with pytest.raises(StepError, match="does not let us in"):
        command.up(
            REMOTE, {**ALONE, "connection": {**connection, "user": "nobody"}, "create": "true"}
        )


def test_nothing_to_log_in_with_is_said_before_dialling(command: Plugin, connection) -> None:
    without = {key: value for key, value in connection.items() if key != "privateKey"}
    with pytest.raises(StepError, match=r"nothing to log in to .* with: set privateKey"):
        command.up(REMOTE, {**ALONE, "connection": without, "create": "true"})


def test_a_host_that_is_away_is_dialled_as_often_as_the_program_allows(
    command: Plugin, host, connection
) -> None:
    host.inject(faults.RefuseConnections())
    inputs = {**ALONE, "connection": {**connection, "dialErrorLimit": 1}, "create": "true"}
    with pytest.raises(StepError, match=r"cannot be reached: .* \(after 2 attempts\)"):
        command.up(REMOTE, inputs)
    inputs["connection"]["dialErrorLimit"] = -1
    release = threading.Timer(1.0, host.clear_faults)
    release.start()
    command.up(REMOTE, inputs)
    release.join()


def test_a_connection_that_breaks_mid_way_is_said_to_have_run_in_part(
    command: Plugin, host, connection
) -> None:
    host.inject(faults.DropConnectionAfter(bytes=200))
    create = "echo begun; head -c 5000 /dev/zero | tr '\\0' x; sleep 5"
    with pytest.raises(
        StepError, match=r"was cut off: .*it may have run in part|cannot be reached"
    ):
        command.up(
            REMOTE, {**ALONE, "connection": {**connection, "dialErrorLimit": 0}, "create": create}
        )


def test_a_hanging_command_is_stopped_when_its_time_is_over(
    command: Plugin, host, connection
) -> None:
    host.inject(faults.Hang(command="sleep"))
    inputs = command.check(REMOTE, {**ALONE, "connection": connection, "create": "sleep 300"})
    with pytest.raises(StepError, match=r"'sleep 300' on operator@.* did not end within 1 s"):
        command.create(REMOTE, inputs, timeout=1)


def test_a_hanging_command_is_stopped_when_the_engine_cancels(host, connection) -> None:
    with running("command", SSH_AUTH_SOCK="") as plugin:
        plugin.configure()
        inputs = plugin.check(
            REMOTE, {**ALONE, "connection": connection, "create": "touch /tmp/begun; sleep 300"}
        )
        thread, results = in_background(lambda: plugin.create(REMOTE, inputs))
        eventually(host.path("/tmp/begun").exists)
        plugin.call("Cancel", empty_pb2.Empty())
        thread.join(PATIENCE_SECONDS)
        assert "was stopped: the run was cancelled" in str(results[0])
        with pytest.raises(StepError, match="was not started: the run was cancelled"):
            plugin.up(REMOTE, {**ALONE, "connection": connection, "create": "true"})


def test_the_process_ends_when_whoever_started_it_is_gone(tmp_path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "from engine.leash import Leash\n"
        "leash = Leash()\n"
        "command = leash.command([sys.executable], 'engine.stand_ins.command')\n"
        "p = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(leash.end,))\n"
        "p.stdout.readline(); print(p.pid, flush=True); time.sleep(300)\n"
    )

    async def provider_of_a_killed_engine() -> int:
        engine = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        assert engine.stdout is not None
        pid = int(await engine.stdout.readline())
        engine.send_signal(signal.SIGKILL)
        await engine.wait()
        return pid

    assert _is_gone(asyncio.run(provider_of_a_killed_engine()))


def _is_gone(pid: int) -> bool:
    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    eventually(gone)
    return True
