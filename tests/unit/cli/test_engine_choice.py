"""Which engine is chosen, and where Pulumi's release comes from."""

from __future__ import annotations

import hashlib
import io
import tarfile
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest

from gpuclusters.cli import engine
from gpuclusters.cli.errors import UsageError


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


def test_a_pulumi_on_path_always_wins(env: dict[str, str]) -> None:
    installed = program(Path(env["PATH"]) / "pulumi")
    chosen = engine.choose(env)
    assert chosen.kind is engine.Kind.PULUMI
    assert chosen.command == (str(installed),)


def test_an_official_release_in_the_cache_is_used(env: dict[str, str]) -> None:
    folder = f"pulumi-{version('pulumi')}"
    cached = program(Path(env["XDG_CACHE_HOME"]) / "gpu-clusters" / folder / "pulumi")
    assert engine.choose(env).command == (str(cached),)


def test_without_pulumi_the_embedded_engine_runs_and_says_why(env: dict[str, str]) -> None:
    chosen = engine.choose({**env, "GPU_CLUSTERS_OFFLINE": "1"})
    assert chosen.kind is engine.Kind.EMBEDDED
    assert "no 'pulumi' on PATH" in chosen.line
    assert "stand-ins" in chosen.line


def test_who_asks_for_pulumi_never_gets_the_embedded_engine(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="asks for Pulumi"):
        engine.choose({**env, "GPU_CLUSTERS_ENGINE": "pulumi", "GPU_CLUSTERS_OFFLINE": "1"})


def test_who_asks_for_the_embedded_engine_gets_it(env: dict[str, str]) -> None:
    program(Path(env["PATH"]) / "pulumi")
    chosen = engine.choose({**env, "GPU_CLUSTERS_ENGINE": "embedded"})
    assert chosen.kind is engine.Kind.EMBEDDED


def test_an_engine_that_does_not_exist_is_refused_by_name(env: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="got 'terraform'"):
        engine.choose({**env, "GPU_CLUSTERS_ENGINE": "terraform"})


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
    assert engine.cached(env) is None


def test_a_release_that_cannot_be_reached_is_named(env: dict[str, str]) -> None:
    with pytest.raises(engine.NoReleaseError, match="404"):
        engine.fetch(env, httpx.MockTransport(lambda _: httpx.Response(404)))


def test_without_pulumi_and_without_the_embedded_engine_both_are_named(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "entry_points", lambda **_: ())
    with pytest.raises(UsageError, match="pip install gpu-clusters-engine"):
        engine.choose({**env, "GPU_CLUSTERS_OFFLINE": "1"})
