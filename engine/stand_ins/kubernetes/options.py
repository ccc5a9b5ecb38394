"""The provider's own options: which are understood, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.stand_ins.calls import Checked, Diff, Failure, Kind, ProviderError
from engine.stand_ins.kubernetes import kubeconfig
from engine.stand_ins.kubernetes.replacement import Mutability
from engine.stand_ins.values import Properties, Unknown, Value, plain_properties

_TEXTS: Final = ("kubeconfig", "context", "cluster", "namespace", "clusterIdentifier")

# Option → environment variable that the real provider reads when the option is not set.
_SWITCHES: Final = {
    "enableServerSideApply": "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY",
    "deleteUnreachable": "PULUMI_K8S_DELETE_UNREACHABLE",
    "skipUpdateUnreachable": "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE",
    "enablePatchForce": "PULUMI_K8S_ENABLE_PATCH_FORCE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
    "suppressDeprecationWarnings": "PULUMI_K8S_SUPPRESS_DEPRECATION_WARNINGS",
    "suppressHelmHookWarnings": "PULUMI_K8S_SUPPRESS_HELM_HOOK_WARNINGS",
}
_REFUSED: Final = {
    "renderYamlToDirectory": "the stand-in always talks to a cluster",
    "alwaysRender": "the stand-in always talks to a cluster",
    "helmReleaseSettings": "the stand-in keeps helm's own folders to itself",
    "kubeClientSettings": "the stand-in has no client-side rate limit",
    "strictMode": "give kubeconfig and context explicitly instead",
}
_BOOKKEEPING: Final = ("version", "pluginDownloadURL", "__internal")


@dataclass(frozen=True)
class Options:
    """Provider options with their defaults."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    namespace: str = ""
    delete_unreachable: bool = False
    skip_update_unreachable: bool = False
    patch_force: bool = False
    upsert: bool = False
    mutability: Mutability = field(default_factory=Mutability)
    suppress_deprecation_warnings: bool = False


def check(inputs: Properties) -> Checked:
    """Refuse, by name, what the stand-in cannot do."""
    failures = []
    values = plain_properties(inputs)
    for key, value in values.items():
        if key in _REFUSED and value not in (None, "", "{}", "false", False, {}):
            failures.append(
                Failure(key, f"{key} is not supported by the kubernetes stand-in: {_REFUSED[key]}")
            )
        elif key not in (*_TEXTS, *_SWITCHES, *_REFUSED, *_BOOKKEEPING):
            known = ", ".join(sorted((*_TEXTS, *_SWITCHES)))
            failures.append(Failure(key, f"{key} is not a provider option; there are: {known}"))
        elif key in _SWITCHES and not isinstance(value, Unknown) and _truth(value) is None:
            failures.append(Failure(key, f"{key} must be true or false (got {value!r})"))
    if not _switch(values, "enableServerSideApply", default=True):
        failures.append(
            Failure(
                "enableServerSideApply",
                "the kubernetes stand-in works by server-side apply only; leave enableServerSideApply out",
            )
        )
    return Checked(inputs, failures)


def parse(values: Mapping[str, Any]) -> Options:
    """Options out of checked inputs."""

    def text(key: str) -> str:
        return str(values.get(key) or "")

    return Options(
        kubeconfig=text("kubeconfig"),
        context=text("context"),
        cluster=text("cluster"),
        namespace=text("namespace"),
        delete_unreachable=_switch(values, "deleteUnreachable"),
        skip_update_unreachable=_switch(values, "skipUpdateUnreachable"),
        patch_force=_switch(values, "enablePatchForce"),
        upsert=_switch(values, "upsertExistingObjects"),
        mutability=Mutability(
            config_map=_switch(values, "enableConfigMapMutable"),
            secret=_switch(values, "enableSecretMutable"),
        ),
        suppress_deprecation_warnings=_switch(values, "suppressDeprecationWarnings"),
    )


def diff(olds: Properties, news: Properties) -> Diff:
    """What changed; a different cluster replaces the provider and with it all that is in the cluster.

    As in the real provider, `clusterIdentifier` alone decides where it is set; otherwise it is the address
    and certificate authority of the active cluster, and what is not known yet counts as different.
    """
    old, new = plain_properties(olds), plain_properties(news)
    changes = {
        key: Kind.ADD if key not in old else Kind.DELETE if key not in new else Kind.UPDATE
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    }
    location: list[str] = [key for key in ("kubeconfig", "context", "cluster") if key in changes]
    moved: list[str]
    if "clusterIdentifier" in changes:
        moved = ["clusterIdentifier"]
    elif new.get("clusterIdentifier"):
        moved = []
    elif any(isinstance(new.get(key), Unknown) for key in location):
        moved = [key for key in location if isinstance(new.get(key), Unknown)]
    else:
        moved = location if location and _cluster(old) != _cluster(new) else []
    return Diff(
        {key: kind.with_replace() if key in moved else kind for key, kind in changes.items()}
    )


def _cluster(values: Mapping[str, Any]) -> Mapping[str, Any]:
    texts = {key: str(values.get(key) or "") for key in ("kubeconfig", "context", "cluster")}
    try:
        content = kubeconfig.find(texts["kubeconfig"])
    except ProviderError:
        return {}
    return kubeconfig.active_cluster(content, texts["context"], texts["cluster"])


def _truth(value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False, "": False, None: False}.get(value)


def _switch(values: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    value = values.get(key)
    if value is None:
        value = os.environ.get(_SWITCHES[key])
    return default if value is None else bool(_truth(value))
