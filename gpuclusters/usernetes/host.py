"""A host that is brought into a Usernetes cluster over SSH, in steps that a killed run can repeat.

What was begun is marked on the host before it is done, what was finished after it. Workers join side by side;
what ends pods that run already is done to one node at a time. The cluster is asked by kubectl in the node of
its control plane.
"""

import base64
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from cryptography import x509

from gpuclusters.compat import known_errors
from gpuclusters.compat.known_errors import last_words
from gpuclusters.core.converge import Step
from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.core.finding import Finding, Refused, refused, repair
from gpuclusters.host.capability import HostCapability, Reach
from gpuclusters.host.kubectl import KubectlHost
from gpuclusters.host.node import ClusterNode
from gpuclusters.host.script import look, run_script
from gpuclusters.host.ssh import SshHost
from gpuclusters.usernetes import decide
from gpuclusters.usernetes.decide import CONTROL_PLANE, Invitation, LivePlace, Meeting
from gpuclusters.usernetes.model import LiveNode, UsernetesNodeInputs, words

_FIRST_POLL_SECONDS = 0.1
API_TIMEOUT_SECONDS = 120.0
"""How long a control plane whose host has just started is given."""
START_TIMEOUT_SECONDS = 60.0
"""How long systemd in a node container needs to get to our unit, at most."""
FETCH_TIMEOUT_SECONDS = 600.0
SCRIPT_TIMEOUT_SECONDS = 300.0
STEP_TIMEOUT_SECONDS = 900.0
ENVIRONMENT = ("usernetes/environment",)
"""What every script is sent behind."""
FAILED = 1
"""What our scripts answer when a program of others failed: its words are on standard error."""
_TOKEN = re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b")


def inspect(host: SshHost, account: str) -> LiveNode:
    """What is on a host, as the account that owns the node sees it."""
    how: dict[str, Any] = {"tried": "look at Usernetes", "after": ENVIRONMENT, "account": account}
    return look(host, LiveNode, "usernetes/inspect", (), **how)


class SshNodeControl(KubectlHost):
    sought = "a control plane"
    drain_timeout = "the timeout for draining"
    script = "usernetes/cluster"
    after = ENVIRONMENT

    @property
    def exclusive(self) -> threading.Lock:
        """The control plane's lock, which all nodes of a cluster share."""
        return self._host.exclusive

    def version(self) -> str:
        tried = "ask the API for its version"
        try:
            return str(json.loads(self.ask(["version"], tried))["gitVersion"])
        except (ValueError, KeyError, TypeError) as error:
            raise self.unreadable(tried) from error

    def events(self, name: str) -> str:
        return self.ask(["events", name], f"read the events of node {name}")

    def invite(self, lifetime: str) -> Invitation:
        """A new token; the answer is kept in memory alone."""
        tried = "make a join token"
        text = self.change(["token", lifetime], tried).stdout.decode(errors="replace")
        try:
            return decide.parse_invitation(text)
        except ValueError as error:
            remedy = "run `kubeadm token list` in the node there"
            raise InvalidAnswerError(self.target, tried, str(error), remedy) from None

    def revoke(self, token_id: str) -> None:
        """End the life of a token; one that is gone already, or will be soon, is no reason to fail."""
        self.change(["revoke", token_id], "delete the join token", accept=(0, FAILED))

    def sync(self) -> str:
        """`make sync-external-ip`; what it said last, if it failed."""
        tried = "give the nodes their addresses (`make sync-external-ip`)"
        done = self.change(["sync"], tried, accept=(0, FAILED))
        return last_words(_TOKEN.sub("(token)", done.stderr)) if done.status == FAILED else ""


def first_expiry(certificates: str) -> str:
    """When the first of these certificates (PEM in base64) ends, as UTC; empty without any."""
    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(certificates))
    except ValueError:
        return ""  # none, or half written while we read it; the next look finds it whole
    return min(one.not_valid_after_utc for one in found).strftime("%Y-%m-%dT%H:%M:%SZ")


class NodeCapability(HostCapability[UsernetesNodeInputs, LivePlace]):
    """One node: its host, and the control plane, which is asked on its own host."""

    room = "usernetes"
    _control: SshNodeControl

    @classmethod
    def on(cls, inputs: UsernetesNodeInputs, reach: Reach, before: Mapping[str, Any]) -> Self:
        made, asked = super().on(inputs, reach, before), inputs.control or inputs
        made._control = SshNodeControl(reach(asked.connection), asked.account)
        return made

    @property
    def steps(self) -> Mapping[str, Step[LivePlace]]:
        return {
            "node": Step(self._prepare),
            "gpus": Step(self._set_up_gpus),
            "join": Step(self._join),
            "ready": Step(self._wait_until_ready),
        }

    def inspect(self) -> LiveNode:
        return inspect(self._host, self._inputs.account)

    def observe(self) -> LivePlace:
        inputs, live = self._inputs, self.inspect()
        if live.docker != "ok":
            return LivePlace(live)
        if inputs.control is None:
            asked = live.is_running and bool(live.joined) and self._control.is_ready()
            return LivePlace(live, self._control.node(inputs.node_name) if asked else None)
        if not self._control.is_ready():
            return LivePlace(live)
        node = self._control.node(inputs.node_name)
        if not decide.plan(inputs, live).join:
            return LivePlace(live, node)
        where = [inputs.control.host_ip, str(inputs.network.ports.kube_apiserver)]
        tried = f"reach {':'.join(where)} from there"
        unreachable = self._run(tried, "reach", *where, repeatable=True).strip()
        meeting = Meeting(self._control.clock(), self._control.version(), unreachable)
        return LivePlace(live, node, meeting)

    def findings(self, live: LivePlace) -> Iterable[Finding]:
        return decide.findings(self._inputs, live, known=bool(self._before))

    def outputs(self, live: LivePlace) -> Mapping[str, Any]:
        inputs, host, text = self._inputs, live.host, ""
        address = inputs.host_ip or host.host_ip or host.route
        joined = bool(host.joined) and host.joined == host.cluster_id and host.is_running
        if inputs.is_control_plane and joined:
            tried = "read the kubeconfig in the node"
            text = self._run(tried, "kubeconfig", repeatable=True)
            names = {"name": inputs.cluster, "node_name": inputs.node_name}
            text = decide.kubeconfig(text, inputs.api, **names, host_ip=address)
        return {
            "joined": joined,
            "member_of": host.joined,
            "address": address,
            "kubernetes": live.node.version if live.node else "",
            "gpu_uuids": sorted(name for name in host.cdi if name.startswith("GPU-")),
            "certificate_expires": first_expiry(host.certificates),
            "kubeconfig": text,
        }

    def is_absent(self, live: LivePlace) -> bool:
        """Whether nothing of a node is there; a daemon that does not answer says nothing of what it keeps."""
        return live.host.docker == "ok" and not live.host.is_begun

    def remove(self) -> None:
        """Drain, delete the Node, remove container and volumes; gone already is fine."""
        inputs, live = self._inputs, self.inspect()
        if live.owner and live.owner != inputs.natural_id:
            raise refused(
                self.target, "usernetes.other-owner", case="removal", live=live, inputs=inputs
            )
        if inputs.control is not None and self._control.is_installed():
            self.require_answer()
            node = self._control.node(inputs.node_name)
            if node is not None:
                with self._control.exclusive:
                    self._drain(node, "removal")
                self._control.delete(inputs.node_name)
        if live.is_begun or live.source or live.overlay:
            self._remove()

    def require_answer(self) -> None:
        """Wait until the control plane answers."""
        silent = repair("usernetes.no-answer", step="")

        def look() -> Sequence[Finding]:
            return () if self._control.is_ready() else (silent,)

        if left := self._poll(look, API_TIMEOUT_SECONDS, _FIRST_POLL_SECONDS, self._control.target):
            raise Refused(self._control.target, left)

    def _prepare(self, live: LivePlace, _found: Sequence[Finding]) -> None:
        """Everything up to a container that runs."""
        inputs, run, node = self._inputs, self._run, live.node
        steps, is_worker = decide.plan(inputs, live.host), inputs.control is not None
        # The control plane is asked on its own host, whose commands wait for nobody.
        alone: AbstractContextManager[object] = nullcontext()
        with self._control.exclusive if steps.disturbs and is_worker else alone:
            if steps.leave:
                self._reporter.note(f"{self.target}: the node is removed first: {steps.leave}")
                if node is not None and not decide.is_image_of_another(inputs, live.host):
                    self._drain(node, "replacement")
                    self._control.delete(inputs.node_name)
                self._remove()
            host_ip = decide.address(inputs, live.host)
            ours = [inputs.natural_id, inputs.connection.machine, inputs.release, host_ip]
            run("mark the host", "claim", *ours, *words(inputs.environment(host_ip)))
            if steps.fetch:
                source, tried = inputs.source, f"get Usernetes {inputs.source.tag}"
                where = (source.location, source.sha256)
                run(tried, "fetch", *where, seconds=FETCH_TIMEOUT_SECONDS)
            for name in steps.overlay:
                run(f"write {name}", "overlay", name, content=inputs.overlay[name].encode())
            if not steps.up:
                return
            if steps.recreate:
                why = f"the node container is made anew: {steps.recreate}"
                self._reporter.note(f"{self.target}: {why}")
                if node is not None and is_worker:
                    self._drain(node, "another container")
                self._make("take the node container down", ["down"], STEP_TIMEOUT_SECONDS)
            self._make("start the node", ["up"], inputs.build_timeout_seconds)
            self._wait_until_started()
            if steps.recreate and node is not None and is_worker:
                # The next node is disturbed when this one is back.
                self._settle(self._ready(host_ip))

    def _set_up_gpus(self, _live: LivePlace, found: Sequence[Finding]) -> None:
        said = "; ".join(one.problem for one in found)
        self._reporter.note(f"{self.target}: {said}; the GPUs are set up again")
        tried = f"set up the GPUs in node {self._inputs.node_name}"
        self._call(tried, "gpus", "usernetes-gpus.service", SCRIPT_TIMEOUT_SECONDS)
        self._wait_until_started()

    def _join(self, live: LivePlace, _found: Sequence[Finding]) -> None:
        """Make the cluster, or join it, and be Ready in it; what was begun before is undone."""
        inputs = self._inputs
        if decide.plan(inputs, live.host).reset:
            self._make("reset what kubeadm began", ["kubeadm-reset"], STEP_TIMEOUT_SECONDS)
        self._mark("began", "yes")
        if inputs.control is None:
            targets = ["kubeadm-init", inputs.source.install_target]
            self._make(f"make the cluster {inputs.cluster}", targets, inputs.join_timeout_seconds)
            self.require_answer()
        else:
            if live.node is not None:
                # Its host was made anew, or an attempt ended half-way: the new one must not inherit from it.
                self._control.delete(inputs.node_name)
            invitation = self._control.invite(decide.lifetime(inputs.join_token_hours))
            # The token travels on standard input.
            content = decide.join_file(
                invitation, control_ip=inputs.control.host_ip, control_name=inputs.control.node_name
            ).encode()
            tried = f"join {inputs.cluster} as worker {inputs.node_name}"
            seconds = inputs.join_timeout_seconds
            try:
                self._call(tried, "join", "kubeadm-join", seconds, content=content)
            finally:
                self._control.revoke(invitation.token_id)
        self._wait_until_ready(live, ())

    def _wait_until_ready(self, live: LivePlace, _found: Sequence[Finding]) -> None:
        """Ready, reached from outside, open; then it is marked that it was."""
        self._settle(self._ready(decide.address(self._inputs, live.host)))
        now = self.inspect()
        if now.joined != now.cluster_id or now.began:
            self._mark("joined", now.cluster_id)
            self._mark("began")

    def _ready(self, host_ip: str) -> ClusterNode:
        """Wait until the node is Ready and reached from outside.

        What the cluster says in between is no reason to give up: when many nodes join at once,
        `CIDRAssignmentFailed` and restarts of flannel come and go.
        """
        inputs, control, name = self._inputs, self._control, self._inputs.node_name
        node: ClusterNode | None = None

        def look() -> Sequence[Finding]:
            nonlocal node
            if control.is_ready():
                node = control.node(name)
                if node is not None and decide.sync_faults(node, host_ip):
                    # At once, so that flannel finds its address when it starts. Upstream's target goes
                    # through all nodes, so that one that just comes or goes can make it fail.
                    if said := control.sync():
                        failed = f"`make sync-external-ip` failed ({said}); tried again"
                        self._reporter.note(f"{control.target}: {failed}")
                    node = control.node(name)
            found = [*decide.node_faults(inputs, node, host_ip)]
            if {one.code for one in found} == {"usernetes.flannel-address"}:
                # Its pod there is deleted; the DaemonSet makes another.
                control.change(["flannel", name], f"restart flannel on node {name}")
            return found

        left = self._poll(look, inputs.join_timeout_seconds, _FIRST_POLL_SECONDS)
        if node is None or left:
            said = "; ".join(one.problem for one in left)
            events = last_words(control.events(name))
            said = f"not done after {inputs.join_timeout_seconds:g} s: {said}"
            said += f" ({events})" if events else ""
            problem = f"could not bring node {name} into {inputs.cluster}: {said}"
            remedy = f"{left[0].remedy}; it goes on by itself, and the next run looks again"
            raise refused(self.target, left[0].code, problem, remedy)
        return node

    def _wait_until_started(self) -> None:
        """Wait until systemd in the container has come to the unit of the GPUs."""
        live = LiveNode()

        def look() -> Sequence[Finding]:
            nonlocal live
            live = self.inspect()
            if live.is_running and live.gpu_unit in ("active", "failed"):
                return ()
            return (repair("usernetes.container-down", step="", live=live),)

        found = self._poll(look, START_TIMEOUT_SECONDS, _FIRST_POLL_SECONDS)
        if found and not live.is_running:
            raise Refused(self.target, found)

    def _settle(self, node: ClusterNode) -> None:
        """The taint of a control plane as it must be, and the node open again if we closed it."""
        inputs, control = self._inputs, self._control
        if inputs.is_control_plane and decide.taint_differs(inputs, node):
            wanted = "-" if inputs.schedule_on_control_plane else ":NoSchedule"
            control.taint(inputs.node_name, [f"{CONTROL_PLANE}{wanted}"])
        if node.drained_for:
            control.uncordon(inputs.node_name)

    def _drain(self, node: ClusterNode, reason: str) -> None:
        """Let the node's pods end in order, if it still can."""
        # The pods of a node that is gone cannot end in order; deleting it lets them start elsewhere.
        seconds = self._inputs.drain_timeout_seconds
        if node.ready and seconds:
            self._control.drain(self._inputs.node_name, reason, seconds)

    def _mark(self, *words: str) -> None:
        """Remember a value, or forget a name without one."""
        self._run("mark the host", "mark", *words)

    def _remove(self) -> None:
        tried = "remove the node (`make down-v`)"
        self._run(tried, "remove", seconds=SCRIPT_TIMEOUT_SECONDS)

    def _make(self, tried: str, targets: Sequence[str], seconds: float) -> None:
        called = " ".join(targets)
        self._call(f"{tried} (`make {called}`)", "make", called, seconds, *targets)

    def _call(
        self, tried: str, name: str, called: str, seconds: float, *words: str, **how: Any
    ) -> None:
        """A step of upstream's; a failure has its cause, if it is a known one."""
        how |= {"after": ENVIRONMENT, "account": self._inputs.account, "accept": (0, FAILED)}
        how |= {"tried": tried, "timeout_seconds": seconds}
        done = run_script(self._host, f"usernetes/{name}", words, **how)
        if done.status == FAILED:
            shown = _TOKEN.sub("(token)", done.stderr)
            known, said = known_errors.explain("usernetes", shown), last_words(shown)
            cause = known.cause if known else f"{called} failed"
            remedy = "run it by hand there, as the account that owns the node"
            raise refused(
                self.target,
                known.code if known else "usernetes.step-failed",
                f"could not {tried}: {cause}{f' ({said})' if said else ''}",
                known.remedy if known else remedy,
            )

    def _run(self, tried: str, name: str, *arguments: str, **how: Any) -> str:
        """A script as the account that owns the node."""
        how = {"after": ENVIRONMENT, "account": self._inputs.account, **how}
        return super()._run(tried, name, *arguments, **how)
