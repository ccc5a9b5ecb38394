"""`python -m lab.providers.gcp ENGINE_ADDRESS`: the stand-in as a plugin process."""

import sys

from lab.providers.gcp.provider import GcpProvider
from lab.providers.process import main

sys.exit(main(GcpProvider, sys.argv[1:]))
