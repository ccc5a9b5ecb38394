"""What pydantic found, said for people: what is wrong, what was written, what to write instead."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from gpuclusters.config.fault import HIDDEN, NOTHING, finding, is_secret, show
from gpuclusters.core.finding import Finding, Path

DISCRIMINATORS = ("source", "kind", "level", "through")
"""The keys by which the variants of a section tell themselves apart; each section has one of them."""

KEY_MARK = "[key]"
"""What pydantic appends to a path when it means the key and not its value."""

Explanation = Callable[[Mapping[str, Any]], tuple[str, str]]
"""From the context of an error to what is wrong and what to write instead."""


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
    """One error of pydantic's, at its path in the document, as a flaw."""
    flaw = _explained(path, error, document, model)
    code = _UNKNOWN_KEY if error["loc"][-1] == KEY_MARK else _CODES.get(error["type"], _ANY_CODE)
    return replace(flaw, code=code)


def _explained(path: Path, error: Any, document: Any, model: type[BaseModel]) -> Finding:
    context: Mapping[str, Any] = error.get("ctx") or {}
    kind: str = error["type"]
    value = at(path, document)
    if error["loc"][-1] == KEY_MARK and kind != "extra_forbidden":
        expected = context.get("expected", "")
        return finding(
            path,
            "is not a known key",
            HIDDEN if is_secret(path) else f"the key {show(path[-1])}",
            f"write one of {_listed(expected)}" if expected else "write a line of text as the key",
        )
    match kind:
        case "missing":
            return finding(
                path, "is missing", NOTHING, f"write {path[-1]}: {_about(path, model, document)}"
            )
        case "extra_forbidden":
            return _unknown_key(path, model, document)
        case "union_tag_not_found":
            where = (*path, _discriminator(context))
            tags = _tags(path, model, document)
            return finding(where, "is missing", NOTHING, f"write {' or '.join(tags)}")
        case "union_tag_invalid":
            where = (*path, _discriminator(context))
            tag = show(at(where, document), where)
            tags = context["expected_tags"].replace("'", "").replace(", ", " or ")
            return finding(where, "is not one that this version has", tag, f"write {tags}")
        case "refused":
            return finding(path, context["wrong"], show(value, path), context["instead"])
    wrong, instead = _EXPLAINED.get(kind, _UNEXPLAINED)(context)
    if kind in {"int_type", "float_type"} and isinstance(value, str) and value.isdecimal():
        instead = "write it without quotes"
    if kind == "string_type" and isinstance(value, int | float) and not isinstance(value, bool):
        instead = "put it in quotes"
    return finding(path, wrong, show(value, path), instead)


def _listed(expected: str) -> str:
    return expected.replace("'", "").replace(" or ", ", ")


def _choices(context: Mapping[str, Any]) -> tuple[str, str]:
    return "is not one of the choices", f"write one of {_listed(context['expected'])}"


def _least(context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too small", f"write {context['ge']} or more"


def _most(context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too large", f"write {context['le']} or less"


def _too_short(context: Mapping[str, Any]) -> tuple[str, str]:
    return "has too few entries", f"write at least {context['min_length']}"


def _text_short(context: Mapping[str, Any]) -> tuple[str, str]:
    return "is empty", f"write at least {context['min_length']} character"


def _text_long(context: Mapping[str, Any]) -> tuple[str, str]:
    return "is too long", f"write at most {context['max_length']} characters"


def _says(wrong: str, instead: str) -> Explanation:
    def explained(context: Mapping[str, Any]) -> tuple[str, str]:  # noqa: ARG001
        return wrong, instead

    return explained


_UNEXPLAINED = _says(
    "is not a value of the right kind", "see docs/configuration.md for what this key takes"
)
_UNKNOWN_KEY = "config.unknown-key"
_ANY_CODE = "config.wrong-type"
_CODES: Mapping[str, str] = {
    "missing": "config.missing-key",
    "extra_forbidden": "config.unknown-key",
    "union_tag_not_found": "config.missing-key",
    "union_tag_invalid": "config.not-a-choice",
    "refused": "config.refused-value",
    "enum": "config.not-a-choice",
    "literal_error": "config.not-a-choice",
    "greater_than_equal": "config.out-of-range",
    "less_than_equal": "config.out-of-range",
    "too_short": "config.wrong-length",
    "string_too_short": "config.wrong-length",
    "string_too_long": "config.wrong-length",
}
"""By pydantic's own kind; what is not here is of another type."""
_MAPPING = _says("is not a mapping", "write keys and values beneath it")
_NUMBER = _says("is not a whole number", "write a whole number")
_LIST = _says("is not a list", "write a list, one entry per line after '- '")
_FLAG = _says("is neither true nor false", "write true or false, without quotes")
_EXPLAINED: Mapping[str, Explanation] = {
    "int_type": _NUMBER,
    "int_parsing_size": _NUMBER,
    "bool_type": _FLAG,
    "string_type": _says("is not text", "write text"),
    "string_unicode": _says("is not valid text", "write text in UTF-8"),
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "enum": _choices,
    "literal_error": _choices,
    "greater_than_equal": _least,
    "less_than_equal": _most,
    "too_short": _too_short,
    "string_too_short": _text_short,
    "string_too_long": _text_long,
}


def _unknown_key(path: Path, model: type[BaseModel], document: Any) -> Finding:
    key = str(path[-1])
    known = _keys(path[:-1], model, document)
    near = suggestion(path, model, document)
    elsewhere = _variants_with(key, path[:-1], model, document)
    if elsewhere:
        instead = f"remove it, or write {' or '.join(elsewhere)}"
    elif near:
        instead = f"did you mean {near}?"
    else:
        instead = f"remove it; the keys here are {', '.join(sorted(known))}"
    # The value is left out: under a mistyped key nobody knows whether it is a secret.
    return finding(path, "is not a known key", f"the key {show(key)}", instead)


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
        for tag in _literals(one)
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


def _discriminator(context: Mapping[str, Any]) -> str:
    """The key that pydantic missed a tag under."""
    return str(context["discriminator"]).strip("'")


def _literals(model: type[BaseModel]) -> tuple[Any, ...]:
    name = discriminator(model)
    return get_args(model.model_fields[name].annotation) if name else ()


def _is_tagged(model: type[BaseModel], document: Any) -> bool:
    name = discriminator(model)
    return name is not None and at((name,), document) in _literals(model)


def _tags(path: Path, model: type[BaseModel], document: Any) -> list[str]:
    return [str(tag) for one in _models_at(path, model, document) for tag in _literals(one)]


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
            if info.alias == path[-1] and info.description:
                if isinstance(info.annotation, type) and issubclass(info.annotation, Enum):
                    return f"one of {', '.join(member.value for member in info.annotation)}"
                first = re.split(r"(?<=[a-z0-9)])[.:;](?:\s|$)", info.description, maxsplit=1)[0]
                return " ".join(first.split())
    return "see docs/configuration.md"
