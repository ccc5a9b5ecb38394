"""The provider's own options: which are understood, and what they mean."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.answers import Checked, Failure, ProviderError
from engine.stand_ins.calls import Diff, Kind
from engine.stand_ins.kubernetes import kubeconfig
from engine.stand_ins.kubernetes.replacement import Mutability
from engine.stand_ins.values import Properties, Value, plain_properties
from engine.values import Unknown

_TEXTS: Final = ("kubeconfig", "clusterIdentifier")

# Option → environment variable that the real provider reads when the option is not set.
_SWITCHES: Final = {
    "enableServerSideApply": "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY",
    "deleteUnreachable": "PULUMI_K8S_DELETE_UNREACHABLE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
}
_VARIABLES: Final = "PULUMI_K8S_"
_REFUSED: Final = {
    "cluster": "write it into the kubeconfig's context",
    "context": "make it the kubeconfig's current-context",
    "namespace": "give each object its namespace",
    "skipUpdateUnreachable": "run again when the cluster answers",
    "enablePatchForce": "annotate the object with pulumi.com/patchForce",
    "suppressDeprecationWarnings": "all warnings are shown",
    "suppressHelmHookWarnings": "all warnings are shown",
    "renderYamlToDirectory": "the stand-in always talks to a cluster",
    "alwaysRender": "the stand-in always talks to a cluster",
    "helmReleaseSettings": "the stand-in keeps helm's own folders to itself",
    "kubeClientSettings": "the stand-in has no client-side rate limit",
    "strictMode": "give kubeconfig and context explicitly instead",
}
_BOOKKEEPING: Final = ("version", "pluginDownloadURL", "__internal")


@dataclass(frozen=True)
class Options:
    kubeconfig: str = ""
    delete_unreachable: bool = False
    upsert: bool = False
    mutability: Mutability = field(default_factory=Mutability)


def check(inputs: Properties) -> Checked:
    """Refuse, by name, what the stand-in cannot do."""
    failures = [
        Failure("", f"{name} is set, which the kubernetes stand-in does not follow; unset it")
        for name, value in sorted(os.environ.items())
        if name.startswith(_VARIABLES)
        and name not in _SWITCHES.values()
        and _truth(value) is not False
    ]
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
    return Options(
        kubeconfig=str(values.get("kubeconfig") or ""),
        delete_unreachable=_switch(values, "deleteUnreachable"),
        upsert=_switch(values, "upsertExistingObjects"),
        mutability=Mutability(
            config_map=_switch(values, "enableConfigMapMutable"),
            secret=_switch(values, "enableSecretMutable"),
        ),
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
    moved = ""
    if "clusterIdentifier" in changes:
        moved = "clusterIdentifier"
    elif "kubeconfig" in changes and not new.get("clusterIdentifier"):
        unknown = isinstance(new.get("kubeconfig"), Unknown)
        moved = "kubeconfig" if unknown or _cluster(old) != _cluster(new) else ""
    return Diff(
        {key: kind.with_replace() if key == moved else kind for key, kind in changes.items()}
    )


def _cluster(values: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return kubeconfig.active_cluster(kubeconfig.find(str(values.get("kubeconfig") or "")))
    except ProviderError:
        return {}


def _truth(value: Value) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False, "": False, None: False}.get(value)


def _switch(values: Mapping[str, Any], key: str, *, default: bool = False) -> bool:
    value = values.get(key)
    if value is None:
        value = os.environ.get(_SWITCHES[key])
    return default if value is None else bool(_truth(value))
