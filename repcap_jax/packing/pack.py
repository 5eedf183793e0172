"""`pack`: k vectors in R^d with the largest cosine as small as an annealed descent can make it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from repcap_jax.capacity import CoherenceBound, coherence_bound
from repcap_jax.kernels.checks import one_of, whole
from repcap_jax.kernels.placement import rows_mesh, same_in_all_processes, spans_processes
from repcap_jax.packing.code_bounds import code_bound
from repcap_jax.packing.exact import known_best
from repcap_jax.packing.initial import Start, resolve_init, starting_vectors
from repcap_jax.packing.objective import OBJECTIVES, PRODUCT_DTYPES, Tiling, choose_tile
from repcap_jax.packing.optimiser import HISTORY_CHUNK, DescentState, Schedule, StepRecord, advance, start_descent
from repcap_jax.packing.polish import exact_coherence, sharpen
from repcap_jax.packing.result import History, Packing, PackSettings

if TYPE_CHECKING:
    from repcap_jax.packing.run_store import RunStore

Progress = Callable[[int, int], None]  # steps done, steps in all

# Starts are run side by side up to this many cosines at once.
_COSINES_AT_ONCE = 1 << 18
_MOST_STARTS = 256
# Different p at the start lead to different packings; which is best depends on how symmetric the optimum is.
_P_OF_STARTS = (1.0, 2.0, 4.0, 8.0, 20.0, 60.0)
_POLISHED_STARTS = 4
_POLISHED_COORDINATES = 400  # k (d - 1) beyond which the linear programs take minutes
_MET = 1e-9  # a bound reached to this is met
_SECONDS_PER_CALL = 2.0
_SECONDS_PER_CHECKPOINT = 60.0


def pack(
    key: Array,
    k: int,
    d: int,
    *,
    objective: str = "lines",
    steps: int | None = None,
    starts: int | None = None,
    init: Any = "random",
    dtype: str = "float32",
    tile: int | None = None,
    mesh: Mesh | None = None,
    checkpoint_dir: str | Path | None = None,
    progress: Progress | None = None,
) -> Packing:
    """Pack k unit vectors in R^d so that their largest cosine is small.

        lines:  minimise max over i < j of |v_i . v_j|        (vectors up to sign; near-orthogonal directions)
        codes:  minimise max over i < j of  v_i . v_j         (points on the sphere)

    A smooth maximum is annealed by Adam on the sphere (`optimiser.py`), in float32; the best vectors met are kept.
    Small packings are then sharpened in float64 (`polish.py`). Where theory gives the best arrangement (k <= d + 1
    lines, k <= 2d points, the plane) it is returned at once. Each step is independent of tile size and devices up to
    float32 rounding; on one machine the same arguments give the same vectors, bit for bit, interrupted or not.

    Args:
      key: a `jax.random` key.
      k: number of vectors, >= 2.
      d: dimension, >= 2.
      objective: `"lines"` or `"codes"`.
      steps: steps of each start; `None` chooses 300 to 4,000, fewer for large k^2 d.
      starts: independent starts, the best of which is returned; `None` chooses 256 for k <= 32 down to 1 from k = 363
        on. A start that is one tile runs side by side with the others, larger ones take turns.
      init: `"random"`; `"construction"` for the best of `capacity.constructions`, or a `Construction` (its first k
        lines, zero-padded to R^d); or `(k, d)` vectors, from which the descent goes on at a small learning rate. The
        result is never worse than what was given.
      dtype: of the matrix products: `"float32"`, or `"bfloat16"` (sums in float32; the last fifth of the steps uses
        float32 products, which recovers most of the loss of about 1 %).
      tile: rows of a block, 8 to 8,192; `None` chooses by platform.
      mesh: devices to share the pairs; `None` for the default device.
      checkpoint_dir: folder for checkpoints, about every minute; a run started again with the same arguments continues
        there and gives the same numbers as one that was never stopped. Not for a mesh over several processes.
      progress: called as `progress(steps_done, steps)`.
    Returns:
      Packing. After Ctrl-C it holds the best vectors so far and `completed` is False.
    Raises:
      TypeError, ValueError: for arguments out of range, or a checkpoint folder of another run.
      BoundViolation: if the coherence found were below a proven bound (an internal error).
    Source: the objective generalises Guha 2026 (arXiv:2606.02765), whose script runs Adam on sum |G|^p at a fixed p and
      keeps the last vectors; schedule, smooth maximum, tangent steps and polish are ours.
    """
    began = time.monotonic()
    if not isinstance(key, jax.Array):
        raise TypeError(f"key must be a jax.random key, for instance jax.random.key(0), got {key!r}")
    k, d = whole(k, "k", 2), whole(d, "d", 2)
    objective = one_of(objective, OBJECTIVES, "objective")
    dtype = one_of(dtype, PRODUCT_DTYPES, "dtype")
    steps = None if steps is None else whole(steps, "steps", 1)
    starts = None if starts is None else whole(starts, "starts", 1)
    tile = None if tile is None else whole(tile, "tile", 8, 8192)
    start = resolve_init(init, k, d)
    if start.warm and starts not in (None, 1):
        raise ValueError(f"starts must be 1 when init gives the vectors, got {starts}; use init='random' for more")

    bound = code_bound(k, d) if objective == "codes" else coherence_bound(k, d)
    task = _Task(key, k, d, objective, bound, began)
    best = known_best(k, d, objective)
    if best is not None:
        return _packing(task, best.vectors, settings=None)
    mesh = rows_mesh(mesh)
    if checkpoint_dir is not None and spans_processes(mesh):
        raise ValueError("checkpoint_dir is for runs of one process; leave it out when mesh spans several")
    tiling = Tiling(choose_tile(k, mesh) if tile is None else tile, mesh)
    settings = _settings(k, d, objective, steps, starts, start, dtype, tiling)
    if start.vectors is not None and exact_coherence(start.vectors, objective) <= bound.value + _MET:
        return _packing(task, start.vectors, settings=settings)
    run = _Run(task, settings, start, mesh, progress)
    if checkpoint_dir is None:
        run.descend(None)
    else:
        from repcap_jax.packing.run_store import RunStore  # here, because orbax takes seconds to import

        with RunStore(checkpoint_dir, run.identity()) as store:
            run.descend(store)
    return run.finish()


def default_starts(k: int) -> int:
    """Random starts that `pack` makes for k vectors: 256 for k <= 32, down to 1 from k = 363 on."""
    return int(np.clip(_COSINES_AT_ONCE // k**2, 1, _MOST_STARTS))


def default_steps(k: int, d: int, starts: int) -> int:
    """Steps of each start that `pack` does: 1,500 for several starts; 300 to 4,000 for one, fewer for large k^2 d."""
    # Work of one step: three products of 2d operations for each of k^2/2 pairs, and about 100 for the rest.
    return 1500 if starts > 1 else int(np.clip(5e12 / (k * k * (3.0 * d + 100.0)), 300, 4000))


def is_polished(k: int, d: int) -> bool:
    """Whether `pack` sharpens packings of this size in float64 after the descent."""
    return k * (d - 1) <= _POLISHED_COORDINATES


def _settings(
    k: int, d: int, objective: str, steps: int | None, starts: int | None, start: Start, dtype: str, tiling: Tiling
) -> PackSettings:
    if starts is None:
        starts = 1 if start.warm else default_starts(k)
    if steps is None:
        steps = default_steps(k, d, starts)
    small = starts > 1 or is_polished(k, d)
    rate = 0.15 / d**0.5
    return PackSettings(
        objective=objective,
        steps=steps,
        starts=starts,
        init=start.name,
        dtype=dtype,
        float32_steps=steps if dtype == "float32" else -(-steps // 5),
        tile=tiling.tile,
        devices=tiling.mesh.size,
        p_first=(200.0,) if start.warm else _P_OF_STARTS if starts > 1 else (4.0,),
        p_last=2e4 if small else 2e3,
        rate_first=rate / 20 if start.warm else rate,
        # Small packings end in contacts that all must agree; large ones have no steps to spare for it.
        rate_last=rate / (2000 if small else 200),
    )


class _Task(NamedTuple):
    """What is asked for, and since when."""

    key: Array
    k: int
    d: int
    objective: str
    bound: CoherenceBound
    began: float

    def key_record(self) -> tuple[tuple[int, ...], str]:
        """The key's numbers and its implementation."""
        typed = jnp.issubdtype(self.key.dtype, jax.dtypes.prng_key)
        data = jax.random.key_data(self.key) if typed else self.key
        impl = str(jax.random.key_impl(self.key)) if typed else "raw"
        return tuple(int(word) for word in np.asarray(data).reshape(-1)), impl


class _Run:
    """One descent: calls of some seconds, checkpoints between them, then the polish."""

    def __init__(self, task: _Task, settings: PackSettings, start: Start, mesh: Mesh, progress: Progress | None):
        self.task, self.settings, self.start, self.mesh, self.progress = task, settings, start, mesh, progress
        self.schedule = Schedule(settings.steps, settings.rate_first, settings.rate_last, settings.p_last)
        self.p_first = jnp.asarray(np.resize(settings.p_first, settings.starts), jnp.float32)
        self.done, self.interrupted = 0, False
        self.records = StepRecord(*(np.zeros((settings.steps, settings.starts), np.float32) for _ in range(3)))
        vectors = starting_vectors(task.key, start, settings.starts, task.k, task.d)
        self.state: DescentState = start_descent(vectors, task.objective, self._tiling("float32"), self.schedule)

    def _tiling(self, dtype: str) -> Tiling:
        return Tiling(self.settings.tile, self.mesh, dtype)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must share with this run to be continued by it. Devices and tile need not agree: they move
        the last bits of the sums alone."""
        data, impl = self.task.key_record()
        given = None if self.start.vectors is None else hashlib.sha256(self.start.vectors.tobytes()).hexdigest()
        settings = self.settings.to_record()
        del settings["devices"], settings["tile"]
        return {"k": self.task.k, "d": self.task.d, "key": list(data), "key_impl": impl, "given": given, **settings}

    def descend(self, store: RunStore | None) -> None:
        """Do the steps that are left. An interrupt ends the descent early and keeps what was reached."""
        if store is not None:
            found = store.restore((self.state, self.records))
            if found is not None:
                self.state, self.records = found
                self.done = int(np.asarray(self.state.step).reshape(-1)[0])
        try:
            self._steps_left(store)
        except KeyboardInterrupt:
            self.interrupted = True
        if store is not None:
            store.save(self.done, (self.state, self.records))

    def _steps_left(self, store: RunStore | None) -> None:
        steps, saved, count = self.settings.steps, time.monotonic(), 1
        while self.done < steps:
            began = time.monotonic()
            count = self._call(min(count, HISTORY_CHUNK))
            seconds = time.monotonic() - began
            # The first call compiles and says little about the next one.
            count = max(1, min(2 * count, int(count * _SECONDS_PER_CALL / max(seconds, 1e-6))))
            count = same_in_all_processes(count, self.mesh)
            if self.progress is not None:
                self.progress(self.done, steps)
            if store is not None and time.monotonic() - saved > _SECONDS_PER_CHECKPOINT:
                store.save(self.done, (self.state, self.records))
                saved = time.monotonic()

    def _call(self, count: int) -> int:
        """At most `count` steps in one call of the device; returns how many."""
        low_precision = self.settings.steps - self.settings.float32_steps - self.done
        dtype = self.settings.dtype if low_precision > 0 else "float32"
        count = min(count, self.settings.steps - self.done, low_precision if low_precision > 0 else count)
        state, records = advance(
            self.state,
            self.p_first,
            np.int32(count),
            objective=self.task.objective,
            tiling=self._tiling(dtype),
            schedule=self.schedule,
        )
        fetched = jax.device_get(records)  # waits; an interrupt before here leaves the state as it was
        for kept, new in zip(self.records, fetched):
            kept[self.done : self.done + count] = new[:count]
        self.state, self.done = state, self.done + count
        return count

    def finish(self) -> Packing:
        """The best of all starts, sharpened where it is small enough."""
        reached = [self._reached(number) for number in range(self.settings.starts)]
        order = np.argsort([coherence for _, coherence in reached], kind="stable")
        winner, polished = int(order[0]), False
        vectors, coherence = reached[winner]
        if self.start.vectors is not None:
            given = exact_coherence(self.start.vectors, self.task.objective)
            vectors, coherence = (self.start.vectors, given) if given < coherence else (vectors, coherence)
        if is_polished(self.task.k, self.task.d) and not self.interrupted:
            for number in order[:_POLISHED_STARTS]:
                if coherence <= self.task.bound.value + _MET:
                    break
                sharpened = self._sharpen(reached[number][0])
                found = exact_coherence(sharpened, self.task.objective)
                if found < coherence:
                    winner, vectors, coherence, polished = int(number), sharpened, found, True
        return _packing(
            self.task,
            vectors,
            settings=self.settings,
            history=History(np.arange(self.done), *(record[: self.done, winner] for record in self.records)),
            start_coherences=np.array([coherence for _, coherence in reached]),
            polished=polished,
            completed=not self.interrupted,
        )

    def _reached(self, number: int) -> tuple[np.ndarray, float]:
        """The better ones of a start's best and last vectors (which no step has judged), and their coherence."""
        candidates = [np.asarray(vectors[number]) for vectors in (self.state.best_vectors, self.state.vectors)]
        coherences = [exact_coherence(vectors, self.task.objective) for vectors in candidates]
        best = int(np.argmin(coherences))
        return candidates[best], coherences[best]

    def _sharpen(self, vectors: np.ndarray) -> np.ndarray:
        try:
            return sharpen(vectors, self.task.objective, floor=self.task.bound.value)
        except KeyboardInterrupt:
            self.interrupted = True
            return vectors


def _packing(
    task: _Task,
    vectors: np.ndarray,
    *,
    settings: PackSettings | None,
    history: History | None = None,
    start_coherences: np.ndarray | None = None,
    polished: bool = False,
    completed: bool = True,
) -> Packing:
    if history is None:
        nothing = np.zeros(0, np.float32)
        history = History(np.zeros(0, np.int64), nothing, nothing, nothing)
    rows = np.asarray(vectors, np.float32)
    data, impl = task.key_record()
    return Packing(
        vectors=rows,
        coherence=exact_coherence(rows, task.objective),
        objective=task.objective,
        bound=task.bound.value,
        bound_name=task.bound.name,
        history=history,
        start_coherences=np.zeros(0) if start_coherences is None else start_coherences,
        polished=polished,
        completed=completed,
        settings=settings,
        key_data=data,
        key_impl=impl,
        seconds=time.monotonic() - task.began,
    )
