/* The references of modules: their objects, and what a launch binds. The setters and getters are in
 * texture_ref_calls.c. */
#include "soft/client/texture/texture_ref.h"

#include <stdlib.h>
#include <string.h>

#include "soft/client/ring_submit.h"
#include "soft/client/texture/texture_table.h"

static struct lock lock = LOCK_INITIALIZER(SOFT_TEXREFS); /* guards binding */

static CUtexref find(CUmodule m, const char *name)
{
	CUtexref r = m->references;

	while (r && strcmp(r->name, name) != 0) {
		r = r->next;
	}
	return r;
}

CUresult soft_reference_get(CUmodule m, const char *name, uint64_t variable, bool surface,
			    CUtexref *ret)
{
	CUtexref r;

	lock_take(&soft.lock);
	r = find(m, name);
	if (!r) {
		r = soft_object_create(surface ? SOFT_OBJECT_SURFREF : SOFT_OBJECT_TEXREF,
				       sizeof(struct CUsurfref_st));
		if (r) {
			r->name = strdup(name);
			r->module = m;
			r->variable = variable;
			r->surface = surface;
			r->format = CU_AD_FORMAT_FLOAT;
			r->channels = 1;
			r->next = m->references;
			m->references = r;
		}
	}
	lock_release(&soft.lock);
	*ret = r;
	return r && r->name ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Makes an object of what is bound. */
static CUresult make(CUtexref r, CUcontext ctx, uint64_t *ret)
{
	struct soft_texture_record record = { .resource = r->resource, .texture = r->texture };
	struct soft_texture t;
	CUresult e = soft_texture_resource(&r->resource, ctx, &t);

	e = e || r->surface ? e : soft_texture_sampling(&r->texture, &t);
	t.kind = r->surface ? SOFT_TEXTURE_SURFACE : SOFT_TEXTURE_SAMPLED;
	return e ? e : soft_texture_add(ctx, &t, &record, ret);
}

static CUresult bind(CUtexref r, CUstream s)
{
	struct soft_record_value write = {
		.r.op = SOFT_OP_VALUE, .address = r->variable, .unit = 8, .mode = SOFT_VALUE_WRITE
	};
	uint64_t old = r->handle;
	CUresult e = make(r, s->context, &r->handle);

	if (e) {
		return e;
	}
	write.value = r->handle;
	e = soft_ring_submit(s, &write.r, sizeof(write), NULL, 0, NULL);
	r->dirty = e != CUDA_SUCCESS;
	if (old) {
		soft_texture_remove(old, r->surface ? SOFT_TEXTURE_SURFACE : SOFT_TEXTURE_SAMPLED);
	}
	return e;
}

CUresult soft_reference_bind(CUmodule m, CUstream s)
{
	CUresult e = CUDA_SUCCESS;

	lock_take(&lock);
	for (CUtexref r = m->references; r && !e; r = r->next) {
		if (r->bound && r->dirty) {
			e = bind(r, s);
		}
	}
	lock_release(&lock);
	return e;
}

void soft_reference_drop_module(CUmodule m)
{
	while (m->references) {
		CUtexref r = m->references;

		m->references = r->next;
		free(r->name);
		soft_object_destroy(r);
	}
}
