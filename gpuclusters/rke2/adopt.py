"""An RKE2 that somebody else installed: whether it is what is declared, so that it can be taken over.

Sources: RKE2's documentation of its configuration file (`config.yaml`, then `config.yaml.d` in order; what is
said last counts, `key+` adds to a list), K3s' documentation of tokens (`K10<hash>::<user>:<password>`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gpuclusters.core.adoption import tree
from gpuclusters.core.finding import Finding
from gpuclusters.host.model import sha256_of
from gpuclusters.rke2 import host_config, releases
from gpuclusters.rke2.model import LiveHost, Rke2NodeInputs
from gpuclusters.rke2.releases import Role

CONFIG_FILE = "/etc/rancher/rke2/config.yaml"
CONFIG_FOLDER = f"{CONFIG_FILE}.d"
SERVER_TOKEN = "/var/lib/rancher/rke2/server/token"  # noqa: S105 (where it is, not what)

_SECRET = {"token", "agent-token", "token-file", "agent-token-file"}
_ONLY_AT_REGISTRATION = {"node-label", "node-taint"}
"""Read when a node registers; afterwards the API has them, and `up` keeps them there."""
_HARMLESS = {releases.INOTIFY, releases.NETWORK_MANAGER}
"""What makes a host fit for RKE2 and changes nothing of one that runs."""
_DEFAULTS: Mapping[str, Any] = {
    "cluster-cidr": str(host_config.POD_CIDR),
    "cluster-dns": "10.43.0.10",
    "cluster-domain": "cluster.local",
    "cni": "canal",
    "disable": [],
    "disable-kube-proxy": False,
    "etcd-snapshot-retention": 5,
    "etcd-snapshot-schedule-cron": "0 */12 * * *",
    "selinux": False,
    "service-cidr": str(host_config.SERVICE_CIDR),
    "write-kubeconfig-mode": "0600",
}
"""What RKE2 does where its configuration says nothing."""


def configuration(documents: Mapping[str, bytes]) -> dict[str, Any]:
    """What RKE2 reads from these files, by path; a ValueError holds nothing of them."""
    merged: dict[str, Any] = {}
    main = [path for path in documents if path == CONFIG_FILE]
    for path in [*main, *sorted(set(documents) - {CONFIG_FILE})]:
        try:
            body = yaml.safe_load(documents[path])
        except (yaml.YAMLError, UnicodeDecodeError):
            raise ValueError(f"{path} is not YAML") from None
        for key, value in body.items() if isinstance(body, dict) else ():
            if key.endswith("+"):
                merged[key[:-1]] = [*_list(merged.get(key[:-1])), *_list(value)]
            else:
                merged[key] = value
    return merged


def differences(
    inputs: Rke2NodeInputs, live: LiveHost, documents: Mapping[str, bytes], server_token: str
) -> Iterator[Finding]:
    """How the RKE2 of a host is not what is declared; nothing where there is none.

    `documents` are its configuration files by path, `server_token` is what a server keeps.
    """
    found = _differences(inputs, live, documents, server_token)
    yield from (Finding("rke2.foreign", problem) for problem in found)


def _differences(
    inputs: Rke2NodeInputs, live: LiveHost, documents: Mapping[str, bytes], server_token: str
) -> Iterator[str]:
    if not live.version or live.owner == inputs.natural_id:
        return
    if live.owner:
        yield f"RKE2 on it belongs to {live.owner}"
        return
    if live.version != inputs.version:
        yield f"RKE2 is {live.version} instead of {inputs.version}"
    if live.active.get(inputs.role) != "active":
        yield f"rke2-{inputs.role} does not run"
    try:
        found = configuration(documents)
    except ValueError as error:
        yield str(error)
        return
    yield from _config(inputs, found)
    yield from _tokens(inputs, found, server_token)
    for path, content in sorted(inputs.files.items()):
        digest = live.file.get(path)
        if digest is not None and digest != sha256_of(content.encode()):
            yield f"{path} has other content (sha256 {digest[:12]})"
        elif digest is None and path not in _HARMLESS:
            yield f"{path} is not there"


def _config(inputs: Rke2NodeInputs, found: Mapping[str, Any]) -> Iterator[str]:
    passed_over = _SECRET | _ONLY_AT_REGISTRATION
    for key in sorted((found.keys() | inputs.config.keys()) - passed_over):
        default = inputs.node_name if key == "node-name" else _DEFAULTS.get(key)
        there, here = found.get(key, default), inputs.config.get(key, default)
        if isinstance(there, list | tuple) or isinstance(here, list | tuple):
            there, here = sorted(map(str, _list(there))), sorted(map(str, _list(here)))
        yield from tree(key, there, here)


def _tokens(inputs: Rke2NodeInputs, found: Mapping[str, Any], server_token: str) -> Iterator[str]:
    stated = found.get("token") or (server_token if inputs.role is Role.SERVER else "")
    if not stated:
        yield "its token is in another file than its configuration; write it there as token"
    elif _password(str(stated)) != _password(inputs.token):
        kind = "server" if inputs.role is Role.SERVER else "agent"
        yield (
            f"it has another token; set the secret gpu-clusters:{kind}-token to the cluster's own "
            f"({SERVER_TOKEN} on a server)"
        )
    agents = str(found.get("agent-token") or stated)
    wanted = inputs.agent_token if inputs.role is Role.SERVER else None
    if wanted is not None and stated and _password(agents) != _password(wanted):
        yield (
            "agents join it with another token; set the secret gpu-clusters:agent-token to the "
            "cluster's own (that of the servers, where it has none for agents)"
        )


def _password(token: str) -> str:
    """The part of a token that counts: it may come with the hash of the cluster's CA and a user."""
    text = token.strip()
    return text.rpartition(":")[2] if text.startswith("K10") else text


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return [*value] if isinstance(value, list | tuple) else [value]
