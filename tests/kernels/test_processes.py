"""The same walk under jax.distributed: two processes on loopback, each with two CPU devices."""

import json
import subprocess
import sys
import textwrap

import numpy as np

from repcap_jax.kernels.listing import PairsAbove
from repcap_jax.kernels.moments import cosine_moments
from repcap_jax.kernels.pairs import fold_pairs
from repcap_jax.kernels.reducers import Extremes, Histogram, NearestNeighbours
from tests import oracles
from tests.processes import free_port, outputs_of

_PROCESS = textwrap.dedent(
    """
    import json, sys
    import jax
    import numpy as np

    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]), initialization_timeout=60)
    from repcap_jax.kernels.moments import cosine_moments
    from repcap_jax.kernels.pairs import fold_pairs
    from repcap_jax.kernels.placement import device_mesh
    from repcap_jax.kernels.listing import PairsAbove
    from repcap_jax.kernels.reducers import Extremes, Histogram, NearestNeighbours

    x = np.load(sys.argv[3], mmap_mode="r")
    reducers = [Histogram(100), NearestNeighbours(2), Extremes(), PairsAbove(0.5, 1000)]
    found = fold_pairs(x, reducers, mesh=device_mesh(), tile=128)
    moments = cosine_moments(x, mesh=device_mesh())
    histogram, neighbours, extremes, above = found.results
    print(json.dumps({
        "devices": found.devices, "excluded": found.excluded_rows.tolist(), "counts": histogram.counts.tolist(),
        "ids": neighbours.ids.tolist(), "largest": extremes.largest[1:], "above": above.total,
        "mean": moments.mean, "std": moments.std,
    }))
    """
)


def test_two_processes(tmp_path):
    x = (np.random.default_rng(4).standard_normal((900, 20)) + 0.3).astype(np.float32)
    x[11] = 0.0
    np.save(tmp_path / "x.npy", x)
    address = f"127.0.0.1:{free_port()}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, address, str(number), str(tmp_path / "x.npy")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    outputs = outputs_of(processes)
    assert all(process.returncode == 0 for process in processes), outputs
    results = [json.loads(out.strip().splitlines()[-1]) for out, _ in outputs]
    assert results[0] == results[1]

    got = results[0]
    alone = fold_pairs(x, [Histogram(100), NearestNeighbours(2), Extremes(), PairsAbove(0.5, 1000)], tile=128)
    histogram, neighbours, extremes, above = alone.results
    assert got["devices"] == 4 and got["excluded"] == [11]
    assert sum(got["counts"]) == 899 * 898 // 2
    oracles.assert_counts_match(np.array(got["counts"]), histogram.edges, oracles.pair_cosines(x), oracles.rounding(20))
    assert got["ids"] == neighbours.ids.tolist()
    assert tuple(got["largest"]) == extremes.largest[1:] and abs(got["above"] - above.total) <= 1
    moments = cosine_moments(x)
    np.testing.assert_allclose([got["mean"], got["std"]], [moments.mean, moments.std], rtol=1e-6)
