"""The CustomResourceDefinitions of the operator's chart: applied before the release, of its very version.

Helm installs a chart's `crds/` once and never again. A cluster that was upgraded keeps the old ones, the
API server prunes fields that they do not know, and the policy is "ready" all the same
(edgelesssys/contrast#2599).
So this program applies them, and the release skips them.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urljoin, urlsplit

import urllib3
import yaml

from gpuclusters.core.converge import Clock, Reporter, overdue, poll
from gpuclusters.core.errors import CommandFailedError, InvalidAnswerError, UnreachableError
from gpuclusters.core.finding import Finding, Level, Refused, refused
from gpuclusters.core.ports import ClusterObjects, holds
from gpuclusters.gpu_operator.objects import CRD

MANAGER = "gpu-clusters-crds"
ESTABLISH_SECONDS = 60.0
POLL_SECONDS = 0.3
_MARK = "gpu-clusters.dev/content"
_TIMEOUT = urllib3.Timeout(connect=10.0, read=60.0)
_RETRIES = urllib3.Retry(connect=2, read=1, redirect=5, status=2, status_forcelist=(502, 503, 504))
_LARGEST_BYTES = 64 * 1024 * 1024
_OFFLINE = "or give the chart as a file (`operator.chart`), which needs no network"


def definitions(documents: Iterable[Mapping[str, Any]], *, with_nfd: bool) -> list[dict[str, Any]]:
    """The definitions among a chart's documents, by name.

    Refuses a chart that has none of the operator's own.
    """
    found = {
        str(document["metadata"]["name"]): dict(document)
        for document in documents
        if document and document.get("kind") == CRD.kind
    }
    if "clusterpolicies.nvidia.com" not in found:
        chart, there = "the GPU Operator's chart", list(found) or "nothing"
        raise refused(chart, "crds.not-the-operator", found=there)
    nfd = "" if with_nfd else ".nfd.k8s-sigs.io"
    return [body for name, body in sorted(found.items()) if not (nfd and name.endswith(nfd))]


def apply(
    wanted: Sequence[Mapping[str, Any]], cluster: ClusterObjects, clock: Clock, reporter: Reporter
) -> dict[str, Any]:
    """Apply all, and wait until the API server serves them; answers the outputs."""
    marks = {str(body["metadata"]["name"]): _digest(body) for body in wanted}
    for body in wanted:
        cluster.take(CRD, _marked(body), manager=MANAGER)

    remedy = "look at its conditions with `kubectl get crd NAME -o yaml`, then run again"

    def look() -> Sequence[Finding]:
        late = (name for name in marks if not holds(cluster.get(CRD, name), "Established"))
        code, level = "crds.not-served", Level.REPAIR
        return [Finding(code, f"{name} is not served", remedy, level=level) for name in late]

    if late := poll(look, cluster.target, ESTABLISH_SECONDS, POLL_SECONDS, clock, reporter):
        raise Refused(cluster.target, overdue(late, f"not ready after {ESTABLISH_SECONDS:g} s"))
    return {"names": list(marks), "marks": marks, "stale": []}


def observe(before: Mapping[str, Any], cluster: ClusterObjects) -> dict[str, Any] | None:
    """The same outputs, with those that are gone or that somebody replaced; None if none is left."""
    marks: Mapping[str, str] = before.get("marks") or {}
    live = {name: cluster.get(CRD, name) for name in marks}
    if not any(live.values()):
        return None
    stale = [n for n, body in live.items() if body is None or _mark_of(body) != marks[n]]
    return {"names": list(marks), "marks": dict(marks), "stale": sorted(stale)}


def _marked(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {
        key: body["metadata"][key] for key in ("name", "labels") if body["metadata"].get(key)
    }
    metadata["annotations"] = {**(body["metadata"].get("annotations") or {}), _MARK: _digest(body)}
    kind = {"apiVersion": CRD.api_version, "kind": CRD.kind}
    return {**kind, "metadata": metadata, "spec": body["spec"]}


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body["spec"], sort_keys=True).encode()).hexdigest()[:16]


def _mark_of(body: Mapping[str, Any]) -> str:
    return str((body["metadata"].get("annotations") or {}).get(_MARK, ""))


def crd_documents(
    reference: str, *, version: str, repository: str, sha256: str
) -> list[Mapping[str, Any]]:
    """All documents of the `crds/` of a chart and of its subcharts."""
    path = Path(reference)
    if path.is_dir():
        return list(_documents(_of_folder(path)))
    if path.is_file():
        data = path.read_bytes()
    elif repository.startswith(("https://", "http://")):
        data, sha256 = _download(reference, version, repository, sha256)
    else:
        problem = "it is neither a file or folder here nor in a repository over HTTPS"
        remedy = (
            "give the archive's path, or `repository`; of an OCI registry use `helm pull` first"
        )
        raise CommandFailedError(f"chart {reference}", "read its crds/", problem, remedy)
    if sha256 and (found := hashlib.sha256(data).hexdigest()) != sha256:
        where, problem = f"chart {reference} {version}", f"sha256 is {found}, expected {sha256}"
        remedy = "do not use it; find out who changed it"
        raise InvalidAnswerError(where.strip(), "check its digest", problem, remedy)
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
        problem, remedy = (
            f"it is no archive of a chart ({error})",
            "give the .tgz as `helm pull` stores it",
        )
        raise InvalidAnswerError(f"chart {reference}", "unpack it", problem, remedy) from error


def _matters(name: str) -> bool:
    parts = PurePosixPath(name).parts
    subchart = len(parts) == 2 and parts[0] == "charts" and name.endswith((".tgz", ".tar.gz"))
    return subchart or ("crds" in parts[:-1] and name.endswith((".yaml", ".yml")))


def _documents(files: Iterator[tuple[str, bytes]]) -> Iterator[Mapping[str, Any]]:
    for name, data in files:
        if name.endswith("gz"):
            yield from _documents(_of_archive(data, name))
            continue
        try:
            yield from (body for body in yaml.safe_load_all(data) if isinstance(body, Mapping))
        except yaml.YAMLError as error:
            where, problem = f"chart file {name}", f"it is not YAML ({error})"
            raise InvalidAnswerError(where, "read it", problem, "get the chart anew") from error


def _download(chart: str, version: str, repository: str, sha256: str) -> tuple[bytes, str]:
    with urllib3.PoolManager(timeout=_TIMEOUT, retries=_RETRIES) as pool:
        base = repository.rstrip("/") + "/"
        index, text = None, _get(pool, urljoin(base, "index.yaml"))
        with suppress(yaml.YAMLError):
            index = yaml.safe_load(text)
        if not isinstance(index, Mapping):
            problem = "the answer is no index of charts"
            raise InvalidAnswerError(base, "read index.yaml", problem, "check `repository`")
        releases = (index.get("entries") or {}).get(chart) or []
        entry = next((r for r in releases if str(r.get("version")) == version), None)
        if entry is None or not entry.get("urls"):
            known = ", ".join(str(r.get("version")) for r in releases[:8]) or "none"
            problem = f"the index has no such release (it has {known})"
            remedy = "write a version as the index has it, with its leading v"
            raise CommandFailedError(repository, f"find chart {chart} {version}", problem, remedy)
        address = urljoin(base, str(entry["urls"][0]))
        return _get(pool, address), sha256 or str(entry.get("digest") or "")


def _get(pool: urllib3.PoolManager, address: str) -> bytes:
    host, tried = urlsplit(address).netloc, f"download {address}"
    try:
        answer = pool.request("GET", address, preload_content=False)
        data = answer.read(_LARGEST_BYTES + 1)
        answer.release_conn()
    except urllib3.exceptions.HTTPError as error:
        remedy = f"open the way to it, {_OFFLINE}"
        raise UnreachableError(host, tried, str(error), remedy) from error
    if answer.status != 200 or len(data) > _LARGEST_BYTES:
        problem = f"status {answer.status}" if answer.status != 200 else "more than 64 MiB"
        raise CommandFailedError(host, tried, problem, f"check chart and version, {_OFFLINE}")
    return data
