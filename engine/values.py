"""Property values: what programs, providers and the state hand to each other.

A value is plain Python (`None`, `bool`, `int`, `float`, `str`, `list`, `dict`) or one of the
classes here. Values are never changed after they were made, so states and events share them.
Source of the signature keys: Pulumi's wire format for properties (`sdk/go/common/resource`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 (a marker, not a secret)
REFERENCE = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"

UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
UNKNOWN_SENTINELS = frozenset(
    {
        UNKNOWN_STRING,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """A value that will be known only after something has been made."""


UNKNOWN = Unknown()


@dataclasses.dataclass(frozen=True, slots=True)
class Secret:
    """A value that leaves the engine only encrypted or towards those who accept secrets.

    `ciphertext` is what the value was read from, or was last written as: a secret that did not
    change keeps its ciphertext, so an unchanged state stays byte for byte the same.
    """

    value: Value
    ciphertext: str | None = dataclasses.field(default=None, compare=False, repr=False)

    def remember(self, ciphertext: str) -> None:
        object.__setattr__(self, "ciphertext", ciphertext)

    def __repr__(self) -> str:
        return "Secret(…)"


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A resource as a value. `id` is None for components and may be unknown in a preview."""

    urn: str
    id: str | Unknown | None = None
    package_version: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Asset:
    """A file-like value (`kind` ASSET) or a collection of them (`kind` ARCHIVE).

    `fields` are the keys beside the signature: `text`, `path`, `uri` or `assets`, and `hash`.
    """

    kind: str
    fields: Mapping[str, Any]


Value: TypeAlias = (
    "bool | int | float | str | list[Value] | dict[str, Value]"
    " | Unknown | Secret | Reference | Asset | None"
)
Values: TypeAlias = dict[str, Value]

Encrypt: TypeAlias = Callable[[str], str]
Decrypt: TypeAlias = Callable[[str], str]


def contains_unknown(value: Value) -> bool:
    """Whether a value, however deep, holds something unknown."""
    return any(isinstance(v, Unknown) for v in walk(value))


def contains_secret(value: Value) -> bool:
    """Whether a value, however deep, holds a secret."""
    return any(isinstance(v, Secret) for v in walk(value))


def without_unknowns(values: Mapping[str, Value]) -> Values:
    """The values that are known; in lists, what is not known is left out as well."""
    return {k: _known(v) for k, v in values.items() if not isinstance(v, Unknown)}


def _known(value: Value) -> Value:
    if isinstance(value, list):
        return [_known(v) for v in value if not isinstance(v, Unknown)]
    if isinstance(value, dict):
        return without_unknowns(value)
    if isinstance(value, Secret) and contains_unknown(value.value):
        return Secret(None if isinstance(value.value, Unknown) else _known(value.value))
    return value


def walk(value: Value) -> Iterator[Value]:
    yield value
    if isinstance(value, list):
        for item in value:
            yield from walk(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from walk(item)
    elif isinstance(value, Secret):
        yield from walk(value.value)
    elif isinstance(value, Reference) and isinstance(value.id, Unknown):
        yield value.id


def reveal(value: Value) -> Value:
    if isinstance(value, Secret):
        return reveal(value.value)
    if isinstance(value, list):
        return [reveal(v) for v in value]
    if isinstance(value, dict):
        return {k: reveal(v) for k, v in value.items()}
    return value


def reveal_all(values: Mapping[str, Value]) -> Values:
    """`reveal` for a whole property map."""
    return {key: reveal(value) for key, value in values.items()}


# -- the form on the wire ----------------------------------------------------------------


def from_wire(value: Any) -> Value:
    """A JSON-like value of a protobuf struct as a property value.

    Raises:
        ValueError: an object carries a signature that this engine does not know.
    """
    if isinstance(value, str):
        return UNKNOWN if value in UNKNOWN_SENTINELS else value
    if isinstance(value, list):
        return [from_wire(v) for v in value]
    if isinstance(value, dict):
        if SIGNATURE in value:
            return _signed_from_wire(value)
        return {k: from_wire(v) for k, v in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return value  # type: ignore[no-any-return]


def _signed_from_wire(value: Mapping[str, Any]) -> Value:
    kind = value[SIGNATURE]
    if kind == SECRET:
        return Secret(from_wire(value.get("value")))
    if kind == REFERENCE:
        id_ = value.get("id")
        known = UNKNOWN if id_ in UNKNOWN_SENTINELS else id_
        return Reference(value["urn"], known, value.get("packageVersion") or "")
    if kind == OUTPUT:
        inner: Value = from_wire(value["value"]) if "value" in value else UNKNOWN
        return Secret(inner) if value.get("secret") else inner
    if kind in (ASSET, ARCHIVE):
        return Asset(kind, {k: v for k, v in value.items() if k != SIGNATURE})
    raise ValueError(f"a property has the unknown signature {kind!r}")


def to_wire(value: Value, *, secrets: bool = True, references: bool = True) -> Any:
    """A property value as JSON-like data for a protobuf struct.

    Without `secrets` marks are left out; without `references` a resource is sent as its id, or
    as its URN where it has none (what providers get that do not accept references).
    """
    if isinstance(value, Unknown):
        return UNKNOWN_STRING
    if isinstance(value, list):
        return [to_wire(v, secrets=secrets, references=references) for v in value]
    if isinstance(value, dict):
        return {k: to_wire(v, secrets=secrets, references=references) for k, v in value.items()}
    if isinstance(value, Secret):
        inner = to_wire(value.value, secrets=secrets, references=references)
        return {SIGNATURE: SECRET, "value": inner} if secrets else inner
    if isinstance(value, Reference):
        return _reference_to_wire(value) if references else _reference_as_text(value)
    if isinstance(value, Asset):
        return {SIGNATURE: value.kind, **value.fields}
    return value


def _reference_to_wire(reference: Reference) -> dict[str, Any]:
    wire: dict[str, Any] = {SIGNATURE: REFERENCE, "urn": reference.urn}
    if reference.id is not None:
        wire["id"] = UNKNOWN_STRING if isinstance(reference.id, Unknown) else reference.id
    if reference.package_version:
        wire["packageVersion"] = reference.package_version
    return wire


def _reference_as_text(reference: Reference) -> str:
    if isinstance(reference.id, Unknown):
        return UNKNOWN_STRING
    return reference.id if reference.id is not None else reference.urn


# -- the form in the state ---------------------------------------------------------------


SecretForm: TypeAlias = "Callable[[Secret, Any], Any]"
"""The JSON of a secret, from the secret and the JSON of its value."""


def encrypted(encrypt: Encrypt) -> SecretForm:
    """As in a checkpoint; a ciphertext that the value has already is written again."""

    def write(secret: Secret, inner: Any) -> Any:
        if secret.ciphertext is None:
            secret.remember(encrypt(_compact(inner)))
        return {SIGNATURE: SECRET, "ciphertext": secret.ciphertext}

    return write


def plaintext(_: Secret, inner: Any) -> Any:
    """As in `stack export --show-secrets`."""
    return {SIGNATURE: SECRET, "plaintext": _compact(inner)}


def blinded(_secret: Secret, _inner: Any) -> Any:
    """As in `preview --json`."""
    return "[secret]"


def blinded_ciphertext(_secret: Secret, _inner: Any) -> Any:
    """As in the events of `up --json`."""
    return {SIGNATURE: SECRET, "ciphertext": "[secret]"}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def to_state(value: Value, form: SecretForm) -> Any:
    """A property value as it stands in a checkpoint."""
    if isinstance(value, Unknown):
        return UNKNOWN_STRING
    if isinstance(value, list):
        return [to_state(v, form) for v in value]
    if isinstance(value, dict):
        return {k: to_state(value[k], form) for k in sorted(value)}
    if isinstance(value, Secret):
        return form(value, to_state(value.value, plaintext))
    if isinstance(value, Reference):
        # The state names the version even where it is empty, the wire does not.
        wire = _reference_to_wire(value)
        return {**wire, "packageVersion": value.package_version}
    if isinstance(value, Asset):
        return {SIGNATURE: value.kind, **value.fields}
    return value


def from_state(value: Any, decrypt: Decrypt) -> Value:
    """A value of a checkpoint; secrets are opened.

    Raises:
        ValueError: an object carries a signature that this engine does not know.
    """
    if isinstance(value, list):
        return [from_state(v, decrypt) for v in value]
    if isinstance(value, dict):
        if SIGNATURE not in value:
            return {k: from_state(v, decrypt) for k, v in value.items()}
        if value[SIGNATURE] == SECRET:
            return _secret_from_state(value, decrypt)
        return _signed_from_wire(value)
    return from_wire(value)


def _secret_from_state(value: Mapping[str, Any], decrypt: Decrypt) -> Secret:
    if "plaintext" in value:
        return Secret(from_state(json.loads(value["plaintext"]), decrypt))
    ciphertext = value["ciphertext"]
    # What a secret holds is encrypted once, as a whole: secrets inside of it are plain text.
    inner = from_state(json.loads(decrypt(ciphertext)), _plain)
    return Secret(inner, ciphertext)


def _plain(text: str) -> str:
    return text


def values_from_state(values: Mapping[str, Any], decrypt: Decrypt) -> Values:
    """`from_state` for a whole property map."""
    return {key: from_state(value, decrypt) for key, value in values.items()}


def values_to_state(values: Mapping[str, Value], form: SecretForm) -> dict[str, Any]:
    """`to_state` for a whole property map, keys sorted as Pulumi writes them."""
    return {key: to_state(values[key], form) for key in sorted(values)}


def any_unknown(values: Iterable[Value]) -> bool:
    """Whether one of the values holds something unknown."""
    return any(contains_unknown(v) for v in values)
