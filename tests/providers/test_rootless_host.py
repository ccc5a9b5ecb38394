"""Rootless Docker with GPUs on hosts, through the SDK's provider process, real SSH and the real scripts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.rootless import files
from lab.hosts import faults
from lab.hosts.model import USER
from lab.hosts.usernetes.rootless import Engine, rootless_engine
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import INPUTS, Resource, StepFailed

FAULTS = beside(__file__, "rootless_faults.yaml")
DOCKER = INPUTS["RootlessHost"]["docker"]


def engine(host: SimulatedHost, account: str = USER) -> Engine:
    return rootless_engine(host.folder / host.name, account)


@pytest.fixture(scope="module")
def ready(hosts_pool: Any, shared_processes: StartProvider) -> tuple[SimulatedHost, Resource]:
    """A host that is prepared once for the tests of this file."""
    (host,) = hosts_pool.add(1, "plain-gpu-v100", condition="prepared")
    process = shared_processes({"GPU_CLUSTERS_SSH_KEY_FILE": str(host.client_key)})
    kept = process.on("RootlessHost", host)
    kept.create()
    return host, kept


@pytest.fixture
def prepared(ready: tuple[SimulatedHost, Resource]) -> Iterator[SimulatedHost]:
    yield ready[0]
    ready[0].clear_faults()


@pytest.fixture
def kept(ready: tuple[SimulatedHost, Resource]) -> Resource:
    return ready[1]


def test_a_bare_machine_gets_driver_and_rootless_docker_and_loses_them_again(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="bare")
    # An account that is not there is made; it is not the one that logs in.
    docker = start_provider(host).on("RootlessHost", host, account="ubuntu")
    docker.refused("create", "its driver serves no GPU", "driver.source: host")
    driver = {"version": "580.178.04", "modules": "proprietary", "gpus": 4}
    docker.process.create("GpuDriver", {"connection": host.connection, **driver})
    made = docker.create()
    assert docker.id == f"{host.name}/rootless"
    assert made["drift"] == []
    assert made["facts"]["docker_host"] == "unix:///run/user/1001/docker.sock"
    assert (made["facts"]["docker"], len(made["gpu_uuids"])) == (DOCKER, 4)
    runs = engine(host, "ubuntu")
    assert (runs.running, runs.is_rootless, runs.default_runtime) == (True, True, "runc")
    assert "nvidia" in runs.runtimes
    first = f"nvidia.com/gpu={made['gpu_uuids'][0]}"
    assert {"nvidia.com/gpu=all", first} <= set(runs.cdi_devices)
    assert set(runs.controllers) == set(files.CONTROLLERS)
    assert host.run("systemctl is-active docker.service").stdout == "inactive\n"
    held = host.run("apt-mark showhold").stdout.split()
    assert {"linux-image-generic", "docker-ce", "libnvidia-container1"} <= set(held)
    # Folders on the way to the account's files are its own.
    assert host.sudo("stat -c %U /home/ubuntu/.config").stdout == "ubuntu\n"

    docker.delete()
    assert not engine(host, "ubuntu").running
    assert host.run("systemctl is-enabled gpu-clusters-rootless-docker").stdout == "not-found\n"
    assert "docker-ce" not in host.run("dpkg-query -W").stdout
    assert "linux-image-generic" in host.run("apt-mark showhold").stdout  # the driver's own hold
    assert host.path("/home/ubuntu").is_dir()


def test_what_changed_on_a_host_is_drift_and_is_put_back(
    prepared: SimulatedHost, kept: Resource
) -> None:
    prepared.sudo(
        "rm /etc/sysctl.d/99-gpu-clusters-usernetes.conf; apt-mark unhold docker-ce linux-image-generic; "
        "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=legacy --set "
        "nvidia-container-cli.no-cgroups=true; mkdir -p /etc/cdi; cp /run/cdi/nvidia.yaml /etc/cdi; "
        f'echo \'{{"default-runtime": "nvidia", "mtu": 1450}}\' > /home/{USER}/.config/docker/daemon.json'
    )
    said = kept.drift()
    for words in (
        "99-gpu-clusters-usernetes.conf differs",
        "not held: docker-ce, linux-image-generic",
        "NVIDIA's container runtime is not in CDI mode (has no-cgroups)",
        "/etc/cdi/nvidia.yaml is a specification that nobody writes anew",
        ".config/docker/daemon.json differs",
    ):
        assert words in said
    assert kept.update()["drift"] == []
    text = prepared.path(f"/home/{USER}/.config/docker/daemon.json").read_text()
    assert ('"mtu": 1450' in text, "default-runtime" in text) == (True, False)
    assert engine(prepared).default_runtime == "runc"


def test_after_a_restart_the_gpus_are_back_and_follow_another_machine(
    prepared: SimulatedHost, kept: Resource
) -> None:
    before = engine(prepared)
    prepared.reboot()
    back = engine(prepared)
    assert (back.running, back.cdi_devices) == (True, before.cdi_devices)
    assert kept.drift() == ""

    # Made anew from its disk: other GPUs, and nobody ran anything of ours but the boot.
    prepared.inject(faults.GpusReplaced())
    assert "the CDI specification names other GPUs" in kept.drift()
    prepared.reboot()
    replaced = engine(prepared)
    assert not set(replaced.cdi_devices) & {d for d in before.cdi_devices if "=GPU-" in d}
    prepared.inject(faults.GpusReplaced(generation=2))
    assert kept.update()["drift"] == []  # without a restart too


def test_all_that_speaks_against_a_host_is_said_at_once_and_nothing_is_touched(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="prepared")
    docker = start_provider(host).on("RootlessHost", host)
    host.inject(
        faults.RootfulContainers(names=("registry", "web")),
        faults.OpenKernelModule(),
        faults.UserNamespacesRestricted(),
        faults.NerdctlRuns(),
        faults.PortTaken(port=6443),
    )
    # Somebody's Docker, as root and in use; and nerdctl of the account.
    host.sudo(
        "echo 'deb https://download.docker.com/linux/ubuntu noble stable' > "
        "/etc/apt/sources.list.d/d.list; apt-get install -y docker-ce docker-ce-cli "
        "docker-ce-rootless-extras uidmap dbus-user-session; usermod --add-subuids 100000-165535 "
        f"--add-subgids 100000-165535 {USER}; loginctl enable-linger {USER}"
    )
    host.forget()
    docker.refused(
        "create",
        "Docker runs as root there and has 2 containers (registry, web): somebody uses it",
        "have no GPU System Processor, which open modules need",
        "AppArmor restricts user namespaces: `rootlesskit true` says",
        "rootless containerd of nerdctl runs under the same account",
        "something listens on port 6443 already",
    )
    assert host.journal("packages") == []
    assert host.run("systemctl is-active docker.service").stdout == "active\n"

    host.clear_faults()
    host.sudo("rmdir /run/user/1000/containerd-rootless")
    assert docker.create()["drift"] == []
    assert host.run("systemctl is-active docker.service").stdout == "inactive\n"
    # It was there before us, so a removal starts it again.
    docker.delete()
    assert host.run("systemctl is-active docker.service").stdout == "active\n"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_the_next_run_comes_to_the_next_one(
    prepared: SimulatedHost, kept: Resource, name: str
) -> None:
    row = FAULTS[name]
    for kind, values in row.get("faults", {name: {}}).items():
        prepared.inject(faults.parse(kind, values or {}))
    if "before" in row:
        prepared.sudo(row["before"])
    kept.refused("update", *row["said"])


def test_after_all_of_these_a_run_carries_on_with_another_version_in_place(
    prepared: SimulatedHost, kept: Resource
) -> None:
    older = {"docker": "28.5.2", "container_toolkit": "1.18.2"}
    assert kept.diff(**older).replaces == []
    made = kept.update(**older)
    facts = made["facts"]
    assert (facts["docker"], engine(prepared).version) == ("28.5.2", "28.5.2")
    assert (facts["container_toolkit"], made["drift"]) == ("1.18.2", [])
    assert "docker-ce" in prepared.run("apt-mark showhold").stdout.split()


def test_an_administrator_is_told_all_commands_and_they_are_enough(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="prepared")
    docker = start_provider(host).on("RootlessHost", host, sudo=False)
    host.sudo(
        "echo 'deb https://download.docker.com/linux/ubuntu noble stable' > /etc/apt/sources.list.d/d.list; "
        "echo 'deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /' > "
        "/etc/apt/sources.list.d/n.list"
    )
    host.inject(faults.SudoNeedsPassword())  # whatever needs root fails
    host.forget()
    every = (
        "apt-get install",
        "usermod --add-subuids",
        "loginctl enable-linger",
        "sysctl --system",
    )
    said = docker.refused("create", *every)
    for _ in range(4):
        host.clear_faults()
        for command in re.findall(r"administrator to run: `([^`]+)`", said):
            done = host.sudo(command)
            assert done.returncode == 0, (command, done.stderr)
        host.inject(faults.SudoNeedsPassword())
        try:
            docker.create()
            break
        except StepFailed as error:
            said = str(error)
    assert docker.id, said
    assert (docker.outputs["drift"], engine(host).running) == ([], True)
    # What the account did is taken out; what the administrator did stays.
    docker.delete()
    assert not engine(host).running
    assert host.path(files.SYSCTL_FILE).exists()


def test_inputs_that_cannot_be_are_refused_before_anything_is_reached(kept: Resource) -> None:
    for changes, words in (
        ({"docker": "28.1.1"}, "does not show which CDI devices it sees"),
        ({"container_toolkit": "1.17.9"}, "does not keep the CDI specification up to date"),
        ({"account": "root"}, "belongs to an ordinary account"),
        ({"sudo": False, "account": "ubuntu"}, f"only {USER} can be prepared"),
    ):
        assert words in str(kept.process.check("RootlessHost", kept.wanted | changes))
