/* Memory of tenants that can leave the device: `region NAME of TENANT bytes=2GiB` makes a region,
 * as cuMemAlloc does in a vGPU with swap, `free NAME` frees it, and `link out=40GiB` states the
 * rates of movement. What regions hold counts as used by the tenant's vGPU. */
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "base/nearest.h"
#include "sim/sim_int.h"

#define REGION_BYTES_MAX (UINT64_C(1) << 40) /* of all regions of a tenant */
/* For how long memory that leaves waits for the work of the tenant. */
#define BUSY_NS UINT64_C(10000000)

static uint64_t tenant_at(const struct sim_tenant *t, enum mem_swap_place place)
{
	return sim_memory_at(&t->mem, place);
}

/* ---- room ---- */

/* Returns what the regions of a vGPU hold at a place, on that GPU; gpu UINT32_MAX: on all. */
static uint64_t vgpu_at(const struct sim_testbed *w, uint32_t vgpu, uint32_t gpu,
			enum mem_swap_place place)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < w->n_tenants; i++) {
		const struct sim_tenant *t = &w->tenant[i];

		if (t->vgpu == vgpu && (gpu == UINT32_MAX || t->gpu == gpu)) {
			bytes += tenant_at(t, place);
		}
	}
	return bytes;
}

static uint64_t left(uint64_t of, uint64_t a, uint64_t b)
{
	of -= MIN(a, of);
	return of - MIN(b, of);
}

/* Returns what no vGPU uses of a GPU; UINT64_MAX if its size is not known. */
static uint64_t gpu_left(const struct sim_testbed *w, uint32_t gpu)
{
	uint64_t free = w->gpu_mem;

	for (unsigned i = 0; i < w->n_vgpus; i++) {
		free = left(free, w->vgpu[i].used, vgpu_at(w, i, gpu, MEM_SWAP_DEVICE));
	}
	return w->gpu_mem ? free : UINT64_MAX;
}

uint64_t sim_region_room(const struct sim_testbed *w, const struct sim_tenant *t,
			 struct sim_room *ret_room)
{
	const struct sim_vgpu *v = &w->vgpu[t->vgpu];
	uint64_t room = left(v->row.limit, v->used, vgpu_at(w, t->vgpu, t->gpu, MEM_SWAP_DEVICE));

	ret_room->device = MIN(room, gpu_left(w, t->gpu));
	ret_room->host = left(v->swap, vgpu_at(w, t->vgpu, UINT32_MAX, MEM_SWAP_HOST), 0);
	return room;
}

void sim_regions_moved(struct sim_testbed *w)
{
	for (unsigned i = 0; i < w->n_vgpus; i++) {
		w->vgpu[i].row.used = w->vgpu[i].used + vgpu_at(w, i, UINT32_MAX, MEM_SWAP_DEVICE);
	}
	sim_vgpus_write(w);
}

/* ---- statements ---- */

struct sim_region *sim_region_named(struct sim_testbed *w, const struct sim_tenant *t,
				    const char *name, size_t len)
{
	for (unsigned i = 0; i < w->n_regions; i++) {
		struct sim_region *r = &w->region[i];

		if (&w->tenant[r->tenant] == t && strlen(r->name) == len &&
		    memcmp(r->name, name, len) == 0) {
			return r;
		}
	}
	return NULL;
}

int sim_no_region(struct sim *s, const struct sim_tenant *t)
{
	const struct sim_testbed *w = &s->testbed;
	struct buf all = { 0 };
	char word[SIM_NAME_BYTES];
	struct nearest n;

	snprintf(word, sizeof(word), "%.*s", (int)MIN(sim_word(s), sizeof(word) - 1), s->at);
	nearest_init(&n, word);
	for (unsigned i = 0; i < w->n_regions; i++) {
		if (&w->tenant[w->region[i].tenant] == t) {
			nearest_offer(&n, w->region[i].name);
			buf_printf(&all, "%s%s", all.len ? ", " : "", w->region[i].name);
		}
	}
	if (all.len) {
		sim_unknown(s, s->at, &n, &all, "tenant '%s' has no region '%s'", t->name, word);
	} else {
		sim_wrong(s, s->at, "Regions are declared with: region NAME bytes=SIZE",
			  "tenant '%s' has no region '%s'", t->name, word);
	}
	buf_finish(&all);
	return -EINVAL;
}

/* Takes `of TENANT`, or nothing if there is only one. */
static int take_owner(struct sim *s, const char *hint, struct sim_tenant **ret)
{
	return sim_take_tenant(s, sim_take_word(s, "of"), hint, ret);
}

/* Makes the region, whose statement is at `at`. */
static int make_region(struct sim *s, struct sim_tenant *t, struct sim_region *r, uint64_t bytes,
		       const char *at)
{
	const struct sim_vgpu *v = &s->testbed.vgpu[t->vgpu];
	uint64_t now = sim_now(), busy_ns = t->work.end_ns - MIN(t->work.end_ns, now), ns;
	struct sim_room room;
	int err;

	if (!v->row.limit) {
		return sim_wrong(s, at, "Its limit is stated with: vgpu NAME mem=SIZE",
				 "the vGPU of tenant '%s' has no limit", t->name);
	}
	if (bytes >
	    left(REGION_BYTES_MAX, tenant_at(t, MEM_SWAP_DEVICE), tenant_at(t, MEM_SWAP_HOST))) {
		return sim_wrong(s, at, NULL, "the regions of a tenant have more than 1 TiB");
	}
	if (sim_region_room(&s->testbed, t, &room), room.device < bytes) {
		now += MIN(busy_ns, BUSY_NS);
	}
	err = sim_memory_add(&t->mem, bytes, busy_ns > BUSY_NS, &s->testbed.link, &room, &r->r,
			     &ns);
	if (err == -ENOSPC) {
		return sim_wrong(s, at, "What does not fit lies on the host: vgpu NAME swap=SIZE",
				 "the region does not fit into the limit and the swap of its vGPU");
	}
	if (err) {
		return report_set(s->r, err, "memory", "out of memory");
	}
	sim_set_now(now + ns);
	sim_regions_moved(&s->testbed);
	return 0;
}

int sim_region_statement(struct sim *s)
{
	struct sim_testbed *w = &s->testbed;
	struct sim_region *r = &w->region[w->n_regions];
	uint64_t bytes = 0;
	const struct sim_property all[] = { { "bytes", NULL, &bytes, 1, REGION_BYTES_MAX } };
	struct sim_tenant *t;
	const char *at;
	int err;

	sim_blanks(s);
	at = s->at;
	if (w->n_regions == SIM_MAX_REGIONS) {
		return sim_wrong(s, at, NULL, "more than %u regions", SIM_MAX_REGIONS);
	}
	*r = (struct sim_region){ .tenant = 0 };
	err = sim_take_name(s, r->name, "region");
	err = err ? err : take_owner(s, "It is written: region NAME of TENANT bytes=SIZE", &t);
	if (!err && sim_region_named(w, t, r->name, strlen(r->name))) {
		err = sim_wrong(s, at, NULL, "there is a region '%s' already", r->name);
	}
	err = err ? err : sim_set_properties(s, all, ARRAY_SIZE(all), "region");
	if (!err && !bytes) {
		err = sim_wrong(s, s->at, NULL, "here the size is needed: bytes=SIZE");
	}
	if (!err && t->vgpu >= EBPF_VGPUS) {
		err = sim_wrong(s, at,
				"Its limit is that of a vGPU: vgpu NAME mem=SIZE swap=SIZE, tenant "
				"NAME vgpu=NAME",
				"tenant '%s' is in no vGPU", t->name);
	}
	if (err) {
		return err;
	}
	r->tenant = (uint32_t)(t - w->tenant);
	w->n_regions++;
	return s->dry ? 0 : make_region(s, t, r, bytes, at);
}

int sim_free_statement(struct sim *s)
{
	struct sim_testbed *w = &s->testbed;
	const char *name = (sim_blanks(s), s->at);
	size_t len = sim_word(s), at;
	struct sim_tenant *t;
	struct sim_room room;
	struct sim_region *r;
	int err;

	s->at += len;
	err = take_owner(s, "It is written: free REGION of TENANT", &t);
	if (err) {
		return err;
	}
	r = sim_region_named(w, t, name, len);
	if (!r) {
		s->at = name;
		return sim_no_region(s, t);
	}
	if (!s->dry) {
		sim_memory_remove(&t->mem, r->r);
		(void)sim_region_room(w, t, &room); /* none yet where the limit was lowered */
		sim_set_now(MAX(sim_now(), t->work.end_ns) +
			    sim_memory_fill(&t->mem, &w->link, &room));
		sim_regions_moved(w);
	}
	at = (size_t)(r - w->region);
	memmove(r, r + 1, (--w->n_regions - at) * sizeof(*r));
	return 0;
}

int sim_link_statement(struct sim *s)
{
	struct sim_link *l = &s->testbed.link;
	const struct sim_property all[] = {
		{ "out", NULL, &l->out, SIM_RATE_MIN, SIM_RATE_MAX },
		{ "back", NULL, &l->back, SIM_RATE_MIN, SIM_RATE_MAX },
		{ "in_place", NULL, &l->in_place, SIM_RATE_MIN, SIM_RATE_MAX },
	};

	return sim_set_properties(s, all, ARRAY_SIZE(all), "link");
}

/* ---- values ---- */

/* Evaluates `PLACE of REGION`, `... of REGION of TENANT` and `... of TENANT`. */
static int bytes_at(struct sim *s, enum mem_swap_place place, struct sim_value *ret)
{
	const char *name = (sim_blanks(s), s->at);
	size_t len = sim_word(s);
	struct sim_tenant *t = sim_testbed_tenant(&s->testbed, name, len);
	const struct sim_region *r;
	bool given;
	int err;

	s->at += len;
	given = sim_take_word(s, "of");
	if (t && !given) {
		ret->v = tenant_at(t, place);
		return 0;
	}
	err = sim_take_tenant(s, given, "It is written: of REGION of TENANT", &t);
	if (err) {
		return err;
	}
	r = sim_region_named(&s->testbed, t, name, len);
	if (!r) {
		s->at = name;
		return sim_no_region(s, t);
	}
	ret->v = r->r ? sim_memory_region_at(r->r, place) : 0;
	return 0;
}

static uint64_t count_of(const struct sim_tenant *t, size_t i)
{
	const uint64_t counts[] = {
		t->work.faults,
		t->work.in_place,
		t->mem.out_bytes,
		t->mem.back_bytes,
		t->work.wait_ns,
		t->work.lost_ns,
		MAX(t->work.end_ns, sim_now()),
	};

	return counts[i];
}

bool sim_of_memory(struct sim *s, struct sim_value *ret, int *ret_err)
{
	static const char *const places[] = {
		[MEM_SWAP_DEVICE] = "device_bytes", [MEM_SWAP_HOST] = "host_bytes"
	};
	static const char *const counts[] = { "mem_faults",	"mem_in_place", "mem_out_bytes",
					      "mem_back_bytes", "mem_wait_ns",	"mem_lost_ns",
					      "done_ns" };
	const char *at = s->at;
	struct sim_tenant *t;

	for (size_t i = MEM_SWAP_DEVICE; i < ARRAY_SIZE(places); i++) {
		if (sim_take_word(s, places[i]) && sim_take_word(s, "of")) {
			*ret_err = bytes_at(s, (enum mem_swap_place)i, ret);
			return true;
		}
		s->at = at;
	}
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		if (sim_take_word(s, counts[i]) && sim_take_word(s, "of")) {
			*ret_err = sim_take_tenant(s, true, NULL, &t);
			ret->v = *ret_err ? 0 : count_of(t, i);
			return true;
		}
		s->at = at;
	}
	return false;
}
