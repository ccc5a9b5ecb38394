"""The issuer's server process: two documents over HTTP on loopback."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psutil

from lab.issuer.files import read_json, write_json
from lab.issuer.model import ADDRESS, IssuerError, IssuerFolder
from lab.issuer.tokens import ALGORITHM, url

STAND_IN = "lab issuer: a stand-in for an OpenID issuer; whoever reads its folder can be any tenant"
_CONFIGURATION = "/.well-known/openid-configuration"
_KEYS = "/keys"


def serve(paths: IssuerFolder) -> None:
    """Answer until SIGTERM.

    Raises:
        IssuerError: another process has the port.
    """
    sys.stderr.write(f"{STAND_IN}\n")
    kept = read_json(paths.port)

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            document = self._document()
            content = json.dumps(document or {"error": "not found"}).encode()
            self.send_response(200 if document else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _document(self) -> Any:
            name = url(read_json(paths.port))
            if self.path == _CONFIGURATION:
                return {
                    "issuer": name,
                    "jwks_uri": name + _KEYS,
                    "response_types_supported": ["token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": [ALGORITHM],
                }
            return read_json(paths.keys) if self.path == _KEYS else None

        def log_message(self, *_: Any) -> None:
            """Requests are not worth a line."""

    try:
        server = ThreadingHTTPServer((ADDRESS, kept or 0), Handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise IssuerError(
            f"another process has port {kept}, which is part of the issuer's name; end it, or remove "
            f"{paths.port} for a new name"
        ) from error
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    write_json(paths.port, server.server_address[1])
    created = psutil.Process().create_time()
    write_json(paths.process, {"pid": os.getpid(), "created": created})
    with server:
        server.serve_forever(poll_interval=0.1)
