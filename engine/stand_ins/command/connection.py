"""How to reach a host, as a program states it: fields, defaults, and what is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import asyncssh

from engine.answers import Failure
from engine.stand_ins.values import Value, plain_properties
from engine.values import Secret, Unknown, contains_unknown

# Defaults of pulumi-command 1.2.1 (its SDK fills in the same).
_DEFAULTS: Final[Mapping[str, Any]] = {
    "user": "root",
    "port": 22,
    "dialErrorLimit": 10,
    "perDialTimeout": 15,
}
_TEXTS: Final = ("host", "user", "privateKey", "hostKey")
_REFUSED: Final = {
    "agentSocketPath": "set SSH_AUTH_SOCK",
    "password": "log in with a key",
    "privateKeyPassword": "give a key without one, or an SSH agent",
    "proxy": "name a host that is reached directly",
}
_HIDDEN: Final = "privateKey"
_NUMBERS: Final = ("port", "dialErrorLimit", "perDialTimeout")


@dataclass(frozen=True)
class Connection:
    """One host and who to be there.

    Attributes:
        dial_error_limit: failed attempts that are tolerated; −1 for any number.
        dial_seconds: time for one attempt; 0 for any time.
    """

    host: str
    host_key: str
    user: str = "root"
    port: int = 22
    private_key: str | None = None
    dial_error_limit: int = 10
    dial_seconds: float = 15.0

    @property
    def address(self) -> str:
        """How messages call it: `user@host:port`."""
        return f"{self.user}@{self.host}:{self.port}"


def completed(connection: Value) -> Value:
    """A connection with defaults, secret as a whole as the real provider has it."""
    inner: Value = connection.value if isinstance(connection, Secret) else connection
    if isinstance(inner, Unknown):
        return Secret(inner)
    fields = {**_DEFAULTS, **inner}
    # The key is secret once more inside of it: a connection that is not so is another one.
    return Secret(with_secrets(plain_properties(fields)))


def with_secrets(fields: Mapping[str, Value]) -> dict[str, Value]:
    """A connection of which only the key is secret."""
    fields = plain_properties(fields)
    return {
        key: Secret(value) if key == _HIDDEN and value else value for key, value in fields.items()
    }


def refusals(connection: Value) -> list[Failure]:
    """What is wrong with a connection, field by field; unknowns are taken to be right."""
    inner = connection.value if isinstance(connection, Secret) else connection
    if isinstance(inner, Unknown):
        return []
    if not isinstance(inner, Mapping):
        return [Failure("connection", "connection is missing: host, hostKey and a key or password")]
    failures = [*_missing(inner)]
    for key, value in plain_properties(inner).items():
        if key in _REFUSED:
            if value is not None:
                said = f"{key} is not supported by the command stand-in: {_REFUSED[key]}"
                failures.append(Failure(f"connection.{key}", said))
        elif key not in (*_TEXTS, *_NUMBERS):
            known = ", ".join((*_TEXTS, *_NUMBERS))
            failures.append(
                Failure(
                    f"connection.{key}", f"{key} is not a connection's field; there are: {known}"
                )
            )
        elif value is not None and not contains_unknown(value):
            failures += _wrong(key, value)
    return failures


def _missing(fields: Mapping[str, Value]) -> list[Failure]:
    failures = []
    if not fields.get("host"):
        failures.append(
            Failure("connection.host", "host is missing: the name or address to connect to")
        )
    if not fields.get("hostKey"):
        failures.append(
            Failure(
                "connection.hostKey",
                "hostKey is missing. The real provider would connect without checking who answers; the "
                "stand-in does not: set it to the host's public key (`ssh-keyscan -t ed25519 HOST`, compared "
                "with what the host itself says)",
            )
        )
    return failures


def _wrong(key: str, value: Any) -> list[Failure]:
    if key in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        return [Failure(f"connection.{key}", f"{key} must be a number (got {value!r})")]
    if key in _TEXTS and not isinstance(value, str):
        return [Failure(f"connection.{key}", f"{key} must be a text")]
    if key == "hostKey":
        try:
            asyncssh.import_public_key(value)
        except asyncssh.KeyImportError as error:
            reason = f"hostKey is not a public key ({error}); write it as in known_hosts: ssh-ed25519 AAAA…"
            return [Failure("connection.hostKey", reason)]
    return []


def parse(connection: Value) -> Connection:
    """A connection out of checked properties."""
    fields = plain_properties({"connection": connection})["connection"]
    return Connection(
        host=str(fields["host"]),
        host_key=str(fields["hostKey"]),
        user=str(fields.get("user") or "root"),
        port=int(fields.get("port") or 22),
        private_key=fields.get("privateKey"),
        dial_error_limit=int(fields.get("dialErrorLimit", 10)),
        dial_seconds=float(fields.get("perDialTimeout", 15)),
    )
