"""Choose the format of a stored tensor by its dtype, or say which format it seems to be and stop."""

from __future__ import annotations

from slipstream.base.errors import CheckpointError
from slipstream.weights.formats.interface import Format
from slipstream.weights.formats.plain import PLAIN_DTYPES, Plain
from slipstream.weights.reader import CheckpointReader

_PLAIN = Plain()
_KNOWN_UNSUPPORTED = {
    "F8_E4M3": "MXFP8 or another float8 format (e4m3 values with scales)",
    "F8_E5M2": "a float8 format (e5m2 values with scales)",
    "F8_E8M0": "e8m0 scales of MXFP8 or MXFP4",
    "U8": "a packed format such as NVFP4 or MXFP4, or e8m0 scales",
    "I8": "an 8-bit integer format",
}
_PACKED_SUFFIX = "_packed"


def find_format(reader: CheckpointReader, name: str) -> Format:
    """Return the format in which a logical tensor is stored.

    Raises:
        CheckpointError: the tensor is missing, or stored in a format that is not supported yet.
    """
    if name not in reader.names and has_stored(reader, name):
        raise _unsupported(reader, f"{name}{_PACKED_SUFFIX}")
    dtype = reader.dtype(name)
    if dtype not in PLAIN_DTYPES:
        raise _unsupported(reader, name)
    return _PLAIN


def has_stored(reader: CheckpointReader, name: str) -> bool:
    """Return whether the checkpoint stores a logical tensor in any form, supported or not."""
    return name in reader.names or f"{name}{_PACKED_SUFFIX}" in reader.names


def _unsupported(reader: CheckpointReader, stored: str) -> CheckpointError:
    dtype = reader.dtype(stored)
    seems = _KNOWN_UNSUPPORTED.get(dtype, "an unknown format")
    return CheckpointError(
        f"{reader.file(stored)}: the tensor {stored} is stored as {dtype}, {seems}, which is not supported yet; "
        f"allowed: {', '.join(sorted(PLAIN_DTYPES))}. Use the checkpoint's bfloat16 release"
    )
