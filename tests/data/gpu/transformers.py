"""Transformers without numbers, for trials of tests/gpu without a card."""
from anything import Anything

__version__ = 'fake'


def __getattr__(name):
	if name.startswith('__'):
		raise AttributeError(name)
	return Anything(name)
