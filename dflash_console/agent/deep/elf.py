"""Compiled files by their dynamic section: what they need, what they define. Only the pages that are looked at are
read (mmap), so that a library of a gigabyte costs a few milliseconds."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct

__all__ = ["Broken", "Library"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

GLOBAL = "STB_GLOBAL"
HEADER = 64
"""Bytes of a 64-bit file's header."""


class Broken(Exception):
    """A file that the loader would refuse; the text says why."""


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Whatever the parser runs into becomes Broken."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError

    try:
        yield
    except (ELFError, ConstructError) as error:
        raise Broken(f"no valid ELF file: {error}") from error
    # Numbers of a damaged file that the parser believes.
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise Broken(f"no valid ELF file: {type(error).__name__}: {error}") from error


def _check_length(data: mmap.mmap, size: int) -> None:
    """The table of sections ends a file; a copy that was cut short lacks it, and can't be parsed at all."""
    if data[:6] == b"\x7fELF\2\1" and size >= HEADER:
        (start,) = struct.unpack_from("<Q", data, 0x28)
        length, count = struct.unpack_from("<HH", data, 0x3A)
        if size < start + length * count:
            raise Broken(f"cut off: {size:,} of {start + length * count:,} bytes")


class Library:
    """One shared object (or program). Raises Broken for none, OSError for one that can't be read."""

    def __init__(self, path: str) -> None:
        from elftools.elf.elffile import ELFFile

        self.path = path
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise Broken("zero bytes")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _check_length(self._data, size)
        with _reading():
            self._elf = ELFFile(self._data)
            self._read(size)

    def _read(self, size: int) -> None:
        end = 0
        dynamic: Any = None
        for segment in self._elf.iter_segments():
            if segment["p_type"] == "PT_LOAD":
                end = max(end, segment["p_offset"] + segment["p_filesz"])
            elif segment["p_type"] == "PT_DYNAMIC":
                dynamic = segment
        if size < end:
            raise Broken(f"cut off: {size:,} of {end:,} bytes")
        self._dynamic = dynamic
        self.machine = (str(self._elf["e_machine"]), int(self._elf.elfclass))
        """The processor and its word size in bits."""
        self.needed: list[str] = []
        self.soname = ""
        self.rpath: list[str] = []
        self.runpath: list[str] = []
        for tag in dynamic.iter_tags() if dynamic is not None else ():
            kind = tag.entry.d_tag
            if kind == "DT_NEEDED":
                self.needed.append(tag.needed)
            elif kind == "DT_SONAME":
                self.soname = tag.soname
            elif kind == "DT_RPATH":
                self.rpath = self._folders(tag.rpath)
            elif kind == "DT_RUNPATH":
                self.runpath = self._folders(tag.runpath)
        self._versions: dict[int, tuple[str, str]] | None = None
        self._tables: Any = None

    def glibc(self) -> tuple[int, ...]:
        """The newest version of glibc that it asks for, `(2, 34)`; empty for none. Raises Broken."""
        with _reading():
            asked = [name[6:] for _, name in self._needs().values() if name.startswith("GLIBC_2.")]
            numbers = [tuple(int(part) for part in name.split(".") if part.isdigit()) for name in asked]
            return max(numbers, default=())

    def undefined(self) -> list[tuple[str, str]]:
        """The symbols that it must find elsewhere: (name, the library that it wants it of by version, or empty).

        Without weak ones, which may stay undefined. Raises Broken.
        """
        found = []
        with _reading():
            table = self._elf.get_section_by_name(".dynsym")
            versions = self._elf.get_section_by_name(".gnu.version")
            table = table if table is not None else self._dynamic
            for index, symbol in enumerate(table.iter_symbols() if table is not None else ()):
                if symbol["st_shndx"] != "SHN_UNDEF" or symbol["st_info"]["bind"] != GLOBAL:
                    continue
                number = versions.get_symbol(index)["ndx"] if versions is not None else 0
                library = self._needs().get(number & 0x7FFF, ("", ""))[0] if isinstance(number, int) else ""
                found.append((symbol.name, library))
        return found

    def defines(self, name: str) -> bool:
        """Whether it exports a symbol. Raises Broken."""
        with _reading():
            if self._tables is None:
                self._tables = self._hash_tables()
            for table in self._tables:
                symbol = table.get_symbol(name)
                if symbol is not None:
                    return bool(
                        symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
                    )
        return False

    def _needs(self) -> dict[int, tuple[str, str]]:
        """The versions that it needs of others: by number in .gnu.version, (library, version). No weak ones."""
        if self._versions is None:
            self._versions = {}
            section = self._elf.get_section_by_name(".gnu.version_r")
            for library, wanted in section.iter_versions() if section is not None else ():
                for version in wanted:
                    if not version["vna_flags"] & 2:  # VER_FLG_WEAK
                        self._versions[version["vna_other"]] = (library.name, version.name)
        return self._versions

    def _hash_tables(self) -> list[Any]:
        from elftools.elf.hash import ELFHashTable, GNUHashTable

        if self._dynamic is None:
            return []
        symbols = self._elf.get_section_by_name(".dynsym") or self._dynamic
        for tag, kind in (("DT_GNU_HASH", GNUHashTable), ("DT_HASH", ELFHashTable)):
            offset = self._dynamic.get_table_offset(tag)[1]
            if offset is not None:
                return [kind(self._elf, offset, symbols)]
        return []

    def _folders(self, path: str) -> list[str]:
        # The loader takes the path as it was asked for, through links.
        origin = os.path.dirname(os.path.abspath(self.path))
        words = path.replace("${ORIGIN}", "$ORIGIN").split(":")
        return [os.path.normpath(word.replace("$ORIGIN", origin)) for word in words if word]
