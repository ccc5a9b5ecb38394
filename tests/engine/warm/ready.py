"""What the commands of a server would each make first: their parsers, and a cold engine."""

import functools
import os
import sys
from types import SimpleNamespace

if main := sys.modules.get("engine.cli.main"):
    main.build = functools.cache(main.build)
    main.build()
if main := sys.modules.get("gpuclusters.cli.main"):
    import typer.main

    from gpuclusters.cli import engine

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(main.app)
    engine.sys = SimpleNamespace(executable=os.environ["WARM_ENGINE"])
