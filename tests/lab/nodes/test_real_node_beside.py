"""Kubelets and container runtimes that a machine has already: named, and unharmed by real nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab import nodes, tools
from lab.nodes import Kind, Wanted, choose, machine_facts
from lab.nodes.choice import INOTIFY_NEEDED
from tests.fixtures.control_plane import KubeCluster
from tests.fixtures.waiting import eventually
from tests.lab.nodes.real_lab import BUILD_SECONDS, RealLab, only_where_possible, real_lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.real_node,
    only_where_possible,
    pytest.mark.timeout(BUILD_SECONDS),
]

_SPACE = "of-somebody-else"


@dataclass(frozen=True)
class Containerd:
    """One that is no node's."""

    process: subprocess.Popen[bytes]
    socket: Path
    ctr: Path

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run ctr with it."""
        line = [str(self.ctr), "--address", str(self.socket), *command]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


@contextmanager
def containerd(folder: Path) -> Iterator[Containerd]:
    """Containerd in the machine's own namespaces, with everything of it in this folder."""
    programs = tools.ensure(["containerd", "ctr"])
    # They would make folders in /opt, /etc and /run of the machine, where tests beside compare.
    without = [f"io.containerd.{name}" for name in ("internal.v1.opt", "nri.v1.nri", "grpc.v1.cri")]
    configuration = folder / "containerd.toml"
    configuration.write_text(
        f"version = 3\nroot = '{folder}/root'\nstate = '{folder}/state'\n"
        f"disabled_plugins = {json.dumps(without)}\n"
        f"[grpc]\n  address = '{folder}/c.sock'\n"
    )
    with (folder / "log").open("wb") as log:
        line = [str(programs["containerd"]), "--config", str(configuration)]
        process = subprocess.Popen(line, stdout=log, stderr=log)
    made = Containerd(process, folder / "c.sock", programs["ctr"])
    try:
        eventually(
            lambda: process.poll() is not None or made.ask("version").returncode == 0, "it answers"
        )
        assert process.poll() is None, (folder / "log").read_text()
        yield made
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize(
    "name",
    [
        "kubelet",
        "dockerd",
        "cri-dockerd",
        "crio",
        "k3s-server",
        "k3s-agent",
        "rke2",
        "k0s",
        "kubelite",
    ],
)
def test_a_kubelet_or_a_runtime_is_found_by_the_name_it_has(tmp_path: Path, name: str) -> None:
    with called(tmp_path / name) as process:
        assert f"{name} (pid {process.pid})" in machine_facts().others


@pytest.mark.parametrize("name", ["kubectl", "containerd-shim-runc-v2"])
def test_what_only_sounds_like_one_is_not_named(tmp_path: Path, name: str) -> None:
    with called(tmp_path / name) as process:
        assert f"(pid {process.pid})" not in " ".join(machine_facts().others)


@contextmanager
def called(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this name, which does nothing."""
    path.symlink_to(sys.executable)
    # Its name is there when the call returns: that waits until the program was found.
    line = [str(path), "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as process:
        yield process


def test_a_container_runtime_of_the_machine_is_named_and_works_on_beside_real_nodes(
    kube_api: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # The path of a socket must be short.
    with containerd(tmp_path_factory.mktemp("c")) as there:
        assert there.ask("namespaces", "create", _SPACE).returncode == 0
        socket = there.socket.stat().st_ino
        # What tests beside take of inotify at this moment is another reason than the one looked at.
        choice = choose(Wanted.AUTO, replace(machine_facts(), inotify=INOTIFY_NEEDED))
        assert choice.kind is Kind.REAL
        assert f"containerd (pid {there.process.pid})" in choice.why
        assert "already there, left alone" in choice.why
        with real_lab(kube_api) as lab:
            (node,) = lab.names
            runtime = lab.node(node)["status"]["nodeInfo"]["containerRuntimeVersion"]
            assert runtime.startswith("containerd://2.")
            # It has a containerd of its own, which is not the one that was there.
            assert _SPACE not in spaces(lab, node)
            assert there.process.poll() is None
            assert _SPACE in there.ask("namespaces", "list").stdout
        assert there.process.poll() is None
        assert there.socket.stat().st_ino == socket
        assert _SPACE in there.ask("namespaces", "list").stdout


def spaces(lab: RealLab, node: str) -> str:
    """What the node's own containerd lists."""
    running = nodes.status(lab.folder).nodes[node]
    ctr = str(tools.ensure(["ctr"])["ctr"])
    line = nodes.command_in(running, [ctr, "namespaces", "list"])
    listed = subprocess.run(line, capture_output=True, text=True, check=True, timeout=300).stdout
    assert "k8s.io" in listed
    return listed
