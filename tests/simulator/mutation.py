"""Breaks one rule of the product for the length of a block, by rewriting the source of a function."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FunctionType


@contextmanager
def broken(module: str, old: str, new: str) -> Iterator[None]:
    """The functions of a module as they were if its source had ``new`` in the place of ``old``.

    The code of the very functions is exchanged, so that whoever has imported them gets the broken ones, too.
    """
    home = import_module(module)
    source = inspect.getsource(home)
    assert source.count(old) == 1, f"{module} has {source.count(old)} times: {old}"
    fresh = dict(_codes(compile(source.replace(old, new), str(home.__file__), "exec")))
    kept = []
    for function in _functions(vars(home), module):
        code = fresh[function.__qualname__]
        if code != function.__code__:
            kept.append((function, function.__code__))
            function.__code__ = code
    assert kept, f"nothing of {module} is another now"
    try:
        yield
    finally:
        for function, code in kept:
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _functions(names: dict[str, object], module: str) -> Iterator[FunctionType]:
    for one in names.values():
        one = inspect.unwrap(one) if callable(one) else one
        if isinstance(one, property):
            one = one.fget
        elif isinstance(one, classmethod | staticmethod):
            one = one.__func__
        if isinstance(one, FunctionType) and one.__module__ == module and one.__code__.co_filename[0] != "<":
            yield one
        elif isinstance(one, type) and one.__module__ == module:
            yield from _functions(dict(vars(one)), module)
