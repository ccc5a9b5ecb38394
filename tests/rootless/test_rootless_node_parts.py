"""What a rootless node is made of, without one: cgroups, configurations, what the stand-ins refuse."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.control_plane import NodeSpec, Taint
from tests.rootless.node import configuration, delegation
from tests.rootless.node.host import layer
from tests.rootless.node.model import LIBEXEC

ACCOUNT = 1001


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were given to the account, which takes root."""
    paths: list[str] = []

    def note(path: Path, user: int, group: int) -> None:
        assert (user, group) == (ACCOUNT, ACCOUNT)
        paths.append(str(path))

    monkeypatch.setattr(os, "chown", note)
    return paths


def files(folder: Path, *names: str) -> None:
    """Files as the kernel shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("")


def test_of_version_1_the_account_gets_a_group_in_every_hierarchy(
    tmp_path: Path, given: list[str]
) -> None:
    for controller in ("memory", "pids"):
        files(tmp_path / controller, "cgroup.procs", "tasks")
    groups = delegation.groups("ours", tmp_path)
    for group in groups:
        files(group, "cgroup.procs", "tasks", "memory.limit_in_bytes")
    delegation.give(groups, ACCOUNT)
    mine = {tmp_path / controller / "ours" for controller in ("memory", "pids")}
    # Not its limits: what the whole node may have is root's to say.
    assert set(given) == {str(path) for g in mine for path in (g, g / "cgroup.procs", g / "tasks")}
    places = delegation.places(groups, tmp_path)
    assert set(places.values()) == {"/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"}
    assert places[tmp_path / "pids/ours"] == "/sys/fs/cgroup/pids"


def test_of_version_2_it_gets_what_systemd_delegates(tmp_path: Path, given: list[str]) -> None:
    files(tmp_path, "cgroup.controllers", "cgroup.procs")
    groups = delegation.groups("ours", tmp_path)
    names = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control")
    files(tmp_path / "ours", *names, "memory.max", "cgroup.controllers")
    delegation.give(groups, ACCOUNT)
    mine = tmp_path / "ours"
    assert given == [str(mine), *(str(mine / name) for name in names)]
    assert delegation.places(groups, tmp_path) == {mine: "/sys/fs/cgroup"}


def test_groups_of_containers_go_with_them_and_the_accounts_own_stays(tmp_path: Path) -> None:
    (tmp_path / "memory/ours/kubepods/pod-1/container").mkdir(parents=True)
    delegation.clear([tmp_path / "memory/ours"])
    assert list((tmp_path / "memory").rglob("*")) == [tmp_path / "memory/ours"]


def test_the_kubelet_knows_that_it_is_rootless_and_where_it_is_reached() -> None:
    taint = Taint("of", "NoSchedule", "tests")
    told = json.loads(configuration.kubelet(NodeSpec("n", taints=(taint,)), 4242))
    assert told["featureGates"] == {"KubeletInUserNamespace": True}
    assert (told["port"], told["cgroupRoot"]) == (4242, "/")
    assert told["registerWithTaints"][0]["key"] == "of"
    # The capacity of a simulated host is none of the account's.
    assert "systemReserved" not in told


def test_the_api_server_is_called_where_slirp_shows_it_by_the_name_in_its_certificate() -> None:
    (cluster,) = json.loads(configuration.kubeconfig(6443))["clusters"]
    assert cluster["cluster"]["server"] == "https://10.0.2.2:6443"
    assert cluster["cluster"]["tls-server-name"] == "127.0.0.1"


def test_nodes_have_the_scripts_of_our_overlay_as_its_dockerfile_puts_them(tmp_path: Path) -> None:
    made = layer(tmp_path)
    dockerfile = Path(__file__).parents[2] / "gpuclusters/usernetes/overlay/Dockerfile.gpu"
    placed = [
        line.split() for line in dockerfile.read_text().splitlines() if line.startswith("COPY")
    ]
    assert placed
    for _, _, mode, name, place in placed:
        copy = made / place.lstrip("/")
        assert copy.read_bytes() == (dockerfile.parent / name).read_bytes()
        assert f"{copy.stat().st_mode & 0o7777:04o}" == mode.removeprefix("--chmod=")


@pytest.mark.parametrize("words", [("run", "image"), ("rm", "--force", "usernetes-node"), ("ps",)])
def test_in_dockers_place_what_would_need_docker_is_refused(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    docker = layer(tmp_path) / "usr/local/bin/docker"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run([docker, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 125
    assert f"it cannot: {' '.join(words)}" in done.stderr


def test_a_node_that_does_not_run_is_said_to_be_so(tmp_path: Path) -> None:
    docker = layer(tmp_path) / "usr/local/bin/docker"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ask = ("exec", "usernetes-node", "true")
    done = subprocess.run([docker, *ask], capture_output=True, text=True, env=environment)
    assert (done.returncode, "is not running" in done.stderr) == (1, True)
    looked = subprocess.run(
        [docker, "inspect", "--format", "x", "usernetes-node"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert looked.stdout.split() == ["exited"]


def test_the_layer_can_be_laid_twice(tmp_path: Path) -> None:
    layer(tmp_path)
    assert (layer(tmp_path) / LIBEXEC.lstrip("/") / "iptables").is_symlink()
