"""Secrets that are made once and live in the state alone: nothing to compare them with, nothing to delete."""

from __future__ import annotations

from typing import Any, ClassVar

from pulumi.dynamic import CheckResult, DiffResult, ReadResult, ResourceProvider, UpdateResult


class GeneratedSecret(ResourceProvider):
    """Everything but the making; only another owner has other secrets."""

    owner: ClassVar[str]
    """Input that says whose they are."""

    def check(self, _olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        """Nothing to check."""
        return CheckResult(news, [])

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> DiffResult:
        """Another owner has others."""
        other = olds.get(self.owner) != news.get(self.owner)
        return DiffResult(
            changes=other,
            replaces=[self.owner] if other else [],
            stables=[],
            delete_before_replace=False,
        )

    def update(self, _id: str, olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Nothing changes in place."""
        return UpdateResult(dict(olds))

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """They live in the state alone."""
        return ReadResult(id_, dict(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Forgotten with the state."""
