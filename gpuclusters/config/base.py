"""What all sections of the configuration share: their base class and the types of single values.

A model says what can be written; whether what is written makes sense together is decided by `rules`, so
that one wrong value does not hide what else is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

from gpuclusters.domain import naming, topology


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Unread(Exception):  # noqa: N818 (what happened, not what kind of error it is)
    """A value was asked for that is wrong, and that was said to be wrong."""


class Section(BaseModel):
    """A mapping in the configuration: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=_kebab,
        validate_by_alias=True,
        validate_by_name=False,
        use_attribute_docstrings=True,
        regex_engine="python-re",
    )

    def __getattr__(self, name: str) -> Any:
        """A key whose value could not be read; see `structure`."""
        if name in type(self).model_fields:
            raise Unread(name)
        return super().__getattr__(name)  # type: ignore[misc]

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """All keys by name; `Unread` where one of them could not be read."""
        for name in type(self).model_fields:
            getattr(self, name)
        return super().model_dump(**options)


@dataclass(frozen=True, slots=True)
class Checked:
    """Marks a key that rules read and no resource yet: what it says must be true, it does not make it so."""

    rows: tuple[int, ...]
    """The rules, by row of docs/configuration.md."""


def checked(*rows: int) -> Checked:
    """The mark for a key that only these rules read."""
    return Checked(rows)


def refusal(wrong: str, instead: str) -> PydanticCustomError:
    """A value that its own type refuses: what is wrong with it and what to write instead.

    Neither text holds the value: whether it may be shown is not known here.
    """
    context = {"wrong": wrong, "instead": instead}
    return PydanticCustomError("refused", "{wrong}; {instead}", context)


def _text(value: str) -> str:
    if "\n" in value or "\0" in value:
        raise refusal("is more than one line", "write one line of text")
    return value


def _dns_label(value: str) -> str:
    if not naming.is_dns_label(value):
        raise refusal(
            "is not a name that Kubernetes accepts",
            "write at most 63 lower-case letters, digits and '-', with a letter or digit at both ends",
        )
    return value


def _pci_address(value: str) -> str:
    lowered = value.lower()
    if not topology.is_pci_address(lowered):
        raise refusal(
            "is not a full PCI address",
            'write domain:bus:device.function as `lspci -D` prints it, in quotes: "0000:0f:00.0"',
        )
    return lowered


def _network(value: Any) -> Any:
    return _range(value, IPv4Network, "an IPv4 range", '"10.0.0.0/8"')


def _any_network(value: Any) -> Any:
    kind = IPv6Network if isinstance(value, str) and ":" in value else IPv4Network
    return _range(value, kind, "a range of addresses", '"10.0.0.0/8" or "2001:db8::/64"')


def _range(
    value: Any, kind: type[IPv4Network] | type[IPv6Network], what: str, example: str
) -> IPv4Network | IPv6Network:
    try:
        if isinstance(value, str):
            return kind(value)
    except ValueError as error:
        if "has host bits set" in str(error):
            network = kind(value, strict=False)
            raise refusal("is an address within a range", f'write the range, "{network}"') from None
    raise refusal(f"is not {what}", f"write address/length in quotes: {example}")


def _dns_name(value: str) -> str:
    if not naming.is_dns_name(value):
        raise refusal("is not a DNS name", "write it without scheme, port or path: example.com")
    return value


def https_url(example: str) -> AfterValidator:
    """An address that begins with https and holds a host, perhaps a port and a path, and no account."""

    def checked_url(value: str) -> str:
        instead = f"write for example {example}"
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            raise refusal("is not an address", instead) from None
        if parts.scheme != "https":
            raise refusal("is not an https address", instead)
        if "@" in parts.netloc:
            raise refusal(
                "has an account in it, which everybody who reads the settings would see",
                f"write the address alone, {example}, and have the password changed",
            )
        if parts.query or parts.fragment or not naming.is_host(parts.hostname or ""):
            raise refusal("is not the address of a host, with port and path at most", instead)
        return value

    return AfterValidator(checked_url)


Integer = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict(), Field(min_length=1, max_length=500), AfterValidator(_text)]
DnsLabel = Annotated[str, Strict(), AfterValidator(_dns_label)]
PciAddress = Annotated[str, Strict(), AfterValidator(_pci_address)]
DnsName = Annotated[str, Strict(), AfterValidator(_dns_name)]
Network = Annotated[
    IPv4Network,
    BeforeValidator(_network, json_schema_input_type=str),
]
AnyNetwork = Annotated[
    IPv4Network | IPv6Network,
    BeforeValidator(_any_network, json_schema_input_type=str),
]
Port = Annotated[Integer, Field(ge=1, le=65535)]
Seconds = Annotated[Integer, Field(ge=1, le=86_400)]
Gib = Annotated[Integer, Field(ge=1, le=1_048_576)]
Mib = Annotated[Integer, Field(ge=1, le=1_073_741_824)]
Count = Annotated[Integer, Field(ge=1, le=100_000)]
