/* The list of GPUs. NVIDIA's are read from the driver's /proc tree (one folder for each GPU, with
 * "Model:" and "GPU UUID:" lines); the soft GPU's become known when the first process that sees one
 * says hello. */
#include "daemon/gpu_list.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "daemon/clean_text.h"

void daemon_gpu_uuid_text(const uint8_t u[16], char out[48])
{
	int n = snprintf(out, 48, "GPU-");

	for (int i = 0; i < 16; i++) {
		n += snprintf(out + n, 48 - (size_t)n, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
	}
}

static int parse_uuid(const char *text, uint8_t out[16])
{
	unsigned digits = 0;

	if (strncmp(text, "GPU-", 4) == 0) {
		text += 4;
	}
	memset(out, 0, 16);
	for (; *text && !isspace((unsigned char)*text); text++) {
		char c[2] = { *text, 0 };

		if (*text == '-') {
			continue;
		}
		if (!isxdigit((unsigned char)*text) || digits == 32) {
			return -EINVAL;
		}
		out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | (uint8_t)strtoul(c, NULL, 16));
		digits++;
	}
	return digits == 32 ? 0 : -EINVAL;
}

/* Copies the value after "Key:" at the start of a line, without surrounding blanks. */
static int field(const char *text, const char *key, char *out, size_t cap)
{
	size_t k = strlen(key), n;

	for (; text && *text; text = strchr(text, '\n'), text = text ? text + 1 : NULL) {
		if (strncmp(text, key, k) == 0) {
			text += k;
			text += strspn(text, " \t:");
			n = strcspn(text, "\n");
			while (n && isspace((unsigned char)text[n - 1])) {
				n--;
			}
			daemon_text_copy(out, cap, text, n);
			return 0;
		}
	}
	return -ENOENT;
}

static void read_nvidia(struct daemon_gpus *t, const char *path)
{
	struct daemon_gpu d = { .used = true, .pinned = true };
	char uuid[64];
	struct buf b;

	buf_init(&b);
	if (buf_read_file(&b, path, 65536) == 0 &&
	    field(buf_text(&b), "GPU UUID", uuid, sizeof(uuid)) == 0 &&
	    parse_uuid(uuid, d.uuid) == 0) {
		if (field(buf_text(&b), "Model", d.name, sizeof(d.name)) < 0) {
			snprintf(d.name, sizeof(d.name), "NVIDIA GPU");
		}
		for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
			if (!t->d[i].used) {
				t->d[i] = d;
				break;
			}
		}
	}
	buf_finish(&b);
}

/* Folder names are PCI addresses; sorted, they give the order of the driver with
 * CUDA_DEVICE_ORDER=PCI_BUS_ID. */
static unsigned find_nvidia(struct daemon_gpus *t, const char *proc)
{
	struct dirent **names;
	int n = scandir(proc, &names, NULL, alphasort);
	unsigned found = 0;

	for (int i = 0; i < n; i++) {
		char path[512];

		if (names[i]->d_name[0] != '.' &&
		    snprintf(path, sizeof(path), "%s/%s/information", proc, names[i]->d_name) <
			    (int)sizeof(path)) {
			read_nvidia(t, path);
		}
		free(names[i]);
	}
	if (n >= 0) {
		free(names);
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		found += t->d[i].used;
	}
	return found;
}

int daemon_gpus_open(struct daemon_gpus *t, const char *want, const char *proc, const char *node)
{
	bool automatic = strcmp(want, "auto") == 0;

	memset(t, 0, sizeof(*t));
	if (automatic || strcmp(want, "nvidia") == 0) {
		if (find_nvidia(t, proc) || access(node, F_OK) == 0) {
			snprintf(t->kind, sizeof(t->kind), "nvidia");
			return 0;
		}
		if (!automatic) {
			return -ENODEV;
		}
	} else if (strcmp(want, "soft") != 0) {
		return -EINVAL;
	}
	snprintf(t->kind, sizeof(t->kind), "soft");
	return 0;
}

int daemon_gpus_acquire(struct daemon_gpus *t, const uint8_t uuid[16], uid_t uid, unsigned may_name)
{
	int free_slot = -1;
	unsigned named = 0;

	for (int i = 0; i < (int)PROTO_MAX_GPUS; i++) {
		if (t->d[i].used && memcmp(t->d[i].uuid, uuid, 16) == 0) {
			t->d[i].tenants++;
			return i;
		}
		named += t->d[i].used && !t->d[i].pinned && t->d[i].named_by == uid;
		if (!t->d[i].used && free_slot < 0) {
			free_slot = i;
		}
	}
	if (free_slot < 0 || named >= may_name) {
		return -ENOSPC;
	}
	t->d[free_slot] = (struct daemon_gpu){ .used = true, .tenants = 1, .named_by = uid };
	memcpy(t->d[free_slot].uuid, uuid, 16);
	snprintf(t->d[free_slot].name, sizeof(t->d[free_slot].name), "%s",
		 strcmp(t->kind, "soft") == 0 ? "gBPF soft GPU" : "NVIDIA GPU");
	return free_slot;
}

unsigned daemon_gpus_first(const struct daemon_gpus *t)
{
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		if (t->d[i].used) {
			return i;
		}
	}
	return 0;
}

void daemon_gpus_release(struct daemon_gpus *t, unsigned gpu)
{
	if (gpu < PROTO_MAX_GPUS && t->d[gpu].tenants && --t->d[gpu].tenants == 0 &&
	    !t->d[gpu].pinned) {
		t->d[gpu] = (struct daemon_gpu){ 0 };
	}
}

void daemon_gpus_set_capable(struct daemon_gpus *t, unsigned gpu, uint32_t capable)
{
	if (gpu < PROTO_MAX_GPUS && t->d[gpu].used) {
		t->d[gpu].tried = true;
		t->d[gpu].capable |= capable;
	}
}
