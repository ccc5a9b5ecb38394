"""What speaks against preparing a host for rootless Docker, all at once, before anything is changed. Pure.

Sources: Docker's documentation of rootless mode, Ubuntu 24.04 (AppArmor and user namespaces), moby issue
52171 (nerdctl beside it), NVIDIA's driver documentation (R580 is the last branch of Volta, which has no
open modules).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuclusters.domain import rootless_files as files
from gpuclusters.domain.gpu_driver import OPEN_LICENCE
from gpuclusters.domain.gpu_driver_refusals import LAST_OF_VOLTA
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rootless_facts import LiveRootless
from gpuclusters.domain.rootless_inputs import RootlessHostInputs
from gpuclusters.domain.rootless_steps import OF_THE_ACCOUNT, Missing, Step

Finding = tuple[str, str]
"""What is wrong, and what to do."""

LEAST_FREE_MIB = 20_480
"""A node's image, the images in it, and the volumes that outlive it."""
_HIGHEST_UID = 65_535


def before_changing(
    inputs: RootlessHostInputs, live: LiveRootless, lacks: Sequence[Missing]
) -> None:
    """Everything that speaks against it, in one refusal.

    Raises:
        RefusalError: with all findings.
    """
    found = [*_machine(inputs, live), *_gpus(inputs, live), *_account(inputs, live)]
    found += _engine(inputs, live, lacks)
    if not inputs.sudo:
        found += administrator(lacks)
    if found:
        raise RefusalError(inputs.connection.place, *joined(found))


def joined(found: Sequence[Finding]) -> tuple[str, str]:
    """All problems, and each remedy once."""
    return (
        "; and ".join(problem for problem, _ in found),
        "; ".join(dict.fromkeys(remedy for _, remedy in found)),
    )


def administrator(lacks: Sequence[Missing]) -> Iterator[Finding]:
    """What an administrator has to do, each with its command."""
    for one in lacks:
        if one.step not in OF_THE_ACCOUNT:
            yield one.problem, f"ask an administrator to run: `{one.command}`"


def _machine(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    if live.system != "ubuntu":
        yield (
            f"it runs {live.system or 'an unknown system'} {live.release}, and only Ubuntu is prepared",
            "use Ubuntu 24.04",
        )
    if live.architecture != "x86_64":
        yield f"its processor is {live.architecture}", "use an x86_64 machine"
    if live.cgroup == "v1":
        yield (
            "it has cgroup v1, where nothing can be delegated to an account",
            "take systemd.unified_cgroup_hierarchy=0 out of its kernel command line and restart it",
        )
    if live.free_mib < LEAST_FREE_MIB and not live.user_unit:
        yield (
            f"it has {live.free_mib} MiB free where {inputs.account} keeps images, and {LEAST_FREE_MIB} "
            "are needed",
            "free space there, or give it a larger disk",
        )
    taken = sorted(live.ports & set(inputs.ports))
    if taken and not live.engine.containers and not live.user_unit:
        yield (
            f"something listens on {', '.join(f'port {port}' for port in taken)} already, which its node "
            "publishes",
            "find it with `ss -ltnp` and stop it, or write other network.ports",
        )


def _gpus(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    branch = live.module.partition(".")[0]
    if live.volta and live.licence == OPEN_LICENCE:
        yield (
            f"the driver's kernel module {live.module} is the open one (`modinfo -F license nvidia`: "
            f"{live.licence}), and a V100 works with the proprietary one alone",
            "install the proprietary modules (driver.source: host does), then restart it",
        )
    elif live.volta and branch.isdecimal() and int(branch) > LAST_OF_VOLTA:
        yield (
            f"driver {live.module} does not know its GPUs: {LAST_OF_VOLTA} is the last branch for V100",
            f"install a driver of branch {LAST_OF_VOLTA} (driver.source: host does), then restart it",
        )
    elif live.smi != 0:
        said = f" ({live.smi_said})" if live.smi_said else ""
        yield (
            f"its driver serves no GPU: nvidia-smi ended with {live.smi}{said}",
            "install a driver (driver.source: host does), or look at `dmesg | grep -e NVRM -e Xid`",
        )
    elif len(live.gpus) != inputs.gpus:
        yield (
            f"nvidia-smi shows {len(live.gpus)} GPUs and {inputs.gpus} are declared",
            "correct gpus.count, or look for a GPU that fell off the bus (`lspci -d 10de:`)",
        )


def _account(inputs: RootlessHostInputs, live: LiveRootless) -> Iterator[Finding]:
    if live.uid == 0:
        yield f"{inputs.account} is root there", "name an ordinary account, like ubuntu"
    elif live.uid is not None and (not live.local or live.uid > _HIGHEST_UID):
        yield (
            f"{inputs.account} (uid {live.uid}) comes from OS Login or a directory: it has no range of "
            "subordinate ids, and rootless Docker would end up as root's",
            "write account: a local one, like ubuntu; on Google Cloud set enable-oslogin=FALSE for the "
            "machine",
        )
    if live.rootful_containers:
        yield (
            f"Docker runs as root there and has {len(live.rootful_containers)} containers "
            f"({', '.join(live.rootful_containers[:3])}): somebody uses it",
            "use another host, or remove them (`sudo docker ps -a`) and run again; then it is switched "
            "off",
        )
    if live.nerdctl:
        yield (
            "rootless containerd of nerdctl runs under the same account (dockerd-rootless.sh conflicts "
            "with containerd-rootless.sh)",
            f"run `containerd-rootless-setuptool.sh uninstall` as {inputs.account} and remove "
            f"{live.runtime_directory}/containerd-rootless, or use another account",
        )
    if live.namespaces and "subuid" not in live.namespaces and "newuidmap" not in live.namespaces:
        yield _namespaces(live)


def _namespaces(live: LiveRootless) -> Finding:
    elsewhere = live.rootlesskit and live.rootlesskit not in {
        "/usr/bin/rootlesskit",
        "/usr/local/bin/rootlesskit",
    }
    why = (
        "AppArmor restricts user namespaces" if live.restricted else "no user namespace can be made"
    )
    return (
        f"{why}: `rootlesskit true` says {live.namespaces!r}",
        f"use Docker's packages, whose rootlesskit at /usr/bin has a profile, and not {live.rootlesskit}"
        if elsewhere
        else "load its profile (`sudo apparmor_parser -r /etc/apparmor.d/rootlesskit`), or install the "
        "package apparmor anew; `sysctl user.max_user_namespaces` must not be 0",
    )


def _engine(
    inputs: RootlessHostInputs, live: LiveRootless, lacks: Sequence[Missing]
) -> Iterator[Finding]:
    try:
        files.daemon_configuration(live.daemon_json)
    except ValueError as error:
        yield (
            f"{live.home}/{error}",
            f"repair or remove it on the host (`python3 -m json.tool {live.home}/{files.DAEMON_JSON}`)",
        )
    if any(one.step is Step.MANAGER for one in lacks) and live.engine.containers:
        yield (
            f"systemd of {inputs.account} has to start anew, and {live.engine.containers} containers of "
            "the account run",
            "stop them, or restart the host when it suits; then run again",
        )
