"""Helm releases of the kubernetes stand-in: what is asked of helm, and releases on a real API server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@contextlib.contextmanager
def fresh(kube_api, **environment: str) -> Iterator[Plugin]:
    with running("kubernetes", **environment) as plugin:
        plugin.configure(kubeconfig=kube_api.kubeconfig.read_text())
        yield plugin


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


def test_what_is_asked_of_helm() -> None:
    assert not refusals({"chart": "x", "lint": False, "postrender": "", "compat": "true"})
    spec = {"maxHistory": 3, "skipCrds": True}
    assert flags("install", spec) == ["--skip-crds", "--wait", "--timeout", "300s"]
    # The history is limited at an upgrade only.
    upgrade = ["--skip-crds", "--history-max", "3", "--wait", "--timeout", "7s"]
    assert flags("upgrade", {**spec, "timeout": 7}) == upgrade
    documents = [f"kind: A\napiVersion: v1\nmetadata: {{name: {name}}}\n" for name in "yx"]
    assert resource_names("---\n".join(documents)) == {"A/v1": ["x", "y"]}


@pytest.mark.lab
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
    assert step.diff == {"values.text": "UPDATE"}
    assert kubernetes.outputs(RELEASE)["status"]["revision"] == 2
    helm("upgrade", "demo", str(chart), "--namespace", namespace, "--set", "text=drift")
    assert kubernetes.refresh(RELEASE) == {"values.text": "UPDATE"}
    kubernetes.up(RELEASE, {**inputs, "values": {"text": "open"}})
    assert "open" in helm("get", "values", "demo", "--namespace", namespace)
    kubernetes.delete(RELEASE)
    assert json.loads(helm("list", "--namespace", namespace, "--output", "json")) == []


@pytest.mark.lab
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


@pytest.mark.lab
def test_a_release_that_fails_stays_in_the_state_and_the_next_update_repairs_it(
    kubernetes: Plugin, namespace, inputs, stuck
) -> None:
    checked = kubernetes.check(RELEASE, {**inputs, "timeout": 6})
    with pytest.raises(StepError, match=rf"Helm release {namespace}/demo is failed") as caught:
        kubernetes.create(RELEASE, checked)
    assert caught.value.detail is not None
    assert caught.value.detail.id == f"{namespace}/demo"
    stuck.unlink()
    kubernetes.state[RELEASE] = State(caught.value.detail.id, checked, {"__inputs": checked})
    kubernetes.update(RELEASE, {**checked, "timeout": 250})
    assert kubernetes.outputs(RELEASE)["status"]["status"] == "deployed"


@pytest.mark.lab
def test_a_name_in_use_is_refused_and_a_release_removed_by_hand_is_not_touched(
    kubernetes: Plugin, kube_api, namespace, chart, inputs, helm
) -> None:
    in_use = "cannot re-use a name that is still in use"
    helm("install", "demo", str(chart), "--namespace", namespace)
    with pytest.raises(StepError, match=in_use):
        kubernetes.up(RELEASE, inputs)
    helm("uninstall", "demo", "--namespace", namespace)
    kubernetes.up(RELEASE, inputs)
    # Its own, of which the state knows nothing any more.
    known = kubernetes.state.pop(RELEASE)
    with pytest.raises(StepError, match=in_use):
        kubernetes.up(RELEASE, inputs)
    kubernetes.state[RELEASE] = known
    helm("uninstall", "demo", "--namespace", namespace)
    with pytest.raises(StepError, match="has no deployed releases"):
        kubernetes.up(RELEASE, {**inputs, "values": {"text": "other"}})
    with pytest.raises(StepError, match="not found"):
        kubernetes.delete(RELEASE)


@pytest.mark.lab
def test_a_release_whose_helm_was_killed_keeps_its_name_until_it_is_uninstalled(
    kubernetes: Plugin, kube_api, namespace, inputs, stuck, helm, tmp_path
) -> None:
    with fresh(kube_api, TMPDIR=str(tmp_path)) as first:
        checked = first.check(RELEASE, {**inputs, "timeout": 250})
        thread, _ = in_background(lambda: first.create(RELEASE, checked))
        helm_process = _child_of(first.pid, "helm", "install")
        eventually(lambda: _releases(kube_api, namespace))
        os.kill(helm_process, signal.SIGKILL)
        os.kill(first.pid, signal.SIGKILL)
        thread.join(120)
    assert _releases(kube_api, namespace) == ["pending-install"]
    stuck.unlink()
    with pytest.raises(StepError, match="cannot re-use a name that is still in use"):
        kubernetes.up(RELEASE, inputs)
    kubernetes.state[RELEASE] = State(f"{namespace}/demo", checked, {"__inputs": checked})
    with pytest.raises(StepError, match=r"another operation .* in progress"):
        kubernetes.update(RELEASE, {**checked, "timeout": 200})
    del kubernetes.state[RELEASE]
    helm("uninstall", "demo", "--namespace", namespace)
    kubernetes.up(RELEASE, inputs)
    assert kubernetes.outputs(RELEASE)["status"]["status"] == "deployed"


@pytest.mark.lab
@pytest.mark.parametrize("death", ["stopped", "engine killed", "killed"])
@pytest.mark.usefixtures("stuck")
def test_no_secret_reaches_the_process_list_or_a_folder_however_the_provider_ends(
    kube_api, namespace, inputs, death: str
) -> None:
    inputs |= {"timeout": 250, "values": {"text": Secret("s3cr3t-text")}}
    folder = Path(tempfile.mkdtemp())
    with fresh(kube_api, TMPDIR=str(folder)) as plugin:
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
