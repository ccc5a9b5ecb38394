"""How providers reach Google Cloud: as the account that Pulumi's own provider for it would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulumi.dynamic import ConfigureRequest

if TYPE_CHECKING:
    from gpuclusters.adapters.google_compute import GoogleCompute

ENDPOINT_KEY = "gcp:computeCustomEndpoint"
IMPERSONATE_KEY = "gcp:impersonateServiceAccount"
UNUSED_KEYS = ("gcp:accessToken", "gcp:credentials", "gcp:externalCredentials")
"""Credentials in the stack's configuration: Pulumi's provider would act as another account than we."""


@dataclass(frozen=True, slots=True)
class GoogleCloud:
    """What the stack's configuration says of Google Cloud."""

    endpoint: str = ""
    impersonate: str = ""
    refused: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: ConfigureRequest) -> GoogleCloud:
        """Read from the configuration that a provider gets."""
        config = request.config
        return cls(
            endpoint=str(config.get(ENDPOINT_KEY) or ""),
            impersonate=str(config.get(IMPERSONATE_KEY) or ""),
            refused=tuple(key for key in UNUSED_KEYS if config.get(key)),
        )

    def compute(self) -> GoogleCompute:
        """The Compute API.

        Raises:
            RefusalError: the configuration holds credentials of its own.
            AdapterError: the endpoint is not safe for a token.
        """
        # Imported late: a preview reaches nothing.
        from gpuclusters.adapters.google_compute import GoogleCompute
        from gpuclusters.adapters.google_credentials import GoogleCredentials
        from gpuclusters.adapters.google_rest import ENDPOINT, GoogleRest
        from gpuclusters.domain.refusals import RefusalError

        if self.refused:
            raise RefusalError(
                "Google Cloud",
                f"the stack's configuration has {' and '.join(self.refused)}, which reach Pulumi's"
                " provider and not those that make machines",
                "remove them, and use application default credentials or GOOGLE_OAUTH_ACCESS_TOKEN",
            )
        credentials = GoogleCredentials(self.impersonate)
        return GoogleCompute(GoogleRest(credentials.token, self.endpoint or ENDPOINT))
