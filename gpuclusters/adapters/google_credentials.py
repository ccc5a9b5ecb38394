"""As whom Google Cloud is asked: the token in the environment, else application default credentials.

The same order as Pulumi's provider for Google Cloud has, so that both act as the same account.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Mapping
from typing import Any

import urllib3

from gpuclusters.core.errors import NoCredentialsError

TOKEN_VARIABLE = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (the name of a variable)
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_WHERE = "Google Cloud"
_TRIED = "find credentials"


class GoogleCredentials:
    """Tokens for requests; made anew when one is about to end. May be used by several threads."""

    def __init__(self, impersonate: str = "", environment: Mapping[str, str] = os.environ) -> None:
        self._impersonate = impersonate
        self._environment = environment
        self._lock = threading.Lock()
        self._found: Any = None

    def token(self) -> str:
        """A bearer token.

        Raises:
            NoCredentialsError: there are none, or they cannot be used.
        """
        given = self._environment.get(TOKEN_VARIABLE)
        if given and not self._impersonate:
            return given
        with self._lock:
            return self._from_library()

    def _from_library(self) -> str:
        try:
            # Loaded late: only a machine on Google Cloud needs it.
            auth = importlib.import_module("google.auth")
            errors = importlib.import_module("google.auth.exceptions")
            transport = importlib.import_module("google.auth.transport.urllib3")
        except ModuleNotFoundError as error:
            raise NoCredentialsError(
                _WHERE,
                _TRIED,
                f"the package google-auth is not installed ({error.name} is missing)",
                f"run `pip install -r requirements.lock`, or set {TOKEN_VARIABLE} to what"
                " `gcloud auth print-access-token` prints",
            ) from error
        request = transport.Request(urllib3.PoolManager())
        try:
            if self._found is None:
                self._found, _ = auth.default(scopes=[SCOPE], request=request)
                self._found = self._acting_as(self._found)
            if not self._found.valid:
                self._found.refresh(request)
        except errors.GoogleAuthError as error:
            raise NoCredentialsError(
                _WHERE,
                _TRIED,
                str(error).splitlines()[0] if str(error) else type(error).__name__,
                "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
                f" or {TOKEN_VARIABLE}",
            ) from error
        return str(self._found.token)

    def _acting_as(self, found: Any) -> Any:
        if not self._impersonate:
            return found
        impersonated = importlib.import_module("google.auth.impersonated_credentials")
        return impersonated.Credentials(
            source_credentials=found,
            target_principal=self._impersonate,
            target_scopes=[SCOPE],
        )
