"""`python -m engine.stand_ins.kubernetes ENGINE_ADDRESS`: the stand-in as a plugin process."""

import sys

from engine.stand_ins.kubernetes.provider import KubernetesProvider
from engine.stand_ins.process import main

sys.exit(main(KubernetesProvider, sys.argv[1:]))
