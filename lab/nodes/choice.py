"""Whether the nodes of a lab are real or played: decided from facts about the machine, with the reason."""

from dataclasses import dataclass
from enum import StrEnum

INOTIFY_NEEDED = 30
"""Instances of inotify that must be free: a node takes eight or nine, a control plane ten."""


class Wanted(StrEnum):
    """What the configuration asks for (`lab.nodes`)."""

    AUTO = "auto"
    REAL = "real"
    SIMULATED = "simulated"


class Kind(StrEnum):
    REAL = "real"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What decides whether real nodes can run on a machine.

    `commands_missing` are programs of the machine that are not on PATH, `controllers_missing` controllers of
    cgroups that a kubelet needs and that are not there, `inotify` how many more instances of inotify this
    user may have, `others` are kubelets and container runtimes that run already, in words.
    """

    system: str
    root: bool
    commands_missing: tuple[str, ...] = ()
    controllers_missing: tuple[str, ...] = ()
    cgroups_writable: bool = True
    namespaces: bool = True
    overlay: bool = True
    inotify: int = 1024
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What the nodes will be, and why.

    `refused` is true when real ones were asked for and cannot be. `passing` is set where they are simulated
    on a machine that can have real ones: what kept them away, which may be over by the next time.
    """

    kind: Kind
    why: str
    refused: bool = False
    passing: str = ""


def obstacles(facts: MachineFacts) -> list[str]:
    """All that stands in the way of real nodes on this machine, each with what would remove it."""
    if facts.system != "linux":
        return [f"real nodes need Linux and this machine runs {facts.system}"]
    found = []
    if not facts.root:
        found.append("real nodes need root and this user is not; start the lab as root")
    if facts.commands_missing:
        found.append(
            f"{_listed(facts.commands_missing)} not on PATH; "
            "install util-linux, iproute2 and iptables"
        )
    if facts.controllers_missing:
        found.append(
            f"the kernel gives no cgroup controller {', '.join(facts.controllers_missing)}; "
            "enable it, in a container with the cgroups of its machine"
        )
    # Only root can find out the rest; without root it would be a second word about the same thing.
    if facts.root and not facts.cgroups_writable:
        found.append("/sys/fs/cgroup cannot be written; start the lab outside of a container")
    if facts.root and not facts.namespaces:
        found.append(
            "the kernel refuses new namespaces to this process; start the lab outside of a container"
        )
    if not facts.overlay:
        found.append("the kernel has no overlayfs; load it with `modprobe overlay`")
    return found


def shortages(facts: MachineFacts) -> list[str]:
    """What the machine has and has too little of, now, for nodes that do not run yet."""
    if not facts.root or facts.inotify >= INOTIFY_NEEDED:
        return []
    # containerd would start without the part that kubelets ask, and say so in its log alone.
    return [
        f"the kernel gives this user {facts.inotify} more inotify instances and nodes need "
        f"{INOTIFY_NEEDED}; raise it with `sysctl fs.inotify.max_user_instances=1024`"
    ]


def choose(wanted: Wanted, facts: MachineFacts) -> Choice:
    """Real nodes where they were asked for or the machine allows them, else simulated ones.

    Whoever asked for real ones must not get others: that choice is `refused`.
    """
    if wanted is Wanted.SIMULATED:
        return Choice(Kind.SIMULATED, "the configuration asks for simulated nodes")
    lasting, passing = obstacles(facts), shortages(facts)
    if found := [*lasting, *passing]:
        return Choice(
            Kind.SIMULATED,
            "; ".join(found),
            refused=wanted is Wanted.REAL,
            passing="" if lasting else "; ".join(passing),
        )
    asked = wanted is Wanted.REAL
    why = "the configuration asks for real nodes" if asked else "this machine is Linux with root"
    if facts.others:
        # They share the kernel and nothing else: namespaces, folders and cgroups are the lab's own.
        why += f"; {_listed(facts.others)} already there, left alone"
    return Choice(Kind.REAL, why)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
