"""ROLE KIND,...: one of the two programs of `beside`. Prepares the kinds, says `ready`, or why a kind cannot be had as `absent`. Then it
reads commands as lines from standard input and answers each with a line of JSON.
ROLE lc: "run KIND SECONDS SEED": requests 1 to 4 ms after each other, their latencies in us, those of their parts by name, and how many
had a wrong result.
ROLE be: "work" until "rest": steps of its one kind, their number and time."""
import os
import random
import select
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from torch_parts import say

role, kinds = sys.argv[1], sys.argv[2].split(',')
torch.manual_seed(0)
device = torch.device('cuda')
half = torch.bfloat16


# ---- requests ----

def small():
	"""Four transformer layers, batch 1: about 40 small library kernels, launched asynchronously."""
	layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0).to(device, half).eval()
	model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device, half).eval()
	x = torch.randn(1, 64, 512, device=device, dtype=half)
	return lambda: model(x).float().sum().item()


def one():
	x = torch.ones(132 * 256, device=device)

	def request():
		y = x + 1
		torch.cuda.synchronize()
		return y.numel()
	return request


def generator():
	"""Returns a language model with random weights, and a prompt."""
	from transformers import GPT2Config, GPT2LMHeadModel
	return GPT2LMHeadModel(GPT2Config()).to(device).eval(), torch.randint(50257, (1, 32), device=device)


def generate():
	"""16 tokens, one after the other: small kernels, and work of the host between them."""
	model, prompt = generator()

	def request():
		tokens = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, min_new_tokens=16, do_sample=False,
			pad_token_id=50256)
		return [int(t) for t in tokens[0].tolist()]
	return request


def streams():
	"""16 tokens four times at once, by threads with a stream each. Parts: `first`, the times to the first tokens; `token`, those between
	two."""
	model, prompt = generator()
	own = [torch.cuda.Stream() for _ in range(4)]
	pool, parts = ThreadPoolExecutor(len(own)), {'first': [], 'token': []}
	torch.cuda.synchronize()

	def tokens(stream):
		known, last, given, at = None, prompt, [], [time.perf_counter()]
		with torch.inference_mode(), torch.cuda.stream(stream):
			for _ in range(16):
				out = model(last, past_key_values=known, use_cache=True)
				known, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
				given.append(last.item())
				at.append(time.perf_counter())
		return given, [(b - a) * 1e6 for a, b in zip(at, at[1:])]

	def request():
		done = list(pool.map(tokens, own))
		for _, us in done:
			parts['first'].append(us[0])
			parts['token'] += us[1:]
		return [given for given, _ in done]
	request.parts = parts
	return request


def requests(request, reference, seconds, seed):
	gaps, us, wrong, end = random.Random(seed), [], 0, time.monotonic() + seconds
	parts = getattr(request, 'parts', {})
	for values in parts.values():
		values.clear()
	while time.monotonic() < end:
		time.sleep(gaps.uniform(0.001, 0.004))
		begin = time.perf_counter()
		result = request()
		us.append((time.perf_counter() - begin) * 1e6)
		wrong += result != reference
	say(us=us, wrong=wrong, parts=parts)


# ---- batch ----

def product(n, kind):
	a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
	return lambda: a @ b


def attention():
	q, k, v = (torch.randn(4, 32, 4096, 128, device=device, dtype=half) for _ in range(3))
	return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def training():
	layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0)
	model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device, half)
	x = torch.randn(8, 512, 1024, device=device, dtype=half)
	optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

	def step():
		optimizer.zero_grad()
		((model(x) - x) ** 2).mean().backward()
		optimizer.step()
	return step


def convolution():
	x = torch.randn(64, 256, 56, 56, device=device, dtype=half)
	layer = torch.nn.Conv2d(256, 256, 3, padding=1).to(device, half)

	def step():
		with torch.no_grad():
			layer(x)
	return step


def trained(model, loss_of):
	"""Returns a step of training with SGD, bf16 by autocast. loss_of: returns the loss of the model."""
	model = model.to(device)
	optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

	def step():
		optimizer.zero_grad()
		with torch.autocast('cuda', dtype=half):
			loss = loss_of(model)
		loss.backward()
		optimizer.step()
	return step


def classifier(name, n):
	import torchvision
	images, classes = torch.randn(n, 3, 224, 224, device=device), torch.randint(1000, (n,), device=device)
	return trained(getattr(torchvision.models, name)(), lambda model: torch.nn.functional.cross_entropy(model(images), classes))


def language_model():
	from transformers import GPT2Config, GPT2LMHeadModel
	tokens = torch.randint(50257, (8, 512), device=device)
	return trained(GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16)), lambda model: model(tokens, labels=tokens).loss)


def fourier():
	x = torch.randn(64, 512, 512, device=device, dtype=torch.complex64)
	return lambda: torch.fft.fft2(x)


def cupy_step():
	import cupy
	a = cupy.random.random((4096, 4096), dtype=cupy.float32)

	def step():
		cupy.tanh(a @ a) + cupy.sqrt(a)
		if next(count) % 8 == 0:
			cupy.cuda.Device().synchronize()
	count = iter(range(1 << 62))
	return step


def jax_step():
	import jax
	a = jax.random.normal(jax.random.PRNGKey(0), (4096, 4096))
	f = jax.jit(lambda a: jax.numpy.tanh(a @ a * 0.01))

	def step():
		r = f(a)
		if next(count) % 8 == 0:
			r.block_until_ready()
	count = iter(range(1 << 62))
	return step


REQUESTS = {'small': small, 'one': one, 'generate': generate, 'streams': streams}
BATCH = {'f32-8192': lambda: product(8192, torch.float32), 'bf16-8192': lambda: product(8192, half),
	'bf16-4096': lambda: product(4096, half), 'attention': attention, 'training': training, 'convolution': convolution,
	'fft': fourier, 'cupy': cupy_step, 'jax': jax_step, 'resnet': lambda: classifier('resnet50', 64),
	'vit': lambda: classifier('vit_b_16', 32), 'gpt2': language_model}


def work(step):
	"""Keeps three steps of batch in the queue until the next command."""
	marks = [torch.cuda.Event() for _ in range(3)]
	begin, n = time.monotonic(), 0
	while not select.select([sys.stdin], [], [], 0)[0]:
		step()
		marks[n % 3].record()
		n += 1
		if n >= 3:
			marks[n % 3].synchronize()
	torch.cuda.synchronize()
	return n, time.monotonic() - begin


def prepare():
	"""Returns the steps of the kinds, each with the result of its first call, when everything is loaded and compiled."""
	made = {}
	for kind in kinds:
		step = (REQUESTS if role == 'lc' else BATCH)[kind]()
		made[kind] = step, step()
		for _ in range(20 if role == 'lc' else 4):
			step()
		torch.cuda.synchronize()
	return made


def main():
	os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
	with torch.inference_mode(role == 'lc'):
		try:
			made = prepare()
		except ImportError as e:
			say(absent=str(e))
			return
		say(ready=os.getpid())
		for line in sys.stdin:
			command, *words = line.split()
			if command == 'run':
				requests(*made[words[0]], float(words[1]), int(words[2]))
			elif command == 'work':
				n, seconds = work(made[kinds[0]][0])
				sys.stdin.readline()
				say(rounds=n, seconds=seconds)


main()
