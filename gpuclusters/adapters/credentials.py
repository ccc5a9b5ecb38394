"""Which private key opens the hosts: stack secret, file or agent, in this order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from gpuclusters.adapters.errors import NoCredentialsError

CONFIG_KEY = "gpu-clusters:ssh-private-key"
KEY_FILE_VARIABLE = "GPU_CLUSTERS_SSH_KEY_FILE"
AGENT_VARIABLE = "SSH_AUTH_SOCK"


@dataclass(frozen=True, slots=True)
class SshCredentials:
    """Either a private key or the path of an agent's socket; the source is for errors."""

    source: str
    private_key: str | None = field(default=None, repr=False)
    agent_path: str | None = None

    def keys(self) -> list[asyncssh.SSHKey] | None:
        """The key to log in with; None leaves it to the agent.

        Raises:
            NoCredentialsError: it is no private key, or has a passphrase.
        """
        if self.private_key is None:
            return None
        try:
            return [asyncssh.import_private_key(self.private_key)]
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise NoCredentialsError(
                self.source,
                "read the SSH private key",
                "it is not an unencrypted OpenSSH or PEM private key",
                "give the key without passphrase, or load it into an SSH agent",
            ) from error


def find_credentials(
    configured_key: object, environment: Mapping[str, str] = os.environ
) -> SshCredentials:
    """The first of stack secret, key file and agent that there is.

    Raises:
        NoCredentialsError: there is none of the three, or the key file cannot be read.
    """
    if isinstance(configured_key, str) and configured_key.strip():
        return SshCredentials(f"stack secret {CONFIG_KEY}", private_key=configured_key)
    path = environment.get(KEY_FILE_VARIABLE)
    if path:
        try:
            text = Path(path).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise NoCredentialsError(
                f"{KEY_FILE_VARIABLE}={path}",
                "read the SSH private key",
                getattr(error, "strerror", None) or "it is not text",
                "correct the path or its permissions",
            ) from error
        return SshCredentials(f"{KEY_FILE_VARIABLE}={path}", private_key=text)
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
