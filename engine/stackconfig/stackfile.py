"""Pulumi.<stack>.yaml: the configuration of one stack, and the salt of its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from engine.atomicfile import write_text
from engine.stackconfig import values, yamltext
from engine.stackconfig.keys import ConfigKey, parse_key
from engine.stackconfig.values import Tree
from engine.usererror import ExitCode, UserError

_OTHER_PROVIDERS = ("secretsprovider", "encryptedkey")


class StackFile:
    """The file as it was read; changes are kept as text and written by `save`."""

    def __init__(self, path: Path, project: str, text: str) -> None:
        self.path = path
        self._project = project
        self._text = text
        self._saved = text
        self._document = _parse(path, text)
        self._config = self._read_config()

    @classmethod
    def load(cls, path: Path, project: str) -> StackFile:
        """The file at `path`; one that is not there is empty."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"could not read {path}: {error}", ExitCode.CONFIGURATION) from error
        return cls(path, project, text)

    @property
    def config(self) -> Mapping[ConfigKey, Tree]:
        return self._config

    @property
    def salt(self) -> str:
        """The state of the passphrase provider; empty if the stack has none yet."""
        return str(self._document.get("encryptionsalt") or "")

    @salt.setter
    def salt(self, value: str) -> None:
        self._change(yamltext.put(self._text, ("encryptionsalt",), value))

    def put(self, key: ConfigKey, value: Tree) -> None:
        self._change(
            yamltext.put(self._text, ("config", self._written(key)), values.to_yaml(value))
        )

    def remove(self, key: ConfigKey) -> None:
        """Remove a value; if it is not there, nothing happens."""
        if key in self._config:
            path = ("config",) if len(self._config) == 1 else ("config", self._written(key))
            self._change(yamltext.remove(self._text, path))

    def save(self) -> None:
        """Write the file if anything changed."""
        if self._text != self._saved:
            write_text(self.path, self._text)
            self._saved = self._text

    def _change(self, text: str) -> None:
        self._text = text
        self._document = _parse(self.path, text)
        self._config = self._read_config()

    def _written(self, key: ConfigKey) -> str:
        """The key as it stands in the file; a project's own may stand there without namespace."""
        for text in self._document.get("config") or {}:
            if parse_key(str(text), self._project) == key:
                return str(text)
        return str(key)

    def _read_config(self) -> dict[ConfigKey, Tree]:
        config = self._document.get("config") or {}
        if not isinstance(config, dict):
            raise UserError(
                f"{self.path}: 'config' has to be a mapping of keys to values",
                ExitCode.CONFIGURATION,
            )
        return {
            parse_key(str(key), self._project): values.from_yaml(value)
            for key, value in config.items()
        }


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        document = yamltext.parse(text)
    except yaml.YAMLError as error:
        raise UserError(
            f"could not parse {path}: {' '.join(str(error).split())}", ExitCode.CONFIGURATION
        ) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise UserError(f"{path}: expected a mapping with 'config'", ExitCode.CONFIGURATION)
    for key in _OTHER_PROVIDERS:
        provider = document.get(key)
        if provider and provider not in ("passphrase", "default"):
            raise UserError(
                f"{path}: {key} is set; the embedded engine knows passphrase secrets only:"
                " use the Pulumi CLI for this stack",
                ExitCode.CONFIGURATION,
            )
    if document.get("environment"):
        raise UserError(
            f"{path}: 'environment' needs Pulumi Cloud, which the embedded engine does not reach",
            ExitCode.CONFIGURATION,
        )
    return document
