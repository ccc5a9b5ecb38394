"""Requests to the process that holds the nodes: one line of JSON each way, over a socket in its folder."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from lab.nodes.folder import NodesFolder
from lab.nodes.model import NodesError, ProgramState

Answer = dict[str, Any]
Handler = Callable[[Mapping[str, Any]], Awaitable[Answer]]
REQUEST = "request"
_CONTROL_SECONDS = 300.0


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


def control(folder: Path, node: str, program: str, action: str) -> int | None:
    """Start, stop or restart something of a running node, or ask for its `state`.

    `program` is one of the node (`containerd`, `kubelet`, …), as its systemd would do it; `machine`, which is
    switched off with all that runs in it, and is made anew when it is switched on; or `cable`. A machine that
    is off can also `forget` its disk. Gives the process: of a program in the node, of the machine its first
    as this machine sees it, of a cable that of the machine while the cable is in; else None.

    Raises:
        NodesError: there is no such node or program, nobody answers, or a program that was started ended
            again, with its last words.
    """
    pid: int | None = _controlled(folder, node, program, action)["pid"]
    return pid


def program_state(folder: Path, node: str, program: str) -> ProgramState:
    """What a program of a node does, with its last words where it ends each time it is started.

    Raises:
        NodesError: there is no such node or program, or nobody answers.
    """
    found = _controlled(folder, node, program, "state")
    return ProgramState(found["pid"], found["wanted"], found["words"])


def _controlled(folder: Path, node: str, program: str, action: str) -> dict[str, Any]:
    request = {"request": "control", "node": node, "program": program, "action": action}
    return ask(NodesFolder(folder.resolve()), request, _CONTROL_SECONDS)


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
