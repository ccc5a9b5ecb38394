"""What is told about faults of the configuration: kinds of faults, and rules."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.config.fault_kind import FaultKind
from gpuclusters.config.rules.rule import Rule, Severity
from gpuclusters.config.stack import SECTIONS
from gpuclusters.errors import source
from gpuclusters.errors.entry import MESSAGE_SAYS, Category, Entry


def kinds() -> Iterator[Entry]:
    """What can be wrong with a stack file whatever its cluster type."""
    for kind in FaultKind:
        about = kind.value
        yield Entry(about.id, Category.CONFIGURATION, (about.cause,), (about.fix,))


def rules() -> Iterator[Entry]:
    """Rules of all cluster types; those of one name are one entry."""
    found: dict[str, list[tuple[str, Rule]]] = {}
    for kind, section in SECTIONS.items():
        for rule in section.rules:
            found.setdefault(rule.id, []).append((kind.value, rule))
    for id_, places in found.items():
        said = [_said(rule) for _, rule in places]
        yield Entry(
            id_,
            Category.CONFIGURATION,
            _once(_meaning(rule) for _, rule in places),
            _once(fix for _, fixes in said for fix in fixes) or (MESSAGE_SAYS,),
            _once(message for messages, _ in said for message in messages),
            ", ".join(f"{kind}, row {rule.row}" for kind, rule in places),
            warning=all(rule.severity is Severity.WARNING for _, rule in places),
        )


def _meaning(rule: Rule) -> str:
    paragraphs = (rule.check.__doc__ or "").split("\n\n")
    return " ".join(" ".join(one.split()) for one in paragraphs if one.strip())


def _said(rule: Rule) -> tuple[list[str], list[str]]:
    """What the rule calls wrong, and what it says to write instead."""
    home = source.module(rule.check.__module__)
    function = home.functions.get(rule.name) if home else None
    if home is None or function is None:
        return [], []
    flaws = [
        (call, one)
        for _, one in source.reached(home, function)
        for call in source.calls(one, "Flaw")
    ]
    return (
        [said for call, one in flaws if (said := source.argument(call, 1, "wrong", one))],
        [said for call, one in flaws if (said := source.argument(call, 3, "instead", one))],
    )


def _once(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
