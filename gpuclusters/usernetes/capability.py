"""A host that is brought into a Usernetes cluster, step by step, so that a killed run can be repeated.

What was begun is marked on the host before it is done, what was finished after it. Workers join side by side;
what ends pods that run already is done to one node at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from gpuclusters.compat import known_errors
from gpuclusters.compat.known_errors import last_words
from gpuclusters.core.converge import Clock, Reporter, Step, poll
from gpuclusters.core.finding import Finding, Level, Refused, refused
from gpuclusters.host.node import ClusterNode
from gpuclusters.usernetes import decide
from gpuclusters.usernetes.decide import CONTROL_PLANE, LivePlace, Meeting, Plan, sync_faults
from gpuclusters.usernetes.host import MakeFailedError, SshNodeControl, SshNodeHost
from gpuclusters.usernetes.model import LiveNode, UsernetesNodeInputs, words

POLL_SECONDS = 2.0
_FIRST_POLL_SECONDS = 0.1
API_TIMEOUT_SECONDS = 120.0
"""How long a control plane whose host has just started is given."""
START_TIMEOUT_SECONDS = 60.0
"""How long systemd in a node container needs to get to our unit, at most."""
STEP_TIMEOUT_SECONDS = 900.0


class NodeCapability:
    """One node: its host, and the control plane, which is asked on its own host."""

    def __init__(
        self,
        inputs: UsernetesNodeInputs,
        host: SshNodeHost,
        control: SshNodeControl,
        clock: Clock,
        reporter: Reporter,
        *,
        known: bool,
    ) -> None:
        self._inputs = inputs
        self._host = host
        self._control = control
        self._clock = clock
        self._reporter = reporter
        self._known = known
        self.target = host.target
        self.steps = {
            "node": Step(self._prepare),
            "gpus": Step(self._set_up_gpus),
            "join": Step(self._join),
            "ready": Step(self._wait_until_ready),
        }

    def observe(self) -> LivePlace:
        """The host, and what the cluster says of it as far as it can be asked."""
        inputs, live = self._inputs, self._host.inspect()
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
        port = inputs.network.ports.kube_apiserver
        unreachable = self._host.unreachable(inputs.control.host_ip, port)
        meeting = Meeting(self._control.clock(), self._control.version(), unreachable)
        return LivePlace(live, node, meeting)

    def findings(self, live: LivePlace) -> Iterable[Finding]:
        """See `decide.findings`."""
        return decide.findings(self._inputs, live, known=self._known)

    def differences(self, live: LivePlace) -> Iterable[Finding]:
        """A node is taken over by nobody."""
        return self.findings(live)

    def remove(self) -> None:
        """Drain, delete the Node, remove container and volumes; gone already is fine."""
        inputs, live = self._inputs, self._host.inspect()
        if live.owner and live.owner != inputs.natural_id:
            raise refused(
                self.target,
                "usernetes.other-owner",
                f"the node on it belongs to {live.owner}, not to {inputs.natural_id}",
                "leave it to that stack and take this resource out with `pulumi state delete`",
            )
        if inputs.control is not None and self._control.is_installed():
            self.require_answer()
            node = self._control.node(inputs.node_name)
            if node is not None:
                with self._control.exclusive:
                    self._drain(node, "removal")
                self._control.delete(inputs.node_name)
        if live.is_begun or live.source or live.overlay:
            self._host.remove()

    def require_answer(self) -> None:
        """Wait until the control plane answers."""
        silent = Finding(
            "usernetes.no-answer",
            "could not ask the cluster: its API does not answer there",
            "look at `docker ps` of its account and at `docker logs usernetes-node`, then run again",
            level=Level.REPAIR,
        )
        place = self._control.target
        self._wait(
            place, lambda: () if self._control.is_ready() else (silent,), API_TIMEOUT_SECONDS
        )

    def _prepare(self, live: LivePlace, _found: Sequence[Finding]) -> None:
        """Everything up to a container that runs."""
        inputs, host, node = self._inputs, self._host, live.node
        steps = decide.plan(inputs, live.host)
        is_worker = inputs.control is not None
        with self._one_at_a_time(steps):
            if steps.leave:
                self._reporter.note(f"{self.target}: the node is removed first: {steps.leave}")
                if node is not None and not decide.is_image_of_another(inputs, live.host):
                    self._drain(node, "replacement")
                    self._control.delete(inputs.node_name)
                host.remove()
            host_ip = decide.address(inputs, live.host)
            variables = words(inputs.environment(host_ip))
            machine = inputs.connection.machine
            host.claim(inputs.natural_id, machine, inputs.release, host_ip, *variables)
            if steps.fetch:
                host.fetch(inputs.source)
            for name in steps.overlay:
                host.write_overlay(name, inputs.overlay[name])
            if not steps.up:
                return
            if steps.recreate:
                self._reporter.note(
                    f"{self.target}: the node container is made anew: {steps.recreate}"
                )
                if node is not None and is_worker:
                    self._drain(node, "another container")
                self._make("take the node container down", ["down"], STEP_TIMEOUT_SECONDS)
            self._make("start the node", ["up"], inputs.build_timeout_seconds)
            self._started()
            if steps.recreate and node is not None and is_worker:
                # The next node is disturbed when this one is back.
                self._settle(self._ready(host_ip))

    def _set_up_gpus(self, _live: LivePlace, found: Sequence[Finding]) -> None:
        said = "; ".join(one.problem for one in found)
        self._reporter.note(f"{self.target}: {said}; the GPUs are set up again")
        tried = f"set up the GPUs in node {self._inputs.node_name}"
        self._foreign(tried, self._host.set_up_gpus)
        self._started()

    def _join(self, live: LivePlace, _found: Sequence[Finding]) -> None:
        """Make the cluster, or join it, and be Ready in it; what was begun before is undone."""
        inputs, host = self._inputs, self._host
        if decide.plan(inputs, live.host).reset:
            self._make("reset what kubeadm began", ["kubeadm-reset"], STEP_TIMEOUT_SECONDS)
        host.mark("began", "yes")
        if inputs.control is None:
            targets = ["kubeadm-init", inputs.source.install_target]
            self._make(f"make the cluster {inputs.cluster}", targets, inputs.join_timeout_seconds)
            self.require_answer()
        else:
            if live.node is not None:
                # Its host was made anew, or an attempt ended half-way: the new one must not inherit from it.
                self._control.delete(inputs.node_name)
            invitation = self._control.invite(decide.lifetime(inputs.join_token_hours))
            content = decide.join_file(
                invitation, control_ip=inputs.control.host_ip, control_name=inputs.control.node_name
            )
            try:
                self._foreign(
                    f"join {inputs.cluster} as worker {inputs.node_name}",
                    lambda: host.join(content, inputs.join_timeout_seconds),
                )
            finally:
                self._control.revoke(invitation.token_id)
        self._wait_until_ready(live, ())

    def _wait_until_ready(self, live: LivePlace, _found: Sequence[Finding]) -> None:
        """Ready, reached from outside, open; then it is marked that it was."""
        self._settle(self._ready(decide.address(self._inputs, live.host)))
        now = self._host.inspect()
        if now.joined != now.cluster_id or now.began:
            self._host.mark("joined", now.cluster_id)
            self._host.mark("began", None)

    def _ready(self, host_ip: str) -> ClusterNode:
        """Wait until the node is Ready and reached from outside.

        What the cluster says in between is no reason to give up: when many nodes join at once,
        `CIDRAssignmentFailed` and restarts of flannel come and go.
        """
        inputs, control, name = self._inputs, self._control, self._inputs.node_name
        nodes: list[ClusterNode | None] = [None]

        def look() -> Sequence[Finding]:
            if control.is_ready():
                node = control.node(name)
                if node is not None and sync_faults(node, host_ip):
                    # At once, so that flannel finds its address when it starts.
                    self._sync()
                    node = control.node(name)
                nodes[0] = node
            found = [*decide.node_faults(inputs, nodes[0], host_ip)]
            if {one.code for one in found} == {"usernetes.flannel-address"}:
                control.restart_flannel(name)
            return found

        tried = f"bring node {name} into {inputs.cluster}"
        self._wait(self.target, look, inputs.join_timeout_seconds, tried)
        node = nodes[0]
        assert node is not None  # noqa: S101 (nothing was found, so that there is one)
        return node

    def _started(self) -> None:
        """Wait until systemd in the container has come to the unit of the GPUs."""
        seen: list[LiveNode] = []

        def look() -> Sequence[Finding]:
            seen[:] = [self._host.inspect()]
            if seen[0].is_running and seen[0].gpu_unit in ("active", "failed"):
                return ()
            problem = f"its container is {seen[0].container}"
            remedy = "read `docker logs usernetes-node` there"
            code = "usernetes.container-down"
            return (Finding(code, problem, remedy, level=Level.REPAIR),)

        found = self._poll(self.target, look, START_TIMEOUT_SECONDS)
        if found and not seen[0].is_running:
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

    def _sync(self) -> None:
        """Upstream's target goes through all nodes, so that one that just comes or goes can make it fail."""
        try:
            self._control.sync()
        except MakeFailedError as error:
            said = last_words(error.said)
            self._reporter.note(
                f"{self._control.target}: `make sync-external-ip` failed ({said}); tried again"
            )

    def _one_at_a_time(self, steps: Plan) -> AbstractContextManager[object]:
        # The control plane is asked on its own host, whose commands wait for nobody.
        worker = self._inputs.control is not None
        return self._control.exclusive if steps.disturbs and worker else nullcontext()

    def _make(self, tried: str, targets: Sequence[str], seconds: float) -> None:
        self._foreign(
            f"{tried} (`make {' '.join(targets)}`)", lambda: self._host.make(targets, seconds)
        )

    def _foreign(self, tried: str, run: Callable[[], None]) -> None:
        """A step of upstream's; a failure has its cause, if it is a known one."""
        try:
            run()
        except MakeFailedError as error:
            known, said = known_errors.explain("usernetes", error.said), last_words(error.said)
            cause = known.cause if known else f"{error.target} failed"
            remedy = "run it by hand there, as the account that owns the node"
            raise refused(
                self.target,
                known.code if known else "usernetes.step-failed",
                f"could not {tried}: {cause}{f' ({said})' if said else ''}",
                known.remedy if known else remedy,
            ) from None

    def _wait(
        self, target: str, look: Callable[[], Sequence[Finding]], seconds: float, tried: str = ""
    ) -> None:
        found = self._poll(target, look, seconds)
        if not found or not tried:
            if found:
                raise Refused(target, found)
            return
        said = "; ".join(one.problem for one in found)
        events = last_words(self._control.events(self._inputs.node_name))
        raise refused(
            target,
            found[0].code,
            f"could not {tried}: not done after {seconds:g} s: {said}{f' ({events})' if events else ''}",
            f"{found[0].remedy}; it goes on by itself, and the next run looks again",
        )

    def _poll(
        self, target: str, look: Callable[[], Sequence[Finding]], seconds: float
    ) -> Sequence[Finding]:
        return poll(
            look,
            target=target,
            timeout_seconds=seconds,
            poll_seconds=POLL_SECONDS,
            first_seconds=_FIRST_POLL_SECONDS,
            clock=self._clock,
            reporter=self._reporter,
        )
