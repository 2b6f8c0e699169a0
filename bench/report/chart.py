"""Distributions as curves, as SVG and in a terminal: the share of values below x over x, on a logarithmic axis. The vertical axis
shows nines, because the slow requests matter. A panel is a title and curves; a curve is a name and sorted values."""
import html
import math

WIDTH, HEIGHT = 760, 320
LEFT, TOP, BOTTOM, RIGHT = 60, 30, 40, 150
W, H = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
STEPS = 240
COLUMNS, ROWS = 72, 16
NINES = 3.3  # up to 99.95 %
TICKS = ((0, '0 %'), (0.5, '50 %'), (0.9, '90 %'), (0.99, '99 %'), (0.999, '99.9 %'))
COLORS = ('#1b1b1b', '#d1495b', '#edae49', '#4c6ef5', '#8d5bd6', '#00798c', '#2e933c', '#c05299', '#7a5c3e')
TERMINAL = (37, 31, 33, 34, 35, 36, 32, 95, 93)
DOTS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))  # of a braille character, from the bottom


def height_of(q):
	return min(-math.log10(max(1 - q, 1e-9)) / NINES, 1)


def scale_of(curves):
	"""Returns the logarithms of the smallest and the largest value."""
	low = min(math.log10(max(v[0], 1e-3)) for _, v in curves)
	high = max(math.log10(max(v[-1], 1e-3)) for _, v in curves)
	return (low, high) if high - low >= 0.05 else (low - 0.05, high + 0.05)


def place_of(scale, value):
	return (math.log10(max(value, 1e-3)) - scale[0]) / (scale[1] - scale[0])


def value_at(v, k):
	"""Returns the value at step k of STEPS up the vertical axis."""
	return v[min(int((1 - math.pow(10, -(k / STEPS) * NINES)) * len(v)), len(v) - 1)]


def svg_grid(scale, y0):
	for q, name in TICKS:
		y = y0 + TOP + H * (1 - height_of(q))
		yield (f"<line x1='{LEFT}' y1='{y:.1f}' x2='{LEFT + W:.1f}' y2='{y:.1f}' stroke='#ddd'/><text x='{LEFT - 6}' y='{y + 4:.1f}' "
			f"text-anchor='end'>{name}</text>\n")
	for d in range(math.floor(scale[0]), math.ceil(scale[1]) + 1):
		for m in range(1, 10):
			value = m * math.pow(10, d)
			at = place_of(scale, value)
			x = LEFT + W * at
			if 0 <= at <= 1:
				color = '#ccc' if m == 1 else '#f0f0f0'
				yield f"<line x1='{x:.1f}' y1='{y0 + TOP:.1f}' x2='{x:.1f}' y2='{y0 + TOP + H:.1f}' stroke='{color}'/>\n"
				if m in (1, 2, 5):
					yield f"<text x='{x:.1f}' y='{y0 + TOP + H + 16:.1f}' text-anchor='middle'>{value:g}</text>\n"


def svg_curve(scale, name, v, i, y0):
	color, y, x = COLORS[i % len(COLORS)], y0 + TOP + 14 * i + 10, LEFT + W
	points = ''.join(f'{LEFT + W * place_of(scale, value_at(v, k)):.1f},{y0 + TOP + H * (1 - k / STEPS):.1f} ' for k in range(STEPS + 1))
	return (f"<polyline fill='none' stroke='{color}' stroke-width='1.6' points='{points}'/>\n"
		f"<line x1='{x + 12:.1f}' y1='{y - 4:.1f}' x2='{x + 30:.1f}' y2='{y - 4:.1f}' stroke='{color}' stroke-width='3'/>"
		f"<text x='{x + 35:.1f}' y='{y:.1f}'>{html.escape(name, False)}</text>\n")


def svg(panels):
	"""Returns a document with the panels one below the other."""
	text = [f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{HEIGHT * len(panels)}' font-family='sans-serif' "
		"font-size='11'>\n<rect width='100%' height='100%' fill='white'/>\n"]
	for p, (title, curves) in enumerate(panels):
		scale, y0 = scale_of(curves), HEIGHT * p
		text.append(f"<text x='{LEFT}' y='{y0 + 18:.1f}' font-size='13'>{html.escape(title, False)}</text>\n")
		text += svg_grid(scale, y0)
		text += (svg_curve(scale, name, v, i, y0) for i, (name, v) in enumerate(curves))
	return ''.join(text) + '</svg>\n'


def draw(cells, scale, v, i):
	"""Draws a curve with dots into cells: by row and column the dots and the last curve there."""
	last = 0
	for y in range(4 * ROWS):
		at = place_of(scale, value_at(v, y * STEPS // (4 * ROWS - 1)))
		x = int(min(max(at, 0), 1) * (2 * COLUMNS - 1) + 0.5)
		for k in range(min(last, x) if y else x, x + 1):
			where = ROWS - 1 - y // 4, k // 2
			cells[where] = (cells.get(where, (0, 0))[0] | DOTS[y % 4][k % 2], i)
		last = x


def text(title, curves, color):
	"""Returns the lines of a panel in braille dots; color: with a terminal's colours, one for each curve."""
	def paint(s, i):
		return f'\033[{TERMINAL[i % len(TERMINAL)]}m{s}\033[0m' if color else s
	scale, cells = scale_of(curves), {}
	for i, (_, v) in enumerate(curves):
		draw(cells, scale, v, i)
	names = {}
	for q, name in TICKS:
		names.setdefault(ROWS - 1 - int(height_of(q) * (ROWS - 1) + 0.5), name)
	lines = ['', title]
	for r in range(ROWS):
		row = (paint(chr(0x2800 + cells[r, k][0]), cells[r, k][1]) if (r, k) in cells else chr(0x2800) for k in range(COLUMNS))
		lines.append('%7s |%s' % (names.get(r, ''), ''.join(row)))
	lines.append('%8s %-10.4g%*.4g' % ('', math.pow(10, scale[0]), COLUMNS - 10, math.pow(10, scale[1])))
	lines.append(' ' * 9 + ''.join(paint(name, i) + '  ' for i, (name, _) in enumerate(curves)))
	return lines
