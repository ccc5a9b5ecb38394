"""Starts, stops and finds the server process of a folder of hosts."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.files import read_json, write_json
from lab.hosts import control, views
from lab.hosts.folder import HostsFolder
from lab.hosts.hardware.board import board
from lab.hosts.identity import ensure_key
from lab.hosts.model import (
    BMC_USER,
    USER,
    BmcEndpoint,
    HostEndpoint,
    HostsError,
    HostSpec,
    ServerStatus,
)
from lab.server_process import Report, Server, one_at_a_time

SERVER = Server("lab.hosts", "the server of the hosts", HostsError, log_level=logging.WARNING)


def start(
    folder: Path,
    specs: Sequence[HostSpec],
    report: Report = lambda _: None,
    *,
    client_key: Path | None = None,
) -> dict[str, HostEndpoint]:
    """Serve exactly these hosts from a process that outlives this one; wait until they answer.

    Does nothing when they are served already. A server that was killed is started again, with the
    same ports, keys and files; hosts that are no longer named are taken down and forgotten.

    Args:
        folder: where everything about the hosts is kept.
        specs: the hosts to serve.
        report: receives a line for each step that takes time.
        client_key: private key of the only client that is let in; its `.pub` lies beside it. Made
            when missing. Default: `ssh/id_ed25519` beside `folder`.

    Raises:
        HostsError: two hosts of one name, an unknown platform, a port that another process took, a
            machine that cannot run simulated hosts, a server that did not come up.
    """
    hosts = _checked(specs)
    views.check_possible()
    paths = HostsFolder(folder.resolve())
    key = client_key or paths.path.parent / "ssh" / "id_ed25519"
    with SERVER.starting(paths):
        wanted = {"hosts": hosts, "client-key": ensure_key(key, "gpu-clusters")}
        return _serve(paths, wanted, report)


def _serve(paths: HostsFolder, wanted: dict[str, Any], report: Report) -> dict[str, HostEndpoint]:
    """Make the server serve what is wanted: leave it, tell it, or start it."""
    server = SERVER.find(paths)
    if server is not None:
        SERVER.wait_until_ready(paths, server)
    before = read_json(paths.specs) or wanted
    # A server that could not make one of the hosts does not serve all that it was told to.
    served = (read_json(paths.ready) or {"hosts": {}})["hosts"]
    if server is not None and before == wanted and set(served) == set(wanted["hosts"]):
        return _endpoints(paths, read_json(paths.ready))
    if server is not None and before["client-key"] != wanted["client-key"]:
        SERVER.end(paths)
        server = None
    write_json(paths.specs, wanted)
    if server is not None:
        control.tell(paths, "hosts")
    else:
        report(f"starting {len(wanted['hosts'])} simulated hosts")
        SERVER.launch(paths)
    return _endpoints(paths, read_json(paths.ready))


def stop(folder: Path) -> None:
    """End the server and all that runs on its hosts. Nothing to do is fine."""
    SERVER.stop(HostsFolder(folder.resolve()))


def reinstall(folder: Path, host: str) -> HostEndpoint:
    """Install a machine's operating system anew: nothing of ours is on it, and its host key is another.

    Raises:
        HostsError: there is no such host, or the server does not run.
    """
    paths = HostsFolder(folder.resolve())
    with one_at_a_time(paths.start_lock):
        wanted = read_json(paths.specs) or {"hosts": {}}
        if host not in wanted["hosts"]:
            known = ", ".join(sorted(wanted["hosts"])) or "none"
            raise HostsError(f"there is no host {host!r} in {paths.path}; there are: {known}")
        if SERVER.find(paths) is None:
            raise HostsError(f"the hosts in {paths.path} do not run; start them first")
        if wanted["hosts"][host]["condition"] == "prepared":
            wanted["hosts"][host]["condition"] = "bare"
        write_json(paths.specs, wanted)
        control.tell(paths, f"reinstall {host}")
        return _endpoints(paths, read_json(paths.ready))[host]


def status(folder: Path) -> ServerStatus:
    """Whether the server of a folder runs, and what it serves."""
    paths = HostsFolder(folder.resolve())
    ready = read_json(paths.ready)
    server = SERVER.find(paths)
    if server is not None and ready is not None:
        return ServerStatus(
            running=True, pid=server.pid, hosts=_endpoints(paths, ready), detail="running"
        )
    if ready is None:
        return ServerStatus(running=False, pid=None, hosts={}, detail="not started")
    detail = f"process {ready['pid']} is gone without having been stopped"
    return ServerStatus(running=False, pid=None, hosts=_endpoints(paths, ready), detail=detail)


def _checked(specs: Sequence[HostSpec]) -> dict[str, dict[str, str]]:
    hosts: dict[str, dict[str, str]] = {}
    for spec in specs:
        if spec.name in hosts:
            raise HostsError(f"two hosts are called {spec.name!r}; each needs a name of its own")
        hosts[spec.name] = {
            "platform": board(spec.platform).platform,
            "condition": spec.condition,
            "system": spec.system,
        }
    return hosts


def _endpoints(paths: HostsFolder, ready: dict[str, Any]) -> dict[str, HostEndpoint]:
    password = paths.bmc_password.read_text().strip() if ready["hosts"] else ""
    return {
        name: HostEndpoint(
            host["address"],
            host["port"],
            USER,
            host["host-key"],
            BmcEndpoint(
                url=f"https://{host['bmc-address']}:{host['bmc-port']}",
                user=BMC_USER,
                password=password,
                certificate=host["bmc-certificate"],
            ),
        )
        for name, host in ready["hosts"].items()
    }
