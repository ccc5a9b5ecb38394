"""`gpu-clusters up` before the engine runs: what a killed run left is found, named, and repaired or not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuclusters.cli import repair
from gpuclusters.cli.errors import RunError
from gpuclusters.cli.project import Project
from lab import tools
from lab.control_plane.model import ControlPlaneError
from tests.fixtures.control_plane import KubeCluster
from tests.unit.cli.conftest import Here

CHART = """
apiVersion: v1
kind: ConfigMap
metadata: {name: kept}
data: {text: {{ .Values.text | quote }}}
"""
STUCK = """
apiVersion: v1
kind: Pod
metadata: {name: stuck}
spec: {nodeSelector: {nowhere: "true"}, containers: [{name: c, image: x}]}
"""


@pytest.fixture
def in_lab(project: Project) -> Here:
    return Here(project, "dev")


@pytest.fixture
def elsewhere(project: Project) -> Here:
    return Here(project, "rke2-a100")


@pytest.fixture
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_in_the_lab_a_dead_lock_is_let_go(in_lab: Here, dead: int) -> None:
    assert in_lab.repair() == ""
    lock = in_lab.lock(pid=dead)
    (line,) = in_lab.repair().splitlines()
    assert line.startswith("found: the stack is locked by process")
    assert str(dead) in line
    assert not lock.exists()
    # A process that has the number of a dead one does not keep its lock.
    lock = in_lab.lock(timestamp="2001-01-01T00:00:00Z")
    in_lab.repair()
    assert not lock.exists()
    # One of a run that lives is never taken.
    alive, gone = in_lab.lock(), in_lab.lock(pid=dead)
    with pytest.raises(RunError, match=f"process {os.getpid()} of ann@.* which runs"):
        in_lab.repair(asked_for=True)
    assert alive.exists()
    assert gone.exists()


def test_a_provider_that_goes_on_without_its_engine_is_ended_before_the_lock_goes(
    in_lab: Here, dead: int, closed_port: int
) -> None:
    def provider(port: int, folder: Path) -> subprocess.Popen[bytes]:
        code = "import time; time.sleep(600)"
        words = [sys.executable, "-c", code, "/opt/pulumi-resource-kubernetes"]
        return subprocess.Popen([*words, f"127.0.0.1:{port}"], cwd=folder, env=in_lab.session.env)

    with socket.create_server(("127.0.0.1", 0)) as engine:
        folder = in_lab.session.project.folder
        left = provider(closed_port, folder)
        others = [
            provider(engine.getsockname()[1], folder),  # its engine lives
            provider(closed_port, folder.parent),  # of another project
        ]
        try:
            assert in_lab.repair() == ""
            assert left.poll() is None, "without a dead lock nobody has looked"
            lock = in_lab.lock(pid=dead)
            first, second = in_lab.repair().splitlines()
            at_work = f"of the killed run is still at work (process {left.pid})"
            assert f"pulumi-resource-kubernetes {at_work}" in first
            assert "locked" in second
            assert left.poll() is not None
            assert not lock.exists()
            assert [one.poll() for one in others] == [None, None]
        finally:
            for one in (left, *others):
                one.kill()
                one.wait()


def test_a_lock_of_which_nobody_here_can_know_stays_and_the_command_has_the_right_backend(
    in_lab: Here,
) -> None:
    for content in ({"hostname": "another"}, {"pid": "x"}):
        lock = in_lab.lock(**content)
        with pytest.raises(RunError) as error:
            in_lab.repair(asked_for=True)
        assert lock.exists()
        command = str(error.value).rpartition("`")[0].rpartition("`")[2]
        # It is typed as it stands there, from another environment.
        env = {k: v for k, v in in_lab.session.env.items() if not k.startswith("PULUMI_")}
        folder = in_lab.session.project.folder
        subprocess.run(command, shell=True, check=True, env=env, cwd=folder, capture_output=True)
        assert not lock.exists()


def test_elsewhere_nothing_is_changed_until_somebody_says_so(elsewhere: Here, dead: int) -> None:
    lock = elsewhere.lock(pid=dead)
    with pytest.raises(RunError) as error:
        elsewhere.repair()
    assert lock.exists()
    assert "--repair" in str(error.value)
    assert "engine cancel --yes --stack rke2-a100" in str(error.value)
    elsewhere.repair(asked_for=True)
    assert not lock.exists()
    # A repair that fails says why, and what to type.
    lock.mkdir()  # cannot be removed as a file, root or not
    (lock / "x").write_text("")
    fault = repair.unfinished.lock_fault(
        repair.unfinished.Lock(str(lock), dead, "ann", "desk", datetime.now(UTC))
    )
    with pytest.raises(RunError, match=r"-m engine cancel --yes"):
        repair._mend(elsewhere.session, Console(file=elsewhere.out), [fault], allowed=True)


def test_creates_that_were_cut_off_are_cleared_without_a_look_at_machines(elsewhere: Here) -> None:
    # None of these could be read: there is neither a machine nor a cluster.
    names = {"boot": "gpu-clusters:gpu:HostBoot", "ns": "kubernetes:core/v1:Namespace"}
    elsewhere.put([], [elsewhere.resource(kind, name) for name, kind in names.items()])
    with pytest.raises(RunError, match="refresh --yes --clear-pending-creates"):
        elsewhere.repair()
    assert elsewhere.pending() == set(names)
    said = elsewhere.repair(asked_for=True)
    assert "the create of HostBoot boot was cut off" in said
    assert elsewhere.pending() == set()
    # What would be made twice is left to a person.
    elsewhere.put([], [elsewhere.resource("gcp:compute/network:Network", "net")])
    with pytest.raises(RunError, match="somebody has to look first"):
        elsewhere.repair(asked_for=True)
    assert elsewhere.pending() == {"net"}


class Cluster:
    """Helm as the real plugin calls it, on a real API server: `install` and `upgrade`, nothing kinder."""

    def __init__(self, kube_api: KubeCluster, namespace: str, folder: Path) -> None:
        self.kube_api, self.namespace, self.chart = kube_api, namespace, folder / "kata"
        homes = {f"HELM_{kind}_HOME": str(folder / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        self.env = {**os.environ, **homes}
        (self.chart / "templates").mkdir(parents=True)
        (self.chart / "Chart.yaml").write_text("apiVersion: v2\nname: kata\nversion: 1.2.3\n")
        (self.chart / "values.yaml").write_text("text: hello\n")
        (self.chart / "templates" / "text.yaml").write_text(CHART)

    def helm(self, verb: str, *args: str, release: bool = True) -> list[str]:
        """Its words."""
        where = ["--namespace", self.namespace, "--kubeconfig", str(self.kube_api.kubeconfig)]
        named = ["kata", str(self.chart)] if release else []
        return [str(tools.resolve("helm")), verb, *named, *args, *where]

    def call(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, env=self.env, check=False)

    def does(self, verb: str, *args: str) -> None:
        done = self.call(self.helm(verb, *args))
        assert done.returncode == 0, done.stderr

    def cannot(self, verb: str) -> None:
        """As it stays for ever without a repair: this is what the plugin would get."""
        done = self.call(self.helm(verb))
        assert done.returncode != 0
        assert "in use" in done.stderr or "in progress" in done.stderr

    def killed(self, verb: str) -> None:
        """Helm, killed while it waits for a pod that never comes."""
        stuck = self.chart / "templates" / "stuck.yaml"
        stuck.write_text(STUCK)
        process = subprocess.Popen(
            self.helm(verb, "--wait", "--timeout", "5m"),
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        pending = self.helm("list", "--pending", release=False)
        while f"pending-{verb}" not in self.call(pending).stdout or not self.object("pods/stuck"):
            assert process.poll() is None
        process.kill()
        process.wait()
        stuck.unlink()

    def object(self, path: str) -> dict[str, Any]:
        """One of its namespace; empty if it is not there."""
        with self.kube_api.api() as api:
            try:
                return api.get(f"/api/v1/namespaces/{self.namespace}/{path}")
            except ControlPlaneError:
                return {}

    def provider(self, here: Here) -> dict[str, Any]:
        inputs = {"kubeconfig": Path(self.kube_api.kubeconfig).read_text()}
        kind = "pulumi:providers:kubernetes"
        return here.resource(kind, "cluster", id="1", inputs=inputs, outputs=inputs)

    def release(self, here: Here, **more: Any) -> dict[str, Any]:
        provider = self.provider(here)["urn"] + "::1"
        inputs = {"name": "kata", "namespace": self.namespace}
        kind = "kubernetes:helm.sh/v3:Release"
        return here.resource(kind, "kata", provider=provider, inputs=inputs, **more)


@pytest.fixture
def cluster(kube_api: KubeCluster, namespace: str, tmp_path: Path) -> Cluster:
    return Cluster(kube_api, namespace, tmp_path / "helm")


@pytest.mark.lab
def test_a_release_whose_install_was_cut_off_is_taken_over_by_the_next_installation(
    elsewhere: Here, cluster: Cluster
) -> None:
    cluster.killed("install")
    cluster.cannot("install")
    before = cluster.object("configmaps/kept")["metadata"]["uid"]
    elsewhere.put([cluster.provider(elsewhere)], [cluster.release(elsewhere)])
    with pytest.raises(RunError, match=r"kubectl .* delete secret sh.helm.release"):
        elsewhere.repair()
    assert "pending-install" in elsewhere.repair(asked_for=True)
    assert elsewhere.pending() == set()
    cluster.does("install", "--set", "text=new")
    after = cluster.object("configmaps/kept")
    assert after["metadata"]["uid"] == before, "what is in use was taken away and made twice"
    assert after["data"] == {"text": "new"}


@pytest.mark.lab
def test_a_release_is_taken_over_after_its_end_was_missed_and_after_an_upgrade_that_was_cut_off(
    elsewhere: Here, cluster: Cluster
) -> None:
    cluster.does("install")
    before = cluster.object("configmaps/kept")["metadata"]["uid"]
    elsewhere.put([cluster.provider(elsewhere)], [cluster.release(elsewhere)])
    assert "is deployed" in elsewhere.repair(asked_for=True)
    cluster.does("install", "--set", "text=again")
    assert cluster.object("configmaps/kept")["metadata"]["uid"] == before
    elsewhere.put([cluster.provider(elsewhere), cluster.release(elsewhere, id="x", outputs={})], [])
    said = elsewhere.out.getvalue()
    assert elsewhere.repair() == said, "one that is well is left alone"
    cluster.killed("upgrade")
    cluster.cannot("upgrade")
    elsewhere.repair(asked_for=True)
    cluster.does("upgrade", "--set", "text=new")
    assert cluster.object("configmaps/kept")["data"] == {"text": "new"}
