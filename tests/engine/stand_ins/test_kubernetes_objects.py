"""Pure parts of the kubernetes stand-in: shapes, ownership, diffs and checks of objects."""

from __future__ import annotations

import base64

import pytest

from engine.answers import ProviderError
from engine.stand_ins.calls import Call, Kind, Resource
from engine.stand_ins.kubernetes import checking, kubeconfig, options
from engine.stand_ins.kubernetes.diffing import Comparison, diff
from engine.stand_ins.kubernetes.objects import (
    checkpoint,
    kind_of_token,
    parse_identifier,
    prune,
    to_object,
)
from engine.stand_ins.kubernetes.replacement import Mutability
from engine.stand_ins.kubernetes.resources import refreshed_inputs
from engine.values import UNKNOWN, Secret
from tests.engine.stand_ins.plugin import urn


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


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("kubernetes:core/v1:Namespace", ("v1", "Namespace")),
        ("kubernetes:cilium.io/v2:CiliumNetworkPolicy", ("cilium.io/v2", "CiliumNetworkPolicy")),
    ],
)
def test_a_type_token_names_version_and_kind_and_an_id_the_namespace(token, expected) -> None:
    kind = kind_of_token(token)
    assert (kind.api_version, kind.kind) == expected
    assert parse_identifier("ns/x") == ("ns", "x")
    assert parse_identifier("x") == ("", "x")


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


def test_schemas_get_the_dashes_that_python_cannot_spell_and_give_them_back() -> None:
    obj = to_object({"kind": "X", "spec": {"x_kubernetes_preserve_unknown_fields": True}})
    assert obj["spec"] == {"x-kubernetes-preserve-unknown-fields": True}
    outputs = checkpoint(obj, obj, {}, manager="m", api_version="v1")
    assert outputs["spec"] == {"x_kubernetes_preserve_unknown_fields": True}


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


@pytest.mark.parametrize(
    ("token", "news", "word"),
    [
        ("kubernetes:core/v1:NamespacePatch", {"kind": "Namespace"}, "metadata.name"),
        ("kubernetes:core/v1:ConfigMapList", {"kind": "ConfigMapList", "items": []}, "one by one"),
        ("kubernetes:core/v1:Pod", {"metadata": {"generateName": "x"}}, "generateName"),
        (
            "kubernetes:core/v1:Pod",
            {"metadata": {"name": "x", "annotations": {"pulumi.com/replaceUnready": "true"}}},
            "replaceUnready",
        ),
        (
            "kubernetes:core/v1:Pod",
            {"metadata": {"name": "x", "annotations": {"pulumi.com/waitFor": "jsonpath={.a}"}}},
            "waitFor",
        ),
    ],
)
def test_what_the_stand_in_cannot_do_is_refused_by_name(token, news, word) -> None:
    (failure,) = check(token, news).failures
    assert word in failure.reason


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


def config(server: str = "https://a:6443", user: dict | None = None, name: str = "c") -> str:
    return str(
        {
            "current-context": name,
            "contexts": [{"name": name, "context": {"cluster": name, "user": "u"}}],
            "clusters": [{"name": name, "cluster": {"server": server}}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
        }
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: [", "not YAML"),
        ("just text", "not a mapping"),
        ("current-context: nope\ncontexts: [{name: c}]", "no context 'nope'; it has: c"),
        (config(server=""), "no server address"),
        (config(user={"exec": {"command": "x"}}), "'exec'"),
        (config(user={"client-certificate-data": "?", "client-key-data": "?"}), "not base64"),
        (config(user={"tokenFile": "/nowhere/token"}), "/nowhere/token"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_refused_with_the_reason(text, word) -> None:
    with pytest.raises(ProviderError, match=word.replace("(", r"\(")):
        kubeconfig.load(text)


def test_a_kubeconfig_gives_address_and_credentials_and_is_named_if_it_is_not_there(
    tmp_path, monkeypatch
) -> None:
    cluster = kubeconfig.load(config())
    assert cluster.server == "https://a:6443"
    assert cluster.headers == {"Authorization": "Bearer t"}
    assert cluster.namespace == "default"
    with pytest.raises(ProviderError, match="missing"):
        kubeconfig.find(str(tmp_path / "missing"))
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    with pytest.raises(ProviderError, match="2 files"):
        kubeconfig.find("")


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"renderYamlToDirectory": "/x"}, "renderYamlToDirectory"),
        ({"context": "other"}, "context is not supported"),
        ({"namespace": "n"}, "namespace is not supported"),
        ({"skipUpdateUnreachable": True}, "skipUpdateUnreachable is not supported"),
        ({"kubeClientSettings": '{"qps":5}'}, "kubeClientSettings"),
        ({"enableServerSideApply": "false"}, "server-side apply only"),
        ({"enableServerSideApply": False}, "server-side apply only"),
        ({"deleteUnreachable": "maybe"}, "true or false"),
        ({"nonsense": 1}, "not a provider option"),
    ],
)
def test_provider_options_that_cannot_be_followed_are_refused_by_name(given, word) -> None:
    (failure,) = options.check(given).failures
    assert word in failure.reason


def test_a_variable_that_is_not_followed_is_refused_by_name(monkeypatch) -> None:
    monkeypatch.setenv("PULUMI_K8S_ENABLE_PATCH_FORCE", "false")
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    given = {"kubeconfig": Secret(config()), "enableServerSideApply": "true"}
    assert not options.check({**given, "deleteUnreachable": True}).failures
    assert options.parse({"deleteUnreachable": True}).delete_unreachable
    monkeypatch.setenv("PULUMI_K8S_ENABLE_PATCH_FORCE", "true")
    (failure,) = options.check({}).failures
    assert "PULUMI_K8S_ENABLE_PATCH_FORCE is set" in failure.reason


BEFORE = {"kubeconfig": config()}
ELSEWHERE = {"kubeconfig": config("https://b")}


@pytest.mark.parametrize(
    ("old", "new", "replaces"),
    [
        (BEFORE, {"kubeconfig": config(user={"token": "new"})}, []),
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
