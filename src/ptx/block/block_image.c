/* Runs the passes over whole images and caches the results by a hash of the text. The lock guards
 * the list only: threads rewrite images concurrently. */
#include "base/compiler.h"
#include "ptx/block_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/strmap.h"
#include "ptx/block_mark.h"
#include "ptx/block/block_pick.h"
#include "ptx/image.h"
#include "ptx/pass.h"

/* cached images that are not open; the one closed first is freed first */
#define IDLE_MAX 64u
#define IDLE_BYTES_MAX ((size_t)32 << 20)

struct key {
	uint64_t hash[2];
	size_t bytes;
	unsigned device; /* architecture, prepared, differs, native */
};

struct kept {
	struct ptx_block_image image;
	struct key key;
	bool cached; /* is in the list */
	size_t total;
	/* Under lock: */
	unsigned refs;
	uint64_t closed; /* value of the close counter when refs became 0 */
	struct kept *next;
};

static struct lock lock = LOCK_INITIALIZER(BLOCK_IMAGE);
static struct kept *list GUARDED_BY(lock);
static uint64_t closes GUARDED_BY(lock);
static struct ptx_block_image_counts counts GUARDED_BY(lock);

/* A second hash, independent of base's: two texts of one length would have to collide in both. */
static uint64_t other_hash(const char *data, size_t len)
{
	uint64_t h = UINT64_C(0x9e3779b97f4a7c15) ^ len;

	for (; len >= 8; len -= 8, data += 8) {
		uint64_t v;

		memcpy(&v, data, sizeof(v));
		h = (h ^ v) * UINT64_C(0xff51afd7ed558ccd);
		h ^= h >> 32;
	}
	for (; len; len--) {
		h = (h ^ (uint8_t)*data++) * UINT64_C(0xff51afd7ed558ccd);
	}
	return h ^ (h >> 29);
}

static bool differs(const struct ptx_block_pick *pick)
{
	return pick->differs.code.arch != 0;
}

static struct key key_of(const struct ptx_block_pick *pick, struct ptx_device d, bool prepare)
{
	return (struct key){ .hash = { hash_bytes(pick->text, pick->bytes),
				       other_hash(pick->text, pick->bytes) },
			     .bytes = pick->bytes,
			     .device = ptx_device_target(d) << 3 | (unsigned)prepare << 2 |
				       (unsigned)differs(pick) << 1 | pick->native };
}

static bool same_key(const struct key *a, const struct key *b)
{
	return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1] && a->bytes == b->bytes &&
	       a->device == b->device;
}

/* Under lock. */
static struct kept *find(const struct key *key) REQUIRES(lock)
{
	for (struct kept *k = list; k; k = k->next) {
		if (same_key(&k->key, key)) {
			return k;
		}
	}
	return NULL;
}

/* Removes the image closed first if too many are not open. Under lock. */
static struct kept *take_oldest(void)
{
	struct kept **oldest = NULL, *k;
	size_t bytes = 0;
	unsigned n = 0;

	for (struct kept **at = &list; *at; at = &(*at)->next) {
		if ((*at)->refs == 0) {
			n++;
			bytes += (*at)->total;
			oldest = !oldest || (*at)->closed < (*oldest)->closed ? at : oldest;
		}
	}
	if (!oldest || (n <= IDLE_MAX && bytes <= IDLE_BYTES_MAX)) {
		return NULL;
	}
	k = *oldest;
	*oldest = k->next;
	return k;
}

/* Returns the size of an image's tables, names and text behind its head. */
static size_t bytes_of(const struct ptx_block_entry *e, uint32_t n)
{
	size_t bytes = n * sizeof(*e);

	for (uint32_t i = 0; i < n; i++) {
		bytes += e[i].n_params * 2 * sizeof(uint32_t);
	}
	for (uint32_t i = 0; i < n; i++) {
		bytes += strlen(e[i].name) + 1;
	}
	return bytes;
}

/* Copies the entries from the module's arena, and the text. Tables come first, for alignment. */
static void fill(struct kept *k, const struct ptx_block_entry *e, uint32_t n,
		 const struct buf *text)
{
	struct ptx_block_entry *to = (struct ptx_block_entry *)(k + 1);
	uint32_t *numbers = (uint32_t *)(to + n);
	char *chars;

	for (uint32_t i = 0; i < n; i++) {
		size_t bytes = e[i].n_params * sizeof(*numbers);

		to[i] = e[i];
		to[i].param_offset = numbers;
		to[i].param_bytes = numbers + e[i].n_params;
		if (bytes) {
			memcpy(numbers, e[i].param_offset, bytes);
			memcpy(numbers + e[i].n_params, e[i].param_bytes, bytes);
		}
		numbers += 2 * (size_t)e[i].n_params;
		k->image.n_clones += e[i].why == PROTO_BLOCK_OK;
	}
	chars = (char *)numbers;
	for (uint32_t i = 0; i < n; i++) {
		size_t len = strlen(e[i].name) + 1;

		to[i].name = memcpy(chars, e[i].name, len);
		chars += len;
	}
	if (text) {
		k->image.text = memcpy(chars, buf_text(text), text->len + 1);
		k->image.bytes = text->len;
	}
	k->image.entries = to;
	k->image.n_entries = n;
}

static struct kept *create(const struct ptx_block_entry *e, uint32_t n, const struct buf *text)
{
	size_t bytes = sizeof(struct kept) + bytes_of(e, n) + (text ? text->len + 1 : 0);
	struct kept *k = calloc(1, bytes);

	if (k) {
		k->total = bytes;
		k->refs = 1;
		k->image.why = PROTO_BLOCK_OK;
		k->image.reason = "";
		fill(k, e, n, text);
	}
	return k;
}

/* Makes an image that cannot be used, with a reason for messages. */
static struct kept *refuse(enum proto_block_why why, const struct report *r)
{
	struct buf text;
	struct kept *k;

	buf_init(&text);
	if (r) {
		report_text(r, &text);
	}
	k = text.failed ? NULL : calloc(1, sizeof(*k) + text.len + 1);
	if (k) {
		k->refs = 1;
		k->image.why = why;
		k->image.reason = memcpy(k + 1, buf_text(&text), text.len + 1);
	}
	buf_finish(&text);
	return k;
}

/* Prints the program's text verbatim, so that line numbers in compiler messages stay valid, and
 * behind it all items that the passes have added. */
static int print_behind(struct buf *text, const struct ptx_block_pick *pick, struct ptx_module *m,
			struct ptx_item *const *originals, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ptx_list_remove(&m->items, originals[i]);
	}
	buf_add(text, pick->text, pick->bytes);
	buf_puts(text, "\n");
	return ptx_module_print(m, text);
}

static struct ptx_item **items_of(const struct ptx_module *m, size_t *ret_n)
{
	struct ptx_item **all = calloc(m->items.n + 1, sizeof(struct ptx_item *));
	size_t n = 0;

	if (all) {
		ptx_each (&m->items, it) {
			all[n++] = it;
		}
	}
	*ret_n = n;
	return all;
}

/* Parses, rewrites and prints. Returns 0 and *ret; -ENOMEM; other errors with a report. */
static int rewrite(struct kept **ret, const struct ptx_block_pick *pick, const char *name,
		   bool prepare, struct report *r)
{
	const struct ptx_block_entry *entries = NULL;
	struct ptx_passes passes = { .prepare = prepare,
				     .id = prepare ? hash_bytes(pick->text, pick->bytes) : 0 };
	struct ptx_item **originals = NULL;
	struct ptx_module *m = NULL;
	struct buf text;
	uint32_t n = 0;
	size_t n_originals = 0;
	bool marked = false;
	int err = ptx_module_parse(&m, pick->text, pick->bytes, name, r);

	buf_init(&text);
	if (err == 0) {
		err = ptx_block_mark_of_module(m, &entries, &n);
		marked = err == 0;
		err = err == -ENOENT ? 0 : err;
	}
	if (err == 0 && !marked) {
		originals = items_of(m, &n_originals);
		err = originals ? ptx_passes_run(m, &passes, r) : -ENOMEM;
		entries = passes.block;
		n = passes.n_block;
	}
	if (err == 0 && passes.changed) {
		err = ptx_module_print(m, &text);
	} else if (err == 0 && !marked && m->items.n > n_originals) {
		err = print_behind(&text, pick, m, originals, n_originals);
	}
	free(originals);
	if (err == 0) {
		*ret = create(entries, n, text.len ? &text : NULL);
		err = *ret ? 0 : -ENOMEM;
	}
	if (err == 0) {
		(*ret)->image.prepared = passes.changed;
	}
	buf_finish(&text);
	ptx_module_free(m);
	return err;
}

/* Adds k to the list and returns it; if another thread has added the same key, frees k and returns
 * the other. */
static struct kept *keep(struct kept *k, const struct key *key, uint64_t ns)
{
	struct kept *old;

	k->key = *key;
	lock_take(&lock);
	counts.passes++;
	counts.ns += ns;
	old = find(key);
	if (old) {
		old->refs++;
	} else {
		k->cached = true;
		k->next = list;
		list = k;
	}
	lock_release(&lock);
	if (old) {
		free(k);
	}
	return old ? old : k;
}

static struct kept *look_up(const struct key *key)
{
	struct kept *k;

	lock_take(&lock);
	k = find(key);
	if (k) {
		k->refs++;
		counts.hits++;
	}
	lock_release(&lock);
	return k;
}

static int open_text(struct kept **ret, const struct ptx_block_pick *pick, struct ptx_device device,
		     const char *name, bool prepare, struct report *r)
{
	struct key key = key_of(pick, device, prepare);
	uint64_t start = clock_now_ns();
	struct kept *k = look_up(&key);
	int err = 0;

	if (!k) {
		err = rewrite(&k, pick, name, prepare, r);
		if (err == 0) {
			k->image.native = pick->native;
			k->image.differs = differs(pick);
			k = keep(k, &key, clock_now_ns() - start);
		}
	}
	*ret = k;
	return err;
}

/* Opens machine code compiled from a rewritten text. Returns 0; -ENOENT: it was not; -ENOMEM. */
static int open_code(struct kept **ret, const void *image, size_t bytes)
{
	const struct ptx_block_entry *entries;
	struct ptx_arena arena;
	uint32_t n;
	int err;

	ptx_arena_init(&arena);
	err = ptx_block_mark_of_code(&arena, image, bytes, &entries, &n);
	if (err == 0) {
		*ret = create(entries, n, NULL);
		err = *ret ? 0 : -ENOMEM;
	}
	if (err == 0) {
		(*ret)->image.native = true;
	}
	ptx_arena_finish(&arena);
	return err;
}

int ptx_block_image_marked(const struct ptx_block_image *i, struct buf *out)
{
	if (!i->text) {
		return -ENOENT;
	}
	buf_add(out, i->text, i->bytes);
	return ptx_block_mark_print(out, i->entries, i->n_entries, hash_bytes(i->text, i->bytes));
}

/* Returns the reason why an image without PTX for the device cannot be used. */
static enum proto_block_why why_none(const struct ptx_block_pick *pick, const char *name,
				     struct report *r)
{
	if (pick->other.arch) {
		return PROTO_BLOCK_OTHER_PTX;
	}
	if (!pick->too_new) {
		return PROTO_BLOCK_NO_PTX;
	}
	report_place(r, "%s", name);
	report_set(r, -EOPNOTSUPP, "image", "its PTX is of a .version newer than %u.x",
		   PTX_VERSION_MAX);
	return PROTO_BLOCK_UNREADABLE;
}

static int open_image(const struct ptx_block_image **ret, const void *image, size_t bytes,
		      struct ptx_device device, const char *name, bool prepare)
{
	struct ptx_block_pick pick = { 0 };
	struct kept *k = NULL;
	struct report r;
	int err;

	report_init(&r);
	err = ptx_block_pick(&pick, image, bytes, device, PTX_BLOCK_IMAGE_MAX, name, &r);
	err = err == 0			      ? open_text(&k, &pick, device, name, prepare, &r)
	      : err == -ENOENT && pick.native ? open_code(&k, image, bytes)
					      : err;
	if (err < 0 && err != -ENOMEM) {
		enum proto_block_why why =
			err == -ENOENT ? why_none(&pick, name, &r) : PROTO_BLOCK_UNREADABLE;

		k = refuse(why, why == PROTO_BLOCK_UNREADABLE ? &r : NULL);
		if (k) {
			k->image.native = pick.native;
		}
		err = k ? 0 : -ENOMEM;
	}
	free(pick.text);
	report_finish(&r);
	if (err == 0) {
		*ret = &k->image;
	}
	return err;
}

int ptx_block_image_open(const struct ptx_block_image **ret, const void *image, size_t bytes,
			 struct ptx_device device, const char *name)
{
	return open_image(ret, image, bytes, device, name, false);
}

int ptx_block_image_open_prepared(const struct ptx_block_image **ret, const void *image,
				  size_t bytes, struct ptx_device device, const char *name)
{
	return open_image(ret, image, bytes, device, name, true);
}

const struct ptx_block_image *ptx_block_image_ref(const struct ptx_block_image *i)
{
	if (i) {
		lock_take(&lock);
		((struct kept *)unqual(i))->refs++;
		lock_release(&lock);
	}
	return i;
}

void ptx_block_image_close(const struct ptx_block_image *i)
{
	struct kept *k = unqual(i), *old = NULL;

	if (!k) {
		return;
	}
	lock_take(&lock);
	if (--k->refs == 0) {
		k->closed = ++closes;
		old = k->cached ? take_oldest() : k;
	}
	lock_release(&lock);
	free(old);
}

const struct ptx_block_entry *ptx_block_image_entry(const struct ptx_block_image *i,
						    const char *name)
{
	for (uint32_t n = 0; i && n < i->n_entries; n++) {
		if (strcmp(i->entries[n].name, name) == 0) {
			return &i->entries[n];
		}
	}
	return NULL;
}

void ptx_block_image_counts(struct ptx_block_image_counts *ret)
{
	lock_take(&lock);
	*ret = counts;
	lock_release(&lock);
}
