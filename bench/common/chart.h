/* Distributions as curves: the share of values below x over x, on a logarithmic axis, as SVG and in
 * a terminal. */
#ifndef GBPF_BENCH_COMMON_CHART_H
#define GBPF_BENCH_COMMON_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct bench_chart_curve {
	const char *name;
	const double *v; /* sorted */
	size_t n;
};

struct bench_chart_panel {
	const char *title;
	const struct bench_chart_curve *curve;
	size_t curves;
};

/* Draws the panels one below the other in one document. */
void bench_chart_svg(FILE *to, const struct bench_chart_panel *panel, size_t panels);
/* Draws with braille dots; color: with a terminal's colours, one for each curve. */
void bench_chart_text(FILE *to, const struct bench_chart_panel *panel, bool color);

#endif
