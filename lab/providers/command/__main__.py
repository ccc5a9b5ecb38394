"""`python -m lab.providers.command ENGINE_ADDRESS`: the stand-in as a plugin process."""

import sys

from lab.providers.command.provider import CommandProvider
from lab.providers.process import main

sys.exit(main(CommandProvider, sys.argv[1:]))
