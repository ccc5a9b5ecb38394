"""Keeps secrets out of messages.

API servers and remote commands quote what they were given. A message about a resource therefore passes
through here with the resource's own properties, whose secret texts are blotted out.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Final

from engine.stand_ins.values import Value
from engine.values import Secret

_MASK: Final = "[secret]"
_SHORTEST: Final = 4  # blotting out every "1" or "no" would destroy the message and protect nothing


def redact(message: str, *properties: Mapping[str, Value]) -> str:
    """`message` without any text that is secret in `properties`, nor its base64 form."""
    texts = {text for group in properties for text in _secret_texts(dict(group), inside=False)}
    for text in sorted(texts, key=len, reverse=True):
        message = message.replace(text, _MASK)
    return message


def _secret_texts(value: Value, *, inside: bool) -> Iterator[str]:
    if isinstance(value, Secret):
        yield from _secret_texts(value.value, inside=True)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secret_texts(item, inside=inside)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_texts(item, inside=inside)
    elif inside and isinstance(value, str):
        yield from _forms(value)


def _forms(text: str) -> Iterator[str]:
    for part in {text, text.strip(), *text.splitlines()}:
        if len(part) >= _SHORTEST:
            yield part
            yield base64.b64encode(part.encode()).decode()
