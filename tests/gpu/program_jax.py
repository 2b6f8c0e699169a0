"""JAX: a jitted training step and a scan. Prints one JSON line like program_torch.py."""
import hashlib
import json
import os
import statistics
import time

os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
os.environ.setdefault('XLA_FLAGS', '--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0')
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


def timed(step, n=60):
	for _ in range(3):
		step()
	times = []
	for _ in range(n):
		begin = time.perf_counter()
		step()
		times.append(time.perf_counter() - begin)
	return statistics.median(times) * 1e6


key = jax.random.PRNGKey(4)
w = jax.random.normal(key, (256, 256)) * 0.05
x = jax.random.normal(key, (128, 256))
state = [w]


@jax.jit
def train(w):
	return w - 0.1 * jax.grad(lambda v: jnp.mean((jnp.tanh(x @ v) - x) ** 2))(w)


@jax.jit
def scanned(w):
	return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=20)[0]


def step_train():
	state[0] = train(state[0]).block_until_ready()


last = []


def step_scan():
	last[:] = [scanned(w).block_until_ready()]


result = {}
for name, step, value in (('train', step_train, lambda: state[0]), ('scan', step_scan, lambda: last[0])):
	t = timed(step)
	result[name] = {'hash': hashlib.sha256(np.asarray(value()).tobytes()).hexdigest()[:16], 'step_us': t}
assert jax.devices()[0].platform in ('gpu', 'cuda')
print(json.dumps(result))
