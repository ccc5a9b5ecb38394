"""What real nodes leave on the machine when whoever held them was killed, and how it is removed."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import psutil

from lab.files import read_json, write_json
from lab.nodes import announcements, cgroups, links
from lab.nodes.folder import NodesFolder
from lab.nodes.model import NodesError

_MODULE = "lab.nodes.first_process"
_SECONDS = 60.0


def note(folder: NodesFolder, interface: str, groups: list[str]) -> None:
    """Write down what will be made, before it is: whoever comes after a kill finds it."""
    write_json(folder.undo, {"interface": interface, "cgroups": groups})


def remove(folder: NodesFolder) -> None:
    """Remove all that this set of nodes has on the machine; nothing to do is fine.

    Raises:
        NodesError: something stays, with its name.
    """
    end_processes(folder.path)
    wish = read_json(folder.specs) or {}
    if wish.get("hosts"):
        announcements.withdraw(Path(wish["hosts"]), [node["name"] for node in wish["nodes"]])
    noted = read_json(folder.undo)
    if noted is None:
        return
    links.remove_interface(noted["interface"])
    remove_groups(noted["cgroups"])
    folder.undo.unlink()


def remove_groups(groups: Sequence[str]) -> None:
    """Remove the cgroups of nodes whose processes are gone.

    Raises:
        NodesError: something stays, with its name.
    """
    left = [path for group in groups for path in cgroups.remove(group)]
    if left:
        raise NodesError(
            f"{', '.join(left)} cannot be removed: a process is still in there; "
            "end it (`cat cgroup.procs` there) and stop the lab again"
        )


def end_processes(path: Path) -> None:
    """Kill the first process of every node, and with it all others of that node."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            # `unshare` has the same words behind its own: killed, it takes its child with it.
            if _MODULE in command and any(Path(word).parent == path for word in command):
                process.kill()
                found.append(process)
    psutil.wait_procs(found, _SECONDS)
