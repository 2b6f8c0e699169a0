/* Ranks the texts of a container. The headers of its entries decide which of them are decompressed,
 * the texts which of those is taken. */
#include "ptx/choose.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "ptx/image.h"

#define ENTRIES_MAX 64u /* PTX entries of one container */
#define UNPACKED_MAX 4u /* size of all texts decompressed, in multiples of the longest text */

/* Ranks; 0: the device does not execute it. */
#define RANK_LAST 1u   /* for another device only, or without a readable .version and .target */
#define RANK_OTHER 2u  /* for a newer architecture */
#define RANK_DRIVER 4u /* by NVIDIA's rule; what is above it is of the .target */

/* Returns the letter after the number of .target: 'a': one device only, 'f': its family; 0: none.
 */
static char suffix_of(const char *text, size_t bytes)
{
	const char *t = memmem(text, MIN(bytes, (size_t)4096), ".target", 7), *end = text + bytes;

	while (t && t < end && *t != '\n' && (*t < '0' || *t > '9')) {
		t++;
	}
	while (t && t < end && *t >= '0' && *t <= '9') {
		t++;
	}
	return t && t < end && (*t == 'a' || *t == 'f') ? *t : 0;
}

static struct ptx_target target_of(const char *text, size_t bytes)
{
	return (struct ptx_target){ ptx_text_arch(text, bytes), suffix_of(text, bytes) };
}

/* Orders targets of one architecture: that for one device alone, its family's, others. */
static unsigned suffix_rank(char suffix)
{
	return suffix == 'a' ? 2 : suffix == 'f' ? 1 : 0;
}

bool ptx_target_differs(struct ptx_target text, struct ptx_target code)
{
	return code.arch && (text.arch / 10 != code.arch / 10 || text.suffix != code.suffix);
}

/* By NVIDIA's rule. */
static bool is_for(struct ptx_target t, unsigned arch)
{
	return t.arch && t.arch <= arch && (t.suffix != 'a' || t.arch == arch) &&
	       (t.suffix != 'f' || t.arch / 10 == arch / 10);
}

/* Of several texts for other devices the first one is nearest to the device. */
static void note_other(struct ptx_chooser *c, struct ptx_target t)
{
	c->other = c->other.arch ? c->other : t;
}

/* Notes a text that the device does not execute: whether it is for other devices, and else whether
 * its .version is too new, since a driver that reads it would execute it. */
static unsigned rank(struct ptx_chooser *c, const char *text, size_t bytes)
{
	struct ptx_target t = target_of(text, bytes);
	unsigned version = ptx_text_version(text, bytes);
	bool fits = is_for(t, ptx_device_target(c->device));

	if (c->device.rule == PTX_RULE_DRIVER && t.arch && !fits) {
		if (version) {
			note_other(c, t);
		}
		return 0;
	}
	if (version / 10 > PTX_VERSION_MAX) {
		c->too_new = true;
		return 0;
	}
	if (version && fits) {
		return RANK_DRIVER + t.arch * 4 + suffix_rank(t.suffix);
	}
	if (c->device.rule == PTX_RULE_DRIVER) {
		return 0;
	}
	return version && t.arch && !t.suffix ? RANK_OTHER : RANK_LAST;
}

int ptx_choose_soft_code(struct ptx_device device, struct ptx_fatbin_walk w, size_t max, char **ret,
			 size_t *ret_bytes)
{
	struct ptx_fatbin_entry e;

	while (device.rule == PTX_RULE_SOFT && ptx_fatbin_next(&w, &e) == 1) {
		char *code;
		int err;

		if (e.kind != PTX_FATBIN_CUBIN || e.arch != device.arch) {
			continue;
		}
		err = ptx_fatbin_unpack(&e, max, &code, ret_bytes);
		if (err == -ENOMEM) {
			return err;
		}
		if (err == 0 && memmem(code, *ret_bytes, PTX_SOFT_CODE, sizeof(PTX_SOFT_CODE))) {
			*ret = code;
			return 1;
		}
		if (err == 0) {
			free(code);
		}
	}
	return 0;
}

bool ptx_choose_text(struct ptx_chooser *c, const char *text, size_t bytes)
{
	return rank(c, text, bytes) != 0;
}

static int fail(struct ptx_chooser *c, int err, const char *what)
{
	c->error = what;
	return err;
}

bool ptx_device_executes(struct ptx_device d, const struct ptx_fatbin_entry *e)
{
	return ptx_fatbin_is_code_for(e, d.arch) && ptx_fatbin_is_code_for(e, ptx_device_target(d));
}

/* A GPU executes the code of the highest architecture, that for one device alone before others. */
static void see_code(struct ptx_chooser *c, const struct ptx_fatbin_entry *e)
{
	struct ptx_target t = { e->arch, e->flags & PTX_FATBIN_ARCH_SPECIFIC	 ? 'a'
					 : e->flags & PTX_FATBIN_FAMILY_SPECIFIC ? 'f'
										 : 0 };

	c->code = true;
	if (c->device.rule == PTX_RULE_DRIVER && ptx_device_executes(c->device, e) &&
	    (t.arch > c->native.arch ||
	     (t.arch == c->native.arch && suffix_rank(t.suffix) > suffix_rank(c->native.suffix)))) {
		c->native = t;
	}
}

/* Collects the PTX entries: those up to the device's architecture from the highest down, then those
 * above from the lowest up. */
static int collect(struct ptx_chooser *c, struct ptx_fatbin_walk *w, struct ptx_fatbin_entry *list,
		   unsigned *n)
{
	unsigned at, target = ptx_device_target(c->device);
	struct ptx_fatbin_entry e;
	int more;

	*n = 0;
	c->native = (struct ptx_target){ 0 }; /* of the container before */
	while ((more = ptx_fatbin_next(w, &e)) == 1) {
		if (e.kind != PTX_FATBIN_PTX) {
			see_code(c, &e);
			continue;
		}
		if (*n == ENTRIES_MAX) {
			return fail(c, -EFBIG, "a container has too many PTX images");
		}
		for (at = (*n)++; at > 0 && ptx_fatbin_better(&e, &list[at - 1], target); at--) {
			list[at] = list[at - 1];
		}
		list[at] = e;
	}
	return more < 0 ? fail(c, -EINVAL, "an entry of the fat binary does not fit into it") : 0;
}

static int unpack(struct ptx_chooser *c, const struct ptx_fatbin_entry *e, char **ret,
		  size_t *ret_bytes)
{
	int err = ptx_fatbin_unpack(e, c->max, ret, ret_bytes);

	if (err < 0) {
		return fail(c, err,
			    err == -EFBIG    ? "the PTX is too long"
			    : err == -ENOMEM ? "no memory to unpack the PTX"
					     : "compressed PTX of the fat binary is broken");
	}
	c->unpacked += *ret_bytes;
	if (c->unpacked / UNPACKED_MAX > c->max) {
		free(*ret);
		return fail(c, -EFBIG, "too much must be unpacked to find PTX that fits");
	}
	while (*ret_bytes && (*ret)[*ret_bytes - 1] == 0) {
		--*ret_bytes;
	}
	return 0;
}

/* Returns true if no text from this entry on can have a higher rank than the best one so far, of
 * architecture `arch`. */
static bool is_decided(const struct ptx_chooser *c, const struct ptx_fatbin_entry *e, unsigned best,
		       unsigned arch)
{
	if (best >= RANK_DRIVER) {
		return e->arch != arch;
	}
	return e->arch > ptx_device_target(c->device) &&
	       (best == RANK_OTHER || c->device.rule == PTX_RULE_DRIVER);
}

static void note_difference(struct ptx_chooser *c, const char *text, size_t bytes)
{
	struct ptx_target t = target_of(text, bytes);

	if (c->native.arch && (t.arch != c->native.arch || t.suffix != c->native.suffix)) {
		c->other_arch = true;
	}
	if (!c->differs.code.arch && ptx_target_differs(t, c->native)) {
		c->differs = (struct ptx_difference){ t, c->native };
	}
}

int ptx_choose(struct ptx_chooser *c, struct ptx_fatbin_walk w, char **ret, size_t *ret_bytes)
{
	struct ptx_fatbin_entry list[ENTRIES_MAX];
	unsigned n, best = 0, arch = 0;
	int err = collect(c, &w, list, &n);

	*ret = NULL;
	c->other = (struct ptx_target){ 0 }; /* of the container before */
	for (unsigned i = 0; i < n && !err; i++) {
		size_t bytes;
		unsigned r;
		char *text;

		if (is_decided(c, &list[i], best, arch)) {
			note_other(c, (struct ptx_target){ list[i].arch, 0 });
			break;
		}
		err = unpack(c, &list[i], &text, &bytes);
		r = err ? 0 : rank(c, text, bytes);
		if (r > best) {
			free(*ret);
			*ret = text;
			*ret_bytes = bytes;
			best = r;
			arch = list[i].arch;
		} else if (!err) {
			free(text);
		}
		if (c->too_new && c->device.rule == PTX_RULE_DRIVER && !err) {
			free(*ret); /* the driver may execute the one that is not read here */
			*ret = NULL;
			best = 0;
			c->other = (struct ptx_target){ 0 };
			break;
		}
	}
	if (best) {
		c->other = (struct ptx_target){ 0 };
	}
	if (err) {
		free(*ret);
		*ret = NULL;
	} else if (best) {
		note_difference(c, *ret, *ret_bytes);
	}
	return err ? err : best != 0;
}
