"""A fault in the configuration, and how a reader gets to see it."""

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path as Source

import yaml

from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Path

HIDDEN = "a value that is not shown"
NOTHING = "nothing"

_LONGEST = 60
_ALIKE = 3
"""So many faults that differ in the item of a list alone are still told one by one."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")
_SECRET_KEY = re.compile(
    r"pass(word|wd|phrase)|secret|token|private.?key|api.?key|credential|kubeconfig|bearer|auth",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"-----BEGIN|PRIVATE KEY|\beyJ[A-Za-z0-9_-]{10,}|^v1:[A-Za-z0-9+/=]+:|//[^/?#\s]*@"
)


def finding(code: str, path: Path, got: str, case: str = "", /, **values: object) -> Finding:
    """What is wrong with a value, as it is said with the code, and what stood there (see `show`)."""
    problem, remedy = codes.said(code, case, values)
    return Finding(code, f"{problem} (got {got})", remedy, path)


def told(file: Source, found: Finding) -> str:
    """As it is printed: with the file, the line, the key and the code."""
    line = _line(file, found.path)
    at = f"{file.name}:{line}" if line else file.name
    return f"{at}: {render_path(found.path)}: {found}"


def _line(file: Source, path: Path) -> int:
    """Line of what a path leads to, or of what it would be below; 0 where there is nothing of it."""
    node, line = None, 0
    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        node = _composed(file.read_text(encoding="utf-8"))
    whole = path if path[:1] in {(), ("config",)} else ("config", *path)
    for depth, part in enumerate(whole):
        if isinstance(node, yaml.MappingNode):
            # Our own keys stand below `config` with the program's name before them.
            keys = {str(part), f"gpu-clusters:{part}"} if depth == 1 else {str(part)}
            found = next((pair for pair in node.value if str(pair[0].value) in keys), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and part in range(len(node.value)):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


@lru_cache(maxsize=2)
def _composed(text: str) -> yaml.Node | None:
    return yaml.compose(text, yaml.SafeLoader)


def lines(file: Source, found: Iterable[Finding]) -> list[str]:
    """One line for each, and one alone for what is the same with every item of a list."""
    alike: dict[object, list[Finding]] = {}
    for one in found:
        pattern = tuple("" if isinstance(part, int) else part for part in one.path)
        wrong = one.problem.rpartition(" (got ")[0]
        alike.setdefault((one.code, pattern, wrong, one.remedy), []).append(one)
    told_lines = []
    for same in alike.values():
        if len(same) <= _ALIKE:
            told_lines += [told(file, one) for one in same]
            continue
        others = ", ".join(render_path(one.path) for one in same[1:_ALIKE])
        more = f"; the same at {others} and {len(same) - _ALIKE} more"
        told_lines.append(f"{told(file, same[0])}{more}")
    return told_lines


def render_path(path: Path) -> str:
    """The path as one writes it: `caas.nodes[1].gpus[3]`."""
    text = ""
    for part in path:
        if isinstance(part, int) or part.isdecimal():
            text += f"[{str(part)[:20]}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{_shorten(json.dumps(part, ensure_ascii=True))}]"
    return text or "the document"


def _shorten(text: str) -> str:
    """A JSON text that is quoted, at most so long."""
    return text if len(text) <= _LONGEST else f'{text[:_LONGEST]}…"'


def is_secret(path: Path, value: object = None) -> bool:
    """Whether a value must not be shown: its key says so, or it looks like a key or token itself."""
    if any(isinstance(part, str) and _SECRET_KEY.search(part) for part in path):
        return True
    return isinstance(value, str) and _SECRET_VALUE.search(value) is not None


def _number(value: int | float) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"the number {value}"
    if value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    return str(value)


def show(value: object, path: Path = ()) -> str:
    """A value for a message: short, on one line, and never a secret."""
    if is_secret(path, value):
        return HIDDEN
    match value:
        case None:
            return NOTHING
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number(value)
        case str():
            return _shorten(json.dumps(value, ensure_ascii=not value.isprintable()))
        case Mapping():
            return "an empty mapping" if not value else f"a mapping with {len(value)} keys"
        case list() | tuple():
            return _show_list(value, path)
        case _:
            return _shorten(json.dumps(str(value)))


def _show_list(values: list[object] | tuple[object, ...], path: Path) -> str:
    if len(values) > 12 or any(isinstance(value, Mapping | list | tuple) for value in values):
        return f"a list of {len(values)}"
    text = f"[{', '.join(show(value, path) for value in values)}]"
    return text if len(text) <= 2 * _LONGEST else f"a list of {len(values)}"


def show_values(values: Iterable[object]) -> str:
    """Several values, for messages about more than one."""
    return ", ".join(show(value) for value in values)
