/* The text of GBPF_VGPU (proto/vgpu_text.h): "train", "1000/train", or, for a vGPU without a name,
 * "NUMBER:TIME:mem=BYTES,mem1=BYTES,reserve=BYTES,swap=BYTES,compute=PERCENT,...", NUMBER in
 * hexadecimal, with the words that are not zero. */
#include "proto/vgpu_text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool proto_vgpu_name_is_valid(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	size_t n = strlen(name);

	return n >= 1 && n < PROTO_VGPU_NAME && strchr(letters, name[0]) &&
	       strspn(name, letters) + strspn(name + strspn(name, letters),
					      "0123456789._-"
					      "abcdefghijklmnopqrstuvw"
					      "xyzABCDEFGHIJKLMNOPQRST"
					      "UVWXYZ") ==
		       n;
}

bool proto_vgpu_limits_mem(const struct proto_vgpu_config *c)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (c->mem[i]) {
			return true;
		}
	}
	return false;
}

/* Returns NULL, or what is wrong with swap. */
static const char *swap_fault(const struct proto_vgpu_config *c)
{
	if (!c->swap) {
		return NULL;
	}
	if (c->swap < PROTO_VGPU_SWAP_MIN || c->swap > PROTO_VGPU_MEM_MAX) {
		return "swap: at least 2M, at most the machine's memory";
	}
	return proto_vgpu_limits_mem(c) ? NULL
					: "swap: needs mem, beyond which device memory leaves";
}

const char *proto_vgpu_config_fault(const struct proto_vgpu_config *c)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (c->mem[i] &&
		    (c->mem[i] < PROTO_VGPU_MEM_MIN || c->mem[i] > PROTO_VGPU_MEM_MAX)) {
			return "mem: at least 16M, at most the GPU's memory";
		}
		if (c->reserve > (c->mem[i] ? c->mem[i] : PROTO_VGPU_MEM_MAX)) {
			return "reserve: at most mem";
		}
	}
	if (c->compute > 100) {
		return "compute: 1 to 100 percent";
	}
	if (c->copy > 100) {
		return "copy: 1 to 100 percent";
	}
	if (c->pinned > PROTO_VGPU_MEM_MAX) {
		return "pinned: at most the machine's memory";
	}
	if (swap_fault(c)) {
		return swap_fault(c);
	}
	if (c->wait_ns > PROTO_VGPU_WAIT_MAX_NS) {
		return "wait: at most an hour";
	}
	if (c->prio < 0 || c->prio > PROTO_VGPU_PRIO_MAX) {
		return "prio: 0 to 100";
	}
	return c->flags & ~(uint32_t)(PROTO_VGPU_BURST | PROTO_VGPU_SHOW_MEM) ? "flags: unknown"
									      : NULL;
}

/* The words of the text but mem. */
struct word {
	const char *name;
	size_t offset, bytes; /* in struct proto_vgpu_config; bytes 4 or 8 */
};

#define WORD(field)                                                                                \
	{                                                                                          \
#field, offsetof(struct proto_vgpu_config, field),                                 \
			sizeof(((struct proto_vgpu_config *)0)->field)                             \
	}
static const struct word words[] = {
	WORD(reserve), WORD(pinned),
	WORD(swap),    { "wait", offsetof(struct proto_vgpu_config, wait_ns), 8 },
	WORD(compute), WORD(copy),
	WORD(prio),    WORD(flags),
};

static uint64_t get(const struct proto_vgpu_config *c, const struct word *w)
{
	uint64_t v8;
	uint32_t v4;

	if (w->bytes == sizeof(v8)) {
		memcpy(&v8, (const char *)c + w->offset, sizeof(v8));
		return v8;
	}
	memcpy(&v4, (const char *)c + w->offset, sizeof(v4));
	return v4;
}

static bool set(struct proto_vgpu_config *c, const struct word *w, uint64_t v8)
{
	uint32_t v4 = (uint32_t)v8;

	if (w->bytes == sizeof(v8)) {
		memcpy((char *)c + w->offset, &v8, sizeof(v8));
		return true;
	}
	memcpy((char *)c + w->offset, &v4, sizeof(v4));
	return v4 == v8;
}

static int append(char *text, size_t bytes, size_t *at, const char *name, uint64_t value)
{
	int n = snprintf(text + *at, bytes - *at, "%s%s=%llu", text[*at - 1] == ':' ? "" : ",",
			 name, (unsigned long long)value);

	if (n < 0 || (size_t)n >= bytes - *at) {
		return -ENOSPC;
	}
	*at += (size_t)n;
	return 0;
}

int proto_vgpu_print(const struct proto_vgpu *v, char *text, size_t bytes)
{
	const struct proto_vgpu_config *c = &v->config;
	int n, err = 0;
	size_t at;

	n = v->name[0] && v->number
		    ? snprintf(text, bytes, "%llu/%s", (unsigned long long)v->number - 1, v->name)
	    : v->name[0] ? snprintf(text, bytes, "%s", v->name)
			 : snprintf(text, bytes, "%llx:%llu:", (unsigned long long)v->number,
				    (unsigned long long)v->made_ns);
	if (n < 0 || (size_t)n >= bytes) {
		return -ENOSPC;
	}
	at = (size_t)n;
	for (unsigned i = 0; i < PROTO_MAX_GPUS && !v->name[0] && !err; i++) {
		char name[16];

		snprintf(name, sizeof(name), "mem%u", i);
		if (i == 0) {
			err = append(text, bytes, &at, "mem", c->mem[0]);
		} else if (c->mem[i] != c->mem[0]) {
			err = append(text, bytes, &at, name, c->mem[i]);
		}
	}
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]) && !v->name[0] && !err; i++) {
		uint64_t value = get(c, &words[i]);

		err = value ? append(text, bytes, &at, words[i].name, value) : 0;
	}
	return err;
}

/* Reads digits up to `end`, which follows them; moves *p behind it. */
static bool number(const char **p, int base, char end, uint64_t *ret)
{
	static const char digits[] = "0123456789abcdef";
	size_t n = strspn(*p, digits);
	char *after;

	errno = 0;
	*ret = strtoull(*p, &after, base);
	if (n == 0 || errno || after != *p + n || (*after != end && *after)) {
		return false;
	}
	*p = after + (*after == end);
	return *after == end || end == ',';
}

static bool take_word(const char **p, struct proto_vgpu_config *c)
{
	const char *equals = strchr(*p, '=');
	size_t n = equals ? (size_t)(equals - *p) : 0;
	uint64_t value;
	char name[16];

	if (!n || n >= sizeof(name)) {
		return false;
	}
	snprintf(name, sizeof(name), "%.*s", (int)n, *p);
	*p = equals + 1;
	if (!number(p, 10, ',', &value)) {
		return false;
	}
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(name, words[i].name) == 0) {
			return set(c, &words[i], value);
		}
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		char of_one[16];

		snprintf(of_one, sizeof(of_one), "mem%u", i);
		if (strcmp(name, "mem") == 0) {
			c->mem[i] = value;
		} else if (i && strcmp(name, of_one) == 0) {
			c->mem[i] = value;
			return true;
		}
	}
	return strcmp(name, "mem") == 0;
}

int proto_vgpu_parse_name(const char *text, struct proto_vgpu *v)
{
	const char *name = text;
	uint64_t owner = 0;

	memset(v, 0, sizeof(*v));
	if (strchr(text, '/')) {
		if (!number(&name, 10, '/', &owner) || owner >= UINT32_MAX) {
			return -EINVAL;
		}
		owner++;
	}
	if (!proto_vgpu_name_is_valid(name)) {
		return -EINVAL;
	}
	v->number = owner;
	snprintf(v->name, sizeof(v->name), "%s", name);
	return 0;
}

int proto_vgpu_parse(const char *text, struct proto_vgpu *v)
{
	const char *p = text;
	bool good;

	if (proto_vgpu_parse_name(text, v) == 0) {
		return 0;
	}
	good = number(&p, 16, ':', &v->number) && v->number && number(&p, 10, ':', &v->made_ns);
	while (good && *p) {
		good = take_word(&p, &v->config);
	}
	if (!good || proto_vgpu_config_fault(&v->config)) {
		memset(v, 0, sizeof(*v));
		return -EINVAL;
	}
	return 0;
}
