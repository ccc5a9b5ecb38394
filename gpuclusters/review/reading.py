"""Reads what `preview --json` printed: one document, or the engine's events line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gpuclusters.review.plan import ACTIONS, STACK_TYPE, Action, Plan, PlanError, Resource, Step
from gpuclusters.review.secrets import masked, masked_text

_AGAIN = "make it anew with `pulumi preview --json --show-sames`"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  (Pulumi's public mark of a secret)
_FOREIGN = {
    "deployment": "a state (`pulumi stack export`), not a preview",
    "resource_changes": "a Terraform plan, not a Pulumi preview",
    "resourcePlans": "an update plan (`--save-plan`), not the JSON of a preview",
    "operations": "an update plan (`--save-plan`), not the JSON of a preview",
}
_MOST_ERRORS = 3


def read(text: str, source: str) -> Plan:
    """The plan in a text.

    Raises:
        PlanError: it is empty, cut off, of something else, or of a preview that failed.
    """
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
        return _from_events(body, source)
    if rest.startswith("{"):
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
    steps = _list(document.get("steps"), f"steps of {source}")
    if not steps:
        raise PlanError(f"{source} lists no steps, not even the stack's; {_AGAIN}")
    made = [_step(entry, source, entry.get("oldState"), entry.get("newState")) for entry in steps]
    return _plan(
        [step for step in made if step is not None],
        config=document.get("config"),
        summary=document.get("changeSummary"),
        diagnostics=diagnostics,
        source=source,
    )


def _from_events(body: str, source: str) -> Plan:
    steps: dict[str, Step] = {}
    diagnostics: list[Any] = []
    config: Any = None
    summary: Any = None
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
        if "policyEvent" in event:
            continue
        metadata = _mapping(_mapping(event.get("resourcePreEvent")).get("metadata"))
        if metadata:
            step = _step(metadata, source, metadata.get("old"), metadata.get("new"))
            if step is not None:
                steps[step.urn] = step
        summary = _mapping(event.get("summaryEvent")) or summary
    _refuse_failure(diagnostics, source)
    if summary is None:
        what = "has no summary at its end; was the preview interrupted?"
        raise PlanError(f"{source} {what} {_AGAIN}")
    if summary.get("result") == "failed":
        raise PlanError(f"{source} is of a preview that failed; put that right first")
    if summary.get("isPreview") is False:
        raise PlanError(f"{source} tells of an `up` that was made, not of a preview; {_AGAIN}")
    return _plan(
        list(steps.values()),
        config=config,
        summary=summary.get("resourceChanges"),
        diagnostics=diagnostics,
        source=source,
    )


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


def _step(entry: Mapping[str, Any], source: str, old: Any, new: Any) -> Step | None:
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
    )


def _plain(value: Any) -> Any:
    """Without Pulumi's own forms: a secret is `[secret]` whatever it was sealed in, assets are named."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if value.get(_SIGNATURE) == _SECRET:
        return "[secret]"
    if _SIGNATURE in value:
        return {key: _plain(item) for key, item in value.items() if key != _SIGNATURE}
    return {str(key): _plain(item) for key, item in value.items()}


def _plan(
    steps: list[Step], *, config: Any, summary: Any, diagnostics: Iterable[Any], source: str
) -> Plan:
    if not steps:
        raise PlanError(f"{source} lists no steps, not even the stack's; {_AGAIN}")
    root = next((step.urn for step in steps if step.type == STACK_TYPE), steps[0].urn)
    stack, project = root.split(":", 2)[2].split("::")[:2]
    warnings = (d for d in diagnostics if d.get("severity") == "warning")
    said = (str(w.get("message", "")).strip().removeprefix("warning: ") for w in warnings)
    return Plan(
        stack=stack,
        project=project,
        config={str(k): v for k, v in _mapping(config).items() if isinstance(v, str)},
        steps=tuple(sorted(steps, key=lambda step: step.urn)),
        summary={k: int(v) for k, v in _mapping(summary).items() if isinstance(v, int | float)},
        warnings=tuple(dict.fromkeys(map(masked_text, said))),
    )


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
