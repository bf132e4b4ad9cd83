"""The swap: package and dist-infos change places with the staged ones, and back, from whatever state they are in.

Every step is chosen by what lies where by its inode number, so the same code swaps, undoes, and goes on after a
death between any two steps.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal

from . import disk, duplicate
from .place import Fault, step

__all__ = ["Foreign", "Item", "Swap", "signals_held_back"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator


class Foreign(Fault):
    """What lies in site-packages is neither the old nor the new thing: somebody else put it there."""


class Item:
    """A thing in site-packages that is replaced, by the numbers of its inodes; 0 for none."""

    def __init__(self, name: str, old: int, new: int, gone: int = 0) -> None:
        self.name = name
        self.old, self.new = old, new
        self.gone = gone
        """The live folder that could not be renamed, once `old` is a whole copy of it."""


class Swap:
    """`items`, the package first; the new ones come from the folder `home_new`, the old ones go to `home_old`."""

    def __init__(
        self, site: int, home_new: int, home_old: int, items: list[Item], note: Callable[[], None]
    ) -> None:
        self.site, self.home_new, self.home_old = site, home_new, home_old
        self.items = items
        self.method = ""
        """As copies.Swapped tells; empty as long as the package was not touched."""
        self.may_copy = True
        """Whether a folder that can't be renamed may be copied aside and removed, which is not in one step."""
        self._note = note
        """Has the journal tell the items anew."""

    def forward(self) -> None:
        """Put the new things in place. Raises OSError and Foreign, having done a part."""
        self._bring_all({item.name: item.new for item in self.items})

    def back(self) -> None:
        """Put the old things in place. Raises OSError and Foreign, having done a part."""
        self._bring_all({item.name: item.old for item in self.items})

    def _bring_all(self, wanted: dict[str, int]) -> None:
        first, *others = self.items
        # One dist-info is put in place before the other is taken away: never a moment without any.
        for item in [first, *sorted(others, key=lambda item: wanted[item.name] == 0)]:
            self._bring(item, wanted[item.name])
        self.gather()

    def gather(self) -> None:
        """Have what is not in place lie where it belongs: in an exchange it lands in the other's place."""
        for item in self.items:
            for inode, home, other in (
                (item.old, self.home_old, self.home_new),
                (item.new, self.home_new, self.home_old),
            ):
                if inode and disk.inode_at(other, item.name) == inode:
                    self._clear(item, home)
                    step(f"gather {item.name}")
                    disk.move((other, item.name), (home, item.name))
        for home in (self.site, self.home_new, self.home_old):
            step("fsync after renames")
            disk.sync_folder(home)

    def has_old(self, item: Item) -> bool:
        """Whether the old thing is in place; also when there was none and is none."""
        return disk.inode_at(self.site, item.name) == item.old

    def _bring(self, item: Item, wanted: int) -> None:
        at = disk.inode_at(self.site, item.name)
        if at == wanted:
            return
        if at and at == item.gone:
            at = self._remove_original(item)
        if at not in (0, item.old, item.new):
            raise Foreign(f"{item.name} was replaced by somebody else meanwhile")
        if not wanted:
            if at:
                self._out(item, at)
            return
        source = self._find(item, wanted)
        if at and not self._exchange(item, source, at):
            self._out(item, at)
            at = 0
        if not at:
            step(f"put {item.name} in place")
            disk.move((source, item.name), (self.site, item.name))
            self._tell(item, "placed")

    def _find(self, item: Item, inode: int) -> int:
        for home in (self.home_new, self.home_old):
            if disk.inode_at(home, item.name) == inode:
                return home
        raise Foreign(f"{item.name} is not where it was laid: somebody else moved it")

    def _exchange(self, item: Item, source: int, at: int) -> bool:
        """Whether that can be done here; `at` is what lies in place."""
        step(f"exchange {item.name}")
        try:
            disk.exchange((source, item.name), (self.site, item.name))
        except OSError as error:
            if error.errno in (*disk.UNSUPPORTED, errno.EXDEV):
                return False
            raise
        if disk.inode_at(source, item.name) != at:
            # Put there since it was looked at: theirs goes back.
            step(f"exchange {item.name} back")
            disk.exchange((source, item.name), (self.site, item.name))
            raise Foreign(f"{item.name} was replaced by somebody else meanwhile")
        self._tell(item, "exchange")
        return True

    def _out(self, item: Item, at: int) -> None:
        """Take away what is in place, to where it belongs."""
        home = self.home_old if at == item.old else self.home_new
        self._clear(item, home)
        step(f"take {item.name} away")
        try:
            disk.move((self.site, item.name), (home, item.name))
        except OSError as error:
            if error.errno != errno.EXDEV or at != item.old:
                raise
            self._copy_away(item)
            return
        # With nothing to come after it, that was all in one step.
        self._tell(item, "two-step" if item.new else "exchange")

    def _clear(self, item: Item, home: int) -> None:
        """Make way: what is neither the old nor the new thing is a copy that was not brought to its end."""
        if disk.inode_at(home, item.name) not in (0, item.old, item.new):
            step(f"remove part of {item.name}")
            disk.remove(home, item.name)

    def _copy_away(self, item: Item) -> None:
        """A folder of an image's layer can't be renamed: copy it, and only then remove it."""
        if not self.may_copy:
            raise Fault(
                f"{item.name} can't be renamed there, and to copy it aside and remove it, which is not in one step, "
                "needs a yes of its own (layer)"
            )
        if os.fstat(self.site).st_dev != os.fstat(self.home_new).st_dev:
            raise OSError(errno.EXDEV, "the stage is on another filesystem", item.name)
        step(f"copy {item.name} away")
        duplicate.duplicate(self.site, item.name, self.home_old)
        item.gone, item.old = item.old, disk.inode_at(self.home_old, item.name)
        self._note()
        self._tell(item, "copied")
        self._remove_original(item)

    def _remove_original(self, item: Item) -> int:
        step(f"remove {item.name}")
        disk.remove(self.site, item.name)
        return 0

    def _tell(self, item: Item, method: str) -> None:
        if item is self.items[0] and not self.method:
            self.method = method


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """No signal that can be held back ends this process meanwhile; those that came take effect afterwards."""
    own = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - own)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
