/* Programs of a tool that have no site in a kernel which runs others of the tool: reported by
 * sessions, shown by probe.attach and probe.list. */
#include <string.h>

#include "daemon/clean_text.h"
#include "daemon/probe/probes_int.h"

#define LISTED 32u /* kernels that are shown of all sessions */

/* ---- programs ---- */

/* Returns the program with that number among those inside kernels, or NULL. */
static const struct ebpf_prog *device_program(const struct daemon_probe *p, uint32_t number)
{
	const struct ebpf_object *o = &p->live->built->object;

	for (uint32_t i = 0; i < o->n_progs; i++) {
		if (o->progs[i].hook >= (int)EBPF_FIRST_DEVICE_HOOK && number-- == 0) {
			return &o->progs[i];
		}
	}
	return NULL;
}

/* Returns the bits of the programs that there are. */
static uint32_t known(const struct daemon_probe *p, uint32_t programs)
{
	uint32_t n = p->live->built->n_devices;

	return n < 32 ? programs & ((1u << n) - 1) : programs;
}

static void program_name(const struct daemon_probe *p, uint32_t number, char *ret, size_t cap)
{
	const struct ebpf_prog *prog = device_program(p, number);

	daemon_text_copy(ret, cap, prog->name, strnlen(prog->name, sizeof(prog->name)));
}

static json_t *names_json(const struct daemon_probe *p, uint32_t programs)
{
	json_t *names = json_array();
	char name[EBPF_NAME_BYTES];

	for (uint32_t left = programs; left; left &= left - 1) {
		program_name(p, (uint32_t)__builtin_ctz(left), name, sizeof(name));
		json_array_append_new(names, json_string(name));
	}
	return names;
}

/* ---- messages ---- */

static void tell(struct daemon_session *s, const struct daemon_probe *p,
		 struct daemon_probe_part *part, const struct proto_probe_gap *gap)
{
	char name[EBPF_NAME_BYTES];

	if (gap->programs && !part->told_gap) {
		part->told_gap = true;
		program_name(p, (uint32_t)__builtin_ctz(gap->programs), name, sizeof(name));
		daemon_session_event(s, "probe", "%s: program %s of tool %u has no site in %s",
				     s->name, name, p->id, gap->kernel);
	}
}

void daemon_probe_gaps_take(struct daemon_session *s, const struct daemon_probe *p,
			    const struct proto_probe_state *m)
{
	struct daemon_probe_part *part = daemon_probe_part(p, s);

	part->siteless = MIN(m->siteless, m->kernels);
	part->placed = known(p, m->placed);
	part->unplaced = known(p, m->unplaced);
	for (unsigned i = 0; i < PROTO_PROBE_GAPS; i++) {
		const struct proto_probe_gap *from = &m->gaps[i];
		struct proto_probe_gap *to = &part->gaps[i];

		to->programs = known(p, from->programs);
		daemon_text_copy(to->kernel, sizeof(to->kernel), from->kernel,
				 strnlen(from->kernel, sizeof(from->kernel)));
		tell(s, p, part, to);
	}
}

/* ---- JSON ---- */

static bool is_listed(const json_t *list, const json_t *gap)
{
	const json_t *g;
	size_t i;

	json_array_foreach(list, i, g)
	{
		if (json_equal(g, gap)) {
			return true;
		}
	}
	return false;
}

void daemon_probe_gaps_add(struct daemon_probe_gaps *g, const struct daemon_probe *p,
			   const struct daemon_probe_part *part)
{
	g->list = g->list ? g->list : json_array();
	if (part->gone) {
		return;
	}
	g->kernels += part->siteless;
	g->placed |= part->placed;
	g->unplaced |= part->unplaced;
	for (unsigned i = 0; i < PROTO_PROBE_GAPS && json_array_size(g->list) < LISTED; i++) {
		const struct proto_probe_gap *gap = &part->gaps[i];
		json_t *j = gap->programs ? json_pack("{s:s,s:o}", "kernel", gap->kernel,
						      "programs", names_json(p, gap->programs))
					  : NULL;

		if (j && !is_listed(g->list, j)) {
			json_array_append(g->list, j);
		}
		json_decref(j);
	}
}

json_t *daemon_probe_gaps_json(struct daemon_probe_gaps *g, const struct daemon_probe *p)
{
	json_t *j = json_pack("{s:I,s:o,s:o}", "kernels", (json_int_t)g->kernels, "programs",
			      names_json(p, g->unplaced & ~g->placed), "list",
			      g->list ? g->list : json_array());

	*g = (struct daemon_probe_gaps){ 0 };
	return j;
}
