"""The SSH port of one simulated host, and the faults that break connections."""

import asyncio
import contextlib
import socket
import struct
from dataclasses import replace

import asyncssh

from lab.hosts import faults
from lab.hosts.host import Host
from lab.hosts.model import ADDRESS, USER
from lab.hosts.ports import Place
from lab.hosts.ssh import session
from lab.hosts.ssh.door import Door


class _Login(asyncssh.SSHServer):
    """Lets in one user with one key, and nobody else."""

    def __init__(self, host: Host, client_key: asyncssh.SSHKey) -> None:
        self._host = host
        self._client_key = client_key

    def begin_auth(self, username: str) -> bool:
        del username
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        same = key.public_data == self._client_key.public_data
        if not same or username != USER:
            self._host.machine.note("refused", user=username)
            return False
        return True

    def auth_completed(self) -> None:
        self._host.machine.note("connection")


class Listener:
    """The SSH server of one host, wherever the host is."""

    def __init__(self, host: Host, client_key: str) -> None:
        self._host = host
        self._client_key = asyncssh.import_public_key(client_key)
        self._host_key = asyncssh.read_private_key(str(host.folder.host_key))
        self._door = Door(self._serve)
        self.place = Place()
        self._up = True

    @property
    def host_key(self) -> str:
        """The host's public key, as OpenSSH writes it in one line, without a comment."""
        return " ".join(self._host_key.export_public_key().decode().split()[:2])

    async def move(self, place: Place) -> None:
        """Answer there from now on; connections to the place before break.

        Raises:
            HostsError: it cannot listen there.
        """
        await self.close()
        self.place = place
        if self._up:
            self._open()
        await self.apply_faults()

    async def apply_faults(self) -> None:
        """Stop listening, or listen again, as the faults say."""
        refuse = not self._up or self._host.faults().first(faults.RefuseConnections) is not None
        if refuse:
            self._door.shut()
        elif not self._door.is_open:
            self._open()

    async def suspend(self) -> None:
        """The machine goes down: nothing listens, connections break."""
        self._up = False
        if self.place.network is None:
            await self._door.turn_out()
        else:
            await self.close()  # a socket would keep the network of a node that ends

    async def resume(self) -> None:
        """The machine is up again."""
        self._up = True
        await self.apply_faults()

    async def close(self) -> None:
        """Stop listening and end all connections."""
        await self._door.close()

    def _open(self) -> None:
        if self._door.reopen():
            return
        listening = self.place.listen(self._host.folder.name)
        self.place = replace(self.place, port=listening.getsockname()[1])
        self._door.open(listening)

    async def _serve(self, connection: socket.socket) -> None:
        injected = self._host.faults()
        key = self._host_key
        if injected.first(faults.WrongHostKey):
            key = asyncssh.generate_private_key("ssh-ed25519")
        limit = injected.first(faults.DropConnectionAfter)
        pump: asyncio.Task[None] | None = None
        if limit is not None:
            connection, pump = await _limited(connection, limit.bytes)
        ssh: asyncssh.SSHServerConnection | None = None
        try:
            ssh = await asyncssh.run_server(
                connection,
                server_factory=lambda: _Login(self._host, self._client_key),
                server_host_keys=[key],
                process_factory=lambda process: session.serve(self._host, process),
                encoding=None,
                # OpenSSH's own but ChaCha20, with which asyncssh takes twice as long for a command.
                encryption_algs=["aes256-gcm@openssh.com", "aes128-gcm@openssh.com", "aes256-ctr"],
                allow_pty=False,
                agent_forwarding=False,
                password_auth=False,
                kbdint_auth=False,
                host_based_auth=False,
                gss_host=None,
            )
            await ssh.wait_closed()
        except (asyncssh.Error, OSError):
            # What a client does wrong, or a fault breaks, concerns that client alone.
            return
        finally:
            if ssh is not None:
                ssh.abort()
            if pump is not None:
                pump.cancel()
            connection.close()


async def _limited(
    connection: socket.socket, limit: int
) -> tuple[socket.socket, asyncio.Task[None]]:
    """A socket to serve in place of `connection` that breaks after this many bytes."""
    with socket.create_server((ADDRESS, 0)) as server:
        outer = socket.create_connection(server.getsockname())
        inner, _ = server.accept()
    connection.settimeout(0)
    outer.settimeout(0)
    inner.settimeout(0)
    return inner, asyncio.create_task(_pump(connection, outer, limit))


async def _pump(client: socket.socket, server: socket.socket, limit: int) -> None:
    loop = asyncio.get_running_loop()
    left = limit

    async def copy(source: socket.socket, target: socket.socket) -> None:
        nonlocal left
        while left > 0:
            chunk = await loop.sock_recv(source, 4096)
            if not chunk:
                return
            chunk = chunk[:left]
            left -= len(chunk)
            await loop.sock_sendall(target, chunk)

    tasks = {asyncio.create_task(copy(client, server)), asyncio.create_task(copy(server, client))}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A reset, not an orderly end: this is what a client of a host that went away sees.
        with contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        server.close()
