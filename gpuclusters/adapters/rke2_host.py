"""RKE2 on a host over SSH, by the scripts in `scripts/rke2`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from gpuclusters.adapters.errors import InvalidAnswerError
from gpuclusters.adapters.kubectl_host import KubectlHost
from gpuclusters.adapters.node_files import SshNodeFiles
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.domain import rke2_adoption, rke2_node
from gpuclusters.domain.rke2 import Role
from gpuclusters.domain.rke2_node import Artifacts, ClusterNode, LiveHost
from gpuclusters.domain.rke2_ports import Progress

# An archive of all images has 2 GB; a gigabit line takes half a minute, a proxy far longer.
FETCH_TIMEOUT_SECONDS = 3600.0
INSTALL_TIMEOUT_SECONDS = 600.0
_OWNER = "root:root"


class SshRke2Host:
    """`Host` of the domain: one round trip for each call."""

    def __init__(self, host: SshHost) -> None:
        self._host = host
        self._files = SshNodeFiles(host)

    @property
    def place(self) -> str:
        """Name, address and port."""
        return self._host.place

    def control(self) -> SshRke2Control:
        """The cluster as this very host knows it."""
        return SshRke2Control(self._host)

    def inspect(self, paths: Sequence[str]) -> LiveHost:
        """What is there."""
        done = self._run("inspect", paths, "look at RKE2", repeatable=True)
        return rke2_node.parse_live(done.stdout.decode(errors="replace"))

    def configuration(self) -> tuple[Mapping[str, bytes], str]:
        """The files that RKE2 is configured by, and the token that a server keeps; all of it is secret."""
        files: dict[str, bytes] = {
            **self._files.read_folders([rke2_adoption.CONFIG_FOLDER], [".yaml", ".yml"])
        }
        main = self._files.read(rke2_adoption.CONFIG_FILE)
        if main is not None:
            files[rke2_adoption.CONFIG_FILE] = main.content
        token = self._files.read(rke2_adoption.SERVER_TOKEN)
        return files, "" if token is None else token.content.decode(errors="replace")

    def unreachable(self, address: str) -> str:
        """Why the servers cannot be reached from it; empty if they can."""
        done = self._run("reach", [address], f"reach {address} from there", repeatable=True)
        return "; ".join(done.stdout.decode(errors="replace").split("\n")).strip("; ")

    def claim(self, owner: str) -> None:
        """Mark the host as one of ours."""
        self._run("mark", ["owner", owner], "mark the host")

    def fetch(self, version: str, artifacts: Artifacts) -> None:
        """Bring the artifacts, compared with their digests."""
        self._run(
            "fetch",
            [
                version,
                artifacts.source.value,
                artifacts.location,
                artifacts.checksum,
                *artifacts.images,
            ],
            f"get RKE2 {version} from {artifacts.location}",
            timeout_seconds=FETCH_TIMEOUT_SECONDS,
        )

    def prepare(self, *, cis: bool) -> None:
        """User, group, kernel parameters."""
        self._run("prepare", ["cis" if cis else "none"], "prepare the host for RKE2")

    def write(self, path: str, content: str, *, mode: str) -> None:
        """Write a file; its content travels on standard input."""
        self._files.write(path, content.encode(), mode=mode, owner=_OWNER)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._files.remove(path)

    def install(self, version: str, artifacts: Artifacts, *, cis: bool) -> None:
        """Unpack what was fetched."""
        self._run(
            "install",
            [version, "cis" if cis else "none", *artifacts.images],
            f"install RKE2 {version}",
            timeout_seconds=INSTALL_TIMEOUT_SECONDS,
        )

    def start(self, role: Role) -> str:
        """Enable and restart without waiting."""
        done = self._run("start", [role.unit], f"start {role.unit}")
        return done.stdout.decode(errors="replace").strip()

    def progress(self, role: Role, since: str) -> Progress:
        """How far the unit is."""
        done = self._run(
            "progress", [role.unit, since], f"look how far {role.unit} is", repeatable=True
        )
        head, _, journal = done.stdout.decode(errors="replace").partition("\n")
        active, _, restarts = head.strip().partition(" ")
        return Progress(active, int(restarts) if restarts.isdecimal() else 0, journal)

    def finish(self, digest: str) -> None:
        """Mark that it has joined."""
        self._run("mark", ["applied", digest], "mark the host")

    def kubeconfig(self) -> str:
        """The admin kubeconfig."""
        live = self._files.read("/etc/rancher/rke2/rke2.yaml")
        if live is None:
            raise InvalidAnswerError(
                self.place,
                "read /etc/rancher/rke2/rke2.yaml",
                "the server has not written it",
                "look at `journalctl -u rke2-server` on the host",
            )
        return live.content.decode()

    def uninstall(self) -> None:
        """Remove RKE2 and all it left."""
        self._run("uninstall", [], "uninstall RKE2", timeout_seconds=INSTALL_TIMEOUT_SECONDS)

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        tried: str,
        *,
        repeatable: bool = False,
        timeout_seconds: float | None = None,
    ) -> Completed:
        return run_script(
            self._host,
            f"rke2/{name}",
            arguments,
            tried=tried,
            repeatable=repeatable,
            timeout_seconds=timeout_seconds,
        )


class SshRke2Control(KubectlHost):
    """`Control` of the domain: kubectl on a server."""

    sought = "RKE2"
    drain_timeout = "drain-timeout-seconds"
    drained = rke2_node.DRAINED

    def node(self, name: str) -> ClusterNode | None:
        """A node, or None."""
        text = self._ask(["node", name], f"look at node {name}")
        try:
            return rke2_node.parse_node(text)
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(f"look at node {name}") from error

    def servers(self) -> Mapping[str, ClusterNode]:
        """The servers, by node name."""
        text = self._ask(["servers"], "list the servers")
        try:
            items = json.loads(text)["items"]
            nodes = {
                one["metadata"]["name"]: rke2_node.parse_node(json.dumps(one)) for one in items
            }
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable("list the servers") from error
        return {name: node for name, node in nodes.items() if node is not None}

    def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Set labels; None takes one away."""
        words = [f"{k}-" if v is None else f"{k}={v}" for k, v in sorted(labels.items())]
        self._change(["label", name, *words], f"label node {name}")

    def taint(self, name: str, changes: Sequence[str]) -> None:
        """Set taints; one that ends with `-` is taken away."""
        self._change(["taint", name, *changes], f"taint node {name}")

    def delete(self, name: str) -> None:
        """Delete the node and the password that its name is bound to."""
        self._change(["delete", name], f"delete node {name}", timeout_seconds=300.0)

    def _ask(self, arguments: Sequence[str], tried: str) -> str:
        done = run_script(self._host, "rke2/cluster", arguments, tried=tried, repeatable=True)
        return done.stdout.decode(errors="replace")

    def _change(
        self, arguments: Sequence[str], tried: str, timeout_seconds: float | None = None
    ) -> Completed:
        return run_script(
            self._host,
            "rke2/cluster",
            arguments,
            tried=tried,
            timeout_seconds=timeout_seconds,
        )

    def _unreadable(self, tried: str) -> InvalidAnswerError:
        return InvalidAnswerError(
            self.place,
            tried,
            "kubectl answered something else than an object",
            "run it by hand there",
        )
