"""RKE2 on a host over SSH, by the scripts in `gpuclusters/rke2/scripts`: read, compare, act.

What was begun is marked on the host (`claim`), what was finished too (`finish`, with a digest of all that
RKE2 has read). A later run starts again exactly what was not finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from gpuclusters.core.converge import Step, raise_if_not_converged
from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.core.finding import Finding, Refused, refused
from gpuclusters.host.capability import HostCapability, Reach
from gpuclusters.host.kubectl import KubectlHost, answering
from gpuclusters.host.node import ClusterNode, parse_node, readdressed
from gpuclusters.host.script import look
from gpuclusters.host.ssh import SshHost
from gpuclusters.rke2 import adopt, decide, releases
from gpuclusters.rke2.model import LiveCluster, LiveHost, LiveNode, Progress, Rke2NodeInputs
from gpuclusters.rke2.releases import Role

# An archive of all images has 2 GB; a gigabit line takes half a minute, a proxy far longer.
FETCH_SECONDS = 3600.0
INSTALL_SECONDS = 600.0
FIRST_POLL_SECONDS = 0.25


class Rke2Capability(HostCapability[Rke2NodeInputs, LiveNode]):
    """One host in its cluster, and further servers that are asked about it."""

    room = "rke2"
    others: Sequence[SshRke2Control] = ()

    @classmethod
    def on(cls, inputs: Rke2NodeInputs, reach: Reach, before: Mapping[str, Any]) -> Self:
        made = super().on(inputs, reach, before)
        made.others = [SshRke2Control(reach(one)) for one in inputs.control]
        return made

    @property
    def steps(self) -> Mapping[str, Step[LiveNode]]:
        """A node has labels and taints once it has joined."""
        return {"join": Step(self._join), "settle": Step(self._settle)}

    def observe(self) -> LiveNode:
        live = self.seen()
        return replace(live, cluster=self._ask(live.host))

    def seen(self) -> LiveNode:
        """The host alone: between two runs nobody's cluster has to answer."""
        inputs = self._inputs
        live = self.inspect([*inputs.contents(), releases.TOKENS])
        joined = bool(live.applied) and decide.is_active(live, inputs.role)
        return LiveNode(live, None, self._kubeconfig() if inputs.first and joined else "")

    def outputs(self, live: LiveNode) -> Mapping[str, Any]:
        host, inputs = live.host, self._inputs
        where = {"name": inputs.cluster, "host": inputs.registration_address}
        return {
            "joined": bool(host.applied) and decide.is_active(host, inputs.role),
            "installed_version": host.version,
            "certificate_expires": host.expires,
            "kubeconfig": readdressed(live.kubeconfig, **where) if live.kubeconfig else "",
        }

    def is_absent(self, live: LiveNode) -> bool:
        return not live.host.version and not live.host.owner

    def live_inputs(self, live: LiveNode) -> Mapping[str, str]:
        return {"version": live.host.version} if live.host.release() else {}

    def findings(self, live: LiveNode) -> Iterable[Finding]:
        return decide.findings(self._inputs, self._before, live)

    def differences(self, live: LiveNode) -> Iterable[Finding]:
        documents, token = self._configuration()
        return adopt.differences(self._inputs, live.host, documents, token)

    def remove(self) -> None:
        inputs, live = self._inputs, self.inspect([])
        if live.owner and live.owner != inputs.natural_id:
            raise refused(self.target, "rke2.other-owner", case="removal", live=live, inputs=inputs)
        there = [one for one in self.others if one.is_installed()]
        control = answering(there, self._clock, self._reporter) if there else None
        # Without a mark and without RKE2 the host was reinstalled; only its node may be left.
        is_bare = not live.owner and not live.version
        if control is not None:
            if not is_bare and inputs.role is Role.SERVER:
                raise_if_not_converged(self, [*decide.majority(inputs, control.servers())])
            if not is_bare and control.node(inputs.node_name) is not None:
                self._drain(control, "removal")
            control.delete(inputs.node_name)
        if not is_bare:
            self._run("uninstall RKE2", "uninstall", seconds=INSTALL_SECONDS)

    def _control(self) -> SshRke2Control:
        if self._inputs.first:
            return self.local_control()
        return answering(self.others, self._clock, self._reporter)

    def _ask(self, live: LiveHost) -> LiveCluster:
        inputs = self._inputs
        if inputs.first:
            active, control = decide.is_active(live, Role.SERVER), self.local_control()
            others = () if live.applied or (inputs.adopt and active) else self.others
            rivals = (one.target for one in others if one.is_installed() and one.is_ready())
            known = live.applied and active and control.is_ready()
            node = control.node(inputs.node_name) if known else None
            return LiveCluster(node=node, rival=next(rivals, ""))
        control, unreachable = self._control(), ""
        is_done = not [*decide.host_repairs(inputs, live)]
        if not live.owner:
            # Found out now it costs seconds; RKE2 would try for as long as it is let.
            address = inputs.registration_address
            said = self._run(f"reach {address} from there", "reach", address, repeatable=True)
            unreachable = "; ".join(said.split("\n")).strip("; ")
        return LiveCluster(
            node=control.node(inputs.node_name),
            unreachable=unreachable,
            clock=None if live.applied else control.clock(),
            servers={} if is_done or inputs.role is Role.SERVER else control.servers(),
        )

    def _join(self, live: LiveNode, _found: Sequence[Finding]) -> None:
        inputs, was, run = self._inputs, live.host, self._run
        node = live.cluster.node if live.cluster else None
        artifacts, other, unit = inputs.artifacts, was.version != inputs.version, inputs.role.unit
        release, profile = f"RKE2 {inputs.version}", "cis" if inputs.cis else "none"
        run("mark the host", "mark", "owner", inputs.natural_id)
        if other:
            where = (artifacts.source.value, artifacts.location, artifacts.checksum)
            what = (inputs.version, *where, *artifacts.images)
            run(f"get {release} from {artifacts.location}", "fetch", *what, seconds=FETCH_SECONDS)
            if was.version and node is not None:
                self._drain(self._control(), inputs.version)
        run("prepare the host for RKE2", "prepare", profile)
        for path in sorted(set(self._before.get("files") or ()) - set(inputs.contents())):
            self._files.remove(path)
        for path, content in decide.differing(inputs, was).items():
            # Root alone reads it; the content travels on standard input.
            self._files.write(path, content.encode(), mode="0600", owner="root:root")
        if other:
            unpacked = (inputs.version, profile, *artifacts.images)
            run(f"install {release}", "install", *unpacked, seconds=INSTALL_SECONDS)
        self._wait(run(f"start {unit}", "start", unit).strip())
        run("mark the host", "mark", "applied", inputs.digest)

    def _wait(self, since: str) -> None:
        """Until the node is Ready with its release, a cause that waiting does not help, or the deadline."""
        inputs, control = self._inputs, self._control()
        progress = Progress("", 0, "")

        def look() -> Sequence[Finding]:
            nonlocal progress
            progress = self._progress(since)
            asks = progress.active == "active" and (not inputs.first or control.is_ready())
            node = control.node(inputs.node_name) if asks else None
            return [*decide.waiting(inputs, progress, node)]

        if left := self._poll(look, inputs.join_timeout_seconds, FIRST_POLL_SECONDS):
            told = [decide.not_joined(inputs, progress, finding) for finding in left]
            raise Refused(self.target, told)

    def _settle(self, live: LiveNode, _found: Sequence[Finding]) -> None:
        """Labels and taints as they must be, and open again if we closed it."""
        inputs, node, control = self._inputs, live.cluster and live.cluster.node, self._control()
        if not node:
            return
        if labels := decide.label_changes(inputs, self._before, node):
            control.label(inputs.node_name, labels)
        if taints := decide.node_taints(inputs, self._before, node):
            control.taint(inputs.node_name, taints)
        if node.drained_for:
            control.uncordon(inputs.node_name)

    def _drain(self, control: SshRke2Control, reason: str) -> None:
        if self._inputs.drain_timeout_seconds:
            control.drain(self._inputs.node_name, reason, self._inputs.drain_timeout_seconds)

    def inspect(self, paths: Sequence[str]) -> LiveHost:
        return inspect(self._host, paths)

    def local_control(self) -> SshRke2Control:
        """The cluster as this very host knows it."""
        return SshRke2Control(self._host)

    def _configuration(self) -> tuple[Mapping[str, bytes], str]:
        """The files that RKE2 is configured by, and the token that a server keeps; all of it is secret."""
        files = {**self._files.read_folders([adopt.CONFIG_FOLDER], [".yaml", ".yml"])}
        main, token = self._files.read(adopt.CONFIG_FILE), self._files.read(adopt.SERVER_TOKEN)
        if main is not None:
            files[adopt.CONFIG_FILE] = main.content
        return files, "" if token is None else token.content.decode(errors="replace")

    def _progress(self, since: str) -> Progress:
        unit = self._inputs.role.unit
        said = self._run(f"look how far {unit} is", "progress", unit, since, repeatable=True)
        head, _, journal = said.partition("\n")
        active, _, restarts = head.strip().partition(" ")
        return Progress(active, int(restarts) if restarts.isdecimal() else 0, journal)

    def _kubeconfig(self) -> str:
        path = "/etc/rancher/rke2/rke2.yaml"
        live = self._files.read(path)
        if live is None:
            problem = "the server has not written it"
            remedy = "look at `journalctl -u rke2-server` on the host"
            raise InvalidAnswerError(self.target, f"read {path}", problem, remedy)
        return live.content.decode()


def inspect(host: SshHost, paths: Sequence[str]) -> LiveHost:
    """What is on a host, these files among it."""
    return look(host, LiveHost, "rke2/inspect", paths, tried="look at RKE2")


class SshRke2Control(KubectlHost):
    sought = "RKE2"
    drain_timeout = "drain-timeout-seconds"
    script = "rke2/cluster"

    def servers(self) -> Mapping[str, ClusterNode]:
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
