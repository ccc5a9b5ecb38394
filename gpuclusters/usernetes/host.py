"""Usernetes on a host over SSH, by the scripts in `scripts/`, as the account that owns it."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence

from cryptography import x509

from gpuclusters.adapters.scripts import read_facts, run_script
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.usernetes.model import LiveNode, SourceArchive

FETCH_TIMEOUT_SECONDS = 600.0
STEP_TIMEOUT_SECONDS = 300.0
ENVIRONMENT = ("usernetes/environment",)
"""What every script is sent behind."""
FAILED = 1
"""What our scripts answer when a program of others failed: its words are on standard error."""
_TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")


class MakeFailedError(Exception):
    """A target of upstream's Makefile ended with an error; what it said last."""

    def __init__(self, target: str, said: str) -> None:
        super().__init__(target, said)
        self.target = target
        self.said = said


class SshNodeHost:
    """`NodeHost` of the domain: one round trip for each call."""

    def __init__(self, host: SshHost, account: str) -> None:
        self._host = host
        self._account = account

    @property
    def place(self) -> str:
        """Name, address and port."""
        return self._host.place

    def inspect(self) -> LiveNode:
        """What is there."""
        tried = "look at Usernetes"
        done = self._run("inspect", (), tried, repeatable=True)
        return read_facts(LiveNode, self._host, done.stdout.decode(errors="replace"), tried=tried)

    def claim(
        self, owner: str, machine: str, release: str, host_ip: str, variables: Sequence[str]
    ) -> None:
        """Mark the node as ours."""
        self._run("claim", [owner, machine, release, host_ip, *variables], "mark the host")

    def mark(self, name: str, text: str | None) -> None:
        """Remember or forget."""
        self._run("mark", [name] if text is None else [name, text], "mark the host")

    def fetch(self, source: SourceArchive) -> None:
        """Bring upstream's files."""
        self._run(
            "fetch",
            [source.location, source.sha256],
            f"get Usernetes {source.tag}",
            timeout_seconds=FETCH_TIMEOUT_SECONDS,
        )

    def write_overlay(self, name: str, content: str) -> None:
        """Write one of our files."""
        self._run("overlay", [name], f"write {name}", content=content.encode())

    def make(self, targets: Sequence[str], timeout_seconds: float) -> None:
        """Run targets of upstream's Makefile."""
        called = " ".join(targets)
        tried = f"run `make {called}`"
        self._foreign("make", targets, called, tried, timeout_seconds=timeout_seconds)

    def set_up_gpus(self) -> None:
        """Restart the unit in the node."""
        self._foreign(
            "gpus",
            (),
            "usernetes-gpus.service",
            "set up the GPUs in the node",
            timeout_seconds=STEP_TIMEOUT_SECONDS,
        )

    def join(self, content: str, timeout_seconds: float) -> None:
        """Run upstream's `kubeadm-join`; the token travels on standard input."""
        self._foreign(
            "join",
            (),
            "kubeadm-join",
            "join the cluster",
            content=content.encode(),
            timeout_seconds=timeout_seconds,
        )

    def unreachable(self, address: str, port: int) -> str:
        """Why the API server cannot be reached from there."""
        tried = f"reach {address}:{port} from there"
        done = self._run("reach", [address, str(port)], tried, repeatable=True)
        return done.stdout.decode(errors="replace").strip()

    def kubeconfig(self) -> str:
        """The admin kubeconfig."""
        done = self._run("kubeconfig", (), "read the kubeconfig in the node", repeatable=True)
        return done.stdout.decode(errors="replace")

    def remove(self) -> None:
        """Take everything away."""
        self._run(
            "remove", (), "remove the node (`make down-v`)", timeout_seconds=STEP_TIMEOUT_SECONDS
        )

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        tried: str,
        *,
        content: bytes | None = None,
        repeatable: bool = False,
        accept: Sequence[int] = (0,),
        timeout_seconds: float | None = None,
    ) -> Completed:
        return run_script(
            self._host,
            f"usernetes/{name}",
            arguments,
            tried=tried,
            after=ENVIRONMENT,
            content=content,
            repeatable=repeatable,
            accept=accept,
            timeout_seconds=timeout_seconds,
            account=self._account,
        )

    def _foreign(
        self,
        name: str,
        arguments: Sequence[str],
        called: str,
        tried: str,
        *,
        timeout_seconds: float,
        content: bytes | None = None,
    ) -> None:
        """A script that runs programs of others: what they say is for the domain to explain."""
        done = self._run(
            name,
            arguments,
            tried,
            content=content,
            accept=(0, FAILED),
            timeout_seconds=timeout_seconds,
        )
        if done.status == FAILED:
            raise MakeFailedError(called, without_tokens(done.stderr))


def without_tokens(text: str) -> str:
    """What a program said, without join tokens."""
    return _TOKEN.sub("(token)", text)


def first_expiry(certificates: str) -> str:
    """When the first of these certificates (PEM in base64) ends, as UTC; empty without any."""
    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(certificates))
    except ValueError:
        return ""  # none, or half written while we read it; the next look finds it whole
    return min(one.not_valid_after_utc for one in found).strftime("%Y-%m-%dT%H:%M:%SZ")
