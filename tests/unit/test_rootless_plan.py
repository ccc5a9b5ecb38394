"""What a host with rootless Docker has, what it lacks, what speaks against it: tables without a host."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuclusters.domain import (
    rootless_facts,
    rootless_files,
    rootless_packages,
    rootless_refusals,
)
from gpuclusters.domain.host_file import sha256_of
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rootless_facts import Engine, LiveRootless
from gpuclusters.domain.rootless_inputs import RootlessHostInputs
from gpuclusters.domain.rootless_missing import missing, next_range
from gpuclusters.domain.rootless_steps import Step

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB2VsYfSZ7zKZLPgK4x0cVqIvKOHfXBxTTLfcGSGz3Sb"
INPUTS = RootlessHostInputs.model_validate(
    {
        "connection": {"host": "v1", "address": "192.0.2.1", "user": "ubuntu", "host_key": KEY},
        "account": "ubuntu",
        "gpus": 2,
        "docker": "29.7.2",
        "container_toolkit": "1.20.0",
        "ports": [6443],
    }
)
UUIDS = ("GPU-a", "GPU-b")
CDI = frozenset({"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b", "nvidia.com/gpu=all"})


def good() -> LiveRootless:
    """A host that lacks nothing."""
    files = {
        **rootless_files.host_files("ubuntu"),
        **rootless_files.account_files("/home/ubuntu", None),
    }
    packages = {
        name: version.replace("*", "1~ubuntu") or "1"
        for name, version in rootless_packages.wanted(INPUTS).items()
    } | {
        "linux-image-gcp": "6.8",
        "linux-image-6.8.0-1021-gcp": "6.8",
        "linux-image-6.5.0-9-gcp": "6.5",
    }
    live = LiveRootless(
        system="ubuntu",
        architecture="x86_64",
        kernel="6.8.0-1021-gcp",
        cgroup="v2",
        uid=1000,
        home="/home/ubuntu",
        subuids=((100_000, 65_536),),
        subgids=((100_000, 65_536),),
        packages=packages,
        digests={p: sha256_of(t.encode()) for p, t in files.items()},
        applied=rootless_files.host_digest("ubuntu"),
        sysctl={rootless_files.RP_FILTER: "0", rootless_files.PORT_START: "0"},
        linger=True,
        manager="active",
        controllers=frozenset(rootless_files.CONTROLLERS),
        runtime_mode="cdi",
        refresh="enabled",
        cdi=CDI,
        boot_unit="enabled",
        module="580.178.04",
        licence="NVIDIA",
        volta=True,
        gpus=UUIDS,
        smi=0,
        bus=True,
        user_unit=True,
        user_enabled=True,
        daemon_json=rootless_files.daemon_configuration(None),
        engine=Engine(
            version="29.7.2",
            rootless=True,
            runtimes=frozenset({"runc", "nvidia"}),
            default_runtime="runc",
            directories=("/var/run/cdi",),
            devices=CDI,
        ),
    )
    return replace(live, held=frozenset(rootless_packages.held(live)))


def test_a_host_that_lacks_nothing_is_left_alone() -> None:
    assert missing(INPUTS, good()) == ()
    rootless_refusals.before_changing(INPUTS, good(), ())


@pytest.mark.parametrize(
    ("changes", "step", "words"),
    [
        ({"uid": None}, Step.ACCOUNT, "there is no account ubuntu"),
        ({"packages": {}}, Step.PACKAGES, "docker-ce-rootless-extras"),
        ({"modules": frozenset({"vxlan"})}, Step.FILES, "not loaded: vxlan"),
        (
            {"sysctl": {rootless_files.RP_FILTER: "1", rootless_files.PORT_START: "0"}},
            Step.FILES,
            "rp_filter is 1",
        ),
        ({"digests": {}}, Step.FILES, "user@.service.d/gpu-clusters-usernetes.conf differs"),
        ({"applied": "old"}, Step.FILES, "have not taken effect"),
        (
            {"boot_unit": "disabled"},
            Step.FILES,
            "after a restart the daemon would not see the GPUs",
        ),
        ({"held": frozenset()}, Step.HOLD, "linux-image-6.8.0-1021-gcp, linux-image-gcp"),
        ({"rootful": frozenset({"docker.socket"})}, Step.ROOTFUL, "root without a word"),
        ({"subuids": ()}, Step.IDS, "getsubids ubuntu"),
        ({"subgids": ((100_000, 1000),)}, Step.IDS, "no 65536 subordinate ids"),
        ({"linger": False}, Step.LINGER, "would end when it logs out"),
        (
            {"controllers": frozenset({"memory", "pids"})},
            Step.MANAGER,
            "the controllers cpu cpuset io are not delegated",
        ),
        ({"bus": False}, Step.MANAGER, "no bus at /run/user/1000/bus"),
        ({"runtime_mode": "legacy"}, Step.RUNTIME, "BPF_CGROUP_DEVICE"),
        ({"no_cgroups": True}, Step.RUNTIME, "has no-cgroups"),
        ({"static_cdi": True}, Step.CDI, "nobody writes anew"),
        ({"cdi": frozenset()}, Step.CDI, "unresolvable CDI devices nvidia.com/gpu=all"),
        ({"gpus": ("GPU-c", "GPU-d")}, Step.CDI, "names other GPUs"),
        (
            {"cdi": frozenset({"nvidia.com/gpu=0", "nvidia.com/gpu=all"})},
            Step.CDI,
            "unresolvable CDI devices nvidia.com/gpu=GPU-",
        ),
        ({"refresh": "disabled"}, Step.CDI, "units that write the CDI specification are disabled"),
        ({"daemon_json": "{}"}, None, ""),
        ({"user_unit": False}, Step.SETUP, "is not set up for ubuntu"),
        ({"engine": Engine()}, Step.RESTART, "does not run"),
    ],
)
def test_what_a_host_lacks_is_said_and_has_a_step(
    changes: dict[str, Any], step: Step | None, words: str
) -> None:
    found = missing(INPUTS, replace(good(), **changes))
    if step is None:
        assert found == ()  # the file's digest decides, not what was read of it
        return
    assert step in {one.step for one in found}
    assert words in "; ".join(one.problem for one in found)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"rootless": False}, "not rootless"),
        ({"version": "28.5.2"}, "Docker 28.5.2 runs, and 29.7.2 is installed"),
        ({"runtimes": frozenset({"runc"})}, "does not list the runtime nvidia"),
        ({"default_runtime": "nvidia"}, "beside its default nvidia"),
        ({"devices": frozenset()}, "does not see the CDI devices"),
    ],
)
def test_a_daemon_that_is_not_as_it_must_be_starts_anew(engine: dict[str, Any], words: str) -> None:
    live = good()
    (found,) = missing(INPUTS, replace(live, engine=replace(live.engine, **engine)))
    assert found.step is Step.RESTART
    assert words in found.problem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system": "debian"}, "only Ubuntu is prepared"),
        ({"architecture": "aarch64"}, "its processor is aarch64"),
        ({"cgroup": "v1"}, "systemd.unified_cgroup_hierarchy=0"),
        ({"free_mib": 900, "user_unit": False}, "900 MiB free where ubuntu keeps images"),
        ({"ports": frozenset({6443}), "user_unit": False}, "port 6443 already"),
        ({"licence": "Dual MIT/GPL"}, "a V100 works with the proprietary one alone"),
        ({"module": "595.91.07"}, "580 is the last branch for V100"),
        ({"smi": 9, "smi_said": "no driver"}, "nvidia-smi ended with 9 (no driver)"),
        ({"gpus": ("GPU-a",)}, "nvidia-smi shows 1 GPUs and 2 are declared"),
        ({"local": False}, "enable-oslogin=FALSE"),
        ({"uid": 3_000_000_000}, "comes from OS Login"),
        ({"uid": 0}, "ubuntu is root there"),
        ({"rootful_containers": ("web",)}, "has 1 containers (web): somebody uses it"),
        ({"nerdctl": True}, "conflicts with containerd-rootless.sh"),
        (
            {"namespaces": "fork/exec /proc/self/exe: permission denied", "restricted": True},
            "apparmor_parser -r /etc/apparmor.d/rootlesskit",
        ),
        (
            {"namespaces": "permission denied", "rootlesskit": "/home/ubuntu/bin/rootlesskit"},
            "and not /home/ubuntu/bin/rootlesskit",
        ),
        ({"daemon_json": "{"}, "/home/ubuntu/.config/docker/daemon.json is not JSON"),
    ],
)
def test_what_speaks_against_a_host_is_refused_with_a_remedy(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(RefusalError) as refused:
        rootless_refusals.before_changing(INPUTS, replace(good(), **changes), ())
    assert words in str(refused.value)


def test_a_manager_with_containers_is_not_started_anew() -> None:
    live = replace(good(), controllers=frozenset(), engine=replace(good().engine, containers=2))
    with pytest.raises(RefusalError, match="2 containers of the account run"):
        rootless_refusals.before_changing(INPUTS, live, missing(INPUTS, live))


def test_an_administrator_gets_one_command_for_each_thing() -> None:
    inputs = INPUTS.model_copy(update={"sudo": False})
    bare = LiveRootless(
        system="ubuntu",
        architecture="x86_64",
        uid=1000,
        home="/home/ubuntu",
        modules=frozenset(rootless_files.MODULES),
        gpus=UUIDS,
        smi=0,
    )
    lacks = missing(inputs, bare)
    assert all(one.command for one in lacks)
    said = "; ".join(remedy for _, remedy in rootless_refusals.administrator(lacks))
    for words in (
        "'docker-ce=5:29.7.2-*'",
        "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ubuntu",
        "loginctl enable-linger ubuntu",
        "Delegate=cpu cpuset io memory pids",
        "systemctl enable gpu-clusters-rootless-docker.service",
    ):
        assert words in said


def test_new_ranges_come_after_those_of_everybody() -> None:
    assert next_range(LiveRootless()) == 100_000
    assert next_range(LiveRootless(taken=((100_000, 65_536), (231_072, 10)))) == 231_082


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (None, {"features": {"cdi": True}}),
        ('{"mtu": 1450}', {"mtu": 1450}),
        ('{"default-runtime": "nvidia"}', {}),
        (
            '{"default-runtime": "crun", "runtimes": {"crun": {"path": "crun"}}}',
            {"default-runtime": "crun"},
        ),
        ('{"features": {"cdi": false, "x": true}}', {"features": {"cdi": True, "x": True}}),
    ],
)
def test_the_daemons_configuration_keeps_what_is_not_ours(there: str | None, wanted: Any) -> None:
    body = json.loads(rootless_files.daemon_configuration(there))
    assert {k: body[k] for k in wanted} == wanted
    assert body.get("default-runtime") != "nvidia"
    assert body["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    text = json.dumps(body)
    assert rootless_files.daemon_configuration(text) == text  # what fits is not written anew


@pytest.mark.parametrize("there", ["[]", "{", '"x"'])
def test_a_configuration_that_cannot_be_read_is_not_written_over(there: str) -> None:
    with pytest.raises(ValueError, match=r"daemon\.json"):
        rootless_files.daemon_configuration(there)


def test_two_inspections_make_one_host() -> None:
    live = rootless_facts.parse_host(
        "system ubuntu\nuid 1000\nhome /home/ubuntu\nlocal yes\nsubuid 100000 65536\ntaken 100000 65536\n"
        "package docker-ce 5:29.7.2-1\nheld docker-ce\nlinger yes\nmanager active\ncontrollers cpu memory\n"
        "sysctl net.ipv4.ip_unprivileged_port_start 0\n"
        "sysctl kernel.apparmor_restrict_unprivileged_userns 1\n"
        "runtime-mode cdi\ncdi nvidia.com/gpu=all\ngpu GPU-a\nsmi 0\nports 22 6443\nvolta yes\n"
    )
    assert (live.uid, live.local, live.restricted, live.volta) == (1000, True, True, True)
    assert live.subuids == ((100_000, 65_536),)
    assert live.ports == {22, 6443}
    live = rootless_facts.with_account(
        live,
        "bus yes\nrootlesskit /usr/bin/rootlesskit\nuser-unit yes\nuser-enabled enabled\n"
        "daemon-json e30=\n"
        'docker-info {"ServerVersion": "29.7.2", "SecurityOptions": ["name=rootless"], "Runtimes": {"runc": '
        '{}}, "DefaultRuntime": "runc", "CDISpecDirs": ["/var/run/cdi"], "DiscoveredDevices": [{"Source": '
        '"cdi", "ID": "nvidia.com/gpu=all"}], "ContainersRunning": 1}\n',
    )
    assert (live.bus, live.user_enabled, live.daemon_json) == (True, True, "{}")
    assert live.engine.rootless
    assert live.engine.devices == {"nvidia.com/gpu=all"}
    assert rootless_facts.parse_engine('{"ServerErrors": ["no"]}') == Engine()
