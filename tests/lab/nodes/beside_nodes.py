"""Servers beside the nodes of a lab, at addresses that are no node's and no pod's."""

from __future__ import annotations

import ipaddress
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from lab import tools
from lab.nodes import NodesStatus

_FIRST = 200


def address(status: NodesStatus, number: int) -> str:
    """An address of the nodes' network that the lab itself gives to nobody."""
    return str(ipaddress.ip_network(status.subnet)[_FIRST + number])


def inside(status: NodesStatus) -> list[str]:
    """The start of a command that runs in the network of the bridge."""
    server = psutil.Process(status.pid)
    holder = next(child for child in server.children() if _name(child) == "cat")
    return ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]


def _name(process: psutil.Process) -> str:
    """Empty of one that has ended meanwhile."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@contextmanager
def serving(
    status: NodesStatus, folder: Path, wanted: Mapping[str, Sequence[int]]
) -> Iterator[None]:
    """Answer HTTP at these addresses and ports."""
    busybox = str(tools.ensure(["busybox"])["busybox"])
    enter = inside(status)
    (folder / "index.html").write_text("beside\n")
    with ExitStack() as stack:
        for where, ports in wanted.items():
            line = [*enter, "ip", "address", "add", f"{where}/32", "dev", "bridge"]
            subprocess.run(line, check=True, capture_output=True)
            for port in ports:
                httpd = [busybox, "httpd", "-f", "-p", f"{where}:{port}", "-h", str(folder)]
                process = stack.enter_context(subprocess.Popen([*enter, *httpd]))
                stack.callback(process.kill)
        yield
