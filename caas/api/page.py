"""`/docs`: the API's description for people, made from its OpenAPI document; no script, nothing foreign."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { border-top: 1px solid #8888; margin-top: 2.5rem; padding-top: 1rem }
code, .method { font-family: ui-monospace, monospace }
.method { font-weight: bold; margin-right: .5rem }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 }
td, th { border: 1px solid #8884; padding: .25rem .5rem; text-align: left; vertical-align: top }
td code { overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } a { color: #8bf } }
"""
_LONGEST_PATTERN = 60


def content_security_policy() -> str:
    """What a browser may load for the page: its own style, by digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def page(document: Mapping[str, Any]) -> str:
    """The whole page."""
    title = escape(document["info"]["title"])
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title} {escape(document['info']['version'])}</h1>",
            f"<p>{_prose(document['info']['description'])}</p>",
            '<p>For programs: <a href="/openapi.json">/openapi.json</a></p>',
            *_contents(document),
            *_operations(document),
            "<h2>Schemas</h2>",
            *_schemas(document["components"]["schemas"]),
            "</body></html>",
        )
    )


def _each(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def _contents(document: Mapping[str, Any]) -> Iterator[str]:
    yield "<ul>"
    for _, _, operation in _each(document):
        target = escape(operation["operationId"])
        yield f'<li><a href="#{target}">{escape(operation["summary"])}</a></li>'
    yield "</ul>"


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for method, path, operation in _each(document):
        yield f'<h2 id="{escape(operation["operationId"])}">{escape(operation["summary"])}</h2>'
        yield f'<p><span class="method">{method}</span><code>{escape(path)}</code></p>'
        yield f"<p>{_prose(operation.get('description', ''))}</p>"
        parameters = operation.get("parameters") or ()
        yield from _table(
            ("Parameter", "In", "Type", ""),
            [
                (
                    f"<code>{escape(one['name'])}</code>" + (" *" if one.get("required") else ""),
                    escape(one["in"]),
                    _kind(one["schema"]),
                    _prose(one.get("description", "")),
                )
                for one in parameters
            ],
        )
        body = operation.get("requestBody", {}).get("content", {})
        for kind, content in body.items():
            yield f"<p>Body: {_kind(content['schema'])} (<code>{escape(kind)}</code>)</p>"
        yield from _table(
            ("Answer", "", "Body"),
            [
                (
                    f"<code>{escape(status)}</code>",
                    _prose(answer.get("description", "")),
                    ", ".join(
                        _kind(content["schema"]) for content in answer.get("content", {}).values()
                    ),
                )
                for status, answer in operation["responses"].items()
            ],
        )


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        yield f'<h3 id="schema-{escape(name)}">{escape(name)}</h3>'
        yield f"<p>{_prose(schema.get('description', ''))}</p>"
        if "enum" in schema:
            yield f"<p>{_kind(schema)}</p>"
        required = schema.get("required", ())
        yield from _table(
            ("Field", "Type", ""),
            [
                (
                    f"<code>{escape(field)}</code>" + (" *" if field in required else ""),
                    _kind(one),
                    _prose(one.get("description", "")),
                )
                for field, one in schema.get("properties", {}).items()
            ],
        )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if not rows:
        return
    yield "<table><tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</table>"


def _kind(schema: Mapping[str, Any]) -> str:
    """A type in a few words: its name or a link to it, and its bounds."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#schema-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    kind = escape(str(schema.get("type", "any")))
    if kind == "array":
        kind = f"list of {_kind(schema['items'])}"
    bounds = [
        f"{word} {schema[key]:g}"
        for key, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("minLength", "at least"),
            ("maxLength", "at most"),
            ("maxItems", "at most"),
        )
        if key in schema
    ]
    pattern = schema.get("pattern", "")
    if pattern and len(pattern) <= _LONGEST_PATTERN:
        bounds.append(f"<code>{escape(pattern)}</code>")
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _prose(text: str) -> str:
    """Text whose parts between backquotes are code."""
    parts = escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts)
    )
