"""Packing grids: which coherence epsilon some packing of k lines in R^d reached, cell by cell."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from ._values import Number, as_floats

COLUMNS = ("k", "d", "epsilon")


@dataclass(frozen=True)
class PackingGrid:
    """Measured cells [k, d, epsilon] and where they come from.

    Args:
      cells: float64 [n, 3], columns k (number of lines), d (dimension), epsilon (coherence reached).
      source: provenance, free text.
    """

    cells: Any
    source: str = ""

    def __post_init__(self):
        cells = as_floats(self.cells, "cells")
        if cells.ndim != 2 or cells.shape[1] != 3 or len(cells) == 0:
            raise ValueError(f"a grid needs rows [k, d, epsilon], at least one; got an array of shape {cells.shape}")
        good = np.isfinite(cells).all(axis=1) & (cells[:, 0] >= 1) & (cells[:, 1] >= 1) & (cells[:, 2] >= 0)
        if not good.all():
            row = int(np.argmin(good))
            raise ValueError(
                f"row {row} of the grid is {cells[row].tolist()}: expected [k, d, epsilon] with k >= 1, d >= 1 and "
                "epsilon >= 0, all finite; are the columns in this order?"
            )
        object.__setattr__(self, "cells", cells)

    @property
    def k(self) -> Float64[np.ndarray, " n"]:
        """Numbers of lines."""
        return self.cells[:, 0]

    @property
    def d(self) -> Float64[np.ndarray, " n"]:
        """Dimensions."""
        return self.cells[:, 1]

    @property
    def epsilon(self) -> Float64[np.ndarray, " n"]:
        """Coherences reached."""
        return self.cells[:, 2]

    def __len__(self) -> int:
        return len(self.cells)

    def select(self, keep: np.ndarray) -> "PackingGrid":
        """Return the cells picked by a boolean mask."""
        return PackingGrid(self.cells[keep], self.source)

    def at(self, k: Number, d: Number) -> float | None:
        """Return the smallest epsilon of the cells of k lines in R^d, None if there is none."""
        here = self.epsilon[(self.k == k) & (self.d == d)]
        return float(here.min()) if len(here) else None

    def to_record(self) -> dict:
        """Return the grid as valid JSON, in the form `load_grid` reads."""
        return {"source": self.source, "cells": self.cells.tolist()}


def _from_json(path: Path) -> PackingGrid:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict) or "cells" not in content:
        keys = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise ValueError(f'{path} must hold {{"source": .., "cells": [[k, d, epsilon], ..]}}, found {keys}')
    cells = content["cells"]
    if not isinstance(cells, list) or any(not isinstance(cell, list) or len(cell) != 3 for cell in cells):
        raise ValueError(f"{path}: every cell must be a list of three numbers [k, d, epsilon]")
    try:
        return PackingGrid(cells, str(content.get("source", "")))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _from_csv(path: Path) -> PackingGrid:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(line for line in lines if not line.startswith("#"))
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or [])]
        if missing:
            raise ValueError(
                f"{path} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: expected a header with "
                f"{', '.join(COLUMNS)}, found {reader.fieldnames}"
            )
        rows = [[row[column] for column in COLUMNS] for row in reader]
    try:
        return PackingGrid([[float(value) for value in row] for row in rows], str(path))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def load_grid(path: str | Path) -> PackingGrid:
    """Read a packing grid from a file.

    Args:
      path: a .json file {"source": .., "cells": [[k, d, epsilon], ..]} or a .csv file with columns k, d, epsilon
        (in any order, other columns ignored, lines starting with # skipped).

    Raises:
      FileNotFoundError: no such file.
      ValueError: another format, wrong columns, or values that are not a grid.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no packing grid at {path}")
    readers = {".json": _from_json, ".csv": _from_csv}
    if path.suffix.lower() not in readers:
        raise ValueError(f"a packing grid is a .json or .csv file, got {path.name}")
    return readers[path.suffix.lower()](path)


def measured_grid() -> PackingGrid:
    """Return the grid that comes with the package: packings found by `repcap_jax.pack`, its `source` saying how."""
    return load_grid(Path(__file__).parent / "data" / "measured_packing.json")


def as_grid(grid: Any) -> PackingGrid:
    """Return a PackingGrid from one, from a path, or from an array of rows [k, d, epsilon]."""
    if isinstance(grid, PackingGrid):
        return grid
    return load_grid(grid) if isinstance(grid, (str, Path)) else PackingGrid(grid)
