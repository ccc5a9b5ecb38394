"""`stack graph`: which resource needs which, in Graphviz' language."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.engine.cli.parser import Parser, nested_stack_flag
from lab.engine.cli.tables import write_result
from lab.engine.cli.workspace import Workspace

_DEPENDENCY, _PARENT = "#246C60", "#AA6639"


def add_actions(action: Callable[..., Parser]) -> None:
    """Register the action below `stack`."""
    graph = action("graph", _graph, "write a graph of the resources to a file")
    graph.add_argument("file", metavar="FILE")
    graph.add_argument("--ignore-parent-edges", action="store_true")
    graph.add_argument("--ignore-dependency-edges", action="store_true")
    graph.add_argument("--dependency-edge-color", default=_DEPENDENCY, metavar="COLOUR")
    graph.add_argument("--parent-edge-color", default=_PARENT, metavar="COLOUR")
    graph.add_argument("--short-node-name", action="store_true", help="names in place of URNs")
    graph.add_argument("--dot-fragment", default="", metavar="DOT", help="put at the top")
    nested_stack_flag(graph)


def _graph(arguments: argparse.Namespace) -> int:
    workspace = Workspace(arguments)
    resources = workspace.backend.checkpoint(workspace.stack).resources
    text = dot(
        resources,
        dependencies=None if arguments.ignore_dependency_edges else arguments.dependency_edge_color,
        parents=None if arguments.ignore_parent_edges else arguments.parent_edge_color,
        short=arguments.short_node_name,
        fragment=arguments.dot_fragment,
    )
    write_result(arguments.file, text)
    print(f"Wrote stack dependency graph to `{arguments.file}`")
    return 0


def dot(
    resources: Sequence[Mapping[str, Any]],
    *,
    dependencies: str | None = _DEPENDENCY,
    parents: str | None = _PARENT,
    short: bool = False,
    fragment: str = "",
) -> str:
    """The resources of a state as a directed graph, from what is needed to what needs it.

    An edge to a parent goes the other way, as Pulumi draws it. `dependencies` and `parents` are
    the colours of edges; None leaves them out.
    """
    names = {urn: f"Resource{i}" for i, urn in enumerate(sorted({r["urn"] for r in resources}))}
    lines = ["strict digraph {"]
    if fragment:
        lines.append(f"    {fragment}")
    lines += [
        f"    {name} [label={_quoted(urn.split('::', 3)[-1] if short else urn)}];"
        for urn, name in names.items()
    ]
    for resource in resources:
        here = names[resource["urn"]]
        if dependencies is not None:
            because = resource.get("propertyDependencies") or {}
            for urn in resource.get("dependencies") or ():
                keys = sorted(key for key, value in because.items() if urn in (value or ()))
                label = f", label={_quoted(', '.join(keys))}" if keys else ""
                if urn in names:
                    lines.append(
                        f"    {names[urn]} -> {here} [color={_quoted(dependencies)}{label}];"
                    )
        if parents is not None and resource.get("parent") in names:
            lines.append(f"    {here} -> {names[resource['parent']]} [color={_quoted(parents)}];")
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
