"""`python -m gpuclusters.cli`: the command without its entry point."""

from gpuclusters.cli.main import main

main()
