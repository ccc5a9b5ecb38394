"""`python -m engine.stand_ins.command ENGINE_ADDRESS`: the stand-in as a plugin process."""

import sys

from engine.stand_ins.command.provider import CommandProvider
from engine.stand_ins.process import main

sys.exit(main(CommandProvider, sys.argv[1:]))
