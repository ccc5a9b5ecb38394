"""Base of all sections of the configuration, and types of single values; what goes together is for rules."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

from gpuclusters.compat.versions import parse_release
from gpuclusters.core import codes, naming


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
        regex_engine="python-re",
        defer_build=True,  # a run reads one type of cluster, and imports the sections of all
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


def refusal(case: str, **values: object) -> PydanticCustomError:
    """A value that its own type refuses, in the words of a case of `config.refused-value`.

    They do not hold the value itself: whether it may be shown is not known here.
    """
    wrong, instead = codes.said("config.refused-value", case, values)
    context = {"wrong": wrong, "instead": instead}
    return PydanticCustomError("refused", "{wrong}; {instead}", context)


def holds(test: Callable[[Any], object], case: str, **values: object) -> AfterValidator:
    """A mark for a type: what fails the test, or raises ValueError in it, is refused."""

    def checked(value: Any) -> Any:
        with suppress(ValueError):
            if test(value):
                return value
        raise refusal(case, **values)

    return AfterValidator(checked)


def matches(pattern: str, case: str) -> AfterValidator:
    """A mark for a type of text: what is not wholly as the pattern says is refused."""
    return holds(lambda value: re.fullmatch(pattern, value), case)


def _address(value: Any) -> Any:
    if isinstance(value, IPv4Address):
        return value
    try:
        return IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        raise refusal("address") from None


def _any_network(value: Any) -> Any:
    kind = IPv6Network if isinstance(value, str) and ":" in value else IPv4Network
    return _range(kind, "any-range", value)


def _range(
    kind: type[IPv4Network] | type[IPv6Network], case: str, value: Any
) -> IPv4Network | IPv6Network:
    try:
        if isinstance(value, str):
            return kind(value)
    except ValueError as error:
        if "has host bits set" in str(error):
            raise refusal("within-range", network=kind(value, strict=False)) from None
    raise refusal(case)


def https_url(example: str) -> AfterValidator:
    """An address that begins with https and holds a host, perhaps a port and a path, and no account."""

    def checked_url(value: str) -> str:
        try:
            parts = urlsplit(value)
            _ = parts.port
        except ValueError:
            raise refusal("url", example=example) from None
        if parts.scheme != "https":
            raise refusal("url-scheme", example=example)
        if "@" in parts.netloc:
            raise refusal("url-account", example=example)
        if parts.query or parts.fragment or not naming.is_host(parts.hostname or ""):
            raise refusal("url-host", example=example)
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

Text = Annotated[str, Strict(), Field(min_length=1, max_length=500), matches("[^\n\0]*", "text")]
DnsLabel = Annotated[str, Strict(), holds(naming.is_dns_label, "dns-label")]
DnsName = Annotated[str, Strict(), holds(naming.is_dns_name, "dns-name")]
ObjectName = Annotated[Text, matches("[a-z0-9]([-a-z0-9.]*[a-z0-9])?", "object-name")]
Version = Annotated[Text, holds(parse_release, "version")]
Sha256 = Annotated[Text, matches("[0-9a-f]{64}", "sha256")]
PinnedImage = Annotated[
    Text, matches("[a-z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}", "pinned-image")
]
PemCertificate = Annotated[
    str,
    Strict(),
    Field(min_length=1, max_length=20_000),
    holds(lambda value: "-----BEGIN CERTIFICATE-----" in value, "pem-certificate"),
]
PciAddress = Annotated[
    str, Strict(), AfterValidator(str.lower), holds(naming.is_pci_address, "pci-address")
]
Address = Annotated[IPv4Address, BeforeValidator(_address)]
Network = Annotated[IPv4Network, BeforeValidator(partial(_range, IPv4Network, "range"))]
AnyNetwork = Annotated[IPv4Network | IPv6Network, BeforeValidator(_any_network)]
