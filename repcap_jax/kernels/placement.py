"""Rows of a host matrix, placed on a mesh of devices in padded, equal shards."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Shaped

from repcap_jax.kernels.precision import row_scales

AXIS = "rows"  # the mesh's only axis
SHARD_MULTIPLE = 128  # shard sizes are a multiple of this many rows

# Bytes moved from the host at a time: large enough to hide the call, small beside any matrix worth sharding.
_COPY_BYTES = 32 << 20

_KEPT_DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float16, ml_dtypes.bfloat16))


def rows_mesh(mesh: Mesh | None = None) -> Mesh:
    """The devices of `mesh` (any shape) as one axis `"rows"`; `None` means the first local device alone."""
    devices = np.array(jax.local_devices()[:1]) if mesh is None else mesh.devices.reshape(-1)
    return Mesh(devices, (AXIS,))


def device_mesh(devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh over all devices of all processes (or those given), for the `mesh` argument of the kernels."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (AXIS,))


def spans_processes(mesh: Mesh) -> bool:
    """Whether the devices of a mesh belong to more than one process."""
    return len({device.process_index for device in mesh.devices.flat}) > 1


def same_in_all_processes(value: int, mesh: Mesh) -> int:
    """The value of process 0, where a mesh spans several: what is decided by a clock must not differ between them."""
    if not spans_processes(mesh):
        return value
    from jax.experimental import multihost_utils

    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def on_host(tree: Any, mesh: Mesh) -> Any:
    """Arrays that live on a mesh as NumPy arrays, whole, in every process."""
    if spans_processes(mesh):
        tree = jax.jit(lambda arrays: arrays, out_shardings=NamedSharding(mesh, P()))(tree)
    return jax.device_get(tree)


def check_matrix(x: Any, name: str = "x") -> np.ndarray:
    """`x` as a two-dimensional NumPy view (memory-mapped and bfloat16 arrays stay what they are).

    Raises:
      TypeError: for something that is not a real-valued array.
      ValueError: for an array that is not two-dimensional or is empty.
    """
    array = x if isinstance(x, np.ndarray) else np.asarray(x)
    if not (array.dtype.kind in "fiu" or array.dtype in _KEPT_DTYPES):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} must be a non-empty matrix with one vector a row, got shape {array.shape}")
    if array.shape[0] >= 2**31 - 2**24:
        raise ValueError(f"{name} has {array.shape[0]} rows; row numbers must fit 32 bits")
    return array


def device_dtype(array: np.ndarray) -> np.dtype:
    """The dtype a matrix has on device: 16-bit floats stay (half the memory, exact in float32), the rest is float32."""
    return array.dtype if array.dtype in _KEPT_DTYPES else np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Slab:
    """Which rows of a matrix are on the mesh at one time.

    Shard `r` holds rows `start + r * per_shard` up to the next shard's first or `start + count`.
    """

    start: int
    count: int
    per_shard: int

    def shard_bounds(self, shard: int) -> tuple[int, int]:
        first = min(shard * self.per_shard, self.count)
        last = min(first + self.per_shard, self.count)
        return self.start + first, self.start + last


class Placed(NamedTuple):
    """A slab's rows as stored, and `1 / |x_i|` for each (0 for excluded rows and padding), sharded over the mesh."""

    values: Shaped[Array, "shards_times_size d"]
    scales: Float[Array, " shards_times_size"]


def place(x: np.ndarray, slab: Slab, size: int, mesh: Mesh) -> Placed:
    """Copy a slab to the mesh, each shard padded with zero rows to `size`, a multiple of `SHARD_MULTIPLE`.

    Shards are filled in place, a block at a time, so that neither a padded copy on the host nor a second buffer on the
    device exists. In a run of several processes each one reads only the rows of its own devices.
    """
    shape = (size * mesh.size, x.shape[1])
    devices = list(mesh.devices.reshape(-1))
    shards = [
        _fill(x, *slab.shard_bounds(r), size, device)
        for r, device in enumerate(devices)
        if device.process_index == jax.process_index()
    ]
    sharding = NamedSharding(mesh, P(AXIS))
    values = jax.make_array_from_single_device_arrays(shape, sharding, shards)
    return Placed(values, _sharded_scales(values, mesh))


def _fill(x: np.ndarray, first: int, last: int, size: int, device: jax.Device) -> Array:
    dtype = device_dtype(x)
    block = max(1, min(size, _COPY_BYTES // (x.shape[1] * dtype.itemsize)))
    shard = jnp.zeros((size, x.shape[1]), dtype, device=device)
    for start in range(first, last, block):
        part = _as_dtype(x[start : min(start + block, last)], dtype)
        if len(part) < block:
            # One block shape, one program: the last block is placed so that it ends with the shard's last row.
            begin = max(first, last - block)
            part = _as_dtype(x[begin:last], dtype)
            part = np.concatenate([part, np.zeros((block - len(part), x.shape[1]), dtype)])
            start = begin
        shard = _write(shard, part, np.int32(start - first))
    return shard


def _as_dtype(block: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold becomes inf: an excluded row
        return np.asarray(block).astype(dtype, copy=False)


@functools.partial(jax.jit, donate_argnums=0)
def _write(shard: Array, block: Array, start: Array) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(shard, block, start, 0)


@functools.partial(jax.jit, static_argnames="mesh")
def _sharded_scales(values: Array, mesh: Mesh) -> Array:
    def local(values: Array) -> Array:
        # A few rows at a time: what the norm needs on the way would otherwise be another matrix or two.
        blocks = values.reshape(-1, SHARD_MULTIPLE, values.shape[1])
        return jax.lax.map(row_scales, blocks).reshape(-1)

    return jax.shard_map(local, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False)(values)


@functools.partial(jax.jit, static_argnames="mesh")
def _replicated(values: Array, mesh: Mesh) -> Array:
    return jax.lax.with_sharding_constraint(values, NamedSharding(mesh, P()))


def ring_reduce(merge: Callable[[Any, Any], Any], state: Any, devices: int) -> Any:
    """Inside shard_map: the devices' states merged, in every device, holding three states at a time.

    Gathering all of them first would take memory that grows with the number of devices.
    """
    passes = [((r + 1) % devices, r) for r in range(devices)]

    def turn(_: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        whole, passed = carry
        passed = jax.tree.map(lambda leaf: jax.lax.ppermute(leaf, AXIS, passes), passed)
        return merge(whole, passed), passed

    return jax.lax.fori_loop(0, devices - 1, turn, (state, state))[0]


def bucket(blocks: int) -> int:
    """A number of blocks rounded up to three bits after the leading one, so that sizes share compiled programs.

    At most an eighth is added: 1 .. 16, 18, 20, .. 32, 36, ..
    """
    step = 1 << max(0, blocks.bit_length() - 4)
    return -(-blocks // step) * step


def excluded_rows(placed: Placed, slab: Slab, mesh: Mesh) -> np.ndarray:
    """Row numbers in the slab that have no direction (zero or non-finite), rising, known to every process."""
    scales = np.asarray(_replicated(placed.scales, mesh)).reshape(mesh.size, -1)
    found = []
    for shard in range(mesh.size):
        first, last = slab.shard_bounds(shard)
        found.append(first + np.flatnonzero(scales[shard, : last - first] == 0))
    return np.concatenate(found)
