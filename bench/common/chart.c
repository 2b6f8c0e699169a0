/* Draws curves of distributions; see chart.h. The vertical axis shows nines: 0 %, 50 %, 90 %, 99 %,
 * 99.9 %, because the slow requests matter. */
#include "bench/common/chart.h"

#include <math.h>
#include <stdint.h>

#include "base/compiler.h"

#define WIDTH 760
#define HEIGHT 320
#define LEFT 60
#define TOP 30
#define BOTTOM 40
#define RIGHT 150
#define STEPS 240u
#define TEXT_COLUMNS 72
#define TEXT_ROWS 16
#define NINES 3.3 /* up to 99.95 % */

static const double tick_at[] = { 0, 0.5, 0.9, 0.99, 0.999 };
static const char *const tick_name[] = { "0 %", "50 %", "90 %", "99 %", "99.9 %" };
static const char *const colors[] = { "#1b1b1b", "#d1495b", "#edae49", "#4c6ef5", "#8d5bd6",
				      "#00798c", "#2e933c", "#c05299", "#7a5c3e" };
static const int terminal[] = { 37, 31, 33, 34, 35, 36, 32, 95, 93 };

struct scale {
	double low, high; /* logarithms of the smallest and the largest value */
};

static double height_of(double q)
{
	double nines = -log10(MAX(1 - q, 1e-9));

	return MIN(nines / NINES, 1);
}

static struct scale scale_of(const struct bench_chart_panel *p)
{
	struct scale s = { 1e9, -1e9 };

	for (size_t i = 0; i < p->curves; i++) {
		const struct bench_chart_curve *c = &p->curve[i];

		if (c->n) {
			s.low = MIN(s.low, log10(MAX(c->v[0], 1e-3)));
			s.high = MAX(s.high, log10(MAX(c->v[c->n - 1], 1e-3)));
		}
	}
	if (s.high - s.low < 0.05) {
		s.low -= 0.05;
		s.high += 0.05;
	}
	return s;
}

static double place_of(const struct scale *s, double v)
{
	return (log10(MAX(v, 1e-3)) - s->low) / (s->high - s->low);
}

/* Returns the value at step k of STEPS up the vertical axis. */
static double value_at(const struct bench_chart_curve *c, unsigned k, double *ret_height)
{
	double h = (double)k / STEPS, q = 1 - pow(10, -h * NINES);
	size_t i = (size_t)(q * (double)c->n);

	*ret_height = h;
	return c->v[MIN(i, c->n - 1)];
}

/* ---- SVG ---- */

static void put_text(FILE *to, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		default:
			putc(*text, to);
		}
	}
}

static void svg_grid(FILE *to, const struct scale *s, double y0)
{
	const double w = WIDTH - LEFT - RIGHT, h = HEIGHT - TOP - BOTTOM;

	for (size_t i = 0; i < ARRAY_SIZE(tick_at); i++) {
		double y = y0 + TOP + h * (1 - height_of(tick_at[i]));

		fprintf(to,
			"<line x1='%d' y1='%.1f' x2='%.1f' y2='%.1f' stroke='#ddd'/><text x='%d' "
			"y='%.1f' text-anchor='end'>%s</text>\n",
			LEFT, y, LEFT + w, y, LEFT - 6, y + 4, tick_name[i]);
	}
	for (int d = (int)floor(s->low); d <= (int)ceil(s->high); d++) {
		for (int m = 1; m < 10; m++) {
			double at = place_of(s, m * pow(10, d)), x = LEFT + w * at;

			if (at < 0 || at > 1) {
				continue;
			}
			fprintf(to, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s'/>\n",
				x, y0 + TOP, x, y0 + TOP + h, m == 1 ? "#ccc" : "#f0f0f0");
			if (m == 1 || m == 2 || m == 5) {
				fprintf(to,
					"<text x='%.1f' y='%.1f' text-anchor='middle'>%g</text>\n",
					x, y0 + TOP + h + 16, m * pow(10, d));
			}
		}
	}
}

static void svg_curve(FILE *to, const struct scale *s, const struct bench_chart_curve *c, size_t i,
		      double y0)
{
	const double w = WIDTH - LEFT - RIGHT, h = HEIGHT - TOP - BOTTOM;
	const char *color = colors[i % ARRAY_SIZE(colors)];
	double y = y0 + TOP + 14 * (double)i + 10;

	fprintf(to, "<polyline fill='none' stroke='%s' stroke-width='1.6' points='", color);
	for (unsigned k = 0; k <= STEPS; k++) {
		double up, v = value_at(c, k, &up);

		fprintf(to, "%.1f,%.1f ", LEFT + w * place_of(s, v), y0 + TOP + h * (1 - up));
	}
	fprintf(to,
		"'/>\n<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s' stroke-width='3'/>"
		"<text x='%.1f' y='%.1f'>",
		LEFT + w + 12, y - 4, LEFT + w + 30, y - 4, color, LEFT + w + 35, y);
	put_text(to, c->name);
	fputs("</text>\n", to);
}

void bench_chart_svg(FILE *to, const struct bench_chart_panel *panel, size_t panels)
{
	fprintf(to,
		"<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%zu' font-family="
		"'sans-serif' font-size='11'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
		WIDTH, HEIGHT * panels);
	for (size_t p = 0; p < panels; p++) {
		struct scale s = scale_of(&panel[p]);
		double y0 = HEIGHT * (double)p;

		fprintf(to, "<text x='%d' y='%.1f' font-size='13'>", LEFT, y0 + 18);
		put_text(to, panel[p].title);
		fputs("</text>\n", to);
		svg_grid(to, &s, y0);
		for (size_t i = 0; i < panel[p].curves; i++) {
			if (panel[p].curve[i].n) {
				svg_curve(to, &s, &panel[p].curve[i], i, y0);
			}
		}
	}
	fputs("</svg>\n", to);
}

/* ---- terminal ---- */

struct canvas {
	uint8_t dots[TEXT_ROWS][TEXT_COLUMNS];
	uint8_t color[TEXT_ROWS][TEXT_COLUMNS]; /* 1 + the last curve there */
};

/* Sets a dot; x: 0 to 2 * columns - 1; y from the bottom: 0 to 4 * rows - 1. */
static void set_dot(struct canvas *c, unsigned x, unsigned y, size_t curve)
{
	static const uint8_t bit[4][2] = {
		{ 0x40, 0x80 }, { 0x04, 0x20 }, { 0x02, 0x10 }, { 0x01, 0x08 }
	};
	unsigned row = TEXT_ROWS - 1 - y / 4, column = x / 2;

	c->dots[row][column] |= bit[y % 4][x % 2];
	c->color[row][column] = (uint8_t)(1 + curve % ARRAY_SIZE(terminal));
}

static void draw(struct canvas *c, const struct scale *s, const struct bench_chart_curve *v,
		 size_t i)
{
	unsigned last = 0;

	for (unsigned y = 0; y < 4 * TEXT_ROWS; y++) {
		double up, at;
		unsigned x;

		at = value_at(v, y * STEPS / (4 * TEXT_ROWS - 1), &up);
		x = (unsigned)(MIN(MAX(place_of(s, at), 0), 1) * (2 * TEXT_COLUMNS - 1) + 0.5);
		for (unsigned k = y ? MIN(last, x) : x; k <= x; k++) {
			set_dot(c, k, y, i);
		}
		last = x;
	}
}

static void put_braille(FILE *to, uint8_t dots)
{
	unsigned code = 0x2800u + dots;

	fprintf(to, "%c%c%c", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3f)),
		(int)(0x80 | (code & 0x3f)));
}

static const char *row_name(int row)
{
	for (size_t i = 0; i < ARRAY_SIZE(tick_at); i++) {
		if ((int)(height_of(tick_at[i]) * (TEXT_ROWS - 1) + 0.5) == TEXT_ROWS - 1 - row) {
			return tick_name[i];
		}
	}
	return "";
}

void bench_chart_text(FILE *to, const struct bench_chart_panel *p, bool color)
{
	struct canvas c = { { { 0 } } };
	struct scale s = scale_of(p);

	for (size_t i = 0; i < p->curves; i++) {
		if (p->curve[i].n) {
			draw(&c, &s, &p->curve[i], i);
		}
	}
	fprintf(to, "\n%s\n", p->title);
	for (int r = 0; r < TEXT_ROWS; r++) {
		fprintf(to, "%7s |", row_name(r));
		for (int k = 0; k < TEXT_COLUMNS; k++) {
			if (color && c.color[r][k]) {
				fprintf(to, "\033[%dm", terminal[c.color[r][k] - 1]);
			}
			put_braille(to, c.dots[r][k]);
			if (color && c.color[r][k]) {
				fputs("\033[0m", to);
			}
		}
		putc('\n', to);
	}
	fprintf(to, "%8s %-10.4g%*.4g\n%9s", "", pow(10, s.low), TEXT_COLUMNS - 10, pow(10, s.high),
		"");
	for (size_t i = 0; i < p->curves; i++) {
		if (color) {
			fprintf(to, "\033[%dm%s\033[0m  ", terminal[i % ARRAY_SIZE(terminal)],
				p->curve[i].name);
		} else {
			fprintf(to, "%s  ", p->curve[i].name);
		}
	}
	putc('\n', to);
}
