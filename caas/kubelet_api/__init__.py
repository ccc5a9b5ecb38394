"""Two APIs of the kubelet over gRPC; `make protos` makes `*_pb2.py` of the `.proto` files here."""

import os

# gRPC's core writes to standard error by itself, in a form of its own; what matters it raises as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
