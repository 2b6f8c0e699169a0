"""PyTorch without numbers, for trials of tests/gpu without a card."""
import sys

from anything import Anything

__version__ = 'fake'
for sub in ('nn', 'nn.functional', 'nn.attention', 'cuda', 'linalg', 'fft', 'optim', 'backends', 'amp'):
	sys.modules[f'torch.{sub}'] = Anything(sub)


def __getattr__(name):
	if name.startswith('__'):
		raise AttributeError(name)
	return Anything(name)
