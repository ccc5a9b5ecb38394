"""The cluster of a proof: its namespace for the time of a run, and the wait for its Jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.finding import Finding, Level
from gpuclusters.core.ports import ClusterObjects, ObjectKind, condition, holds
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked, warnings
from gpuclusters.proof import manifests
from gpuclusters.proof.manifests import CONFIG_MAP, CONTAINER, INDEX, JOB, LABEL
from gpuclusters.tenancy.objects import NAMESPACE, POD

POLL_SECONDS = 2.0
GRACE_SECONDS = 30.0
"""Beyond a Job's own deadline: by then its controller has said that it is over."""
_KILLED = (137, 143)

Object = Mapping[str, Any]


def running(problem: str, *path: str) -> Finding:
    return Finding("proof.running", problem, path=path, level=Level.REPAIR)


@dataclass(frozen=True, slots=True)
class Context:
    """Where a proof runs, and what it waits by."""

    cluster: ClusterObjects
    namespace: str
    clock: Clock
    reporter: Reporter
    deadline: float
    """Of the whole proof, by the clock."""

    @property
    def left_seconds(self) -> float:
        """Of the time for the whole proof."""
        return self.deadline - self.clock.now()

    def bounded(self, seconds: float) -> float:
        """How long one test may take: its own bound, or what is left of the whole proof's."""
        return max(1.0, min(seconds, self.left_seconds))

    def poll(
        self,
        look: Callable[[], Sequence[Finding]],
        timeout_seconds: float,
        poll_seconds: float = POLL_SECONDS,
    ) -> Sequence[Finding]:
        """Wait until nothing is found; what is still there when the time is over."""
        target = self.cluster.target
        return poll(look, target, timeout_seconds, poll_seconds, self.clock, self.reporter)

    @contextmanager
    def objects(self, *bodies: tuple[ObjectKind, Mapping[str, Any]]) -> Iterator[None]:
        """Objects that are there for a while, made in this order; what was made is always removed."""
        made: list[tuple[ObjectKind, str]] = []
        try:
            for kind, body in bodies:
                made.append((kind, str(body["metadata"]["name"])))
                self.cluster.create(kind, body)
            yield
        finally:
            for kind, name in reversed(made):
                self.cluster.delete(kind, name, self.namespace)

    def run(
        self, jobs: Mapping[str, Mapping[str, Any]], timeout_seconds: float
    ) -> Mapping[str, Ended]:
        """Run Jobs, by node, and take them away; how each ended."""
        with self.objects(*((JOB, body) for body in jobs.values())):
            names = {node: str(body["metadata"]["name"]) for node, body in jobs.items()}
            return self.wait(names, timeout_seconds)

    def wait(self, jobs: Mapping[str, str], timeout_seconds: float) -> Mapping[str, Ended]:
        """How each Job, by node, ended."""
        ended: dict[str, Ended] = {}
        held: dict[str, str] = {}
        pods: Mapping[str, Sequence[Object]] = {}

        def look() -> Iterator[Finding]:
            nonlocal pods
            pods = _by_job(self.cluster.list(POD, self.namespace))
            events = self.cluster.list(EVENT, self.namespace)
            for node in [node for node in jobs if node not in ended]:
                job = self.cluster.get(JOB, jobs[node], self.namespace)
                mine = pods.get(jobs[node], ())
                if verdict := _verdict(job):
                    ended[node] = self._ended(telling(mine), verdict, held.get(node, ""))
                    continue
                why = _why(job, mine, events)
                held[node] = why or held.get(node, "")
                yield running(f"proof on {node}: {why}" if why else f"proof on {node}", node)

        self.poll(lambda: list(look()), timeout_seconds + GRACE_SECONDS)
        for node in jobs.keys() - ended.keys():
            pod = telling(pods.get(jobs[node], ()))
            ended[node] = self._unfinished(pod, timeout_seconds, held.get(node, ""))
        return ended

    def _unfinished(self, pod: Object | None, seconds: float, held: str) -> Ended:
        """One that is still there: what it printed last is most of what is known."""
        log, name = "", ""
        if pod is not None and (pod.get("status") or {}).get("phase") == "Running":
            name = str(pod["metadata"]["name"])
            log = self.cluster.log(self.namespace, name, CONTAINER)
        words = f"it printed last: {log.strip().splitlines()[-1]}" if log.strip() else ""
        said = f"not over after {seconds:g} s: {words or held or 'nothing says why'}"
        return Ended(log, None, said, name)

    def _ended(self, pod: Object | None, verdict: str, held: str) -> Ended:
        if pod is None:
            # A Job that met its deadline takes its pods with it.
            return Ended("", None, f"{verdict}; it waited for: {held or 'nothing says what'}")
        name = str(pod["metadata"]["name"])
        over = _terminated(pod)
        if not over:
            status = pod.get("status") or {}
            refused = " ".join(str(status.get(key, "")) for key in ("reason", "message")).strip()
            said = f"{verdict}; {refused or held or 'its container never ran'}"
            return Ended("", None, said, name)
        log = self.cluster.log(self.namespace, name, CONTAINER)
        code = int(over.get("exitCode", 0))
        more = f": {over['message']}" if over.get("message") else ""
        said = "" if code == 0 else f"{over.get('reason', 'Error')}, exit code {code}{more}"
        return Ended(log, code, said, name)


@dataclass(frozen=True, slots=True)
class Ended:
    log: str
    exit_code: int | None
    """None: it never ran to its end."""
    said: str = ""
    pod: str = ""


@contextmanager
def temporary_namespace(
    cluster: ClusterObjects,
    space: str,
    texts: Mapping[str, str],
    kinds: Sequence[ObjectKind] = (JOB, CONFIG_MAP),
) -> Iterator[str]:
    """A namespace with the programs, cleared of what a killed run left; gives their ConfigMap's name."""
    there = cluster.get(NAMESPACE, space)
    for kind in kinds if there else ():
        for body in filter(_is_ours, cluster.list(kind, space)):
            cluster.delete(kind, str(body["metadata"]["name"]), space)
    there = there or cluster.create(NAMESPACE, manifests.namespace(space))
    config_map = manifests.programs(space, texts)
    name = str(config_map["metadata"]["name"])
    try:
        cluster.create(CONFIG_MAP, config_map)
        yield name
    finally:
        cluster.delete(CONFIG_MAP, name, space)
        if _is_ours(there):
            cluster.delete(NAMESPACE, space)


def _is_ours(body: Object) -> bool:
    return LABEL in (body["metadata"].get("labels") or {})


def _verdict(job: Object | None) -> str | None:
    """`Complete` or `Failed: reason`; None while it runs."""
    if job is None:
        return "Failed: somebody deleted the job"
    if holds(job, "Failed"):
        why = condition(job, "Failed")
        return f"Failed: {why.get('reason', '')} {why.get('message', '')}".strip()
    return "Complete" if holds(job, "Complete") else None


def _why(job: Object | None, pods: Sequence[Object], events: Sequence[Object]) -> str:
    """What keeps a Job from running; empty while it runs."""
    if not pods:
        told = list(warnings(job or {"metadata": {}}, events))
        return told[-1] if told else ""
    waiting = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending"]
    return blocked(waiting[0], events) if waiting else ""


def _by_job(pods: Sequence[Object]) -> Mapping[str, Sequence[Object]]:
    found: defaultdict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("kind") == "Job":
                found[str(owner["name"])].append(pod)
    return found


def telling(pods: Sequence[Object]) -> Object | None:
    """The pod whose log tells how a Job went: that which failed first, else that of the first index."""
    return min(pods, key=lambda pod: (_failed(pod), _index(pod)), default=None)


def _failed(pod: Object) -> tuple[int, str]:
    over = _terminated(pod)
    if not over.get("exitCode"):
        return 2, ""
    # Killed because another one failed: that one tells why.
    return int(over["exitCode"] in _KILLED), str(over.get("finishedAt", ""))


def _index(pod: Object) -> int:
    told = (pod["metadata"].get("annotations") or {}).get(INDEX, "0")
    return int(told) if str(told).isdecimal() else 0


def _terminated(pod: Object) -> Object:
    """How its container ended; empty if it did not."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = (one.get("state") or {} for one in statuses if one.get("name") == CONTAINER)
    return next(states, {}).get("terminated") or {}
