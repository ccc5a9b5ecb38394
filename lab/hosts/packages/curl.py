"""Stand-ins for `curl` and `gpg`: downloads that hosts make get what the lab has; nothing leaves the machine.

Exit status after curl(1): 22 for an HTTP error with `--fail`, 7 where nothing answers, 2 for usage.
"""

from urllib.parse import SplitResult, unquote, urlsplit

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import DownloadRefused, JoinFails, NodeJoinFails
from lab.hosts.program import program
from lab.hosts.rke2 import rke2_cluster, rke2_release
from lab.hosts.usernetes import usernetes_cluster, usernetes_pki

_KEYS = {
    "https://download.docker.com/linux/ubuntu/gpg": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    "https://nvidia.github.io/libnvidia-container/gpgkey": (
        "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
    ),
}
"""Address and fingerprint of the keys that repositories are signed with."""
_MARK = "(key of a simulated repository) "
_HTTP_ERROR, _NO_CONNECTION = 22, 7


@program(
    "curl",
    flags="--fail --silent --show-error --location --insecure",
    values="--output --retry --connect-timeout --max-time --noproxy --continue-at",
    unknown="curl: option {option}: is unknown",
    unknown_exit=2,
)
def curl(call: Call) -> Answer:
    target = call.value("--output")
    if len(call.words) != 1 or target is None:
        raise RefusedError("curl: (2) on a simulated host: one address and --output", 2)
    place = urlsplit(call.verb)
    if place.path in _SERVERS:
        if not _SERVERS[place.path](call, place.hostname or ""):
            raise RefusedError(
                f"curl: (7) Failed to connect to {place.hostname} port {place.port} after 0 ms: "
                "Could not connect to server",
                _NO_CONNECTION,
            )
        return Answer()
    refused = call.faults.first(DownloadRefused)
    data = None if refused else _content(place)
    if data is None:
        status = refused.status if refused else 404
        raise RefusedError(f"curl: (22) The requested URL returned error: {status}", _HTTP_ERROR)
    call.machine.path(call.located(target)).write_bytes(data)
    call.machine.note("download", address=call.verb)
    return Answer()


def _rke2_answers(call: Call, address: str) -> bool:
    """A server of RKE2: while it is up and no fault closes its port for this host."""
    closed = any(fault.why == "port-closed" for fault in call.faults.all(JoinFails))
    clusters = rke2_cluster.Clusters(call.machine.folder.path.parent)
    return not closed and clusters.at(address) is not None


def _usernetes_answers(call: Call, address: str) -> bool:
    """The API server of a Usernetes cluster, at the address of its host."""
    closed = any(fault.why == "port-closed" for fault in call.faults.all(NodeJoinFails))
    clusters = usernetes_cluster.Clusters(call.machine.folder.path.parent)
    return not closed and clusters.serving_at(address) is not None


_SERVERS = {"/ping": _rke2_answers, "/livez": _usernetes_answers}


def _content(place: SplitResult) -> bytes | None:
    """A key; a file of a release of RKE2, `…/v1.35.7%2Brke2r1/rke2.linux-amd64.tar.gz`; a Usernetes tag."""
    fingerprint = _KEYS.get(place.geturl())
    if fingerprint is not None:
        return f"{_MARK}{fingerprint}\n".encode()
    parts = unquote(place.path).split("/")
    if parts[-1].startswith(("gen2-", "gen3-")) and parts[-1].endswith(".tar.gz"):
        return usernetes_pki.archive(parts[-1].removesuffix(".tar.gz"))
    if len(parts) < 2 or "+rke2r" not in parts[-2]:
        return None
    return rke2_release.files(parts[-2]).get(parts[-1])


@program("gpg", flags="--show-keys --with-colons")
def gpg(call: Call) -> Answer:
    """`gpg --show-keys --with-colons FILE`: fingerprints of keys that `curl` brought."""
    if not call.has("--show-keys") or not call.has("--with-colons") or len(call.words) != 1:
        raise RefusedError("gpg: only --show-keys --with-colons FILE on a simulated host", 2)
    text = call.machine.read_text(call.verb) or ""
    if not text.startswith(_MARK):
        raise RefusedError("gpg: no valid OpenPGP data found.", 2)
    return Answer.out(f"pub:-:4096:1:0:0:::-:::scESC::::::23::0:\nfpr:::::::::{text.split()[-1]}:")
