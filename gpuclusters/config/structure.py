"""From a document to a model: what cannot be read, said for people, and what is left without it.

Pydantic checks a model as a whole, and one wrong value would keep every rule from running. So the model is
made of what is right, and a rule that asks for a value that is wrong is told `Unread`: a fault silences what
depends on it and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from gpuclusters.config.base import Section, Unread
from gpuclusters.config.explain import DISCRIMINATORS, KEY_MARK, explain, sections, suggestion
from gpuclusters.config.explain import discriminator as tag_of
from gpuclusters.config.rules.rule import Rule
from gpuclusters.core.finding import Finding, Path

M = TypeVar("M", bound=Section)
Paths = Sequence[Path]
_UNREAD = object()
_LISTS = ("too_short", "too_long")


@dataclass(frozen=True, slots=True)
class Reading(Generic[M]):
    """What could be read of a section."""

    model: M
    """Without what is wrong."""
    flaws: tuple[Finding, ...] = ()
    unread: tuple[Path, ...] = ()
    """What is not in the model, or not as it was written."""

    def judge(self, rule: Rule) -> Iterable[Finding]:
        """What the rule finds in what could be read.

        A rule that looks at the items of a list one by one is asked once more without those that are wrong.
        """
        try:
            yield from rule.check(self.model)
        except Unread:
            yield from self._beside_wrong_items(rule)

    def _beside_wrong_items(self, rule: Rule) -> Iterable[Finding]:
        kept: dict[str, list[int]] = {}
        changed: dict[str, Any] = {}
        for name in rule.each:
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
    """Read a section, as far as it can be read."""
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
        name = tag_of(model)
        if name is None or value.get(name) in get_args(model.model_fields[name].annotation):
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
