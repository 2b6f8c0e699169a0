/* Finds the candidate nearest to a word, if it is near enough, for "did you mean". */
#ifndef GBPF_BASE_NEAREST_H
#define GBPF_BASE_NEAREST_H

struct nearest {
	const char *word; /* borrowed, as are the candidates */
	const char *best;
	unsigned distance;
};

void nearest_init(struct nearest *n, const char *word);
void nearest_offer(struct nearest *n, const char *candidate);
/* Returns NULL if none is near enough. */
const char *nearest_best(const struct nearest *n);

#endif
