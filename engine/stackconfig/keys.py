"""Configuration keys."""

from dataclasses import dataclass

from engine.usererror import ExitCode, UserError


@dataclass(frozen=True, order=True)
class ConfigKey:
    """``namespace:name``; the namespace is a project or a package."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}"

    def pretty(self, project: str) -> str:
        """As people write it: without the namespace if that is the project."""
        return self.name if self.namespace == project else str(self)


def parse_key(text: str, project: str) -> ConfigKey:
    """The key that `text` names; without a namespace it is one of the project."""
    namespace, colon, name = text.partition(":")
    if not colon:
        namespace, name = project, text
    if not namespace or not name or ":" in name:
        raise UserError(
            f"invalid configuration key: could not parse {text!r}"
            " (configuration keys should be of the form `<namespace>:<name>`)",
            ExitCode.CONFIGURATION,
        )
    return ConfigKey(namespace, name)
