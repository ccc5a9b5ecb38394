"""The kubernetes stand-in when no API server answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf import empty_pb2

from engine.answers import ProviderError
from engine.values import UNKNOWN
from tests.engine.stand_ins.plugin import Plugin, State, kubeconfig, running, urn

CONFIG_MAP = urn("kubernetes:core/v1:ConfigMap", "settings")
QUOTA = urn("kubernetes:core/v1:ResourceQuota", "quota")


@pytest.fixture(scope="module")
def process(closed_port: int) -> Iterator[Plugin]:
    with running("kubernetes") as plugin:
        plugin.configure(kubeconfig=kubeconfig(f"http://127.0.0.1:{closed_port}"))
        yield plugin


@pytest.fixture
def away(process: Plugin) -> Plugin:
    """It knows of a quota."""
    plugin = process.anew()
    record(plugin)
    return plugin


def quota(cpu: object) -> dict:
    return {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": {"cpu": cpu}}}


def record(plugin: Plugin) -> None:
    checked = plugin.check(QUOTA, quota("1"))
    plugin.state[QUOTA] = State("n/q", checked, {**checked, "__inputs": checked})


def test_it_says_so_once_and_previews_compare_with_the_state(away: Plugin) -> None:
    (warning,) = away.engine.texts("WARNING")
    assert "does not answer" in warning
    assert "Previews compare with the state only" in warning
    checked = away.check(CONFIG_MAP, {"data": {"a": UNKNOWN}})
    assert checked["metadata"]["namespace"] == "default"
    assert away.create(CONFIG_MAP, checked, preview=True).outputs == checked
    assert away.changes(QUOTA, away.check(QUOTA, quota("2"))) == {"spec.hard.cpu": "update"}
    assert away.changes(QUOTA, away.check(QUOTA, quota("1"))) == {}


@pytest.mark.parametrize("step", ["create", "update", "delete", "read"])
def test_a_step_that_needs_the_cluster_fails_with_the_way_out(away: Plugin, step) -> None:
    arguments = [away.state[QUOTA].inputs] if step in ("create", "update") else []
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1.* does not answer.*deleteUnreachable"):
        getattr(away, step)(QUOTA, *arguments)


def test_what_was_in_a_cluster_that_is_gone_can_leave_the_state(closed_port: int) -> None:
    with running("kubernetes", PULUMI_K8S_DELETE_UNREACHABLE="true") as plugin:
        plugin.configure(kubeconfig=kubeconfig(f"http://127.0.0.1:{closed_port}"))
        record(plugin)
        assert plugin.read(QUOTA) is None
        plugin.delete(QUOTA)


def test_before_it_is_configured_it_tells_its_version_and_refuses_what_it_cannot_follow() -> None:
    with running("kubernetes") as plugin:
        plugin.provider.handshake("", "", "")
        assert plugin.provider.accept_secrets
        assert plugin.provider._call("GetPluginInfo", empty_pb2.Empty()).version == "4.34.2"
        ((name, reason),) = plugin.configure(renderYamlToDirectory="/somewhere")
        assert name == "renderYamlToDirectory"
        assert "not supported by the kubernetes stand-in" in reason
        with pytest.raises(ProviderError, match=r"kubeconfig /nowhere/config .* cannot be read"):
            plugin.configure(kubeconfig="/nowhere/config")
