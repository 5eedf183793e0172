"""Eight CPU devices for the whole session, annotations checked at run time, meshes shared by all tests."""

import jax
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 8)
_hook = install_import_hook("repcap_jax", "beartype.beartype")

settings.register_profile(
    "repcap", deadline=None, max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repcap")


@pytest.fixture(scope="session")
def mesh_of():
    """`mesh_of(count)`: a mesh over the first `count` CPU devices."""
    from repcap_jax.kernels.placement import device_mesh

    return lambda count: device_mesh(jax.devices()[:count])
