"""The API's description of itself: OpenAPI for programs, `/docs` for people, which loads nothing."""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment
from markupsafe import Markup, escape

from caas.api.problems import CONTENT_TYPE, Problem, ProblemAnswer

DESCRIPTION = """\
Run containers with 1, 2, 4 or 8 GPUs, each in a virtual machine of its own.

A container waits in the queue until its GPUs have been reset, cleared and verified; `state` says where it
is. A tenant sees its own containers and nothing else. Every refusal is a problem of RFC 9457
(`application/problem+json`) with a stable `type` and the request's id.
"""
_SCHEMA = "ProblemAnswer"
_PAGE = Path(__file__).with_name("page")
_STYLE = (_PAGE / "docs.css").read_text(encoding="utf-8")


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
    room = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    room.filters["prose"] = _prose
    template = room.from_string((_PAGE / "docs.html").read_text(encoding="utf-8"))
    return template.render(document=document, style=Markup(_STYLE))  # noqa: S704 - ours


def _prose(text: str) -> Markup:
    """Text whose parts between backquotes are code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped
