"""PyTorch without numbers, for trials of tests/gpu without a card."""
import sys

from anything import Anything

__version__ = 'fake'
for sub in ('nn', 'nn.functional', 'nn.attention', 'cuda', 'linalg', 'fft', 'optim', 'backends', 'amp', 'distributed._symmetric_memory',
	'multiprocessing', 'multiprocessing.reductions'):
	sys.modules[f'torch.{sub}'] = Anything(sub)


class Distributed(Anything):
	def all_gather_object(self, got, mine):
		got[:] = [mine] * len(got)


distributed = Distributed('distributed')


def __getattr__(name):
	if name.startswith('__'):
		raise AttributeError(name)
	return Anything(name)
