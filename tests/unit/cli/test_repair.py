"""`gpu-clusters up` before the engine runs: what a killed run left is found, named, and repaired or not."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpuclusters.cli import engine as engines
from gpuclusters.cli import repair
from gpuclusters.cli.errors import RunError
from gpuclusters.cli.project import Project, Session, read_valid
from lab import tools

ROOT = Path(__file__).resolve().parents[3]
STACK = "urn:pulumi:{0}::gpu-clusters::"
EMBEDDED = engines.Engine(engines.Kind.EMBEDDED, (sys.executable, "-m", "engine"), "a test")
MANIFEST = {"time": "2026-11-22T10:00:00Z", "magic": "", "version": "v3.272.0"}
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


class Here:
    """A stack in a backend of its own."""

    def __init__(self, folder: Path, stack: str) -> None:
        project = folder / "project"
        project.mkdir()
        for path in ROOT.glob("Pulumi.*"):
            shutil.copy(path, project)  # the engine writes into it
        for name in ("gpuclusters", "__main__.py"):
            (project / name).symlink_to(ROOT / name)
        self.state = folder / "lab" / "state"
        self.state.mkdir(parents=True)
        self.stack = stack
        found = Project(project, folder / "lab")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
        env = {
            **clean,
            "PULUMI_BACKEND_URL": f"file://{self.state}",
            "PULUMI_CONFIG_PASSPHRASE": "gpu-clusters-lab",
        }
        self.session = Session(found, stack, EMBEDDED, env, read_valid(found, stack))
        self.out = io.StringIO()
        self.engine("stack", "init", "--non-interactive")

    def engine(self, *args: str, **more: Any) -> str:
        return subprocess.run(
            [*EMBEDDED.command, *args, "--stack", self.stack],
            cwd=self.session.project.folder,
            env=self.session.env,
            check=True,
            capture_output=True,
            text=True,
            **more,
        ).stdout

    def lock(self, **content: Any) -> Path:
        folder = self.state / ".pulumi/locks/organization/gpu-clusters" / self.stack
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{len(list(folder.iterdir()))}.json"
        holder = {
            "pid": os.getpid(),
            "username": "ann",
            "hostname": socket.gethostname(),
            "timestamp": datetime.now(UTC).isoformat(),
        }
        path.write_text(json.dumps(holder | content))
        return path

    def put(self, resources: list[Mapping[str, Any]], creating: list[Mapping[str, Any]]) -> None:
        """A state as a killed run leaves it."""
        root = STACK.format(self.stack) + f"pulumi:pulumi:Stack::gpu-clusters-{self.stack}"
        # In the file: an import drops what is pending.
        path = self.state / f".pulumi/stacks/gpu-clusters/{self.stack}.json"
        document = json.loads(path.read_text())
        latest = document["checkpoint"].get("latest") or {}
        latest["resources"] = [
            {"urn": root, "custom": False, "type": "pulumi:pulumi:Stack"},
            *({"parent": root, **one} for one in resources),
        ]
        latest["pending_operations"] = [
            {"type": "creating", "resource": {"parent": root, **one}} for one in creating
        ]
        document["checkpoint"]["latest"] = {"manifest": MANIFEST, **latest}
        path.write_text(json.dumps(document))

    def pending(self) -> list[str]:
        document = json.loads(self.engine("stack", "export"))
        return [
            one["resource"]["urn"].rsplit("::", 1)[-1]
            for one in document["deployment"].get("pending_operations") or []
        ]

    def resource(self, kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {
            "urn": f"{STACK.format(self.stack)}{kind}::{name}",
            "custom": True,
            "type": kind,
            **more,
        }

    def repair(self, *, asked_for: bool = False) -> str:
        console = Console(file=self.out, width=300, highlight=False)
        repair.repair(self.session, console, asked_for=asked_for)
        return self.out.getvalue()


@pytest.fixture
def in_lab(tmp_path: Path) -> Here:
    return Here(tmp_path, "dev")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Here:
    return Here(tmp_path, "rke2-a100")


@pytest.fixture
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_nothing_is_said_where_nothing_is_left(elsewhere: Here) -> None:
    assert elsewhere.repair() == ""


def test_in_the_lab_a_dead_lock_is_let_go(in_lab: Here, dead: int) -> None:
    lock = in_lab.lock(pid=dead)
    (line,) = in_lab.repair().splitlines()
    assert line.startswith("found: the stack is locked by process")
    assert str(dead) in line
    assert not lock.exists()


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
            assert (
                f"pulumi-resource-kubernetes of the killed run is still at work (process {left.pid})"
                in first
            )
            assert "locked" in second
            assert left.poll() is not None
            assert not lock.exists()
            assert [one.poll() for one in others] == [None, None]
        finally:
            for one in (left, *others):
                one.kill()
                one.wait()


def test_a_lock_of_a_run_that_lives_is_never_taken(in_lab: Here, dead: int) -> None:
    alive, gone = in_lab.lock(), in_lab.lock(pid=dead)
    with pytest.raises(RunError, match=f"process {os.getpid()} of ann@.* which runs"):
        in_lab.repair(asked_for=True)
    assert alive.exists()
    assert gone.exists()


def test_a_process_that_has_the_number_of_a_dead_one_does_not_keep_its_lock(in_lab: Here) -> None:
    lock = in_lab.lock(timestamp="2001-01-01T00:00:00Z")
    in_lab.repair()
    assert not lock.exists()


@pytest.mark.parametrize("content", [{"hostname": "another"}, {"pid": "x"}])
def test_a_lock_of_which_nobody_here_can_know_stays_and_the_command_has_the_right_backend(
    in_lab: Here, content: dict[str, Any]
) -> None:
    lock = in_lab.lock(**content)
    with pytest.raises(RunError) as error:
        in_lab.repair(asked_for=True)
    assert lock.exists()
    command = str(error.value).rpartition("`")[0].rpartition("`")[2]
    # It is typed as it stands there, from another environment.
    env = {k: v for k, v in os.environ.items() if not k.startswith("PULUMI_")}
    subprocess.run(
        command, shell=True, check=True, env=env, cwd=in_lab.session.project.folder,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
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


def test_creates_that_were_cut_off_are_cleared_without_a_look_at_machines(elsewhere: Here) -> None:
    # None of these could be read: there is neither a machine nor a cluster.
    names = {"boot": "gpu-clusters:gpu:HostBoot", "ns": "kubernetes:core/v1:Namespace"}
    kept = elsewhere.resource("gpu-clusters:gpu:HostFile", "made", id="x", outputs={})
    elsewhere.put([], [elsewhere.resource(kind, name) for name, kind in names.items()])
    assert sorted(elsewhere.pending()) == sorted(names)
    with pytest.raises(RunError, match="refresh --yes --clear-pending-creates"):
        elsewhere.repair()
    assert sorted(elsewhere.pending()) == sorted(names)
    elsewhere.repair(asked_for=True)
    said = elsewhere.out.getvalue()
    assert "the create of HostBoot boot was cut off" in said
    assert elsewhere.pending() == []
    assert kept


def test_what_would_be_made_twice_is_left_to_a_person(elsewhere: Here) -> None:
    elsewhere.put([], [elsewhere.resource("gcp:compute/network:Network", "net")])
    with pytest.raises(RunError, match="somebody has to look first"):
        elsewhere.repair(asked_for=True)
    assert elsewhere.pending() == ["net"]


def test_a_repair_that_fails_says_why_and_what_to_type(elsewhere: Here, dead: int) -> None:
    lock = elsewhere.lock(pid=dead)
    lock.unlink()
    lock.mkdir()  # cannot be removed as a file, root or not
    (lock / "x").write_text("")
    fault = repair.unfinished.lock_fault(
        repair.unfinished.Lock(str(lock), dead, "ann", "desk", datetime.now(UTC))
    )
    console = Console(file=elsewhere.out)
    with pytest.raises(RunError, match=r"-m engine cancel --yes"):
        repair._mend(elsewhere.session, console, [fault], allowed=True)


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    folder = tmp_path / "kata"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: kata\nversion: 1.2.3\n")
    (folder / "values.yaml").write_text("text: hello\n")
    (folder / "templates" / "text.yaml").write_text(CHART)
    return folder


class Cluster:
    """Helm as the real plugin calls it, on a real API server: `install` and `upgrade`, nothing kinder."""

    def __init__(self, kube_api: Any, namespace: str, chart: Path, home: Path) -> None:
        self.kubeconfig, self.namespace, self.chart = kube_api.kubeconfig, namespace, chart
        self.env = {
            **os.environ,
            **{f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")},
        }

    def command(self, verb: str, *args: str) -> list[str]:
        where = ["--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig)]
        return [str(tools.resolve("helm")), verb, *args, *where]

    def helm(self, verb: str, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(verb, *args), capture_output=True, text=True, env=self.env, check=False
        )

    def killed(self, verb: str, status: str) -> None:
        """Helm, killed while it waits for a pod that never comes."""
        (self.chart / "templates" / "stuck.yaml").write_text(STUCK)
        process = subprocess.Popen(
            self.command(verb, "kata", str(self.chart), "--wait", "--timeout", "5m"),
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while status not in self.helm("list", "--pending").stdout or not self.object(
            "pod", "stuck"
        ):
            assert process.poll() is None
        process.kill()
        process.wait()
        (self.chart / "templates" / "stuck.yaml").unlink()

    def object(self, kind: str, name: str) -> dict[str, Any] | None:
        done = subprocess.run(
            [
                *(str(tools.resolve("kubectl")), "--kubeconfig", str(self.kubeconfig)),
                *("--namespace", self.namespace, "get", kind, name, "-o", "json"),
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return None if done.returncode else json.loads(done.stdout)

    def provider(self, here: Here) -> dict[str, Any]:
        kubeconfig = Path(self.kubeconfig).read_text()
        inputs = {"kubeconfig": kubeconfig}
        return here.resource(
            "pulumi:providers:kubernetes", "cluster", id="1", inputs=inputs, outputs=inputs
        )

    def release(self, here: Here, **more: Any) -> dict[str, Any]:
        return here.resource(
            "kubernetes:helm.sh/v3:Release",
            "kata",
            provider=self.provider(here)["urn"] + "::1",
            inputs={"name": "kata", "namespace": self.namespace},
            **more,
        )


@pytest.fixture
def cluster(kube_api: Any, namespace: str, chart: Path, tmp_path: Path) -> Cluster:
    return Cluster(kube_api, namespace, chart, tmp_path / "helm")


@pytest.mark.lab
@pytest.mark.parametrize("status", ["pending-install", "deployed"])
def test_a_release_whose_create_was_cut_off_is_taken_over_by_the_next_installation(
    elsewhere: Here, cluster: Cluster, status: str
) -> None:
    if status == "deployed":
        assert cluster.helm("install", "kata", str(cluster.chart)).returncode == 0
    else:
        cluster.killed("install", status)
    again = cluster.helm("install", "kata", str(cluster.chart))
    # Without a repair it stays so for ever: this is what the plugin would get.
    assert again.returncode != 0
    assert "in use" in again.stderr or "in progress" in again.stderr
    before = cluster.object("configmap", "kept")
    assert before is not None
    elsewhere.put([cluster.provider(elsewhere)], [cluster.release(elsewhere)])
    with pytest.raises(RunError, match=r"kubectl .* delete secret sh.helm.release"):
        elsewhere.repair()
    elsewhere.repair(asked_for=True)
    said = elsewhere.out.getvalue()
    assert status in said or "is deployed" in said
    assert elsewhere.pending() == []
    kept = cluster.object("configmap", "kept")
    assert kept is not None
    assert kept["metadata"]["uid"] == before["metadata"]["uid"], "what is in use was taken away"
    done = cluster.helm("install", "kata", str(cluster.chart), "--set", "text=new")
    assert done.returncode == 0, done.stderr
    after = cluster.object("configmap", "kept")
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"], "it was made twice"
    assert after["data"] == {"text": "new"}


@pytest.mark.lab
def test_an_upgrade_that_was_cut_off_is_done_again_from_the_revision_before(
    elsewhere: Here, cluster: Cluster
) -> None:
    assert cluster.helm("install", "kata", str(cluster.chart)).returncode == 0
    cluster.killed("upgrade", "pending-upgrade")
    again = cluster.helm("upgrade", "kata", str(cluster.chart))
    assert "in progress" in again.stderr
    elsewhere.put([cluster.provider(elsewhere), cluster.release(elsewhere, id="x", outputs={})], [])
    elsewhere.repair(asked_for=True)
    done = cluster.helm("upgrade", "kata", str(cluster.chart), "--set", "text=new")
    assert done.returncode == 0, done.stderr
    kept = cluster.object("configmap", "kept")
    assert kept is not None
    assert kept["data"] == {"text": "new"}


@pytest.mark.lab
def test_a_release_that_is_well_is_left_alone(elsewhere: Here, cluster: Cluster) -> None:
    assert cluster.helm("install", "kata", str(cluster.chart)).returncode == 0
    elsewhere.put([cluster.provider(elsewhere), cluster.release(elsewhere, id="x", outputs={})], [])
    assert elsewhere.repair() == ""
    assert "deployed" in cluster.helm("list").stdout
