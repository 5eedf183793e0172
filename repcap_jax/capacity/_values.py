"""Small shared helpers: checking numbers that come in, and writing numbers that go into JSON."""

import math
from typing import Any

import numpy as np

# Any real number that a user may hand over; checks narrow it down.
Number = int | float | np.number
# What NumPy makes of arrays of them: operations on 0-d arrays give scalars.
Values = np.ndarray | Number

# How much a relative rounding error of epsilon is forgiven, so that epsilon = 1 / sqrt(d) means what it says.
ROUNDING = 1e-15


def as_floats(value: Any, name: str) -> np.ndarray:
    """Return `value` as a float64 array, or say that it is not a number."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a real number or an array of them, got {value!r}") from error
    except OverflowError as error:
        raise ValueError(f"{name} exceeds float64; use logarithms for numbers this large") from error


def check_dimension(d: Any, name: str = "d") -> np.ndarray:
    """Return a dimension as float64, refusing anything that is not finite and at least 1."""
    values = as_floats(d, name)
    if not np.all(np.isfinite(values) & (values >= 1)):
        raise ValueError(f"{name} must be a finite dimension >= 1, got {d!r}")
    return values


def check_epsilon(epsilon: Any, name: str = "epsilon") -> np.ndarray:
    """Return epsilon as float64, refusing negative, NaN and infinite values."""
    values = as_floats(epsilon, name)
    if not np.all(np.isfinite(values) & (values >= 0)):
        raise ValueError(
            f"{name} must be finite and >= 0 (a bound on |cosine|), got {epsilon!r}; "
            "a negative mean + 2 std is of rows that point away from each other, of which no capacity law speaks"
        )
    return values


def check_count(k: Any, name: str = "k") -> np.ndarray:
    """Return a number of vectors as float64, refusing NaN and anything below 1."""
    values = as_floats(k, name)
    if not np.all(values >= 1):
        raise ValueError(f"{name} must be a number of vectors >= 1, got {k!r}")
    return values


def check_integer(value: Any, name: str, minimum: int) -> int:
    """Return `value` as an int that is at least `minimum`; whole floats such as 4096.0 are accepted."""
    # Integers are not sent through float64: counts of lines exceed it.
    if not isinstance(value, (int, np.integer)):
        number = as_floats(value, name)
        if number.ndim:
            raise TypeError(f"{name} must be one whole number, got an array of shape {number.shape}")
        value = float(number)
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    whole = int(value)
    if whole < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {whole}")
    return whole


def unwrap(values: Values) -> Any:
    """Return a float for a 0-d array and the array itself otherwise."""
    return float(values) if np.ndim(values) == 0 else values


def json_number(record: dict, key: str, value: float, reason: str) -> None:
    """Store a finite number under `key`, or null together with the reason under `key`_reason."""
    if math.isfinite(value):
        record[key] = value
    else:
        record[key] = None
        record[f"{key}_reason"] = reason
