"""What forbids to prepare a host for rootless Docker, and what it still lacks. Pure.

Sources: Docker's documentation of rootless mode, Ubuntu 24.04 (AppArmor and user namespaces), moby issue
52171 (nerdctl beside it).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gpuclusters.core.finding import Finding, blocked, repair
from gpuclusters.driver import decide as driver
from gpuclusters.host.model import differing
from gpuclusters.rootless import files
from gpuclusters.rootless.model import LiveRootless, Ranges, RootlessHostInputs

LEAST_IDS = 65_536
"""Subordinate ids that an image needs: Docker's documentation of rootless mode."""
FIRST_ID = 100_000
"""Ubuntu's SUB_UID_MIN."""
LEAST_FREE_MIB = 20_480
"""A node's image, the images in it, and the volumes that outlive it."""
OWN_STEPS = ("configuration", "setup", "restart")
"""What the account does itself, without root."""
_HIGHEST_UID = 65_535
_RESTRICTION = "kernel.apparmor_restrict_unprivileged_userns"
"""Ubuntu's; 1: only programs with a profile make user namespaces."""
_ROOTFUL = ("docker.service", "docker.socket")
_PACKAGED = ("/usr/bin/rootlesskit", "/usr/local/bin/rootlesskit")


def findings(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    """How a host differs from its inputs, and what forbids to change it."""
    lacks = [*_lacks(inputs, live)]
    yield from _machine(inputs, live)
    yield from driver.serving(
        inputs.gpus,
        len(live.gpu),
        version=live.module,
        licence=live.licence,
        pci_ids=live.pci_gpu,
        smi=live.smi,
        said=live.smi_said,
    )
    yield from _account(inputs, live)
    if live.docker_info.containers and any(one.step == "manager" for one in lacks):
        yield blocked("rootless.containers-running", inputs=inputs, live=live)
    yield from lacks


def is_absent(inputs: RootlessHostInputs, live: LiveRootless) -> bool:
    """Whether nothing of ours is on the host."""
    ours = set(files.host_files(inputs.account))
    return not (live.applied or live.user_unit or ours & set(live.file))


def next_range(live: LiveRootless) -> int:
    """The first id of a range that nobody has; never one of a real account."""
    ends = [first + count for first, count in (*live.taken, *live.subuid, *live.subgid)]
    return max([FIRST_ID, *ends])


def _machine(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    if live.system != "ubuntu":
        yield blocked("rootless.system", live=live, system=live.system or "an unknown system")
    if live.architecture != "x86_64":
        yield blocked("rootless.architecture", live=live)
    if live.cgroup == "v1":
        yield blocked("rootless.cgroup-v1")
    if live.user_unit:
        return
    if live.free_mib is not None and live.free_mib < LEAST_FREE_MIB:
        yield blocked("rootless.disk-full", inputs=inputs, live=live, least=LEAST_FREE_MIB)
    taken = [f"port {port}" for port in sorted(live.ports & set(inputs.ports))]
    if taken and not live.docker_info.containers:
        yield blocked("rootless.port-taken", taken=taken)


def _account(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    containers, block = live.rootful_container, partial(blocked, inputs=inputs, live=live)
    if live.uid == 0:
        yield block("rootless.account-root")
    elif live.uid is not None and (not live.local or live.uid > _HIGHEST_UID):
        yield block("rootless.account-of-directory")
    if containers:
        yield block("rootless.docker-in-use", count=len(containers), first=containers[:3])
    if live.nerdctl:
        yield block("rootless.nerdctl")
    if live.namespaces and "subuid" not in live.namespaces and "newuidmap" not in live.namespaces:
        restricted = live.sysctl.get(_RESTRICTION) == "1"
        why = (
            "AppArmor restricts user namespaces" if restricted else "no user namespace can be made"
        )
        unpackaged = live.rootlesskit and live.rootlesskit not in _PACKAGED
        case = "unpackaged" if unpackaged else ""
        yield block("rootless.user-namespaces", case=case, why=why, said=repr(live.namespaces))
    try:
        files.daemon_configuration(live.daemon_json)
    except ValueError as error:
        path = f"{live.home}/{files.DAEMON_JSON}"
        yield block("rootless.daemon-json-unreadable", path, error=error)


def _lack(
    inputs: RootlessHostInputs,
    live: LiveRootless,
    step: str,
    name: str,
    command: str = "",
    path: str = "",
    case: str = "",
    **values: Any,
) -> Finding:
    """What a step brings; where an administrator prepares the host, with the command that he types."""
    code, values = f"rootless.{name}", {"inputs": inputs, "live": live, **values}
    brought = repair(code, path, case, step=step, **values)
    if inputs.sudo or step in OWN_STEPS:
        return brought
    return Finding(code, brought.problem, f"ask an administrator to run: `{command}`", brought.path)


def _lacks(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    account, lack = inputs.account, partial(_lack, inputs, live)
    if live.uid is None:
        made = f"useradd --create-home --shell /bin/bash {account}"
        yield lack("account", "account-missing", made)
    yield from _system(inputs, live)
    if live.uid is None:
        return
    yield from _user(inputs, live)
    if files.TOOLKIT[1] in live.package:
        yield from _toolkit(inputs, live)
    if live.manager == "active" and live.bus:
        yield from _daemon(inputs, live)
    elif live.manager == "active":
        yield lack("manager", "user-bus", f"systemctl restart user@{live.uid}.service")


def _system(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    missing, loose = files.missing_packages(inputs, live), files.not_held(live)
    lack = partial(_lack, inputs, live)
    if missing:
        yield lack("packages", "packages", files.install_command(missing), names=[*missing])
    yield from _files(inputs, live)
    if loose and not missing:
        yield lack("hold", "not-held", f"apt-mark hold {' '.join(loose)}", loose=loose)
    units = live.rootful | {
        unit
        for unit in _ROOTFUL
        if live.active.get(unit) in ("active", "activating") or live.enabled.get(unit) == "enabled"
    }
    if units and not live.rootful_container:
        off = "systemctl disable --now docker.socket docker.service && rm -f /var/run/docker.sock"
        yield lack("rootful", "docker-as-root", off, units=sorted(units))


def _files(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    wanted, lack = files.host_files(inputs.account), partial(_lack, inputs, live, "files")

    def written(path: str, *then: str) -> str:
        return " && ".join([files.write_command(path, wanted[path]), *then])

    if names := " ".join(sorted(live.module_missing)):
        command = written(files.MODULES_FILE, f"modprobe -a {names}")
        yield lack("kernel-modules", command, names=names)
    wrong = [
        f"{name} is {live.sysctl.get(name) or 'unknown'}"
        for name, fit in files.SYSCTL.items()
        if live.sysctl.get(name) not in fit
    ]
    if wrong:
        command = written(files.SYSCTL_FILE, "sysctl --system")
        yield lack("kernel-parameters", command, wrong=wrong)
    if live.enabled.get(unit := files.BOOT_UNIT) != "enabled":
        then = ("systemctl daemon-reload", f"systemctl enable {unit}")
        yield lack("boot-unit", written(files.BOOT_UNIT_FILE, *then), unit=unit)
    # An administrator's own files may say the same in other words: what counts is the effect.
    if inputs.sudo:
        for path in sorted(differing(wanted, live.file)):
            yield lack("file-changed", path=path)
        if live.applied != files.host_digest(inputs.account):
            yield lack("files-not-applied")
    elif not live.linger and files.DELEGATE_FILE not in live.file:
        command = written(files.DELEGATE_FILE, "systemctl daemon-reload")
        controllers = " ".join(files.CONTROLLERS)
        yield lack("delegation", command, case="unknown", controllers=controllers)


def _user(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    account, service = inputs.account, f"user@{live.uid}.service"
    lack = partial(_lack, inputs, live)
    if not _enough(live.subuid) or not _enough(live.subgid):
        ids = f"{next_range(live)}-{next_range(live) + LEAST_IDS - 1}"
        command = f"usermod --add-subuids {ids} --add-subgids {ids} {account}"
        yield lack("ids", "subordinate-ids", command, least=LEAST_IDS)
    lacking = " ".join(sorted(set(files.CONTROLLERS) - live.controllers))
    file = files.DELEGATE_FILE
    delegation = files.write_command(file, files.host_files(account)[file])
    restart = f"{delegation} && systemctl daemon-reload && systemctl restart {service}"
    if not live.linger:
        yield lack("linger", "not-lingering", f"loginctl enable-linger {account}")
    elif live.manager != "active":
        yield lack("manager", "user-manager", restart, state=live.manager or "not there")
    elif lacking:
        yield lack("manager", "delegation", restart, controllers=lacking)


def _enough(ranges: Ranges) -> bool:
    return sum(count for _, count in ranges) >= LEAST_IDS


def _toolkit(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    lack = partial(_lack, inputs, live)
    if live.runtime_mode != "cdi" or live.no_cgroups:
        said = "has no-cgroups" if live.no_cgroups else f"mode is {live.runtime_mode or 'not set'}"
        command = (
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi --set "
            "nvidia-container-cli.no-cgroups=false"
        )
        yield lack("runtime", "runtime-mode", command, said=said)
    # Without a driver there is nothing to describe; the findings about the driver say so.
    if live.smi == 0 and (case := _cdi(live)):
        command = (
            "rm -f /etc/cdi/nvidia.yaml; systemctl enable --now nvidia-cdi-refresh.path "
            "nvidia-cdi-refresh.service; systemctl restart nvidia-cdi-refresh.service"
        )
        gpu = live.gpu[0] if live.gpu else ""
        others, state = _others(live)[:2], "".join(_off(live)[:1])
        yield lack("cdi", "cdi", command, case=case, others=others, gpu=gpu, state=state)


def _cdi(live: LiveRootless) -> str:
    """In which way the CDI specification is wrong; empty: in none."""
    if live.static_cdi:
        return "static"
    if not live.cdi:
        return "none"
    if live.wanted_devices <= live.cdi:
        return "not-written" if _off(live) else ""
    return "other-gpus" if _others(live) else "no-uuids"


def _off(live: LiveRootless) -> list[str]:
    """States of the units that write the specification, of those that are not enabled."""
    states = (live.enabled.get(unit, "") for unit in files.REFRESH_UNITS)
    return [state or "not there" for state in states if state != "enabled"]


def _others(live: LiveRootless) -> list[str]:
    """GPUs that the specification names and the host does not have."""
    return sorted(name for name in live.cdi - live.wanted_devices if "=GPU-" in name)


def _daemon(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    """The account's own; it is looked at once the packages are there."""
    if files.missing_packages(inputs, live):
        return
    lack = partial(_lack, inputs, live)
    try:
        wanted = files.account_files(live.home, live.daemon_json)
    except ValueError:
        wanted = {}  # said already
    for path in sorted(differing(wanted, live.file)):
        yield lack("configuration", "file-changed", path=path)
    if not live.user_unit or not live.user_enabled:
        yield lack("setup", "not-set-up")
    seen, folders = len(live.docker_info.devices), live.docker_info.directories
    for name in _engine(inputs, live):
        yield lack("restart", name, seen=seen, folders=folders or "no directory")


def _engine(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[str]:
    engine, wanted = live.docker_info, live.wanted_devices
    if not engine.version:
        yield "daemon-down"
        return
    if not engine.rootless:
        yield "daemon-not-rootless"
    if engine.version != inputs.docker:
        yield "daemon-version"
    if files.RUNTIME not in engine.runtimes or engine.default_runtime == files.RUNTIME:
        yield "daemon-runtime"
    if wanted <= live.cdi and not wanted <= engine.devices:
        yield "daemon-without-gpus"
