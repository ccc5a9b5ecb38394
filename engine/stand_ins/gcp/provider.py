"""The stand-in for pulumi-gcp: checks, compares and previews by a table; makes nothing."""

import difflib
import hashlib
from collections.abc import Collection
from typing import Final, NoReturn

from engine.answers import Checked, Failure, ProviderError
from engine.stand_ins import calls
from engine.stand_ins.comparison import compare, diff_of, without_ignored
from engine.stand_ins.gcp.kinds import Kind, table
from engine.stand_ins.values import Properties, plain_properties
from engine.values import UNKNOWN

_NAMED: Final = "name"
_ENDPOINT: Final = "CustomEndpoint"
_INTERNAL: Final = ("version", "pluginDownloadURL", "__internal", "__defaults")
_WAY_OUT: Final = (
    "install the Pulumi CLI and the plugin (`pulumi plugin install resource gcp 10.2.0`), and run"
    " the same command with `pulumi`"
)


class GcpProvider(calls.Provider):
    """Says what would be made on Google Cloud, with no account and no network."""

    name = "gcp"
    version = "10.2.0"
    stands_in_for = "pulumi-gcp 10.2.0"

    def check_config(self, inputs: Properties) -> Checked:
        """Options by name; what they say is not looked at, for nothing is reached."""
        known = table().options
        failures = [
            Failure(key, f"{key} is not an option of pulumi-gcp{_near(key, known)}")
            for key in inputs
            if key not in (*known, *_INTERNAL) and not key.endswith(_ENDPOINT)
        ]
        return Checked(inputs, failures)

    def configure(self, options: Properties) -> None:
        """Nothing is reached, so there is nothing to take."""

    def check(self, call: calls.Call) -> Checked:
        """Known type, known inputs, none missing; a name is made where there is none, and kept."""
        kind = table().kinds.get(call.resource.type)
        if kind is None:
            known = ", ".join(sorted(table().kinds))
            return Checked(
                call.news,
                [
                    Failure(
                        "",
                        f"{call.resource.type} is not part of the gcp stand-in; there are: {known};"
                        f" for others {_WAY_OUT}",
                    )
                ],
            )
        given = {key: value for key, value in call.news.items() if key not in _INTERNAL}
        return Checked(_named(call, kind, given), _faults(call.resource.type, kind, given))

    def diff(self, call: calls.Call) -> calls.Diff:
        """Compare inputs with those in the state."""
        kind = table().kinds[call.resource.type]
        olds = call.old_inputs or call.olds
        old = {key: value for key, value in plain_properties(olds).items() if key in kind.inputs}
        new = {key: v for key, v in plain_properties(call.news).items() if key in kind.inputs}
        changes = without_ignored(compare(old, new), call.ignore_changes)
        return diff_of(changes, kind.replaces)

    def create(self, call: calls.Call) -> calls.Found:
        """What would be made; only in a preview."""
        if not call.preview:
            self._refuse("make", call.resource)
        return calls.Found("", _previewed(call.resource, call.news, {}))

    def update(self, call: calls.Call) -> Properties:
        """What it would become; only in a preview."""
        if not call.preview:
            self._refuse("change", call.resource)
        return _previewed(call.resource, call.news, call.olds)

    def delete(self, call: calls.Call) -> None:
        """Never."""
        self._refuse("delete", call.resource)

    def read(self, call: calls.Call) -> calls.Found | None:
        """Never: what is live is not known here."""
        self._refuse("look at", call.resource)

    def cancel(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing stays."""

    def _refuse(self, what: str, resource: calls.Resource) -> NoReturn:
        raise ProviderError(
            f"{resource.name} ({resource.type}): the gcp stand-in previews only and does not {what}"
            f" anything on Google Cloud; {_WAY_OUT}"
        )


def _faults(token: str, kind: Kind, given: Properties) -> list[Failure]:
    unknown = [
        Failure(key, f"{key} is not an input of {token}{_near(key, kind.inputs)}")
        for key in given
        if key not in kind.inputs
    ]
    missing = [
        Failure(key, f"{key} is missing from {token}")
        for key in kind.required
        if given.get(key) is None
    ]
    return unknown + missing


def _near(key: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(key, sorted(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _named(call: calls.Call, kind: Kind, given: Properties) -> Properties:
    if _NAMED not in kind.inputs or given.get(_NAMED) is not None:
        return given
    if call.old_inputs.get(_NAMED) is not None:
        return {**given, _NAMED: call.old_inputs[_NAMED]}
    if not call.autonaming:
        return given
    if call.proposed_name:
        return {**given, _NAMED: call.proposed_name}
    digits = hashlib.sha256(call.seed or call.resource.urn.encode()).hexdigest()[:7]
    return {**given, _NAMED: f"{call.resource.name}-{digits}"}


def _previewed(resource: calls.Resource, inputs: Properties, olds: Properties) -> Properties:
    """Inputs become outputs; what Google decides is what it decided before, or not known."""
    kind = table().kinds[resource.type]
    decided = [key for key in kind.decided if inputs.get(key) is None]
    return {**{key: olds.get(key, UNKNOWN) for key in (*kind.computed, *decided)}, **inputs}
