"""The command stand-in: inputs that are refused, commands on simulated hosts."""

from __future__ import annotations

import threading

import pytest

from engine.answers import ProviderError
from engine.stand_ins.command import inputs as command_inputs
from engine.stand_ins.command.ssh import LIMIT_BYTES, Output
from engine.values import UNKNOWN, Secret, Unknown
from lab.hosts import faults
from tests.engine.stand_ins.plugin import Plugin, in_background, running, urn
from tests.fixtures.tables import beside
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
def inputs(host) -> dict:
    """A command on the host that does nothing."""
    connection = {
        "host": host.connection["address"],
        "port": host.connection["port"],
        "user": host.connection["user"],
        "hostKey": host.connection["host_key"],
        "privateKey": host.client_key.read_text(),
    }
    return {**ALONE, "connection": connection, "create": "true"}


REFUSED = beside(__file__, "refused.yaml")["command"]


@pytest.mark.parametrize(("said", "token", "news", "connection"), REFUSED)
def test_what_is_not_safe_not_clear_or_cannot_be_followed_is_refused_by_name(
    said, token, news, connection
) -> None:
    news = {**ALONE, "create": "true", **news, "connection": Secret(connection)}
    (failure,) = command_inputs.check(f"command:{token}", news).failures
    assert said in failure.reason


def test_a_connection_is_completed_and_kept_as_the_real_plugin_keeps_it() -> None:
    given = {"host": "h", "hostKey": KEY, "privateKey": "k"}
    defaults = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
    for connection, kept in (
        (given, {**given, **defaults, "privateKey": Secret("k")}),
        (UNKNOWN, UNKNOWN),  # not known yet, so not refused
    ):
        news = {**ALONE, "connection": connection, "create": "true"}
        checked = command_inputs.check("command:remote:Command", news)
        assert not checked.failures
        assert checked.inputs["connection"] == Secret(kept)


def test_output_is_kept_up_to_a_limit() -> None:
    output = Output()
    output.add("stdout", "ü".encode()[:1])
    output.add("stdout", "ü".encode()[1:] + b"a\nb")
    assert output.text("stdout") == "üa\nb"
    output.add("stderr", b"x" * (LIMIT_BYTES + 1))
    assert output.cut == {"stderr"}
    assert len(output.text("stderr")) == LIMIT_BYTES


def test_a_command_runs_once_and_again_when_its_inputs_change(
    command: Plugin, host, inputs
) -> None:
    inputs |= {"create": "id -un >> /tmp/log; cat", "delete": "echo gone > /tmp/gone"}
    inputs["stdin"] = "in\n"
    preview = command.create(REMOTE, command.check(REMOTE, inputs), preview=True)
    assert isinstance(preview.outputs["stdout"], Unknown)
    assert not host.path("/tmp/log").exists()
    assert command.up(REMOTE, inputs).op == "create"
    assert command.outputs(REMOTE)["stdout"] == "in"
    assert isinstance(command.state[REMOTE].outputs["connection"], Secret)
    assert command.up(REMOTE, inputs).op == "same"
    assert command.refresh(REMOTE) == {}
    assert command.up(REMOTE, {**inputs, "stdin": "other\n"}).diff == {"stdin": "update"}
    assert command.outputs(REMOTE)["stdout"] == "other"
    assert host.path("/tmp/log").read_text() == "operator\noperator\n"
    command.up(REMOTE, {**inputs, "update": "echo changed"})
    assert command.outputs(REMOTE)["stdout"] == "changed"
    other = {**inputs["connection"], "perDialTimeout": 30}
    step = command.up(REMOTE, {**inputs, "connection": other})
    assert step.diff["connection.perDialTimeout"] == "update"
    command.delete(REMOTE)
    assert host.path("/tmp/gone").read_text() == "gone\n"
    with pytest.raises(ProviderError, match="cannot be imported"):
        command.read(REMOTE, "x")


def test_any_change_of_a_trigger_replaces(command: Plugin, inputs) -> None:
    del inputs["create"]  # a command without it runs nothing
    command.up(REMOTE, {**inputs, "triggers": [1, "a"]})
    assert command.outputs(REMOTE)["stdout"] == ""
    step = command.up(REMOTE, {**inputs, "triggers": [2, "a"]})
    assert step.op == "replace"
    assert step.diff == {"triggers[0]": "update-replace"}


def test_a_failure_names_host_command_and_exit_code_but_no_secret(command: Plugin, inputs) -> None:
    inputs |= {"create": "cat >&2; echo >&2; echo why >&2; exit 3", "stdin": Secret("hunter22-x")}
    with pytest.raises(ProviderError) as caught:
        command.up(REMOTE, inputs)
    connection = inputs["connection"]
    address = f"operator@{connection['host']}:{connection['port']}"
    assert "command 'cat >&2; echo >&2;" in str(caught.value)
    assert f"on {address} failed with exit code 3:\n[secret]\nwhy" in str(caught.value)
    assert "hunter22" not in str(caught.value) + str(command.engine.texts())
    command.up(REMOTE, {**inputs, "create": "cat"})
    assert command.state[REMOTE].outputs["stdout"] == Secret("hunter22-x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hostKey": KEY}, "shows another host key than hostKey pins"),
        ({"user": "nobody"}, "does not let us in"),
        ({"privateKey": None}, r"nothing to log in to .* with: set privateKey"),
    ],
)
def test_a_host_that_is_another_or_does_not_know_us_runs_nothing(
    command: Plugin, host, inputs, change: dict, said: str
) -> None:
    connection = {**inputs["connection"], **change}
    inputs["connection"] = {key: value for key, value in connection.items() if value}
    with pytest.raises(ProviderError, match=said):
        command.up(REMOTE, inputs)
    assert host.commands() == []


def test_a_host_that_is_away_is_dialled_as_often_as_the_program_allows(
    command: Plugin, host, inputs
) -> None:
    host.inject(faults.RefuseConnections())
    inputs["connection"]["dialErrorLimit"] = 1
    with pytest.raises(ProviderError, match=r"cannot be reached: .* \(after 2 attempts\)"):
        command.up(REMOTE, inputs)
    inputs["connection"]["dialErrorLimit"] = -1
    release = threading.Timer(1.0, host.clear_faults)
    release.start()
    command.up(REMOTE, inputs)
    release.join()


def test_a_connection_that_breaks_mid_way_is_said_to_have_run_in_part(
    command: Plugin, host, inputs
) -> None:
    host.inject(faults.DropConnectionAfter(bytes=200))
    inputs["connection"]["dialErrorLimit"] = 0
    inputs["create"] = "echo begun; head -c 5000 /dev/zero | tr '\\0' x; sleep 5"
    said = r"was cut off: .*it may have run in part|cannot be reached"
    with pytest.raises(ProviderError, match=said):
        command.up(REMOTE, inputs)


def test_a_hanging_command_is_stopped_when_its_time_is_over(command: Plugin, host, inputs) -> None:
    host.inject(faults.Hang(command="sleep"))
    checked = command.check(REMOTE, {**inputs, "create": "sleep 300"})
    with pytest.raises(ProviderError, match=r"'sleep 300' on operator@.* did not end within 1 s"):
        command.create(REMOTE, checked, timeout=1)


def test_a_hanging_command_is_stopped_when_the_engine_cancels(host, inputs) -> None:
    with running("command", SSH_AUTH_SOCK="") as plugin:
        plugin.configure()
        hanging = plugin.check(REMOTE, {**inputs, "create": "touch /tmp/begun; sleep 300"})
        thread, results = in_background(lambda: plugin.create(REMOTE, hanging))
        eventually(host.path("/tmp/begun").exists)
        plugin.provider.cancel()
        thread.join(PATIENCE_SECONDS)
        assert "was stopped: the run was cancelled" in str(results[0])
        with pytest.raises(ProviderError, match="was not started: the run was cancelled"):
            plugin.up(REMOTE, inputs)
