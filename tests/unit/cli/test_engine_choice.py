"""Which engine is chosen, where Pulumi's release comes from, and what a command imports at its start."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from gpuclusters.cli import engine
from gpuclusters.cli.errors import UsageError
from tests.unit.cli.conftest import ROOT


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine without Pulumi."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_pulumi_on_path_wins_then_its_release_in_the_cache_then_the_embedded_engine(
    env: dict[str, str],
) -> None:
    chosen = engine.choose({**env, "GPU_CLUSTERS_OFFLINE": "1"})
    assert chosen.kind is engine.Kind.EMBEDDED
    assert "no 'pulumi' on PATH" in chosen.line
    assert "stand-ins" in chosen.line
    folder = Path(env["XDG_CACHE_HOME"]) / "gpu-clusters" / f"pulumi-{version('pulumi')}"
    cached = program(folder / "pulumi")
    assert engine.choose(env).command == (str(cached),)
    installed = program(Path(env["PATH"]) / "pulumi")
    chosen = engine.choose(env)
    assert (chosen.kind, chosen.command) == (engine.Kind.PULUMI, (str(installed),))
    asked_for = engine.choose({**env, "GPU_CLUSTERS_ENGINE": "embedded"})
    assert asked_for.kind is engine.Kind.EMBEDDED


@pytest.mark.parametrize(
    ("asked", "installed", "said"),
    [
        ("pulumi", True, "asks for Pulumi"),
        ("terraform", True, "got 'terraform'"),
        ("", False, "pip install gpu-clusters-engine"),
    ],
)
def test_an_engine_that_cannot_be_had_is_refused_by_name(
    env: dict[str, str], asked: str, installed: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(engine, "entry_points", lambda **_: ())
    wanted = {"GPU_CLUSTERS_ENGINE": asked} if asked else {}
    with pytest.raises(UsageError, match=said):
        engine.choose({**env, **wanted, "GPU_CLUSTERS_OFFLINE": "1"})


def release() -> bytes:
    """An archive in the shape of Pulumi's."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ("pulumi/pulumi", "pulumi/pulumi-language-python"):
            content = b"#!/bin/sh\n"
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def serving(archive: bytes, digest: str) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("-checksums.txt"):
            names = (
                f"pulumi-v{version('pulumi')}-{s}.tar.gz" for s in ("linux-x64", "linux-arm64")
            )
            return httpx.Response(200, text="".join(f"{digest}  {name}\n" for name in names))
        return httpx.Response(200, content=archive)

    return httpx.MockTransport(answer)


def test_a_release_is_fetched_whole_and_then_found(env: dict[str, str]) -> None:
    archive = release()
    fetched = engine.fetch(env, serving(archive, hashlib.sha256(archive).hexdigest()))
    assert fetched == engine.cached(env)
    assert (fetched.parent / "pulumi-language-python").is_file()


def test_a_release_that_is_not_what_its_checksum_says_is_not_used(env: dict[str, str]) -> None:
    with pytest.raises(engine.NoReleaseError, match="not used"):
        engine.fetch(env, serving(release(), "0" * 64))
    with pytest.raises(engine.NoReleaseError, match="404"):
        engine.fetch(env, httpx.MockTransport(lambda _: httpx.Response(404)))
    assert engine.cached(env) is None


def test_the_command_starts_without_what_reaches_machines_and_clusters() -> None:
    code = (
        "import sys, gpuclusters.cli.main\n"
        "sys.exit(' '.join({'pulumi', 'grpc', 'asyncssh', 'kubernetes'} & sys.modules.keys()) or 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
