"""A server of SSH in this process, for what simulated hosts cannot show."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncssh


@contextmanager
def listening(
    keys: Sequence[asyncssh.SSHKey], client: asyncssh.SSHKey, answer: Callable[..., Any]
) -> Iterator[int]:
    """Its port; it shows these host keys, lets this client in, and answers its commands in bytes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=list(keys),
            authorized_client_keys=asyncssh.import_authorized_keys(
                client.export_public_key().decode()
            ),
            process_factory=answer,
            encoding=None,
        )

    acceptor = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    try:
        yield acceptor.get_port()
    finally:
        loop.call_soon_threadsafe(acceptor.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
