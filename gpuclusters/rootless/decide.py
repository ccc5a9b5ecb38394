"""What forbids to prepare a host for rootless Docker, and what it still lacks. Pure.

Sources: Docker's documentation of rootless mode, Ubuntu 24.04 (AppArmor and user namespaces), moby issue
52171 (nerdctl beside it).
"""

from collections.abc import Iterator

from gpuclusters.core import codes
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

Lack = tuple[str, str, str, str]
"""The step that brings it, the code without its area, what is wrong, and what an administrator types."""


def findings(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    """How a host differs from its inputs, and what forbids to change it."""
    lacks = [_finding(inputs, live, *lack) for lack in _lacks(inputs, live)]
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
    running = live.docker_info.containers
    if running and any(one.step == "manager" for one in lacks):
        told = f"systemd of {inputs.account} has to be restarted"
        problem = f"{told}, and {running} containers of the account run"
        yield blocked("rootless.containers-running", problem)
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
        is_ = f"{live.system or 'an unknown system'} {live.release}"
        yield blocked("rootless.system", f"it runs {is_}, and only Ubuntu is prepared")
    if live.architecture != "x86_64":
        yield blocked("rootless.architecture", f"its processor is {live.architecture}")
    if live.cgroup == "v1":
        problem = "it has cgroup v1, where nothing can be delegated to an account"
        yield blocked("rootless.cgroup-v1", problem)
    if live.user_unit:
        return
    if live.free_mib is not None and live.free_mib < LEAST_FREE_MIB:
        has = f"it has {live.free_mib} MiB free where {inputs.account} keeps images"
        yield blocked("rootless.disk-full", f"{has}, and {LEAST_FREE_MIB} are needed")
    taken = ", ".join(f"port {port}" for port in sorted(live.ports & set(inputs.ports)))
    if taken and not live.docker_info.containers:
        problem = f"something listens on {taken} already, which its node publishes"
        yield blocked("rootless.port-taken", problem)


def _account(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    account, containers = inputs.account, live.rootful_container
    if live.uid == 0:
        yield blocked("rootless.account-root", f"{account} is root there")
    elif live.uid is not None and (not live.local or live.uid > _HIGHEST_UID):
        yield blocked(
            "rootless.account-of-directory",
            f"{account} (uid {live.uid}) comes from OS Login or a directory: it has no range of "
            "subordinate ids, and rootless Docker would end up as root's",
        )
    if containers:
        has = f"{len(containers)} containers ({', '.join(containers[:3])})"
        problem = f"Docker runs as root there and has {has}: somebody uses it"
        yield blocked("rootless.docker-in-use", problem)
    if live.nerdctl:
        yield Finding(
            "rootless.nerdctl",
            "rootless containerd of nerdctl runs under the same account (dockerd-rootless.sh conflicts "
            "with containerd-rootless.sh)",
            f"run `containerd-rootless-setuptool.sh uninstall` as {account} and remove "
            f"{live.runtime_directory}/containerd-rootless, or use another account",
        )
    if live.namespaces and "subuid" not in live.namespaces and "newuidmap" not in live.namespaces:
        restricted = live.sysctl.get(_RESTRICTION) == "1"
        why = (
            "AppArmor restricts user namespaces" if restricted else "no user namespace can be made"
        )
        remedy = (
            "load its profile (`sudo apparmor_parser -r /etc/apparmor.d/rootlesskit`), or install the "
            "package apparmor anew; `sysctl user.max_user_namespaces` must not be 0"
        )
        if live.rootlesskit and live.rootlesskit not in _PACKAGED:
            ours = "use Docker's packages, whose rootlesskit at /usr/bin has a profile"
            remedy = f"{ours}, and not {live.rootlesskit}"
        problem = f"{why}: `rootlesskit true` says {live.namespaces!r}"
        yield Finding("rootless.user-namespaces", problem, remedy)
    try:
        files.daemon_configuration(live.daemon_json)
    except ValueError as error:
        code, path = "rootless.daemon-json-unreadable", f"{live.home}/{files.DAEMON_JSON}"
        remedy = f"repair or remove it on the host (`python3 -m json.tool {path}`)"
        yield Finding(code, f"{live.home}/{error}", remedy, (path,))


def _finding(
    inputs: RootlessHostInputs, live: LiveRootless, step: str, name: str, problem: str, command: str
) -> Finding:
    """What a step brings; where an administrator prepares the host, with the command that he types."""
    code, path = f"rootless.{name}", problem.partition(" ")[0] if name == "file-changed" else ""
    if inputs.sudo or step in OWN_STEPS:
        return repair(code, problem, step, codes.stays(code).format(live=live), path)
    about = (path,) if path else ()
    return Finding(code, problem, f"ask an administrator to run: `{command}`", about)


def _lacks(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Lack]:
    account = inputs.account
    if live.uid is None:
        made = f"useradd --create-home --shell /bin/bash {account}"
        yield "account", "account-missing", f"there is no account {account}", made
    yield from _system(inputs, live)
    if live.uid is None:
        return
    yield from _user(inputs, live)
    if files.TOOLKIT[1] in live.package:
        yield from _toolkit(live)
    if live.manager == "active" and live.bus:
        yield from _daemon(inputs, live)
    elif live.manager == "active":
        bus = f"`systemctl --user`: no bus at {live.runtime_directory}/bus"
        problem = f"systemd of {account} cannot be reached ({bus})"
        yield "manager", "user-bus", problem, f"systemctl restart user@{live.uid}.service"


def _system(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Lack]:
    missing, loose = files.missing_packages(inputs, live), files.not_held(live)
    if missing:
        problem = f"packages are missing or of another version: {', '.join(missing)}"
        yield "packages", "packages", problem, files.install_command(missing)
    yield from _files(inputs, live)
    if loose and not missing:
        problem = (
            "the next upgrade may bring another kernel or daemon, and the driver would have no module: "
            f"not held: {', '.join(loose)}"
        )
        yield "hold", "not-held", problem, f"apt-mark hold {' '.join(loose)}"
    units = live.rootful | {
        unit
        for unit in _ROOTFUL
        if live.active.get(unit) in ("active", "activating") or live.enabled.get(unit) == "enabled"
    }
    if units and not live.rootful_container:
        problem = (
            f"Docker runs as root there or may be started so ({', '.join(sorted(units))}): tools of "
            "the account would find it and be root without a word"
        )
        off = "systemctl disable --now docker.socket docker.service && rm -f /var/run/docker.sock"
        yield "rootful", "docker-as-root", problem, off


def _files(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Lack]:
    wanted = files.host_files(inputs.account)

    def written(path: str, *then: str) -> str:
        return " && ".join([files.write_command(path, wanted[path]), *then])

    if names := " ".join(sorted(live.module_missing)):
        command = written(files.MODULES_FILE, f"modprobe -a {names}")
        yield "files", "kernel-modules", f"kernel modules are not loaded: {names}", command
    wrong = [
        f"{name} is {live.sysctl.get(name) or 'unknown'}"
        for name, fit in files.SYSCTL.items()
        if live.sysctl.get(name) not in fit
    ]
    if wrong:
        problem = f"kernel parameters do not fit: {', '.join(wrong)}"
        command = written(files.SYSCTL_FILE, "sysctl --system")
        yield "files", "kernel-parameters", problem, command
    if live.enabled.get(unit := files.BOOT_UNIT) != "enabled":
        problem = f"{unit} is not enabled: after a restart the daemon would not see the GPUs"
        then = ("systemctl daemon-reload", f"systemctl enable {unit}")
        yield "files", "boot-unit", problem, written(files.BOOT_UNIT_FILE, *then)
    # An administrator's own files may say the same in other words: what counts is the effect.
    if inputs.sudo:
        for path in sorted(differing(wanted, live.file)):
            yield "files", "file-changed", f"{path} differs", ""
        if live.applied != files.host_digest(inputs.account):
            yield "files", "files-not-applied", "the files in /etc have not taken effect", ""
    elif not live.linger and files.DELEGATE_FILE not in live.file:
        problem = (
            f"it is not known whether the controllers {' '.join(files.CONTROLLERS)} are delegated"
        )
        command = written(files.DELEGATE_FILE, "systemctl daemon-reload")
        yield "files", "delegation", problem, command


def _user(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Lack]:
    account, service = inputs.account, f"user@{live.uid}.service"
    if not _enough(live.subuid) or not _enough(live.subgid):
        ids = f"{next_range(live)}-{next_range(live) + LEAST_IDS - 1}"
        problem = (
            f"{account} has no {LEAST_IDS} subordinate ids of users and groups (`getsubids "
            f"{account}`): rootless Docker cannot map the users of an image"
        )
        command = f"usermod --add-subuids {ids} --add-subgids {ids} {account}"
        yield "ids", "subordinate-ids", problem, command
    lacking = sorted(set(files.CONTROLLERS) - live.controllers)
    file = files.DELEGATE_FILE
    delegation = files.write_command(file, files.host_files(account)[file])
    restart = f"{delegation} && systemctl daemon-reload && systemctl restart {service}"
    if not live.linger:
        problem = f"{account} does not linger: the cluster would end when it logs out"
        yield "linger", "not-lingering", problem, f"loginctl enable-linger {account}"
    elif live.manager != "active":
        yield "manager", "user-manager", f"{service} is {live.manager or 'not there'}", restart
    elif lacking:
        problem = (
            f"the controllers {' '.join(lacking)} are not delegated to {service} "
            '("cpu controller needs to be delegated")'
        )
        yield "manager", "delegation", problem, restart


def _enough(ranges: Ranges) -> bool:
    return sum(count for _, count in ranges) >= LEAST_IDS


def _toolkit(live: LiveRootless) -> Iterator[Lack]:
    if live.runtime_mode != "cdi" or live.no_cgroups:
        said = "has no-cgroups" if live.no_cgroups else f"mode is {live.runtime_mode or 'not set'}"
        problem = (
            f"NVIDIA's container runtime is not in CDI mode ({said}): in a rootless daemon it ends with "
            '"bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted"'
        )
        command = (
            "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi --set "
            "nvidia-container-cli.no-cgroups=false"
        )
        yield "runtime", "runtime-mode", problem, command
    # Without a driver there is nothing to describe; the findings about the driver say so.
    if live.smi == 0 and (problem := _cdi(live)):
        command = (
            "rm -f /etc/cdi/nvidia.yaml; systemctl enable --now nvidia-cdi-refresh.path "
            "nvidia-cdi-refresh.service; systemctl restart nvidia-cdi-refresh.service"
        )
        yield "cdi", "cdi", problem, command


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


def _daemon(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Lack]:
    """The account's own; it is looked at once the packages are there."""
    if files.missing_packages(inputs, live):
        return
    try:
        wanted = files.account_files(live.home, live.daemon_json)
    except ValueError:
        wanted = {}  # said already
    for path in sorted(differing(wanted, live.file)):
        yield "configuration", "file-changed", f"{path} differs", ""
    if not live.user_unit or not live.user_enabled:
        yield "setup", "not-set-up", f"rootless Docker is not set up for {inputs.account}", ""
    for name, problem in _engine(inputs, live):
        yield "restart", name, problem, ""


def _engine(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[tuple[str, str]]:
    engine, wanted = live.docker_info, live.wanted_devices
    if not engine.version:
        yield "daemon-down", "the daemon of the account does not run"
        return
    if not engine.rootless:
        why = "`docker info` has no name=rootless"
        yield "daemon-not-rootless", f"the daemon that answers the account is not rootless ({why})"
    if engine.version != inputs.docker:
        yield "daemon-version", f"Docker {engine.version} runs, and {inputs.docker} is installed"
    if files.RUNTIME not in engine.runtimes or engine.default_runtime == files.RUNTIME:
        lacks = "`docker info` does not list the runtime nvidia beside its default"
        yield (
            "daemon-runtime",
            f"{lacks} {engine.default_runtime}: the daemon has not read {live.home}/{files.DAEMON_JSON}",
        )
    if wanted <= live.cdi and not wanted <= engine.devices:
        sees = f"{len(engine.devices)} in {', '.join(engine.directories) or 'no directory'}"
        yield (
            "daemon-without-gpus",
            f"the daemon does not see the CDI devices of the host: it sees {sees}, and the directory was "
            "made after it started or it has read a stale specification",
        )
