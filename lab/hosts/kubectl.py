"""What the stand-ins of kubectl have in common: the few calls that this program makes about nodes.

Output and exit status after kubectl's own (`--ignore-not-found`, `NotFound` as exit 1, no change of a label
or an annotation without `--overwrite`, one taint of a key and an effect).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lab.files import read_json
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.program import typed

Object = dict[str, Any]
REFUSED = (
    "The connection to the server 127.0.0.1:6443 was refused"
    " - did you specify the right host or port?"
)
_FLAGS = """
--overwrite --ignore-not-found --all-namespaces --ignore-daemonsets --delete-emptydir-data --force
"""
_VALUES = """
--request-timeout --raw --output --selector --field-selector --timeout --namespace --wait
"""


def read(call: Call, arguments: Sequence[str]) -> Call:
    """The call with kubectl's own words."""
    unknown = "error: unknown flag: {option}"
    return typed(call, _FLAGS, _VALUES, arguments=arguments, unknown=unknown)


def on_nodes(call: Call, nodes: dict[str, Object], *, of: str) -> Answer:
    """Look at a node, or change it; `of`: the journal's word for whose nodes these are."""
    match call.words:
        case ["get"] if call.value("--raw") == "/readyz":
            return Answer.out("ok")
        case ["get", "node", name]:
            if name not in nodes and call.has("--ignore-not-found"):
                return Answer()
            return Answer.out(json.dumps(_node(nodes, name)))
        case ["label" | "annotate" | "taint" as verb, "node", name, *changes]:
            _CHANGES[verb](_node(nodes, name), changes, overwrite=call.has("--overwrite"))
        case ["cordon" | "uncordon" | "drain" as verb, name]:
            _node(nodes, name)["spec"]["unschedulable"] = verb != "uncordon"
        case ["delete" as verb, "node", name]:
            nodes.pop(name, None)
        case _:
            raise RefusedError(f"kubectl: not on a simulated host: {' '.join(call.words)}")
    call.machine.note(of, action="deleted" if verb == "delete" else verb, node=name)
    return Answer.out(f"node/{name} changed by {verb}")


def _node(nodes: dict[str, Object], name: str) -> Object:
    if name not in nodes:
        raise RefusedError(f'Error from server (NotFound): nodes "{name}" not found')
    return nodes[name]


def _set(kind: str, node: Object, changes: list[str], *, overwrite: bool) -> None:
    values = node["metadata"][kind]
    for change in changes:
        key, separator, value = change.partition("=")
        if not separator:
            values.pop(key.removesuffix("-"), None)
        elif values.get(key, value) != value and not overwrite:
            raise RefusedError(
                "error: --overwrite is false but found the following declared "
                f"annotation(s): '{key}'"
            )
        else:
            values[key] = value


def _taint(node: Object, changes: list[str], *, overwrite: bool) -> None:
    del overwrite  # this program always says it
    for change in changes:
        new = parse_taint(change.removesuffix("-"))
        kept = [
            one
            for one in node["spec"]["taints"]
            if one["key"] != new["key"] or new["effect"] not in ("", one["effect"])
        ]
        node["spec"]["taints"] = kept if change.endswith("-") else [*kept, new]


_CHANGES: Mapping[str, Callable[..., None]] = {
    "annotate": partial(_set, "annotations"),
    "label": partial(_set, "labels"),
    "taint": _taint,
}


def parse_taint(text: str) -> Object:
    """`key=value:Effect` or `key:Effect`, as kubectl writes it; a key alone for all its effects."""
    pair, _, effect = text.partition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def is_played(hosts: Path, node: str) -> bool:
    """Whether the lab's kubelets play a node; True where they do not follow its joins."""
    kubelets = hosts.parent / "kubelet"
    if node not in (read_json(kubelets / "kubelet.json") or {}).get("joins", ()):
        return True
    return node in (read_json(kubelets / "ready.json") or {}).get("nodes", {})
