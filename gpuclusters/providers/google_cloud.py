"""How providers reach Google Cloud: as the account that Pulumi's own provider for it would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi

from gpuclusters.core.finding import refused
from gpuclusters.domain.gcp_machine import GoogleAccess

if TYPE_CHECKING:
    from gpuclusters.adapters.google_compute import GoogleCompute

UNUSED_KEYS = ("accessToken", "credentials", "externalCredentials")
"""Credentials in the stack's configuration: Pulumi's provider would act as another account than we."""


def access() -> dict[str, object]:
    """What the configuration of the stack says, as an input of our resources."""
    config = pulumi.Config("gcp")
    return GoogleAccess(
        endpoint=config.get("computeCustomEndpoint") or "",
        impersonate=config.get("impersonateServiceAccount") or "",
        refused=tuple(f"gcp:{key}" for key in UNUSED_KEYS if config.get(key)),
    ).model_dump(mode="json")


def compute(google: GoogleAccess) -> GoogleCompute:
    """The Compute API.

    Raises:
        Refused: the configuration holds credentials of its own.
        AdapterError: the endpoint is not safe for a token.
    """
    # Imported late: a preview reaches nothing.
    from gpuclusters.adapters.google_compute import GoogleCompute
    from gpuclusters.adapters.google_credentials import GoogleCredentials
    from gpuclusters.adapters.google_rest import ENDPOINT, GoogleRest

    if google.refused:
        raise refused(
            "Google Cloud",
            "gcp.other-credentials",
            f"the stack's configuration has {' and '.join(google.refused)}, which reach Pulumi's"
            " provider and not those that make machines",
            "remove them, and use application default credentials or GOOGLE_OAUTH_ACCESS_TOKEN",
        )
    credentials = GoogleCredentials(google.impersonate)
    return GoogleCompute(GoogleRest(credentials.token, google.endpoint or ENDPOINT))
