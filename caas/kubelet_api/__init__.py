"""Two APIs of the kubelet over gRPC: device plugins, and which containers have which devices.

`*_pb2.py` is what protoc makes of the `.proto` files here: `make protos`.
"""

import os

# gRPC's core writes to standard error by itself, in a form of its own; what matters it raises as well.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
