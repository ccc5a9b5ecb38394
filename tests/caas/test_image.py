"""What the image holds is enough for every program, and holds no Pulumi."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILE = PROJECT / "caas" / "Dockerfile"
LOCK = PROJECT / "caas" / "requirements.lock"

# Imports every module of the programs where no package can be found but those of the image.
_PROBE = """
import importlib.metadata, pkgutil, re, sys
allowed = set(sys.argv[1].split(","))

def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()

provided = importlib.metadata.packages_distributions()
class Missing:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        owners = provided.get(top)
        if owners and not any(normal(owner) in allowed for owner in owners):
            raise ModuleNotFoundError(f"{top} is not in the image", name=top)
        return None

sys.meta_path.insert(0, Missing())
import caas
for module in pkgutil.walk_packages(caas.__path__, "caas."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
for program in ("api", "controllers", "device_plugin"):
    __import__(f"caas.{program}.__main__")
assert not {name for name in sys.modules if name.partition(".")[0] in ("pulumi", "lab")}
for module in list(sys.modules.values()):
    file = getattr(module, "__file__", None) or ""
    if file.startswith(sys.argv[2]):
        print(file[len(sys.argv[2]) + 1:])
"""


def test_every_program_starts_from_what_the_image_holds(tmp_path: Path) -> None:
    copying = r"^RUN python /checkout/(\S+) /opt/gpu-clusters/src$"
    (copies,) = re.findall(copying, DOCKERFILE.read_text(), re.M)
    subprocess.run([sys.executable, PROJECT / copies, tmp_path], check=True)
    locked = re.findall(r"^([A-Za-z0-9._-]+)==", LOCK.read_text(), re.MULTILINE)
    names = ",".join(re.sub(r"[-_.]+", "-", name).lower() for name in locked)
    run = subprocess.run(
        [sys.executable, "-c", _PROBE, names, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    ours = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.py")}
    assert ours - set(run.stdout.split()) == set(), "files that no program imports"


def test_what_is_in_the_image_is_what_was_tested() -> None:
    def pins(path: Path) -> dict[str, str]:
        return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", path.read_text(), re.MULTILINE))

    image, project = pins(LOCK), pins(PROJECT / "requirements.lock")
    assert image.items() <= project.items()
    assert not [name for name in image if name.startswith("pulumi")]


@pytest.mark.parametrize("line", ["--require-hashes", "USER 65532:65532"])
def test_the_image_is_installed_by_hash_and_runs_as_nobody(line: str) -> None:
    assert line in DOCKERFILE.read_text()
