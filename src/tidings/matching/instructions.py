"""Machine instructions that numba does not offer, as functions for compiled code.

They work on addresses, as all compiled code here does (see `tidings.event.texts`).
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tidings.event.texts import Int, byte_at

LINE: Final = 8
"""Words of a cache line, ANDed at once."""


def _count_zeros_code(_typing: Any, _word: Any) -> Any:
    """Count the zero bits at the end of a word that is not zero."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _count_ones_code(_typing: Any, _word: Any) -> Any:
    """Count the bits that are set in a word."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


def _and_line_code(_typing: Any, _target: Any, _source: Any, _rows: Any, _count: Any, _shift: Any) -> Any:
    """AND one line of a source and of `count` rows, whose addresses are listed, into a target.

    Returns a bit for each word in which anything is left. Written with vectors, because the compiler would
    not find them behind addresses.
    """
    word = ir.IntType(64)
    line = ir.VectorType(word, LINE)

    def load(builder: Any, address: Any) -> Any:
        return builder.load(builder.inttoptr(address, line.as_pointer()), align=8)

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, source, rows, count, shift = arguments
        left: Any = cgutils.alloca_once_value(builder, load(builder, builder.add(source, shift)))  # type: ignore[no-untyped-call]
        with cgutils.for_range(builder, count) as loop:
            place = builder.inttoptr(rows, word.as_pointer())
            row = builder.load(builder.gep(place, [loop.index]))
            line_of_row = load(builder, builder.add(row, shift))
            builder.store(builder.and_(builder.load(left), line_of_row), left)
        result = builder.load(left)
        builder.store(result, builder.inttoptr(builder.add(target, shift), line.as_pointer()), align=8)
        filled = builder.icmp_unsigned("!=", result, ir.Constant(line, None))
        return builder.zext(builder.bitcast(filled, ir.IntType(LINE)), word)

    return types.uint64(*(types.int64,) * 5), generate


def _fetch_code(_typing: Any, _address: Any) -> Any:
    """Begin to load an address into the cache; any address will do."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        name = "llvm.prefetch.p0"
        fetch = builder.module.globals.get(name) or ir.Function(builder.module, shape, name)
        read, keep, data = (ir.Constant(number, n) for n in (0, 3, 1))
        builder.call(fetch, [builder.inttoptr(arguments[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _write_code(width: Any) -> Any:
    """Return a function (address, number) that writes the number there."""

    def code(_typing: Any, _address: Any, _number: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            word = builder.trunc(arguments[1], ir.IntType(width)) if width < 64 else arguments[1]
            builder.store(word, builder.inttoptr(arguments[0], ir.IntType(width).as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return code


count_zeros: Any = intrinsic(_count_zeros_code)
count_ones: Any = intrinsic(_count_ones_code)
and_line: Any = intrinsic(_and_line_code)
fetch: Any = intrinsic(_fetch_code)
write16: Any = intrinsic(_write_code(16))
write32: Any = intrinsic(_write_code(32))
write64: Any = intrinsic(_write_code(64))


@njit(nogil=True, cache=True)
def short_at(address: Int) -> Int:
    """Return the 16 bits at an address, as a number."""
    return byte_at(address) | byte_at(address + 1) << 8
