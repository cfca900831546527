"""Shrink a script that fails to a short one that still does (Zeller, Hildebrandt, "Simplifying and isolating
failure-inducing input", 2002).

A step that finds nothing to do does nothing, so any part of a script is a script. What counts as "still
fails" is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import TypeVar

from replica.simulator.script import Script, Setup, Step, names

__all__ = ["shrink"]

_Item = TypeVar("_Item", bound=Setup | Step)


def shrink(script: Script, fails: Callable[[Script], bool], *, most: int = 5_000) -> Script:
    """The shortest script found that ``fails``, trying at most so many; at worst the script itself."""
    return _Shrinking(fails, most).run(script)


class _Shrinking:
    def __init__(self, fails: Callable[[Script], bool], most: int) -> None:
        self._fails = fails
        self._left = most

    def _still(self, script: Script) -> bool:
        if self._left == 0:
            return False
        self._left -= 1
        return self._fails(script)

    def run(self, script: Script) -> Script:
        while True:
            smaller = self._simplified(self._shortened(script))
            if smaller == script or self._left == 0:
                return smaller
            script = smaller

    def _shortened(self, script: Script) -> Script:
        """Leave out runs of steps, in ever smaller pieces."""
        size = max(1, len(script.steps) // 2)
        while True:
            at = 0
            while at < len(script.steps):
                candidate = replace(script, steps=script.steps[:at] + script.steps[at + size :])
                if self._still(candidate):
                    script = candidate
                else:
                    at += size
            if size == 1:
                return script
            size //= 2

    def _simplified(self, script: Script) -> Script:
        """Fewer replicas and keys, and arguments back to their defaults, one by one."""
        script = self._smaller_fleet(script)
        for name in ("skews", "batch_bytes", "default_ttl", "max_silence"):
            script = self._or(script, replace(script, setup=_defaulted(script.setup, name)))
        for at in range(len(script.steps)):
            for one in fields(script.steps[at]):
                step = _defaulted(script.steps[at], one.name)
                script = self._or(script, _with_step(script, at, step))
        return script

    def _smaller_fleet(self, script: Script) -> Script:
        while script.setup.replicas > 2:
            last = names(script.setup)[-1]
            if any(last in (getattr(step, "at", ""), getattr(step, "source", "")) for step in script.steps):
                break
            links = tuple(link for link in script.setup.links if last not in link)
            setup = replace(script.setup, replicas=script.setup.replicas - 1, links=links)
            smaller = self._or(script, replace(script, setup=setup))
            if smaller == script:
                break
            script = smaller
        used = 1 + max((getattr(step, "key", 0) for step in script.steps), default=0)
        return self._or(script, replace(script, setup=replace(script.setup, keys=used)))

    def _or(self, script: Script, candidate: Script) -> Script:
        """The candidate, if it is another script and still fails."""
        return candidate if candidate != script and self._still(candidate) else script


def _defaulted(item: _Item, name: str) -> _Item:
    """The item with an argument at its default, if it has one."""
    default = next(one.default for one in fields(item) if one.name == name)
    return item if default is MISSING else replace(item, **{name: default})


def _with_step(script: Script, at: int, step: Step) -> Script:
    return replace(script, steps=(*script.steps[:at], step, *script.steps[at + 1 :]))
