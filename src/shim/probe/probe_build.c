/* Making a probed form: the kept PTX is sliced and probed (ptx/probe.h), compiled by the driver's
 * linker, which waits for no work, and loaded as a module of its own; then its table of addresses
 * is filled. Where that is not possible, the machine code gets an entry stub. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/run/ptx_env.h"
#include "ptx/probe.h"
#include "ptx/probe_shared.h"
#include "shim/code/shim_code.h"
#include "shim/code/shim_code_probe.h"
#include "shim/kernel/loaded_image.h"

/* Programs of begin and end, which run in brackets. */
struct around {
	struct ptx_probe probes[PTX_PROBES_MAX];
	struct shim_probe_tool *tool[PTX_PROBES_MAX]; /* of each */
	char *text[PTX_PROBES_MAX];		      /* owned */
	char name[PTX_PROBES_MAX][EBPF_NAME_BYTES];
	uint32_t n;
	struct shim_probe_bracket *bracket; /* a reference, or NULL */
};

/* A program of a tool, by their numbers. */
struct origin {
	uint32_t tool, program;
};

/* A form that is being made: the probes, the texts that they borrow, and the results of each
 * step. */
struct shim_probe_made {
	const struct shim_probe_kernel *k;
	struct report *r; /* report of the current step */
	struct ptx_probe probes[PTX_PROBES_MAX];
	struct shim_probe_tool *tool[PTX_PROBES_MAX]; /* of each */
	struct origin origin[PTX_PROBES_MAX];	      /* of each */
	char *text[PTX_PROBES_MAX];		      /* owned */
	char name[PTX_PROBES_MAX][EBPF_NAME_BYTES];
	uint32_t n; /* 0: the kernel itself runs, between brackets */
	struct around around;
	struct ptx_probed probed;
	const struct ptx_block_image *block; /* owned; the text with a preemptible clone, or NULL */
	struct cubin_patched *copy;	     /* owned; of the machine code instead, or NULL */
	void *image;			     /* owned; machine code */
	size_t image_bytes;
	uint64_t *table; /* owned */
	uint32_t n_table;
	uint64_t (*map_at)[PTX_PROBE_ADDRESSES]; /* owned; of each probe, or NULL: in the table */
	uint32_t row;				 /* a reference, or 0; as of the form */
	CUdeviceptr late;			 /* the table of programs of block_exit, 0: none */
	CUdevice late_on;
	uint32_t parts; /* bits of tools some of whose programs are left out */
	uint32_t placed[SHIM_PROBE_TOOLS_MAX], unplaced[SHIM_PROBE_TOOLS_MAX]; /* as of the form */
	uint32_t idle; /* bits of tools that have programs for its inside, and no site there */
};

/* Names of programs are gbpf_HASH_N, of their object and their number in it. The first digit of the
 * hash is replaced by a letter that is none where tools of the same object are in one form. */
#define DIGIT 5u

static uint32_t count_named(const char (*names)[EBPF_NAME_BYTES], uint32_t n, const char *name)
{
	uint32_t same = 0;

	for (uint32_t i = 0; i < n; i++) {
		same += strncmp(names[i], name, DIGIT) == 0 &&
			strcmp(names[i] + DIGIT + 1, name + DIGIT + 1) == 0;
	}
	return same;
}

/* Gives the program a name that no other one of the n has, also in its text. */
static void set_name(char (*names)[EBPF_NAME_BYTES], uint32_t n, const char *prefix, char *text)
{
	uint32_t same = 0;

	snprintf(names[n], EBPF_NAME_BYTES, "%s", prefix);
	if (strlen(prefix) > DIGIT) {
		same = count_named((const char(*)[EBPF_NAME_BYTES])names, n, prefix);
	}
	if (!same) {
		return;
	}
	names[n][DIGIT] = (char)('g' + same - 1); /* there are at most 16 tools */
	for (char *at = strstr(text, prefix); at; at = strstr(at + 1, prefix)) {
		at[DIGIT] = names[n][DIGIT];
	}
}

static int add_program(struct shim_probe_made *b, struct shim_probe_tool *t, struct origin o)
{
	const struct ebpf_image_device *d = &t->p.devices[o.program];
	char *text = b->n + b->around.n < PTX_PROBES_MAX
			     ? strndup(t->p.device_text + d->text_offset, d->text_bytes)
			     : NULL;
	struct ptx_probe probe = { .hook = d->hook,
				   .lanes = d->lane,
				   .fields = d->fields,
				   .sites = d->site,
				   .text = text,
				   .maps_in_table = !ptx_probe_is_bracket(d->hook),
				   .scratch_at = t->scratch_at,
				   .scratch_bytes = t->scratch_bytes,
				   .place = shim_probe_place_number,
				   .place_arg = t };

	if (b->n + b->around.n == PTX_PROBES_MAX) {
		return report_set(b->r, -E2BIG, "limit", "more than %u programs for one kernel",
				  PTX_PROBES_MAX);
	}
	if (!text) {
		return report_set(b->r, -ENOMEM, "memory", "out of memory");
	}
	b->placed[o.tool] |= 1u << o.program;
	if (ptx_probe_is_bracket(d->hook)) {
		set_name(b->around.name, b->around.n, d->prefix, text);
		probe.name = b->around.name[b->around.n];
		b->around.text[b->around.n] = text;
		b->around.tool[b->around.n] = t;
		b->around.probes[b->around.n++] = probe;
	} else {
		set_name(b->name, b->n, d->prefix, text);
		probe.name = b->name[b->n];
		b->text[b->n] = text;
		b->tool[b->n] = t;
		b->origin[b->n] = o;
		b->probes[b->n++] = probe;
	}
	return 0;
}

static int add_tools(struct shim_probe_made *b, struct shim_probe_tool *const *tools, uint32_t n,
		     const struct shim_probe_cut *cut)
{
	int err = 0;

	b->parts = cut->tools;
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = 0; j < tools[i]->p.n_devices && !err; j++) {
			if (!(cut->programs[i] & 1u << j) &&
			    shim_probe_tool_matches(tools[i], j, b->k->name)) {
				err = add_program(b, tools[i], (struct origin){ i, j });
			}
		}
	}
	return err;
}

static int no_ptx(struct shim_probe_made *b, const struct shim_kept_reason *why)
{
	struct buf text;
	int err;

	buf_init(&text);
	shim_kept_why_print(why, &text);
	err = report_set(b->r, -ENODATA, "no-ptx", "%s", buf_text(&text));
	buf_finish(&text);
	return err;
}

/* Before the text is made. A program without addresses uses the table; if its tool has no memory,
 * find_addresses() says why. */
static void find_maps(struct shim_probe_made *b) REQUIRES(shim_probe_build_mutex)
{
	uint32_t max = shim_probe_text_max();

	b->map_at = max ? calloc(b->n, sizeof(*b->map_at)) : NULL;
	for (uint32_t i = 0; i < b->n && b->map_at; i++) {
		uint64_t env = shim_probe_memory_env(b->tool[i], b->k->ctx, b->r);

		for (uint32_t k = 0; k < PTX_PROBE_MAPS_MAX && env; k++) {
			b->map_at[i][k] = shim_probe_memory_map(b->tool[i], b->k->ctx, k);
		}
		b->map_at[i][PTX_PROBE_CONTROL] = env + EBPF_PTX_CONTROL_ROW(b->row);
		b->probes[i].map_at = env ? b->map_at[i] : NULL;
		b->probes[i].env_at = env;
		b->probes[i].text_max = max;
	}
}

static int rewrite(struct shim_probe_made *b) REQUIRES(shim_probe_build_mutex)
{
	struct shim_kept_reason why;
	struct ptx_module *m = NULL;
	size_t bytes = 0;
	char *text = shim_image_ptx(b->k->owner, b->k->name, &bytes, &why);
	int err;

	if (!text) {
		return no_ptx(b, &why);
	}
	err = ptx_module_parse(&m, text, bytes, "kernel", b->r);
	free(text);
	if (!err) {
		find_maps(b);
		err = ptx_shared_merge(m, b->k->name, NULL, b->r);
		err = err ? err
			  : ptx_probe_rewrite(m, b->k->name, b->probes, b->n, &b->probed, b->r);
		ptx_module_free(m);
	}
	return err;
}

/* ---- variables ---- */

static CUresult variable(const struct shim_probe_kernel *k, const char *name, CUdeviceptr *ret)
{
	size_t bytes;

	if (k->kind == SHIM_KERNEL_OF_MODULE) {
		return shim_driver.cuModuleGetGlobal_v2(ret, &bytes, (CUmodule)(uintptr_t)k->owner,
							name);
	}
	return shim_driver.cuLibraryGetGlobal(ret, &bytes, (CUlibrary)(uintptr_t)k->owner, name);
}

static int address_of(void *arg, const char *name, uint64_t *ret)
{
	CUdeviceptr at = 0;

	if (variable(arg, name, &at) != CUDA_SUCCESS || !at) {
		return -ENOENT;
	}
	*ret = at;
	return 0;
}

/* ---- machine code ---- */

/* A copy of the kernel's machine code with an entry stub. */
static int copy_code(struct shim_probe_made *b, const struct shim_code_kept *kept)
	REQUIRES(shim_probe_build_mutex)
{
	uint64_t envs[PTX_PROBES_MAX];
	uint64_t(*offsets)[PTX_PROBE_ADDRESSES] = calloc(PTX_PROBES_MAX, sizeof(*offsets));
	size_t bytes = 0;
	void *elf = shim_code_kept_elf(kept, &bytes, b->r);
	struct shim_probe_params params;
	const struct ptx_stub_kernel kernel = { b->k->name, shim_probe_params(&params, b->k) };
	int err = elf && offsets ? 0 : elf ? -ENOMEM : -ENOENT;

	for (uint32_t i = 0; i < b->n && !err; i++) {
		envs[i] = shim_probe_memory_env(b->tool[i], b->k->ctx, b->r);
		err = envs[i] ? 0 : -ENOMEM;
		for (uint32_t k = 0; k < PTX_PROBE_MAPS_MAX && !err; k++) {
			offsets[i][k] = shim_probe_memory_offset(b->tool[i], k);
		}
		offsets[i][PTX_PROBE_CONTROL] = EBPF_PTX_CONTROL_ROW(b->row);
		b->probes[i].map_offsets = offsets[i];
	}
	err = err ? err
		  : shim_code_probe_make(&b->copy, elf, bytes, &kernel, b->probes, envs, b->n,
					 address_of, unqual(b->k), b->r);
	for (uint32_t i = 0; i < b->n; i++) {
		b->probes[i].map_offsets = NULL;
	}
	shim_probe_params_finish(&params);
	free(offsets);
	free(elf);
	return err;
}

/* Tries the machine code of a kernel whose PTX cannot be probed, for the reason in `ptx`, or that
 * has none: err is -ENODATA. */
static int try_code(struct shim_probe_made *b, int err, const struct report *ptx)
	REQUIRES(shim_probe_build_mutex)
{
	struct shim_code_kept *kept = shim_image_code(b->k->owner);
	struct report *r = b->r, code;
	struct buf why, code_why;
	bool both = err != -ENODATA;

	report_init(&code);
	b->r = &code;
	err = kept ? copy_code(b, kept) : err;
	b->r = r;
	if (err) {
		buf_init(&why);
		buf_init(&code_why);
		report_text(ptx, &why);
		report_text(&code, &code_why);
		err = report_set(r, err, "form", "%s%s%s", both || !kept ? buf_text(&why) : "",
				 both && kept ? "; entry stub: " : "", buf_text(&code_why));
		buf_finish(&why);
		buf_finish(&code_why);
	}
	report_finish(&code);
	shim_image_code_unref(kept);
	return err;
}

static int load_copy(struct shim_probe_made *b, struct shim_probe_form *f)
{
	struct shim_code_probed loaded;
	struct cubin_patched *copy = b->copy;
	int err;

	b->copy = NULL;
	err = shim_code_probe_load(&loaded, copy, b->k->name, b->r);
	if (!err) {
		f->module = loaded.module;
		f->handle = loaded.handle;
	}
	return err;
}

/* ---- PTX ---- */

/* The programs are in the form's body, so its preemptible clone runs them once a block, too. */
static void add_clone(struct shim_probe_made *b)
{
	enum proto_block_why why;
	const struct shim_image_source form = { .image = b->probed.text.data };
	const struct ptx_block_image *i = shim_image_open(&form, &why);
	const struct ptx_block_entry *e =
		i && i->text ? ptx_block_image_entry(i, b->k->name) : NULL;

	if (e && e->why == PROTO_BLOCK_OK) {
		b->block = i;
	} else {
		ptx_block_image_close(i);
	}
}

/* ---- addresses ---- */

/* Before the form is compiled, which takes longest. */
static int find_addresses(struct shim_probe_made *b, CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	const struct ptx_probed *form = &b->probed;

	b->n_table = b->n + form->n_variables + form->n_maps;
	b->table = calloc(b->n_table + 1u, sizeof(b->table[0]));
	if (!b->table) {
		return report_set(b->r, -ENOMEM, "memory", "out of memory");
	}
	for (uint32_t i = 0; i < b->n; i++) {
		b->table[i] = shim_probe_memory_env(b->tool[i], ctx, b->r);
		if (!b->table[i]) {
			return -ENOMEM;
		}
	}
	for (uint32_t i = 0; i < b->probed.n_variables; i++) {
		CUdeviceptr at = 0;

		if (variable(b->k, b->probed.variables[i], &at) != CUDA_SUCCESS || !at) {
			return report_set(b->r, -ENOENT, "variable",
					  "the driver has no address of its variable %s",
					  b->probed.variables[i]);
		}
		b->table[b->n + i] = at;
	}
	for (uint32_t i = 0; i < form->n_maps; i++) {
		const struct ptx_probe_map *m = &form->maps[i];

		b->table[b->n + form->n_variables + i] =
			m->map == PTX_PROBE_CONTROL
				? b->table[m->probe] + EBPF_PTX_CONTROL_ROW(b->row)
				: shim_probe_memory_map(b->tool[m->probe], ctx, m->map);
	}
	return 0;
}

static int load(struct shim_probe_made *b, struct shim_probe_form *f)
	REQUIRES(shim_probe_build_mutex)
{
	CUdeviceptr table = 0;
	size_t bytes = 0;
	CUresult r = shim_driver.cuModuleLoadDataEx(&f->module, b->image, 0, NULL, NULL);

	if (r != CUDA_SUCCESS) {
		return report_set(b->r, -ENOEXEC, "load", "the driver does not load it: error %d",
				  (int)r);
	}
	r = shim_driver.cuModuleGetFunction(&f->handle, f->module, b->k->name);
	if (r == CUDA_SUCCESS) {
		r = shim_driver.cuModuleGetGlobal_v2(&table, &bytes, f->module, PTX_PROBE_TABLE);
	}
	if (r == CUDA_SUCCESS) { /* else its first launch would wait for work on the device */
		(void)shim_driver.cuFuncLoad(f->handle);
	}
	if (r != CUDA_SUCCESS || bytes < b->n_table * sizeof(b->table[0]) ||
	    shim_probe_memory_write(table, b->table, b->n_table * sizeof(b->table[0])) < 0) {
		(void)shim_driver.cuModuleUnload(f->module);
		return report_set(b->r, -ENOEXEC, "load", "its table cannot be filled: error %d",
				  (int)r);
	}
	return 0;
}

/* Lets launches of the form have what it needs besides f's. Blocks of all sizes cannot have that
 * where f may use nearly all that there is: then it gets all. */
static void allow_shared(struct shim_probe_form *f, uint32_t of_f)
{
	int max = 0, fixed = 0;
	CUdevice dev;

	store_relaxed(&f->max_smem_bytes, of_f);
	if (shim_driver.cuFuncSetAttribute(
		    f->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		    (int)ptx_probe_smem(of_f, f->warp_bytes, 1024)) == CUDA_SUCCESS ||
	    shim_driver.cuCtxGetDevice(&dev) != CUDA_SUCCESS ||
	    shim_driver.cuDeviceGetAttribute(&max,
					     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
					     dev) != CUDA_SUCCESS ||
	    shim_driver.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
					   f->handle) != CUDA_SUCCESS) {
		return;
	}
	(void)shim_driver.cuFuncSetAttribute(
		f->handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, max - fixed);
}

void shim_probe_follow_attributes(const void *handle, struct shim_probe_form *f)
{
	static const CUfunction_attribute followed[] = {
		CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
		CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
		CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
		CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
	};

	for (unsigned i = 0; i < ARRAY_SIZE(followed) && f->handle; i++) {
		int value = 0;

		if (shim_kernel_attribute(&value, followed[i], (CUfunction)unqual(handle),
					  f->library) != CUDA_SUCCESS) {
			continue;
		}
		if (i > 0 && f->has_clone) {
			(void)shim_driver.cuFuncSetAttribute(f->clone.handle, followed[i], value);
		}
		if (i == 0 && f->needs_shared && value >= 0) {
			allow_shared(f, (uint32_t)value);
			continue;
		}
		(void)shim_driver.cuFuncSetAttribute(f->handle, followed[i], value);
	}
	if (f->has_clone) {
		shim_clone_follow(&f->clone);
	}
}

/* The entry stub of machine code has the gate in front of the programs. Its argument has no room
 * for what the gate and the programs read. */
static void take_gate(struct shim_probe_form *f)
{
	const struct cubin_kernel *k = f->numbered ? NULL : shim_code_kernel(f->handle);

	f->has_clone = k && shim_code_why(k) == PROTO_BLOCK_OK;
	if (f->has_clone) {
		shim_clone_init(&f->clone, f->handle, f->handle, NULL, k);
	}
}

static bool reads_launch(const struct shim_probe_made *b)
{
	bool reads = false;

	for (uint32_t i = 0; i < b->n && !reads; i++) {
		reads = ptx_probe_reads_launch(b->probes[i].hook, b->probes[i].fields);
	}
	return reads;
}

/* Without it launches of the form run to their end. */
static void take_clone(struct shim_probe_made *b, struct shim_probe_form *f)
{
	CUfunction handle = NULL;
	struct buf name = { 0 };

	f->has_clone = false;
	f->block = NULL;
	if (f->code) {
		take_gate(f);
		return;
	}
	if (!b->block) {
		return;
	}
	buf_printf(&name, "%s" PTX_BLOCK_SUFFIX, b->k->name);
	if (shim_driver.cuModuleGetFunction(&handle, f->module, buf_text(&name)) == CUDA_SUCCESS) {
		shim_clone_init(&f->clone, f->handle, handle,
				ptx_block_image_entry(b->block, b->k->name), NULL);
		f->clone.numbered = f->passing.passed;
		(void)shim_driver.cuFuncLoad(handle);
		f->has_clone = true;
		f->block = b->block;
		b->block = NULL;
	}
	buf_finish(&name);
}

void shim_probe_unload(struct shim_probe_form *f, bool context_ends)
{
	CUcontext popped;

	if (f->module && !context_ends && shim_driver.cuCtxPushCurrent_v2(f->ctx) == CUDA_SUCCESS) {
		if (f->code) {
			shim_code_probe_unload(f->module);
		} else {
			(void)shim_driver.cuModuleUnload(f->module);
		}
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	ptx_block_image_close(f->block);
	f->block = NULL;
	f->module = NULL;
	shim_probe_bracket_put(f->bracket);
	f->bracket = NULL;
	shim_probe_memory_late_end(f->ctx, f->late, f->late_on);
	f->late = 0;
	shim_probe_row_put(f->row);
	f->row = 0;
}

/* The PTX with the programs, compiled. */
static int compile_form(struct shim_probe_made *b) REQUIRES(shim_probe_build_mutex)
{
	int err = find_addresses(b, b->k->ctx);
	const char *text;
	size_t bytes;

	if (err) {
		return err;
	}
	add_clone(b);
	text = b->block ? b->block->text : b->probed.text.data;
	bytes = b->block ? b->block->bytes : b->probed.text.len;
	if (b->probed.has_addresses) { /* no other process has this text */
		return shim_code_compile_once(text, bytes, &b->image, &b->image_bytes, b->r);
	}
	return shim_code_compile(text, bytes, shim_code_arch_here(false), &b->image,
				 &b->image_bytes, b->r);
}

/* Takes from the PTX that was rewritten which programs have sites. */
static int take_sites(struct shim_probe_made *b)
{
	uint32_t with = 0, all = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		const struct origin *o = &b->origin[i];

		all |= 1u << o->tool;
		if (b->probed.sites[i]) {
			with |= 1u << o->tool;
		} else {
			b->placed[o->tool] &= ~(1u << o->program);
			b->unplaced[o->tool] |= 1u << o->program;
		}
	}
	b->idle = all & ~with;
	return b->idle ? report_set(b->r, -ENOENT, "probe", "a tool has no site in it") : 0;
}

static int make_form(struct shim_probe_made *b) REQUIRES(shim_probe_build_mutex)
{
	struct report *r = b->r, ptx;
	int err;

	if (!b->n) {
		return 0;
	}
	report_init(&ptx);
	b->r = &ptx;
	err = rewrite(b);
	b->r = r;
	if (err) {
		err = try_code(b, err, &ptx);
	} else {
		err = take_sites(b);
		err = err ? err : compile_form(b);
	}
	report_finish(&ptx);
	return err;
}

/* Programs of block_exit in an entry stub have their last calls in a bracket, with the same text.
 */
static int add_late(struct shim_probe_made *b) REQUIRES(shim_probe_build_mutex)
{
	struct around *a = &b->around;
	uint32_t n = a->n;

	for (uint32_t i = 0; i < b->n && b->copy; i++) {
		if (ptx_probe_is_late(b->probes[i].hook)) {
			a->tool[a->n] = b->tool[i];
			a->probes[a->n] = b->probes[i];
			a->probes[a->n++].maps_in_table = false;
		}
	}
	return a->n == n ? 0 : shim_probe_memory_late(b->k->ctx, &b->late, &b->late_on, b->r);
}

static int make_bracket(struct shim_probe_made *b) REQUIRES(shim_probe_build_mutex)
{
	struct around *a = &b->around;
	int err = add_late(b);

	if (err) {
		return err;
	}
	return a->n ? shim_probe_bracket_make(&a->bracket, b->k->ctx, shim_code_arch_here(false),
					      a->probes, a->tool, a->n, b->r)
		    : 0;
}

/* Gives the kernel control words of its own if a tool is to read them, before its form can run. */
static void take_row(struct shim_probe_made *b, struct shim_probe_tool *const *tools, uint32_t n)
	REQUIRES(shim_probe_build_mutex)
{
	uint32_t settable = 0;

	for (uint32_t i = 0; i < n; i++) {
		settable += tools[i]->settable;
	}
	b->row = settable ? shim_probe_row_take(b->k->name) : 0;
	for (uint32_t i = 0; i < n && settable; i++) {
		if (b->row) {
			(void)shim_probe_memory_control(tools[i], b->row, b->row + 1);
		} else if (tools[i]->settable) {
			lock_take(&shim_probe_mutex);
			shim_probe_tool_refused(tools[i], b->k->name,
						"too many kernels run tools: what is set for "
						"patterns of names (probe set --kernel) does not "
						"reach it");
			lock_release(&shim_probe_mutex);
		}
	}
}

static int compile(const struct shim_probe_kernel *k, struct shim_probe_tool *const *tools,
		   uint32_t n, const struct shim_probe_cut *cut, struct shim_probe_made **ret,
		   uint32_t *ret_idle, struct report *r) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_made *b = calloc(1, sizeof(*b));
	int err;

	if (!b) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	b->k = k;
	b->r = r;
	take_row(b, tools, n);
	err = add_tools(b, tools, n, cut);
	err = err ? err : make_form(b);
	err = err ? err : make_bracket(b);
	*ret_idle = b->idle;
	if (err) {
		shim_probe_made_free(b);
		return err;
	}
	*ret = b;
	return 0;
}

int shim_probe_compile(const struct shim_probe_kernel *k, struct shim_probe_tool *const *tools,
		       uint32_t n, struct shim_probe_made **ret, uint32_t *ret_idle,
		       struct report *r)
{
	struct shim_probe_cut cut = { 0 };
	int err;

	*ret_idle = 0;
	err = compile(k, tools, n, &cut, ret, ret_idle, r);
	while (err && !*ret_idle && shim_probe_cut_next(&cut, k, tools, n)) {
		struct report again;

		report_init(&again);
		err = compile(k, tools, n, &cut, ret, ret_idle, &again);
		report_finish(&again);
	}
	if (!err && cut.tools) {
		shim_probe_cut_tell(&cut, k, tools, n, r);
	}
	return err;
}

int shim_probe_load(struct shim_probe_made *b, struct shim_probe_form *f, struct report *r)
{
	int err = b->around.bracket ? shim_probe_bracket_load(b->around.bracket, r) : 0;

	b->r = r;
	f->ctx = b->k->ctx;
	f->library = b->k->kind == SHIM_KERNEL_OF_LIBRARY;
	f->code = b->copy != NULL;
	f->kernel_hash = hash_bytes(b->k->name, strlen(b->k->name));
	f->unseen = b->probed.unseen;
	f->passing = (struct ptx_probe_number){ .passed = false };
	f->numbered = false;
	f->late = 0;
	f->row = 0;
	f->module = NULL;
	f->handle = NULL;
	f->bracket = NULL;
	if (!err && b->n) {
		err = f->code ? load_copy(b, f) : load(b, f);
	}
	if (!err) {
		f->bracket = b->around.bracket;
		b->around.bracket = NULL;
		f->late = b->late;
		f->late_on = b->late_on;
		b->late = 0;
		f->row = b->row;
		b->row = 0;
		f->needs_shared = b->probed.needs_shared;
		f->warp_bytes = b->probed.warp_bytes;
		f->passing = b->probed.number;
		f->numbered = f->passing.passed || (f->code && reads_launch(b));
		f->max_smem_bytes = UINT32_MAX; /* if the driver does not report it */
		f->parts = b->parts;
		memcpy(f->placed, b->placed, sizeof(f->placed));
		memcpy(f->unplaced, b->unplaced, sizeof(f->unplaced));
		take_clone(b, f);
		shim_probe_follow_attributes(b->k->handle, f);
	}
	return err;
}

void shim_probe_made_free(struct shim_probe_made *b)
{
	if (!b) {
		return;
	}
	cubin_patched_close(b->copy);
	ptx_block_image_close(b->block);
	for (uint32_t i = 0; i < b->n; i++) {
		free(b->text[i]);
	}
	for (uint32_t i = 0; i < b->around.n; i++) {
		free(b->around.text[i]);
	}
	shim_probe_bracket_put(b->around.bracket);
	shim_probe_memory_late_end(b->k->ctx, b->late, b->late_on);
	shim_probe_row_put(b->row);
	ptx_probed_finish(&b->probed);
	free(b->image);
	free(b->table);
	free(b->map_at);
	free(b);
}
