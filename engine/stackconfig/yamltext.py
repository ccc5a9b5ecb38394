"""Reading YAML by the rules of Pulumi's parser, and changing one value in a text.

Stack files are written by people: a changed key must not cost the comments of the others. So a
change replaces just the text between the marks of the node concerned. Whether the result says
what it should is checked by parsing it again; where it does not, or where a mapping is written in
braces, the whole document is rewritten.
"""

import json
import re
from typing import Any, TypeGuard

import yaml

Path = tuple[str, ...]
"""Keys from the outermost mapping inwards."""

_INDENT = 2


class Loader(yaml.CSafeLoader):
    """YAML 1.2 scalars: ``yes``, ``12:30`` and dates are text."""


Loader.yaml_implicit_resolvers = {
    first: [
        pair for pair in pairs if pair[0] in ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
    ]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool",
    re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    list("tTfF"),
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile(r"^[-+]?(?:0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"),
    list("-+0123456789"),
)
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)


def _construct_int(loader: Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "").replace("0o", "0")
    sign, digits = (text[0], text[1:]) if text[:1] in "+-" else ("", text)
    octal = len(digits) > 1 and digits.startswith("0") and digits.isdigit()
    return int(sign + digits, 8 if octal else 0)


Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def parse(text: str) -> Any:
    """The data of a document.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return yaml.load(text, Loader)  # noqa: S506 - a subclass of SafeLoader


def put(text: str, path: Path, value: Any) -> str:
    """The text with `value` at `path`; mappings that are missing on the way are made."""
    wanted = _put_data(parse(text), path, value)
    return _checked(_put_text(text, path, value), wanted)


def remove(text: str, path: Path) -> str:
    """The text without the entry at `path`; the path has to be there."""
    wanted = _remove_data(parse(text), path)
    return _checked(_remove_text(text, path), wanted)


def _checked(text: str | None, wanted: Any) -> str:
    if text is not None:
        try:
            if _same(parse(text), wanted):
                return text
        except yaml.YAMLError:
            pass  # the edit did not fit this way of writing YAML: rewrite it below
    return "" if wanted in (None, {}) else _dump(wanted)


def _same(left: Any, right: Any) -> bool:
    # 1 == True and 1 == 1.0 in Python, but not in a file.
    return json.dumps(left) == json.dumps(right)


# -- the data ------------------------------------------------------------------


def _put_data(data: Any, path: Path, value: Any) -> Any:
    mapping = dict(data or {})
    key, rest = path[0], path[1:]
    return {**mapping, key: _put_data(mapping.get(key), rest, value) if rest else value}


def _remove_data(data: Any, path: Path) -> Any:
    key, rest = path[0], path[1:]
    if rest:
        return {**data, key: _remove_data(data[key], rest)}
    return {other: value for other, value in data.items() if other != key}


# -- the text ------------------------------------------------------------------


def _put_text(text: str, path: Path, value: Any) -> str | None:
    parent: yaml.Node | None = yaml.compose(text, Loader)
    for depth, key in enumerate(path):
        if not _block_mapping(parent):
            return None
        entries = _entries(parent)
        if key not in entries:
            for outer in reversed(path[depth + 1 :]):
                value = {outer: value}
            return _insert(text, parent, key, value)
        key_node, node = entries[key]
        column, parent = parent.start_mark.column, node
    start = text.find(":", key_node.end_mark.index) + 1
    end = max(_end(node, text), start)
    return text[:start] + _value_text(value, column) + text[end:]


def _remove_text(text: str, path: Path) -> str | None:
    parent: yaml.Node | None = yaml.compose(text, Loader)
    for key in path[:-1]:
        parent = parent and _entries(parent)[key][1]
    if not _block_mapping(parent) or len(parent.value) == 1:
        return None
    key_node, node = _entries(parent)[path[-1]]
    start = text.rfind("\n", 0, key_node.start_mark.index) + 1
    end = text.find("\n", _end(node, text))
    return text[:start] + (text[end + 1 :] if end >= 0 else "")


def _insert(text: str, parent: yaml.Node, key: str, value: Any) -> str:
    end = text.find("\n", _end(parent, text))
    head, tail = (text, "") if end < 0 else (text[: end + 1], text[end + 1 :])
    if not head.endswith("\n"):
        head += "\n"
    return head + _block({key: value}, parent.start_mark.column) + tail


def _value_text(value: Any, column: int) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + _block(value, column + _INDENT).rstrip("\n")
    return " " + _flow_text(value)


def _block(value: Any, column: int) -> str:
    pad = " " * column
    return "".join(pad + line + "\n" for line in _dump(value).splitlines())


def _dump(value: Any) -> str:
    return yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000, indent=_INDENT
    )


def _flow_text(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        return json.dumps(value, ensure_ascii=False)
    dumped = yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1_000_000,
        default_flow_style=True,
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key, as Pulumi does."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002
        super().increase_indent(flow, indentless=False)


_TEXT = "tag:yaml.org,2002:str"
_RESOLVER = Loader("")


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if "\n" in text else None
    if _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)) != _TEXT:  # type: ignore[no-untyped-call]
        # YAML 1.1 takes it for a text, so the writer would leave it bare; this reader does not.
        style = "'"
    return dumper.represent_scalar(_TEXT, text, style=style)


_Dumper.add_representer(str, _represent_text)
_Dumper.ignore_aliases = lambda self, data: True  # type: ignore[method-assign]  # noqa: ARG005


# -- nodes -----------------------------------------------------------------------


def _block_mapping(node: yaml.Node | None) -> TypeGuard[yaml.MappingNode]:
    return isinstance(node, yaml.MappingNode) and not node.flow_style and bool(node.value)


def _entries(mapping: yaml.Node | None) -> dict[str, tuple[yaml.Node, yaml.Node]]:
    pairs = mapping.value if isinstance(mapping, yaml.MappingNode) else ()
    return {key.value: (key, value) for key, value in pairs}


def _end(node: yaml.Node, text: str) -> int:
    """Where the text of a node ends; the parser's own mark is behind comments that follow."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(node, yaml.MappingNode) else last, text)
    end = node.end_mark.index
    while end > node.start_mark.index and text[end - 1].isspace():
        end -= 1
    return end
