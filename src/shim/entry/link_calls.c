/* cuLink. A linker's result is recognized by its contents, since programs copy it before they
 * destroy the linker: by hash and length. */
#include "shim/entry/link_calls.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/strmap.h"
#include "cuabi/api.h"
#include "shim/fork_lock.h"
#include "shim/shim.h"

#define MAX_LINKERS 256u
#define MAX_OPTIONS 64u
#define MAX_BYTES ((uint64_t)1 << 30)

/* A linker, then its result. */
struct linked {
	CUlinkState state; /* NULL: the linker was destroyed */
	uint64_t hash;
	size_t bytes; /* 0: not complete */
	unsigned n;
	const struct ptx_block_image *parts[SHIM_IMAGE_PARTS_MAX]; /* references, owned */
};

static struct lock links_mutex = LOCK_INITIALIZER(LINKS);
static struct linked links[MAX_LINKERS] GUARDED_BY(links_mutex); /* n 0: free */
static unsigned next_link GUARDED_BY(links_mutex);
static uint32_t any; /* [atomic] a linker has completed */

static void clear(struct linked *k)
{
	while (k->n) {
		ptx_block_image_close(k->parts[--k->n]);
	}
	*k = (struct linked){ .state = NULL };
}

static struct linked *find(CUlinkState state) REQUIRES(links_mutex)
{
	for (unsigned i = 0; state && i < MAX_LINKERS; i++) {
		if (links[i].n && links[i].state == state) {
			return &links[i];
		}
	}
	return NULL;
}

/* Takes an entry: the oldest one whose linker has been destroyed. */
static struct linked *make(CUlinkState state) REQUIRES(links_mutex)
{
	for (unsigned i = 0; i < MAX_LINKERS; i++) {
		struct linked *k = &links[next_link++ % MAX_LINKERS];

		if (!k->n || !k->state) {
			clear(k);
			k->state = state;
			return k;
		}
	}
	return NULL;
}

static void note_part(CUlinkState state, const struct ptx_block_image *i)
{
	struct linked *k;

	lock_take(&links_mutex);
	k = find(state);
	k = k ? k : make(state);
	if (k && k->n < SHIM_IMAGE_PARTS_MAX) {
		k->parts[k->n++] = i;
		i = NULL;
	}
	lock_release(&links_mutex);
	ptx_block_image_close(i);
}

/* A call that adds an input, of which only single texts are rewritten: there the linker chooses
 * nothing, and refuses one that is not for its CU_JIT_TARGET. text NULL: adds the program's own. */
struct adder {
	CUresult (*run)(const struct adder *l, const char *text, size_t bytes);
	CUlinkState state;
	CUjitInputType type;
	void *data;
	size_t bytes;
	const char *name; /* or path */
	unsigned n;
	CUjit_option *options;
	void **values;
};

static CUresult add(const struct adder *l, const struct ptx_block_image *i)
{
	void *kept[MAX_OPTIONS];
	CUresult r;

	if (!i || !i->text || l->n > MAX_OPTIONS || (l->n && !l->values)) {
		ptx_block_image_close(i);
		return l->run(l, NULL, 0);
	}
	if (l->n) {
		memcpy(kept, l->values, l->n * sizeof(kept[0]));
	}
	r = l->run(l, i->text, i->bytes + 1);
	if (r == CUDA_SUCCESS) {
		note_part(l->state, i);
		return r;
	}
	if (l->n) {
		memcpy(l->values, kept, l->n * sizeof(kept[0]));
	}
	ptx_block_image_close(i);
	return l->run(l, NULL, 0);
}

static CUresult add_data(const struct adder *l)
{
	enum proto_block_why why;
	const struct shim_image_source s = { .image = l->data, .bytes = l->bytes };
	bool take = l->type == CU_JIT_INPUT_PTX && l->data && l->bytes && shim_image_wanted();

	return add(l, take ? shim_image_open(&s, &why) : NULL);
}

static CUresult add_file(const struct adder *l)
{
	const struct ptx_block_image *i = NULL;
	struct shim_image_source s = { 0 };
	enum proto_block_why why;
	char *data;

	if (l->type == CU_JIT_INPUT_PTX && shim_image_wanted() &&
	    (data = shim_image_read_file(l->name, &s.bytes)) != NULL) {
		s.image = data;
		i = shim_image_open(&s, &why);
		free(data);
	}
	return add(l, i);
}

static CUresult run_data(const struct adder *l, const char *text, size_t bytes)
{
	return shim_real.cuLinkAddData(l->state, l->type, text ? (void *)(uintptr_t)text : l->data,
				       text ? bytes : l->bytes, l->name, l->n, l->options,
				       l->values);
}

static CUresult run_data_v2(const struct adder *l, const char *text, size_t bytes)
{
	return shim_real.cuLinkAddData_v2(
		l->state, l->type, text ? (void *)(uintptr_t)text : l->data,
		text ? bytes : l->bytes, l->name, l->n, l->options, l->values);
}

static CUresult run_file(const struct adder *l, const char *text, size_t bytes)
{
	return text ? shim_real.cuLinkAddData(l->state, l->type, (void *)(uintptr_t)text, bytes,
					      l->name, l->n, l->options, l->values)
		    : shim_real.cuLinkAddFile(l->state, l->type, l->name, l->n, l->options,
					      l->values);
}

static CUresult run_file_v2(const struct adder *l, const char *text, size_t bytes)
{
	return text ? shim_real.cuLinkAddData_v2(l->state, l->type, (void *)(uintptr_t)text, bytes,
						 l->name, l->n, l->options, l->values)
		    : shim_real.cuLinkAddFile_v2(l->state, l->type, l->name, l->n, l->options,
						 l->values);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
		       const char *name, unsigned n, CUjit_option *options, void **values)
{
	struct adder l = { run_data, state, type, data, bytes, name, n, options, values };

	return add_data(&l);
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t bytes,
			  const char *name, unsigned n, CUjit_option *options, void **values)
{
	struct adder l = { run_data_v2, state, type, data, bytes, name, n, options, values };

	return add_data(&l);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned n,
		       CUjit_option *options, void **values)
{
	struct adder l = { run_file, state, type, NULL, 0, path, n, options, values };

	return add_file(&l);
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path, unsigned n,
			  CUjit_option *options, void **values)
{
	struct adder l = { run_file_v2, state, type, NULL, 0, path, n, options, values };

	return add_file(&l);
}

/* Returns the length of an image by its contents: text ends with a zero, machine code behind its
 * last header table. 0: neither. */
static size_t bytes_of(const void *image)
{
	const unsigned char *p = image;
	uint64_t table[2];
	uint16_t count[4]; /* size and number of program headers, and of section headers */
	uint64_t end;

	if (memcmp(p, "\177ELF", 4) != 0) {
		return *p == '.' || *p == '/' || *p == '\n' ? strlen(image) + 1 : 0;
	}
	memcpy(table, p + 0x20, sizeof(table));
	memcpy(count, p + 0x36, sizeof(count));
	end = MAX(table[0] + (uint64_t)count[0] * count[1],
		  table[1] + (uint64_t)count[2] * count[3]);
	return end < MAX_BYTES && table[0] < MAX_BYTES && table[1] < MAX_BYTES ? (size_t)end : 0;
}

CUresult cuLinkComplete(CUlinkState state, void **ret, size_t *ret_bytes)
{
	size_t bytes = 0;
	CUresult r = shim_real.cuLinkComplete(state, ret, &bytes);
	struct linked *k;

	if (r == CUDA_SUCCESS && ret_bytes) {
		*ret_bytes = bytes;
	}
	if (r == CUDA_SUCCESS && ret && *ret && bytes) {
		lock_take(&links_mutex);
		k = find(state);
		if (k) {
			k->bytes = MIN(bytes, bytes_of(*ret));
			k->hash = hash_bytes(*ret, k->bytes);
			store_release(&any, 1u);
		}
		lock_release(&links_mutex);
	}
	return r;
}

CUresult cuLinkDestroy(CUlinkState state)
{
	struct linked *k;

	lock_take(&links_mutex);
	k = find(state);
	if (k && k->bytes) {
		k->state = NULL;
	} else if (k) {
		clear(k);
	}
	lock_release(&links_mutex);
	return shim_real.cuLinkDestroy(state);
}

unsigned shim_link_find(const void *image,
			const struct ptx_block_image *parts[SHIM_IMAGE_PARTS_MAX])
{
	size_t bytes = image && load_acquire(&any) ? bytes_of(image) : 0;
	unsigned n = 0;
	uint64_t hash = 0;

	if (!bytes) {
		return 0;
	}
	lock_take(&links_mutex);
	for (unsigned i = 0; i < MAX_LINKERS && !n; i++) {
		struct linked *k = &links[i];

		if (!k->n || k->bytes != bytes) {
			continue;
		}
		hash = hash ? hash : hash_bytes(image, bytes);
		if (hash == k->hash) {
			for (n = 0; n < k->n; n++) {
				parts[n] = ptx_block_image_ref(k->parts[n]);
			}
		}
	}
	lock_release(&links_mutex);
	return n;
}

/* The linkers are the parent's, and another thread may have held the lock. */
static void child(void)
{
	shim_lock_after_fork(&links_mutex, LOCK_LINKS);
	memset(links, 0, sizeof(links));
}

const struct shim_part shim_link_part = { .child = child };
