"""The rows that the benchmark prints."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Row", "print_rows"]


@dataclass(frozen=True)
class Row:
    """One measured figure beside its aim and beside a peer that does the same on the same machine."""

    what: str
    figure: float
    unit: str
    aim: float
    """The most that it may be."""
    peer: str = ""
    peer_figure: float | None = None


def print_rows(rows: list[Row]) -> None:
    """Prints the rows as one table, right under each other."""
    lines = [("figure", "measured", "aim", "", "peer", "peer / ours")]
    for row in rows:
        ratio = f"{row.peer_figure / row.figure:.1f}" if row.peer_figure is not None and row.figure else ""
        peer = f"{row.peer_figure:.2f} {row.unit}  {row.peer}" if row.peer_figure is not None else row.peer
        verdict = "met" if row.figure <= row.aim else "MISSED"
        lines.append(
            (row.what, f"{row.figure:.2f} {row.unit}", f"{row.aim:g} {row.unit}", verdict, peer, ratio)
        )
    widths = [max(len(line[column]) for line in lines) for column in range(6)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
