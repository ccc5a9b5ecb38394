"""Rootless Docker on a real machine: systemd, PAM, cgroups and Debian's dockerd have the last word."""

from __future__ import annotations

import json

import pytest

from gpuclusters.host.model import HostConnection
from gpuclusters.rootless import files
from gpuclusters.rootless.host import RootlessCapability
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs
from tests.machine.conftest import RealMachine

ACCOUNT = "research"
STEPS = ("account", "files", "rootful", "linger", "manager", "configuration", "setup", "restart")
"""In the order of the program; packages are Debian's, of another name."""


@pytest.fixture(scope="module")
def capability(machine: RealMachine) -> RootlessCapability:
    """An account that every step has made ready."""
    machine.sudo(
        "for tool in dockerd-rootless.sh dockerd-rootless-setuptool.sh; do "
        "ln -s /usr/share/docker.io/contrib/$tool /usr/bin/$tool; done"
    )
    inputs = RootlessHostInputs(
        connection=HostConnection.model_validate(machine.connection),
        account=ACCOUNT,
        gpus=8,
        docker="29.7.2",
        container_toolkit="1.20.0",
    )
    made = RootlessCapability(inputs, machine.ssh)
    assert [name for name in made.steps if name in STEPS] == list(STEPS)
    for step in STEPS:
        made.steps[step].run(made.observe(), ())
    return made


@pytest.fixture
def live(capability: RootlessCapability) -> LiveRootless:
    return capability.observe()


def as_account(machine: RealMachine, command: str) -> str:
    """As a service of the account's systemd, which knows no login."""
    run = f"systemd-run --user --machine={ACCOUNT}@.host --quiet --pipe --wait sh -c '{command}'"
    return machine.sudo(run)


def test_all_that_was_prepared_is_in_effect(
    capability: RootlessCapability, live: LiveRootless
) -> None:
    left = {one.code for one in capability.findings(live) if one.step}
    assert left <= {"rootless.packages", "rootless.not-held"}, "packages are Debian's"
    assert (live.linger, live.manager, live.bus, live.namespaces) == (True, "active", True, "")
    assert live.controllers >= set(files.CONTROLLERS)
    assert live.module_missing == frozenset()
    assert live.sysctl == {files.RP_FILTER: "2", files.PORT_START: "0"}
    assert live.enabled["docker.service"] == "disabled"


def test_limits_are_in_force_in_sessions_and_in_services_of_the_account(
    machine: RealMachine, live: LiveRootless
) -> None:
    session = machine.sudo(f"su - {ACCOUNT} -c 'ulimit -l; ulimit -u; ulimit -n'").split()
    assert session[:2] == ["unlimited", "unlimited"]
    assert int(session[2]) >= 1_048_576
    service = as_account(machine, "cat /proc/self/limits")
    limits = {line[:26].strip(): line[26:].split()[0] for line in service.splitlines()}
    assert limits["Max locked memory"] == limits["Max processes"] == "unlimited"


def test_the_accounts_daemon_reads_our_configuration(
    machine: RealMachine, live: LiveRootless
) -> None:
    assert (live.docker_info.rootless, live.docker_info.default_runtime) == (True, "runc")
    assert "nvidia" in live.docker_info.runtimes
    said = machine.sudo(f"cat /home/{ACCOUNT}/.config/docker/daemon.json")
    assert json.loads(said)["features"] == {"cdi": True}
    environment = as_account(machine, "systemctl --user show -P Environment docker")
    assert "DOCKERD_ROOTLESS_ROOTLESSKIT_NET=slirp4netns" in environment
    owner = machine.sudo("stat -c %U /proc/$(pgrep -x dockerd)")
    assert owner.strip() == ACCOUNT


def test_unattended_upgrades_leave_kernel_and_daemon_alone(
    machine: RealMachine, live: LiveRootless
) -> None:
    said = machine.sudo("unattended-upgrade --dry-run --debug 2>&1")
    (listed,) = (line for line in said.splitlines() if line.startswith("Initial blacklist:"))
    assert {"linux-", "docker-", "containerd"} <= set(listed.split())


def test_after_a_power_cut_it_runs_before_anybody_logs_in(
    machine: RealMachine, capability: RootlessCapability
) -> None:
    machine.sudo("systemctl disable gpu-clusters-rootless-docker")  # it waits for NVIDIA's unit
    machine.cut_power()
    live = capability.observe()
    assert (live.manager, live.bus) == ("active", True)
    assert live.controllers >= set(files.CONTROLLERS)
    assert live.sysctl == {files.RP_FILTER: "2", files.PORT_START: "0"}
    assert live.module_missing == frozenset()
    assert as_account(machine, "systemctl --user is-enabled docker").strip() == "enabled"


def test_what_is_removed_leaves_the_account_and_nothing_of_ours(
    machine: RealMachine, capability: RootlessCapability
) -> None:
    capability.remove()
    live = capability.observe()
    assert (live.linger, live.file, live.applied) == (False, {}, "")
    assert machine.sudo(f"id -un {ACCOUNT}").strip() == ACCOUNT
    assert machine.sudo("grep -rl 'Written by gpu-clusters' /etc || true") == ""
