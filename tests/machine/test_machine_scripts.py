"""Scripts that look at a machine say the same of a simulated host and a real one, but for what is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost
from lab.machine.qemu import GPUS
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import PROJECT

SIMULATED_GPU = {
    "supermicro-hgx-h100": "0000:86:00.0",
    "plain-gpu-v100": "0000:1a:00.0",
    "prepared": "0000:86:00.0",
}
PREPARED = "prepared"

_OTHER_SYSTEM = "the simulated host is an Ubuntu 24.04, the real one a Debian 13"
_OTHER_DEVICES = "QEMU's devices are others, and have no driver"
_NOT_INSTALLED = "a simulated program is found on PATH whether its package is installed or not"
_LOGGED_IN = "whoever is logged in has a systemd of his own; a simulated host starts none"
_IOMMU_ON = (
    "Debian's kernel switches the IOMMU on by itself; the simulated one waits for its argument"
)
_INSTALLED = "its image has more packages than a bare host"
_NO_NETWORK = "the real machine has no route to any other"
_NOT_COUNTED = "a simulated program that is not installed names the shell's first line"
_PROFILE = "only the kernel's own AppArmor is there: Debian's parser is not installed"


@dataclass(frozen=True)
class Asked:
    """One script, what it is asked, and which of its keys may differ, why."""

    script: str
    arguments: Sequence[str] = ()
    platform: str = "supermicro-hgx-h100"
    """Of the simulated host, which is bare, or `PREPARED`."""
    after: Sequence[str] = ()
    account: str = ""
    content: bytes | None = None
    differ: dict[str, str] = field(default_factory=dict)


DIGEST = "0" * 64
OURS = "/etc/gpu-clusters/lab"
FUNCTION = "GPU=10de:2330=0302"
ENVIRONMENT = ["usernetes/environment"]


def of_account(script: str, arguments: Sequence[str], **how: Any) -> Asked:
    """As the account of a node of Usernetes runs it."""
    return Asked(script, arguments, "plain-gpu-v100", ENVIRONMENT, account="operator", **how)


_OTHER_DRIVER = {
    **dict.fromkeys(("system", "release", "kernel", "command-line"), _OTHER_SYSTEM),
    **dict.fromkeys(("gpu", "nouveau"), _OTHER_DEVICES),
    **dict.fromkeys(("smi", "smi-said"), _NOT_INSTALLED),
    "package": _INSTALLED,
}
_OTHER_DOCKER = {"docker": _INSTALLED, "route": _NO_NETWORK}
LOOKS = [
    Asked("driver/inspect", ["/etc/hosts", "/not-there"], "plain-gpu-v100", differ=_OTHER_DRIVER),
    Asked(
        "rke2/inspect",
        ["/etc/hosts", "/not-there"],
        "plain-gpu-v100",
        differ={
            **dict.fromkeys(("system", "release"), _OTHER_SYSTEM),
            "apparmor-parser": _PROFILE,
        },
    ),
    Asked(
        "rootless/inspect",
        ["operator", "no_such_module", "/etc/hosts", "/not-there"],
        "plain-gpu-v100",
        differ={
            **dict.fromkeys(("system", "release", "kernel", "sysctl"), _OTHER_SYSTEM),
            **dict.fromkeys(("manager", "controllers"), _LOGGED_IN),
            **dict.fromkeys(("subuid", "subgid", "taken", "package", "enabled"), _INSTALLED),
            **dict.fromkeys(("smi", "smi-said"), _NOT_INSTALLED),
        },
    ),
    Asked(
        "rootless/inspect-account",
        ["/etc/hosts"],
        "plain-gpu-v100",
        account="operator",
        differ={"bus": _LOGGED_IN, "rootlesskit": _INSTALLED},
    ),
    Asked("drift/host"),
    Asked(
        "preflight/preflight",
        ["-", "GPU"],
        after=("vfio/vfio_users",),
        differ={
            **dict.fromkeys(("kernel", "command-line"), _OTHER_SYSTEM),
            **dict.fromkeys(
                ("cpu-vendor", "cpu-flags", "pci", "driver", "modules", "reset"), _OTHER_DEVICES
            ),
            **dict.fromkeys(("member", "nodes"), _IOMMU_ON),
            **dict.fromkeys(("qemu", "libvirt"), _NOT_INSTALLED),
            **dict.fromkeys(("commands",), _INSTALLED),
        },
    ),
    Asked(
        "boot/boot_state",
        ["/etc/default/grub.d/none.cfg", "/none", "/none", "/etc/hosts", "/not-there"],
        after=("vfio/vfio_users",),
        differ=dict.fromkeys(("running", "others", "next-boot"), _OTHER_SYSTEM),
    ),
    Asked(
        "host/inspect_pci",
        ["none", "GPU", "0000:ff:00.0"],
        after=("vfio/vfio_users",),
        differ={"GPU": f"{_OTHER_DEVICES}; {_IOMMU_ON}"},
    ),
    Asked(
        "service_vm/inspect",
        [
            *("fabric-manager", "fabric-manager", "/none", "/none", "/none", "0" * 64, "/none"),
            *("/none", "/etc/hosts /not-there", "ssh.service not-there.service"),
        ],
        differ={"problem": _INSTALLED},
    ),
    of_account("usernetes/inspect", [], differ=_OTHER_DOCKER),
    Asked("usernetes/reach", ["127.0.0.1", "1"], after=["usernetes/environment"]),
    Asked("rke2/reach", ["127.0.0.1"], "plain-gpu-v100"),
    Asked("rke2/progress", ["not-there.service", ""], "plain-gpu-v100"),
    Asked("host/unit", ["state", "ssh.service"]),
    Asked("host/unit", ["state", "not-there.service"]),
    Asked("host/read_file", ["/etc/hosts"], differ={"127.0.1.1": "its name"}),
    Asked("host/read_folders", [".conf", "/etc/not-there"]),
    Asked("kata/verify-kata", ["kata", "/opt/kata", "/none", DIGEST, "-", "-", "/etc/containerd"]),
    Asked(
        "proof/ladder",
        ["lab", "1"],
        "plain-gpu-v100",
        account="operator",
        differ={"sh:": _NOT_COUNTED},
    ),
    Asked("rke2/cluster", ["installed"], "plain-gpu-v100"),
]

CHANGES = [
    Asked("host/write_file", [OURS, "0640", "root:root"], content=b"text\n"),
    Asked("host/read_file", [OURS]),
    Asked("host/remove_file", [OURS]),
    Asked("host/read_file", [OURS]),
    Asked("host/unit", ["apply", "not-there.service", "enabled", "active", "keep"]),
    Asked("host/unit", ["remove", "not-there.service"]),
    Asked("host/hold_machine", ["lab", "1"]),
    Asked("host/install_packages", ["psmisc"], PREPARED, differ={"psmisc": _OTHER_SYSTEM}),
    Asked("boot/boot_update", ["grub.d", "yes", "no", "none", "no", "yes", "", ""]),
    Asked(
        "vfio/vfio_bind",
        ["bind", FUNCTION],
        PREPARED,
        ["vfio/vfio_users"],
        differ={"GPU": "a prepared machine has it there already"},
    ),
    Asked("vfio/vfio_bind", ["inspect", FUNCTION], PREPARED, ["vfio/vfio_users"]),
    Asked("vfio/vfio_bind", ["bind", "GPU=10de:20b0=0302"], PREPARED, ["vfio/vfio_users"]),
    Asked("vfio/vfio_bind", ["release", FUNCTION], PREPARED, ["vfio/vfio_users"]),
    Asked("vfio/vfio_bind", ["inspect", FUNCTION], PREPARED, ["vfio/vfio_users"]),
    Asked("service_vm/fetch_image", ["/none", "-", DIGEST, "/var/lib/gpu-clusters/vm", "5"]),
    Asked("service_vm/power", ["off", "not-there"], PREPARED),
    Asked("service_vm/install", ["not-there.service"], content=b""),
    Asked("service_vm/remove", ["not-there", "-", "/none", "/none", "/var/lib/lab", "no", "", ""]),
    Asked("driver/hold", ["debian", "psmisc"], "plain-gpu-v100"),
    Asked("driver/finish", [DIGEST], "plain-gpu-v100"),
    Asked("driver/inspect", [], "plain-gpu-v100", differ=_OTHER_DRIVER),
    Asked("driver/load", [], "plain-gpu-v100"),
    Asked("driver/uninstall", ["debian"], "plain-gpu-v100"),
    Asked("rke2/fetch", ["v1.36.3+rke2r1", "folder", "/none", DIGEST], "plain-gpu-v100"),
    Asked("rke2/install", ["v1.36.3+rke2r1", "none"], "plain-gpu-v100"),
    Asked("rke2/mark", ["owner", "lab"], "plain-gpu-v100"),
    Asked("rke2/start", ["not-there.service"], "plain-gpu-v100"),
    Asked("rke2/uninstall", [], "plain-gpu-v100"),
    Asked("rootless/account", ["create", "lab"], "plain-gpu-v100"),
    Asked("rootless/account", ["ids", "lab", "900000", "65536"], "plain-gpu-v100"),
    Asked("rootless/hold", ["psmisc"], "plain-gpu-v100"),
    Asked("rootless/write-files", [], "plain-gpu-v100", content=f"{OURS} dGV4dAo=\n".encode()),
    Asked("host/read_file", [OURS], "plain-gpu-v100"),
    Asked("rootless/apply", [DIGEST, "not-there.service", "no_such_module"], "plain-gpu-v100"),
    Asked("rootless/finish", [DIGEST], "plain-gpu-v100"),
    Asked("rootless/remove", [OURS], "plain-gpu-v100"),
    of_account("usernetes/claim", ["me", "m", "r", "192.0.2.1"]),
    of_account("usernetes/mark", ["joined", "yes"]),
    of_account("usernetes/fetch", ["/none", DIGEST]),
    of_account("usernetes/overlay", ["lab"], content=b"text"),
    of_account("usernetes/inspect", [], differ=_OTHER_DOCKER),
    of_account("usernetes/remove", []),
]

_IN_USE = "it runs on the real machine in a test of this folder, and on simulated hosts in theirs"
_NEEDS_CLUSTER = "it speaks to a node container or a control plane, and none is on the real machine"
_NEEDS_GPU = "it speaks to NVIDIA's driver or switches"
NOT_COMPARED = {
    "cdi/inject": "it runs NVIDIA's container runtime, which no simulated host has",
    **dict.fromkeys(("boot/reboot", "rke2/prepare", "cdi/reload-runtime"), _IN_USE),
    **dict.fromkeys(("driver/install", "rootless/rootful", "rootless/engine"), _IN_USE),
    **dict.fromkeys(("service_vm/define", "service_vm/disk", "service_vm/seed"), _IN_USE),
    **dict.fromkeys(("service_vm/service-vm", "service_vm/guest"), _IN_USE),
    "rootless/toolkit": _IN_USE,
    "rootless/packages": "it takes packages from Docker's and NVIDIA's repositories",
    "service_vm/fabric-manager": "it is a program of the service VM",
    **dict.fromkeys(("usernetes/cluster", "usernetes/gpus", "usernetes/join"), _NEEDS_CLUSTER),
    **dict.fromkeys(("usernetes/kubeconfig", "usernetes/make"), _NEEDS_CLUSTER),
    **dict.fromkeys(("fabric/fabric_steps", "fabric/gpu_modules"), _NEEDS_GPU),
    **dict.fromkeys(("proof/diagnostics", "proof/load"), _NEEDS_GPU),
    **dict.fromkeys(
        ("gcp/first-boot", "gcp/first-login", "gcp/seal-image"), "it is a machine of Google's"
    ),
}

_SHAPES = (
    (r"\d+", "NUMBER"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"[0-9a-f]{64}", "SHA256"),
    (r"[0-9a-f]{32}", "HEX"),
    (r"0x[0-9a-f]{16}", "HEX"),
    (r"[0-9a-f]{4}:[0-9a-f]{4}", "ID"),
    (r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "ADDRESS"),
)


def shape(word: str) -> str:
    """What kind of value a word is; states and names are themselves."""
    return next((name for pattern, name in _SHAPES if re.fullmatch(pattern, word)), word)


def forms(text: str, gpu: str) -> dict[str, set[str]]:
    """The shapes of the lines by their first word."""
    found: dict[str, set[str]] = {}
    for line in text.replace(gpu, "GPU").splitlines():
        key, *rest = line.split() or [""]
        found.setdefault(key, set()).add(" ".join(map(shape, rest)))
    return found


def said(host: SshHost, asked: Asked, gpu: str) -> dict[str, set[str]]:
    own = ("XDG_RUNTIME_DIR=/run/user/1000", "DOCKER_HOST=unix:///run/user/1000/docker.sock")
    done = run_script(
        host,
        asked.script,
        [word.replace("GPU", gpu) for word in asked.arguments],
        tried="look",
        after=asked.after,
        accept=range(256),
        account=asked.account,
        environment=own if asked.account else (),
        content=asked.content,
    )
    return {**forms(done.stdout.decode(), gpu), "status": {str(done.status)}}


@pytest.fixture(scope="module")
def simulated(hosts_pool: Any) -> dict[str, SshHost]:
    """A bare host of each platform."""
    return {
        platform: hosts_pool.add(1, "supermicro-hgx-h100")[0].ssh
        if platform == PREPARED
        else hosts_pool.add(1, platform, condition="bare")[0].ssh
        for platform in SIMULATED_GPU
    }


@pytest.mark.parametrize(
    "asked", [*LOOKS, *CHANGES], ids=lambda one: "-".join([one.script, *one.arguments[:1]])
)
def test_it_says_the_same(
    asked: Asked, machine: RealMachine, simulated: dict[str, SshHost]
) -> None:
    real = said(machine.ssh, asked, GPUS[0])
    played = said(simulated[asked.platform], asked, SIMULATED_GPU[asked.platform])
    differing = {
        key: (played.get(key), real.get(key))
        for key in {*played, *real}
        if played.get(key) != real.get(key)
    }
    assert {key: both for key, both in differing.items() if key not in asked.differ} == {}
    assert set(asked.differ) <= set(differing), "what no longer differs is no longer named"


def test_each_script_is_compared_or_says_why_not() -> None:
    folders = (PROJECT / "gpuclusters").glob("*/scripts/*.sh")
    scripts = {f"{path.parts[-3]}/{path.stem}" for path in folders}
    used = [name for one in (*LOOKS, *CHANGES) for name in (one.script, *one.after)]
    assert {*used, *NOT_COMPARED} == scripts
    assert set(used).isdisjoint(NOT_COMPARED)
