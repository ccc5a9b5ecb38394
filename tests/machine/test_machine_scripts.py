"""Scripts that look at a machine say the same of a simulated host and a real one, but for what is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost
from lab.machine.qemu import GPUS
from tests.fixtures.hosts import SimulatedHost
from tests.machine.conftest import RealMachine

SIMULATED_GPU = {"supermicro-hgx-h100": "0000:86:00.0", "plain-gpu-v100": "0000:1a:00.0"}

_OTHER_SYSTEM = "the simulated host is an Ubuntu 24.04, the real one a Debian 13"
_OTHER_DEVICES = "QEMU's devices are others, and have no driver"
_NOT_INSTALLED = "a simulated program is found on PATH whether its package is installed or not"
_LOGGED_IN = "whoever is logged in has a systemd of his own; a simulated host starts none"
_IOMMU_ON = (
    "Debian's kernel switches the IOMMU on by itself; the simulated one waits for its argument"
)
_INSTALLED = "its image has more packages than a bare host"
_PROFILE = "only the kernel's own AppArmor is there: Debian's parser is not installed"


@dataclass(frozen=True)
class Asked:
    """One script, what it is asked, and which of its keys may differ, why."""

    script: str
    arguments: Sequence[str] = ()
    platform: str = "supermicro-hgx-h100"
    after: Sequence[str] = ()
    account: str = ""
    differ: dict[str, str] = field(default_factory=dict)


ASKED = [
    Asked(
        "driver/inspect",
        ["/etc/hosts", "/not-there"],
        "plain-gpu-v100",
        differ={
            **dict.fromkeys(("system", "release", "kernel", "command-line"), _OTHER_SYSTEM),
            **dict.fromkeys(("gpu", "nouveau"), _OTHER_DEVICES),
            **dict.fromkeys(("smi", "smi-said"), _NOT_INSTALLED),
            "package": _INSTALLED,
        },
    ),
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
    Asked("usernetes/inspect", (), "plain-gpu-v100", ["usernetes/environment"], account="operator"),
    Asked("usernetes/reach", ["127.0.0.1", "1"], after=["usernetes/environment"]),
    Asked("rke2/reach", ["127.0.0.1"], "plain-gpu-v100"),
    Asked("rke2/progress", ["not-there.service", ""], "plain-gpu-v100"),
    Asked("host/unit", ["state", "ssh.service"]),
    Asked("host/unit", ["state", "not-there.service"]),
    Asked("host/read_file", ["/etc/hosts"], differ={"127.0.1.1": "its name"}),
    Asked("host/read_folders", [".conf", "/etc/not-there"]),
]

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
        [gpu if word == "GPU" else word for word in asked.arguments],
        tried="look",
        after=asked.after,
        repeatable=True,
        account=asked.account,
        environment=own if asked.account else (),
    )
    return forms(done.stdout.decode(), gpu)


def ssh(host: SimulatedHost) -> SshHost:
    credentials = SshCredentials("the test's key", host.client_key.read_text())
    return SshHost(HostConnection.model_validate(host.connection), credentials)


@pytest.fixture(scope="module")
def simulated(hosts_pool: Any) -> dict[str, SshHost]:
    """A bare host of each platform."""
    return {
        platform: ssh(hosts_pool.add(1, platform, condition="bare")[0])
        for platform in SIMULATED_GPU
    }


@pytest.mark.parametrize(
    "asked", ASKED, ids=lambda one: "-".join([one.script, *one.arguments[-1:]])
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
