"""The API's own description: problems, security, examples."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
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


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses for the statuses, each with the problems that have it."""
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    kinds = [problem for problem in Problem if problem.status == status]
    response: dict[str, Any] = {
        "description": "; ".join(f"`{problem.value[0]}`: {problem.value[2]}" for problem in kinds),
        "content": {
            CONTENT_TYPE: {
                "schema": {"$ref": f"#/components/schemas/{_SCHEMA}"},
                "examples": {
                    problem.value[0]: {
                        "value": {
                            "type": problem.uri,
                            "title": problem.value[2],
                            "status": status,
                            "detail": "what it is about, and the way out",
                            "requestId": "5f0c1d2e3a4b5968",
                        }
                    }
                    for problem in kinds
                },
            }
        },
    }
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}
        }
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return response


def describe(app: FastAPI) -> None:
    """Let the application describe itself with what FastAPI does not know."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
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
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
