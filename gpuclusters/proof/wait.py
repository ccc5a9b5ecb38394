"""Waits for the Jobs of one test, and always knows what each of them waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.gpu_operator.objects import EVENT
from gpuclusters.gpu_operator.pods import blocked
from gpuclusters.proof.jobs import CONTAINER, JOB
from gpuclusters.proof.namespace import JobCluster
from gpuclusters.tenancy.objects import POD

POLL_SECONDS = 2.0
GRACE_SECONDS = 30.0
"""Beyond a Job's own deadline: by then its controller has said that it is over."""

INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation of the pods of an indexed Job."""
_KILLED = (137, 143)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one Job."""

    log: str
    exit_code: int | None
    """None: it never ran to its end."""
    said: str = ""
    """Why it did not, or what its container ended with."""
    pod: str = ""


def wait(
    cluster: JobCluster,
    namespace: str,
    jobs: Mapping[str, str],
    *,
    timeout_seconds: float,
    clock: Clock,
    reporter: Reporter,
) -> Mapping[str, Ended]:
    """How each Job ended, by node.

    Args:
        cluster: where they run.
        namespace: in which.
        jobs: name of the Job by node.
        timeout_seconds: their own deadline.
        clock: to wait by.
        reporter: told what blocks a Job, once per change.
    """
    ended: dict[str, Ended] = {}
    held: dict[str, str] = {}
    started = clock.now()
    while True:
        pods = by_job(cluster.list(POD, namespace))
        events = cluster.list(EVENT, namespace)
        for node, name in jobs.items():
            if node in ended:
                continue
            job = cluster.get(JOB, name, namespace)
            those = pods.get(name, ())
            verdict = _verdict(job)
            if verdict is not None:
                pod = telling(those)
                ended[node] = _ended(cluster, namespace, pod, verdict, held.get(node, ""))
                continue
            why = _why(job, those, events)
            if why and why != held.get(node):
                reporter.note(f"{cluster.target}: proof on {node} waits: {why}")
            held[node] = why or held.get(node, "")
        if len(ended) == len(jobs):
            return ended
        if clock.now() - started > timeout_seconds + GRACE_SECONDS:
            break
        clock.sleep(POLL_SECONDS)
    for node in jobs.keys() - ended.keys():
        pod = telling(pods.get(jobs[node], ()))
        ended[node] = _unfinished(cluster, namespace, pod, timeout_seconds, held.get(node, ""))
    return ended


def _unfinished(
    cluster: JobCluster, namespace: str, pod: Object | None, seconds: float, held: str
) -> Ended:
    """One that is still there: what it printed last is most of what is known."""
    log, name = "", ""
    if pod is not None and (pod.get("status") or {}).get("phase") == "Running":
        name = str(pod["metadata"]["name"])
        log = cluster.log(namespace, name, CONTAINER)
    words = f"it printed last: {log.strip().splitlines()[-1]}" if log.strip() else ""
    said = f"not over after {seconds:g} s: {words or held or 'nothing says why'}"
    return Ended(log, None, said, name)


def _verdict(job: Object | None) -> str | None:
    """`Complete` or `Failed: reason`; None while it runs."""
    if job is None:
        return "Failed: somebody deleted the job"
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True":
            if condition["type"] == "Complete":
                return "Complete"
            if condition["type"] == "Failed":
                return (
                    f"Failed: {condition.get('reason', '')} {condition.get('message', '')}".strip()
                )
    return None


def _ended(
    cluster: JobCluster, namespace: str, pod: Object | None, verdict: str, held: str
) -> Ended:
    if pod is None:
        # A Job that met its deadline takes its pods with it.
        return Ended("", None, f"{verdict}; it waited for: {held or 'nothing says what'}")
    name = str(pod["metadata"]["name"])
    status = pod.get("status") or {}
    states = [
        (one.get("state") or {}).get("terminated")
        for one in status.get("containerStatuses") or ()
        if one.get("name") == CONTAINER
    ]
    over = states[0] if states else None
    if over is None:
        refused = " ".join(str(status.get(key, "")) for key in ("reason", "message")).strip()
        return Ended("", None, f"{verdict}; {refused or held or 'its container never ran'}", name)
    log = cluster.log(namespace, name, CONTAINER)
    code = int(over.get("exitCode", 0))
    more = f": {over['message']}" if over.get("message") else ""
    said = "" if code == 0 else f"{over.get('reason', 'Error')}, exit code {code}{more}"
    return Ended(log, code, said, name)


def _why(job: Object | None, pods: Sequence[Object], events: Sequence[Object]) -> str:
    """What keeps a Job from running; empty while it runs."""
    if not pods:
        uid = ((job or {}).get("metadata") or {}).get("uid")
        told = [
            f"{event.get('reason')}: {event.get('message')}"
            for event in events
            if event.get("type") == "Warning"
            and (event.get("involvedObject") or {}).get("uid") == uid
        ]
        return told[-1] if told else ""
    waiting = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending"]
    return blocked(waiting[0], events) if waiting else ""


def owner_of(pod: Object) -> str | None:
    """Name of the Job that a pod belongs to."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "Job":
            return str(owner["name"])
    return None


def by_job(pods: Sequence[Object]) -> Mapping[str, Sequence[Object]]:
    """The pods of each Job."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        name = owner_of(pod)
        if name is not None:
            found.setdefault(name, []).append(pod)
    return found


def telling(pods: Sequence[Object]) -> Object | None:
    """The pod whose log tells how a Job went: that which failed first, else that of the first index."""
    failed = sorted((ended, place) for place, pod in enumerate(pods) if (ended := _failed(pod)))
    if failed:
        return pods[failed[0][1]]
    return min(pods, key=_index, default=None)


def _failed(pod: Object) -> str:
    """When its container failed; empty if it did not."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        over = (one.get("state") or {}).get("terminated") or {}
        if one.get("name") == CONTAINER and over.get("exitCode"):
            # Killed because another one failed: that one tells why.
            killed = over["exitCode"] in _KILLED
            return f"{int(killed)} {over.get('finishedAt', '')}"
    return ""


def _index(pod: Object) -> int:
    told = (pod["metadata"].get("annotations") or {}).get(INDEX, "0")
    return int(told) if str(told).isdecimal() else 0
