"""Make Triton's interpreter do bfloat16 arithmetic as a GPU does: products of values, not of bit patterns.

The interpreter keeps a bfloat16 tensor as 16-bit integers. Its dot multiplies those integers, its casts cut instead of
rounding to nearest even, and some of its arithmetic raises. Here every such operation goes through float32 and torch's
own rounding. Import this before any kernel is imported: it also turns the interpreter on.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

# A quotient that overflows is infinite on a GPU, and nobody is told.
np.seterr(over="ignore")

_PACKED = {tl.bfloat16: torch.bfloat16, tl.float8e4nv: torch.float8_e4m3fn}
_FLOATS = {tl.float16, tl.float32, tl.float64, *_PACKED}
_Handle = interpreter.TensorHandle
_Builder = interpreter.InterpreterBuilder


def _integer_view(dtype):
    return torch.int16 if dtype.itemsize == 2 else torch.uint8


def _widen(handle):
    """Return a handle of float32 values for one that holds packed bits; any other as it is."""
    dtype = _PACKED.get(handle.dtype.scalar)
    if dtype is None:
        return handle
    bits = torch.from_numpy(np.ascontiguousarray(handle.data).view(np.int16 if dtype.itemsize == 2 else np.uint8))
    return _Handle(bits.view(dtype).float().numpy().reshape(np.shape(handle.data)), tl.float32)


def _narrow(values, scalar):
    """Return packed bits of float32 values, rounded to nearest even; float8 saturates, as the GPU's cast does."""
    dtype = _PACKED[scalar]
    exact = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    if dtype is torch.float8_e4m3fn:
        exact = exact.clamp(-448, 448)
    bits = exact.to(dtype).view(_integer_view(dtype)).numpy()
    return bits.view(interpreter._get_np_dtype(scalar)).reshape(np.shape(values))


_cast, _float_to_float, _dot = _Builder.cast_impl, _Builder.create_fp_to_fp, _Builder.create_dot
_binary, _unary, _patch_tensor = _Builder.binary_op, _Builder.unary_op, interpreter._patch_lang_tensor


def _cast_impl(self, source, target):
    before, after = source.dtype.scalar, target.scalar
    if before not in _PACKED and after not in _PACKED:
        return _cast(self, source, target)
    wide = _widen(source)
    if after in _PACKED:
        return _Handle(_narrow(wide.data.astype(np.float32), after), after)
    return wide if after is tl.float32 else _cast(self, wide, target)


def _fp_to_fp(self, source, target, rounding):
    is_float = source.dtype.scalar in _FLOATS and target.scalar in _FLOATS
    return _cast_impl(self, source, target) if is_float else _float_to_float(self, source, target, rounding)


def _binary_op(self, left, right, operator):
    scalar = left.dtype.scalar
    if scalar not in _PACKED:
        return _binary(self, left, right, operator)
    result = operator(_widen(left).data, _widen(right).data)
    return _Handle(result, tl.int1) if result.dtype == bool else _Handle(_narrow(result, scalar), scalar)


def _unary_op(self, operand, operator):
    scalar = operand.dtype.scalar
    if scalar not in _PACKED:
        return _unary(self, operand, operator)
    return _Handle(_narrow(operator(_widen(operand).data), scalar), scalar)


def _patch_lang_tensor(tensor, scope):
    # From NumPy 2.4 on an array of one element is no integer unless it says so.
    _patch_tensor(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(np.asarray(self.handle.data).item()))


def _create_dot(self, a, b, accumulator, precision, max_imprecise):
    return _dot(self, _widen(a), _widen(b), accumulator, precision, max_imprecise)


_Builder.cast_impl, _Builder.create_fp_to_fp = _cast_impl, _fp_to_fp
_Builder.binary_op, _Builder.unary_op, _Builder.create_dot = _binary_op, _unary_op, _create_dot
_Builder.create_fp_ext = _Builder.create_fp_trunc = _cast_impl
_Builder.get_bf16 = lambda self, value: _Handle(_narrow(np.array([value], np.float32), tl.bfloat16), tl.bfloat16)
interpreter._patch_lang_tensor = _patch_lang_tensor
