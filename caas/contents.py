"""Which files of ours the programs need: `python caas/contents.py FOLDER` copies them to their image."""

import re
import shutil
import sys
from modulefinder import ModuleFinder
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1]
_TABLES = Path("gpuclusters/compat/data")
_TABLE = re.compile(r'\.packaged\("(\w+)"\)')
"""Where a module reads a dated table."""
_MANIFEST = re.compile(r'\bmanifest\(\s*"(\w+)/([\w.-]+)"')
"""Where it reads a manifest."""
_DATA = (".css", ".html", ".js", ".yaml")


def files(project: Path = _PROJECT) -> list[Path]:
    """All of `caas`, what it imports, directly or not, and what these read; relative to the project."""
    finder = ModuleFinder([str(project)])
    data = set()
    for file in (project / "caas").rglob("*.*"):
        if file.suffix == ".py":
            finder.import_hook(".".join(file.relative_to(project).with_suffix("").parts))
        elif file.suffix in _DATA:
            data.add(file.relative_to(project))
    named = (vars(module)["__file__"] for module in finder.modules.values())
    modules = [Path(name) for name in named if name]
    for text in (file.read_text() for file in modules):
        data |= {_TABLES / f"{table}.yaml" for table in _TABLE.findall(text)}
        data |= {
            Path("gpuclusters", room, "manifests", name) for room, name in _MANIFEST.findall(text)
        }
    return sorted(data | {file.relative_to(project) for file in modules})


if __name__ == "__main__":
    for one in files():
        target = Path(sys.argv[1], one)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_PROJECT / one, target)
