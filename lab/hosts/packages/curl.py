"""Stand-in for `curl`: downloads that simulated hosts make get what the lab has; nothing leaves the machine.

Exit status after curl(1): 22 for an HTTP error with `--fail`, 6 for a host that is not known, 2 for usage.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from lab.hosts.call import Answer, Call
from lab.hosts.packages import gpg
from lab.hosts.rke2 import rke2_release
from lab.hosts.rke2.rke2_cluster import Clusters
from lab.hosts.rke2.rke2_faults import DownloadRefused, JoinFails
from lab.hosts.usernetes import usernetes_cluster, usernetes_pki
from lab.hosts.usernetes.usernetes_faults import NodeJoinFails

_WITH_VALUE = {"--output", "-o", "--retry", "--connect-timeout", "--max-time", "-m", "--noproxy"}
_HTTP_ERROR, _NO_CONNECTION = 22, 7


def run(call: Call) -> Answer:
    target, addresses = None, list[str]()
    rest = list(call.arguments)
    while rest:
        argument = rest.pop(0)
        if argument in _WITH_VALUE:
            value = rest.pop(0) if rest else ""
            target = value if argument in {"--output", "-o"} else target
        elif not argument.startswith("-"):
            addresses.append(argument)
    if len(addresses) != 1 or target is None:
        return Answer.error("curl: (2) on a simulated host: one address and --output", 2)
    if addresses[0].endswith("/ping"):
        return _ping(call, addresses[0])
    if addresses[0].endswith("/livez"):
        return _livez(call, addresses[0])
    refused = call.faults.first(DownloadRefused)
    data = None if refused else gpg.key(addresses[0]) or _content(addresses[0])
    if data is None:
        status = refused.status if refused else 404
        return Answer.error(f"curl: (22) The requested URL returned error: {status}", _HTTP_ERROR)
    path = target if target.startswith("/") else f"{call.cwd}/{target}"
    call.machine.path(path).write_bytes(data)
    call.machine.note("download", address=addresses[0])
    return Answer()


def _ping(call: Call, address: str) -> Answer:
    """A server of RKE2: it answers while it is up and no fault closes its port for this host."""
    place = urlsplit(address)
    closed = any(fault.why == "port-closed" for fault in call.faults.all(JoinFails))
    if closed or Clusters(call.machine.folder.path.parent).at(place.hostname or "") is None:
        text = (
            f"curl: (7) Failed to connect to {place.hostname} port {place.port} after 0 ms: "
            "Could not connect to server"
        )
        return Answer.error(text, _NO_CONNECTION)
    return Answer()


def _livez(call: Call, address: str) -> Answer:
    """The API server of a Usernetes cluster, at the address of its host."""
    place = urlsplit(address)
    closed = any(fault.why == "port-closed" for fault in call.faults.all(NodeJoinFails))
    clusters = usernetes_cluster.Clusters(call.machine.folder.path.parent)
    if closed or clusters.serving_at(place.hostname or "") is None:
        text = (
            f"curl: (7) Failed to connect to {place.hostname} port {place.port} after 0 ms: "
            "Could not connect to server"
        )
        return Answer.error(text, _NO_CONNECTION)
    return Answer()


def _content(address: str) -> bytes | None:
    """A file of a release of RKE2, `…/v1.35.7%2Brke2r1/rke2.linux-amd64.tar.gz`, or a tag of Usernetes."""
    parts = unquote(urlsplit(address).path).split("/")
    if parts[-1].startswith(("gen2-", "gen3-")) and parts[-1].endswith(".tar.gz"):
        return usernetes_pki.archive(parts[-1].removesuffix(".tar.gz"))
    if len(parts) < 2 or "+rke2r" not in parts[-2]:
        return None
    return rke2_release.files(parts[-2]).get(parts[-1])
