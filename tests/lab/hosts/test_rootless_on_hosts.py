"""Rootless Docker on simulated hosts: what the stand-ins answer, and what follows from what."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from lab.hosts import faults
from lab.hosts.model import USER, HostsError
from lab.hosts.usernetes import rootless_faults
from lab.hosts.usernetes.rootless import rootless_engine
from tests.fixtures.hosts import SimulatedHost

OWN = "env XDG_RUNTIME_DIR=/run/user/1000 DOCKER_HOST=unix:///run/user/1000/docker.sock"


@pytest.fixture(scope="module")
def host(hosts_pool: Any) -> SimulatedHost:
    """A machine with a driver and all packages, and an account that lingers."""
    made: SimulatedHost
    (made,) = hosts_pool.add(1, "plain-gpu-v100", condition="prepared")
    done = made.sudo(
        "echo 'https://download.docker.com https://nvidia.github.io/libnvidia-container' > "
        "/etc/apt/sources.list.d/all.list; apt-get install -y docker-ce=5:28.5.2-* docker-ce-cli "
        "docker-ce-rootless-extras uidmap slirp4netns dbus-user-session "
        "nvidia-container-toolkit-base=1.20.0-*; usermod --add-subuids 100000-165535 --add-subgids "
        f"100000-165535 {USER}; loginctl enable-linger {USER}; rmdir /run/cdi"
    )
    assert done.returncode == 0, done.stderr
    return made


def test_what_is_not_there_is_said_as_the_programs_say_it(host: SimulatedHost) -> None:
    for command, code, words in (
        # docker(1): 125 where the daemon refuses; 1 for a client without one.
        (f"{OWN} docker info", 1, "Cannot connect to the Docker daemon at unix:///run/user/1000"),
        (f"{OWN} docker run --rm ubuntu true", 125, "Cannot connect to the Docker daemon"),
        (f"{OWN} docker run --gpus=all ubuntu true", 125, "docker run: --gpus is not known"),
        (f"{OWN} docker run --rm -it ubuntu true", 125, "docker run: -it is not known"),
        (f"{OWN} docker ps --filter name=x", 125, "docker ps: --filter is not known"),
        # systemctl(1) without XDG_RUNTIME_DIR; loginctl(1); getsubids(1).
        ("systemctl --user is-active docker", 1, "Failed to connect to bus: No medium found"),
        ("loginctl enable-linger nobody2", 1, "Failed to look up user"),
        (f"loginctl enable-linger {USER}", 1, "Could not enable linger: Access denied"),
        ("getsubids root", 1, "Error fetching ranges"),
        ("usermod --add-subuids 1-2 nobody2", 1, "Permission denied"),
        (f"{OWN} nvidia-ctk cdi generate --output=/etc/cdi/x.yaml", 1, "permission denied"),
        ("systemctl restart user@1000.service", 1, "Interactive authentication required"),
    ):
        done = host.run(command)
        assert (done.returncode, words in done.stderr) == (code, True), (command, done)
    assert host.sudo("useradd operator").returncode == 9
    assert host.run("getsubids operator").stdout == "0: operator 100000 65536\n"
    assert host.run("loginctl show-user operator -p Linger --value").stdout == "yes\n"
    with pytest.raises(HostsError, match="has no account 'nobody2'"):
        rootless_engine(host.folder / host.name, "nobody2")


def test_a_directory_that_is_made_later_is_invisible_until_the_daemon_starts_anew(
    host: SimulatedHost,
) -> None:
    assert host.run(f"{OWN} dockerd-rootless-setuptool.sh install").returncode == 0
    run = f"{OWN} docker run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi -L"
    host.sudo("systemctl start nvidia-cdi-refresh")
    done = host.run(run)
    assert (done.returncode, "unresolvable CDI devices" in done.stderr) == (125, True)
    host.sudo(f"systemctl --user -M {USER}@.host restart docker.service")
    assert host.run(run).stdout.count("UUID: GPU-") == 4
    said = json.loads(host.run(f"{OWN} docker info --format '{{{{json .}}}}'").stdout)
    assert "name=rootless" in said["SecurityOptions"]
    assert {"Source": "cdi", "ID": "nvidia.com/gpu=all"} in said["DiscoveredDevices"]
    # Index, UUID, and all of them: the toolkit's own choice of names.
    assert len(said["DiscoveredDevices"]) == 9


def test_delegation_takes_effect_with_the_next_start_of_the_accounts_systemd(
    host: SimulatedHost,
) -> None:
    assert host.run(f"{OWN} dockerd-rootless-setuptool.sh install").returncode == 0

    def controllers() -> tuple[str, ...]:
        return rootless_engine(host.folder / host.name, USER).controllers

    host.sudo(
        "mkdir -p /etc/systemd/system/user@.service.d; printf '[Service]\\nDelegate=cpu cpuset io memory "
        "pids\\n' > /etc/systemd/system/user@.service.d/d.conf; systemctl daemon-reload"
    )
    assert controllers() == ("cpu", "memory", "pids")
    host.sudo("systemctl restart user@1000.service")
    assert controllers() == ("cpu", "cpuset", "io", "memory", "pids")
    assert rootless_engine(host.folder / host.name, USER).running  # it was enabled


def test_without_lingering_a_restart_takes_the_daemon_away(host: SimulatedHost) -> None:
    assert host.run(f"{OWN} dockerd-rootless-setuptool.sh install").returncode == 0
    for linger in (True, False):
        if not linger:
            host.sudo(f"rm /var/lib/systemd/linger/{USER}")
        host.reboot()
        assert rootless_engine(host.folder / host.name, USER).running is linger


def test_every_fault_of_rootless_docker_can_be_injected_by_name(host: SimulatedHost) -> None:
    kinds = get_args(rootless_faults.RootlessFault)
    assert len(kinds) == 20
    for kind in kinds:
        name = kind.model_fields["kind"].default
        assert isinstance(faults.parse(name, {}), kind)
