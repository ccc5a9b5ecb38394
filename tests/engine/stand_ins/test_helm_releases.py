"""Helm releases of the kubernetes stand-in on a real API server."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from engine.answers import ProviderError
from engine.values import Secret, Unknown
from lab import tools
from tests.engine.stand_ins.plugin import Plugin, State, in_background, running, urn
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.lab

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
def inputs(chart: Path, namespace) -> dict[str, Any]:
    return {"chart": str(chart), "name": "demo", "namespace": namespace}


@pytest.fixture
def stuck(chart: Path) -> Path:
    """A part of the chart that never becomes ready."""
    file = chart / "templates" / "stuck.yaml"
    file.write_text(POD)
    return file


@pytest.fixture
def helm(kube_api):
    def run(*arguments: str) -> str:
        kinds = ("CACHE", "CONFIG", "DATA")
        home = {f"HELM_{kind}_HOME": str(kube_api.folder / "helm") for kind in kinds}
        command = [str(tools.resolve("helm")), *arguments, "--kubeconfig", str(kube_api.kubeconfig)]
        env = {**os.environ, **home}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout

    return run


def test_a_release_is_installed_kept_changed_and_removed(
    kubernetes: Plugin, namespace, chart, inputs, helm
) -> None:
    inputs["values"] = {"text": Secret("s3cr3t-text")}
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
    assert step.diff == {"values.text": "update"}
    assert kubernetes.outputs(RELEASE)["status"]["revision"] == 2
    helm("upgrade", "demo", str(chart), "--namespace", namespace, "--set", "text=drift")
    assert kubernetes.refresh(RELEASE) == {"values.text": "update"}
    kubernetes.up(RELEASE, {**inputs, "values": {"text": "open"}})
    assert "open" in helm("get", "values", "demo", "--namespace", namespace)
    kubernetes.delete(RELEASE)
    assert json.loads(helm("list", "--namespace", namespace, "--output", "json")) == []


def test_the_inputs_are_those_that_the_real_plugin_keeps(
    kubernetes: Plugin, inputs, tmp_path
) -> None:
    said = {**inputs, "repositoryOpts": {"repo": ""}}
    repository = dict.fromkeys(
        ("repo", "caFile", "certFile", "keyFile", "password", "username"), ""
    )
    recorded = json.loads(Path(__file__).parents[1].joinpath("plugins.json").read_text())[-1]
    kept = {key: value for key, value in recorded["inputs"].items() if value in (False, "")}
    assert kubernetes.check(RELEASE, {**said, "compat": "true"}) == {
        **said,
        **kept,
        "repositoryOpts": repository,
        "timeout": 300,
        "values": {},
        "version": "1.2.3",
    }
    (reason,) = kubernetes.failures(RELEASE, {"chart": str(tmp_path / "nothing")}).values()
    assert "check the chart's name or path" in reason


def test_a_release_that_fails_stays_in_the_state_and_the_next_update_repairs_it(
    kubernetes: Plugin, namespace, inputs, stuck
) -> None:
    checked = kubernetes.check(RELEASE, {**inputs, "timeout": 6})
    with pytest.raises(ProviderError, match=rf"Helm release {namespace}/demo is failed") as caught:
        kubernetes.create(RELEASE, checked)
    assert caught.value.id == f"{namespace}/demo"
    stuck.unlink()
    kubernetes.state[RELEASE] = State(caught.value.id, checked, {"__inputs": checked})
    kubernetes.update(RELEASE, {**checked, "timeout": 250})
    assert kubernetes.outputs(RELEASE)["status"]["status"] == "deployed"


def test_a_name_in_use_is_refused_and_a_release_removed_by_hand_is_not_touched(
    kubernetes: Plugin, kube_api, namespace, chart, inputs, helm
) -> None:
    in_use = "cannot re-use a name that is still in use"
    helm("install", "demo", str(chart), "--namespace", namespace)
    with pytest.raises(ProviderError, match=in_use):
        kubernetes.up(RELEASE, inputs)
    helm("uninstall", "demo", "--namespace", namespace)
    kubernetes.up(RELEASE, inputs)
    # Its own, of which the state knows nothing any more.
    known = kubernetes.state.pop(RELEASE)
    with pytest.raises(ProviderError, match=in_use):
        kubernetes.up(RELEASE, inputs)
    kubernetes.state[RELEASE] = known
    helm("uninstall", "demo", "--namespace", namespace)
    with pytest.raises(ProviderError, match="has no deployed releases"):
        kubernetes.up(RELEASE, {**inputs, "values": {"text": "other"}})
    with pytest.raises(ProviderError, match="not found"):
        kubernetes.delete(RELEASE)


@pytest.mark.parametrize("death", ["stopped", "engine killed", "killed"])
@pytest.mark.usefixtures("stuck")
def test_no_secret_reaches_the_process_list_or_a_folder_however_the_provider_ends(
    kube_api, namespace, inputs, death: str
) -> None:
    inputs |= {"timeout": 250, "values": {"text": Secret("s3cr3t-text")}}
    folder = Path(tempfile.mkdtemp())
    with running("kubernetes", TMPDIR=str(folder)) as plugin:
        plugin.configure(kubeconfig=kube_api.kubeconfig.read_text())
        checked = plugin.check(RELEASE, inputs)
        thread, results = in_background(lambda: plugin.create(RELEASE, checked))
        helm_process = _child_of(plugin.pid, "helm", "install")
        command = Path(f"/proc/{helm_process}/cmdline").read_text()
        assert "s3cr3t-text" not in command
        eventually(lambda: _releases(kube_api, namespace))
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
            assert "failed" in _releases(kube_api, namespace)
    shutil.rmtree(folder)


def _child_of(parent: int, *words: str) -> int:
    def look() -> int:
        listing = subprocess.run(
            ["ps", "-ww", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
        )
        for line in listing.stdout.splitlines()[1:]:
            pid, ppid, arguments = line.split(None, 2)
            if int(ppid) == parent and all(word in arguments for word in words):
                return int(pid)
        return 0

    return eventually(look)


def _releases(kube_api, namespace: str) -> list[str]:
    """The statuses of those that Helm has stored."""
    with kube_api.api() as api:
        _, body = api.request("GET", f"/api/v1/namespaces/{namespace}/secrets")
    labels = [item["metadata"].get("labels", {}) for item in json.loads(body)["items"]]
    return [entry["status"] for entry in labels if "status" in entry]
