"""Rootless Docker on a real machine: systemd, PAM, cgroups and Debian's dockerd have the last word."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from gpuclusters import usernetes
from gpuclusters.compat.usernetes_versions import version_set
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.rootless import files
from gpuclusters.rootless.host import RootlessCapability
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs
from tests.machine.conftest import RealMachine
from tests.rootless import gpu_layer

ACCOUNT = "research"
TOOLKIT = version_set("current").container_toolkit
STEPS = (
    *("account", "files", "rootful", "linger", "runtime", "cdi"),
    *("manager", "configuration", "setup", "restart"),
)
"""In the order of the program; packages are Debian's, of another name."""
GPUS = tuple(f"GPU-{n:08}-0000-0000-0000-000000000000" for n in range(8))
NODES = (
    *((f"nvidia{n}", 195, n) for n in range(len(GPUS))),
    *(("nvidiactl", 195, 255), ("nvidia-uvm", 234, 0), ("nvidia-uvm-tools", 234, 1)),
)
LIKE_28 = "cdi=$(realpath /run/cdi); rm /run/cdi; mkdir /run/cdi; mount --rbind $cdi /run/cdi"
"""Docker's own script does so since 28.0; Debian's is 26, whose daemon follows no link to that folder."""
IMAGE = "lab/probe"
"""A C library and nothing of NVIDIA's."""


@pytest.fixture(scope="module")
def gpus(machine: RealMachine, tmp_path_factory: pytest.TempPathFactory) -> RealMachine:
    """A machine with NVIDIA's container toolkit over a driver that is a stand-in."""
    layer = tmp_path_factory.mktemp("gpus")
    gpu_layer.lay(layer, TOOLKIT, GPUS)
    (layer / "usr/bin/systemctl").unlink()
    packed = subprocess.run(["tar", "-cz", "-C", layer, "."], capture_output=True, check=True)
    unpack = ["tar", "-xz", "--no-overwrite-dir", "--owner=root", "-C", "/"]
    done = machine.ssh.run(unpack, tried="lay a driver", stdin=packed.stdout, timeout_seconds=300)
    assert done.status == 0, done.stderr
    for name, major, minor in NODES:
        machine.sudo(f"mknod -m 666 /dev/{name} c {major} {minor}")
    # Where parts of /sys are covered, the kernel lets no account mount one of its own, as containers do.
    machine.sudo("grep -o '/sys/devices/pci[^ ]*' /proc/mounts | xargs umount")
    # NVIDIA's unit looks there for a driver.
    machine.sudo("echo updates/dkms/nvidia.ko: >>/lib/modules/$(uname -r)/modules.dep; ldconfig")
    return machine


def inputs(connection: Mapping[str, object], **changes: object) -> RootlessHostInputs:
    stated = {"docker": "29.7.2", "container_toolkit": TOOLKIT, "probe_image": IMAGE}
    return RootlessHostInputs.model_validate(
        {"connection": connection, "account": ACCOUNT, "gpus": len(GPUS), **stated, **changes}
    )


@pytest.fixture(scope="module")
def capability(gpus: RealMachine) -> RootlessCapability:
    """An account that every step has made ready."""
    machine = gpus
    machine.sudo(
        "for tool in dockerd-rootless.sh dockerd-rootless-setuptool.sh; do "
        "ln -s /usr/share/docker.io/contrib/$tool /usr/bin/$tool; done; "
        f"sed -i 's,exec .*dockerd.* .$@.,{LIKE_28}; &,' /usr/share/docker.io/contrib/dockerd-rootless.sh"
    )
    made = RootlessCapability(inputs(machine.connection), machine.ssh)
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


@pytest.fixture(scope="module")
def probe(machine: RealMachine, capability: RootlessCapability) -> str:
    """How the account's daemon, which has the image, is named."""
    own = f"DOCKER_HOST=unix:///run/user/{capability.observe().uid}/docker.sock"
    folder = "usr/lib/x86_64-linux-gnu"
    parts = (
        "ld-linux-x86-64.so.2",
        "libc.so.6",
        "libselinux.so.1",
        "libpcre2-8.so.0",
        "libcap.so.2",
    )
    files = " ".join(["usr/bin/ls", "lib64", "usr/lib64", *(f"{folder}/{name}" for name in parts)])
    machine.sudo(f"tar -c -h -C / {files} >/tmp/probe.tar; chmod 644 /tmp/probe.tar")
    as_account(machine, f"{own} docker import /tmp/probe.tar {IMAGE}")
    return own


def test_a_container_of_the_account_has_the_gpus_that_it_names(
    machine: RealMachine, capability: RootlessCapability, live: LiveRootless, probe: str
) -> None:
    assert live.wanted_devices <= live.cdi, "as NVIDIA's own unit has written them"
    assert live.gpu == GPUS
    capability.prove(live)
    some = "--device nvidia.com/gpu=0 --device nvidia.com/gpu=3"
    said = as_account(
        machine, f"{probe} docker run --rm --network none {some} {IMAGE} /usr/bin/ls /dev"
    )
    named = {word for word in said.split() if word.startswith("nvidia")}
    assert named == {"nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}


@pytest.mark.usefixtures("probe")
def test_where_an_administrator_has_prepared_it_the_account_needs_no_sudo(
    machine: RealMachine, capability: RootlessCapability, live: LiveRootless
) -> None:
    keys = f"/home/{ACCOUNT}/.ssh"
    machine.sudo(
        f"install -d -m 700 -o {ACCOUNT} {keys}; "
        f"install -m 600 -o {ACCOUNT} /home/operator/.ssh/authorized_keys {keys}"
    )
    connection = machine.connection | {"user": ACCOUNT}
    credentials = SshCredentials("the test's key", machine.client_key.read_text())
    host = SshHost(HostConnection.model_validate(connection), credentials)
    assert host.run(["sudo", "-n", "true"], tried="become root").status != 0
    own = RootlessCapability(inputs(connection, sudo=False), host)
    seen = own.observe()
    assert (seen.cdi, seen.gpu, seen.controllers) == (live.cdi, live.gpu, live.controllers)
    without = {one.code for one in own.findings(seen)}
    assert without <= {one.code for one in capability.findings(live)}
    own.prove(seen)


def test_compose_lays_our_overlay_over_upstreams_file(machine: RealMachine) -> None:
    upstream = Path(__file__).with_name("upstream-compose.yaml")
    overlay = Path(usernetes.__file__).parent / "overlay/compose.yaml"
    for folder, file in (("/srv/u", upstream), ("/srv/o", overlay)):
        machine.sudo(f"mkdir -p {folder}; cat >{folder}/compose.yaml", stdin=file.read_text())
    words = (
        f"GPU_OVERLAY=/srv/o NVIDIA_CONTAINER_TOOLKIT_VERSION={TOOLKIT} GPU_CLUSTERS_IMAGE=a1 "
        "NODE_MTU=1450 NODE_NAME=u7s-1 NODE_IP=10.100.1.100 NODE_SUBNET=10.100.1.0/24 "
        "PORT_KUBELET=10250"
    )
    config = "docker-compose -f /srv/u/compose.yaml -f /srv/o/compose.yaml config --format json"
    whole = json.loads(machine.sudo(f"env {words} {config}"))
    node = whole["services"]["node"]
    assert (node["hostname"], node["privileged"], node["restart"]) == ("u7s-1", True, "always")
    assert "nvidia.com/gpu=all" in json.dumps(node["devices"])
    assert node["build"]["context"] == "/srv/u"
    assert node["build"]["dockerfile"] == "/srv/o/Dockerfile"
    assert node["build"]["additional_contexts"] == {"overlay": "/srv/o"}
    assert node["labels"] == {"gpu-clusters.dev/image": "a1"}
    assert whole["networks"]["default"]["driver_opts"] == {"com.docker.network.driver.mtu": "1450"}
    done = machine.run(f"env {words.partition(' ')[2]} {config}")
    assert done.returncode != 0
    assert "GPU_OVERLAY" in done.stderr


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
