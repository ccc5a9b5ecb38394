"""A stand-in that is one server with a folder: its faults, which it reads at every look, and its command."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from lab.files import read_json, write_json
from lab.server_process import ServerFolder


class NodeFault(BaseModel):
    """A fault of a node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str = ""
    """The node that it concerns; empty: every node."""

    def concerns(self, node: str) -> bool:
        """Whether this node is meant."""
        return self.node in ("", node)


Fault = TypeVar("Fault", bound=NodeFault)


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
        injected = read_json(ServerFolder(folder).faults) or ()
        return [self.kinds.validate_python(one) for one in injected]

    def inject(self, folder: Path, *faults: Fault) -> None:
        """Add some; they hold from the next look on."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        now = [*self.read(folder), *faults]
        write_json(ServerFolder(folder).faults, [fault.model_dump(mode="json") for fault in now])

    def clear(self, folder: Path) -> None:
        """Take all of them away."""
        ServerFolder(folder).faults.unlink(missing_ok=True)

    def command(self, arguments: list[str], usage: str, serve: Callable[[Path], None]) -> int:
        """`serve FOLDER` or `fault FOLDER KIND …`; the exit code. What goes wrong is one line."""
        try:
            match arguments:
                case ["serve", folder]:
                    serve(Path(folder))
                case ["fault", folder, "none"]:
                    self.clear(Path(folder))
                case ["fault", folder, kind, *pairs]:
                    values = dict(pair.partition("=")[::2] for pair in pairs)
                    self.inject(Path(folder), self.parse(kind, values))
                case _:
                    print(usage, file=sys.stderr)
                    return 2
        except self.error as error:
            print(error, file=sys.stderr)
            return 1
        return 0
