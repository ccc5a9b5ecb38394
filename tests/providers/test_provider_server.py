"""Our provider as an engine meets it: what it keeps of the configuration, and what it says of itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import provider_pb2

from tests.providers.provider_process import ProviderProcess, provider_process

KEY = "ssh-private-key"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    stderr: Path = tmp_path_factory.mktemp("provider") / "err"
    with provider_process(stderr) as process:
        yield process


def struct(values: dict[str, Any]) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(values)
    return made


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
