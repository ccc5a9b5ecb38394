"""What a host still lacks: the step that brings it, the command by hand, and why it may not stay. Pure.

Three readers have it: the plan, the list for an administrator, the message when a step did not help.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.domain import rootless_files as files
from gpuclusters.domain import rootless_packages
from gpuclusters.domain.rootless_facts import LEAST_IDS, LiveRootless
from gpuclusters.domain.rootless_inputs import RootlessHostInputs
from gpuclusters.domain.rootless_steps import Missing, Step

FIRST_ID = 100_000
"""Ubuntu's SUB_UID_MIN."""


def missing(inputs: RootlessHostInputs, live: LiveRootless) -> tuple[Missing, ...]:
    """All that the host lacks, in the order of the steps."""
    if live.uid is None:
        account = Missing(
            Step.ACCOUNT,
            f"there is no account {inputs.account}",
            f"useradd --create-home --shell /bin/bash {inputs.account}",
        )
        return (account, *_system(inputs, live))
    found = [*_system(inputs, live), *_account(inputs, live), *_toolkit(live)]
    if live.manager == "active" and live.bus:
        found += _engine(inputs, live)
    elif live.manager == "active":
        found.append(_without_bus(inputs, live))
    order = list(Step)
    return tuple(sorted(found, key=lambda one: order.index(one.step)))


def _system(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Missing]:
    packages = rootless_packages.missing(inputs, live)
    if packages:
        yield Missing(
            Step.PACKAGES,
            f"packages are missing or of another version: {', '.join(packages)}",
            rootless_packages.install_command(packages),
            "look at `apt-cache policy` there: no source of the host has these versions",
        )
    yield from _files(inputs, live)
    loose = rootless_packages.not_held(live)
    if loose and not packages:
        yield Missing(
            Step.HOLD,
            "the next upgrade may bring another kernel or daemon, and the driver would have no module: "
            f"not held: {', '.join(loose)}",
            f"apt-mark hold {' '.join(loose)}",
            "something there takes the holds off (configuration management, an upgrade script): look in "
            "/var/log/apt/history.log",
        )
    if live.rootful and not live.rootful_containers:
        yield Missing(
            Step.ROOTFUL,
            f"Docker runs as root there or may start so ({', '.join(sorted(live.rootful))}): tools of "
            "the account would find it and be root without a word",
            "systemctl disable --now docker.socket docker.service && rm -f /var/run/docker.sock",
            "something there starts it again",
        )


def _files(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Missing]:
    wanted = files.host_files(inputs.account)
    if live.modules:
        names = " ".join(sorted(live.modules))
        yield Missing(
            Step.FILES,
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
        yield Missing(
            Step.FILES,
            f"kernel parameters do not fit: {', '.join(wrong)}",
            f"{files.write_command(files.SYSCTL_FILE, wanted[files.SYSCTL_FILE])} && sysctl --system",
            "a later file in /etc/sysctl.d or /etc/sysctl.conf sets it otherwise",
        )
    if live.boot_unit != "enabled":
        yield Missing(
            Step.FILES,
            f"{files.BOOT_UNIT} is not enabled: after a restart the daemon would not see the GPUs",
            f"{files.write_command(files.BOOT_UNIT_FILE, wanted[files.BOOT_UNIT_FILE])} && systemctl "
            f"daemon-reload && systemctl enable {files.BOOT_UNIT}",
        )
    if not inputs.sudo and not live.linger and files.DELEGATE_FILE not in live.digests:
        yield Missing(
            Step.FILES,
            f"it is not known whether the controllers {' '.join(files.CONTROLLERS)} are delegated",
            f"{_delegation(inputs)} && systemctl daemon-reload",
        )
    if not inputs.sudo:
        # An administrator's own files may say the same in other words: what counts is the effect.
        return
    for path in files.differing(wanted, dict(live.digests)):
        yield Missing(Step.FILES, f"{path} differs", "", "something there writes it too")
    if live.applied != files.host_digest(inputs.account):
        yield Missing(Step.FILES, "the files in /etc have not taken effect", "")


def _account(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Missing]:
    if not _enough(live.subuids) or not _enough(live.subgids):
        first = next_range(live)
        last = first + LEAST_IDS - 1
        yield Missing(
            Step.IDS,
            f"{inputs.account} has no {LEAST_IDS} subordinate ids of users and groups (`getsubids "
            f"{inputs.account}`): rootless Docker cannot map the users of an image",
            f"usermod --add-subuids {first}-{last} --add-subgids {first}-{last} {inputs.account}",
            "the line `subid:` in /etc/nsswitch.conf may lead to a directory; use a local account",
        )
    if not live.linger:
        yield Missing(
            Step.LINGER,
            f"{inputs.account} does not linger: the cluster would end when it logs out",
            f"loginctl enable-linger {inputs.account}",
            "polkit or logind.conf (KillUserProcesses, KillExcludeUsers) forbids it",
        )
    elif live.manager != "active" or not set(files.CONTROLLERS) <= live.controllers:
        lacks = " ".join(sorted(set(files.CONTROLLERS) - live.controllers))
        yield Missing(
            Step.MANAGER,
            f"the controllers {lacks} are not delegated to user@{live.uid}.service "
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


def _enough(ranges: tuple[tuple[int, int], ...]) -> bool:
    return sum(count for _, count in ranges) >= LEAST_IDS


def next_range(live: LiveRootless) -> int:
    """The first id of a range that nobody has; never one of a real account."""
    ends = [first + count for first, count in (*live.taken, *live.subuids, *live.subgids)]
    return max([FIRST_ID, *ends])


def _without_bus(inputs: RootlessHostInputs, live: LiveRootless) -> Missing:
    return Missing(
        Step.MANAGER,
        f"systemd of {inputs.account} cannot be reached (`systemctl --user`: no bus at "
        f"{live.runtime_directory}/bus)",
        f"systemctl restart user@{live.uid}.service",
        "look at `systemctl status user@UID.service` there, and that dbus-user-session is installed; "
        "a session by su or sudo has no bus",
    )


def _toolkit(live: LiveRootless) -> Iterator[Missing]:
    if rootless_packages.TOOLKIT[1] not in live.packages:
        return
    if live.runtime_mode != "cdi" or live.no_cgroups:
        said = "has no-cgroups" if live.no_cgroups else f"mode is {live.runtime_mode or 'not set'}"
        yield Missing(
            Step.RUNTIME,
            f"NVIDIA's container runtime is not in CDI mode ({said}): in a rootless daemon it ends with "
            '"bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted"',
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi --set "
            "nvidia-container-cli.no-cgroups=false",
            "something writes /etc/nvidia-container-runtime/config.toml too (the GPU Operator's "
            "toolkit, configuration management)",
        )
    problem = _cdi(live)
    if problem:
        yield Missing(
            Step.CDI,
            problem,
            "rm -f /etc/cdi/nvidia.yaml; systemctl enable --now nvidia-cdi-refresh.path "
            "nvidia-cdi-refresh.service; systemctl restart nvidia-cdi-refresh.service",
            "read `journalctl -u nvidia-cdi-refresh` and /etc/nvidia-container-toolkit/"
            "nvidia-cdi-refresh.env there",
        )


def _cdi(live: LiveRootless) -> str:
    if live.smi != 0:
        return ""  # without a driver there is nothing to describe; the refusals say so
    if live.static_cdi:
        return (
            "/etc/cdi/nvidia.yaml is a specification that nobody writes anew: on another machine it "
            "names GPUs that are not there"
        )
    if not live.cdi:
        return 'there is no CDI specification of the GPUs ("unresolvable CDI devices nvidia.com/gpu=all")'
    if live.uuid_names <= live.cdi and "nvidia.com/gpu=all" in live.cdi:
        if live.refresh == "enabled":
            return ""
        return f"the units that write the CDI specification are {live.refresh or 'not there'}"
    others = [name for name in live.cdi - live.uuid_names if "=GPU-" in name]
    if others:
        return (
            f"the CDI specification names other GPUs ({', '.join(sorted(others)[:2])}, …) than "
            f"`nvidia-smi -L` ({live.gpus[0]}, …): it is of another machine or another boot"
        )
    return (
        "the CDI specification does not name the GPUs by UUID, as the device plugin asks for them "
        '("unresolvable CDI devices nvidia.com/gpu=GPU-…")'
    )


def _engine(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Missing]:
    if rootless_packages.missing(inputs, live):
        return
    yield from _configuration(live)
    if not live.user_unit or not live.user_enabled:
        yield Missing(
            Step.SETUP, f"rootless Docker is not set up for {inputs.account}", "", "run it by hand"
        )
    for problem, stays in _daemon(inputs, live):
        yield Missing(Step.RESTART, problem, "", stays)


def _configuration(live: LiveRootless) -> Iterator[Missing]:
    try:
        wanted = files.account_files(live.home, live.daemon_json)
    except ValueError:
        return  # the refusals say so
    for path in files.differing(wanted, dict(live.digests)):
        yield Missing(Step.CONFIGURATION, f"{path} differs", "", "something there writes it too")


def _daemon(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[tuple[str, str]]:
    engine = live.engine
    journal = "read `journalctl --user -u docker` there as the account"
    if not engine.version:
        yield "the daemon of the account does not run", journal
        return
    if not engine.rootless:
        yield (
            "the daemon that answers the account is not rootless (`docker info` has no name=rootless)",
            f"DOCKER_HOST or a docker context leads elsewhere: it must be unix://{live.runtime_directory}"
            "/docker.sock",
        )
    if engine.version != inputs.docker:
        yield f"Docker {engine.version} runs, and {inputs.docker} is installed", journal
    if files.RUNTIME not in engine.runtimes or engine.default_runtime == files.RUNTIME:
        yield (
            "`docker info` does not list the runtime nvidia beside its default "
            f"{engine.default_runtime}: the daemon has not read {live.home}/{files.DAEMON_JSON}",
            "another --config-file is named in a drop-in of the account's docker.service; "
            "/etc/docker/daemon.json is not read by a rootless daemon",
        )
    wanted = {*live.uuid_names, "nvidia.com/gpu=all"}
    if wanted <= live.cdi and not wanted <= engine.devices:
        yield (
            "the daemon does not see the CDI devices of the host: it sees "
            f"{len(engine.devices)} in {', '.join(engine.directories) or 'no directory'}, and the "
            "directory was made after it started or it has read a stale specification",
            "look with `docker info` there as the account, at CDI spec directories; `features.cdi` may "
            "be false",
        )
