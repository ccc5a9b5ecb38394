"""The control plane as a user of the lab meets it: started, broken, repaired, stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab import control_plane
from lab.control_plane import ControlPlaneError, lifecycle, ports
from lab.control_plane.commands import PROCESSES
from lab.control_plane.kube import KubeApi
from lab.control_plane.layout import Layout
from tests.fixtures.control_plane import KubeCluster

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory, tools_at_hand: None) -> Iterator[Path]:
    """Ends all that still runs below, without the code under test, which may be what is broken."""
    folder = tmp_path_factory.mktemp("labs")
    yield folder
    for process in processes_of(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def lab(labs: Path) -> Path:
    """An empty lab folder."""
    return Path(tempfile.mkdtemp(dir=labs)) / "lab"


@pytest.fixture
def shared(labs: Path) -> Path:
    """A lab folder for tests that begin and end with a control plane that is well."""
    return labs / "shared" / "lab"


def processes_of(folder: Path) -> list[psutil.Process]:
    """Those that live."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = any(f"{folder}/" in argument for argument in process.cmdline())
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def pids(folder: Path) -> dict[str, int]:
    return {process.name: process.pid for process in control_plane.status(folder)}


def api(folder: Path) -> KubeApi:
    layout = Layout.of(folder)
    return KubeApi(layout, ports.kept(layout.ports)["kube-apiserver"])


def test_a_second_start_changes_nothing_and_labs_run_side_by_side(
    shared: Path, kube_api: KubeCluster
) -> None:
    said: list[str] = []
    first = control_plane.start(shared, said.append)
    before = pids(shared), first.kubeconfig.read_bytes()
    again = control_plane.start(shared, said.append)
    assert (pids(shared), again.kubeconfig.read_bytes()) == before
    assert not again.changed
    assert "no change" in said[-1]
    assert again.versions["kubernetes"].startswith("1.36.")
    assert first.kubeconfig.stat().st_mode & 0o777 == 0o600
    for process in control_plane.status(shared):
        assert process.running
        assert psutil.pid_exists(process.pid)
        assert process.rss_bytes > 1 << 20
        assert process.since > 0
        assert process.log.exists()
        assert not ports.is_free(process.port)
    assert first.url != kube_api.url
    with api(shared) as mine, kube_api.api() as theirs:
        assert mine.get("/api/v1/nodes")["items"] == []
        names = {n["metadata"]["name"] for n in theirs.get("/api/v1/nodes")["items"]}
        # Other tests of the shared cluster may have nodes of their own at this moment.
        assert names >= set(kube_api.nodes)


def test_a_killed_process_is_started_again_and_its_neighbours_stay(shared: Path) -> None:
    control_plane.start(shared)
    before = pids(shared)
    os.kill(before["etcd"], signal.SIGKILL)
    assert control_plane.start(shared).changed
    after = pids(shared)
    assert {name for name in PROCESSES if after[name] != before[name]} == {"etcd"}
    with api(shared) as client:
        assert client.get("/api/v1/namespaces/default")["status"]["phase"] == "Active"


def test_a_kept_port_taken_by_another_program_is_named_with_the_program(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_PORT_SECONDS", 0.1)
    layout = Layout.of(lab)
    chosen = ports.reserve(layout.ports, lifecycle.PORT_NAMES)
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", chosen["kube-apiserver"]))
        foreign.listen()
        with pytest.raises(ControlPlaneError) as caught:
            control_plane.start(lab)
    assert f"port {chosen['kube-apiserver']} on 127.0.0.1, kept for kube-apiserver" in str(
        caught.value
    )
    assert f"(pid {os.getpid()})" in str(caught.value)
    assert processes_of(lab) == []


def test_a_process_that_dies_at_start_is_named_with_its_last_words_and_the_rest_is_stopped(
    lab: Path,
) -> None:
    layout = Layout.of(lab)
    layout.root.mkdir(parents=True)
    layout.etcd_data.write_text("a file where etcd wants its folder")
    with pytest.raises(ControlPlaneError) as caught:
        control_plane.start(lab)
    message = str(caught.value)
    assert message.startswith("etcd ended while the control plane started: ")
    assert "not a directory" in message
    assert f"(log: {layout.log('etcd')})" in message
    assert processes_of(lab) == []


def test_stop_leaves_no_process_and_a_new_start_finds_everything_as_it_was(
    shared: Path,
) -> None:
    """The last one here: in the end nothing is left of what all share."""
    first = control_plane.start(shared)
    kubeconfig = first.kubeconfig.read_bytes()
    with api(shared) as client:
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
    os.kill(pids(shared)["kube-controller-manager"], signal.SIGSTOP)
    control_plane.stop(shared)
    assert processes_of(shared) == []
    assert not any(process.running for process in control_plane.status(shared))

    again = control_plane.start(shared)
    assert again.url == first.url
    assert again.kubeconfig.read_bytes() == kubeconfig
    with api(shared) as client:
        assert client.get("/api/v1/namespaces/kept")["status"]["phase"] == "Active"

    # Somebody removed the folder while the lab ran: its processes are found all the same.
    (shared / "control_plane").rename(shared.with_name("moved-away"))
    control_plane.stop(shared)
    assert processes_of(shared) == []
