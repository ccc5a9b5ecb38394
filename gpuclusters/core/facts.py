"""What the inspect scripts print: one `key value` per line, read into a model."""

from base64 import b64decode
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.fields import FieldInfo

from gpuclusters.core.naming import kebab


def _is_yes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return bool({"yes", "true", "enable", "enabled"} & set(value.split()[-1:]))


BASE64 = "base64"
"""In the annotation of a field: the script prints it encoded, because it has several lines."""
Yes = Annotated[bool, BeforeValidator(_is_yes)]
"""Whether the last line of the key says `yes`, `true`, `enable` or `enabled`."""


class Facts(BaseModel):
    """A field is named like its key, with `_` for `-`; its type says how the lines of the key are read.

    A mapping has an entry for each line (first word, all after it), a set the words of all lines, a tuple an
    item for each line (a tuple of tuples: its words). Anything else is all lines as one. A key without a line
    leaves the default.
    """

    model_config = ConfigDict(
        frozen=True, alias_generator=kebab, validate_by_name=True, validate_by_alias=True
    )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a script printed; ValidationError where a value is not of the type of its field."""
        said: dict[str, list[str]] = defaultdict(list)
        for line in text.splitlines():
            key, _, value = line.partition(" ")
            said[key].append(value.strip())
        keys = {field.alias or name: field for name, field in cls.model_fields.items()}
        return cls.model_validate({k: _read(keys[k], said[k]) for k in said if k in keys})


def _read(field: FieldInfo, lines: Sequence[str]) -> Any:
    if BASE64 in field.metadata:
        return b64decode(lines[-1]).decode(errors="replace").strip()
    origin, items = get_origin(field.annotation), get_args(field.annotation)
    if origin is Mapping:
        return {first: rest for first, _, rest in (line.partition(" ") for line in lines)}
    if origin in (frozenset, AbstractSet):
        return frozenset(word for line in lines for word in line.split())
    if origin is tuple:
        words = get_origin(items[0]) is tuple or hasattr(items[0], "_fields")
        return tuple(tuple(line.split()) if words else line for line in lines)
    return " ".join(lines)
