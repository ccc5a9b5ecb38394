"""The kubernetes stand-in when no API server answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2

from engine.values import UNKNOWN
from tests.engine.stand_ins.plugin import Plugin, State, StepError, running, urn

CONFIG_MAP = urn("kubernetes:core/v1:ConfigMap", "settings")
QUOTA = urn("kubernetes:core/v1:ResourceQuota", "quota")


def kubeconfig(port: int) -> str:
    """A cluster at this port."""
    return yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
    )


@pytest.fixture(scope="module")
def process(closed_port: int) -> Iterator[Plugin]:
    with running("kubernetes") as plugin:
        plugin.configure(kubeconfig=kubeconfig(closed_port))
        yield plugin


@pytest.fixture
def away(process: Plugin) -> Plugin:
    return Plugin(process.stub, process.engine)


def quota(cpu: object) -> dict:
    return {"metadata": {"name": "q", "namespace": "n"}, "spec": {"hard": {"cpu": cpu}}}


def recorded(plugin: Plugin, inputs: dict) -> dict:
    checked = plugin.check(QUOTA, inputs)
    plugin.state[QUOTA] = State("n/q", checked, {**checked, "__inputs": checked})
    return checked


def test_it_says_so_once_and_previews_go_on(away: Plugin) -> None:
    (warning,) = away.engine.texts("WARNING")
    assert "does not answer" in warning
    assert "Previews compare with the state only" in warning
    checked = away.check(CONFIG_MAP, {"data": {"a": UNKNOWN}})
    assert checked["metadata"]["namespace"] == "default"
    assert away.create(CONFIG_MAP, checked, preview=True).outputs == checked


def test_a_diff_compares_with_the_state(away: Plugin) -> None:
    recorded(away, quota("1"))
    assert away.changes(QUOTA, away.check(QUOTA, quota("2"))) == {"spec.hard.cpu": "UPDATE"}
    assert away.changes(QUOTA, away.check(QUOTA, quota("1"))) == {}


@pytest.mark.parametrize("step", ["create", "update", "delete", "read"])
def test_a_step_that_needs_the_cluster_fails_with_the_way_out(away: Plugin, step) -> None:
    checked = recorded(away, quota("1"))
    arguments = [checked] if step in ("create", "update") else []
    with pytest.raises(StepError, match=r"127\.0\.0\.1.* does not answer.*deleteUnreachable"):
        getattr(away, step)(QUOTA, *arguments)


def test_what_was_in_a_cluster_that_is_gone_can_leave_the_state(closed_port: int) -> None:
    with running("kubernetes", PULUMI_K8S_DELETE_UNREACHABLE="true") as plugin:
        plugin.configure(kubeconfig=kubeconfig(closed_port))
        recorded(plugin, quota("1"))
        assert plugin.read(QUOTA) is None
        plugin.delete(QUOTA)


def test_a_kubeconfig_that_cannot_be_used_stops_the_run() -> None:
    with (
        running("kubernetes") as plugin,
        pytest.raises(StepError, match=r"kubeconfig /nowhere/config .* cannot be read"),
    ):
        plugin.configure(kubeconfig="/nowhere/config")


def test_options_it_cannot_follow_are_refused_before_it_is_configured(away: Plugin) -> None:
    ((name, reason),) = away.configure(renderYamlToDirectory="/somewhere")
    assert name == "renderYamlToDirectory"
    assert "not supported by the kubernetes stand-in" in reason


def test_it_tells_the_version_it_stands_in_for_and_that_it_takes_secrets(away: Plugin) -> None:
    assert away.call("GetPluginInfo", empty_pb2.Empty()).version == "4.34.2"
    answer = away.call("Handshake", provider_pb2.ProviderHandshakeRequest())
    assert answer.accept_secrets
    assert answer.accept_outputs
