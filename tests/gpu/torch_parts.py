"""Common parts of the PyTorch programs of this folder: a training step, an encoder, a captured graph, and lines of JSON."""
import json
import sys

import torch


def say(**answer):
	sys.stdout.write(json.dumps(answer) + '\n')  # print writes the end of a line by itself if PYTHONUNBUFFERED is set
	sys.stdout.flush()


def training_step(lr):
	"""Returns the parameters of a small perceptron and a step of its training."""
	model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).to('cuda')
	optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
	x = torch.randn(256, 512, device='cuda')

	def step():
		optimizer.zero_grad()
		((model(x) - x) ** 2).mean().backward()
		optimizer.step()
	return model.parameters, step


def encoder(layers, *to):
	"""Returns a transformer encoder for inference; to: its type, if it is not that of the parameters."""
	layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0)
	return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to('cuda', *to).eval()


def captured(body, warm=None, **options):
	"""Returns a CUDA graph of the body and what the body returned, after a run of `warm` (default: of the body) on a stream of its own."""
	side = torch.cuda.Stream()
	side.wait_stream(torch.cuda.current_stream())
	with torch.cuda.stream(side):
		(warm or body)()
	torch.cuda.current_stream().wait_stream(side)
	g = torch.cuda.CUDAGraph()
	with torch.cuda.graph(g, **options):
		result = body()
	return g, result


def halving():
	"""Returns a tensor and a body of 20 small kernels that change it."""
	x = torch.zeros(1 << 16, device='cuda')
	w = torch.randn(1 << 16, device='cuda')

	def body():
		for _ in range(10):
			x.mul_(0.5).add_(w)
	return x, body
