"""The kubernetes stand-in against a real API server."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from pulumi.runtime.proto import provider_pb2

from engine.answers import InitFailedError, ProviderError
from engine.values import UNKNOWN, Secret, Unknown
from lab import tools
from tests.engine.stand_ins.plugin import Plugin, in_background, running, urn
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab

CONFIG_MAP = urn("kubernetes:core/v1:ConfigMap", "settings")
SECRET = urn("kubernetes:core/v1:Secret", "token")
NAMESPACE = urn("kubernetes:core/v1:Namespace", "tenant")
DEFINITION = urn("kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", "tenancies")
DEPLOYMENT = urn("kubernetes:apps/v1:Deployment", "web")
QUOTA = urn("kubernetes:core/v1:ResourceQuota", "quota")
OURS = {"annotations": {"pulumi.com/patchFieldManager": "gpu-clusters"}}
RUNTIME_CLASS = urn("kubernetes:node.k8s.io/v1:RuntimeClass", "kata")


@pytest.fixture
def kubectl(kube_api):
    def run(*arguments: str, stdin: str = "") -> str:
        command = [str(tools.resolve("kubectl")), "--kubeconfig", str(kube_api.kubeconfig)]
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def settings(namespace: str, data: dict, **metadata) -> dict:
    return {"metadata": {"name": "settings", "namespace": namespace, **metadata}, "data": data}


def quota(namespace: str, hard: dict, **metadata) -> dict:
    metadata = {"name": "q", "namespace": namespace, **metadata}
    return {"metadata": metadata, "spec": {"hard": hard}}


def definition(group: str, scope: str = "Namespaced") -> dict:
    free = {"type": "object", "x_kubernetes_preserve_unknown_fields": True}
    spec = {"type": "object", "properties": {"gpus": {"type": "integer"}, "extra": free}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }


def test_an_object_is_made_kept_changed_and_removed(kubernetes: Plugin, namespace, kubectl) -> None:
    name = f"{namespace}-lifecycle"
    inputs = {"metadata": {"name": name, "labels": {"tier": "a"}}}
    assert kubernetes.up(NAMESPACE, inputs).op == "create"
    assert kubernetes.state[NAMESPACE].id == name
    assert kubernetes.outputs(NAMESPACE)["status"] == {"phase": "Active"}
    assert kubernetes.up(NAMESPACE, inputs).op == "same"
    inputs = {"metadata": {"name": name, "labels": {"tier": "b", "x.io/y": "1"}}}
    step = kubernetes.up(NAMESPACE, inputs)
    assert step.op == "update"
    assert step.diff == {"metadata.labels.tier": "update", 'metadata.labels["x.io/y"]': "add"}
    assert kubernetes.up(NAMESPACE, {"metadata": {"name": name}}).op == "update"
    labels = json.loads(kubectl("get", "namespace", name, "-o", "json"))["metadata"]["labels"]
    assert "tier" not in labels
    kubernetes.delete(NAMESPACE)
    assert name not in kubectl("get", "namespaces", "-o", "name").split()


def test_a_quota_is_compared_by_its_values_changed_and_previewed(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    hard = {"cpu": "1000m", "memory": "1024Mi", "requests.nvidia.com/pgpu": 4}
    # Quantities written differently are no change.
    kubernetes.up(QUOTA, quota(namespace, hard))
    assert kubernetes.up(QUOTA, quota(namespace, hard)).op == "same"
    assert kubernetes.refresh(QUOTA) == {}
    step = kubernetes.up(QUOTA, quota(namespace, {"cpu": "1"}))
    assert step.diff["spec.hard.memory"] == "delete"
    live = json.loads(kubectl("-n", namespace, "get", "quota", "q", "-o", "json"))
    assert live["spec"]["hard"] == {"cpu": "1"}
    # An update is previewed without being made, and a preview finds what is not valid.
    changed = kubernetes.check(QUOTA, quota(namespace, {"cpu": "2000m"}))
    assert kubernetes.update(QUOTA, changed, preview=True).outputs["spec"]["hard"] == {"cpu": "2"}
    assert kubernetes.refresh(QUOTA) == {}
    invalid = kubernetes.check(QUOTA, quota(namespace, {"cpu": "many"}))
    with pytest.raises(ProviderError, match=r"ResourceQuota .* could not be created: .*quantities"):
        kubernetes.create(QUOTA, invalid, preview=True)


def test_what_people_change_with_kubectl_is_seen_by_a_refresh_and_put_back(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    inputs = quota(namespace, {"cpu": "1"})
    kubernetes.up(QUOTA, inputs)
    theirs = '{"spec":{"hard":{"cpu":"7","pods":"1"}}}'
    kubectl("-n", namespace, "patch", "quota", "q", "-p", theirs)
    assert kubernetes.up(QUOTA, inputs).op == "same"
    assert kubernetes.refresh(QUOTA) == {"spec.hard.cpu": "update"}
    assert kubernetes.up(QUOTA, inputs).diff == {"spec.hard.cpu": "update"}
    assert kubernetes.outputs(QUOTA)["spec"]["hard"] == {"cpu": "1"}
    assert kubernetes.up(QUOTA, inputs).op == "same"


def test_a_runtime_class_with_another_handler_is_replaced(kubernetes: Plugin, namespace) -> None:
    overhead = {"podFixed": {"cpu": "0.25", "memory": "1024Mi"}}
    inputs = {"metadata": {"name": f"{namespace}-kata"}, "handler": "a", "overhead": overhead}
    kubernetes.up(RUNTIME_CLASS, inputs)
    assert kubernetes.up(RUNTIME_CLASS, inputs).op == "same"
    step = kubernetes.up(RUNTIME_CLASS, {**inputs, "handler": "b"})
    assert step.op == "replace-delete-first"
    assert step.diff == {"handler": "update-replace"}
    kubernetes.delete(RUNTIME_CLASS)


def test_the_servers_own_no_replaces_fields_that_no_table_knows(
    kubernetes: Plugin, namespace
) -> None:
    claim = urn("kubernetes:core/v1:PersistentVolumeClaim", "disk")
    skip = {"pulumi.com/skipAwait": "true"}
    source = {"kind": "PersistentVolumeClaim", "name": "a"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    inputs = {
        "metadata": {"name": "disk", "namespace": namespace, "annotations": skip},
        "spec": {**spec, "dataSource": source},
    }
    kubernetes.up(claim, inputs)
    changed = {**inputs, "spec": {**spec, "dataSource": {**source, "name": "b"}}}
    changes = kubernetes.changes(claim, kubernetes.check(claim, changed))
    assert changes == {"spec.dataSource.name": "update-replace"}


def test_a_definition_and_its_objects_in_one_run(kubernetes: Plugin, namespace) -> None:
    group = f"{namespace}.example.com"
    widget = urn(f"kubernetes:{group}/v1:Widget", "one")
    inputs = {"metadata": {"name": "one", "namespace": namespace}, "spec": {"gpus": 4}}
    checked = kubernetes.check(widget, inputs)
    assert kubernetes.create(widget, checked, preview=True).outputs == checked
    kubernetes.up(DEFINITION, definition(group))
    assert kubernetes.up(DEFINITION, definition(group)).op == "same"
    kubernetes.up(widget, inputs)
    with pytest.raises(ProviderError, match=r"spec\.typo: field not declared"):
        kubernetes.update(widget, {**checked, "spec": {"typo": 1}}, preview=True)
    assert kubernetes.up(widget, inputs).op == "same"
    assert kubernetes.up(widget, {**inputs, "spec": {"gpus": 8}}).op == "update"
    kubernetes.delete(DEFINITION)
    kubernetes.delete(widget)


def test_a_cluster_scoped_kind_gets_no_namespace_even_before_its_definition_is_made(
    kubernetes: Plugin, namespace
) -> None:
    group = f"{namespace}.example.com"
    kubernetes.check(DEFINITION, definition(group, "Cluster"))
    checked = kubernetes.check(
        urn(f"kubernetes:{group}/v1:Widget", "w"), {"metadata": {"name": "w"}}
    )
    assert checked["metadata"] == {"name": "w"}
    pod = kubernetes.check(urn("kubernetes:core/v1:Pod", "p"), {"metadata": {"name": "p"}})
    assert pod["metadata"]["namespace"] == "default"
    widget = urn("kubernetes:nowhere.example.com/v1:Widget", "one")
    with pytest.raises(ProviderError, match=r"knows no nowhere\.example\.com/v1 Widget"):
        kubernetes.up(widget, {"metadata": {"name": "one"}})


def test_a_preview_shows_what_the_server_would_make(kubernetes: Plugin, namespace, kubectl) -> None:
    service = urn("kubernetes:core/v1:Service", "web")
    inputs = {"metadata": {"namespace": namespace}, "spec": {"ports": [{"port": 80}]}}
    shown = kubernetes.create(service, kubernetes.check(service, inputs), preview=True)
    assert shown.id == ""
    assert shown.outputs["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert isinstance(shown.outputs["spec"]["clusterIP"], Unknown)
    assert isinstance(shown.outputs["metadata"]["uid"], Unknown)
    assert "service" not in kubectl("-n", namespace, "get", "services", "-o", "name")


def test_a_preview_shows_inputs_where_it_cannot_ask(kubernetes: Plugin, namespace) -> None:
    kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "1"}))
    checked = kubernetes.check(CONFIG_MAP, settings(namespace, {"a": UNKNOWN}), {})
    assert kubernetes.changes(CONFIG_MAP, checked) == {"data.a": "update-replace"}
    assert kubernetes.create(CONFIG_MAP, checked, preview=True).outputs["data"] == {"a": UNKNOWN}
    checked = kubernetes.check(CONFIG_MAP, settings("made-in-the-same-run", {"a": "1"}))
    assert kubernetes.create(CONFIG_MAP, checked, preview=True).outputs == checked


def test_another_owner_of_a_field_is_named_and_can_be_overruled(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    kubernetes.up(QUOTA, quota(namespace, {"cpu": "1"}))
    theirs = {"apiVersion": "v1", "kind": "ResourceQuota", **quota(namespace, {"cpu": "3"})}
    owner = ("--force-conflicts", "--field-manager", "autoscaler")
    kubectl("apply", "--server-side", *owner, "-f", "-", stdin=json.dumps(theirs))
    wanted = kubernetes.check(QUOTA, quota(namespace, {"cpu": "2"}))
    message = r"spec\.hard\.cpu.* of 'autoscaler'.*pulumi\.com/patchForce"
    for preview in (True, False):
        with pytest.raises(ProviderError, match=message):
            kubernetes.update(QUOTA, wanted, preview=preview)
    force = {"pulumi.com/patchForce": "true"}
    kubernetes.up(QUOTA, quota(namespace, {"cpu": "2"}, annotations=force))
    assert kubernetes.outputs(QUOTA)["spec"]["hard"] == {"cpu": "2"}


def test_an_object_removed_by_hand_is_not_updated_is_gone_after_a_refresh_and_deleting_it_is_done(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "1"}))
    kubectl("-n", namespace, "delete", "configmap", "settings")
    with pytest.raises(ProviderError, match="not found"):
        kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "1"}, labels={"l": "1"}))
    assert kubernetes.read(CONFIG_MAP) is None
    kubernetes.delete(CONFIG_MAP)


def test_an_object_that_exists_is_refused_and_a_preview_does_not_say_so(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    kubectl("-n", namespace, "create", "configmap", "settings", "--from-literal=a=theirs")
    checked = kubernetes.check(CONFIG_MAP, settings(namespace, {"a": "ours"}))
    assert kubernetes.create(CONFIG_MAP, checked, preview=True).outputs == checked
    with pytest.raises(
        ProviderError, match=r'was not successfully created .* configmaps "settings" already exists'
    ):
        kubernetes.create(CONFIG_MAP, checked)


def managers(kubectl, namespace: str) -> set[str]:
    text = kubectl(
        "-n", namespace, "get", "configmap", "settings", "--show-managed-fields", "-o", "json"
    )
    entries = json.loads(text)["metadata"]["managedFields"]
    return {f"{entry['manager']} {entry['operation']}" for entry in entries}


def test_a_create_is_a_post_under_one_name_and_the_first_update_takes_the_fields_over(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "1", "b": "1"}, labels={"l": "1"}))
    assert managers(kubectl, namespace) == {"pulumi-kubernetes Update"}
    recorded = kubernetes.outputs(CONFIG_MAP)["__fieldManager"]
    assert re.fullmatch("pulumi-kubernetes-[0-9a-f]{8}", recorded)
    kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "1", "b": "1"}, labels={"l": "2"}))
    assert managers(kubectl, namespace) == {f"{recorded} Apply"}
    # Another one in the program lets the one before go.
    kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "1", "b": "1"}, labels={"l": "2"}, **OURS))
    assert managers(kubectl, namespace) == {"gpu-clusters Apply"}


def test_with_upsert_what_there_is_is_taken_up_only_if_nobody_else_set_it(
    kube_api, namespace, kubectl
) -> None:
    options = {"kubeconfig": kube_api.kubeconfig.read_text(), "upsertExistingObjects": "true"}
    with running("kubernetes") as first, running("kubernetes") as second:
        for plugin in (first, second):
            plugin.configure(**options)
            assert "stand-in for pulumi-kubernetes 4.34.2" in plugin.engine.texts()[0]
        # A lost create, where the program names its field manager: what it has dropped since is gone.
        first.up(CONFIG_MAP, settings(namespace, {"a": "1", "b": "1"}, **OURS))
        second.up(CONFIG_MAP, settings(namespace, {"a": "2"}, **OURS))
        assert second.outputs(CONFIG_MAP)["data"] == {"a": "2"}
        assert managers(kubectl, namespace) == {"gpu-clusters Apply"}
        # A manager that is drawn anew is another one.
        other = urn("kubernetes:core/v1:ConfigMap", "other")
        first.up(other, settings(namespace, {"a": "1"}, name="other"))
        with pytest.raises(ProviderError, match=r"data\.a of 'pulumi-kubernetes-[0-9a-f]{8}'"):
            second.up(other, settings(namespace, {"a": "2"}, name="other"))
        # A stranger's value is a conflict; what it has not set is added.
        theirs = urn("kubernetes:core/v1:ConfigMap", "theirs")
        kubectl("-n", namespace, "create", "configmap", "theirs", "--from-literal=a=theirs")
        wanted = first.check(theirs, settings(namespace, {"a": "ours"}, name="theirs", **OURS))
        # A preview forces, so that a replacement is no conflict: it does not show this one.
        first.create(theirs, wanted, preview=True)
        with pytest.raises(ProviderError, match=r"data\.a of 'kubectl-create'"):
            first.create(theirs, wanted)
        first.up(theirs, settings(namespace, {"b": "ours"}, name="theirs", **OURS))
        assert first.outputs(theirs)["data"] == {"a": "theirs", "b": "ours"}


@pytest.mark.parametrize("token", ["core/v1:ResourceQuota", "helm.sh/v3:Release"])
def test_what_is_not_in_the_state_is_not_imported(kubernetes: Plugin, token: str) -> None:
    with pytest.raises(ProviderError, match="cannot be imported by the kubernetes stand-in"):
        kubernetes.read(urn(f"kubernetes:{token}", "it"), "default/it")


def test_secrets_stay_secret_in_state_and_messages(kubernetes: Plugin, namespace) -> None:
    about = {"name": "token", "namespace": namespace}
    metadata = {**about, "annotations": {"note": Secret("hush-hush")}}
    inputs = {"metadata": metadata, "stringData": {"key": Secret("s3cr3t-value")}}
    kubernetes.up(SECRET, inputs)
    outputs = kubernetes.state[SECRET].outputs
    assert isinstance(outputs["data"], Secret)
    assert outputs["metadata"]["annotations"]["note"] == Secret("hush-hush")
    assert kubernetes.up(SECRET, inputs).op == "same"
    assert kubernetes.refresh(SECRET) == {}
    other = urn("kubernetes:core/v1:Secret", "other")
    bad = {**inputs, "metadata": {**about, "labels": {"a": Secret("not valid!")}}}
    with pytest.raises(ProviderError) as caught:
        kubernetes.create(other, kubernetes.check(other, bad), preview=True)
    assert "not valid!" not in str(caught.value)
    assert "[secret]" in str(caught.value)


def test_a_deployment_is_waited_for_until_its_pods_run(kubernetes: Plugin, namespace) -> None:
    kubernetes.up(DEPLOYMENT, deployment(namespace, "registry.example/web:1"))
    assert kubernetes.outputs(DEPLOYMENT)["status"]["availableReplicas"] == 1
    step = kubernetes.up(DEPLOYMENT, deployment(namespace, "registry.example/web:2"))
    assert step.diff == {"spec.template.spec.containers[0].image": "update"}
    assert kubernetes.up(DEPLOYMENT, deployment(namespace, "registry.example/web:2")).op == "same"
    kubernetes.delete(DEPLOYMENT)


def deployment(namespace: str, image: str, **pod) -> dict:
    labels = {"app": "web"}
    containers = [{"name": "web", "image": image}]
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0, **pod},
    }
    return {
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def test_what_does_not_become_ready_stays_in_the_state_with_the_reason(
    kubernetes: Plugin, namespace
) -> None:
    for seconds in (1, 10, 100):  # a scheduler that has much to do may not have said it any sooner
        inputs = deployment(namespace, "web", nodeSelector={"nowhere": "true"})
        inputs["metadata"]["name"] = name = f"web-{seconds}"
        said = f"Deployment .*/{name} is not ready after {seconds} s"
        with pytest.raises(InitFailedError, match=said) as caught:
            kubernetes.create(DEPLOYMENT, kubernetes.check(DEPLOYMENT, inputs), timeout=seconds)
        assert caught.value.id == f"{namespace}/{name}"
        assert "spec" in caught.value.outputs
        if reasons := re.findall("Unschedulable|FailedScheduling", str(caught.value.reasons)):
            break
    assert reasons


def test_a_wait_ends_when_the_engine_cancels(kube_api, namespace, kubectl) -> None:
    with running("kubernetes") as plugin:
        plugin.configure(kubeconfig=kube_api.kubeconfig.read_text())
        inputs = deployment(namespace, "web", nodeSelector={"nowhere": "true"})
        checked = plugin.check(DEPLOYMENT, inputs)
        thread, results = in_background(lambda: plugin.create(DEPLOYMENT, checked))
        eventually(lambda: "web" in kubectl("-n", namespace, "get", "deployments", "-o", "name"))
        plugin.provider.cancel()
        thread.join(120)
        assert "stopped while waiting for Deployment" in str(results[0])
        assert results[0].id == f"{namespace}/web"
        with pytest.raises(ProviderError, match="stopped before anything was done"):
            plugin.create(CONFIG_MAP, plugin.check(CONFIG_MAP, settings(namespace, {})))


def test_a_deletion_that_is_held_up_says_by_what_and_stands_in_the_way_of_a_new_object(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    kubernetes.up(CONFIG_MAP, settings(namespace, {}, finalizers=["example.com/hold"]))
    with pytest.raises(
        ProviderError, match=r"still there after 1 s: finalizers .*example\.com/hold"
    ):
        kubernetes.delete(CONFIG_MAP, timeout=1)
    held = kubernetes.state.pop(CONFIG_MAP)
    with pytest.raises(ProviderError, match=r"object is being deleted: .* already exists"):
        kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "2"}))
    kubernetes.state[CONFIG_MAP] = held
    thread, results = in_background(lambda: kubernetes.delete(CONFIG_MAP))
    patch = '{"metadata":{"finalizers":null}}'
    kubectl("-n", namespace, "patch", "configmap", "settings", "--type=merge", "-p", patch)
    thread.join(120)
    assert results == [None]
    kubernetes.up(CONFIG_MAP, settings(namespace, {"a": "2"}))
    assert kubernetes.outputs(CONFIG_MAP)["data"] == {"a": "2"}


def test_an_ignored_field_keeps_what_others_set(kubernetes: Plugin, namespace, kubectl) -> None:
    inputs = deployment(namespace, "web:1")
    kubernetes.up(DEPLOYMENT, inputs)
    kubectl("-n", namespace, "scale", "deployment", "web", "--replicas=2")
    old = kubernetes.state[DEPLOYMENT].inputs
    changed = kubernetes.check(DEPLOYMENT, deployment(namespace, "web:2"), old)
    kubernetes.update(DEPLOYMENT, changed, "spec.replicas")
    assert kubernetes.outputs(DEPLOYMENT)["spec"]["replicas"] == 2
    kubernetes.delete(DEPLOYMENT)


def test_a_patch_sets_fields_of_an_object_and_lets_go_of_them(
    kubernetes: Plugin, namespace, kubectl
) -> None:
    account = urn("kubernetes:core/v1:ServiceAccountPatch", "default")

    def automount() -> object:
        live = kubectl("-n", namespace, "get", "serviceaccount", "default", "-o", "json")
        return json.loads(live).get("automountServiceAccountToken")

    inputs = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": namespace},
        "automountServiceAccountToken": False,
    }
    checked = kubernetes.check(account, inputs)
    assert kubernetes.create(account, checked, preview=True).outputs == checked
    kubernetes.up(account, inputs)
    assert automount() is False
    assert kubernetes.up(account, inputs).op == "same"
    step = kubernetes.up(account, {**inputs, "automountServiceAccountToken": True})
    assert step.diff == {"automountServiceAccountToken": "update"}
    kubernetes.delete(account)
    assert automount() is None


def test_functions_and_components_of_the_real_provider_are_refused_by_name(
    kubernetes: Plugin,
) -> None:
    refused = r"kubernetes:(yaml|helm).* is not part of the kubernetes stand-in"
    with pytest.raises(ProviderError, match=refused):
        kubernetes.provider.invoke("kubernetes:yaml:decode", {}, preview=False)
    chart = provider_pb2.ConstructRequest(type="kubernetes:helm.sh/v4:Chart")
    with pytest.raises(ProviderError, match=refused):
        kubernetes.provider._call("Construct", chart)
