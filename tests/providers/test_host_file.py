"""One file on a host, through the SDK's provider process and real SSH."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from gpuclusters.host.model import HostConnection
from lab.hosts import faults
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import (
    INPUTS,
    ProviderProcess,
    Resource,
    inputs_of,
    provider_process,
)

FAULTS = beside(__file__, "file_faults.yaml")
PATH = INPUTS["HostFile"]["path"]
wanted = partial(inputs_of, "HostFile")


@pytest.fixture
def file(host: SimulatedHost, provider: ProviderProcess) -> Resource:
    return provider.of("HostFile", wanted(host))


def test_a_file_lives_from_create_to_delete(host: SimulatedHost, file: Resource) -> None:
    file.wanted["mode"] = "0640"
    made = file.create()
    assert file.id == f"{host.name}:{PATH}"
    assert host.path(PATH).read_text() == "a: 1\n"
    assert host.path(PATH).stat().st_mode & 0o7777 == 0o640
    assert made["content"] == "a: 1\n"  # inputs are inside the outputs
    before = host.path(PATH).stat().st_ino
    assert file.create() == made
    assert host.path(PATH).stat().st_ino == before
    difference = file.diff(content="a: 2\n")
    assert (difference.changes, difference.replaces) == (True, [])
    file.update(content="a: 2\n")
    assert host.path(PATH).read_text() == "a: 2\n"


def test_a_different_file_that_is_there_already_is_refused_and_an_equal_one_can_be_adopted(
    host: SimulatedHost, file: Resource
) -> None:
    host.path(PATH).parent.mkdir(parents=True, exist_ok=True)
    host.path(PATH).write_text("by hand\n")
    other = f"{PATH} has other content from line 1 on (8 bytes instead of 5"
    file.refused("create", other, "move it away, or make it equal [host.file-foreign]")
    host.path(PATH).chmod(0o600)
    said = file.refused("create", other, f"{PATH} has mode 0600 instead of 0644", adopt=True)
    assert said.startswith(f"adopt HostFile {host.name}:{PATH}: what is there differs")
    assert host.path(PATH).read_text() == "by hand\n"

    host.path(PATH).write_text("a: 1\n")
    host.path(PATH).chmod(0o644)
    file.create(adopt=True)
    assert not file.differs()


def test_drift_shows_after_a_refresh_is_kept_from_deletion_and_put_back_by_the_next_update(
    host: SimulatedHost, file: Resource
) -> None:
    file.create()
    host.path(PATH).write_text("by hand\n")
    file.refused("delete", "changed on the host since it was written here")
    live = file.drifted()
    assert live.inputs["content"] == "by hand\n"
    assert [one["code"] for one in live.outputs["drift"]] == ["host.file-changed"]
    file.update()
    assert host.path(PATH).read_text() == "a: 1\n"
    target = HostConnection.model_validate(host.connection).target
    put_back = f"{target}: {PATH} has other content from line 1"
    assert file.process.stderr.read_text().count(put_back) == 1

    file.update(content="a: 2\n")
    assert host.path(PATH).read_text() == "a: 2\n"
    said = file.process.stderr.read_text()
    assert said.count(put_back) == 1, "what was declared anew is no drift"

    host.path(PATH).write_bytes(b"\0\xff" * 300_000)
    assert "not text, or too large" in file.refresh().inputs["content"]
    assert file.differs()
    file.update()
    assert host.path(PATH).read_text() == "a: 1\n"


def test_eight_files_at_once_use_one_connection(
    host: SimulatedHost, provider: ProviderProcess
) -> None:
    host.forget()
    with ThreadPoolExecutor(8) as pool:
        news = [wanted(host, path=f"/etc/many/{n}.conf") for n in range(8)]
        made = list(pool.map(lambda n: provider.create("HostFile", n), news))
    assert len({m.id for m in made}) == 8
    assert len(host.journal("connection")) == 1


def test_another_address_is_the_same_host_and_another_name_a_replacement(
    host: SimulatedHost, file: Resource
) -> None:
    file.made.outputs = wanted(host, sha256="0" * 64)
    assert file.diff(connection=host.connection | {"port": 1}).replaces == []
    renamed = file.diff(connection=host.connection | {"host": "other"})
    assert (renamed.replaces, renamed.delete_before_replace) == (["connection"], True)


@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_says_which_host_what_was_tried_and_what_to_do(
    host: SimulatedHost, file: Resource, start_provider: StartProvider, kind: str
) -> None:
    row = FAULTS[kind]
    host.inject(faults.parse(kind, row.get("values", {})))
    # Only where it is the time that is to run out: on a busy machine two seconds are not much.
    short = {"GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS": "2"}
    process = start_provider(host, **(short if kind == "hang" else {}))
    place = f"{host.name} ({host.endpoint.address}:{host.endpoint.port})"
    tried = process.of("HostFile", wanted(host, content="token: top-secret-value\n"))
    message = tried.refused("create", f"{place}: could not ", PATH, *row["said"])
    assert "top-secret-value" not in message
    # One line, without the SDK's traceback.
    assert message.startswith(place)
    assert len(message.splitlines()) == 1
    assert not host.path(PATH).exists()
    host.clear_faults()
    file.create()


def test_reads_go_on_over_a_connection_that_keeps_breaking_and_a_host_that_is_gone_can_be_let_go(
    host: SimulatedHost, file: Resource, start_provider: StartProvider
) -> None:
    file.create()
    host.inject(faults.DropConnectionAfter(bytes=12000))
    host.forget()
    file.process = start_provider(host, own=True)
    for _ in range(12):
        assert file.look().id == file.id
    assert len(host.journal("connection")) > 1
    host.clear_faults()
    host.inject(faults.RefuseConnections())
    file.process = start_provider(host, own=True)
    file.refused("delete", "`pulumi state delete`")


def test_the_key_may_be_a_secret_of_the_stack_and_is_never_shown(
    host: SimulatedHost, tmp_path: Path
) -> None:
    key = host.client_key.read_text()
    name = "gpu-clusters:ssh-private-key"
    with provider_process(tmp_path / "err", config={name: key}) as provider:
        provider.create("HostFile", wanted(host))
    with provider_process(tmp_path / "err", config={name: key[:200]}) as provider:
        said = provider.of("HostFile", wanted(host)).refused("create", f"stack secret {name}")
    shown = said + (tmp_path / "err").read_text()
    assert not any(line in shown for line in key.splitlines()[1:3])
