"""What forbids to prepare a host for rootless Docker, and what it still lacks. Pure.

Sources: Docker's documentation of rootless mode, Ubuntu 24.04 (AppArmor and user namespaces), moby issue
52171 (nerdctl beside it).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuclusters.core.finding import Finding, Level, blocked
from gpuclusters.driver import decide as driver
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
_JOURNAL = "read `journalctl --user -u docker` on the host as the account"


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
    if any(one.step == "manager" for one in lacks) and live.docker_info.containers:
        yield blocked(
            "rootless.containers-running",
            f"systemd of {inputs.account} has to be restarted, and {live.docker_info.containers} "
            "containers of the account run",
        )
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
        yield blocked(
            "rootless.system",
            f"it runs {live.system or 'an unknown system'} {live.release}, and only Ubuntu is prepared",
        )
    if live.architecture != "x86_64":
        yield blocked("rootless.architecture", f"its processor is {live.architecture}")
    if live.cgroup == "v1":
        yield blocked(
            "rootless.cgroup-v1", "it has cgroup v1, where nothing can be delegated to an account"
        )
    if live.free_mib is not None and live.free_mib < LEAST_FREE_MIB and not live.user_unit:
        yield blocked(
            "rootless.disk-full",
            f"it has {live.free_mib} MiB free where {inputs.account} keeps images, and {LEAST_FREE_MIB} "
            "are needed",
        )
    taken = sorted(live.ports & set(inputs.ports))
    if taken and not live.docker_info.containers and not live.user_unit:
        yield blocked(
            "rootless.port-taken",
            f"something listens on {', '.join(f'port {port}' for port in taken)} already, which its node "
            "publishes",
        )


def _account(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    if live.uid == 0:
        yield blocked("rootless.account-root", f"{inputs.account} is root there")
    elif live.uid is not None and (not live.local or live.uid > _HIGHEST_UID):
        yield blocked(
            "rootless.account-of-directory",
            f"{inputs.account} (uid {live.uid}) comes from OS Login or a directory: it has no range of "
            "subordinate ids, and rootless Docker would end up as root's",
        )
    if live.rootful_container:
        yield blocked(
            "rootless.docker-in-use",
            f"Docker runs as root there and has {len(live.rootful_container)} containers "
            f"({', '.join(live.rootful_container[:3])}): somebody uses it",
        )
    if live.nerdctl:
        yield Finding(
            "rootless.nerdctl",
            "rootless containerd of nerdctl runs under the same account (dockerd-rootless.sh conflicts "
            "with containerd-rootless.sh)",
            f"run `containerd-rootless-setuptool.sh uninstall` as {inputs.account} and remove "
            f"{live.runtime_directory}/containerd-rootless, or use another account",
        )
    if live.namespaces and "subuid" not in live.namespaces and "newuidmap" not in live.namespaces:
        restricted = live.sysctl.get(_RESTRICTION) == "1"
        elsewhere = live.rootlesskit and live.rootlesskit not in _PACKAGED
        yield Finding(
            "rootless.user-namespaces",
            f"{'AppArmor restricts user namespaces' if restricted else 'no user namespace can be made'}: "
            f"`rootlesskit true` says {live.namespaces!r}",
            f"use Docker's packages, whose rootlesskit at /usr/bin has a profile, and not {live.rootlesskit}"
            if elsewhere
            else "load its profile (`sudo apparmor_parser -r /etc/apparmor.d/rootlesskit`), or install the "
            "package apparmor anew; `sysctl user.max_user_namespaces` must not be 0",
        )
    try:
        files.daemon_configuration(live.daemon_json)
    except ValueError as error:
        path = f"{live.home}/{files.DAEMON_JSON}"
        yield Finding(
            "rootless.daemon-json-unreadable",
            f"{live.home}/{error}",
            f"repair or remove it on the host (`python3 -m json.tool {path}`)",
            (path,),
        )


def _lack(
    inputs: RootlessHostInputs,
    step: str,
    name: str,
    problem: str,
    command: str = "",
    stays: str = "run again",
    *,
    path: str = "",
) -> Finding:
    """What a step brings; where an administrator prepares the host, with the command that he types."""
    about = (path,) if path else ()
    if inputs.sudo or step in OWN_STEPS:
        return Finding(f"rootless.{name}", problem, stays, about, Level.REPAIR, step)
    return Finding(f"rootless.{name}", problem, f"ask an administrator to run: `{command}`", about)


def _lacks(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    lack = partial(_lack, inputs)
    if live.uid is None:
        yield lack(
            "account",
            "account-missing",
            f"there is no account {inputs.account}",
            f"useradd --create-home --shell /bin/bash {inputs.account}",
        )
    yield from _system(inputs, live)
    if live.uid is None:
        return
    yield from _user(inputs, live)
    if files.TOOLKIT[1] in live.package:
        yield from _toolkit(inputs, live)
    if live.manager == "active" and live.bus:
        yield from _daemon(inputs, live)
    elif live.manager == "active":
        yield lack(
            "manager",
            "user-bus",
            f"systemd of {inputs.account} cannot be reached (`systemctl --user`: no bus at "
            f"{live.runtime_directory}/bus)",
            f"systemctl restart user@{live.uid}.service",
            "look at `systemctl status user@UID.service` there, and that dbus-user-session is installed; "
            "a session by su or sudo has no bus",
        )


def _system(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    lack = partial(_lack, inputs)
    missing = files.missing_packages(inputs, live)
    if missing:
        yield lack(
            "packages",
            "packages",
            f"packages are missing or of another version: {', '.join(missing)}",
            files.install_command(missing),
            "look at `apt-cache policy` there: no source of the host has these versions",
        )
    yield from _files(inputs, live)
    loose = files.not_held(live)
    if loose and not missing:
        yield lack(
            "hold",
            "not-held",
            "the next upgrade may bring another kernel or daemon, and the driver would have no module: "
            f"not held: {', '.join(loose)}",
            f"apt-mark hold {' '.join(loose)}",
            "something there takes the holds off (configuration management, an upgrade script): look in "
            "/var/log/apt/history.log",
        )
    units = live.rootful | {
        unit
        for unit in _ROOTFUL
        if live.active.get(unit) in ("active", "activating") or live.enabled.get(unit) == "enabled"
    }
    if units and not live.rootful_container:
        yield lack(
            "rootful",
            "docker-as-root",
            f"Docker runs as root there or may be started so ({', '.join(sorted(units))}): tools of "
            "the account would find it and be root without a word",
            "systemctl disable --now docker.socket docker.service && rm -f /var/run/docker.sock",
            "something there starts it again",
        )


def _files(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    lack = partial(_lack, inputs)
    wanted = files.host_files(inputs.account)
    if live.module_missing:
        names = " ".join(sorted(live.module_missing))
        yield lack(
            "files",
            "kernel-modules",
            f"kernel modules are not loaded: {names}",
            f"{files.write_command(files.MODULES_FILE, wanted[files.MODULES_FILE])} && "
            f"modprobe -a {names}",
            f"install linux-modules-extra-{live.kernel}",
        )
    wrong = [
        f"{name} is {live.sysctl.get(name) or 'unknown'}"
        for name, fit in files.SYSCTL.items()
        if live.sysctl.get(name) not in fit
    ]
    if wrong:
        yield lack(
            "files",
            "kernel-parameters",
            f"kernel parameters do not fit: {', '.join(wrong)}",
            f"{files.write_command(files.SYSCTL_FILE, wanted[files.SYSCTL_FILE])} && sysctl --system",
            "a later file in /etc/sysctl.d or /etc/sysctl.conf sets it otherwise",
        )
    if live.enabled.get(files.BOOT_UNIT) != "enabled":
        yield lack(
            "files",
            "boot-unit",
            f"{files.BOOT_UNIT} is not enabled: after a restart the daemon would not see the GPUs",
            f"{files.write_command(files.BOOT_UNIT_FILE, wanted[files.BOOT_UNIT_FILE])} && systemctl "
            f"daemon-reload && systemctl enable {files.BOOT_UNIT}",
        )
    # An administrator's own files may say the same in other words: what counts is the effect.
    if inputs.sudo:
        for path in files.differing(wanted, live.file):
            yield _differs(inputs, "files", path)
        if live.applied != files.host_digest(inputs.account):
            yield lack("files", "files-not-applied", "the files in /etc have not taken effect")
    elif not live.linger and files.DELEGATE_FILE not in live.file:
        yield lack(
            "files",
            "delegation",
            f"it is not known whether the controllers {' '.join(files.CONTROLLERS)} are delegated",
            f"{_delegation(inputs)} && systemctl daemon-reload",
        )


def _differs(inputs: RootlessHostInputs, step: str, path: str) -> Finding:
    stays = "something there writes it too"
    return _lack(inputs, step, "file-changed", f"{path} differs", stays=stays, path=path)


def _user(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    lack = partial(_lack, inputs)
    if not _enough(live.subuid) or not _enough(live.subgid):
        first = next_range(live)
        last = first + LEAST_IDS - 1
        yield lack(
            "ids",
            "subordinate-ids",
            f"{inputs.account} has no {LEAST_IDS} subordinate ids of users and groups (`getsubids "
            f"{inputs.account}`): rootless Docker cannot map the users of an image",
            f"usermod --add-subuids {first}-{last} --add-subgids {first}-{last} {inputs.account}",
            "the line `subid:` in /etc/nsswitch.conf may lead to a directory; use a local account",
        )
    lacking = sorted(set(files.CONTROLLERS) - live.controllers)
    if not live.linger:
        yield lack(
            "linger",
            "not-lingering",
            f"{inputs.account} does not linger: the cluster would end when it logs out",
            f"loginctl enable-linger {inputs.account}",
            "polkit or logind.conf (KillUserProcesses, KillExcludeUsers) forbids it",
        )
    elif live.manager != "active" or lacking:
        yield lack(
            "manager",
            "delegation" if live.manager == "active" else "user-manager",
            f"the controllers {' '.join(lacking)} are not delegated to user@{live.uid}.service "
            '("cpu controller needs to be delegated")'
            if live.manager == "active"
            else f"user@{live.uid}.service is {live.manager or 'not there'}",
            f"{_delegation(inputs)} && systemctl daemon-reload && systemctl restart "
            f"user@{live.uid}.service",
            "restart the host; if it stays, another drop-in in /etc/systemd/system/user@.service.d says "
            "less, or the kernel was started with cgroup_disable=",
        )


def _delegation(inputs: RootlessHostInputs) -> str:
    wanted = files.host_files(inputs.account)[files.DELEGATE_FILE]
    return files.write_command(files.DELEGATE_FILE, wanted)


def _enough(ranges: Ranges) -> bool:
    return sum(count for _, count in ranges) >= LEAST_IDS


def _toolkit(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    lack = partial(_lack, inputs)
    if live.runtime_mode != "cdi" or live.no_cgroups:
        said = "has no-cgroups" if live.no_cgroups else f"mode is {live.runtime_mode or 'not set'}"
        yield lack(
            "runtime",
            "runtime-mode",
            f"NVIDIA's container runtime is not in CDI mode ({said}): in a rootless daemon it ends with "
            '"bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted"',
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi --set "
            "nvidia-container-cli.no-cgroups=false",
            "something writes /etc/nvidia-container-runtime/config.toml too (the GPU Operator's "
            "toolkit, configuration management)",
        )
    # Without a driver there is nothing to describe; the findings about the driver say so.
    problem = _cdi(live) if live.smi == 0 else ""
    if problem:
        yield lack(
            "cdi",
            "cdi",
            problem,
            "rm -f /etc/cdi/nvidia.yaml; systemctl enable --now nvidia-cdi-refresh.path "
            "nvidia-cdi-refresh.service; systemctl restart nvidia-cdi-refresh.service",
            "read `journalctl -u nvidia-cdi-refresh` and /etc/nvidia-container-toolkit/"
            "nvidia-cdi-refresh.env there",
        )


def _cdi(live: LiveRootless) -> str:
    unresolvable = "unresolvable CDI devices nvidia.com/gpu="
    if live.static_cdi:
        return (
            "/etc/cdi/nvidia.yaml is a specification that nobody writes anew: on another machine it "
            "names GPUs that are not there"
        )
    if not live.cdi:
        return f'there is no CDI specification of the GPUs ("{unresolvable}all")'
    if live.wanted_devices <= live.cdi:
        states = (live.enabled.get(unit, "") for unit in files.REFRESH_UNITS)
        off = [state or "not there" for state in states if state != "enabled"]
        return f"the units that write the CDI specification are {off[0]}" if off else ""
    others = sorted(name for name in live.cdi - live.wanted_devices if "=GPU-" in name)
    if others:
        return (
            f"the CDI specification names other GPUs ({', '.join(others[:2])}, …) than "
            f"`nvidia-smi -L` ({live.gpu[0]}, …): it is of another machine or another boot"
        )
    return (
        "the CDI specification does not name the GPUs by UUID, as the device plugin asks for them "
        f'("{unresolvable}GPU-…")'
    )


def _daemon(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    """The account's own; it is looked at once the packages are there."""
    lack = partial(_lack, inputs)
    if files.missing_packages(inputs, live):
        return
    try:
        wanted = files.account_files(live.home, live.daemon_json)
    except ValueError:
        wanted = {}  # said already
    for path in files.differing(wanted, live.file):
        yield _differs(inputs, "configuration", path)
    if not live.user_unit or not live.user_enabled:
        problem = f"rootless Docker is not set up for {inputs.account}"
        yield lack("setup", "not-set-up", problem, stays="run it by hand")
    for name, problem, stays in _engine(inputs, live):
        yield lack("restart", name, problem, stays=stays)


def _engine(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[tuple[str, str, str]]:
    engine = live.docker_info
    if not engine.version:
        yield "daemon-down", "the daemon of the account does not run", _JOURNAL
        return
    if not engine.rootless:
        yield (
            "daemon-not-rootless",
            "the daemon that answers the account is not rootless (`docker info` has no name=rootless)",
            f"DOCKER_HOST or a docker context leads elsewhere: it must be unix://{live.runtime_directory}"
            "/docker.sock",
        )
    if engine.version != inputs.docker:
        problem = f"Docker {engine.version} runs, and {inputs.docker} is installed"
        yield "daemon-version", problem, _JOURNAL
    if files.RUNTIME not in engine.runtimes or engine.default_runtime == files.RUNTIME:
        yield (
            "daemon-runtime",
            "`docker info` does not list the runtime nvidia beside its default "
            f"{engine.default_runtime}: the daemon has not read {live.home}/{files.DAEMON_JSON}",
            "another --config-file is named in a drop-in of the account's docker.service; "
            "/etc/docker/daemon.json is not read by a rootless daemon",
        )
    wanted = live.wanted_devices
    if wanted <= live.cdi and not wanted <= engine.devices:
        yield (
            "daemon-without-gpus",
            "the daemon does not see the CDI devices of the host: it sees "
            f"{len(engine.devices)} in {', '.join(engine.directories) or 'no directory'}, and the "
            "directory was made after it started or it has read a stale specification",
            "look with `docker info` there as the account, at CDI spec directories; `features.cdi` may "
            "be false",
        )
