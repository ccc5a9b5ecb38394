"""`gpu-clusters google-token`: what the kubeconfig of a gke cluster calls to log in."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from gpuclusters.gcp.api import GoogleCredentials
from gpuclusters.gcp.kubeconfig import credential

_MINUTES = 10
"""A token is good for an hour, but one that was given in the environment may end at any time."""


def command(
    impersonate: Annotated[str, typer.Option(help="Act as this account of Google Cloud.")] = "",
) -> None:
    """Print a token of Google Cloud as kubectl wants it; kubeconfigs of gke clusters call this."""
    if sys.stdout.isatty():
        raise typer.BadParameter("the token is for kubectl and would stay in the terminal")
    token = GoogleCredentials(impersonate).token()
    expires = datetime.now(UTC) + timedelta(minutes=_MINUTES)
    sys.stdout.write(json.dumps(credential(token, expires.strftime("%Y-%m-%dT%H:%M:%SZ"))))
