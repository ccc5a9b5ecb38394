"""Rootless Docker on simulated hosts: what the stand-ins answer, and what follows from what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.hosts import faults
from lab.hosts.model import USER, HostsError
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


def test_an_account_that_is_not_there_has_no_daemon(host: SimulatedHost) -> None:
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


ROOTLESS = """
account-of-directory subordinate-ids-lost engine-is-rootful rootful-containers legacy-runtime cdi-invisible
cdi-stale cdi-without-uuids daemon-configuration-ignored open-kernel-module holds-lost linger-refused
delegation-ineffective nerdctl-runs user-namespaces-restricted user-bus-gone nvml-lost image-refused
slirp4netns-fails gpus-replaced
"""


def test_every_fault_of_rootless_docker_can_be_injected_by_name() -> None:
    for name in ROOTLESS.split():
        assert type(faults.parse(name, {})).__name__.lower() == name.replace("-", "")
