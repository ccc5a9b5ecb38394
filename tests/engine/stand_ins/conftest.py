"""Provider processes shared by the tests of one worker; every test gets a state of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.stand_ins.plugin import Plugin, running
from tests.fixtures.control_plane import KubeCluster


@pytest.fixture(scope="session")
def kubernetes_process(kube_api: KubeCluster) -> Iterator[Plugin]:
    with running("kubernetes") as plugin:
        plugin.configure(kubeconfig=kube_api.kubeconfig.read_text())
        yield plugin


@pytest.fixture
def kubernetes(kubernetes_process: Plugin) -> Plugin:
    kubernetes_process.engine.messages.clear()
    return kubernetes_process.anew()


@pytest.fixture(scope="session")
def command_process() -> Iterator[Plugin]:
    with running("command", SSH_AUTH_SOCK="") as plugin:
        plugin.configure()
        yield plugin


@pytest.fixture
def command(command_process: Plugin) -> Plugin:
    command_process.engine.messages.clear()
    return command_process.anew()
