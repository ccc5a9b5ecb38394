"""A client for the API server that a kubeconfig names, without leaving a secret on the disk."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config

from gpuclusters.core.errors import NoCredentialsError

_WHERE = "kubeconfig"
_TRIED = "read it"


def api_client(kubeconfig: str, *, retries: urllib3.Retry) -> client.ApiClient:
    """A client for the current context that repeats requests as `retries` says.

    The library writes certificates and keys from a kubeconfig to temporary files and removes them
    only at an orderly exit, which a provider process does not have. So they are taken out before
    and put into a TLS context here.

    Raises:
        NoCredentialsError: it is no kubeconfig, or one that we refuse.
    """
    document = _document(kubeconfig)
    cluster, user = _current(document)
    if cluster.get("insecure-skip-tls-verify"):
        raise NoCredentialsError(
            _WHERE,
            _TRIED,
            "it asks for insecure-skip-tls-verify, so anybody could answer as the API server",
            "give the server's certificate authority instead",
        )
    context = _tls(cluster, user)
    configuration = client.Configuration()
    configuration.retries = retries
    try:
        config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
            document, client_configuration=configuration, persist_config=False
        )
    except config.ConfigException as error:
        raise _unusable("the client library cannot use it") from error
    made = client.ApiClient(configuration)
    made.rest_client.pool_manager.connection_pool_kw["ssl_context"] = context
    return made


def _unusable(problem: str) -> NoCredentialsError:
    return NoCredentialsError(_WHERE, _TRIED, problem, "check with `kubectl --kubeconfig`")


def _document(kubeconfig: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(kubeconfig)
    except yaml.YAMLError:
        # Not chained: the message of the YAML parser quotes the line, which may be a key.
        raise _unusable("it is not YAML") from None
    if not isinstance(document, dict) or not document.get("current-context"):
        raise _unusable("it has no current-context")
    return document


def _current(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    context = _named(document, "contexts", document["current-context"], "context")
    return (
        _named(document, "clusters", context.get("cluster"), "cluster"),
        _named(document, "users", context.get("user"), "user"),
    )


def _named(document: dict[str, Any], section: str, name: object, key: str) -> dict[str, Any]:
    for entry in document.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(key)
            if isinstance(found, dict):
                return found
    raise _unusable(f"its current context names {key} {name!r}, which is not in it")


def _tls(cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    """The TLS context of embedded certificates, which are removed from the document."""
    try:
        authority = _decoded(cluster.pop("certificate-authority-data", None))
        context = ssl.create_default_context(
            cafile=cluster.get("certificate-authority"),
            cadata=authority.decode("ascii") if authority else None,
        )
        certificate = _decoded(user.pop("client-certificate-data", None))
        key = _decoded(user.pop("client-key-data", None))
        if certificate and key:
            # OpenSSL reads client keys from files only; this one lives for a moment, mode 0600.
            with tempfile.TemporaryDirectory(prefix="gpu-clusters-") as folder:
                path = Path(folder) / "client.pem"
                path.touch(mode=0o600)
                path.write_bytes(certificate + b"\n" + key)
                context.load_cert_chain(path)
        elif user.get("client-certificate"):
            context.load_cert_chain(user["client-certificate"], user.get("client-key"))
    except (ssl.SSLError, OSError, binascii.Error, UnicodeDecodeError) as error:
        raise _unusable("its certificates or client key cannot be loaded") from error
    return context


def _decoded(value: object) -> bytes | None:
    return base64.b64decode(value, validate=False) if isinstance(value, str) else None
