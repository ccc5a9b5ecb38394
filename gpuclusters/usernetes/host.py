"""Usernetes on a host over SSH, as the account that owns it, and kubectl in the node of its control plane."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Sequence
from typing import Any

from cryptography import x509

from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.host.kubectl import KubectlHost
from gpuclusters.host.script import read_facts, run_script
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.usernetes import decide
from gpuclusters.usernetes.decide import Invitation
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
    """One round trip for each call."""

    def __init__(self, host: SshHost, account: str) -> None:
        self._host = host
        self._account = account

    @property
    def target(self) -> str:
        """Name, address and port."""
        return self._host.target

    def inspect(self) -> LiveNode:
        """What is there."""
        tried = "look at Usernetes"
        text = self._run("inspect", (), tried, repeatable=True)
        return read_facts(LiveNode, self._host, text, tried=tried)

    def claim(self, *words: str) -> None:
        """Mark the node as ours: owner, machine, release, address, variables."""
        self._run("claim", words, "mark the host")

    def mark(self, name: str, text: str | None) -> None:
        """Remember or forget."""
        self._run("mark", [name] if text is None else [name, text], "mark the host")

    def fetch(self, source: SourceArchive) -> None:
        """Bring upstream's files."""
        arguments, tried = [source.location, source.sha256], f"get Usernetes {source.tag}"
        self._run("fetch", arguments, tried, timeout_seconds=FETCH_TIMEOUT_SECONDS)

    def write_overlay(self, name: str, content: str) -> None:
        """Write one of our files."""
        self._run("overlay", [name], f"write {name}", content=content.encode())

    def make(self, targets: Sequence[str], timeout_seconds: float) -> None:
        """Run targets of upstream's Makefile."""
        called = " ".join(targets)
        self._foreign("make", targets, called, f"run `make {called}`", timeout_seconds)

    def set_up_gpus(self) -> None:
        """Restart the unit in the node."""
        tried = "set up the GPUs in the node"
        self._foreign("gpus", (), "usernetes-gpus.service", tried, STEP_TIMEOUT_SECONDS)

    def join(self, content: str, timeout_seconds: float) -> None:
        """Run upstream's `kubeadm-join`; the token travels on standard input."""
        told = content.encode()
        self._foreign("join", (), "kubeadm-join", "join the cluster", timeout_seconds, content=told)

    def unreachable(self, address: str, port: int) -> str:
        """Why the API server cannot be reached from there."""
        tried = f"reach {address}:{port} from there"
        return self._run("reach", [address, str(port)], tried, repeatable=True).strip()

    def kubeconfig(self) -> str:
        """The admin kubeconfig."""
        return self._run("kubeconfig", (), "read the kubeconfig in the node", repeatable=True)

    def remove(self) -> None:
        """Take everything away."""
        tried = "remove the node (`make down-v`)"
        self._run("remove", (), tried, timeout_seconds=STEP_TIMEOUT_SECONDS)

    def _run(self, name: str, arguments: Sequence[str], tried: str, **how: Any) -> str:
        return self._done(name, arguments, tried, **how).stdout.decode(errors="replace")

    def _foreign(
        self,
        name: str,
        arguments: Sequence[str],
        called: str,
        tried: str,
        seconds: float,
        **how: Any,
    ) -> None:
        """A script that runs programs of others: what they say is explained by who called."""
        done = self._done(
            name, arguments, tried, accept=(0, FAILED), timeout_seconds=seconds, **how
        )
        if done.status == FAILED:
            raise MakeFailedError(called, without_tokens(done.stderr))

    def _done(self, name: str, arguments: Sequence[str], tried: str, **how: Any) -> Completed:
        return run_script(
            self._host,
            f"usernetes/{name}",
            arguments,
            tried=tried,
            after=ENVIRONMENT,
            account=self._account,
            **how,
        )


class SshNodeControl(KubectlHost):
    """kubectl in the control plane's node."""

    sought = "a control plane"
    drain_timeout = "the timeout for draining"
    script = "usernetes/cluster"
    after = ENVIRONMENT

    @property
    def exclusive(self) -> threading.Lock:
        """The control plane's lock, which all nodes of a cluster share."""
        return self._host.exclusive

    def version(self) -> str:
        """Release of the API server."""
        tried = "ask the API for its version"
        try:
            return str(json.loads(self.ask(["version"], tried))["gitVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable(tried) from error

    def events(self, name: str) -> str:
        """Warnings about a node."""
        return self.ask(["events", name], f"read the events of node {name}")

    def invite(self, lifetime: str) -> Invitation:
        """A new token; the answer is kept in memory alone."""
        tried = "make a join token"
        text = self.change(["token", lifetime], tried).stdout.decode(errors="replace")
        try:
            return decide.parse_invitation(text)
        except ValueError as error:
            raise InvalidAnswerError(
                self.target, tried, str(error), "run `kubeadm token list` in the node there"
            ) from None

    def revoke(self, token_id: str) -> None:
        """End the life of a token; one that is gone already, or will be soon, is no reason to fail."""
        self.change(["revoke", token_id], "delete the join token", accept=(0, FAILED))

    def sync(self) -> None:
        """`make sync-external-ip`."""
        tried = "give the nodes their addresses (`make sync-external-ip`)"
        done = self.change(["sync"], tried, accept=(0, FAILED))
        if done.status == FAILED:
            raise MakeFailedError("sync-external-ip", without_tokens(done.stderr))

    def restart_flannel(self, name: str) -> None:
        """Delete its pod there; the DaemonSet makes another."""
        self.change(["flannel", name], f"restart flannel on node {name}")


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
