"""Bytecode beside Python files, valid whatever times an image gives them: programs start much sooner."""

import os
import subprocess
import sys
from pathlib import Path

from lab.tools import ToolError

_SECONDS = 900


def compile_all(folder: Path, target: str) -> None:
    """Compile everything below `folder`, which an image has at `target`.

    Raises:
        ToolError: the compiler did not run; a file that cannot be compiled is left without bytecode.
    """
    command = [
        *(sys.executable, "-m", "compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(folder), "-p", f"/{target}", str(folder)),
    ]
    # The order of sets in constants is that of hashes: a fixed one gives the same bytes each time.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    try:
        subprocess.run(command, timeout=_SECONDS, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{folder} cannot be compiled: {error}; try again") from error
