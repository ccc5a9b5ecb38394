"""The SSH host key of a machine that does not exist yet, made once and kept as a secret of the stack."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi.dynamic import CreateResult

from gpuclusters.providers.generated_secret import GeneratedSecret
from gpuclusters.providers.resource import Resource


class SshHostKeyProvider(GeneratedSecret):
    """Makes a key pair, once: the first connection to the machine is verified already."""

    owner = "machine"

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make it; no machine is touched, so nothing is lost if this is interrupted."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        machine = str(props["machine"])
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        outputs = {"private_key": private.decode(), "public_key": public.decode()}
        return CreateResult(f"{machine}/ssh-host-key", {"machine": machine, **outputs})


class SshHostKey(Resource, module="gpu", name="SshHostKey"):
    """An Ed25519 key pair for the SSH server of one machine."""

    private_key: pulumi.Output[str]
    """In OpenSSH's format. Secret: who has it can pretend to be the machine."""
    public_key: pulumi.Output[str]
    """Type and key, as a connection pins it."""

    def __init__(
        self, name: str, *, machine: str, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["private_key"])
        super().__init__(
            name,
            {"machine": machine, "private_key": None, "public_key": None},
            pulumi.ResourceOptions.merge(opts, secret),
        )
