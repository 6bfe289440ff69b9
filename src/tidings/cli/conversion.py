"""Conversion of options and arguments without pydantic.

Typer converts each value by a pydantic adapter, also the default of an option that is not given. To import
pydantic and to build the adapters takes a third of the time that a short command takes. A value of a plain
type needs neither: it is converted here if it is well-formed and within its bounds. Any other value goes to
typer, which converts it or words the error. Versions of typer without these adapters convert all themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_NUMBERS = {int: re.compile(r"-?[0-9]{1,18}"), float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")}
"""How numbers are written mostly; whatever else typer takes for one is left to it."""


class Unconverted(ValueError):
    """The value is left to typer."""


def convert_plainly(parameter: Any) -> None:
    """Let a parameter of a command be converted by this module before typer, if its type is plain."""
    described = getattr(parameter, "type_descriptor", None)
    typers = getattr(parameter, "get_runtime_param", None)
    if described is None or typers is None or isinstance(typers, partial):
        return
    if (convert := _conversion(described.annotation, described.parameter_info)) is not None:
        parameter.get_runtime_param = partial(_Conversion, convert, typers)


class _Conversion:
    """What typer calls to convert the value of one parameter."""

    def __init__(self, convert: Callable[[Any], Any], typers: Callable[[], Any]) -> None:
        self._convert, self._typers = convert, typers

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the converted value; typer's error if it has none."""
        is_multiple = param.multiple or param.nargs == -1
        if value is None:
            return () if is_multiple else None
        try:
            if is_multiple and isinstance(value, list | tuple):
                return [self._convert(one) for one in value]
            if not is_multiple:
                return self._convert(value)
        except Unconverted:
            pass
        return self._typers().coerce(value, param=param, ctx=ctx)


def _conversion(annotation: Any, info: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of one value of such a parameter; None: typer's."""
    if info.parser is not None:
        return None
    if annotation in (str, list[str]):
        return partial(_same, str)
    if annotation is bool:
        return partial(_same, bool)
    if annotation in (int, float) and not info.clamp:
        return partial(_number, annotation, info.min, info.max)
    checks = (info.exists, info.writable, info.resolve_path, info.allow_dash, info.path_type)
    if annotation is Path and not any(checks) and info.file_okay and info.dir_okay:
        return _path
    return None


def _same(kind: type[Any], value: Any) -> Any:
    if type(value) is kind:
        return value
    raise Unconverted


def _number(kind: type[int | float], least: float | None, most: float | None, value: Any) -> float:
    if type(value) is str and _NUMBERS[kind].fullmatch(value):
        value = kind(value)
    if type(value) is kind and (least is None or value >= least) and (most is None or value <= most):
        return value
    raise Unconverted


def _path(value: Any) -> Path:
    if isinstance(value, str | Path) and (os.access(value, os.R_OK) or not Path(value).exists()):
        return Path(value)
    raise Unconverted
