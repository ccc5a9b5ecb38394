"""Severities and parameters of the rules, from a file in the form of Pulumi's `--policy-pack-config`.

`gpu-clusters review --policy` and the policy pack read the same file, and refuse the same faults.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from gpuclusters.policy.rule import Parameters, Rule, Severity

ALL = "all"
LEVEL = "enforcementLevel"
_LEVELS = ", ".join(severity.word for severity in reversed(Severity))


class SettingsError(Exception):
    """Settings that cannot be used. The message has all faults, a line each."""


def configured(rules: Iterable[Rule], document: object, source: str) -> tuple[Rule, ...]:
    """The rules with the severities and parameters that a document sets.

    Args:
        rules: all that there are, in their order.
        document: by rule, a level or an object of `enforcementLevel` and parameters; `all` is for every rule
            that is not named.
        source: where the document is from, for messages.

    Raises:
        SettingsError: an unknown rule, level or parameter, or a parameter of a wrong kind.
    """
    by_id = {rule.id: rule for rule in rules}
    if not isinstance(document, Mapping):
        raise SettingsError(f"{source} is not an object; write {{}} to set nothing")
    faults = [
        f"{source}: there is no rule {name!r}{nearest(name, [ALL, *by_id])}"
        for name in document
        if name != ALL and name not in by_id
    ]
    if ALL in document:
        stated, level = _level(document[ALL])
        if level is None or stated:
            faults.append(f"{source}: {ALL}: write one of {_LEVELS}, and nothing else")
        else:
            by_id = {id_: replace(rule, severity=level) for id_, rule in by_id.items()}
    for id_ in [name for name in document if name in by_id]:
        stated, level = _level(document[id_])
        if level is None and (LEVEL in stated or not isinstance(document[id_], Mapping)):
            wrong = stated.pop(LEVEL, document[id_])
            faults.append(f"{source}: {id_}: {wrong!r} is no level; write one of {_LEVELS}")
        rule = by_id[id_]
        made, wrongs = _parameters(rule.parameters, stated)
        faults += [f"{source}: {id_}{wrong}" for wrong in wrongs]
        by_id[id_] = replace(
            rule, severity=rule.severity if level is None else level, parameters=made
        )
    if faults:
        raise SettingsError("\n".join(faults))
    return tuple(by_id.values())


def nearest(written: str, known: Iterable[str]) -> str:
    """What was probably meant, or all there is."""
    names = list(known)
    near = difflib.get_close_matches(str(written)[:100], names, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(names))}"


def severity_of(word: object) -> Severity | None:
    """The severity of that word; None if there is none."""
    return next((s for s in Severity if s.word == word), None)


def _level(stated: object) -> tuple[dict[str, Any], Severity | None]:
    """The parameters of an entry, and its level if there is a right one, which is then taken out."""
    if not isinstance(stated, Mapping):
        return {}, severity_of(stated)
    rest = dict(stated)
    level = severity_of(rest.get(LEVEL))
    if level is not None:
        del rest[LEVEL]
    return rest, level


def _parameters(of: Parameters, stated: Mapping[str, Any]) -> tuple[Parameters, list[str]]:
    given = of.model_dump(by_alias=True) | dict(stated)
    try:
        return type(of).model_validate(given), []
    except ValidationError as error:
        return of, list(_faults(error, type(of)))


def _faults(error: ValidationError, model: type[Parameters]) -> Iterator[str]:
    known = [str(field.alias) for field in model.model_fields.values()]
    for fault in error.errors(include_url=False):
        path = ".".join(map(str, fault["loc"]))
        if fault["type"] != "extra_forbidden":
            yield f".{path}: {fault['msg'].removeprefix('Value error, ')} (got {fault['input']!r})"
        elif known:
            yield f": {path} is no parameter of this rule{nearest(path, known)}"
        else:
            yield f": {path} is no parameter of this rule; it has none"
