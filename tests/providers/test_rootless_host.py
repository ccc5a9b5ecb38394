"""Rootless Docker with GPUs on hosts, through the SDK's provider process, real SSH and the real scripts."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.driver.resource import GpuDriverProvider
from gpuclusters.rootless import files
from gpuclusters.rootless.resource import RootlessHostProvider
from lab.hosts import faults
from lab.hosts.model import USER
from lab.hosts.usernetes.rootless import Engine, rootless_engine
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.providers.conftest import StartProvider
from tests.providers.provider_process import Made, ProviderProcess, StepFailed
from tests.providers.restarts import restart

DOCKER, TOOLKIT = "29.7.2", "1.20.0"


def inputs(host: SimulatedHost, **changes: Any) -> dict[str, Any]:
    return {
        "connection": host.connection,
        "account": USER,
        "gpus": 4,
        "docker": DOCKER,
        "container_toolkit": TOOLKIT,
        "ports": [6443],
        **changes,
    }


def engine(host: SimulatedHost, account: str = USER) -> Engine:
    return rootless_engine(host.folder / host.name, account)


class Kept:
    """A host that is prepared once for the tests of this file, and what is kept of it."""

    def __init__(self, host: SimulatedHost, provider: ProviderProcess) -> None:
        self.host = host
        self.provider = provider
        self.made = provider.create(RootlessHostProvider, inputs(host))

    def update(self) -> Made:
        """Bring it back to what it must be."""
        self.made = self.provider.update(RootlessHostProvider, self.made, inputs(self.host))
        return self.made

    def drift(self) -> list[str]:
        """What a refresh says."""
        found = self.provider.read(RootlessHostProvider, self.made).outputs["drift"]
        return [f"{one['problem']} [{one['code']}]" for one in found]


@pytest.fixture(scope="module")
def ready(hosts_pool: Any, shared_processes: StartProvider) -> Kept:
    (host,) = hosts_pool.add(1, "plain-gpu-v100", condition="prepared")
    return Kept(host, shared_processes({"GPU_CLUSTERS_SSH_KEY_FILE": str(host.client_key)}))


@pytest.fixture
def kept(ready: Kept) -> Iterator[Kept]:
    yield ready
    ready.host.clear_faults()


def test_a_bare_machine_gets_driver_and_rootless_docker_and_loses_them_again(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="bare")
    provider = start_provider(host)
    with pytest.raises(StepFailed, match=r"its driver serves no GPU.*driver\.source: host"):
        provider.create(RootlessHostProvider, inputs(host))
    provider.create(
        GpuDriverProvider,
        {
            "connection": host.connection,
            "version": "580.178.04",
            "modules": "proprietary",
            "gpus": 4,
        },
    )
    # An account that is not there is made; it is not the one that logs in.
    wanted = inputs(host, account="ubuntu")
    made = provider.create(RootlessHostProvider, wanted)
    assert made.id == f"{host.name}/rootless"
    assert made.outputs["drift"] == []
    assert made.outputs["facts"]["docker_host"] == "unix:///run/user/1001/docker.sock"
    assert (made.outputs["facts"]["docker"], len(made.outputs["gpu_uuids"])) == (DOCKER, 4)
    runs = engine(host, "ubuntu")
    assert (runs.running, runs.is_rootless, runs.default_runtime) == (True, True, "runc")
    assert "nvidia" in runs.runtimes
    assert {"nvidia.com/gpu=all", f"nvidia.com/gpu={made.outputs['gpu_uuids'][0]}"} <= set(
        runs.cdi_devices
    )
    assert set(runs.controllers) == set(files.CONTROLLERS)
    assert host.run("systemctl is-active docker.service").stdout == "inactive\n"
    held = host.run("apt-mark showhold").stdout.split()
    assert {"linux-image-generic", "docker-ce", "libnvidia-container1"} <= set(held)
    # Folders on the way to the account's files are its own.
    assert host.sudo("stat -c %U /home/ubuntu/.config").stdout == "ubuntu\n"

    provider.delete(RootlessHostProvider, made)
    assert not engine(host, "ubuntu").running
    assert host.run("systemctl is-enabled gpu-clusters-rootless-docker").stdout == "not-found\n"
    assert "docker-ce" not in host.run("dpkg-query -W").stdout
    assert "linux-image-generic" in host.run("apt-mark showhold").stdout  # the driver's own hold
    assert host.path("/home/ubuntu").is_dir()


def test_what_changed_on_a_host_is_drift_and_is_put_back(kept: Kept) -> None:
    kept.host.sudo(
        "rm /etc/sysctl.d/99-gpu-clusters-usernetes.conf; apt-mark unhold docker-ce linux-image-generic; "
        "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=legacy --set "
        "nvidia-container-cli.no-cgroups=true; mkdir -p /etc/cdi; cp /run/cdi/nvidia.yaml /etc/cdi; "
        f'echo \'{{"default-runtime": "nvidia", "mtu": 1450}}\' > /home/{USER}/.config/docker/daemon.json'
    )
    said = "; ".join(kept.drift())
    for words in (
        "99-gpu-clusters-usernetes.conf differs",
        "not held: docker-ce, linux-image-generic",
        "NVIDIA's container runtime is not in CDI mode (has no-cgroups)",
        "/etc/cdi/nvidia.yaml is a specification that nobody writes anew",
        ".config/docker/daemon.json differs",
    ):
        assert words in said
    assert kept.update().outputs["drift"] == []
    text = kept.host.path(f"/home/{USER}/.config/docker/daemon.json").read_text()
    assert ('"mtu": 1450' in text, "default-runtime" in text) == (True, False)
    assert engine(kept.host).default_runtime == "runc"


def test_after_a_restart_the_gpus_are_back_and_follow_another_machine(kept: Kept) -> None:
    before = engine(kept.host)
    restart(kept.host)
    back = engine(kept.host)
    assert (back.running, back.cdi_devices) == (True, before.cdi_devices)
    assert kept.drift() == []

    # Made anew from its disk: other GPUs, and nobody ran anything of ours but the boot.
    kept.host.inject(faults.GpusReplaced())
    said = "; ".join(kept.drift())
    assert "the CDI specification names other GPUs" in said
    restart(kept.host)
    assert kept.drift() == []
    replaced = engine(kept.host)
    assert not set(replaced.cdi_devices) & {d for d in before.cdi_devices if "=GPU-" in d}
    kept.host.inject(faults.GpusReplaced(generation=2))
    assert kept.update().outputs["drift"] == []  # without a restart too


def test_another_version_is_an_update_in_place_and_runs_at_once(kept: Kept) -> None:
    older = inputs(kept.host, docker="28.5.2", container_toolkit="1.18.2")
    assert kept.provider.diff(RootlessHostProvider, kept.made.outputs, older).replaces == []
    made = kept.provider.update(RootlessHostProvider, kept.made, older)
    assert (made.outputs["facts"]["docker"], engine(kept.host).version) == ("28.5.2", "28.5.2")
    assert made.outputs["facts"]["container_toolkit"] == "1.18.2"
    assert "docker-ce" in kept.host.run("apt-mark showhold").stdout.split()
    kept.update()
    assert engine(kept.host).version == DOCKER


def test_all_that_speaks_against_a_host_is_said_at_once_and_nothing_is_touched(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="prepared")
    provider = start_provider(host)
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
    with pytest.raises(StepFailed) as failed:
        provider.create(RootlessHostProvider, inputs(host))
    for words in (
        "Docker runs as root there and has 2 containers (registry, web): somebody uses it",
        "have no GPU System Processor, which open modules need",
        "AppArmor restricts user namespaces: `rootlesskit true` says",
        "rootless containerd of nerdctl runs under the same account",
        "something listens on port 6443 already",
    ):
        assert words in str(failed.value)
    assert host.journal("packages") == []
    assert host.run("systemctl is-active docker.service").stdout == "active\n"

    host.clear_faults()
    host.sudo("rmdir /run/user/1000/containerd-rootless")
    made = provider.create(RootlessHostProvider, inputs(host))
    assert made.outputs["drift"] == []
    assert host.run("systemctl is-active docker.service").stdout == "inactive\n"
    # It was there before us, so a removal starts it again.
    provider.delete(RootlessHostProvider, made)
    assert host.run("systemctl is-active docker.service").stdout == "active\n"


@pytest.mark.parametrize(
    ("together", "before", "said"),
    [
        (
            (
                faults.LegacyRuntime(no_cgroups=True),
                faults.CdiStale(),
                faults.HoldsLost(),
                faults.SubordinateIdsLost(),
            ),
            "nvidia-ctk config --in-place --set a.b=c; systemctl restart nvidia-cdi-refresh; "
            "apt-mark showhold",
            (
                "bpf_prog_query(BPF_CGROUP_DEVICE)",
                "something writes /etc/nvidia-container-runtime/config.toml too",
                "the CDI specification names other GPUs",
                "something there takes the holds off",
                "has no 65536 subordinate ids of users and groups",
                "/etc/nsswitch.conf may lead to a directory",
            ),
        ),
        (
            (faults.CdiInvisible(), faults.DaemonConfigurationIgnored(), faults.EngineIsRootful()),
            "true",
            (
                "does not see the CDI devices of the host: it sees 0 in no directory",
                "does not list the runtime nvidia",
                "/etc/docker/daemon.json is not read by a rootless daemon",
                "is not rootless (`docker info` has no name=rootless)",
                "it must be unix:///run/user/1000/docker.sock",
            ),
        ),
    ],
    ids=["steps that do not help", "the daemon"],
)
def test_all_that_is_wrong_is_said_at_once_and_put_right_when_it_is_over(
    kept: Kept, together: tuple[Any, ...], before: str, said: tuple[str, ...]
) -> None:
    kept.host.inject(*together)
    kept.host.sudo(before)
    with pytest.raises(StepFailed) as failed:
        kept.update()
    for words in said:
        assert words in str(failed.value)
    kept.host.clear_faults()
    assert kept.update().outputs["drift"] == []


@pytest.mark.parametrize(
    ("fault", "before", "words"),
    [
        (
            faults.CdiWithoutUuids(),
            "systemctl restart nvidia-cdi-refresh",
            r"does not name the GPUs by UUID",
        ),
        (
            faults.NvmlLost(),
            "rm /var/lib/gpu-clusters/usernetes/passed",
            r"a container lost its GPUs: systemd reloaded",
        ),
        (
            faults.ImageRefused(),
            "rm /var/lib/gpu-clusters/usernetes/passed",
            r"an image cannot be pulled.*may name registry-mirrors",
        ),
        (
            faults.DelegationIneffective(),
            "systemctl restart user@1000.service",
            r"controllers cpu cpuset io are not delegated.*cgroup_disable=",
        ),
        (faults.UserBusGone(), "", r"cannot be reached.*no bus.*dbus-user-session"),
        (
            faults.LingerRefused(),
            f"rm /var/lib/systemd/linger/{USER}",
            r"lingering is not allowed there.*polkit",
        ),
        (
            faults.Slirp4netnsFails(),
            f"systemctl --user -M {USER}@ stop docker",
            r"network does not come up.*slirp4netns.*169\.254\.169\.254",
        ),
        (
            faults.AccountOfDirectory(),
            "rm /etc/subuid",
            r"comes from OS Login or a directory.*enable-oslogin=FALSE",
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_a_fault_is_named_and_the_next_run_comes_to_the_next_one(
    kept: Kept, fault: Any, before: str, words: str
) -> None:
    kept.host.inject(fault)
    if before:
        kept.host.sudo(before)
    with pytest.raises(StepFailed, match=words):
        kept.update()


def test_after_all_of_these_a_run_carries_on(kept: Kept) -> None:
    assert kept.update().outputs["drift"] == []


def test_an_administrator_is_told_all_commands_and_they_are_enough(
    hosts: Hosts, start_provider: StartProvider
) -> None:
    (host,) = hosts(1, platform="plain-gpu-v100", condition="prepared")
    provider = start_provider(host)
    wanted = inputs(host, sudo=False)
    host.sudo(
        "echo 'deb https://download.docker.com/linux/ubuntu noble stable' > /etc/apt/sources.list.d/d.list; "
        "echo 'deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /' > "
        "/etc/apt/sources.list.d/n.list"
    )
    host.inject(faults.SudoNeedsPassword())  # whatever needs root fails
    host.forget()
    with pytest.raises(StepFailed) as failed:
        provider.create(RootlessHostProvider, wanted)
    said = str(failed.value)
    for words in (
        "apt-get install",
        "usermod --add-subuids",
        "loginctl enable-linger",
        "sysctl --system",
    ):
        assert words in said
    made = None
    for _ in range(4):
        host.clear_faults()
        for command in re.findall(r"administrator to run: `([^`]+)`", said):
            done = host.sudo(command)
            assert done.returncode == 0, (command, done.stderr)
        host.inject(faults.SudoNeedsPassword())
        try:
            made = provider.create(RootlessHostProvider, wanted)
            break
        except StepFailed as error:
            said = str(error)
    assert made is not None, said
    assert (made.outputs["drift"], engine(host).running) == ([], True)
    # What the account did is taken out; what the administrator did stays.
    provider.delete(RootlessHostProvider, made)
    assert not engine(host).running
    assert host.path(files.SYSCTL_FILE).exists()


def test_inputs_that_cannot_be_are_refused_before_anything_is_reached(ready: Kept) -> None:
    wanted = inputs(ready.host)
    for changes, words in (
        ({"docker": "28.1.1"}, "does not show which CDI devices it sees"),
        ({"container_toolkit": "1.17.9"}, "does not keep the CDI specification up to date"),
        ({"account": "root"}, "belongs to an ordinary account"),
        ({"sudo": False, "account": "ubuntu"}, f"only {USER} can be prepared"),
    ):
        assert words in str(ready.provider.check(RootlessHostProvider, wanted | changes))
