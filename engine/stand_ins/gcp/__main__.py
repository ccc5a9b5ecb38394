"""`python -m engine.stand_ins.gcp ENGINE_ADDRESS`: the stand-in as a plugin process."""

import sys

from engine.stand_ins.gcp.provider import GcpProvider
from engine.stand_ins.process import main

sys.exit(main(GcpProvider, sys.argv[1:]))
