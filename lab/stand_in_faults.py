"""Faults of a stand-in that is one process with a folder: a file that it reads at every look."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from lab.files import read_json, write_json
from lab.server_process import ServerFolder

Fault = TypeVar("Fault", bound=BaseModel)


@dataclass(frozen=True)
class FaultBook(Generic[Fault]):
    """The faults of one kind of stand-in."""

    kinds: TypeAdapter[Fault]
    """One of them, by its `kind`."""
    error: type[Exception]

    def parse(self, kind: str, values: dict[str, Any]) -> Fault:
        """A fault from its name and values; raises `error` where there is none, or a value is wrong."""
        try:
            return self.kinds.validate_python({"kind": kind, **values})
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, item['loc'][1:])) or 'kind'}: {item['msg']}"
                for item in error.errors()
            )
            raise self.error(f"fault {kind!r}: {problems}") from None

    def read(self, folder: Path) -> list[Fault]:
        """Those that are injected now."""
        return [
            self.kinds.validate_python(one) for one in read_json(ServerFolder(folder).faults) or ()
        ]

    def inject(self, folder: Path, *faults: Fault) -> None:
        """Add some; they hold from the next look on."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = [*self.read(folder), *faults]
        write_json(ServerFolder(folder).faults, [fault.model_dump(mode="json") for fault in now])

    def clear(self, folder: Path) -> None:
        """Take all of them away."""
        ServerFolder(folder).faults.unlink(missing_ok=True)
