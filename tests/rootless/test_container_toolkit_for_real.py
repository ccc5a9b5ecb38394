"""The scripts that bring GPUs into a host and a node, run with NVIDIA's real container toolkit in each
version that a cluster may have. Only the driver underneath is a stand-in. In a machine within this one;
skipped with the reason where there can be none or where the toolkit cannot be built."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.cdi import injection
from gpuclusters.cdi.injection import Added, Injected
from gpuclusters.cli import inject
from gpuclusters.compat import known_errors
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.rootless.model import LiveRootless
from lab.tools.debian_packages import unpacked
from tests.fixtures import go_programs
from tests.rootless import gpu_layer
from tests.rootless.node.machine import PrivateMachine, machine_or_skip, needed
from tests.rootless.node.node import PACKAGES
from tests.unit.machines.test_containerd_reads import MODULE, PINNED, pinned

pytestmark = pytest.mark.timeout(3 * go_programs.BUILD_SECONDS)

SCRIPTS = Path(__file__).resolve().parents[2] / "gpuclusters/rootless/scripts"
INJECT = SCRIPTS.parents[1] / "cdi/scripts/inject.sh"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "injection.md"
NODE_GPUS = SCRIPTS.parents[1] / "usernetes/overlay/node-gpus.sh"
HERE = Path(__file__).parent
CONTAINER = HERE / "container.sh"
NAMESPACES = ("rootlesskit", "--pidns", "--cgroupns", "--utsns", "--ipcns", "--copy-up=/run")
CDI_READER = HERE.parent / "cdi_reader"
SPECIFICATION = "/etc/cdi/nvidia.yaml"
CONFIGURATION = "/etc/nvidia-container-runtime/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-nvidia.toml"
WRITTEN = (
    *("/etc/cdi", "/etc/containerd", "/etc/nvidia-container-runtime", "/run/cdi"),
    "/run/systemctl",
)
KIND = "nvidia.com/gpu"
FIRST, SECOND, THIRD = gpu_layer.UUIDS
OTHER = gpu_layer.OTHER


@pytest.fixture(scope="module", params=["proven", "current"])
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateMachine]:
    """A machine with GPUs, with the toolkit of this set of versions."""
    needed()
    layer = tmp_path_factory.mktemp("gpus")
    gpu_layer.lay(layer, version_set(request.param).container_toolkit)
    shutil.copy2(go_programs.built("cdi-reader", CDI_READER), layer / "usr/bin/cdi-reader")
    packages = unpacked("rootless", PACKAGES), unpacked("runc", ["runc", "busybox-static"])
    with machine_or_skip(*packages, layer) as made:
        for name, major, minor in gpu_layer.NODES:
            made.output("mknod", "-m", "0666", f"/dev/{name}", "c", str(major), str(minor))
        made.output("ldconfig")
        yield made


@dataclass(frozen=True, slots=True)
class Node:
    """A node whose script ran with these GPUs."""

    machine: PrivateMachine

    def start(self, *uuids: str) -> str:
        """What the script says at a start of the node."""
        return self.machine.script(NODE_GPUS, GPU_UUIDS=",".join(uuids))

    def specification(self) -> dict[str, Any]:
        """The one that is there."""
        read: dict[str, Any] = yaml.safe_load(self.machine.read(SPECIFICATION))
        return read

    def toml(self, path: str) -> dict[str, Any]:
        """A file."""
        return tomllib.loads(self.machine.read(path))

    def files(self) -> str:
        """All that the script writes, by digest."""
        folders = "/etc/cdi /etc/containerd /etc/nvidia-container-runtime"
        return self.machine.output("sh", "-c", f"find {folders} -type f | sort | xargs sha256sum")


@pytest.fixture
def node(machine: PrivateMachine) -> Node:
    """A node before its first start."""
    machine.output("rm", "-rf", *WRITTEN)
    machine.write("/etc/containerd/config.toml", (HERE / "kinds_containerd.toml").read_text())
    return Node(machine)


def device_nodes(edits: dict[str, Any]) -> set[str]:
    return {one["path"] for one in edits["deviceNodes"]}


def test_the_specification_names_gpus_by_uuid_and_all(node: Node) -> None:
    said = node.start(FIRST, SECOND)
    assert set(said.split()) == {f"{KIND}={name}" for name in (FIRST, SECOND, "all")}
    stated = node.specification()
    assert stated["kind"] == KIND
    devices = {one["name"]: device_nodes(one["containerEdits"]) for one in stated["devices"]}
    assert devices == {
        FIRST: {"/dev/nvidia0"},
        SECOND: {"/dev/nvidia1"},
        "all": {"/dev/nvidia0", "/dev/nvidia1"},
    }
    assert device_nodes(stated["containerEdits"]) == gpu_layer.CONTROL
    mounted = {one["hostPath"] for one in stated["containerEdits"]["mounts"]}
    libraries = {
        f"/{gpu_layer.LIBRARY_FOLDER}/{n}.so.{gpu_layer.DRIVER}" for n in gpu_layer.LIBRARIES
    }
    assert mounted == {"/usr/bin/nvidia-smi", *libraries}
    # The CDI project's library takes it and gives one GPU.
    answer = json.loads(node.machine.output("cdi-reader", "/etc/cdi", f"{KIND}={SECOND}"))
    assert answer["errors"] == {}
    assert set(answer["devices"]) == {f"{KIND}={name}" for name in (FIRST, SECOND, "all")}
    assert set(answer["nodes"]) == {"/dev/nvidia1", *gpu_layer.CONTROL}


def test_what_the_runtimes_of_a_node_are_told_is_read_by_containerd_itself(
    node: Node, tmp_path: Path
) -> None:
    """NVIDIA's runtime is the default and looks GPUs up by CDI; what else was set stays."""
    node.machine.write(CONFIGURATION, '[nvidia-container-runtime]\nlog-level = "debug"\n')
    node.start(FIRST)
    assert node.toml(DROP_IN)["plugins"]["io.containerd.grpc.v1.cri"]["enable_cdi"] is True
    asked = node.machine.read("/run/systemctl").splitlines()
    assert asked[-1] == "try-restart --no-block containerd.service"
    settings = node.toml(CONFIGURATION)
    assert settings["nvidia-container-runtime"]["log-level"] == "debug"
    assert settings["nvidia-container-runtime"]["mode"] == "cdi"
    assert settings["accept-nvidia-visible-devices-as-volume-mounts"] is True
    # A key that has its default may be left out.
    assert settings.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True) is True
    assert settings["nvidia-container-cli"].get("no-cgroups", False) is False

    containerd = go_programs.built(
        "containerd",
        PINNED,
        f"{MODULE}/cmd/containerd",
        tags="no_btrfs,no_devmapper,no_zfs",
        linked=f"{MODULE}/version.Version={pinned(PINNED, MODULE)}",
    )
    main, imported = tmp_path / "config.toml", tmp_path / "conf.d"
    imported.mkdir()
    (imported / "99-nvidia.toml").write_text(node.machine.read(DROP_IN))
    text = node.machine.read("/etc/containerd/config.toml")
    assert tomllib.loads(text)["imports"] == ["/etc/containerd/conf.d/*.toml"]
    main.write_text(text.replace("/etc/containerd/conf.d", str(imported)))
    done = subprocess.run(
        [containerd, "--config", main, "config", "dump"], capture_output=True, text=True, check=True
    )
    assert "unknown key" not in done.stderr
    runtime = tomllib.loads(done.stdout)["plugins"]["io.containerd.cri.v1.runtime"]
    assert "/etc/cdi" in runtime["cdi_spec_dirs"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["containerd"]["default_runtime_name"] == "nvidia"
    runtimes = runtime["containerd"]["runtimes"]
    assert set(runtimes) == {"nvidia", "runc"}
    assert runtimes["nvidia"]["runtime_type"] == "io.containerd.runc.v2"
    assert runtimes["nvidia"]["base_runtime_spec"] == "/etc/containerd/cri-base.json"
    assert runtimes["nvidia"]["options"]["BinaryName"] == "/usr/bin/nvidia-container-runtime"
    assert runtimes["nvidia"]["options"]["SystemdCgroup"] is True


def test_a_second_start_changes_nothing_and_other_gpus_the_specification_alone(node: Node) -> None:
    node.start(FIRST, SECOND)
    before = node.files().splitlines()
    assert len(before) == 4
    node.start(FIRST, SECOND)
    assert node.files().splitlines() == before
    # What another writer left would win over ours.
    node.machine.write("/run/cdi/nvidia.yaml", node.machine.read(SPECIFICATION))
    said = node.start(OTHER)
    assert set(said.split()) == {f"{KIND}={OTHER}", f"{KIND}=all"}
    changed = set(node.files().splitlines()) - set(before)
    assert [line.split()[1] for line in changed] == [SPECIFICATION]
    # Without a driver it fails, and nothing names GPUs that are gone.
    done = node.machine.run("sh", "-s", stdin=NODE_GPUS.read_text())
    assert done.returncode != 0
    assert "Driver Not Loaded" in done.stderr
    assert node.machine.run("test", "-e", SPECIFICATION).returncode == 1


def injected(machine: PrivateMachine, gpus: str, *modes: str) -> tuple[Injected, Added]:
    """What the real runtime adds to a container, by mode."""
    asked = injection.container(gpus, "compute,utility")
    uuids = f"{FIRST},{SECOND}"
    said = machine.script(INJECT, json.dumps(asked), *modes, GPU_UUIDS=uuids)
    found = Injected.parse(said)
    return found, found.added(asked)


def test_what_each_mode_adds_is_what_the_page_shows(node: Node) -> None:
    node.start(FIRST, SECOND)
    before = node.files()
    found, added = injected(node.machine, "all", *injection.Mode)
    assert node.files() == before
    assert found.gpu == ("Tesla V100-SXM2-16GB",) * 2
    hook = ("hook", "prestart: nvidia-container-runtime-hook prestart")
    assert added["legacy"] == [hook]
    for mode in ("cdi", "auto"):
        kinds = {
            kind: {what for one, what in added[mode] if one == kind} for kind, _ in added[mode]
        }
        assert kinds["device"] == {"/dev/nvidia0", "/dev/nvidia1", *gpu_layer.CONTROL}
        assert f"/{gpu_layer.LIBRARY_FOLDER}/libcuda.so.{gpu_layer.DRIVER}" in kinds["mount"]
        assert "NVIDIA_VISIBLE_DEVICES=void" in kinds["environment"]
        folder = f"--folder /{gpu_layer.LIBRARY_FOLDER}"
        assert kinds["ld cache"] == {f"createContainer: update-ldcache {folder}"}
    text = "".join(f"{line.rstrip()}\n" for line in inject.lines(found, added))
    assert found.runtime != version_set("current").container_toolkit or text in PAGE.read_text()


def test_a_gpu_that_no_specification_names_is_no_addition_but_a_failure(node: Node) -> None:
    asked = json.dumps(injection.container("all", "utility"))
    found = Injected.parse(node.machine.script(INJECT, asked, "legacy"))
    assert (bool(found.runtime), found.gpu) == (True, ()), "a machine without a GPU"
    node.start(FIRST)
    found, added = injected(node.machine, OTHER, "cdi", "legacy")
    assert set(added) == {"legacy"}
    *_, last = inject.lines(found, added)
    assert last.startswith("cdi failed: ")
    assert f"unresolvable CDI devices {KIND}={OTHER}" in last


def test_links_for_systemd_lead_to_every_gpu(node: Node) -> None:
    text = (HERE / "pci_gpus.sh").read_text() + NODE_GPUS.read_text()
    uuids = {"GPU_UUIDS": f"{FIRST},{SECOND},{THIRD}"}
    done = node.machine.run(
        "unshare", "--mount", "sh", "-s", "--", "3", stdin=text, environment=uuids
    )
    assert (done.returncode, "not all made" in done.stderr) == (0, False), done.stderr
    found = node.machine.output("find", "/dev/char", "-type", "l", "-printf", "%f %l\n")
    wanted = {f"{major}:{minor} /dev/{name}" for name, major, minor in gpu_layer.NODES}
    assert set(found.splitlines()) == wanted


@pytest.fixture(scope="module")
def tenant(machine: PrivateMachine) -> PrivateMachine:
    """The machine, with an account that may run containers."""
    machine.script(SCRIPTS / "account.sh", "create", "tenant")
    if machine.run("unshare", "--user", "true", account="tenant").returncode:
        pytest.skip("the kernel gives accounts no user namespaces")
    return machine


def test_a_rootless_container_gets_the_gpus_it_names_by_the_real_hooks_or_is_refused(
    node: Node, tenant: PrivateMachine
) -> None:
    def seen_by(visible: str) -> subprocess.CompletedProcess[str]:
        """What a container sees that names GPUs as the device plugin does."""
        argv = (*NAMESPACES, "sh", "-s", "--", visible)
        return tenant.run(*argv, account="tenant", stdin=CONTAINER.read_text())

    node.start(FIRST, SECOND, THIRD)
    for visible, numbers in ((SECOND, "1"), ("all", "012"), ("void", "")):
        done = seen_by(visible)
        assert done.returncode == 0, done.stderr
        wanted = {*(f"/dev/nvidia{n}" for n in numbers), *(gpu_layer.CONTROL if numbers else ())}
        seen = done.stdout.splitlines()
        assert {line for line in seen if line.startswith("/dev/")} == wanted
        # Mounted from the host; and the link that a hook made in the container.
        assert (f"libcuda.so.{gpu_layer.DRIVER}" in seen) == bool(numbers)
        assert ("libcuda.so.1" in seen) == bool(numbers)
    node.start(OTHER)
    # It names a GPU of before.
    done = seen_by(FIRST)
    assert done.returncode != 0
    assert f"unresolvable CDI devices {KIND}={FIRST}" in done.stderr
    known = known_errors.explain("rootless", done.stderr)
    assert known is not None
    assert known.code == "rootless.cdi-device-unknown"


def host_of(machine: PrivateMachine, *uuids: str) -> LiveRootless:
    """What the inspection says."""
    environment = {"GPU_UUIDS": ",".join(uuids)}
    return LiveRootless.parse(machine.script(SCRIPTS / "inspect.sh", "root", "tun", **environment))


def test_the_hosts_runtime_is_set_to_cdi_whatever_it_was(node: Node) -> None:
    machine = node.machine
    machine.write(
        CONFIGURATION,
        '[nvidia-container-cli]\nno-cgroups = true\n[nvidia-container-runtime]\nmode = "legacy"\n',
    )
    before = host_of(machine)
    assert (before.runtime_mode, before.no_cgroups) == ("legacy", True)
    machine.script(SCRIPTS / "toolkit.sh", "runtime")
    written = machine.read(CONFIGURATION)
    machine.script(SCRIPTS / "toolkit.sh", "runtime")
    assert machine.read(CONFIGURATION) == written
    after = host_of(machine)
    assert (after.runtime_mode, after.no_cgroups) == ("cdi", False)


def test_the_hosts_specification_follows_its_gpus(node: Node) -> None:
    machine = node.machine
    # Somebody wrote this one once, by hand; nobody would write it anew.
    machine.write(SPECIFICATION, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n")
    for uuids in ((FIRST, SECOND), (OTHER,)):
        machine.script(SCRIPTS / "toolkit.sh", "cdi", GPU_UUIDS=",".join(uuids))
        live = host_of(machine, *uuids)
        assert (live.static_cdi, live.gpu) == (False, uuids)
        assert live.wanted_devices | {f"{KIND}=0"} <= live.cdi
        assert not any(f"{KIND}={gone}" in live.cdi for gone in {FIRST, OTHER} - set(uuids))
    assert "devices: []" in machine.read(f"{SPECIFICATION}.replaced-by-gpu-clusters")
    assert json.loads(machine.output("cdi-reader", "/var/run/cdi"))["errors"] == {}
    asked = machine.read("/run/systemctl").splitlines()
    assert "enable --quiet nvidia-cdi-refresh.path nvidia-cdi-refresh.service" in asked
