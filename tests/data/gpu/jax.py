"""JAX without numbers, for trials of tests/gpu without a card."""
import sys
import types

from anything import Anything

__version__ = 'fake'
sys.modules['jax.numpy'] = numpy = Anything('numpy')


def devices():
	return [types.SimpleNamespace(platform='gpu')]


def __getattr__(name):
	if name.startswith('__'):
		raise AttributeError(name)
	return Anything(name)
