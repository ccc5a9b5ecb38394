"""The kubelet's device-plugin and pod-resources protocols: `deviceplugin_pb2` and `podresources_pb2`.

`make protos` compiles their `.proto` files to `kubelet.binpb`, which is read here, and to `*_pb2.pyi`,
which mypy reads.
"""

import os
from pathlib import Path
from types import SimpleNamespace

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

# gRPC's core writes to standard error by itself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

_COMPILED = Path(__file__).with_name("kubelet.binpb").read_bytes()
for _file in FileDescriptorSet.FromString(_COMPILED).file:
    _known = Default().AddSerializedFile(_file.SerializeToString())
    _messages = {name: GetMessageClass(one) for name, one in _known.message_types_by_name.items()}
    globals()[f"{Path(_file.name).stem}_pb2"] = SimpleNamespace(DESCRIPTOR=_known, **_messages)
