"""Large operations of JAX; see heavy.py."""
import hashlib
import os

os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
os.environ.setdefault('XLA_FLAGS', '--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0')
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from heavy import group, main  # noqa: E402


def rand(*shape, seed=1):
	return jax.random.normal(jax.random.PRNGKey(seed), shape)


@jax.jit
def chain(x):
	for _ in range(10):
		x = jnp.tanh(x * 1.01) + 0.01
	return x


@jax.jit
def product(a, b):
	return jnp.tanh(a @ b * 0.01)


@jax.jit
def sorted_scan(x):
	return jnp.sort(x), jnp.cumsum(x)


@jax.jit
def scanned(w, x):
	return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w * 0.05), None), x, None, length=20)[0]


@jax.jit
def trained(w, x):
	return w - 0.1 * jax.grad(lambda v: jnp.mean((jnp.tanh(x @ v) - x) ** 2))(w)


@group
def elementwise():
	return [chain(rand(1 << 25))]


@group
def matmul():
	return [product(rand(4096, 4096), rand(4096, 4096, seed=2))]


@group
def sort_and_scan():
	return list(sorted_scan(rand(1 << 23)))


@group
def scan():
	return [scanned(rand(1024, 1024), rand(2048, 1024, seed=2))]


@group
def training():
	w, x = rand(1024, 1024), rand(4096, 1024, seed=2)
	for _ in range(10):
		w = trained(w, x)
	return [w]


@group
def softmax():
	return [jax.nn.softmax(rand(8192, 8192), 1)]


def digest(arrays):
	h = hashlib.sha256()
	for a in arrays:
		h.update(np.asarray(a).tobytes())
	return h.hexdigest()[:16]


assert jax.devices()[0].platform in ('gpu', 'cuda')
main(digest)
