"""Archives that are the same byte for byte every time, so that their digests can be pinned."""

import gzip
import io
import tarfile
from collections.abc import Mapping


def packed(contents: Mapping[str, tuple[str, int]]) -> bytes:
    """A `.tar.gz` of these files: text and mode by path."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (text, mode) in contents.items():
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    packed_up = io.BytesIO()
    # Stored: what a compressor makes of it is another thing with the next release of zlib.
    with gzip.GzipFile(fileobj=packed_up, mode="wb", mtime=0, compresslevel=0) as stream:
        stream.write(raw.getvalue())
    return packed_up.getvalue()
