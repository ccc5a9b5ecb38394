"""Packages and files of a host that runs rootless Docker: versions, what is held back, text of files.

Sources: Usernetes (`init-host/init-host.root.sh`: modules, sysctl; delegation in `hack/`),
systemd.resource-control(5), systemd-system.conf(5), moby
(a rootless daemon reads ~/.config/docker/daemon.json;
`dockerd-rootless.sh`: where the network driver is named its MTU is named too).
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from string import Template
from typing import Any

from gpuclusters.core import scripts
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs

MARK = "# Written by gpu-clusters; changes are put back."
STATE = "/var/lib/gpu-clusters/usernetes"

MODULES = (
    *("tun", "tap", "bridge", "br_netfilter", "veth", "ip_tables", "ip6_tables", "iptable_nat"),
    *("ip6table_nat", "iptable_filter", "ip6table_filter", "nf_tables", "x_tables"),
    *("xt_MASQUERADE", "xt_addrtype", "xt_comment", "xt_conntrack", "xt_mark", "xt_multiport"),
    *("xt_nat", "xt_tcpudp", "vxlan"),
)
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
RP_FILTER, PORT_START = "net.ipv4.conf.default.rp_filter", "net.ipv4.ip_unprivileged_port_start"
SYSCTL = {RP_FILTER: ("2", "0"), PORT_START: ("0",)}
"""Values that will do; the first is what we set. rp_filter 1 drops packets between nodes."""

MODULES_FILE = "/etc/modules-load.d/gpu-clusters-usernetes.conf"
SYSCTL_FILE = "/etc/sysctl.d/99-gpu-clusters-usernetes.conf"
DELEGATE_FILE = "/etc/systemd/system/user@.service.d/gpu-clusters-usernetes.conf"
LIMITS_FILE = "/etc/security/limits.d/98-gpu-clusters-usernetes.conf"
SYSTEM_LIMITS_FILE = "/etc/systemd/system.conf.d/gpu-clusters-usernetes.conf"
USER_LIMITS_FILE = "/etc/systemd/user.conf.d/gpu-clusters-usernetes.conf"
UPGRADES_FILE = "/etc/apt/apt.conf.d/52gpu-clusters-usernetes"
BOOT_UNIT = "gpu-clusters-rootless-docker.service"
BOOT_UNIT_FILE = f"/etc/systemd/system/{BOOT_UNIT}"
REFRESH_UNITS = ("nvidia-cdi-refresh.service", "nvidia-cdi-refresh.path")

DAEMON_JSON = ".config/docker/daemon.json"
USER_DROP_IN = ".config/systemd/user/docker.service.d/gpu-clusters.conf"
RUNTIME = "nvidia"


def host_files(account: str) -> dict[str, str]:
    limits = f"{MARK}\n[Manager]\nDefaultLimitMEMLOCK=infinity\nDefaultLimitNPROC=infinity\n"
    resources = ("nproc", "memlock", "stack", "nofile", "cpu", "rtprio")
    unlimited = [f"{kind} {what}" for what in resources for kind in ("soft", "hard")]
    return {
        MODULES_FILE: "\n".join([MARK, *MODULES, ""]),
        SYSCTL_FILE: "\n".join([MARK, *(f"{k} = {v[0]}" for k, v in SYSCTL.items()), ""]),
        DELEGATE_FILE: f"{MARK}\n[Service]\nDelegate={' '.join(CONTROLLERS)}\n",
        # The session's limits do not reach services of the account's systemd; those of the managers do.
        LIMITS_FILE: "\n".join([MARK, *(f"{account} {one} unlimited" for one in unlimited), ""]),
        SYSTEM_LIMITS_FILE: limits,
        USER_LIMITS_FILE: limits,
        UPGRADES_FILE: (
            f"//{MARK[1:]}\n"
            "// Such a kernel has no module of the driver; such a daemon ends all nodes.\n"
            'Unattended-Upgrade::Package-Blacklist { "linux-"; "docker-"; "containerd"; "nvidia-"; '
            '"libnvidia-"; };\n'
        ),
        BOOT_UNIT_FILE: boot_unit(account),
    }


def boot_unit(account: str) -> str:
    """The unit that starts the account's daemon again at boot, once there is a CDI specification."""
    return Template(scripts.read(f"rootless/{BOOT_UNIT}")).substitute(account=account)


def host_digest(account: str) -> str:
    """Of all root's files together."""
    return hashlib.sha256(json.dumps(host_files(account), sort_keys=True).encode()).hexdigest()


def account_files(home: str, daemon_json: str | None) -> dict[str, str]:
    """The account's files by path, what else its daemon.json says kept; ValueError if it is unreadable."""
    return {
        f"{home}/{DAEMON_JSON}": daemon_configuration(daemon_json),
        f"{home}/{USER_DROP_IN}": scripts.read("rootless/docker.service.d.conf"),
    }


def daemon_configuration(there: str | None) -> str:
    """CDI on, NVIDIA's runtime known and not the default; ValueError for no object."""
    try:
        body: Any = json.loads(there or "{}")
    except ValueError as error:
        raise ValueError(f"{DAEMON_JSON} is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise ValueError(f"{DAEMON_JSON} is no JSON object")  # noqa: TRY004 (a fault of the file)
    features, runtimes = body.get("features") or {}, body.get("runtimes") or {}
    wanted = {
        **body,
        "features": {**features, "cdi": True},
        "runtimes": {**runtimes, RUNTIME: {"args": [], "path": "nvidia-container-runtime"}},
    }
    # The default runtime starts every container; the node brings its GPUs in by CDI alone.
    if wanted.get("default-runtime") == RUNTIME:
        del wanted["default-runtime"]
    if there is not None and wanted == body:
        return there
    return json.dumps(wanted, indent=2) + "\n"


def write_command(path: str, text: str) -> str:
    """A line for a shell of root that writes this file, without comments."""
    lines = [line for line in text.splitlines() if line and line[0] not in "#/"]
    folder = path.rpartition("/")[0]
    quoted = " ".join(shlex.quote(line) for line in lines)
    return f"mkdir -p {folder} && printf '%s\\n' {quoted} > {path}"


TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_DOCKER = ("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras")
_PLUGINS = ("containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
_OTHERS = (
    *("uidmap", "slirp4netns", "dbus-user-session", "iptables", "iproute2"),
    *("jq", "make", "git", "curl", "gpg", "ca-certificates"),
)
_NUMBERED = re.compile(r"linux-(image|headers)-[0-9]")
_KERNEL = re.compile(
    r"linux-(image-|headers-)?(generic|gcp|aws|azure|virtual)(-[a-z0-9.-]+)?|linux-(image|headers)-[0-9].*"
)


def wanted_packages(inputs: RootlessHostInputs) -> Mapping[str, str]:
    """Version by name; one that ends in `*` is a beginning, an empty one is any."""
    return {
        **dict.fromkeys(_DOCKER, f"5:{inputs.docker}-*"),
        **dict.fromkeys(_PLUGINS, ""),
        **dict.fromkeys(_OTHERS, ""),
        **dict.fromkeys(TOOLKIT, f"{inputs.container_toolkit}-*"),
    }


def missing_packages(inputs: RootlessHostInputs, live: LiveRootless) -> dict[str, str]:
    """Those that are not there in their version."""
    wanted = wanted_packages(inputs).items()
    return {name: version for name, version in wanted if not _fits(live.package.get(name), version)}


def _fits(has: str | None, version: str) -> bool:
    begins = version.endswith("*") and (has or "").startswith(version[:-1])
    return has is not None and (begins or version in ("", has))


def to_hold(live: LiveRootless) -> list[str]:
    """Those that must not be upgraded by themselves: daemon, toolkit, and the kernel of the driver.

    The kernel's names differ by cloud; all that are installed count, as only these can be upgraded.
    """
    pinned = [*_DOCKER, "containerd.io", *TOOLKIT]
    kernels = [
        name
        for name in live.package
        if _KERNEL.fullmatch(name) and not (_NUMBERED.match(name) and live.kernel not in name)
    ]
    return sorted({*(name for name in pinned if name in live.package), *kernels})


def not_held(live: LiveRootless) -> list[str]:
    """Those of them that are not held."""
    return [name for name in to_hold(live) if name not in live.held]


def install_command(missing_ones: Mapping[str, str]) -> str:
    """What an administrator runs to install them."""
    words = [f"{name}={version}" if version else name for name, version in missing_ones.items()]
    return f"apt-get install -y --allow-downgrades {' '.join(repr(w) if '*' in w else w for w in words)}"
