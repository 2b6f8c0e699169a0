/* The nearest of the offered words when it is near enough to be meant, for "did you mean". */
#ifndef GBPF_BASE_NEAREST_H
#define GBPF_BASE_NEAREST_H

struct nearest {
	const char *word; /* borrowed, as the candidates are */
	const char *best;
	unsigned distance;
};

void nearest_init(struct nearest *n, const char *word);
void nearest_offer(struct nearest *n, const char *candidate);
/* NULL: none is near. */
const char *nearest_best(const struct nearest *n);

#endif
