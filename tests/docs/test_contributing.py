"""The smallest capability is shown as it stands in the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_block_of_code_stands_in_the_code() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    code = "".join(
        (ROOT / "gpuclusters/host" / f"{name}.py").read_text()
        for name in ("capability", "resource")
    )
    blocks = re.findall(r"```python\n(.*?)(?:    …\n)?```", page, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        assert block in code
