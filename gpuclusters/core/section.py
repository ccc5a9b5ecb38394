"""Base of all sections of the configuration, and types of single values; what goes together is for rules."""

import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

from gpuclusters.compat.versions import parse_release
from gpuclusters.core import naming


class Unread(Exception):  # noqa: N818 (what happened, not what kind of error it is)
    """A value was asked for that is wrong, and that was said to be wrong."""


class Section(BaseModel):
    """A mapping in the configuration: unknown keys are refused, values never change."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=naming.kebab,
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


def refusal(wrong: str, instead: str) -> PydanticCustomError:
    """A value that its own type refuses. Neither text holds it: whether it may be shown is not known here."""
    context = {"wrong": wrong, "instead": instead}
    return PydanticCustomError("refused", "{wrong}; {instead}", context)


def holds(test: Callable[[str], object], wrong: str, instead: str) -> AfterValidator:
    """A mark for a type of text: what fails the test, or raises ValueError in it, is refused."""

    def checked_text(value: str) -> str:
        with suppress(ValueError):
            if test(value):
                return value
        raise refusal(wrong, instead)

    return AfterValidator(checked_text)


def matches(pattern: str, wrong: str, instead: str) -> AfterValidator:
    """A mark for a type of text: what is not wholly as the pattern says is refused."""
    return holds(lambda value: re.fullmatch(pattern, value), wrong, instead)


def _pci_address(value: str) -> str:
    if not naming.is_pci_address(value.lower()):
        instead = (
            'write domain:bus:device.function as `lspci -D` prints it, in quotes: "0000:0f:00.0"'
        )
        raise refusal("is not a full PCI address", instead)
    return value.lower()


def _address(value: Any) -> Any:
    if isinstance(value, IPv4Address):
        return value
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        wrong = "is not an IPv4 address"
        raise refusal(wrong, 'write the address in quotes, for example "192.168.250.2"') from None


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
            wrong = "has an account in it, which everybody who reads the settings would see"
            instead = f"write the address alone, {example}, and have the password changed"
            raise refusal(wrong, instead)
        if parts.query or parts.fragment or not naming.is_host(parts.hostname or ""):
            raise refusal("is not the address of a host, with port and path at most", instead)
        return value

    return AfterValidator(checked_url)


Integer = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]
Port = Annotated[Integer, Field(ge=1, le=65535)]
Percent = Annotated[Integer, Field(ge=1, le=100)]
Seconds = Annotated[Integer, Field(ge=1, le=86_400)]
Gib = Annotated[Integer, Field(ge=1, le=1_048_576)]
Mib = Annotated[Integer, Field(ge=1, le=1_073_741_824)]
Count = Annotated[Integer, Field(ge=1, le=100_000)]

_TEXT = ("is more than one line", "write one line of text")
Text = Annotated[str, Strict(), Field(min_length=1, max_length=500), matches("[^\n\0]*", *_TEXT)]
_DNS_LABEL = (
    "is not a name that Kubernetes accepts",
    "write at most 63 lower-case letters, digits and '-', with a letter or digit at both ends",
)
DnsLabel = Annotated[str, Strict(), holds(naming.is_dns_label, *_DNS_LABEL)]
_DNS_NAME = ("is not a DNS name", "write it without scheme, port or path: example.com")
DnsName = Annotated[str, Strict(), holds(naming.is_dns_name, *_DNS_NAME)]
_OBJECT_NAME = (
    "is not a name that Kubernetes accepts",
    "write lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
)
ObjectName = Annotated[Text, matches("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", *_OBJECT_NAME)]
_VERSION = ("is not a version", "write all of its numbers in quotes, for example 1.34.2")
Version = Annotated[Text, holds(parse_release, *_VERSION)]
_SHA256 = (
    "is not a SHA-256 checksum",
    "write the 64 digits that `sha256sum FILE` prints first, in lower case",
)
Sha256 = Annotated[Text, matches("[0-9a-f]{64}", *_SHA256)]
_PINNED_IMAGE = (
    "is not named by its digest, and whoever may push to the registry could put another in its place",
    "write registry.example.com/name@sha256:… as `docker push` or `crane digest` prints it",
)
PinnedImage = Annotated[
    Text, matches("[a-z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}", *_PINNED_IMAGE)
]
_PEM_CERTIFICATE = ("is not a certificate in PEM", "write its text after `certificate: |`")
PemCertificate = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=20_000),
    holds(lambda value: "-----BEGIN CERTIFICATE-----" in value, *_PEM_CERTIFICATE),
]
PciAddress = Annotated[str, Strict(), AfterValidator(_pci_address)]
Address = Annotated[IPv4Address, BeforeValidator(_address, json_schema_input_type=str)]
Network = Annotated[IPv4Network, BeforeValidator(_network, json_schema_input_type=str)]
AnyNetwork = Annotated[
    IPv4Network | IPv6Network, BeforeValidator(_any_network, json_schema_input_type=str)
]
