"""What must not be shown although nobody has marked it as a secret.

Pulumi masks what is marked. A review is read by more people than a terminal, so what is a secret by its
name or by its form is masked here as well, in properties, in texts within them, and in messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SECRET = "[secret]"  # noqa: S105

_NAME = re.compile(
    r"(?:^|[-_.a-z0-9])(?:password|passwd|passphrase|secret|token|private[-_]?key|api[-_]?key|access[-_]?key"
    r"|client[-_]?key(?:[-_]?data)?|kube[-_]?config|credentials?|authorization)s?$",
    re.IGNORECASE,
)
_NOT_A_SECRET = re.compile(
    r"^(?:image[-_]?pull[-_]?secrets?|automount.*|external[-_]?credentials?|host[-_]?key)$",
    re.IGNORECASE,
)
_FORMS = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            r"\bgh[pousr]_[A-Za-z0-9]{20,}",
            r"\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"\bgl(?:pat|cbt|dt|rt|ptt|ft)-[A-Za-z0-9_.-]{16,}",
            r"\bpul-[a-f0-9]{32,}",
            r"\bAKIA[A-Z0-9]{16}\b",
            r"\bya29\.[A-Za-z0-9_-]{16,}",
            r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
            r"\bnvapi-[A-Za-z0-9_-]{20,}",
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
            r"(?<=://)[^/\s:@\"']+:[^/\s@\"']+(?=@)",
            r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{12,}=*",
            r"(?<=client-key-data: )\S+",
            r"(?<=token: )[A-Za-z0-9._-]{16,}",
            r"(?<=password: )\S+",
        )
    ),
    re.DOTALL,
)
_INNER = {"__provider", "__defaults", "__internal", "__fieldManager", "__inputs", "__meta"}
"""What providers note for themselves; nobody reviews it."""
_KUBERNETES_SECRET = "kubernetes:core/v1:Secret"  # noqa: S105
_WORTH_A_LOOK = re.compile(
    r"-----BEGIN|gh[pousr]_|github_pat|gl\w+-|pul-|AKIA|ya29|xox|nvapi|eyJ|://|earer |: "
)


def masked_text(text: str) -> str:
    """A text without what has the form of a secret."""
    return _FORMS.sub(SECRET, text) if _WORTH_A_LOOK.search(text) else text


def is_secret_name(name: str) -> bool:
    """Whether a property of this name holds a secret."""
    return bool(_NAME.search(name)) and not _NOT_A_SECRET.match(name)


def masked(properties: Mapping[str, Any], type_: str) -> dict[str, Any]:
    """Properties as they may be shown: secrets masked, what providers note for themselves left out."""
    shown = {name: _value(name, value) for name, value in properties.items() if name not in _INNER}
    if type_.startswith(_KUBERNETES_SECRET):
        for name in ("data", "stringData"):
            if isinstance(shown.get(name), Mapping):
                shown[name] = dict.fromkeys(shown[name], SECRET)
    return shown


def _value(name: str, value: Any) -> Any:
    if isinstance(value, str):
        # A mark of something not known yet is no secret, and neither is nothing.
        if value and is_secret_name(name) and value != _UNKNOWN:
            return SECRET
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: _value(key, item) for key, item in value.items() if key not in _INNER}
    if isinstance(value, list):
        return [_value(name, item) for item in value]
    return value


_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
