"""`python -m tests.cilium`: build Cilium's programs, which takes minutes that no test has."""

from __future__ import annotations

from lab.tools.model import to_stderr
from tests.cilium.programs import ensure, sources

if __name__ == "__main__":
    ensure(to_stderr)
    sources(to_stderr)
