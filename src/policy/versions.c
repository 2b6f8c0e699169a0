/* Preparing, finding and dropping versions. A version is published by its number in an entry of
 * prepared[]; an entry is emptied by storing 0, and unmapped after policy_synchronize. Only the
 * agent thread changes entries; any thread finds them inside a read-side section. */
#include "policy/versions.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "policy/hook.h"

/* Loads one word of each cache line that a call of `submit` will need. The agent has mapped and
 * touched the version, but this core's translation buffers and caches know nothing of it; the
 * program would fetch it line by line, each access after the one before, whereas these loads run in
 * parallel. (Prefetch instructions were measured to be as slow as none.) */
static inline void fetch(const struct ebpf_policy *p)
{
	uintptr_t code = (uintptr_t)p->entry[POLICY_HOOK_submit];

	for (uintptr_t at = code;
	     code && at < code + 192 && at < (uintptr_t)p->code + p->code_bytes; at += 64) {
		(void)*(const volatile char *)at;
	}
	(void)load_relaxed(&p->env.helper_errors);
	for (uint32_t i = 0; i < MIN(p->env.n_maps, 8u); i++) {
		const uint8_t *data = p->env.maps[i].data;

		if (data) {
			(void)load_relaxed(data); /* other threads write it */
		}
	}
}

static struct policy_version *lookup(struct policy *p, uint32_t gpu, uint64_t version)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (load_acquire(&p->prepared[i].version) == version &&
		    load_relaxed(&p->prepared[i].gpus) & 1u << gpu) {
			fetch(&p->prepared[i].policy);
			store_relaxed(&p->gpu[gpu].hint, i);
			store_relaxed(&load_acquire(&p->stats)->version_in_use, version);
			return &p->prepared[i];
		}
	}
	return NULL;
}

static void store_max(uint64_t *word, uint64_t v)
{
	uint64_t seen = load_relaxed(word);

	while (v > seen && !cas_acqrel(word, &seen, v)) {
	}
}

/* If the version cannot be found because it was dropped after the word was read, the word has
 * changed by then and is read again. */
NOINLINE struct policy_version *policy_find(struct policy *p, uint32_t gpu, uint32_t index,
					    uint64_t version)
{
	uint64_t begin = clock_fast_ns(), before;
	struct policy_version *v;

	for (int tries = 0; tries < 4; tries++) {
		uint64_t again;

		v = version ? lookup(p, gpu, version) : NULL;
		if (v) {
			store_max(&load_acquire(&p->stats)->swap_stall_ns, clock_fast_ns() - begin);
			return v;
		}
		again = load_acquire(&load_acquire(&p->dir)->version[index]);
		if (again == version) {
			break;
		}
		version = again;
	}
	if (!version) {
		store_relaxed(&p->gpu[gpu].hint, POLICY_NONE);
		store_relaxed(&p->before[gpu], (uint64_t)0);
		return NULL;
	}
	v = &p->prepared[load_relaxed(&p->gpu[gpu].hint)];
	if (load_acquire(&v->version) && load_relaxed(&v->gpus) & 1u << gpu) {
		return v;
	}
	/* What was found last has been dropped, and no thread has asked for what replaced it. */
	before = load_relaxed(&p->before[gpu]);
	return before ? lookup(p, gpu, before) : NULL;
}

void policy_init(struct policy *p, const struct proto_directory *dir, struct proto_stats *stats)
{
	p->dir = dir;
	p->stats = stats;
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		p->gpu[g] = (struct policy_gpu){ .index = g, .hint = POLICY_NONE };
	}
}

void policy_finish(struct policy *p)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (p->prepared[i].version || p->prepared[i].policy.image) {
			ebpf_policy_close(&p->prepared[i].policy);
		}
	}
}

/* Unmaps the dropped versions. If a thread may still be inside one, a later call does it. */
static void unmap_dropped(struct policy *p)
{
	bool wanted = false;

	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		wanted |= !p->prepared[i].version && p->prepared[i].policy.image;
	}
	if (!wanted || !policy_synchronize()) {
		return;
	}
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		struct policy_version *v = &p->prepared[i];

		if (!v->version && v->policy.image) {
			ebpf_policy_close(&v->policy); /* clears it */
		}
	}
}

static int free_entry(struct policy *p)
{
	unmap_dropped(p);
	for (int i = 0; i < (int)POLICY_MAX_PREPARED; i++) {
		if (!p->prepared[i].version && !p->prepared[i].policy.image) {
			return i;
		}
	}
	return -ENOSPC;
}

static void drop_entry(struct policy *p, uint32_t i)
{
	struct policy_version *v = &p->prepared[i];

	store_release(&v->version, (uint64_t)0);
	POINT("sched.drop.retracted");
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		uint32_t expected = i;

		cas_acqrel(&p->gpu[g].hint, &expected, POLICY_NONE);
	}
	unmap_dropped(p);
	POINT("sched.drop.unused");
}

static bool is_for(const struct policy_version *v, uint64_t version, uint32_t gpus)
{
	return version && load_relaxed(&v->version) == version && load_relaxed(&v->gpus) & gpus;
}

/* Returns the version that gbpfd has active on a GPU of this process, 0: none. */
static uint64_t active_on(const struct policy *p, unsigned gpu)
{
	uint32_t index = load_relaxed(&p->gpu[gpu].index);

	return index < PROTO_MAX_GPUS ? load_acquire(&load_acquire(&p->dir)->version[index]) : 0;
}

int policy_prepare(struct policy *p, uint64_t version, uint32_t gpus, int image_fd,
		   const int region_fds[EBPF_REGIONS])
{
	int i = free_entry(p), err;
	uint32_t old = POLICY_NONE;
	struct policy_version *v;

	if (!version || !gpus) {
		return -EINVAL;
	}
	p->latest = version;
	if (i < 0) {
		return i;
	}
	for (uint32_t k = 0, n = policy_entries(p); k < n; k++) {
		old = is_for(&p->prepared[k], version, gpus) ? k : old;
	}
	v = &p->prepared[i];
	err = ebpf_policy_open(&v->policy, image_fd, region_fds, 0);
	if (!err && v->policy.version != version) {
		ebpf_policy_close(&v->policy);
		err = -EINVAL;
	}
	if (err) {
		memset(&v->policy, 0, sizeof(v->policy));
		return err;
	}
	memset(v->failures, 0, sizeof(v->failures));
	store_relaxed(&v->gpus, gpus);
	v->life = p->life;
	/* Before the number, which readers look for in these entries only: pairs with the acquire
	 * in policy_entries. */
	store_release(&p->entries, MAX(p->entries, (uint32_t)i + 1));
	POINT("sched.prepare.mapped");
	store_release(&v->version, version); /* pairs with the acquire in policy_current */
	POINT("sched.prepare.published");
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		if (gpus & 1u << g && active_on(p, g) == version) {
			store_relaxed(&p->before[g], version);
		}
	}
	if (old != POLICY_NONE) { /* a gbpfd that restarted gives its regions again */
		drop_entry(p, old);
	}
	return 0;
}

/* Leaves the counters of an entry to another one of the same version, if there is one. */
static void pass_counters(struct policy *p, const struct policy_version *from)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		struct policy_version *to = &p->prepared[i];

		if (to == from || !is_for(to, from->version, UINT32_MAX)) {
			continue;
		}
		for (uint32_t k = 0; k < PROTO_NOTES; k++) {
			(void)add_relaxed(&to->policy.env.notes[k],
					  load_relaxed(&from->policy.env.notes[k]));
		}
		for (uint32_t k = 0; k < PROTO_HOOKS * PROTO_FAILURES; k++) {
			(void)add_relaxed(&to->failures[0][0] + k,
					  load_relaxed(&from->failures[0][0] + k));
		}
		return;
	}
}

/* Notes what is in force on a GPU whose version is dropped. gbpfd drops a version when the next one
 * is in force, or drops that itself if it is refused or unloaded, and prepares no other in between.
 * So it is what the directory names, or, if that is not prepared here yet, the latest one. */
static void note_replaced(struct policy *p, unsigned gpu, uint64_t version)
{
	uint64_t active = active_on(p, gpu);

	if (policy_is_prepared(p, active, 1u << gpu)) {
		store_relaxed(&p->before[gpu], active);
	} else if (p->latest != version) {
		store_relaxed(&p->before[gpu], p->latest);
	} else if (p->before[gpu] == version) {
		store_relaxed(&p->before[gpu], (uint64_t)0);
	}
}

void policy_drop(struct policy *p, uint64_t version, uint32_t gpus)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (is_for(&p->prepared[i], version, gpus)) {
			pass_counters(p, &p->prepared[i]);
			drop_entry(p, i);
		}
	}
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		if (gpus & 1u << g) {
			note_replaced(p, g, version);
		}
	}
}

void policy_gbpfd_lost(struct policy *p)
{
	p->life++;
	p->latest = 0;
}

bool policy_is_prepared(const struct policy *p, uint64_t version, uint32_t gpus)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (is_for(&p->prepared[i], version, gpus)) {
			return true;
		}
	}
	return false;
}

bool policy_any_prepared(const struct policy *p)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (load_relaxed(&p->prepared[i].version)) {
			return true;
		}
	}
	return false;
}

bool policy_any_fills(const struct policy *p, unsigned hook)
{
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (load_relaxed(&p->prepared[i].version) && p->prepared[i].policy.insns[hook]) {
			return true;
		}
	}
	return false;
}

/* The version in force on that GPU (device ordinal), if any, was prepared by the present gbpfd. */
static bool is_current(const struct policy *p, uint32_t gpu)
{
	uint64_t version = active_on(p, gpu);

	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (is_for(&p->prepared[i], version, 1u << gpu) && p->prepared[i].life == p->life) {
			return true;
		}
	}
	return !version;
}

bool policy_sweep(struct policy *p)
{
	for (unsigned g = 0; g < PROTO_MAX_GPUS; g++) {
		if (!is_current(p, g)) {
			return false;
		}
	}
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		if (p->prepared[i].version && p->prepared[i].life != p->life) {
			drop_entry(p, i);
		}
	}
	return true;
}

/* notes_version is 0 while the notes change, so that a reader never takes those of one version for
 * another's. */
void policy_publish_notes(struct policy *p, struct proto_stats *st)
{
	uint64_t version = load_relaxed(&st->version_in_use), notes[PROTO_NOTES] = { 0 },
		 failures[PROTO_HOOKS * PROTO_FAILURES] = { 0 };
	bool any = false;

	_Static_assert(PROTO_NOTES == EBPF_NOTES, "every note has its word");
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		const struct policy_version *v = &p->prepared[i];

		if (!is_for(v, version, UINT32_MAX)) {
			continue;
		}
		any = true;
		for (uint32_t k = 0; k < PROTO_NOTES; k++) {
			notes[k] += load_relaxed(&v->policy.env.notes[k]);
		}
		for (uint32_t k = 0; k < ARRAY_SIZE(failures); k++) {
			failures[k] += load_relaxed(&v->failures[0][0] + k);
		}
	}
	if (load_relaxed(&st->notes_version) != (any ? version : 0)) {
		store_relaxed(&st->notes_version, UINT64_C(0));
		fence_release();
	}
	if (!any) {
		return;
	}
	for (uint32_t i = 0; i < PROTO_NOTES; i++) {
		store_relaxed(&st->notes[i], notes[i]);
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(failures); i++) {
		store_relaxed(&st->failures[0][0] + i, failures[i]);
	}
	store_release(&st->notes_version, version);
}

bool policy_take_print(struct policy *p, uint64_t now_ns, char *text, uint64_t *ret_version,
		       uint64_t *ret_dropped, bool *ret_waits)
{
	*ret_waits = false;
	for (uint32_t i = 0, n = policy_entries(p); i < n; i++) {
		struct ebpf_prints *prints = &p->prepared[i].policy.env.prints;
		uint64_t version = load_relaxed(&p->prepared[i].version);

		if (version && ebpf_prints_take_limited(prints, now_ns, text, ret_dropped)) {
			*ret_version = version;
			return true;
		}
		*ret_waits |= version && ebpf_prints_any(prints);
	}
	return false;
}
