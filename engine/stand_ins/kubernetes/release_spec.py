"""A Helm release as the program asks for it: defaults, refusals, and helm's flags for it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from engine.stand_ins.calls import CheckCall, Failure, ProviderError
from engine.stand_ins.values import (
    Asset,
    Properties,
    Secret,
    Value,
    contains_unknown,
    plain_properties,
)

Verb = Literal["install", "upgrade"]

DEFAULT_TIMEOUT_SECONDS: Final = 300

# What the real provider's check adds to what the program says, and keeps: every switch and every text
# (`Release` in its provider/pkg/provider/helm_release.go; an int without a value stays out).
_DEFAULTS: Final[Mapping[str, Value]] = {
    **dict.fromkeys(
        (
            "allowNullValues",
            "atomic",
            "cleanupOnFail",
            "createNamespace",
            "dependencyUpdate",
            "devel",
            "disableCRDHooks",
            "disableOpenapiValidation",
            "disableWebhooks",
            "forceUpdate",
            "lint",
            "recreatePods",
            "renderSubchartNotes",
            "replace",
            "resetValues",
            "reuseValues",
            "skipAwait",
            "skipCrds",
            "takeOwnership",
            "verify",
            "waitForJobs",
        ),
        False,
    ),
    **dict.fromkeys(("description", "keyring", "postrender"), ""),
}

_REFUSED: Final = {
    "lint": "run `helm lint` beside it",
    "postrender": "helm 4 takes plugins only",
    "recreatePods": "helm has dropped it",
    "replace": "it reuses the names of deleted releases",
}
_REPOSITORY: Final = {
    "repo": "--repo",
    "caFile": "--ca-file",
    "certFile": "--cert-file",
    "keyFile": "--key-file",
}
# Option → flag, where a true value means the flag.
_SWITCHES: Final = {
    "createNamespace": "--create-namespace",
    "dependencyUpdate": "--dependency-update",
    "disableOpenapiValidation": "--disable-openapi-validation",
    "renderSubchartNotes": "--render-subchart-notes",
    "skipCrds": "--skip-crds",
    "takeOwnership": "--take-ownership",
    "verify": "--verify",
}
_OF_UPGRADES: Final = {
    "cleanupOnFail": "--cleanup-on-fail",
    "resetValues": "--reset-values",
    "reuseValues": "--reuse-values",
}
# Flags that helm 4 has renamed: option → (helm 3, helm 4).
_RENAMED: Final = {
    "atomic": ("--atomic", "--rollback-on-failure"),
    "forceUpdate": ("--force", "--force-replace"),
}
_VALUED: Final = {
    "description": "--description",
    "keyring": "--keyring",
    "maxHistory": "--history-max",
}
_OTHER: Final = (
    "allowNullValues",  # has no effect in the real provider either: null values are always kept
    "chart",
    "compat",
    "devel",
    "disableCRDHooks",
    "disableWebhooks",
    "name",
    "namespace",
    "repositoryOpts",
    "skipAwait",
    "timeout",
    "valueYamlFiles",
    "values",
    "version",
    "waitForJobs",
)
_KNOWN: Final = frozenset({*_SWITCHES, *_OF_UPGRADES, *_RENAMED, *_VALUED, *_OTHER})
_OUTPUTS: Final = ("manifest", "resourceNames", "status", "checksum")


def refusals(inputs: Mapping[str, Value]) -> list[Failure]:
    """Options that the stand-in cannot follow, each by name."""
    failures = []
    for key, value in inputs.items():
        if key in _REFUSED and value not in (None, False, ""):
            failures.append(
                Failure(key, f"{key} is not supported by the kubernetes stand-in: {_REFUSED[key]}")
            )
        elif key not in (*_KNOWN, *_REFUSED, *_OUTPUTS):
            failures.append(Failure(key, f"{key} is not an option of a Helm release"))
    repository = inputs.get("repositoryOpts")
    if isinstance(repository, Secret):
        repository = repository.value
    failures += [
        Failure(
            f"repositoryOpts.{key}",
            f"{key} is not supported by the kubernetes stand-in: it does not log in to chart repositories; "
            "give chart the path of a downloaded chart",
        )
        for key, value in (repository if isinstance(repository, Mapping) else {}).items()
        if key not in _REPOSITORY and value
    ]
    if not inputs.get("chart"):
        failures.append(
            Failure("chart", "chart is missing: a path, or a chart's name with a repository")
        )
    return failures


def with_defaults(call: CheckCall, namespace: str) -> Properties:
    """All inputs that the real provider keeps: name, namespace, defaults, and all values in one place.

    Raises:
        ProviderError: a file of values cannot be read.
    """
    inputs = {key: value for key, value in call.news.items() if key not in _OUTPUTS}
    if not inputs.get("name"):
        old = call.olds.get("name")
        inputs["name"] = old or f"{call.resource.name}-{secrets.token_hex(4)}"
    inputs["namespace"] = inputs.get("namespace") or namespace
    if not inputs.get("skipAwait"):
        inputs.setdefault("timeout", DEFAULT_TIMEOUT_SECONDS)
    files = inputs.pop("valueYamlFiles", None)
    if contains_unknown(files):
        inputs["valueYamlFiles"] = files
    elif files:
        inputs["values"] = merged_values(files, inputs.get("values"))
    # A word of the SDK to the first versions of the provider, which drops it.
    inputs.pop("compat", None)
    if inputs.get("repositoryOpts"):
        inputs["repositoryOpts"] = _completed_repository(inputs["repositoryOpts"])
    return {**_DEFAULTS, "timeout": 0, "values": {}, "version": "", **inputs}


def _completed_repository(options: Value) -> Value:
    if isinstance(options, Secret):
        return Secret(_completed_repository(options.value))
    if not isinstance(options, Mapping):
        return options
    return {**dict.fromkeys((*_REPOSITORY, "password", "username"), ""), **options}


def merged_values(files: Value, values: Value) -> Value:
    """The values of all files, later ones over earlier ones, and `values` over them all."""
    hidden = isinstance(files, Secret)
    merged: Value = {}
    items: Value = files.value if isinstance(files, Secret) else files
    for item in items:
        inner = item.value if isinstance(item, Secret) else item
        hidden = hidden or isinstance(item, Secret)
        merged = _over(merged, _read(inner))
    merged = Secret(merged) if hidden else merged
    if isinstance(values, Secret) or isinstance(merged, Secret):
        plain = plain_properties({"files": merged, "values": values or {}})
        return Secret(_over(plain["files"], plain["values"]))
    return _over(merged, values or {})


def _read(item: Value) -> Mapping[str, Any]:
    if not isinstance(item, Asset):
        raise ProviderError(f"valueYamlFiles takes files (got a {type(item).__name__})")
    text, path = item.fields.get("text"), item.fields.get("path")
    if text is None and path is None:
        raise ProviderError(
            "valueYamlFiles takes text and files on this machine; download what is at "
            f"{item.fields.get('uri')}"
        )
    try:
        content = text if text is not None else Path(str(path)).read_text(encoding="utf-8")
        values = yaml.safe_load(content) or {}
    except OSError as error:
        raise ProviderError(f"file of values {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ProviderError(f"file of values {path or '(text)'} is not YAML: {error}") from error
    if not isinstance(values, Mapping):
        raise ProviderError(f"file of values {path or '(text)'} is not a mapping")
    return values


def _over(base: Value, top: Value) -> Value:
    """Mappings merged key by key, everything else replaced; as helm merges values."""
    if isinstance(base, Mapping) and isinstance(top, Mapping):
        return {**base, **{key: _over(base.get(key), value) for key, value in top.items()}}
    return top


def chart_flags(spec: Mapping[str, Any]) -> list[str]:
    """Which chart: for every helm command that reads one."""
    flags = [str(spec["chart"])]
    if spec.get("version"):
        flags += ["--version", str(spec["version"])]
    for key, value in (spec.get("repositoryOpts") or {}).items():
        if value:
            flags += [_REPOSITORY[key], str(value)]
    return [*flags, *(["--devel"] if spec.get("devel") else [])]


def flags(verb: Verb, spec: Mapping[str, Any], *, helm_major: int) -> list[str]:
    """How to install or upgrade it: what an option means for the other verb alone is left out."""
    switches = _SWITCHES if verb == "install" else {**_SWITCHES, **_OF_UPGRADES}
    renamed = ("atomic",) if verb == "install" else tuple(_RENAMED)
    valued = [key for key in _VALUED if verb == "upgrade" or key != "maxHistory"]
    found = [flag for key, flag in switches.items() if spec.get(key)]
    found += [_RENAMED[key][helm_major >= 4] for key in renamed if spec.get(key)]
    for key in valued:
        if spec.get(key) not in (None, ""):
            found += [_VALUED[key], str(spec[key])]
    # Which of the two switches means "no hooks" depends on the operation, as in the real provider.
    if spec.get("disableWebhooks" if verb == "install" else "disableCRDHooks"):
        found.append("--no-hooks")
    if not spec.get("skipAwait"):
        found += ["--wait", *(["--wait-for-jobs"] if spec.get("waitForJobs") else [])]
    return [*found, *timeout_flags(spec)]


def timeout_flags(spec: Mapping[str, Any]) -> list[str]:
    """How long helm may take for one operation."""
    return ["--timeout", f"{int(spec.get('timeout') or DEFAULT_TIMEOUT_SECONDS)}s"]
