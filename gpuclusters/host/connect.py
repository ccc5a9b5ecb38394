"""Opening an SSH connection: which key opens it, pinned host key, bounded retries, errors in our words."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from gpuclusters.core.errors import (
    AdapterError,
    DeniedError,
    HostKeyMismatchError,
    NoCredentialsError,
    UnreachableError,
)
from gpuclusters.host.model import HostConnection

CONFIG_KEY = "gpu-clusters:ssh-private-key"
KEY_FILE_VARIABLE = "GPU_CLUSTERS_SSH_KEY_FILE"
AGENT_VARIABLE = "SSH_AUTH_SOCK"
# TCP and key exchange to a host in the same site take well under a second; a BMC-attached or
# loaded host needs a few.
CONNECT_TIMEOUT_SECONDS = 10.0
# gcloud takes a few seconds to start, and as many again on a slow computer.
TUNNEL_TIMEOUT_SECONDS = 40.0
LOGIN_TIMEOUT_SECONDS = 20.0
# Connecting changes nothing, so it may be repeated: a host that restarts its sshd is back by then.
CONNECT_ATTEMPTS = 3
CONNECT_PAUSE_SECONDS = 0.5
# A dead peer is noticed after 45 s at most.
KEEPALIVE_SECONDS = 15.0
KEEPALIVE_MISSES = 3
_READ_KEY = "read the SSH private key"


@dataclass(frozen=True, slots=True)
class SshCredentials:
    """Either a private key or the path of an agent's socket; the source is for errors."""

    source: str
    private_key: str | None = field(default=None, repr=False)
    agent_path: str | None = None

    def keys(self) -> list[asyncssh.SSHKey] | None:
        """The key to log in with; None leaves it to the agent."""
        if self.private_key is None:
            return None
        try:
            return [asyncssh.import_private_key(self.private_key)]
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            problem = "it is not an unencrypted OpenSSH or PEM private key"
            remedy = "give the key without passphrase, or load it into an SSH agent"
            raise NoCredentialsError(self.source, _READ_KEY, problem, remedy) from error


def find_credentials(
    configured_key: object, environment: Mapping[str, str] = os.environ
) -> SshCredentials:
    """The first of stack secret, key file and agent that there is; else `NoCredentialsError`."""
    if isinstance(configured_key, str) and configured_key.strip():
        return SshCredentials(f"stack secret {CONFIG_KEY}", private_key=configured_key)
    path = environment.get(KEY_FILE_VARIABLE)
    if path:
        source = f"{KEY_FILE_VARIABLE}={path}"
        try:
            text = Path(path).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "it is not text"
            remedy = "correct the path or its permissions"
            raise NoCredentialsError(source, _READ_KEY, problem, remedy) from error
        return SshCredentials(source, private_key=text)
    socket = environment.get(AGENT_VARIABLE)
    if socket:
        return SshCredentials(f"SSH agent at {socket}", agent_path=socket)
    raise NoCredentialsError(
        "SSH",
        "log in to the hosts",
        f"there is neither a stack secret {CONFIG_KEY}, nor {KEY_FILE_VARIABLE}, nor an SSH agent "
        f"({AGENT_VARIABLE})",
        f"run `pulumi config set --secret {CONFIG_KEY} < KEYFILE`, or set one of the two variables",
    )


class PinnedKey(asyncssh.SSHClient):
    """Accepts exactly one host key and remembers which one it was shown."""

    def __init__(self, expected: asyncssh.SSHKey) -> None:
        self._expected = expected
        self.presented: asyncssh.SSHKey | None = None

    def validate_host_public_key(
        self, _host: str, _addr: str, _port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Called by asyncssh for a key that is in no list of known hosts; ours is empty."""
        self.presented = key
        return bool(key.public_data == self._expected.public_data)


async def connect(
    connection: HostConnection,
    credentials: SshCredentials,
    tried: str,
    attempts: int = CONNECT_ATTEMPTS,
) -> asyncssh.SSHClientConnection:
    """An open connection. Another host key, or a host that does not let us in, is not retried."""
    for attempt in range(1, attempts):
        with contextlib.suppress(UnreachableError):
            return await _connect_once(connection, credentials, tried)
        await asyncio.sleep(CONNECT_PAUSE_SECONDS * attempt)
    return await _connect_once(connection, credentials, tried)


async def _connect_once(
    connection: HostConnection, credentials: SshCredentials, tried: str
) -> asyncssh.SSHClientConnection:
    kind: type[AdapterError]
    expected = asyncssh.import_public_key(connection.host_key)
    pinned = PinnedKey(expected)
    tunnel = _tunnel(connection, tried)
    patience = TUNNEL_TIMEOUT_SECONDS if tunnel else CONNECT_TIMEOUT_SECONDS
    try:
        link, _ = await asyncssh.create_connection(
            lambda: pinned,
            connection.address,
            connection.port,
            username=connection.user,
            config=None,  # what is in somebody's ~/.ssh/config must not change where we go
            known_hosts=([], [], []),
            server_host_key_algs=_algorithms(connection.host_key),
            client_keys=credentials.keys(),
            agent_path=credentials.agent_path,
            preferred_auth="publickey",
            proxy_command=tunnel,
            connect_timeout=patience,
            login_timeout=LOGIN_TIMEOUT_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVE_MISSES,
        )
    except (OSError, asyncssh.Error) as error:
        match error:
            case asyncssh.HostKeyNotVerifiable():
                kind = HostKeyMismatchError
                shown = pinned.presented.get_fingerprint() if pinned.presented else "no key"
                ours = expected.get_fingerprint()
                problem = f"the host shows the key {shown}, but {ours} is pinned for it"
                remedy = (
                    "if it was reinstalled, compare with `ssh-keygen -lf "
                    "/etc/ssh/ssh_host_ed25519_key.pub` on its console and change host-key; otherwise "
                    "somebody answers in its place"
                )
            case asyncssh.PermissionDenied():
                kind, user = DeniedError, connection.user
                problem = f"user {user} is not let in with the key from {credentials.source}"
                remedy = f"add its public key to authorized_keys of {user} on the host"
            case TimeoutError():
                kind, remedy = UnreachableError, _remedy(connection)
                problem = f"no SSH connection within {patience:g} s"
            case _:
                kind, remedy = UnreachableError, _remedy(connection)
                problem = f"no SSH connection ({_reason(error)})"
        raise kind(connection.target, tried, problem, remedy) from error
    return link


def _tunnel(connection: HostConnection, tried: str) -> tuple[str, ...] | None:
    """The command whose standard input and output lead to the host's SSH server; None if a network does."""
    if connection.iap is None:
        return None
    gcloud = shutil.which("gcloud")
    if gcloud is None:
        problem = "it is reached through Identity-Aware Proxy, and there is no gcloud here to open a tunnel"
        remedy = "install the Google Cloud CLI, or let SSH come from ranges of your own"
        raise UnreachableError(connection.target, tried, problem, remedy)
    iap = connection.iap
    way = (gcloud, "compute", "start-iap-tunnel", iap.instance, str(connection.port))
    ends = ("--listen-on-stdin", f"--project={iap.project}", f"--zone={iap.zone}")
    return (*way, *ends, "--verbosity=error", "--quiet")


def _algorithms(host_key: str) -> str:
    """Prefer the pinned key's type, so that a host with several keys shows that one."""
    kind = host_key.split()[0]
    return "^rsa-sha2-512,rsa-sha2-256" if kind == "ssh-rsa" else f"^{kind}"


def _remedy(connection: HostConnection) -> str:
    if connection.iap is None:
        return "check that the host is up and that address, port and firewall are right"
    return (
        "check that the machine is up, that its firewall lets in 35.235.240.0/20, and that this account has"
        " the role IAP-secured Tunnel User: `gcloud compute start-iap-tunnel` says what it lacks"
    )


def _reason(error: Exception) -> str:
    # asyncio puts the address into its text; the target already has it.
    number, text = getattr(error, "errno", 0) or 0, getattr(error, "strerror", "")
    return os.strerror(number) if number > 0 else text or str(error) or type(error).__name__
