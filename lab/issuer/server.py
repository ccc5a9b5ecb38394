"""The issuer's server process: two documents over HTTP on loopback, where pods need them over HTTPS too."""

import errno
import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lab.control_plane.ports import reserve
from lab.files import read_json, write_json
from lab.issuer import over_tls
from lab.issuer.model import ADDRESS, KEYS, IssuerError, IssuerFolder
from lab.issuer.process import SERVER
from lab.issuer.tokens import ALGORITHM, url

_PORT = "issuer"
STAND_IN = "lab issuer: a stand-in for an OpenID issuer; whoever reads its folder can be any tenant"
_CONFIGURATION = "/.well-known/openid-configuration"


def serve(paths: IssuerFolder) -> None:
    """Answer until SIGTERM.

    Raises:
        IssuerError: another process has one of its ports.
    """
    with SERVER.serving(paths):
        sys.stderr.write(f"{STAND_IN}\n")
        _answer(paths)


def _answer(paths: IssuerFolder) -> None:
    handler = _handler(paths)
    # Not one that the kernel gives to outgoing connections: it is to be free when this comes back.
    port = read_json(paths.port) or reserve(paths.ports, [_PORT])[_PORT]
    plain = _listen(port, handler, paths.port)
    servers = [plain]
    secured = over_tls.known(paths)
    if secured is not None:
        server = _listen(secured.port, handler, paths.keys_ports)
        # The handshake is left to the thread of each connection: one that is silent holds up no other.
        server.socket = over_tls.context(paths).wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        servers.append(server)
    ends = {signal.SIGTERM, signal.SIGINT}
    # Before there are threads, which would be given the signal otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}).start()
    write_json(paths.port, plain.server_address[1])
    write_json(paths.ready, {})
    signal.sigwait(ends)
    for server in servers:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hung up, or spoke no TLS, gets no answer; the log is not for that."""


def _listen(port: int, handler: type[BaseHTTPRequestHandler], kept: Path) -> _Server:
    try:
        return _Server((ADDRESS, port), handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise IssuerError(
            f"another process has port {port}, by which others know the issuer; end it, or remove {kept} "
            "for a new one"
        ) from error


def _handler(paths: IssuerFolder) -> type[BaseHTTPRequestHandler]:
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
                    "jwks_uri": name + KEYS,
                    "response_types_supported": ["token"],
                    "subject_types_supported": ["public"],
                    "id_token_signing_alg_values_supported": [ALGORITHM],
                }
            return read_json(paths.keys) if self.path == KEYS else None

        def log_message(self, *_: Any) -> None:
            """Requests are not worth a line."""

    return Handler
