"""The certificate of the public API, as a Secret in the API's namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Secret

from components.caas.program import PART_OF

NAME = "api-tls"


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """An issuer of cert-manager, and the host that it is asked for."""

    kind: str
    name: str
    host: str


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate that is there, and its key."""

    chain: pulumi.Input[str]
    """In PEM, the server's own first."""
    private_key: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class ApiCertificateArgs:
    """Where it comes from, and where it is needed."""

    namespace: pulumi.Input[str]
    source: Issuer | Pair


class ApiCertificate(pulumi.ComponentResource):
    """Owns the Secret, or the Certificate from which cert-manager makes it."""

    secret: pulumi.Output[str]
    """Name of the Secret, of type kubernetes.io/tls."""

    def __init__(
        self, name: str, args: ApiCertificateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:ApiCertificate", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        metadata: Any = {"name": NAME, "namespace": args.namespace, "labels": PART_OF}
        if isinstance(args.source, Pair):
            made = Secret(
                f"{name}-secret",
                metadata=metadata,
                type="kubernetes.io/tls",
                string_data={
                    "tls.crt": args.source.chain,
                    "tls.key": pulumi.Output.secret(args.source.private_key),
                },
                opts=child,
            )
            self.secret = made.metadata.name
        else:
            asked = CustomResource(
                f"{name}-certificate",
                api_version="cert-manager.io/v1",
                kind="Certificate",
                metadata=metadata,
                spec={
                    "secretName": NAME,
                    "dnsNames": [args.source.host],
                    "issuerRef": {
                        "group": "cert-manager.io",
                        "kind": args.source.kind,
                        "name": args.source.name,
                    },
                    "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                    "usages": ["digital signature", "server auth"],
                },
                opts=child,
            )
            self.secret = asked.id.apply(lambda _: NAME)
        self.register_outputs({"secret": self.secret})
