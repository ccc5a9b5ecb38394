"""Helm releases as resources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from engine.answers import Checked, Failure, ProviderError
from engine.stand_ins import calls
from engine.stand_ins.calls import PartialError
from engine.stand_ins.comparison import compare, diff_of, without_ignored
from engine.stand_ins.kubernetes import release_spec
from engine.stand_ins.kubernetes.helm import Helm, HelmError
from engine.stand_ins.kubernetes.objects import INPUTS, parse_identifier
from engine.stand_ins.values import Properties, mark_secrets, plain_properties
from engine.values import UNKNOWN, Secret, contains_unknown

TOKEN: Final = "kubernetes:helm.sh/v3:Release"  # noqa: S105 - a type token
_IDENTITY: Final = ("name", "namespace")
_SHOW_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Releases:
    helm: Helm
    default_namespace: str

    def check(self, call: calls.Call) -> Checked:
        """Complete the inputs and resolve the chart's version, so that a preview can show it."""
        failures = release_spec.refusals(call.news)
        if failures:
            return Checked(dict(call.news), failures)
        inputs = release_spec.with_defaults(call, self.default_namespace)
        if contains_unknown(inputs):
            return Checked(inputs)
        spec = plain_properties(inputs)
        try:
            shown = self.helm.run(
                ["show", "chart", *release_spec.chart_flags(spec)], seconds=_SHOW_SECONDS
            )
        except HelmError as error:
            reason = f"{error}; check the chart's name or path, its version and the repository"
            return Checked(inputs, [Failure("chart", reason)])
        return Checked({**inputs, "version": str(yaml.safe_load(shown)["version"])})

    def diff(self, call: calls.Call) -> calls.Diff:
        """Compare inputs; after a refresh, also the values and version that are live."""
        recorded = plain_properties(call.olds)
        old = dict(recorded.pop(INPUTS, None) or plain_properties(call.old_inputs))
        for key in ("values", "version"):
            if key in recorded and key in old:
                old[key] = recorded[key]
        changes = without_ignored(
            compare(_comparable(old), _comparable(plain_properties(call.news))), call.ignore_changes
        )
        return diff_of(changes, _IDENTITY)

    def create(self, call: calls.Call) -> calls.Found:
        """Install the release; a name in use is refused, whoever uses it, as by the real provider."""
        if call.preview:
            return calls.Found("", _previewed(call.news))
        spec = plain_properties(call.news)
        if self.helm_metadata(spec) is not None:
            raise ProviderError(
                f"Helm release {_id(spec)}: cannot re-use a name that is still in use"
            )
        outputs = self._run("install", call.news, call.timeout_seconds)
        return calls.Found(_id(spec), outputs)

    def update(self, call: calls.Call) -> Properties:
        """Upgrade the release; one that is not there, or at which helm is (or was killed), is refused."""
        if call.preview:
            return _previewed(call.news)
        return self._run("upgrade", call.news, call.timeout_seconds)

    def delete(self, call: calls.Call) -> None:
        """Uninstall the release; one that is not there is an error, as for the real provider."""
        namespace, name = parse_identifier(call.id)
        spec = plain_properties(call.olds)
        if call.timeout_seconds:
            spec["timeout"] = call.timeout_seconds
        flags = ["--namespace", namespace, *release_spec.timeout_flags(spec), "--wait"]
        try:
            self.helm.run(["uninstall", name, *flags], seconds=_seconds(spec))
        except HelmError as error:
            raise ProviderError(f"Helm release {call.id} could not be removed: {error}") from error

    def read(self, call: calls.Call) -> calls.Found | None:
        """The release as helm records it: version, values and status."""
        namespace, name = parse_identifier(call.id)
        where = ["--namespace", namespace or self.default_namespace]
        metadata = self.helm.json(["get", "metadata", name, *where])
        if metadata is None:
            return None
        values = self.helm.json(["get", "values", name, *where]) or {}
        manifest = self.helm.run(["get", "manifest", name, *where], seconds=60)
        outputs = _outputs(call.old_inputs, metadata, manifest)
        outputs["values"] = mark_secrets(values, call.old_inputs.get("values"))
        outputs["version"] = metadata["version"]
        return calls.Found(call.id, outputs, call.old_inputs)

    def _run(self, verb: release_spec.Verb, inputs: Properties, timeout: float) -> Properties:
        spec = plain_properties(inputs)
        if timeout:
            spec["timeout"] = timeout
        before = (self.helm_metadata(spec) or {}).get("revision", 0)
        where = ["--namespace", str(spec["namespace"])]
        command = [
            verb,
            str(spec["name"]),
            *release_spec.chart_flags(spec),
            *where,
            *release_spec.flags(verb, spec),
        ]
        try:
            self.helm.run(command, seconds=_seconds(spec), values=spec.get("values") or {})
        except ProviderError as error:
            left = self.helm_metadata(spec)
            if left is None or left["revision"] == before:
                raise ProviderError(f"helm {verb} of {_id(spec)} failed: {error}") from error
            message = (
                f"Helm release {_id(spec)} is {left['status']}: {error}. It stays in the state; "
                "correct it and run `up` again"
            )
            raise PartialError(
                message, id=_id(spec), properties=_outputs(inputs, left, "")
            ) from error
        metadata = self.helm_metadata(spec) or {}
        manifest = self.helm.run(["get", "manifest", str(spec["name"]), *where], seconds=60)
        return _outputs(inputs, metadata, manifest)

    def helm_metadata(self, spec: Mapping[str, Any]) -> dict[str, Any] | None:
        """What helm knows of the release; None if there is none, or if it cannot be asked any more."""
        if self.helm.cancelled.is_set():
            return None
        where = ["--namespace", str(spec["namespace"])]
        return self.helm.json(["get", "metadata", str(spec["name"]), *where])


def _comparable(spec: Mapping[str, Any]) -> Properties:
    """A specification without what is only bookkeeping, and empty values as none."""
    bare = {key: value for key, value in spec.items() if key not in ("compat", "checksum")}
    return {key: value for key, value in bare.items() if value not in ({}, [], None, False, "")}


def _id(spec: Mapping[str, Any]) -> str:
    return f"{spec['namespace']}/{spec['name']}"


def _seconds(spec: Mapping[str, Any]) -> float:
    return float(spec.get("timeout") or release_spec.DEFAULT_TIMEOUT_SECONDS)


def _previewed(inputs: Properties) -> Properties:
    return {
        **inputs,
        INPUTS: Secret(plain_properties(inputs)),
        "resourceNames": UNKNOWN,
        "status": UNKNOWN,
    }


def _outputs(inputs: Properties, metadata: Mapping[str, Any], manifest: str) -> Properties:
    """Outputs in the real provider's form, so that it can take over."""
    return {
        **inputs,
        INPUTS: Secret(plain_properties(inputs)),
        "resourceNames": resource_names(manifest),
        "status": {
            "appVersion": str(metadata.get("appVersion", "")),
            "chart": str(metadata.get("chart", "")),
            "name": str(metadata.get("name", "")),
            "namespace": str(metadata.get("namespace", "")),
            "revision": int(metadata.get("revision", 0)),
            "status": str(metadata.get("status", "")),
            "version": str(metadata.get("version", "")),
        },
    }


def resource_names(manifest: str) -> dict[str, list[str]]:
    """Names of what a manifest holds, by kind and API version: `{"ConfigMap/v1": ["settings"]}`."""
    names: dict[str, list[str]] = {}
    for document in yaml.safe_load_all(manifest):
        if isinstance(document, Mapping) and document.get("kind"):
            metadata = document.get("metadata") or {}
            name = str(metadata.get("name", ""))
            namespace = metadata.get("namespace")
            key = f"{document['kind']}/{document.get('apiVersion')}"
            names.setdefault(key, []).append(f"{namespace}/{name}" if namespace else name)
    return {key: sorted(values) for key, values in sorted(names.items())}
