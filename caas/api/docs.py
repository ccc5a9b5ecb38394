"""The API's description of itself: OpenAPI for programs, `/docs` for people, which loads nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi

from caas.api.problems import CONTENT_TYPE, Problem, ProblemAnswer

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
_BOUNDS = {
    "minimum": "from",
    "maximum": "to",
    "minLength": "at least",
    "maxLength": "at most",
    "maxItems": "at most",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses for the statuses, each with the problems that have it."""
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    kinds = [problem for problem in Problem if problem.status == status]
    detail, request_id = "what it is about, and the way out", "5f0c1d2e3a4b5968"
    examples = {one.code: {"value": one.answer(detail, request_id)} for one in kinds}
    schema = {"$ref": f"#/components/schemas/{_SCHEMA}"}
    response: dict[str, Any] = {
        "description": "; ".join(f"`{problem.code}`: {problem.title}" for problem in kinds),
        "content": {CONTENT_TYPE: {"schema": schema, "examples": examples}},
    }
    if status in (429, 503):
        again = {"schema": {"type": "integer"}, "description": "Seconds."}
        response["headers"] = {"Retry-After": again}
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
        problem = ProblemAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(problem.pop("$defs", {}), **{_SCHEMA: problem})
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
    info, title = document["info"], escape(document["info"]["title"])
    operations = [
        (method.upper(), path, operation)
        for path, by_method in document["paths"].items()
        for method, operation in by_method.items()
    ]
    links = "".join(
        f'<li><a href="#{escape(one["operationId"])}">{escape(one["summary"])}</a></li>'
        for _, _, one in operations
    )
    schemas = document["components"]["schemas"].items()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title} {escape(info['version'])}</h1><p>{_prose(info['description'])}</p>"
        f'<p>For programs: <a href="/openapi.json">/openapi.json</a></p><ul>{links}</ul>'
        + "".join(_operation(*one) for one in operations)
        + "<h2>Schemas</h2>"
        + "".join(_schema(name, one) for name, one in schemas)
        + "</body></html>"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = [
        (
            _field(one["name"], one.get("required")),
            escape(one["in"]),
            _kind(one["schema"]),
            _said(one),
        )
        for one in operation.get("parameters") or ()
    ]
    bodies = "".join(
        f"<p>Body: {_kind(body['schema'])} (<code>{escape(kind)}</code>)</p>"
        for kind, body in operation.get("requestBody", {}).get("content", {}).items()
    )
    responses = [
        (f"<code>{escape(status)}</code>", _said(answer), ", ".join(map(_kind, schemas)))
        for status, answer in operation["responses"].items()
        for schemas in [[one["schema"] for one in answer.get("content", {}).values()]]
    ]
    return (
        f'<h2 id="{escape(operation["operationId"])}">{escape(operation["summary"])}</h2>'
        f'<p><span class="method">{method}</span><code>{escape(path)}</code></p>'
        f"<p>{_said(operation)}</p>"
        + _table(("Parameter", "In", "Type", ""), parameters)
        + bodies
        + _table(("Answer", "", "Body"), responses)
    )


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    fields = [
        (_field(field, field in required), _kind(one), _said(one))
        for field, one in schema.get("properties", {}).items()
    ]
    values = f"<p>{_kind(schema)}</p>" if "enum" in schema else ""
    head = f'<h3 id="schema-{escape(name)}">{escape(name)}</h3><p>{_said(schema)}</p>'
    return head + values + _table(("Field", "Type", ""), fields)


def _field(name: str, required: object) -> str:
    return f"<code>{escape(name)}</code>" + (" *" if required else "")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
    return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{cells}</table>" if rows else ""


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
    bounds = [f"{word} {schema[key]:g}" for key, word in _BOUNDS.items() if key in schema]
    pattern = schema.get("pattern", "")
    if pattern and len(pattern) <= _LONGEST_PATTERN:
        bounds.append(f"<code>{escape(pattern)}</code>")
    return f"{kind} ({', '.join(bounds)})" if bounds else kind


def _said(described: Mapping[str, Any]) -> str:
    return _prose(described.get("description", ""))


def _prose(text: str) -> str:
    """Text whose parts between backquotes are code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))
