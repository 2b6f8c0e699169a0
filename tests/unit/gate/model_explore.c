/* The search: every state that some order of steps reaches, each once. A state is remembered by a
 * hash of 64 bits; with the millions of states there are here, that two share one is as likely as
 * one in millions. There are no endless orders, since everything that could be repeated is counted,
 * so all orders end unless they reach a state without a step. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

struct seen {
	uint64_t *slot, n, mask;
};

#define X(name, text) text,
const char *const model_fault_names[] = { MODEL_FAULTS(X) };
#undef X

void model_violated(struct model *m, const char *what)
{
	m->violation = m->violation ? m->violation : what;
}

static uint64_t hash_of(const struct model_state *s)
{
	const uint8_t *bytes = (const uint8_t *)s;
	uint64_t h = 0x9e3779b97f4a7c15, word;

	for (size_t i = 0; i < sizeof(*s); i += sizeof(word)) {
		size_t n = sizeof(*s) - i < sizeof(word) ? sizeof(*s) - i : sizeof(word);

		word = 0;
		memcpy(&word, bytes + i, n);
		h = (h ^ word) * 0xff51afd7ed558ccd;
		h ^= h >> 32;
	}
	return h ? h : 1;
}

static bool insert(struct seen *seen, uint64_t h)
{
	uint64_t i = h & seen->mask;

	while (seen->slot[i]) {
		if (seen->slot[i] == h) {
			return false;
		}
		i = (i + 1) & seen->mask;
	}
	seen->slot[i] = h;
	seen->n++;
	return true;
}

static bool grow(struct seen *seen)
{
	struct seen wider = { .mask = seen->mask * 2 + 1 };

	wider.slot = calloc(wider.mask + 1, sizeof(*wider.slot));
	if (!wider.slot) {
		return false;
	}
	for (uint64_t i = 0; i <= seen->mask; i++) {
		if (seen->slot[i]) {
			(void)insert(&wider, seen->slot[i]);
		}
	}
	free(seen->slot);
	*seen = wider;
	return true;
}

/* ---- streams ---- */

/* What ran of a launch when no block of it is on the device: whole clusters, from the first on. */
static void check_prefix(struct model *m, const struct model_state *s, unsigned launch)
{
	unsigned begun = s->launch[launch].begun, n = 0;

	for (unsigned i = 0; i < 2; i++) {
		if (s->stream[i].launch == launch) {
			return; /* the rest bypasses those */
		}
	}
	while (begun >> n & 1) {
		n++;
	}
	if (begun >> n || n % m->scenario->launch[launch].cluster) {
		model_violated(m, "what ran is not a prefix");
	}
}

/* When all blocks of a stream's launch have left or ended, the next one begins. */
static void end_launches(struct model *m, struct model_state *s)
{
	for (unsigned i = 0; i < 2; i++) {
		struct model_stream *x = &s->stream[i];
		uint8_t launch = x->launch, next = (uint8_t)(launch + 1);
		const struct model_launch *l;

		if (launch == MODEL_NONE) {
			continue;
		}
		for (unsigned k = 0; k < MODEL_BLOCKS; k++) {
			if (x->block[k].at != AT_LEFT && x->block[k].at != AT_ENDED) {
				launch = MODEL_NONE;
			}
		}
		if (launch == MODEL_NONE) {
			continue;
		}
		memset(x, 0, sizeof(*x));
		x->launch = MODEL_NONE;
		check_prefix(m, s, launch);
		if (i != s->host.run || next >= s->host.next) {
			continue;
		}
		l = &s->launch[next];
		*x = (struct model_stream){ .launch = next,
					    .from = l->from,
					    .base = l->base,
					    .ask = l->ask,
					    .groups = l->groups,
					    .number = l->number };
		model_blocks_begin(m, s, x);
		i--; /* it may have no block that does anything */
	}
}

/* ---- steps ---- */

enum { STEP_HOST = MODEL_STEP_LEASE + 1 };

static bool step_lease(struct model *m, struct model_state *s)
{
	if (!s->lease && s->rises == m->scenario->rises) {
		return false;
	}
	s->lease = !s->lease;
	s->rises = (uint8_t)(s->rises + s->lease);
	return true;
}

bool model_step(struct model *m, struct model_state *s, unsigned which)
{
	struct model_stream *x = &s->stream[which >> 4 & 1];
	bool made;

	if (which >= STEP_HOST) {
		made = model_host_step(m, s, which - STEP_HOST);
	} else if (which == MODEL_STEP_LEASE) {
		made = step_lease(m, s);
	} else {
		made = which < 32 && (which & 3) != 3 && x->launch != MODEL_NONE &&
		       model_block_step(m, s, x, &x->block[which >> 2 & 3], which & 3);
	}
	if (made && !m->violation) {
		end_launches(m, s);
	}
	return made;
}

static void explore(struct model *m, struct seen *seen, const struct model_state *s)
{
	unsigned depth = m->n_steps;
	bool any = false;

	if (m->violation || s->host.phase == HOST_ENDED) {
		return;
	}
	if (depth == sizeof(m->steps) || (seen->n * 2 > seen->mask && !grow(seen))) {
		model_violated(m, "the search needs more memory");
		return;
	}
	for (unsigned which = 0; which < MODEL_STEPS && !m->violation; which++) {
		struct model_state next = *s;

		/* When nothing else is possible, what the host suspects is right. */
		m->stands = which == MODEL_STEPS - 1 && !any && m->scenario->takes;
		if (!model_step(m, &next, which)) {
			continue;
		}
		any = true;
		m->steps[depth] = (uint8_t)which;
		m->n_steps = depth + 1;
		if (!m->violation && insert(seen, hash_of(&next))) {
			explore(m, seen, &next);
		}
	}
	if (!any) {
		m->n_steps = depth;
		model_violated(m, "nothing is possible any more");
	}
}

void model_begin(struct model *m, struct model_state *s)
{
	memset(s, 0, sizeof(*s));
	m->violation = NULL;
	m->n_steps = 0;
	model_host_begin(m, s);
}

void model_explore(struct model *m)
{
	struct seen seen = { .mask = (1u << 16) - 1 };
	struct model_state s;

	_Static_assert(sizeof(s) ==
			       2 + 2 * sizeof(struct model_line) + 2 * sizeof(struct model_stream) +
				       2 * sizeof(struct model_launch) + sizeof(struct model_host),
		       "hashed without padding");
	model_begin(m, &s);
	seen.slot = calloc(seen.mask + 1, sizeof(*seen.slot));
	if (!seen.slot) {
		model_violated(m, "the search needs more memory");
		return;
	}
	explore(m, &seen, &s);
	m->n_states = seen.n;
	free(seen.slot);
}
