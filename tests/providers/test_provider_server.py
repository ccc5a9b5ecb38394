"""Our provider as an engine meets it: what it keeps of the configuration and of state; many steps at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from pulumi.dynamic import ResourceProvider
from pulumi.runtime.proto import provider_pb2

from gpuclusters.core import codes
from gpuclusters.providers.resource import Resource
from gpuclusters.providers.server import PROVIDERS
from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.waiting import eventually
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import (
    ProviderProcess,
    StepFailed,
    provider_process,
    struct,
)

KEY = "ssh-private-key"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    stderr: Path = tmp_path_factory.mktemp("provider") / "err"
    with provider_process(stderr) as process:
        yield process


def test_of_the_stacks_configuration_the_key_alone_is_kept(provider: ProviderProcess) -> None:
    """All keys of our namespace come to us; kept in the state, the rest would be a change with every edit."""
    news = struct({KEY: "secret", "caas": "{}", "cluster-type": "caas"})
    answer = provider.stub.CheckConfig(provider_pb2.CheckRequest(news=news))
    assert MessageToDict(answer.inputs) == {KEY: "secret"}


@pytest.mark.parametrize(
    ("olds", "news", "changes"),
    [
        ({}, {KEY: "a"}, provider_pb2.DiffResponse.DIFF_SOME),
        ({KEY: "a"}, {KEY: "b"}, provider_pb2.DiffResponse.DIFF_SOME),
        ({KEY: "a"}, {KEY: "a"}, provider_pb2.DiffResponse.DIFF_NONE),
    ],
)
def test_another_key_is_taken_and_replaces_nothing(
    provider: ProviderProcess, olds: dict[str, str], news: dict[str, str], changes: int
) -> None:
    """Without a difference the engine goes on with the key of the first run."""
    request = provider_pb2.DiffRequest(olds=struct(olds), news=struct(news))
    answer = provider.stub.DiffConfig(request)
    assert (answer.changes, list(answer.replaces)) == (changes, [])


def test_the_types_are_those_that_were_published() -> None:
    assert sorted(PROVIDERS) == Path(__file__).with_name("types.txt").read_text().split()


def test_each_type_has_its_resource_and_its_provider() -> None:
    for name, place in PROVIDERS.items():
        path, _, kind = place.partition(":")
        module = import_module(path)
        resource = getattr(module, name)
        assert issubclass(resource, Resource)
        assert resource.type_token == f"gpu-clusters:gpu:{name}"
        assert issubclass(getattr(module, kind), ResourceProvider)


def test_codes_that_were_published_are_still_there() -> None:
    published = Path(__file__).with_name("codes.txt").read_text().split()
    assert not set(published) - set(codes.listed()), "codes are never renamed or taken away"


HANGING = 6
"""More than the four calls at a time that the SDK's own process would take."""


def test_a_step_is_taken_while_others_hang(hosts: Hosts, start_provider: StartProvider) -> None:
    well, *ill = hosts(1 + HANGING)
    # None of them may give up while the others are waited for.
    patience = {"GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS": "600"}
    provider = start_provider(well, own=True, **patience)

    def create(host: SimulatedHost) -> str:
        file = {"path": "/etc/gpu-clusters/a", "content": "a"}
        return provider.create("HostFile", {"connection": host.connection, **file}).id

    def hang(host: SimulatedHost) -> None:
        with contextlib.suppress(StepFailed):  # the provider is killed in the end
            create(host)

    for host in ill:
        host.inject(faults.Hang())
    threads = [threading.Thread(target=hang, args=(host,)) for host in ill]
    for thread in threads:
        thread.start()
    eventually(lambda: all(host.journal("connection") for host in ill), "all steps have begun")
    assert create(well) == f"{well.name}:/etc/gpu-clusters/a"
    assert all(thread.is_alive() for thread in threads)
    provider.kill()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("background", [False, True])
def test_it_ends_without_a_word_when_the_engine_interrupts_it(
    background: bool, tmp_path: Path
) -> None:
    """Pulumi's engine does so after its last step, and may show what a plugin has said.

    What a shell starts in the background has the signal ignored.
    """
    own = signal.signal(signal.SIGINT, signal.SIG_IGN if background else signal.SIG_DFL)
    try:
        with provider_process(tmp_path / "err") as provider:
            provider.process.send_signal(signal.SIGINT)
            assert provider.process.wait(60) == 0
    finally:
        signal.signal(signal.SIGINT, own)
    assert (tmp_path / "err").read_text() == ""
