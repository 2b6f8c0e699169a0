/* Nearest word by edit distance (insert, delete, replace, swap of neighbours), for "did you mean".
 */
#include "base/nearest.h"

#include <string.h>

#include "base/compiler.h"

#define WORD_MAX 40

static unsigned distance(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	unsigned row[3][WORD_MAX + 1];

	if (n > WORD_MAX || m > WORD_MAX) {
		return WORD_MAX;
	}
	for (size_t j = 0; j <= m; j++) {
		row[0][j] = (unsigned)j;
		row[2][j] = 0;
	}
	for (size_t i = 1; i <= n; i++) {
		unsigned *now = row[i % 3], *up = row[(i + 2) % 3], *upper = row[(i + 1) % 3];

		now[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned d = up[j - 1] + (a[i - 1] != b[j - 1]);

			d = MIN(d, up[j] + 1);
			d = MIN(d, now[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
				d = MIN(d, upper[j - 2] + 1);
			}
			now[j] = d;
		}
	}
	return row[n % 3][m];
}

void nearest_init(struct nearest *n, const char *word)
{
	n->word = word;
	n->best = NULL;
	n->distance = WORD_MAX;
}

void nearest_offer(struct nearest *n, const char *candidate)
{
	unsigned d = distance(n->word, candidate);

	if (d < n->distance) {
		n->distance = d;
		n->best = candidate;
	}
}

const char *nearest_best(const struct nearest *n)
{
	/* A third of the letters may differ, and at least one; with more differences it is another
	 * word. */
	size_t allowed = MAX((size_t)1, (strlen(n->word) + 1) / 3);

	return n->best && n->distance <= allowed ? n->best : NULL;
}
