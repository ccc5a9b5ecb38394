"""A folder of files, each with the sibling ``NAME.attrs`` that Pulumi's file backend writes."""

import base64
import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path

from engine.atomicfile import explain, write_bytes
from engine.usererror import UserError

ATTRIBUTES = ".attrs"


class Bucket:
    """Files by keys such as ``.pulumi/stacks/project/stack.json``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.folder / key

    def exists(self, key: str) -> bool:
        try:
            return self.path(key).is_file()
        except OSError as error:
            raise UserError(f"could not read {self.path(key)}: {explain(error)}") from error

    def read(self, key: str) -> bytes:
        try:
            return self.path(key).read_bytes()
        except OSError as error:
            raise UserError(f"could not read {self.path(key)}: {explain(error)}") from error

    def write(self, key: str, content: bytes, *, durable: bool = True) -> None:
        write_bytes(self.path(key), content, durable=durable)
        self._describe(key, content)

    def copy(self, source: str, target: str) -> None:
        """Make `target` the same as `source`, without reading it where the disk can share it."""
        for ending in ("", ATTRIBUTES):
            if self.exists(source + ending):
                self._share(self.path(source + ending), self.path(target + ending))

    def delete(self, key: str) -> None:
        """Remove a file; one that is not there is removed already."""
        for ending in ("", ATTRIBUTES):
            try:
                self.path(key + ending).unlink(missing_ok=True)
            except OSError as error:
                raise UserError(f"could not remove {self.path(key)}: {explain(error)}") from error

    def keys(self, folder: str) -> list[str]:
        """The keys of all files in a folder, in the order of their names."""
        try:
            entries = sorted(
                entry.name for entry in os.scandir(self.path(folder)) if entry.is_file()
            )
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"could not read {self.path(folder)}: {explain(error)}") from error
        # Names that start with a dot are files that are being written.
        names = [n for n in entries if not n.endswith(ATTRIBUTES) and not n.startswith(".")]
        return [f"{folder}/{name}" for name in names]

    def folders(self, folder: str) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self.path(folder)) if entry.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"could not read {self.path(folder)}: {explain(error)}") from error

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        try:
            shutil.rmtree(self.path(folder))
        except FileNotFoundError:
            return
        except OSError as error:
            raise UserError(f"could not remove {self.path(folder)}: {explain(error)}") from error

    def _describe(self, key: str, content: bytes) -> None:
        # What the Go library stores beside an object (gocloud.dev/blob/fileblob). A reader does
        # without it, so it need not survive a loss of power.
        attributes = {
            "user.cache_control": "",
            "user.content_disposition": "",
            "user.content_encoding": "",
            "user.content_language": "",
            "user.content_type": "text/plain; charset=utf-8",
            "user.metadata": None,
            "md5": base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode(),
        }
        text = json.dumps(attributes, separators=(",", ":")) + "\n"
        try:
            write_bytes(self.path(key + ATTRIBUTES), text.encode(), durable=False)
        except UserError:
            # The content is there, so this write has succeeded; old attributes would be wrong ones.
            with contextlib.suppress(OSError):
                self.path(key + ATTRIBUTES).unlink(missing_ok=True)

    def _share(self, source: Path, target: Path) -> None:
        # Files are replaced, never changed in place, so two names may share one content.
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            try:
                os.link(source, temporary)
            except OSError:
                shutil.copyfile(source, temporary)
            temporary.replace(target)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise UserError(f"could not write {target}: {explain(error)}") from error
