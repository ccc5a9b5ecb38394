"""What a host with rootless Docker has, what it lacks, what speaks against it: tables without a host."""

import json
from typing import Any

import pytest

from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Level
from gpuclusters.host.model import sha256_of
from gpuclusters.rootless import decide, files
from gpuclusters.rootless.decide import next_range
from gpuclusters.rootless.model import Engine, LiveRootless, RootlessHostInputs, parse_engine

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


def good(**changes: Any) -> LiveRootless:
    """A host that lacks nothing, but for the changes."""
    wanted = {**files.host_files("ubuntu"), **files.account_files("/home/ubuntu", None)}
    there = {
        name: version.replace("*", "1~ubuntu") or "1"
        for name, version in files.wanted_packages(INPUTS).items()
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
        local=True,
        subuid=((100_000, 65_536),),
        subgid=((100_000, 65_536),),
        package=there,
        file={p: sha256_of(t.encode()) for p, t in wanted.items()},
        applied=files.host_digest("ubuntu"),
        sysctl={files.RP_FILTER: "0", files.PORT_START: "0"},
        linger=True,
        manager="active",
        controllers=frozenset(files.CONTROLLERS),
        runtime_mode="cdi",
        enabled=dict.fromkeys((*files.REFRESH_UNITS, files.BOOT_UNIT), "enabled"),
        cdi=CDI,
        module="580.178.04",
        licence="NVIDIA",
        pci_gpu=frozenset({"10de:1db1"}),
        gpu=UUIDS,
        smi=0,
        bus=True,
        user_unit=True,
        user_enabled=True,
        docker_info=Engine(
            version="29.7.2",
            rootless=True,
            runtimes=frozenset({"runc", "nvidia"}),
            default_runtime="runc",
            directories=("/var/run/cdi",),
            devices=CDI,
        ),
    )
    held = frozenset(files.to_hold(live))
    text = files.daemon_configuration(None)
    return live.model_copy(update={"held": held, "daemon_json": text, **changes})


def found_in(live: LiveRootless, inputs: RootlessHostInputs = INPUTS) -> list[Finding]:
    """All findings; each has a code that is listed, and can be told as drift."""
    found = [*decide.findings(inputs, live)]
    assert all(codes.listed()[one.code].severity for one in found)
    return found


def test_a_host_that_lacks_nothing_is_left_alone() -> None:
    assert found_in(good()) == []


@pytest.mark.parametrize(
    ("changes", "step", "code", "words"),
    [
        ({"uid": None}, "account", "account-missing", "there is no account ubuntu"),
        ({"package": {}}, "packages", "packages", "docker-ce-rootless-extras"),
        (
            {"module_missing": frozenset({"vxlan"})},
            "files",
            "kernel-modules",
            "not loaded: vxlan",
        ),
        (
            {"sysctl": {files.RP_FILTER: "1", files.PORT_START: "0"}},
            "files",
            "kernel-parameters",
            "rp_filter is 1",
        ),
        (
            {"file": {}},
            "files",
            "file-changed",
            "user@.service.d/gpu-clusters-usernetes.conf differs",
        ),
        ({"applied": "old"}, "files", "files-not-applied", "have not taken effect"),
        (
            {"enabled": dict.fromkeys(files.REFRESH_UNITS, "enabled")},
            "files",
            "boot-unit",
            "after a restart the daemon would not see the GPUs",
        ),
        (
            {"held": frozenset()},
            "hold",
            "not-held",
            "linux-image-6.8.0-1021-gcp, linux-image-gcp",
        ),
        (
            {"enabled": {**good().enabled, "docker.socket": "enabled"}},
            "rootful",
            "docker-as-root",
            "root without a word",
        ),
        ({"subuid": ()}, "ids", "subordinate-ids", "getsubids ubuntu"),
        ({"subgid": ((100_000, 1000),)}, "ids", "subordinate-ids", "no 65536 subordinate ids"),
        ({"linger": False}, "linger", "not-lingering", "would end when it logs out"),
        (
            {"controllers": frozenset({"memory", "pids"})},
            "manager",
            "delegation",
            "the controllers cpu cpuset io are not delegated",
        ),
        ({"manager": "failed"}, "manager", "user-manager", "user@1000.service is failed"),
        ({"bus": False}, "manager", "user-bus", "no bus at /run/user/1000/bus"),
        ({"runtime_mode": "legacy"}, "runtime", "runtime-mode", "BPF_CGROUP_DEVICE"),
        ({"no_cgroups": True}, "runtime", "runtime-mode", "has no-cgroups"),
        ({"static_cdi": True}, "cdi", "cdi", "nobody writes anew"),
        ({"cdi": frozenset()}, "cdi", "cdi", "unresolvable CDI devices nvidia.com/gpu=all"),
        ({"gpu": ("GPU-c", "GPU-d")}, "cdi", "cdi", "names other GPUs"),
        (
            {"cdi": frozenset({"nvidia.com/gpu=0", "nvidia.com/gpu=all"})},
            "cdi",
            "cdi",
            "unresolvable CDI devices nvidia.com/gpu=GPU-",
        ),
        (
            {"enabled": {**good().enabled, files.REFRESH_UNITS[1]: "disabled"}},
            "cdi",
            "cdi",
            "units that write the CDI specification are disabled",
        ),
        ({"user_unit": False}, "setup", "not-set-up", "is not set up for ubuntu"),
        ({"docker_info": Engine()}, "restart", "daemon-down", "does not run"),
    ],
)
def test_what_a_host_lacks_is_said_and_has_a_step(
    changes: dict[str, Any], step: str, code: str, words: str
) -> None:
    found = [one for one in found_in(good(**changes)) if one.code == f"rootless.{code}"]
    assert (step, Level.REPAIR) in {(one.step, one.level) for one in found}
    assert words in "; ".join(one.problem for one in found)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"module_missing": frozenset({"vxlan"})}, "install linux-modules-extra-6.8.0-1021-gcp"),
        ({"applied": ""}, "run again"),
        ({"linger": False}, "polkit or logind.conf (KillUserProcesses, KillExcludeUsers) forbids"),
        ({"docker_info": Engine(version="29.7.2")}, "unix:///run/user/1000/docker.sock"),
        ({"package": {}}, "look at `apt-cache policy` there"),
    ],
)
def test_what_a_step_does_not_repair_has_a_remedy_of_its_own(
    changes: dict[str, Any], remedy: str
) -> None:
    assert any(remedy in one.remedy for one in decide.findings(INPUTS, good(**changes)))


def test_a_file_of_the_account_is_judged_by_its_digest_alone() -> None:
    assert found_in(good(daemon_json="{}")) == []


@pytest.mark.parametrize(
    ("engine", "code", "words"),
    [
        ({"rootless": False}, "daemon-not-rootless", "not rootless"),
        (
            {"version": "28.5.2"},
            "daemon-version",
            "Docker 28.5.2 runs, and 29.7.2 is installed",
        ),
        ({"runtimes": frozenset({"runc"})}, "daemon-runtime", "does not list the runtime nvidia"),
        ({"default_runtime": "nvidia"}, "daemon-runtime", "beside its default nvidia"),
        ({"devices": frozenset()}, "daemon-without-gpus", "does not see the CDI devices"),
    ],
)
def test_a_daemon_that_is_not_as_it_must_be_is_restarted(
    engine: dict[str, Any], code: str, words: str
) -> None:
    changed = good().docker_info.model_copy(update=engine)
    (found,) = found_in(good(docker_info=changed))
    assert (found.step, found.code) == ("restart", f"rootless.{code}")
    assert words in found.problem


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"system": "debian"}, "rootless.system", "only Ubuntu is prepared"),
        ({"architecture": "aarch64"}, "rootless.architecture", "its processor is aarch64"),
        ({"cgroup": "v1"}, "rootless.cgroup-v1", "systemd.unified_cgroup_hierarchy=0"),
        (
            {"free_mib": 900, "user_unit": False},
            "rootless.disk-full",
            "900 MiB free where ubuntu keeps images",
        ),
        (
            {"ports": frozenset({6443}), "user_unit": False},
            "rootless.port-taken",
            "port 6443 already",
        ),
        (
            {"licence": "Dual MIT/GPL"},
            "driver.modules-unfit",
            "which open modules need: volta is older than turing",
        ),
        ({"module": "595.91.07"}, "driver.branch-unfit", "580 is the last branch for volta"),
        (
            {"smi": 9, "smi_said": "no driver"},
            "driver.not-serving",
            "nvidia-smi ended with 9 (no driver)",
        ),
        ({"gpu": ("GPU-a",)}, "driver.gpu-count", "nvidia-smi shows 1 GPUs and 2 are declared"),
        ({"local": False}, "rootless.account-of-directory", "enable-oslogin=FALSE"),
        ({"uid": 3_000_000_000}, "rootless.account-of-directory", "comes from OS Login"),
        ({"uid": 0}, "rootless.account-root", "ubuntu is root there"),
        (
            {"rootful_container": ("web",)},
            "rootless.docker-in-use",
            "has 1 containers (web): somebody uses it",
        ),
        ({"nerdctl": True}, "rootless.nerdctl", "conflicts with containerd-rootless.sh"),
        (
            {
                "namespaces": "fork/exec /proc/self/exe: permission denied",
                "sysctl": {
                    **good().sysctl,
                    "kernel.apparmor_restrict_unprivileged_userns": "1",
                },
            },
            "rootless.user-namespaces",
            "apparmor_parser -r /etc/apparmor.d/rootlesskit",
        ),
        (
            {"namespaces": "permission denied", "rootlesskit": "/home/ubuntu/bin/rootlesskit"},
            "rootless.user-namespaces",
            "and not /home/ubuntu/bin/rootlesskit",
        ),
        (
            {"daemon_json": "{"},
            "rootless.daemon-json-unreadable",
            "/home/ubuntu/.config/docker/daemon.json is not JSON",
        ),
    ],
)
def test_what_forbids_to_prepare_a_host_has_a_remedy(
    changes: dict[str, Any], code: str, words: str
) -> None:
    (found,) = [one for one in found_in(good(**changes)) if one.level is Level.BLOCK]
    assert found.code == code
    assert words in f"{found.problem}; {found.remedy}"
    assert found.remedy


def test_a_manager_with_containers_is_not_restarted() -> None:
    engine = good().docker_info.model_copy(update={"containers": 2})
    found = found_in(good(controllers=frozenset(), docker_info=engine))
    assert [one.code for one in found if one.level is Level.BLOCK] == [
        "rootless.containers-running"
    ]


def test_an_administrator_gets_one_command_for_each_thing() -> None:
    inputs = INPUTS.model_copy(update={"sudo": False})
    bare = LiveRootless(
        system="ubuntu",
        architecture="x86_64",
        uid=1000,
        home="/home/ubuntu",
        local=True,
        module_missing=frozenset(files.MODULES),
        gpu=UUIDS,
        smi=0,
    )
    found = found_in(bare, inputs)
    assert {one.level for one in found} == {Level.BLOCK}
    assert all("administrator to run: `" in one.remedy for one in found)
    assert not any("run: ``" in one.remedy for one in found)
    said = "; ".join(one.remedy for one in found)
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
    body = json.loads(files.daemon_configuration(there))
    assert {k: body[k] for k in wanted} == wanted
    assert body.get("default-runtime") != "nvidia"
    assert body["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    text = json.dumps(body)
    assert files.daemon_configuration(text) == text  # what fits is not written anew


@pytest.mark.parametrize("there", ["[]", "{", '"x"'])
def test_a_configuration_that_cannot_be_read_is_not_written_over(there: str) -> None:
    with pytest.raises(ValueError, match=r"daemon\.json"):
        files.daemon_configuration(there)


def test_two_inspections_make_one_host() -> None:
    live = LiveRootless.parse(
        "system ubuntu\nuid 1000\nhome /home/ubuntu\nlocal yes\nsubuid 100000 65536\ntaken 100000 65536\n"
        "package docker-ce 5:29.7.2-1\nheld docker-ce\nlinger yes\nmanager active\ncontrollers cpu memory\n"
        "sysctl net.ipv4.ip_unprivileged_port_start 0\nfile /etc/a aa\n"
        "active docker.service inactive\nenabled docker.service disabled\n"
        "runtime-mode cdi\ncdi nvidia.com/gpu=all\ngpu GPU-a\nsmi 0\nports 22 6443\n"
        "pci-gpu 10de:1db1\npci-gpu 10de:1db1\n"
        "bus yes\nrootlesskit /usr/bin/rootlesskit\nuser-unit yes\nuser-enabled enabled\n"
        "daemon-json e30=\nfile /home/ubuntu/b aa\n"
        'docker-info {"ServerVersion": "29.7.2", "SecurityOptions": ["name=rootless"], "Runtimes": {"runc": '
        '{}}, "DefaultRuntime": "runc", "CDISpecDirs": ["/var/run/cdi"], "DiscoveredDevices": [{"Source": '
        '"cdi", "ID": "nvidia.com/gpu=all"}], "ContainersRunning": 1}\n'
    )
    assert (live.uid, live.local, live.pci_gpu, live.smi) == (1000, True, {"10de:1db1"}, 0)
    assert live.subuid == ((100_000, 65_536),)
    assert live.ports == {22, 6443}
    assert live.controllers == {"cpu", "memory"}
    assert live.file == {"/etc/a": "aa", "/home/ubuntu/b": "aa"}
    assert (live.bus, live.user_enabled, live.daemon_json) == (True, True, "{}")
    assert (live.docker_info.rootless, live.docker_info.containers) == (True, 1)
    assert live.docker_info.devices == {"nvidia.com/gpu=all"}
    assert parse_engine('{"ServerErrors": ["no"]}') == Engine()
