"""The GPU Operator's chart as files: from a folder, an archive, or a chart repository over HTTPS."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

import urllib3
import yaml

from gpuclusters.core.errors import CommandFailedError, InvalidAnswerError, UnreachableError

_TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)
_RETRIES = urllib3.Retry(connect=2, read=1, redirect=5, status=2, status_forcelist=(502, 503, 504))
_LARGEST_BYTES = 64 * 1024 * 1024
_OFFLINE = "or give the chart as a file (`operator.chart`), which needs no network"


def crd_documents(
    reference: str, *, version: str, repository: str, sha256: str
) -> list[Mapping[str, Any]]:
    """All documents of the `crds/` of a chart and of its subcharts.

    Raises:
        AdapterError: the chart cannot be had, or is not what was asked for.
    """
    path = Path(reference)
    if path.is_dir():
        return list(_documents(_of_folder(path)))
    if path.is_file():
        data = path.read_bytes()
    elif repository.startswith(("https://", "http://")):
        data, sha256 = _download(reference, version, repository, sha256)
    else:
        raise CommandFailedError(
            f"chart {reference}",
            "read its crds/",
            "it is neither a file or folder here nor in a repository over HTTPS",
            "give the path of the archive, or `repository`; of an OCI registry use "
            "`helm pull` first",
        )
    if sha256 and (found := hashlib.sha256(data).hexdigest()) != sha256:
        raise InvalidAnswerError(
            f"chart {reference} {version}".strip(),
            "check its digest",
            f"sha256 is {found}, expected {sha256}",
            "do not use it; find out who changed it",
        )
    return list(_documents(_of_archive(data, reference)))


def _of_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and _matters(name):
            yield name, file.read_bytes()


def _of_archive(data: bytes, reference: str) -> Iterator[tuple[str, bytes]]:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for member in archive:
                # The first folder is the chart's own name.
                name = str(PurePosixPath(*PurePosixPath(member.name).parts[1:]))
                file = archive.extractfile(member) if member.isfile() and _matters(name) else None
                if file is not None:
                    yield name, file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InvalidAnswerError(
            f"chart {reference}",
            "unpack it",
            f"it is no archive of a chart ({error})",
            "give the .tgz as `helm pull` stores it",
        ) from error


def _matters(name: str) -> bool:
    parts = PurePosixPath(name).parts
    subchart = len(parts) == 2 and parts[0] == "charts" and name.endswith((".tgz", ".tar.gz"))
    return subchart or ("crds" in parts[:-1] and name.endswith((".yaml", ".yml")))


def _documents(files: Iterator[tuple[str, bytes]]) -> Iterator[Mapping[str, Any]]:
    for name, data in files:
        if name.endswith(("gz",)):
            yield from _documents(_of_archive(data, name))
            continue
        try:
            yield from (body for body in yaml.safe_load_all(data) if isinstance(body, Mapping))
        except yaml.YAMLError as error:
            raise InvalidAnswerError(
                f"chart file {name}", "read it", f"it is not YAML ({error})", "get the chart anew"
            ) from error


def _download(chart: str, version: str, repository: str, sha256: str) -> tuple[bytes, str]:
    with urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES) as pool:
        base = repository.rstrip("/") + "/"
        index = _index(_get(pool, urljoin(base, "index.yaml")), base)
        releases = (index.get("entries") or {}).get(chart) or []
        entry = next((r for r in releases if str(r.get("version")) == version), None)
        if entry is None or not entry.get("urls"):
            known = ", ".join(str(r.get("version")) for r in releases[:8]) or "none"
            raise CommandFailedError(
                repository,
                f"find chart {chart} {version}",
                f"the index has no such release (it has {known})",
                "write a version as the index has it, with its leading v",
            )
        address = urljoin(base, str(entry["urls"][0]))
        return _get(pool, address), sha256 or str(entry.get("digest") or "")


def _index(data: bytes, base: str) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(data)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, Mapping):
        raise InvalidAnswerError(
            base, "read index.yaml", "the answer is no index of charts", "check `repository`"
        )
    return found


def _get(pool: urllib3.PoolManager, address: str) -> bytes:
    host = urlsplit(address).netloc
    try:
        answer = pool.request("GET", address, preload_content=False)
        data = answer.read(_LARGEST_BYTES + 1)
        answer.release_conn()
    except urllib3.exceptions.HTTPError as error:
        raise UnreachableError(
            host, f"download {address}", str(error), f"open the way to it, {_OFFLINE}"
        ) from error
    if answer.status != 200 or len(data) > _LARGEST_BYTES:
        problem = f"status {answer.status}" if answer.status != 200 else "more than 64 MiB"
        raise CommandFailedError(
            host, f"download {address}", problem, f"check chart and version, {_OFFLINE}"
        )
    return data
