"""Kernels of Triton for probe_load: rows of a softmax, and a product of matrices in tiles."""
import triton
import triton.language as tl


@triton.jit
def row_softmax(x, y, COLUMNS: tl.constexpr):
	i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
	e = tl.exp(tl.load(x + i))
	tl.store(y + i, e / tl.sum(e, 0))


@triton.jit
def tiled_product(a, b, c, n, BLOCK: tl.constexpr):
	rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
	columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
	acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
	for k in range(0, n, BLOCK):
		inner = k + tl.arange(0, BLOCK)
		acc = tl.dot(tl.load(a + rows[:, None] * n + inner[None, :]), tl.load(b + inner[:, None] * n + columns[None, :]), acc)
	tl.store(c + rows[:, None] * n + columns[None, :], acc)
