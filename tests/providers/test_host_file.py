"""One file on a host, through the SDK's provider process and real SSH."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.host.model import HostConnection
from gpuclusters.host.resource import HostFileProvider
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import ProviderProcess, StepFailed, provider_process

PATH = "/etc/kubernetes/kubelet.conf.d/20-gpu.conf"


def wanted(host: SimulatedHost, **changes: Any) -> dict[str, Any]:
    return {"connection": host.connection, "path": PATH, "content": "a: 1\n"} | changes


def test_a_file_lives_from_create_to_delete(host: SimulatedHost, provider: ProviderProcess) -> None:
    made = provider.create(HostFileProvider, wanted(host, mode="0640"))
    assert made.id == f"{host.name}:{PATH}"
    assert host.path(PATH).read_text() == "a: 1\n"
    assert host.path(PATH).stat().st_mode & 0o7777 == 0o640
    assert made.outputs["content"] == "a: 1\n"  # inputs are inside the outputs
    before = host.path(PATH).stat().st_ino
    assert provider.create(HostFileProvider, wanted(host, mode="0640")) == made
    assert host.path(PATH).stat().st_ino == before

    news = wanted(host, content="a: 2\n", mode="0640")
    difference = provider.diff(HostFileProvider, made.outputs, news)
    assert (difference.changes, difference.replaces) == (True, [])
    made = provider.update(HostFileProvider, made, news)
    assert host.path(PATH).read_text() == "a: 2\n"
    assert not provider.diff(HostFileProvider, made.outputs, news).changes

    provider.delete(HostFileProvider, made)
    assert not host.path(PATH).exists()


def test_a_different_file_that_is_there_already_is_refused_and_an_equal_one_can_be_adopted(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    host.path(PATH).parent.mkdir(parents=True, exist_ok=True)
    host.path(PATH).write_text("by hand\n")
    with pytest.raises(StepFailed) as failed:
        provider.create(HostFileProvider, wanted(host))
    assert f"{PATH} has other content from line 1 on (8 bytes instead of 5" in str(failed.value)
    assert "move it away, or make it equal [host.file-foreign]" in str(failed.value)
    assert host.path(PATH).read_text() == "by hand\n"

    host.path(PATH).chmod(0o600)
    with pytest.raises(StepFailed) as failed:
        provider.create(HostFileProvider, wanted(host, adopt=True))
    assert str(failed.value).startswith(f"adopt HostFile {host.name}:{PATH}: what is there differs")
    assert f"{PATH} has other content from line 1 on (8 bytes instead of 5" in str(failed.value)
    assert f"{PATH} has mode 0600 instead of 0644" in str(failed.value)
    assert host.path(PATH).read_text() == "by hand\n"

    host.path(PATH).write_text("a: 1\n")
    host.path(PATH).chmod(0o644)
    made = provider.create(HostFileProvider, wanted(host, adopt=True))
    assert not provider.diff(HostFileProvider, made.outputs, wanted(host)).changes


def test_drift_shows_after_a_refresh_and_is_put_back_by_the_next_update(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(HostFileProvider, wanted(host))
    host.path(PATH).write_text("by hand\n")

    live = provider.read(HostFileProvider, made)
    assert live.inputs["content"] == "by hand\n"
    assert provider.diff(HostFileProvider, live.outputs, wanted(host)).changes

    provider.update(HostFileProvider, made, wanted(host))
    assert host.path(PATH).read_text() == "a: 1\n"
    target = HostConnection.model_validate(host.connection).target
    put_back = f"{target}: {PATH} has other content from line 1"
    assert provider.stderr.read_text().count(put_back) == 1
    assert [one["code"] for one in live.outputs["drift"]] == ["host.file-changed"]

    provider.update(HostFileProvider, made, wanted(host, content="a: 2\n"))
    assert host.path(PATH).read_text() == "a: 2\n"
    assert provider.stderr.read_text().count(put_back) == 1, "what was declared anew is no drift"


def test_a_file_that_somebody_changed_is_not_deleted(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(HostFileProvider, wanted(host))
    host.path(PATH).write_text("by hand\n")
    with pytest.raises(StepFailed, match="changed on the host since it was written here"):
        provider.delete(HostFileProvider, made)
    assert host.path(PATH).exists()


def test_eight_files_at_once_use_one_connection(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    host.forget()
    with ThreadPoolExecutor(8) as pool:
        news = [wanted(host, path=f"/etc/many/{n}.conf") for n in range(8)]
        made = list(pool.map(lambda n: provider.create(HostFileProvider, n), news))
    assert len({m.id for m in made}) == 8
    assert len(host.journal("connection")) == 1


def test_a_killed_create_can_simply_be_run_again(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    # What is there is read, and the write does not begin before the run is dead.
    host.inject(faults.Hang(command=f"{PATH} 0644"))
    first = start_provider(host, own=True)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.create, HostFileProvider, wanted(host))
        while not host.commands():
            time.sleep(0.01)
        first.kill()
        with pytest.raises(StepFailed):
            running.result()
    host.clear_faults()
    second = start_provider(host)
    second.create(HostFileProvider, wanted(host))
    assert host.path(PATH).read_text() == "a: 1\n"
    assert [p.name for p in host.path(PATH).parent.iterdir()] == [PATH.rsplit("/", 1)[1]]


def test_another_address_is_the_same_host_and_another_name_a_replacement(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    provider = start_provider()
    olds = wanted(host, sha256="0" * 64)
    moved = host.connection | {"port": 1}
    assert provider.diff(HostFileProvider, olds, wanted(host, connection=moved)).replaces == []
    renamed = host.connection | {"host": "other"}
    difference = provider.diff(HostFileProvider, olds, wanted(host, connection=renamed))
    assert difference.replaces == ["connection"]
    assert difference.delete_before_replace


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.WrongHostKey(), ["the host shows the key SHA256:", "is pinned for it"]),
        (faults.RefuseConnections(), ["no SSH connection (", "check that the host is up"]),
        (faults.DropConnectionAfter(bytes=600), ["no SSH connection ("]),
        (faults.DiskFull(path="/etc"), ["No space left on device", "free some space"]),
        (faults.Hang(), ["did not end within 2 s"]),
        (
            faults.CommandFails(command="sudo", exit=1, stderr="sudo: a password is required\n"),
            ["a password is required", "NOPASSWD"],
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_every_fault_says_which_host_what_was_tried_and_what_to_do(
    host: SimulatedHost, start_provider: StartProvider, fault: Any, said: list[str]
) -> None:
    host.inject(fault)
    # Only where it is the time that is to run out: on a busy machine two seconds are not much.
    short = {"GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS": "2"}
    hangs = isinstance(fault, faults.Hang)
    provider = start_provider(host, **(short if hangs else {}))
    with pytest.raises(StepFailed) as failed:
        provider.create(HostFileProvider, wanted(host, content="token: top-secret-value\n"))
    message = str(failed.value)
    place = f"{host.name} ({host.endpoint.address}:{host.endpoint.port})"
    assert f"{place}: could not " in message
    assert PATH in message
    for part in said:
        assert part in message
    assert "top-secret-value" not in message
    # One line, without the SDK's traceback.
    assert message.startswith(place)
    assert len(message.splitlines()) == 1
    assert not host.path(PATH).exists()

    host.clear_faults()
    start_provider(host).create(HostFileProvider, wanted(host))
    assert host.path(PATH).exists()


def test_reads_go_on_over_a_connection_that_keeps_breaking(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    made = start_provider(host).create(HostFileProvider, wanted(host))
    host.inject(faults.DropConnectionAfter(bytes=12000))
    host.forget()
    provider = start_provider(host, own=True)
    for _ in range(12):
        assert provider.read(HostFileProvider, made).id == made.id
    assert len(host.journal("connection")) > 1


def test_a_delete_on_a_host_that_is_gone_says_how_to_let_go(
    host: SimulatedHost, start_provider: StartProvider
) -> None:
    made = start_provider(host).create(HostFileProvider, wanted(host))
    host.inject(faults.RefuseConnections())
    with pytest.raises(StepFailed, match="`pulumi state delete`"):
        start_provider(host, own=True).delete(HostFileProvider, made)


def test_a_binary_file_in_its_place_shows_as_drift(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    made = provider.create(HostFileProvider, wanted(host))
    host.path(PATH).write_bytes(b"\0\xff" * 300_000)
    live = provider.read(HostFileProvider, made)
    assert "not text, or too large" in live.inputs["content"]
    assert provider.diff(HostFileProvider, live.outputs, wanted(host)).changes
    made.outputs = live.outputs
    provider.update(HostFileProvider, made, wanted(host))
    assert host.path(PATH).read_text() == "a: 1\n"


def test_the_key_may_be_a_secret_of_the_stack_and_is_never_shown(
    host: SimulatedHost, tmp_path: Path
) -> None:
    key = host.client_key.read_text()
    config = {"gpu-clusters:ssh-private-key": key}
    with provider_process(tmp_path / "err", config=config) as provider:
        provider.create(HostFileProvider, wanted(host))
    broken = {"gpu-clusters:ssh-private-key": key[:200]}
    with provider_process(tmp_path / "err", config=broken) as provider:
        with pytest.raises(StepFailed, match="stack secret gpu-clusters:ssh-private-key") as failed:
            provider.create(HostFileProvider, wanted(host))
        shown = str(failed.value) + (tmp_path / "err").read_text()
    assert not any(line in shown for line in key.splitlines()[1:3])
