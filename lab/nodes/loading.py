"""Gives containerd images without a registry: out of archives, and under the names that pods use."""

import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

BLOBS = "io.containerd.content.v1.content/blobs/sha256"
"""Below containerd's root folder: what it has, by digest."""
KNOWN = "images.json"
"""In containerd's root folder: what it was given. It goes with it when a disk is made anew."""
_IN_ARCHIVE = "blobs/sha256/"
_SMALL = 1 << 20


def load(
    ctr: Sequence[str],
    images: Sequence[str],
    aliases: Mapping[str, str],
    known_file: Path,
    root: Path | None = None,
) -> None:
    """Import the archives and add the names that containerd has not; `known_file` keeps what it has.

    `ctr` is its command line up to the namespace, `root` containerd's root folder: what lies there is not
    read from an archive again. Raises `subprocess.CalledProcessError` and `OSError`.
    """
    known = json.loads(known_file.read_text()) if known_file.exists() else {}
    had, named = set(known.get("images", ())), dict(known.get("aliases", {}))
    for image in images:
        if image not in had:
            with _lacking(Path(image), root) as archive:
                run([*ctr, "--namespace", "k8s.io", "images", "import", "--local", str(archive)])
    for reference, name in aliases.items():
        # What the archives hold may be newer under the same name.
        if named.get(reference) != name or set(images) - had:
            run([*ctr, "--namespace", "k8s.io", "images", "tag", "--force", name, reference])
    known_file.write_text(
        json.dumps(
            {"images": sorted(had | set(images)), "aliases": named | dict(aliases)}, indent=2
        )
    )


@contextmanager
def _lacking(archive: Path, root: Path | None) -> Iterator[Path]:
    """The archive without the layers that containerd has.

    It would write and hash them all before it sees that it has them.
    """
    with tarfile.open(archive) as source:
        members = source.getmembers()
        left = [member for member in members if not (root and _is_had(member, root))]
        if root is None or len(left) == len(members):
            yield archive
            return
        with tempfile.TemporaryDirectory(prefix="image-", dir=root) as folder:
            shortened = Path(folder) / archive.name
            with tarfile.open(shortened, "w") as out:
                for member in left:
                    out.addfile(member, source.extractfile(member))
            yield shortened


def _is_had(member: tarfile.TarInfo, root: Path) -> bool:
    digest = member.name.removeprefix(_IN_ARCHIVE)
    large = member.size > _SMALL and digest != member.name
    return large and (root / BLOBS / digest).exists()


def run(command: Sequence[str]) -> None:
    """Run a command of containerd; raises `CalledProcessError`, with what it said."""
    subprocess.run(command, check=True, capture_output=True, text=True)
