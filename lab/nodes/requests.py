"""Requests to the process that holds the nodes: one line of JSON each way, over a socket in its folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lab.nodes.folder import NodesFolder
from lab.nodes.model import NodesError

Answer = dict[str, Any]
Handler = Callable[[Mapping[str, Any]], Awaitable[Answer]]
REQUEST = "request"


class NotAnsweredError(NodesError):
    """Nobody took the request, or it broke off before it was answered."""


def ask(folder: NodesFolder, request: Mapping[str, Any], seconds: float) -> Answer:
    """Send a request; `request` in it is its name.

    Raises:
        NodesError: nobody answers, or the answer is that it cannot be done.
    """
    try:
        # The path of a socket is short; that of a lab may be long.
        directory = os.open(folder.path, os.O_PATH)
    except OSError as error:
        raise NodesError(f"there are no nodes in {folder.path} ({error.strerror})") from error
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            connection.connect(f"/proc/self/fd/{directory}/{folder.control.name}")
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: Answer = json.loads(connection.makefile().readline())
    except (OSError, ValueError) as error:
        raise NotAnsweredError(
            f"the nodes in {folder.path} do not answer ({error}); start them"
        ) from error
    finally:
        os.close(directory)
    if "error" in answer:
        raise NodesError(str(answer["error"]))
    return answer


def answering(
    handlers: Mapping[str, Handler],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """What to do with a connection: give its request to the handler of that name, and send the answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            request = json.loads(await reader.readline())
            handler = handlers.get(request.get(REQUEST, ""))
            said: Answer = {"error": f"there is no request {request.get(REQUEST)!r}"}
            if handler is not None:
                try:
                    said = await handler(request)
                except NodesError as error:
                    said = {"error": str(error)}
            writer.write(json.dumps(said).encode() + b"\n")
            await writer.drain()
        writer.close()

    return answer
