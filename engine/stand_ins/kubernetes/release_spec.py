"""A Helm release as the program asks for it: defaults, refusals, and helm's flags for it."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from engine.answers import Failure
from engine.stand_ins.calls import Call
from engine.stand_ins.values import Properties, Value
from engine.values import Secret

Verb = Literal["install", "upgrade"]

DEFAULT_TIMEOUT_SECONDS: Final = 300

_TABLE: Final = yaml.safe_load(Path(__file__).with_name("release.yaml").read_text(encoding="utf-8"))
_DEFAULTS: Final[Mapping[str, Value]] = {
    **dict.fromkeys(_TABLE["switches"], False),
    **dict.fromkeys(_TABLE["texts"], ""),
}
_REFUSED: Final = frozenset(_DEFAULTS) - {"skipCrds"} | {"valueYamlFiles"}


def refusals(inputs: Mapping[str, Value]) -> list[Failure]:
    """Options that the stand-in cannot follow, each by name."""
    failures = []
    for key, value in inputs.items():
        if key in _REFUSED and value not in (None, False, "", []):
            failures.append(
                Failure(key, f"{key} is not supported by the kubernetes stand-in; leave it out")
            )
        elif key not in (*_TABLE["followed"], *_REFUSED, *_TABLE["outputs"]):
            failures.append(Failure(key, f"{key} is not an option of a Helm release"))
    repository = inputs.get("repositoryOpts")
    if isinstance(repository, Secret):
        repository = repository.value
    failures += [
        Failure(
            f"repositoryOpts.{key}",
            f"{key} is not supported by the kubernetes stand-in, which knows public chart repositories"
            " only; give chart the path of a downloaded chart",
        )
        for key, value in (repository if isinstance(repository, Mapping) else {}).items()
        if key != "repo" and value
    ]
    if not inputs.get("chart"):
        failures.append(
            Failure("chart", "chart is missing: a path, or a chart's name with a repository")
        )
    return failures


def with_defaults(call: Call, namespace: str) -> Properties:
    """All inputs that the real provider keeps: name, namespace and defaults."""
    inputs = {key: value for key, value in call.news.items() if key not in _TABLE["outputs"]}
    if not inputs.get("name"):
        old = call.old_inputs.get("name")
        inputs["name"] = old or f"{call.resource.name}-{secrets.token_hex(4)}"
    inputs["namespace"] = inputs.get("namespace") or namespace
    inputs.setdefault("timeout", DEFAULT_TIMEOUT_SECONDS)
    inputs.pop("valueYamlFiles", None)
    # A word of the SDK to the first versions of the provider, which drops it.
    inputs.pop("compat", None)
    if inputs.get("repositoryOpts"):
        inputs["repositoryOpts"] = _completed_repository(inputs["repositoryOpts"])
    return {**_DEFAULTS, "values": {}, "version": "", **inputs}


def _completed_repository(options: Value) -> Value:
    if isinstance(options, Secret):
        return Secret(_completed_repository(options.value))
    if not isinstance(options, Mapping):
        return options
    return {**dict.fromkeys(_TABLE["repository"], ""), **options}


def chart_flags(spec: Mapping[str, Any]) -> list[str]:
    """Which chart: for every helm command that reads one."""
    flags = [str(spec["chart"])]
    if spec.get("version"):
        flags += ["--version", str(spec["version"])]
    repository = (spec.get("repositoryOpts") or {}).get("repo")
    return [*flags, *(["--repo", str(repository)] if repository else [])]


def flags(verb: Verb, spec: Mapping[str, Any]) -> list[str]:
    """How to install or upgrade it: what an option means for the other verb alone is left out."""
    found = ["--skip-crds"] if spec.get("skipCrds") else []
    if verb == "upgrade" and spec.get("maxHistory") is not None:
        found += ["--history-max", str(spec["maxHistory"])]
    return [*found, "--wait", *timeout_flags(spec)]


def timeout_flags(spec: Mapping[str, Any]) -> list[str]:
    """How long helm may take for one operation."""
    return ["--timeout", f"{int(spec.get('timeout') or DEFAULT_TIMEOUT_SECONDS)}s"]
