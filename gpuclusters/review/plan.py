"""A preview: which resources there are and what becomes of each, read from what `preview --json` printed."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from gpuclusters.review.text import masked, masked_text

STACK_TYPE = "pulumi:pulumi:Stack"
PROVIDER_PREFIX = "pulumi:providers:"
HELM_RELEASE = "kubernetes:helm.sh/v3:Release"
OURS, KEPT = "gpu-clusters:", "gpu-clusters:gpu:"
"""Prefixes of what this program declares, and of what its own provider keeps; the rest are components."""


def is_component(type_: str) -> bool:
    """Whether a type is one of our groupings and no thing of its own."""
    return type_.startswith(OURS) and not type_.startswith(KEPT)


class PlanError(Exception):
    """A document that cannot be reviewed. The message says why, and what to do."""

    error_id = "review.plan"


class Action(StrEnum):
    """What becomes of a resource, as a reviewer thinks of it."""

    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    ADOPT = "adopt"
    """Taken over from what is there, or taken out of the state: nothing is made or removed."""
    READ = "read"
    SAME = "same"


ACTIONS: Mapping[str, Action | None] = {
    "same": Action.SAME,
    "create": Action.CREATE,
    "update": Action.UPDATE,
    "delete": Action.DELETE,
    "replace": Action.REPLACE,
    "read": Action.READ,
    "refresh": Action.READ,
    "import": Action.ADOPT,
    "import-replacement": Action.REPLACE,
    "read-replacement": Action.READ,
    "read-discard": Action.READ,
    "discard": Action.READ,
    "discard-replaced": None,
    # The parts of a replacement; the step `replace` stands for them.
    "create-replacement": None,
    "delete-replaced": None,
    "remove-pending-replace": None,
    "pending-replace": None,
}
"""By the engine's kind of step; None for what another step says already."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One side of a step: the resource as it is, or as it will be; secrets masked."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any] = field(default_factory=dict)
    protect: bool = False
    urn: str = ""
    parent: str = ""
    provider: str = ""
    """Reference of its provider: URN and id."""

    @property
    def kind(self) -> str:
        """The last part of the type: `FabricPartitions`, `Deployment`."""
        return self.type.rsplit(":", 1)[-1].rsplit("/", 1)[-1]

    @property
    def host(self) -> str:
        """The machine that it is on; empty where it does not say."""
        return str(self.at("connection", "host") or "")

    @property
    def release(self) -> tuple[str, str]:
        """Namespace and name of the Helm release that it is."""
        status: Mapping[str, Any] = self.outputs.get("status") or {}
        namespace = self.at("namespace") or status.get("namespace") or "default"
        return str(namespace), str(self.at("name") or status.get("name") or self.name)

    @property
    def is_spot(self) -> bool:
        """Whether it is a machine of Google's that may be taken away at any time."""
        return (
            self.at("provisioning") == "spot"
            or self.at("scheduling", "preemptible") is True
            or self.at("scheduling", "provisioningModel") == "SPOT"
        )

    def text(self, *path: str) -> str | None:
        """An input that is a text, by its path; None where there is none."""
        value = self.at(*path)
        return value if isinstance(value, str) else None

    def at(self, *path: str) -> Any:
        """An input by its path; None where there is none."""
        value: Any = self.inputs
        for key in path:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one resource."""

    action: Action
    urn: str
    old: Resource | None
    new: Resource | None
    replace_reasons: tuple[str, ...] = ()
    """Properties that cannot be changed in place."""
    detailed: Mapping[str, str] = field(default_factory=dict)
    """Kind of difference by path, where the provider told."""
    hidden: tuple[str, ...] = ()

    @property
    def resource(self) -> Resource:
        """The new side, or the old one where nothing new comes."""
        found = self.new or self.old
        if found is None:
            raise PlanError(f"the step of {self.urn} has neither an old nor a new state")
        return found

    @property
    def type(self) -> str:
        return self.resource.type

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def unprotected(self) -> bool:
        """Whether this takes the protection away from a resource that stays."""
        return bool(self.old and self.new and self.old.protect and not self.new.protect)

    @property
    def protection_changes(self) -> bool:
        """Whether this protects a resource that stays, or takes its protection away."""
        return bool(self.old and self.new and self.old.protect is not self.new.protect)

    @property
    def changes(self) -> bool:
        """Whether anything is done, or the protection changes."""
        return self.action not in (Action.SAME, Action.READ) or self.protection_changes

    @property
    def is_component(self) -> bool:
        """Whether this is one of our groupings and no thing of its own."""
        return is_component(self.type) or self.type == STACK_TYPE

    @property
    def is_provider(self) -> bool:
        """Whether this is only a connection that other resources use."""
        return self.type.startswith(PROVIDER_PREFIX)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a preview found. It is the same only as itself, so that what is found out of it can be kept."""

    stack: str
    project: str
    config: Mapping[str, str]
    steps: tuple[Step, ...]
    """In an order that does not depend on the engine's: by component, type and name."""
    summary: Mapping[str, int]
    """Number of steps by the engine's kind of step."""
    warnings: tuple[str, ...] = ()

    @cached_property
    def by_urn(self) -> Mapping[str, Step]:
        return {step.urn: step for step in self.steps}

    @property
    def unchanged(self) -> int:
        """How many resources stay as they are."""
        listed = sum(step.action is Action.SAME and not step.changes for step in self.steps)
        return max(self.summary.get("same", 0), listed)

    @property
    def complete(self) -> bool:
        """Whether unchanged resources are listed too, so that totals can be told."""
        listed = sum(step.action is Action.SAME for step in self.steps)
        return listed >= self.summary.get("same", 0)

    @property
    def changed(self) -> tuple[Step, ...]:
        """The steps that do something to a thing: without groupings, the stack, and mere connections."""
        return tuple(
            step
            for step in self.steps
            if step.changes
            and not step.is_provider
            and (not step.is_component or step.protection_changes)
        )

    def count(self, action: Action) -> int:
        """How many resources of this stack an action concerns; the stack itself is none."""
        return sum(step.action is action for step in self.changed)

    def before(self) -> Iterator[Resource]:
        """Every resource that is there now, as far as the plan tells."""
        return (step.old for step in self.steps if step.old is not None)

    def after(self) -> Iterator[Resource]:
        """Every resource that will be there, as far as the plan tells."""
        return (
            step.new
            for step in self.steps
            if step.new is not None and step.action is not Action.DELETE
        )

    @cached_property
    def cluster_types(self) -> Mapping[Action, frozenset[str]]:
        """Cluster types of the components of ours that an action concerns."""
        found: dict[Action, set[str]] = {}
        for step in self.steps:
            if is_component(step.type):
                found.setdefault(step.action, set()).add(step.type.split(":")[1])
        return {action: frozenset(types) for action, types in found.items()}

    def parents(self, resource: Resource) -> Iterator[Resource]:
        """The components around a resource, from the inside out."""
        seen: set[str] = set()
        urn = resource.parent
        while urn in self.by_urn and urn not in seen:
            seen.add(urn)
            parent = self.by_urn[urn].resource
            yield parent
            urn = parent.parent


_AGAIN = "make it anew with `pulumi preview --json --show-sames`"
SECRET_MARK = "4dabf18193072939515e22adb298388d"  # noqa: S105  (of Pulumi: says that a value is special)
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  (Pulumi's public mark of a secret)
_FOREIGN = {
    "deployment": "a state (`pulumi stack export`), not a preview",
    "resource_changes": "a Terraform plan, not a Pulumi preview",
    "resourcePlans": "an update plan (`--save-plan`), not the JSON of a preview",
    "operations": "an update plan (`--save-plan`), not the JSON of a preview",
}
_MOST_ERRORS = 3


def read(text: str, source: str) -> Plan:
    """The plan in a text; PlanError if it is of something else, not whole, or of a preview that failed."""
    body = _body(text, source)
    try:
        document, end = json.JSONDecoder().raw_decode(body)
    except RecursionError:
        raise PlanError(f"{source} is nested too deeply to be a preview; {_AGAIN}") from None
    except ValueError as error:
        said = f"{source} is not complete JSON ({error})"
        raise PlanError(f"{said}; was the preview interrupted? {_AGAIN}") from None
    rest = body[end:].lstrip()
    if not isinstance(document, dict):
        raise PlanError(f"{source} is not the JSON of a preview; {_AGAIN}")
    if "sequence" in document or any(key.endswith("Event") for key in document):
        document = _of_events(body, source)
    elif rest.startswith("{"):
        raise PlanError(f"{source} holds more than one JSON document; give one file for each stack")
    return _from_document(document, source)


def _body(text: str, source: str) -> str:
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise PlanError(f"{source} is empty; did the preview fail? {_AGAIN}")
    if text.lstrip().startswith("{"):
        return text.lstrip()
    start = text.find("\n{")
    if start < 0:
        raise PlanError(f"{source} has no JSON in it; {_AGAIN}")
    return text[start + 1 :]


def _from_document(document: Mapping[str, Any], source: str) -> Plan:
    for key, what in _FOREIGN.items():
        if key in document:
            raise PlanError(f"{source} is {what}; {_AGAIN}")
    if not {"steps", "changeSummary", "diagnostics", "duration"} & document.keys():
        raise PlanError(f"{source} is JSON, but not of a preview; {_AGAIN}")
    diagnostics = _list(document.get("diagnostics"), f"diagnostics of {source}")
    _refuse_failure(diagnostics, source)
    made = (_step(entry, source) for entry in _list(document.get("steps"), f"steps of {source}"))
    steps = sorted((step for step in made if step is not None), key=lambda step: step.urn)
    if not steps:
        raise PlanError(f"{source} lists no steps, not even the stack's; {_AGAIN}")
    root = next((step.urn for step in steps if step.type == STACK_TYPE), steps[0].urn)
    stack, project = root.split(":", 2)[2].split("::")[:2]
    warnings = (d for d in diagnostics if d.get("severity") == "warning")
    said = (str(w.get("message", "")).strip().removeprefix("warning: ") for w in warnings)
    config, summary = _mapping(document.get("config")), _mapping(document.get("changeSummary"))
    return Plan(
        stack=stack,
        project=project,
        config={str(k): v for k, v in config.items() if isinstance(v, str)},
        steps=tuple(steps),
        summary={k: int(v) for k, v in summary.items() if isinstance(v, int | float)},
        warnings=tuple(dict.fromkeys(map(masked_text, said))),
    )


def _of_events(body: str, source: str) -> dict[str, Any]:
    """What `preview --json` would have printed, from the events of a preview that did not fail."""
    entries: dict[str, Mapping[str, Any]] = {}
    diagnostics: list[Any] = []
    config: Any = None
    summary: Mapping[str, Any] = {}
    for number, line in enumerate(body.splitlines(), start=1):
        if not line.lstrip().startswith("{"):
            continue
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            where = f"line {number} of its events"
            raise PlanError(f"{source} is cut off or damaged at {where}; {_AGAIN}") from None
        config = _mapping(event.get("preludeEvent")).get("config", config)
        if "diagnosticEvent" in event:
            diagnostics.append(_mapping(event["diagnosticEvent"]))
        entry = _mapping(_mapping(event.get("resourcePreEvent")).get("metadata"))
        # Of a resource that is replaced the parts are told too.
        if entry and ACTIONS.get(str(entry.get("op")), Action.SAME) is not None:
            entries[str(entry.get("urn"))] = entry
        summary = _mapping(event.get("summaryEvent")) or summary
    _refuse_failure(diagnostics, source)
    if not summary:
        what = "has no summary at its end; was the preview interrupted?"
        raise PlanError(f"{source} {what} {_AGAIN}")
    if summary.get("result") == "failed":
        raise PlanError(f"{source} is of a preview that failed; put that right first")
    if summary.get("isPreview") is False:
        raise PlanError(f"{source} tells of an `up` that was made, not of a preview; {_AGAIN}")
    changes = {"changeSummary": summary.get("resourceChanges"), "config": config}
    return {"steps": [*entries.values()], "diagnostics": diagnostics, **changes}


def _refuse_failure(diagnostics: Iterable[Any], source: str) -> None:
    errors = [
        masked_text(str(d.get("message", "")).strip().removeprefix("error: "))
        for d in diagnostics
        if _mapping(d).get("severity") == "error"
    ]
    if errors:
        more = f"\n… and {len(errors) - _MOST_ERRORS} more" if len(errors) > _MOST_ERRORS else ""
        told = "\n".join(errors[:_MOST_ERRORS]) + more
        raise PlanError(f"{source} is of a preview that failed, nothing can be reviewed:\n{told}")


def _step(entry: Mapping[str, Any], source: str) -> Step | None:
    old = entry.get("oldState", entry.get("old"))
    new = entry.get("newState", entry.get("new"))
    op, urn = entry.get("op"), entry.get("urn")
    if not isinstance(op, str) or not isinstance(urn, str) or urn.count("::") < 3:
        raise PlanError(f"{source} has a step without operation or URN; {_AGAIN}")
    if op not in ACTIONS:
        raise PlanError(
            f"{source} has a step of a kind that is not known here ({op}, of {urn}); "
            "this gpu-clusters may be older than your Pulumi"
        )
    action = ACTIONS[op]
    if action is None:
        return None
    before = resource_of(old, urn)
    unchanged = action is Action.SAME and isinstance(new, Mapping) and _alike(old, new)
    after = before if unchanged else resource_of(new, urn)
    if before is None and after is None:
        raise PlanError(f"{source} has a step without a state, of {urn}; {_AGAIN}")
    return Step(
        action=action,
        urn=urn,
        old=before,
        new=None if action is Action.DELETE else after,
        replace_reasons=_texts(entry.get("replaceReasons") or entry.get("keys")),
        detailed={
            str(path): str(_mapping(how).get("kind") or _mapping(how).get("diffKind") or "update")
            for path, how in _mapping(entry.get("detailedDiff")).items()
        },
        hidden=_texts(_mapping(new).get("hideDiff") or _mapping(new).get("hideDiffs")),
    )


def _alike(old: Any, new: Mapping[str, Any]) -> bool:
    """Whether the two sides of a step differ in nothing that is looked at: most resources most times."""
    keys = ("inputs", "outputs", "protect", "parent")
    return isinstance(old, Mapping) and all(old.get(key) == new.get(key) for key in keys)


def resource_of(state: Any, urn: str) -> Resource | None:
    """One side of a step, secrets masked; None where there is none."""
    if not isinstance(state, Mapping):
        return None
    _, _, types, name = urn.split("::", 3)
    type_ = types.rsplit("$", 1)[-1]
    return Resource(
        type=type_,
        name=name,
        inputs=masked(_plain(_mapping(state.get("inputs"))), type_),
        outputs=masked(_plain(_mapping(state.get("outputs"))), type_),
        protect=bool(state.get("protect")),
        urn=urn,
        parent=str(state.get("parent") or ""),
        provider=str(state.get("provider") or ""),
    )


def _plain(value: Any) -> Any:
    """Without Pulumi's own forms: a secret is `[secret]` whatever it was sealed in, assets are named."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get(SECRET_MARK) == _SECRET:
        return "[secret]"
    if SECRET_MARK in value:
        return {key: _plain(item) for key, item in value.items() if key != SECRET_MARK}
    return {str(key): _plain(item) for key, item in value.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise PlanError(f"the {what} are not a list of objects; {_AGAIN}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
