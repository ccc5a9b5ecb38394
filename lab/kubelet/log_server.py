"""What the API server asks of a kubelet: logs of containers, and a way into them, of which there is none.

Logs are at `/containerLogs/<ns>/<pod>/<container>`; commands at `/exec/…`, `/attach/…`, `/portForward/…`.
"""

import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

from aiohttp import web

from lab.control_plane.layout import Layout
from lab.control_plane.pki import CA, SERVING
from lab.control_plane.ports import LOOPBACK
from lab.kubelet.logs import ContainerLog, LogOptions

_WAYS_IN = ("exec", "attach", "run", "portForward")
_NO_CONTAINER = "{pod} is a played pod: there is no container to reach, only its log\n"


class LoggedPod(Protocol):
    @property
    def containers(self) -> tuple[str, ...]:
        """Names of its containers."""

    def log(self, container: str) -> ContainerLog:
        """The logs of one."""

    def container_ended(self, container: str) -> bool:
        """Whether the container that runs, or ran last, writes no more."""


Find = Callable[[str, str], LoggedPod | None]


class LogServer:
    """Answers for all nodes at one port of loopback, over HTTPS, to clients of the lab's authority."""

    def __init__(self, layout: Layout, port: int, find: Find) -> None:
        self._layout = layout
        self._port = port
        self._find = find
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        for way in _WAYS_IN:
            # Below it namespace and pod, then a uid, a container or both; whoever asks may post or get.
            app.router.add_route("*", f"/{way}/{{namespace}}/{{pod}}{{rest:.*}}", self._refuse)
        app.router.add_get("/healthz", _healthz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def open(self) -> None:
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self._layout.certificate(CA))
        )
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self._layout.certificate(SERVING), self._layout.key(SERVING))
        await self._runner.setup()
        site = web.TCPSite(self._runner, LOOPBACK, self._port, ssl_context=context)
        await site.start()

    async def close(self) -> None:
        """Stop serving; whoever follows a log is cut off."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        namespace, name, container = (
            request.match_info[key] for key in ("namespace", "pod", "container")
        )
        pod = self._find(namespace, name)
        if pod is None:
            return web.Response(status=404, text=f'pod "{name}" does not exist\n')
        if container not in pod.containers:
            return web.Response(
                status=404, text=f'container "{container}" not found in pod "{name}"\n'
            )
        try:
            options = _options(request.query)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        log = pod.log(container)
        async for line in log.read(options, lambda: pod.container_ended(container)):
            await response.write(line)
        await response.write_eof()
        return response

    async def _refuse(self, request: web.Request) -> web.Response:
        name, namespace = request.match_info["pod"], request.match_info["namespace"]
        if self._find(namespace, name) is None:
            return web.Response(status=404, text=f'pod "{name}" does not exist\n')
        return web.Response(status=501, text=_NO_CONTAINER.format(pod=f"{namespace}/{name}"))


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _options(query: Mapping[str, str]) -> LogOptions:
    since = None
    if "sinceSeconds" in query:
        since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
    elif "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"])
    return LogOptions(
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
        timestamps=query.get("timestamps") == "true",
        tail=_number(query, "tailLines"),
        limit_bytes=_number(query, "limitBytes"),
        since=since,
    )


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if name in query else None
