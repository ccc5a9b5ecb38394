"""From a document to a model: what cannot be read, said for people, and what is left without it.

Pydantic checks a model as a whole, and one wrong value would keep every rule from running. So the model is
made of what is right, and a rule that asks for a value that is wrong is told `Unread`: a fault silences what
depends on it and nothing else.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from gpuclusters.config import keys
from gpuclusters.config.fault import HIDDEN, NOTHING, finding, is_secret, show
from gpuclusters.config.rules.rule import Rule
from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Path
from gpuclusters.core.section import Section, Unread

M = TypeVar("M", bound=Section)
Paths = Sequence[Path]
_UNREAD = object()
_LISTS = ("too_short", "too_long")


@dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    model: M
    """Without what is wrong."""
    flaws: tuple[Finding, ...] = ()
    unread: tuple[Path, ...] = ()
    """What is not in the model, or not as it was written."""

    def judge(self, rule: Rule) -> Iterable[Finding]:
        """What the rule finds; one about single items is asked again without those that are wrong."""
        try:
            yield from rule.check(self.model)
        except Unread:
            yield from self._beside_wrong_items(rule)

    def _beside_wrong_items(self, rule: Rule) -> Iterable[Finding]:
        kept: dict[str, list[int]] = {}
        changed: dict[str, Any] = {}
        for name in (*rule.each, rule.of) if rule.of else rule.each:
            key = type(self.model).model_fields[name].alias or name
            below = [path[1] for path in self.unread if path[0] == key and len(path) > 1]
            wrong = {at for at in below if isinstance(at, int)}
            if wrong:
                items = getattr(self.model, name)
                kept[key] = [number for number in range(len(items)) if number not in wrong]
                changed[name] = tuple(items[number] for number in kept[key])
        try:
            for flaw in rule.check(self.model.model_copy(update=changed)) if changed else ():
                match flaw.path:
                    case (str(key), int(index), *rest) if key in kept:
                        yield replace(flaw, path=(key, kept[key][index], *rest))
                    case _:
                        yield flaw
        except Unread:
            return


def read(model: type[M], document: Mapping[str, Any]) -> Reading[M]:
    try:
        return Reading(model.model_validate(document))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    located = [(_path(entry["loc"], document), entry) for entry in errors]
    # A list whose items are wrong is as long as it was written.
    above = {path[:depth] for path, _ in located for depth in range(len(path))}
    located = [one for one in located if one[1]["type"] not in _LISTS or one[0] not in above]
    unknown = {
        path: suggestion(path, model, document)
        for path, entry in located
        if entry["type"] == "extra_forbidden"
    }
    # A mistyped key leaves the right one missing: one mistake, said once.
    meant = {(*path[:-1], near) for path, near in unknown.items() if near}
    flaws = tuple(
        explain(path, entry, document, model)
        for path, entry in located
        if entry["type"] != "missing" or path not in meant
    )
    unread = (*meant, *(path for path, _ in located if path not in unknown))
    return Reading(_partial(model, _pruned(document, unknown), unread), flaws, unread)


def _partial(model: type[BaseModel], document: Mapping[str, Any], unread: Paths) -> Any:
    """The model without the values at these paths."""
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        below = [path[1:] for path in unread if path[0] == key]
        if key not in document and not below:
            values[name] = info.get_default(call_default_factory=True, validated_data={})
            continue
        found = _value(model, name, document.get(key), below)
        if found is not _UNREAD:
            values[name] = found
    return _made(model, values)


def _made(model: Any, values: Mapping[str, Any]) -> Any:
    """One that holds these values and is `Unread` for all others."""
    made = model.model_construct()
    made.__dict__.clear()
    made.__dict__.update(values)
    return made


def _value(model: type[BaseModel], name: str, value: Any, unread: Paths) -> Any:
    if not unread:
        return _adapter(model, name).validate_python(value)
    annotation = model.model_fields[name].annotation
    models = list(sections(annotation))
    if () in unread or not models or get_origin(annotation) is dict:
        return _UNREAD
    if isinstance(value, list | tuple):
        return tuple(
            _item(models, item, [path[1:] for path in unread if path[0] == number])
            for number, item in enumerate(value)
        )
    one = _variant(models, value)
    return _partial(one, value, unread) if one is not None else _UNREAD


@cache
def _adapter(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    """What reads one key alone."""
    info = model.model_fields[name]
    marks = [*info.metadata]
    kind: Any = info.annotation
    if info.discriminator is not None:
        marks.append(Field(discriminator=info.discriminator))
    return TypeAdapter(Annotated[kind, *marks] if marks else kind)


def _pruned(value: Any, unknown: Collection[Path], path: Path = ()) -> Any:
    """The document without keys that nobody knows."""
    if isinstance(value, Mapping):
        known = [key for key in value if (*path, key) not in unknown]
        return {key: _pruned(value[key], unknown, (*path, key)) for key in known}
    if isinstance(value, list | tuple):
        return [_pruned(item, unknown, (*path, at)) for at, item in enumerate(value)]
    return value


def _item(models: list[type[BaseModel]], item: Any, unread: Paths) -> Any:
    """An item of a list; where nothing of it can be read, one of which nothing can be read."""
    one = _variant(models, item)
    if one is None or () in unread:
        return _made(one or models[0], {})
    return _partial(one, item, unread)


def _variant(models: list[type[BaseModel]], value: Any) -> Any:
    """The model of a mapping: the one whose tag stands in it, or the only one."""
    if not isinstance(value, Mapping):
        return None
    for model in models:
        if discriminator(model) is None or _is_tagged(model, value):
            return model
    return None


def _path(loc: Sequence[str | int], document: Any) -> Path:
    """Where an error is in the document: without the tags of unions and pydantic's own marks."""
    path: list[str | int] = []
    current = document
    tagged: object = document  # a section as a whole has no variants, whatever keys stand in it
    for part in loc:
        if isinstance(current, Mapping):
            tags = [current.get(name) for name in DISCRIMINATORS]
            if part in tags and tagged is not current:
                tagged = current  # the first part below a variant is its tag
                continue
            if part == KEY_MARK and part not in current:
                continue
            current = current.get(part)
        elif isinstance(current, list | tuple):
            if not isinstance(part, int):
                continue
            current = current[part] if part < len(current) else None
        elif part == KEY_MARK:
            continue
        else:
            current = None
        path.append(part)
    return tuple(path)


DISCRIMINATORS = ("source", "kind", "level", "through")
"""The keys by which the variants of a section tell themselves apart; each section has one of them."""

KEY_MARK = "[key]"
"""What pydantic appends to a path when it means the key and not its value."""


def at(path: Path, document: Any) -> Any:
    """What the document holds there, None if nothing."""
    current = document
    for part in path:
        if isinstance(current, Mapping):
            current = current.get(part)
        elif isinstance(current, list | tuple) and isinstance(part, int) and part < len(current):
            current = current[part]
        else:
            return None
    return current


def explain(path: Path, error: Any, document: Any, model: type[BaseModel]) -> Finding:
    """One error of pydantic's, at its path in the document, as a finding."""
    context: Mapping[str, Any] = error.get("ctx") or {}
    kind: str = error["type"]
    value = at(path, document)
    expected = context.get("expected", "").replace("'", "").replace(" or ", ", ")
    if error["loc"][-1] == KEY_MARK and kind != "extra_forbidden":
        got = HIDDEN if is_secret(path) else f"the key {show(path[-1])}"
        case = "choice" if expected else "text"
        return finding(_UNKNOWN_KEY, path, got, case, expected=expected)
    match kind:
        case "missing":
            about = _about(path, model, document)
            return finding(_MISSING, path, NOTHING, "key", key=path[-1], about=about)
        case "extra_forbidden":
            return _unknown_key(path, model, document)
        case "union_tag_not_found" | "union_tag_invalid":
            known = [str(tag) for one in _models_at(path, model, document) for tag in tags(one)]
            where, choices = (*path, context["discriminator"].strip("'")), " or ".join(known)
            if kind == "union_tag_not_found":
                return finding(_MISSING, where, NOTHING, "variant", choices=choices)
            got = show(at(where, document), where)
            return finding("config.not-a-choice", where, got, "variant", choices=choices)
        case "refused":
            problem = f"{context['wrong']} (got {show(value, path)})"
            return Finding("config.refused-value", problem, context["instead"], path)
    case, written = kind, ""
    code = next((code for code in _KINDS if kind in codes.of(code).cases), "")
    if kind in _MAPPINGS and isinstance(value, str) and not is_secret(path, value):
        written = _as_mapping(path, value, model, document)
        case = "text-for-mapping" if written else kind
    if kind == "int_type" and isinstance(value, str) and value.isdecimal():
        case = "number-in-quotes"
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        case = "number-for-text"
    said = {**context, "expected": expected, "written": written}
    return finding(code or _KINDS[0], path, show(value, path), case if code else "other", **said)


_UNKNOWN_KEY, _MISSING = "config.unknown-key", "config.missing-key"
_KINDS = ("config.wrong-type", "config.not-a-choice", "config.out-of-range", "config.wrong-length")
"""Codes whose cases are kinds of pydantic's errors."""
_MAPPINGS = ("model_type", "model_attributes_type", "dict_type", "mapping_type")


def _as_mapping(path: Path, value: str, model: type[BaseModel], document: Any) -> str:
    """How a text that stands for a whole mapping is written: `{kind: cilium}`, `{name: hgx-01, …}`."""
    depth = max(at for at, part in enumerate(path) if isinstance(part, str))
    candidates = _below(path[depth], _models_at(path[:depth], model, document))
    for one in candidates:
        if value in tags(one):
            return f"{{{discriminator(one)}: {value}}}"
    if len(candidates) != 1 or discriminator(candidates[0]):
        return ""
    needed = [info.alias for info in candidates[0].model_fields.values() if info.is_required()]
    rest = ", …" if len(needed) > 1 else ""
    return f"{{{needed[0]}: {show(value).strip(chr(34))}{rest}}}" if needed else ""


def _unknown_key(path: Path, model: type[BaseModel], document: Any) -> Finding:
    key = str(path[-1])
    near = suggestion(path, model, document)
    elsewhere = _variants_with(key, path[:-1], model, document)
    said = {
        "elsewhere": " or ".join(elsewhere),
        "near": near,
        "known": sorted(_keys(path[:-1], model, document)),
    }
    case = "elsewhere" if elsewhere else "near" if near else "known"
    # The value is left out: under a mistyped key nobody knows whether it is a secret.
    found = finding(_UNKNOWN_KEY, path, f"the key {show(key)}", case, **said)
    if is_secret((), at(path, document)):
        instead = f"replace that secret, which everybody can read here; {found.remedy}"
        return replace(found, remedy=instead)
    return found


def suggestion(path: Path, model: type[BaseModel], document: Any) -> str | None:
    """The key that an unknown one was probably meant to be."""
    written = str(path[-1]).replace("_", "-").lower()
    known = _keys(path[:-1], model, document)
    near = difflib.get_close_matches(written[:100], known, n=1, cutoff=0.7)
    return near[0] if near else None


def _models_at(path: Path, model: type[BaseModel], document: Any) -> list[type[BaseModel]]:
    """The models that may describe the mapping at this path; several if it is a union."""
    found: list[type[BaseModel]] = [model]
    for depth, part in enumerate(path):
        if isinstance(part, int):
            continue
        below = _below(part, found)
        tagged = [one for one in below if _is_tagged(one, at(path[: depth + 1], document))]
        found = tagged or below
    return found


def _variants_with(key: str, path: Path, model: type[BaseModel], document: Any) -> list[str]:
    """The tags of variants that have this key, `source: rke2`, other than the one that was written."""
    if not path:
        return []
    here = _models_at(path, model, document)
    return [
        f"{discriminator(one)}: {tag}"
        for one in _below(path[-1], _models_at(path[:-1], model, document))
        if one not in here and key in [info.alias for info in one.model_fields.values()]
        for tag in tags(one)
    ]


def _below(part: str | int, candidates: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """The models of a key, all variants."""
    return [
        model
        for candidate in candidates
        for info in candidate.model_fields.values()
        if info.alias == part
        for model in sections(info.annotation)
    ]


def sections(annotation: Any) -> list[type[BaseModel]]:
    """All section models within a type such as `tuple[Node, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [
        model for argument in getattr(annotation, "__args__", ()) for model in sections(argument)
    ]


def discriminator(model: type[BaseModel]) -> str | None:
    """The key that holds the tag of a variant; None if the section has no variants."""
    for name in DISCRIMINATORS:
        info = model.model_fields.get(name)
        if info is not None and get_origin(info.annotation) is Literal:
            return name
    return None


def tags(model: type[BaseModel]) -> tuple[Any, ...]:
    name = discriminator(model)
    return get_args(model.model_fields[name].annotation) if name else ()


def _is_tagged(model: type[BaseModel], document: Any) -> bool:
    name = discriminator(model)
    return name is not None and at((name,), document) in tags(model)


def _keys(path: Path, model: type[BaseModel], document: Any) -> list[str]:
    return [
        info.alias or name
        for one in _models_at(path, model, document)
        for name, info in one.model_fields.items()
    ]


def _about(path: Path, model: type[BaseModel], document: Any) -> str:
    """What a key is for: the first sentence of its description."""
    for one in _models_at(path[:-1], model, document):
        for info in one.model_fields.values():
            if info.alias == path[-1] and (meaning := keys.meaning(one.__name__, info.alias)):
                if isinstance(info.annotation, type) and issubclass(info.annotation, Enum):
                    return f"one of {', '.join(member.value for member in info.annotation)}"
                return re.split(r"(?<=[a-z0-9)])[.:;](?:\s|$)", meaning, maxsplit=1)[0]
    return "see docs/configuration.md"
