"""Pure parts of the kubernetes stand-in: shapes, ownership, diffs and checks of objects."""

from __future__ import annotations

import base64

import pytest

from engine.answers import ProviderError
from engine.stand_ins.calls import Call, Kind, Resource
from engine.stand_ins.kubernetes import checking, options
from engine.stand_ins.kubernetes.diffing import Comparison, diff
from engine.stand_ins.kubernetes.kubeconfig import find, load
from engine.stand_ins.kubernetes.objects import (
    checkpoint,
    prune,
)
from engine.stand_ins.kubernetes.release_spec import flags, refusals
from engine.stand_ins.kubernetes.releases import resource_names
from engine.stand_ins.kubernetes.replacement import Mutability
from engine.stand_ins.kubernetes.resources import refreshed_inputs
from engine.values import UNKNOWN, Secret
from tests.engine.stand_ins.plugin import kubeconfig, urn
from tests.fixtures.tables import beside


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def check(token: str, news: dict, olds: dict | None = None, **options_: object):
    resource = Resource(urn(token, "settings"))
    return checking.check(Call(resource, news=news, old_inputs=olds or {}, **options_))


def compared(old: dict, new: dict, live: dict | None = None, dry_run=None, **more):
    ignored = more.pop("ignored", ())
    comparison = Comparison(
        live=live or old,
        old_inputs=old,
        new_inputs=new,
        namespaced=True,
        default_namespace="default",
    )
    return diff(comparison, Mutability(**more), ignored, dry_run)


def config_map(data: dict, name: str = "x", **annotations: str) -> dict:
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_what_the_server_adds_is_left_out_of_a_comparison() -> None:
    live = {
        "a": 1,
        "added": 2,
        "l": [{"name": "x", "v": 1, "d": 0}, {"name": "injected"}],
        "s": ["p", "q"],
    }
    shape = {"a": 0, "gone": 0, "l": [{"name": "x", "v": 0}], "s": ["p"]}
    assert prune(live, shape) == {"a": 1, "l": [{"name": "x", "v": 1}], "s": ["p", "q"]}
    # Named items are paired by name, whatever their order.
    named = [{"name": "b", "v": 2}, {"name": "a", "v": 1}]
    shape = [{"name": "a", "v": 0}, {"name": "b", "v": 0}]
    assert prune(named, shape) == [{"name": "a", "v": 1}, {"name": "b", "v": 2}]


def test_the_data_of_a_secret_is_secret_whatever_the_program_says() -> None:
    live = {"apiVersion": "v1", "kind": "Secret", "data": {"k": "dg=="}}
    outputs = checkpoint(
        live, {**live, "stringData": {"k": "v"}}, {}, manager="m", api_version="v1"
    )
    assert outputs["data"] == Secret({"k": "dg=="})
    assert outputs["__inputs"]["stringData"] == Secret({"k": "v"})


def test_a_name_is_made_up_once_and_then_kept() -> None:
    token = "kubernetes:core/v1:ConfigMap"
    first = check(token, {}).inputs
    assert first["apiVersion"] == "v1"
    assert first["metadata"]["name"].startswith("settings-")
    assert check(token, {"data": {}}, first).inputs["metadata"] == first["metadata"]
    # The engine's seed decides it, so that preview and update agree.
    assert check(token, {}, seed=b"s").inputs == check(token, {}, seed=b"s").inputs
    # A name not known yet is no missing name.
    unknown = {"name": UNKNOWN}
    assert check(token, {"metadata": unknown}).inputs["metadata"] == unknown


REFUSED = beside(__file__, "refused.yaml")


@pytest.mark.parametrize(("said", "kind", "news"), REFUSED["kubernetes"])
def test_what_the_stand_in_cannot_do_is_refused_by_name(said, kind, news) -> None:
    (failure,) = check(f"kubernetes:core/v1:{kind}", news).failures
    assert said in failure.reason


@pytest.mark.parametrize(("said", "given"), REFUSED["options"])
def test_provider_options_that_cannot_be_followed_are_refused_by_name(said, given) -> None:
    (failure,) = options.check(given).failures
    assert said in failure.reason


@pytest.mark.parametrize(("said", "given"), REFUSED["releases"])
def test_options_of_releases_that_cannot_be_followed_are_refused_by_name(said, given) -> None:
    (failure,) = refusals({"chart": "x", **given})
    assert said in failure.reason


def test_what_is_asked_of_helm() -> None:
    assert not refusals({"chart": "x", "lint": False, "postrender": "", "compat": "true"})
    spec = {"maxHistory": 3, "skipCrds": True}
    assert flags("install", spec) == ["--skip-crds", "--wait", "--timeout", "300s"]
    # The history is limited at an upgrade only.
    upgrade = ["--skip-crds", "--history-max", "3", "--wait", "--timeout", "7s"]
    assert flags("upgrade", {**spec, "timeout": 7}) == upgrade
    documents = [f"kind: A\napiVersion: v1\nmetadata: {{name: {name}}}\n" for name in "yx"]
    assert resource_names("---\n".join(documents)) == {"A/v1": ["x", "y"]}


OLD = config_map({"a": "1"})
NEW = config_map({"a": "2"})
MARKS = {"pulumi.com/autonamed": "true"}
REPLACED = {"data.a": Kind.UPDATE_REPLACE}


@pytest.mark.parametrize(
    ("old", "new", "more", "changes", "old_one_first"),
    [
        (OLD, OLD, {}, {}, False),
        (OLD, NEW, {}, REPLACED, True),
        # With a made-up name, the new one can be there beside the old one.
        (config_map({"a": "1"}, **MARKS), config_map({"a": "2"}, **MARKS), {}, REPLACED, False),
        (OLD, NEW, {"config_map": True}, {"data.a": Kind.UPDATE}, False),
        (OLD, NEW, {"ignored": ["data"]}, {}, False),
        (OLD, config_map({"a": UNKNOWN}), {}, REPLACED, True),
        (
            config_map({}),
            config_map({}, name="y"),
            {},
            {"metadata.name": Kind.UPDATE_REPLACE},
            False,
        ),
    ],
    ids=["same", "fixed name", "made-up name", "in place", "ignored", "unknown", "new name"],
)
def test_a_config_map_is_compared(old, new, more, changes, old_one_first) -> None:
    def never(_):
        raise AssertionError

    found = compared(old, new, dry_run=never if old is new else None, **more)
    assert found.changes == changes
    assert found.delete_before_replace is old_one_first


def test_texts_of_a_secret_are_compared_with_what_the_server_made_of_them() -> None:
    old = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"k": "v"},
    }
    live = {**old, "data": {"k": b64("v")}}
    del live["stringData"]
    assert not compared(old, old, live).changes
    changed = compared(old, {**old, "stringData": {"k": "w"}}, live)
    assert changed.changes == {"stringData.k": Kind.UPDATE_REPLACE}


def test_after_a_refresh_a_secret_keeps_the_texts_that_still_hold() -> None:
    old = {"kind": "Secret", "stringData": {"same": "1", "changed": "2"}}
    live = {"kind": "Secret", "data": {"same": b64("1"), "changed": b64("x")}}
    assert refreshed_inputs(live, old, {"kind": "Secret"}) == {
        "kind": "Secret",
        "stringData": {"same": "1"},
        "data": {"changed": b64("x")},
    }


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: [", "not YAML"),
        ("just text", "not a mapping"),
        ("current-context: nope\ncontexts: [{name: c}]", "no context 'nope'; it has: c"),
        (kubeconfig(""), "no server address"),
        (kubeconfig(exec={"command": "x"}), "'exec'"),
        (
            kubeconfig(**{"client-certificate-data": "?", "client-key-data": "?"}),
            "not base64",
        ),
        (kubeconfig(tokenFile="/nowhere/token"), "/nowhere/token"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_with_the_reason(text, word) -> None:
    with pytest.raises(ProviderError, match=word.replace("(", r"\(")):
        load(text)


def test_a_kubeconfig_gives_address_and_credentials_and_is_named_if_it_is_not_there(
    tmp_path, monkeypatch
) -> None:
    cluster = load(kubeconfig())
    assert cluster.server == "https://a:6443"
    assert cluster.headers == {"Authorization": "Bearer t"}
    assert cluster.namespace == "default"
    with pytest.raises(ProviderError, match="missing"):
        find(str(tmp_path / "missing"))
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    with pytest.raises(ProviderError, match="2 files"):
        find("")


def test_a_variable_that_is_not_followed_is_refused_by_name(monkeypatch) -> None:
    monkeypatch.setenv("PULUMI_K8S_ENABLE_PATCH_FORCE", "false")
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    given = {"kubeconfig": Secret(kubeconfig()), "enableServerSideApply": "true"}
    assert not options.check({**given, "deleteUnreachable": True}).failures
    assert options.parse({"deleteUnreachable": True}).delete_unreachable
    monkeypatch.setenv("PULUMI_K8S_ENABLE_PATCH_FORCE", "true")
    (failure,) = options.check({}).failures
    assert "PULUMI_K8S_ENABLE_PATCH_FORCE is set" in failure.reason


BEFORE = {"kubeconfig": kubeconfig()}
ELSEWHERE = {"kubeconfig": kubeconfig("https://b")}


@pytest.mark.parametrize(
    ("old", "new", "replaces"),
    [
        (BEFORE, {"kubeconfig": kubeconfig(token="new")}, []),
        (BEFORE, ELSEWHERE, ["kubeconfig"]),
        (BEFORE, {"kubeconfig": UNKNOWN}, ["kubeconfig"]),
        ({**BEFORE, "clusterIdentifier": "a"}, {**ELSEWHERE, "clusterIdentifier": "a"}, []),
        (
            {**BEFORE, "clusterIdentifier": "a"},
            {**BEFORE, "clusterIdentifier": "b"},
            ["clusterIdentifier"],
        ),
        (BEFORE, {**BEFORE, "deleteUnreachable": True}, []),
    ],
)
def test_only_another_cluster_replaces_the_provider(old, new, replaces) -> None:
    found = options.diff(old, new)
    assert found.changes
    assert found.replaces == replaces
