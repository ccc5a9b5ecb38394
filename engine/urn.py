"""URNs: `urn:pulumi:STACK::PROJECT::PARENT_TYPE$TYPE::NAME`."""

from engine.state import PROVIDER_TYPE_PREFIX, STACK_TYPE

_PREFIX = "urn:pulumi:"


def make(stack: str, project: str, parent: str, type_: str, name: str) -> str:
    """The URN of a resource below `parent` (a URN, empty for none)."""
    above = qualified_type(parent) if parent else ""
    if above and above != STACK_TYPE:
        type_ = f"{above}${type_}"
    return f"{_PREFIX}{stack}::{project}::{type_}::{name}"


def qualified_type(urn: str) -> str:
    """The type with the types of all parents before it, joined by `$`."""
    return urn.split("::", 3)[2]


def type_of(urn: str) -> str:
    return qualified_type(urn).rsplit("$", 1)[-1]


def name_of(urn: str) -> str:
    """The name that the program gave; it may hold `::`."""
    return urn.split("::", 3)[3]


def is_stack(urn: str) -> bool:
    return qualified_type(urn) == STACK_TYPE


def is_provider(urn: str) -> bool:
    return type_of(urn).startswith(PROVIDER_TYPE_PREFIX)


def is_default_provider(urn: str) -> bool:
    """Whether this is a provider that the engine made by itself."""
    name = name_of(urn)
    return is_provider(urn) and (name == "default" or name.startswith("default_"))


def split_reference(reference: str) -> tuple[str, str]:
    """URN and id of a provider reference `URN::ID`."""
    urn, _, id_ = reference.rpartition("::")
    return urn, id_
