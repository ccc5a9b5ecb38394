"""When an object counts as ready, decided from the object (and what it depends on) alone.

The rules are those of the controllers' documented status fields (Kubernetes API reference, `status` and
`conditions` of each kind) and, where the real provider waits for more or less, its choice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """How far an object is: ready, failed for good, or still on its way; `message` says by which fact."""

    ready: bool = False
    failed: bool = False
    message: str = ""


@dataclass(frozen=True)
class Surroundings:
    """Other objects that decide: endpoint slices of a Service, the storage class of a claim."""

    endpoint_slices: Sequence[Object] = field(default_factory=tuple)
    storage_class: Object | None = None


READY: Final = Progress(ready=True)


def progress(obj: Object, surroundings: Surroundings | None = None) -> Progress:
    """Where an object stands; kinds without a rule are ready as soon as they exist."""
    rule = _RULES.get(key_of(obj))
    if rule is None:
        return READY
    if _get(obj, "metadata", "deletionTimestamp"):
        return Progress(message="it is being deleted")
    return rule(obj, surroundings or Surroundings())


def key_of(obj: Object) -> tuple[str, str]:
    return str(obj.get("apiVersion", "")).rpartition("/")[0], str(obj.get("kind", ""))


def is_awaited(obj: Object) -> bool:
    return key_of(obj) in _RULES


def condition(obj: Object, kind: str) -> Object:
    """A status condition; empty if it is not there."""
    for item in _get(obj, "status", "conditions") or ():
        if item.get("type") == kind:
            return dict(item)
    return {}


def _get(obj: Any, *keys: str) -> Any:
    for key in keys:
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


def _number(obj: Object, *keys: str) -> int:
    value = _get(obj, *keys)
    return int(value) if isinstance(value, int | float) else 0


def _said(kind: str, found: Object) -> str:
    if not found:
        return f"condition {kind} is not reported yet"
    parts = (found.get("reason"), found.get("message"))
    detail = ": ".join(str(part) for part in parts if part)
    return f"condition {kind} is {found.get('status')}" + (f" ({detail})" if detail else "")


def _namespace(obj: Object, _: Surroundings) -> Progress:
    phase = _get(obj, "status", "phase")
    return READY if phase == "Active" else Progress(message=f"its phase is {phase or 'not set'}")


def _quota(obj: Object, _: Surroundings) -> Progress:
    if _get(obj, "status", "hard") == (_get(obj, "spec", "hard") or {}):
        return READY
    return Progress(message="its limits are not in force yet")


def _definition(obj: Object, _: Surroundings) -> Progress:
    names = condition(obj, "NamesAccepted")
    if names.get("status") == "False":
        return Progress(failed=True, message=_said("NamesAccepted", names))
    established = condition(obj, "Established")
    if established.get("status") == "True":
        return READY
    return Progress(message=_said("Established", established))


def _observed(obj: Object) -> bool:
    return _number(obj, "status", "observedGeneration") >= _number(obj, "metadata", "generation")


_NOT_OBSERVED: Final = Progress(message="its controller has not looked at this version yet")


def _wanted(obj: Object) -> int:
    replicas = _get(obj, "spec", "replicas")
    return 1 if replicas is None else int(replicas)


def _deployment(obj: Object, _: Surroundings) -> Progress:
    if not _observed(obj):
        return _NOT_OBSERVED
    progressing = condition(obj, "Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Progress(failed=True, message=_said("Progressing", progressing))
    wanted, updated = _wanted(obj), _number(obj, "status", "updatedReplicas")
    total, available = (
        _number(obj, "status", "replicas"),
        _number(obj, "status", "availableReplicas"),
    )
    if updated < wanted:
        return Progress(message=f"{updated} of {wanted} replicas are updated")
    if total > updated:
        return Progress(message=f"{total - updated} old replicas are still there")
    if available < updated:
        return Progress(message=f"{available} of {updated} updated replicas are available")
    return READY


def _daemon_set(obj: Object, _: Surroundings) -> Progress:
    if not _observed(obj):
        return _NOT_OBSERVED
    wanted = _number(obj, "status", "desiredNumberScheduled")
    updated = _number(obj, "status", "updatedNumberScheduled")
    available = _number(obj, "status", "numberAvailable")
    on_delete = _get(obj, "spec", "updateStrategy", "type") == "OnDelete"
    if updated < wanted and not on_delete:
        return Progress(message=f"{updated} of {wanted} pods are updated")
    if available < wanted:
        return Progress(message=f"{available} of {wanted} pods are available")
    return READY


def _stateful_set(obj: Object, _: Surroundings) -> Progress:
    if not _observed(obj):
        return _NOT_OBSERVED
    wanted, ready = _wanted(obj), _number(obj, "status", "readyReplicas")
    if ready < wanted:
        return Progress(message=f"{ready} of {wanted} replicas are ready")
    if _get(obj, "spec", "updateStrategy", "type") == "OnDelete":
        return READY
    kept = _number(obj, "spec", "updateStrategy", "rollingUpdate", "partition")
    updated = _number(obj, "status", "updatedReplicas")
    same = _get(obj, "status", "currentRevision") == _get(obj, "status", "updateRevision")
    if updated < wanted - kept and not same:
        return Progress(message=f"{updated} of {wanted - kept} replicas are updated")
    return READY


def _job(obj: Object, _: Surroundings) -> Progress:
    if condition(obj, "Complete").get("status") == "True" or _get(obj, "spec", "suspend"):
        return READY
    failed = condition(obj, "Failed")
    if failed.get("status") == "True":
        return Progress(failed=True, message=_said("Failed", failed))
    done, wanted = _number(obj, "status", "succeeded"), _get(obj, "spec", "completions") or 1
    return Progress(message=f"{done} of {wanted} completions are done")


def pod_trouble(obj: Object) -> str:
    """Why a pod's containers are not running; empty if nothing is said."""
    statuses = [
        *(_get(obj, "status", "initContainerStatuses") or ()),
        *(_get(obj, "status", "containerStatuses") or ()),
    ]
    for status in statuses:
        for state in (_get(status, "state", "waiting"), _get(status, "state", "terminated")):
            reason = (state or {}).get("reason")
            if reason and reason not in ("Completed", "ContainerCreating", "PodInitializing"):
                text = f"container {status.get('name')}: {reason}"
                return f"{text}: {state['message']}" if state.get("message") else text
    scheduled = condition(obj, "PodScheduled")
    if scheduled.get("status") == "False":
        return _said("PodScheduled", scheduled)
    return ""


def pod_at(obj: Object) -> str:
    """How far a pod is that is not ready yet and has no trouble: what is being waited for now."""
    node = _get(obj, "spec", "nodeName")
    if not node:
        return "the scheduler has not placed it yet"
    first = _get(obj, "status", "initContainerStatuses") or ()
    done = sum(1 for one in first if _get(one, "state", "terminated", "exitCode") == 0)
    containers = _get(obj, "status", "containerStatuses") or ()
    at = [_container_at(one, node) for one in containers if not one.get("ready")]
    if done < len(first):
        now = next(one for one in first if _get(one, "state", "terminated", "exitCode") != 0)
        return (
            f"init container {done + 1} of {len(first)}: {_container_at(now, node, begun='runs')}"
        )
    if at:
        return "; ".join(at)
    if containers:
        # All of them are ready: what is missing is the word of somebody else (a readiness gate).
        return _said("Ready", condition(obj, "Ready"))
    return f"the kubelet of {node} has not begun with it yet"


def _container_at(status: Object, node: str, begun: str = "runs and is not ready yet") -> str:
    name, image = status.get("name"), status.get("image")
    if _get(status, "state", "running") is not None:
        return f"container {name} {begun}"
    if _get(status, "state", "terminated") is not None:
        return f"container {name} has ended"
    # Its status has one word for pulling and for creating; which of them it is, only events say.
    return f"container {name} is being created (image {image}, which is pulled if {node} lacks it)"


def _pod(obj: Object, _: Surroundings) -> Progress:
    phase = _get(obj, "status", "phase")
    if phase == "Succeeded" or condition(obj, "Ready").get("status") == "True":
        return READY
    trouble = pod_trouble(obj)
    if phase == "Failed":
        said = _get(obj, "status", "message") or trouble or "no reason given"
        return Progress(failed=True, message=f"its phase is Failed ({said})")
    return Progress(message=trouble or pod_at(obj))


def _claim(obj: Object, surroundings: Surroundings) -> Progress:
    phase = _get(obj, "status", "phase")
    if phase == "Bound":
        return READY
    if phase == "Lost":
        return Progress(failed=True, message="its phase is Lost: its volume is gone")
    storage_class = surroundings.storage_class or {}
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
        return READY  # it binds when the first pod uses it, which may be made only after it
    return Progress(message=f"its phase is {phase or 'not set'}")


def _service(obj: Object, surroundings: Surroundings) -> Progress:
    spec = _get(obj, "spec") or {}
    kind, selector = spec.get("type"), spec.get("selector")
    if kind == "ExternalName":
        return READY
    if kind == "LoadBalancer" and not _get(obj, "status", "loadBalancer", "ingress"):
        return Progress(message="no address was given to the load balancer yet")
    if not selector or spec.get("clusterIP") == "None":
        return READY
    ready = any(
        _get(endpoint, "conditions", "ready") is not False
        for item in surroundings.endpoint_slices
        for endpoint in item.get("endpoints") or ()
    )
    wanted = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return READY if ready else Progress(message=f"no ready pod matches its selector {wanted}")


_RULES: Final[Mapping[tuple[str, str], Callable[[Object, Surroundings], Progress]]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ResourceQuota"): _quota,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
}
