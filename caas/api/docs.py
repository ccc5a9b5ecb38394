"""The API's description of itself: OpenAPI for programs, `/docs` for people, which loads nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from caas.api.answers import ProblemAnswer
from caas.api.problems import CONTENT_TYPE, Problem

DESCRIPTION = """\
Run containers with 1, 2, 4 or 8 GPUs, each in a virtual machine of its own.

A container waits in the queue until its GPUs have been reset, cleared and verified; `state` says where it
is. A tenant sees its own containers and nothing else. Every refusal is a problem of RFC 9457
(`application/problem+json`) with a stable `type` and the request's id.
"""
_SCHEMA = "ProblemAnswer"
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


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses for the statuses, each with the problems that have it."""
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    kinds = [problem for problem in Problem if problem.status == status]
    examples = {
        problem.code: {
            "value": {
                "type": problem.uri,
                "title": problem.title,
                "status": status,
                "detail": "what it is about, and the way out",
                "requestId": "5f0c1d2e3a4b5968",
            }
        }
        for problem in kinds
    }
    schema = {"$ref": f"#/components/schemas/{_SCHEMA}"}
    response: dict[str, Any] = {
        "description": "; ".join(f"`{problem.code}`: {problem.title}" for problem in kinds),
        "content": {CONTENT_TYPE: {"schema": schema, "examples": examples}},
    }
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}
        }
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return response


def describe(app: FastAPI) -> None:
    """Let the application describe itself, at `/docs` too, with what FastAPI does not know."""

    @functools.cache
    def document() -> dict[str, Any]:
        made = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        schemas = made["components"]["schemas"]
        schemas[_SCHEMA] = ProblemAnswer.model_json_schema(
            ref_template="#/components/schemas/{model}"
        )
        schemas.update(schemas[_SCHEMA].pop("$defs", {}))
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        return made

    app.openapi = document  # type: ignore[method-assign]
    made = functools.cache(lambda: page(document()))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        policy = {"Content-Security-Policy": content_security_policy()}
        return Response(made(), media_type="text/html", headers=policy)


def content_security_policy() -> str:
    """What a browser may load for the page: its own style, by digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def page(document: Mapping[str, Any]) -> str:
    """The whole page."""
    title, version = escape(document["info"]["title"]), escape(document["info"]["version"])
    operations = [
        (method.upper(), path, operation)
        for path, by_method in document["paths"].items()
        for method, operation in by_method.items()
    ]
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title} {version}</h1><p>{_prose(document['info']['description'])}</p>",
            '<p>For programs: <a href="/openapi.json">/openapi.json</a></p><ul>',
            *(_link(operation) for _, _, operation in operations),
            "</ul>",
            *(part for one in operations for part in _operation(*one)),
            "<h2>Schemas</h2>",
            *_schemas(document["components"]["schemas"]),
            "</body></html>",
        )
    )


def _link(operation: Mapping[str, Any]) -> str:
    target = escape(operation["operationId"])
    return f'<li><a href="#{target}">{escape(operation["summary"])}</a></li>'


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f'<h2 id="{escape(operation["operationId"])}">{escape(operation["summary"])}</h2>'
    yield f'<p><span class="method">{method}</span><code>{escape(path)}</code></p>'
    yield f"<p>{_prose(operation.get('description', ''))}</p>"
    yield from _table(
        ("Parameter", "In", "Type", ""),
        [
            (
                _field(one["name"], required=one.get("required", False)),
                escape(one["in"]),
                _kind(one["schema"]),
                _prose(one.get("description", "")),
            )
            for one in operation.get("parameters") or ()
        ],
    )
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: {_kind(content['schema'])} (<code>{escape(kind)}</code>)</p>"
    yield from _table(
        ("Answer", "", "Body"),
        [
            (
                f"<code>{escape(status)}</code>",
                _prose(answer.get("description", "")),
                ", ".join(_kind(one["schema"]) for one in answer.get("content", {}).values()),
            )
            for status, answer in operation["responses"].items()
        ],
    )


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for title, schema in schemas.items():
        yield f'<h3 id="schema-{escape(title)}">{escape(title)}</h3>'
        yield f"<p>{_prose(schema.get('description', ''))}</p>"
        if "enum" in schema:
            yield f"<p>{_kind(schema)}</p>"
        required = schema.get("required", ())
        yield from _table(
            ("Field", "Type", ""),
            [
                (
                    _field(name, required=name in required),
                    _kind(one),
                    _prose(one.get("description", "")),
                )
                for name, one in schema.get("properties", {}).items()
            ],
        )


def _field(name: str, *, required: bool) -> str:
    return f"<code>{escape(name)}</code>" + (" *" if required else "")


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
