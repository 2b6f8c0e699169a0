"""What several reports print alike."""


def plural(n):
	return '' if n == 1 else 's'
