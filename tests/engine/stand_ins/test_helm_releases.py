"""Helm releases of the kubernetes stand-in: what is asked of helm, and releases on a real API server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from engine.stand_ins.kubernetes.release_spec import flags, refusals
from engine.stand_ins.kubernetes.releases import resource_names
from engine.values import Secret, Unknown
from lab import tools
from tests.engine.stand_ins.plugin import Plugin, State, StepError, in_background, running, urn
from tests.fixtures.waiting import eventually

RELEASE = urn("kubernetes:helm.sh/v3:Release", "demo")
TEMPLATE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-text}
data: {text: {{ .Values.text | quote }}, size: {{ .Values.size | quote }}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: {{ .Release.Name }}-stuck}
spec: {nodeSelector: {nowhere: "true"}, containers: [{name: c, image: x}]}
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    folder = tmp_path / "demo"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(
        "apiVersion: v2\nname: demo\nversion: 1.2.3\nappVersion: '9'\n"
    )
    (folder / "values.yaml").write_text("text: hello\nsize: small\n")
    (folder / "templates" / "text.yaml").write_text(TEMPLATE)
    return folder


@pytest.fixture
def helm(kube_api):
    def run(*arguments: str) -> str:
        home = {
            f"HELM_{kind}_HOME": str(kube_api.folder / "helm")
            for kind in ("CACHE", "CONFIG", "DATA")
        }
        command = [str(tools.resolve("helm")), *arguments, "--kubeconfig", str(kube_api.kubeconfig)]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, **home}
        ).stdout

    return run


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"atomic": True}, "atomic"),
        ({"postrender": "x"}, "postrender"),
        ({"skipAwait": True}, "skipAwait"),
        ({"valueYamlFiles": ["x"]}, "valueYamlFiles"),
        ({"repositoryOpts": {"repo": "https://x", "password": "p"}}, "password"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_by_name(given, word) -> None:
    (failure,) = refusals({"chart": "x", **given})
    assert word in failure.reason


def test_options_that_are_off_are_not_refused() -> None:
    assert not refusals({"chart": "x", "lint": False, "postrender": "", "compat": "true"})


def test_the_history_is_limited_at_an_upgrade_only() -> None:
    spec = {"maxHistory": 3, "skipCrds": True}
    assert flags("install", spec) == ["--skip-crds", "--wait", "--timeout", "300s"]
    upgrade = ["--skip-crds", "--history-max", "3", "--wait", "--timeout", "7s"]
    assert flags("upgrade", {**spec, "timeout": 7}) == upgrade


def test_a_release_lists_what_it_holds() -> None:
    documents = [f"kind: A\napiVersion: v1\nmetadata: {{name: {name}}}\n" for name in "yx"]
    assert resource_names("---\n".join(documents)) == {"A/v1": ["x", "y"]}


@pytest.mark.lab
def test_a_release_is_installed_kept_changed_and_removed(
    kubernetes: Plugin, namespace, chart, helm
) -> None:
    inputs = {
        "chart": str(chart),
        "name": "demo",
        "namespace": namespace,
        "values": {"text": Secret("s3cr3t-text")},
    }
    preview = kubernetes.create(RELEASE, kubernetes.check(RELEASE, inputs), preview=True)
    assert preview.outputs["version"] == "1.2.3"
    assert isinstance(preview.outputs["status"], Unknown)
    assert kubernetes.up(RELEASE, inputs).op == "create"
    assert kubernetes.state[RELEASE].id == f"{namespace}/demo"
    assert kubernetes.outputs(RELEASE)["status"]["status"] == "deployed"
    assert kubernetes.outputs(RELEASE)["resourceNames"] == {"ConfigMap/v1": ["demo-text"]}
    assert kubernetes.state[RELEASE].outputs["values"]["text"] == Secret("s3cr3t-text")
    assert kubernetes.up(RELEASE, inputs).op == "same"
    step = kubernetes.up(RELEASE, {**inputs, "values": {"text": "open"}})
    assert step.diff == {"values.text": "UPDATE"}
    assert kubernetes.outputs(RELEASE)["status"]["revision"] == 2
    helm("upgrade", "demo", str(chart), "--namespace", namespace, "--set", "text=drift")
    assert kubernetes.refresh(RELEASE) == {"values.text": "UPDATE"}
    kubernetes.up(RELEASE, {**inputs, "values": {"text": "open"}})
    assert "open" in helm("get", "values", "demo", "--namespace", namespace)
    kubernetes.delete(RELEASE)
    assert json.loads(helm("list", "--namespace", namespace, "--output", "json")) == []


@pytest.mark.lab
def test_the_inputs_are_those_that_the_real_plugin_keeps(kubernetes: Plugin, chart) -> None:
    switches = (
        "allowNullValues", "atomic", "cleanupOnFail", "createNamespace", "dependencyUpdate", "devel",
        "disableCRDHooks", "disableOpenapiValidation", "disableWebhooks", "forceUpdate", "lint",
        "recreatePods", "renderSubchartNotes", "replace", "resetValues", "reuseValues", "skipAwait",
        "skipCrds", "takeOwnership", "verify", "waitForJobs",
    )  # fmt: skip
    said = {
        "chart": str(chart),
        "name": "demo",
        "namespace": "default",
        "repositoryOpts": {"repo": ""},
    }
    repository = dict.fromkeys(
        ("repo", "caFile", "certFile", "keyFile", "password", "username"), ""
    )
    assert kubernetes.check(RELEASE, {**said, "compat": "true"}) == {
        **said,
        **dict.fromkeys(switches, False),
        **dict.fromkeys(("description", "keyring", "postrender"), ""),
        "repositoryOpts": repository,
        "timeout": 300,
        "values": {},
        "version": "1.2.3",
    }


@pytest.mark.lab
def test_a_chart_that_cannot_be_found_fails_the_check(kubernetes: Plugin, tmp_path) -> None:
    (reason,) = kubernetes.failures(RELEASE, {"chart": str(tmp_path / "nothing")}).values()
    assert "check the chart's name or path" in reason


@pytest.mark.lab
def test_a_release_that_fails_stays_in_the_state_and_the_next_update_repairs_it(
    kubernetes: Plugin, namespace, chart
) -> None:
    (chart / "templates" / "stuck.yaml").write_text(POD)
    inputs = {"chart": str(chart), "name": "demo", "namespace": namespace, "timeout": 6}
    checked = kubernetes.check(RELEASE, inputs)
    with pytest.raises(StepError, match=rf"Helm release {namespace}/demo is failed") as caught:
        kubernetes.create(RELEASE, checked)
    assert caught.value.detail is not None
    assert caught.value.detail.id == f"{namespace}/demo"
    (chart / "templates" / "stuck.yaml").unlink()
    kubernetes.state[RELEASE] = State(caught.value.detail.id, checked, {"__inputs": checked})
    kubernetes.update(RELEASE, {**checked, "timeout": 250})
    assert kubernetes.outputs(RELEASE)["status"]["status"] == "deployed"


@pytest.mark.lab
def test_a_name_in_use_is_refused_whoever_uses_it(
    kubernetes: Plugin, kube_api, namespace, chart, helm
) -> None:
    inputs = {"chart": str(chart), "name": "demo", "namespace": namespace}
    helm("install", "demo", str(chart), "--namespace", namespace)
    with pytest.raises(StepError, match="cannot re-use a name that is still in use"):
        kubernetes.up(RELEASE, inputs)
    helm("uninstall", "demo", "--namespace", namespace)
    kubernetes.up(RELEASE, inputs)
    # Its own, of which the state knows nothing any more.
    with running("kubernetes") as fresh:
        fresh.configure(kubeconfig=kube_api.kubeconfig.read_text())
        with pytest.raises(StepError, match="cannot re-use a name that is still in use"):
            fresh.up(RELEASE, inputs)


@pytest.mark.lab
def test_a_release_removed_by_hand_is_neither_updated_nor_deleted(
    kubernetes: Plugin, namespace, chart, helm
) -> None:
    inputs = {"chart": str(chart), "name": "demo", "namespace": namespace}
    kubernetes.up(RELEASE, inputs)
    helm("uninstall", "demo", "--namespace", namespace)
    with pytest.raises(StepError, match="has no deployed releases"):
        kubernetes.up(RELEASE, {**inputs, "values": {"text": "other"}})
    with pytest.raises(StepError, match="not found"):
        kubernetes.delete(RELEASE)


@pytest.mark.lab
def test_a_release_whose_helm_was_killed_keeps_its_name_until_it_is_uninstalled(
    kube_api, namespace, chart, helm, tmp_path
) -> None:
    (chart / "templates" / "stuck.yaml").write_text(POD)
    inputs = {"chart": str(chart), "name": "demo", "namespace": namespace, "timeout": 250}
    with running("kubernetes", TMPDIR=str(tmp_path)) as first:
        first.configure(kubeconfig=kube_api.kubeconfig.read_text())
        checked = first.check(RELEASE, inputs)
        thread, _ = in_background(lambda: first.create(RELEASE, checked))
        helm_process = _child_of(first.pid, "helm", "install")
        eventually(lambda: _has_release(kube_api, namespace))
        os.kill(helm_process, signal.SIGKILL)
        os.kill(first.pid, signal.SIGKILL)
        thread.join(120)
    assert _statuses(kube_api, namespace) == ["pending-install"]
    (chart / "templates" / "stuck.yaml").unlink()
    with running("kubernetes") as second:
        second.configure(kubeconfig=kube_api.kubeconfig.read_text())
        with pytest.raises(StepError, match="cannot re-use a name that is still in use"):
            second.up(RELEASE, inputs)
        second.state[RELEASE] = State(f"{namespace}/demo", checked, {"__inputs": checked})
        with pytest.raises(StepError, match=r"another operation .* in progress"):
            second.update(RELEASE, {**checked, "timeout": 200})
        del second.state[RELEASE]
        helm("uninstall", "demo", "--namespace", namespace)
        second.up(RELEASE, inputs)
        assert second.outputs(RELEASE)["status"]["status"] == "deployed"


@pytest.mark.lab
@pytest.mark.parametrize("death", ["stopped", "engine killed", "killed"])
def test_no_secret_reaches_the_process_list_or_a_folder_however_the_provider_ends(
    kube_api, namespace, chart, death: str
) -> None:
    (chart / "templates" / "stuck.yaml").write_text(POD)
    values = {"text": Secret("s3cr3t-text")}
    inputs = {
        "chart": str(chart),
        "name": "demo",
        "namespace": namespace,
        "timeout": 250,
        "values": values,
    }
    folder = Path(tempfile.mkdtemp())
    with running("kubernetes", TMPDIR=str(folder)) as plugin:
        plugin.configure(kubeconfig=kube_api.kubeconfig.read_text())
        checked = plugin.check(RELEASE, inputs)
        thread, results = in_background(lambda: plugin.create(RELEASE, checked))
        helm_process = _child_of(plugin.pid, "helm", "install")
        command = Path(f"/proc/{helm_process}/cmdline").read_text()
        assert "s3cr3t-text" not in command
        eventually(lambda: _has_release(kube_api, namespace))
        if death == "stopped":
            os.kill(plugin.pid, signal.SIGTERM)
        elif death == "engine killed":
            plugin.let_go()
        else:
            os.kill(plugin.pid, signal.SIGKILL)
            os.kill(helm_process, signal.SIGKILL)
        thread.join(120)
        assert results
        left = [path for path in folder.rglob("*") if path.is_file()]
        secrets = ("s3cr3t-text", "client-key-data", "token")
        assert [path for path in left if any(s in path.read_text() for s in secrets)] == []
        if death != "killed":
            eventually(lambda: not list(folder.iterdir()))
            assert "failed" in _statuses(kube_api, namespace)
    shutil.rmtree(folder)


def _child_of(parent: int, *words: str) -> int:
    found: list[int] = []

    def look() -> bool:
        listing = subprocess.run(
            ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
        )
        for line in listing.stdout.splitlines()[1:]:
            pid, ppid, arguments = line.split(None, 2)
            if int(ppid) == parent and all(word in arguments for word in words):
                found.append(int(pid))
        return bool(found)

    eventually(look)
    return found[0]


def _has_release(kube_api, namespace: str) -> bool:
    with kube_api.api() as api:
        _, body = api.request("GET", f"/api/v1/namespaces/{namespace}/secrets")
    return b"sh.helm.release" in body


def _statuses(kube_api, namespace: str) -> list[str]:
    """Of the releases that Helm has stored."""
    with kube_api.api() as api:
        _, body = api.request("GET", f"/api/v1/namespaces/{namespace}/secrets")
    labels = [item["metadata"].get("labels", {}) for item in json.loads(body)["items"]]
    return [entry["status"] for entry in labels if "status" in entry]
