"""Choose the format of a stored tensor by what is stored, and compare with what the checkpoint declares.

What is stored decides how a tensor is read. A declaration that says otherwise stops the load: one of the two is wrong.
"""

from __future__ import annotations

from slipstream.base.errors import CheckpointError
from slipstream.config.quantization.spec import NOT_QUANTIZED, NVFP4, NVFP4_M31, Quantization
from slipstream.weights.formats.interface import Format
from slipstream.weights.formats.mxfp8 import Mxfp8
from slipstream.weights.formats.nvfp4 import Nvfp4
from slipstream.weights.formats.plain import PLAIN_DTYPES, Plain
from slipstream.weights.reader import CheckpointReader

_PLAIN = Plain()
_MXFP8 = Mxfp8()
_NVFP4 = Nvfp4(NVFP4)
_NVFP4_M31 = Nvfp4(NVFP4_M31)
_KNOWN_UNSUPPORTED = {
    "F8_E4M3": "a float8 format other than MXFP8 (e4m3 values, and scales that are no `_scale_inv`)",
    "F8_E5M2": "a float8 format (e5m2 values with scales)",
    "F8_E8M0": "e8m0 scales of MXFP8 or MXFP4",
    "U8": "a packed format without NVFP4's scales, such as MXFP4",
    "I8": "an 8-bit integer format",
}
_PACKED_SUFFIX = "_packed"


def find_format(reader: CheckpointReader, name: str, quantization: Quantization = NOT_QUANTIZED) -> Format:
    """Return the format in which a logical tensor is stored.

    Args:
        reader: the checkpoint.
        name: the logical tensor; it is stored in some form.
        quantization: what the checkpoint declares.

    Raises:
        CheckpointError: the tensor is missing, stored in a format that is not supported, or not as declared.
    """
    form = _stored_format(reader, name)
    declared = quantization.declared(name)
    if form.name not in declared:
        payload = form.stored_names(name)[0]
        raise CheckpointError(
            f"{reader.file(payload)}: the tensor {name} is stored as {form.name} ({reader.dtype(payload)}), but "
            f"{quantization.where} declares {' or '.join(declared)} for it; config.json and weights are not of the "
            "same checkpoint, or a list of modules in it is wrong"
        )
    return form


def has_stored(reader: CheckpointReader, name: str) -> bool:
    """Return whether the checkpoint stores a logical tensor in any form, supported or not."""
    return name in reader.names or f"{name}{_PACKED_SUFFIX}" in reader.names


def _stored_format(reader: CheckpointReader, name: str) -> Format:
    names = reader.names
    if name not in names and has_stored(reader, name):
        # The dtypes and the other parts are looked at with the shape.
        return _NVFP4_M31
    dtype = reader.dtype(name)
    if dtype in PLAIN_DTYPES:
        return _PLAIN
    if dtype == "F8_E4M3" and f"{name}_scale" not in names:
        return _MXFP8
    if dtype == "U8" and f"{name}_scale_2" in names:
        return _NVFP4
    seems = _KNOWN_UNSUPPORTED.get(dtype, "an unknown format")
    raise CheckpointError(
        f"{reader.file(name)}: the tensor {name} is stored as {dtype}, {seems}, which is not supported yet; allowed: "
        f"{', '.join(sorted(PLAIN_DTYPES))}, MXFP8 and NVFP4. Use the checkpoint's bfloat16 release"
    )
