"""RKE2 on a host over SSH, by the scripts in `gpuclusters/rke2/scripts`: read, compare, act.

What was begun is marked on the host (`claim`), what was finished too (`finish`, with a digest of all that
RKE2 has read). A later run starts again exactly what was not finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.core.converge import Clock, Reporter, Step, poll
from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.core.finding import Finding, Refused, refused
from gpuclusters.host.kubectl import POLL_SECONDS, KubectlHost, answering
from gpuclusters.host.node import ClusterNode, parse_node
from gpuclusters.host.remote import SshNodeFiles
from gpuclusters.host.script import read_facts, run_script
from gpuclusters.host.ssh import SshHost
from gpuclusters.rke2 import adopt, decide, releases
from gpuclusters.rke2.model import (
    Artifacts,
    LiveCluster,
    LiveHost,
    LiveNode,
    Progress,
    Rke2NodeInputs,
)
from gpuclusters.rke2.releases import Role

# An archive of all images has 2 GB; a gigabit line takes half a minute, a proxy far longer.
FETCH_TIMEOUT_SECONDS = 3600.0
INSTALL_TIMEOUT_SECONDS = 600.0
FIRST_POLL_SECONDS = 0.25
_OWNER = "root:root"


class Rke2Capability:
    """One host in its cluster."""

    def __init__(
        self,
        inputs: Rke2NodeInputs,
        host: SshRke2Host,
        others: Sequence[SshRke2Control],
        clock: Clock,
        reporter: Reporter,
        *,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        """`others` are further servers; `before` are earlier inputs, None where the cluster is not asked."""
        self._inputs, self._host, self._others = inputs, host, others
        self._clock, self._reporter, self._before = clock, reporter, before
        self.target = host.target
        self.steps = {"join": Step(self._join), "settle": Step(self._settle)}

    def observe(self) -> LiveNode:
        """The host; before it is changed, also what its cluster says."""
        inputs = self._inputs
        live = self._host.inspect([*inputs.contents(), releases.TOKENS])
        cluster = None if self._before is None else self._ask(live)
        joined = bool(live.applied) and decide.is_active(live, inputs.role)
        kubeconfig = self._host.kubeconfig() if inputs.first and joined else ""
        return LiveNode(live, cluster, kubeconfig)

    def findings(self, live: LiveNode) -> Iterable[Finding]:
        """See `decide.findings`."""
        return decide.findings(self._inputs, self._before or {}, live)

    def differences(self, live: LiveNode) -> Iterable[Finding]:
        """Of an RKE2 that is there: release, configuration, tokens, files."""
        documents, token = self._host.configuration()
        return adopt.differences(self._inputs, live.host, documents, token)

    def remove(self) -> None:
        """Drain, delete the node, uninstall; what is gone already is done."""
        inputs, live = self._inputs, self._host.inspect([])
        if live.owner and live.owner != inputs.natural_id:
            problem = f"RKE2 on it belongs to {live.owner}, not to {inputs.natural_id}"
            remedy = "leave it to that stack and take this resource out with `pulumi state delete`"
            raise refused(self.target, "rke2.other-owner", problem, remedy)
        there = [one for one in self._others if one.is_installed()]
        control = answering(there, self._clock, self._reporter) if there else None
        # Without a mark and without RKE2 the host was reinstalled; only its node may be left.
        is_bare = not live.owner and not live.version
        if control is not None:
            if not is_bare and inputs.role is Role.SERVER:
                lost = [*decide.majority(inputs, control.servers())]
                if lost:
                    raise Refused(self.target, lost)
            if not is_bare and control.node(inputs.node_name) is not None:
                self._drain(control, "removal")
            control.delete(inputs.node_name)
        if not is_bare:
            self._host.uninstall()

    def _control(self) -> SshRke2Control:
        if self._inputs.first:
            return self._host.control()
        return answering(self._others, self._clock, self._reporter)

    def _ask(self, live: LiveHost) -> LiveCluster:
        inputs = self._inputs
        if inputs.first:
            taken_over = inputs.adopt and decide.is_active(live, Role.SERVER)
            others = () if live.applied or taken_over else self._others
            rivals = (one.target for one in others if one.is_installed() and one.is_ready())
            control = self._host.control()
            known = (
                bool(live.applied) and decide.is_active(live, Role.SERVER) and control.is_ready()
            )
            node = control.node(inputs.node_name) if known else None
            return LiveCluster(node=node, rival=next(rivals, ""))
        control = self._control()
        is_done = decide.is_as_declared(inputs, live)
        return LiveCluster(
            node=control.node(inputs.node_name),
            # Found out now it costs seconds; RKE2 would try for as long as it is let.
            unreachable="" if live.owner else self._host.unreachable(inputs.registration_address),
            clock=None if live.applied else control.clock(),
            servers={} if is_done or inputs.role is Role.SERVER else control.servers(),
        )

    def _join(self, live: LiveNode, _found: Sequence[Finding]) -> None:
        inputs, host, was = self._inputs, self._host, live.host
        node = live.cluster.node if live.cluster else None
        host.claim(inputs.natural_id)
        if was.version != inputs.version:
            host.fetch(inputs.version, inputs.artifacts)
            if was.version and node is not None:
                self._drain(self._control(), inputs.version)
        host.prepare(cis=inputs.cis)
        contents = inputs.contents()
        for path in sorted(set((self._before or {}).get("files") or ()) - set(contents)):
            host.remove(path)
        for path, content in decide.differing(inputs, was).items():
            host.write(path, content)
        if was.version != inputs.version:
            host.install(inputs.version, inputs.artifacts, cis=inputs.cis)
        self._wait(host.start(inputs.role))
        host.finish(inputs.digest)

    def _wait(self, since: str) -> None:
        """Until the node is Ready with its release, a cause that waiting does not help, or the deadline."""
        inputs, control = self._inputs, self._control()
        progress = Progress("", 0, "")

        def look() -> Sequence[Finding]:
            nonlocal progress
            progress = self._host.progress(inputs.role, since)
            asks = progress.active == "active" and (not inputs.first or control.is_ready())
            node = control.node(inputs.node_name) if asks else None
            return [*decide.waiting(inputs, progress, node)]

        left = poll(
            look,
            target=self.target,
            timeout_seconds=inputs.join_timeout_seconds,
            poll_seconds=POLL_SECONDS,
            first_seconds=FIRST_POLL_SECONDS,
            clock=self._clock,
            reporter=self._reporter,
        )
        if left:
            told = [decide.not_joined(inputs, progress, finding) for finding in left]
            raise Refused(self.target, told)

    def _settle(self, live: LiveNode, _found: Sequence[Finding]) -> None:
        """Labels and taints as they must be, and open again if we closed it."""
        inputs, node, control = self._inputs, live.cluster and live.cluster.node, self._control()
        if not node:
            return
        labels = decide.label_changes(inputs, self._before or {}, node)
        if labels:
            control.label(inputs.node_name, labels)
        taints = decide.node_taints(inputs, self._before or {}, node)
        if taints:
            control.taint(inputs.node_name, taints)
        if node.drained_for:
            control.uncordon(inputs.node_name)

    def _drain(self, control: SshRke2Control, reason: str) -> None:
        if self._inputs.drain_timeout_seconds:
            control.drain(self._inputs.node_name, reason, self._inputs.drain_timeout_seconds)


class SshRke2Host:
    """What is done on the host, one round trip for each call."""

    def __init__(self, host: SshHost) -> None:
        self._host = host
        self._files = SshNodeFiles(host)

    @property
    def target(self) -> str:
        """Name, address and port."""
        return self._host.target

    def control(self) -> SshRke2Control:
        """The cluster as this very host knows it."""
        return SshRke2Control(self._host)

    def inspect(self, paths: Sequence[str]) -> LiveHost:
        """What is there."""
        tried = "look at RKE2"
        text = self._run("inspect", paths, tried, repeatable=True)
        return read_facts(LiveHost, self._host, text, tried=tried)

    def configuration(self) -> tuple[Mapping[str, bytes], str]:
        """The files that RKE2 is configured by, and the token that a server keeps; all of it is secret."""
        files: dict[str, bytes] = {
            **self._files.read_folders([adopt.CONFIG_FOLDER], [".yaml", ".yml"])
        }
        main = self._files.read(adopt.CONFIG_FILE)
        if main is not None:
            files[adopt.CONFIG_FILE] = main.content
        token = self._files.read(adopt.SERVER_TOKEN)
        return files, "" if token is None else token.content.decode(errors="replace")

    def unreachable(self, address: str) -> str:
        """Why the servers cannot be reached from it; empty if they can."""
        said = self._run("reach", [address], f"reach {address} from there", repeatable=True)
        return "; ".join(said.split("\n")).strip("; ")

    def claim(self, owner: str) -> None:
        """Mark the host as one of ours."""
        self._run("mark", ["owner", owner], "mark the host")

    def fetch(self, version: str, artifacts: Artifacts) -> None:
        """Bring the artifacts, compared with their digests."""
        where = [artifacts.source.value, artifacts.location, artifacts.checksum]
        tried = f"get RKE2 {version} from {artifacts.location}"
        arguments = [version, *where, *artifacts.images]
        self._run("fetch", arguments, tried, timeout_seconds=FETCH_TIMEOUT_SECONDS)

    def prepare(self, *, cis: bool) -> None:
        """User, group, kernel parameters."""
        self._run("prepare", ["cis" if cis else "none"], "prepare the host for RKE2")

    def write(self, path: str, content: str) -> None:
        """Write a file that root alone reads; its content travels on standard input."""
        self._files.write(path, content.encode(), mode="0600", owner=_OWNER)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._files.remove(path)

    def install(self, version: str, artifacts: Artifacts, *, cis: bool) -> None:
        """Unpack what was fetched."""
        arguments = [version, "cis" if cis else "none", *artifacts.images]
        tried = f"install RKE2 {version}"
        self._run("install", arguments, tried, timeout_seconds=INSTALL_TIMEOUT_SECONDS)

    def start(self, role: Role) -> str:
        """Enable and restart without waiting."""
        return self._run("start", [role.unit], f"start {role.unit}").strip()

    def progress(self, role: Role, since: str) -> Progress:
        """How far the unit is."""
        tried = f"look how far {role.unit} is"
        said = self._run("progress", [role.unit, since], tried, repeatable=True)
        head, _, journal = said.partition("\n")
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
                self.target,
                "read /etc/rancher/rke2/rke2.yaml",
                "the server has not written it",
                "look at `journalctl -u rke2-server` on the host",
            )
        return live.content.decode()

    def uninstall(self) -> None:
        """Remove RKE2 and all it left."""
        self._run("uninstall", [], "uninstall RKE2", timeout_seconds=INSTALL_TIMEOUT_SECONDS)

    def _run(self, name: str, arguments: Sequence[str], tried: str, **how: Any) -> str:
        done = run_script(self._host, f"rke2/{name}", arguments, tried=tried, **how)
        return done.stdout.decode(errors="replace")


class SshRke2Control(KubectlHost):
    """kubectl on a server."""

    sought = "RKE2"
    drain_timeout = "drain-timeout-seconds"
    script = "rke2/cluster"

    def servers(self) -> Mapping[str, ClusterNode]:
        """The servers, by node name."""
        tried = "list the servers"
        try:
            items = json.loads(self.ask(["servers"], tried))["items"]
            return {one["metadata"]["name"]: parse_node(one) for one in items}
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable(tried) from error

    def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Set labels; None takes one away."""
        words = [f"{k}-" if v is None else f"{k}={v}" for k, v in sorted(labels.items())]
        self.change(["label", name, *words], f"label node {name}")
