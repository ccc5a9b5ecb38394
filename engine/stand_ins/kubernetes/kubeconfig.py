"""How to reach a cluster: a kubeconfig's active context as an address, a TLS context and headers."""

import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from engine.answers import ProviderError
from engine.stand_ins.unnamed_file import path_of, unnamed


@dataclass(frozen=True)
class Cluster:
    server: str
    namespace: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | None
    tls_server_name: str | None
    kubeconfig: str


def find(option: str) -> str:
    """The text of the kubeconfig that `option` holds or points at; without it, what kubectl would use.

    Raises:
        ProviderError: there is none, or it cannot be read.
    """
    if option and ("\n" in option or option.lstrip().startswith("{")):
        return option
    path = Path(option or _ambient()).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        source = "provider option kubeconfig" if option else "KUBECONFIG or the default"
        raise ProviderError(
            f"kubeconfig {path} (from {source}) cannot be read: {error.strerror}; "
            "set kubernetes:kubeconfig to a kubeconfig's path or content"
        ) from error


def _ambient() -> str:
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if len(paths) > 1:
        raise ProviderError(
            f"KUBECONFIG names {len(paths)} files; the stand-in does not merge them: name one"
        )
    return paths[0] if paths else "~/.kube/config"


def active_cluster(text: str) -> Mapping[str, Any]:
    """The cluster entry in use; empty if there is none. Tells whether two configs mean the same cluster."""
    try:
        config = yaml.safe_load(text)
        entry = _entry(config, "context", config.get("current-context", ""))
        return _entry(config, "cluster", entry.get("cluster", ""))
    except (yaml.YAMLError, AttributeError, ProviderError):
        return {}


def load(text: str) -> Cluster:
    """The active context of a kubeconfig, with what it refers to read in.

    Raises:
        ProviderError: it is malformed, incomplete, or needs what the stand-in cannot do.
    """
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ProviderError(
            f"the kubeconfig is not YAML: {str(error).splitlines()[0]}; "
            "set kubernetes:kubeconfig to a kubeconfig's path or content"
        ) from error
    if not isinstance(config, Mapping):
        raise ProviderError("the kubeconfig is not a mapping; is it a path that does not exist?")
    name = config.get("current-context") or ""
    entry = _entry(config, "context", name)
    server = _entry(config, "cluster", entry.get("cluster", ""))
    user = _entry(config, "user", entry["user"]) if entry.get("user") else {}
    _refuse(user, ("exec", "auth-provider", "as", "as-groups", "as-uid", "as-user-extra"), "user")
    _refuse(server, ("proxy-url",), "cluster")
    address = str(server.get("server") or "").rstrip("/")
    if not address:
        raise ProviderError(f"the kubeconfig's cluster for context {name!r} has no server address")
    return Cluster(
        server=address,
        namespace=str(entry.get("namespace") or "default"),
        headers=_headers(user),
        tls=_tls(server, user) if address.startswith("https:") else None,
        tls_server_name=server.get("tls-server-name"),
        kubeconfig=text,
    )


def _entry(config: Mapping[str, Any], what: str, name: str) -> Mapping[str, Any]:
    for item in config.get(f"{what}s") or []:
        if item.get("name") == name:
            return item.get(what) or {}
    known = ", ".join(sorted(str(item.get("name")) for item in config.get(f"{what}s") or []))
    raise ProviderError(f"the kubeconfig has no {what} {name!r}; it has: {known or 'none'}")


def _refuse(entry: Mapping[str, Any], keys: tuple[str, ...], what: str) -> None:
    for key in keys:
        if entry.get(key):
            raise ProviderError(
                f"the kubeconfig's {what} uses {key!r}, which the kubernetes stand-in does not support; "
                "use a client certificate or a token"
            )


def _headers(user: Mapping[str, Any]) -> dict[str, str]:
    token = user.get("token")
    if not token and user.get("tokenFile"):
        token = _file(user["tokenFile"], "tokenFile").decode().strip()
    if token:
        return {"Authorization": f"Bearer {token}"}
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _tls(server: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _data(server, "certificate-authority")
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if server.get("insecure-skip-tls-verify"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate, key = _data(user, "client-certificate"), _data(user, "client-key")
        if certificate and key:
            _load_pair(context, certificate, key)
    except ssl.SSLError as error:
        raise ProviderError(
            f"a certificate or key in the kubeconfig cannot be used: {error}"
        ) from error
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Hand a certificate over; the ssl module takes it from files only."""
    with unnamed(certificate) as chain, unnamed(key) as private:
        context.load_cert_chain(path_of(chain), path_of(private))


def _data(entry: Mapping[str, Any], key: str) -> bytes | None:
    inline = entry.get(f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except binascii.Error as error:
            raise ProviderError(f"{key}-data in the kubeconfig is not base64: {error}") from error
    return _file(entry[key], key) if entry.get(key) else None


def _file(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ProviderError(f"{key} {path} of the kubeconfig: {error.strerror}") from error
