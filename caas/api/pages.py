"""The pages for tenants and operators: one document, which shows what the API answers, and loads no more.

The token stays in the browser's tab (sessionStorage) and goes along as the header that the API asks for
anyway: no cookie, so nothing that another site's page could use.
"""

from pathlib import Path

from fastapi import FastAPI, Response

_FOLDER = Path(__file__).with_name("page")
_DOCUMENT = (_FOLDER / "page.html").read_bytes(), "text/html"
_SERVED = {
    "/": _DOCUMENT,
    "/operators": _DOCUMENT,
    "/page.css": ((_FOLDER / "page.css").read_bytes(), "text/css"),
    "/page.js": ((_FOLDER / "page.js").read_bytes(), "text/javascript"),
}
HEADERS = {
    # Scripts, styles and requests of this origin; no text becomes markup; no form, no frame.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def add_pages(app: FastAPI) -> None:
    """Serve them; whoever asks gets the same, since only the API knows anything."""
    for path, (content, kind) in _SERVED.items():
        _add(app, path, content, kind)


def _add(app: FastAPI, path: str, content: bytes, kind: str) -> None:
    @app.get(path, include_in_schema=False)
    async def page() -> Response:
        return Response(content, media_type=kind, headers=HEADERS)
