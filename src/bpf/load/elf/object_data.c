/* Creates a map for each data section, and checks the types that values contain: locks are
 * recorded, and structs that only Linux defines are refused. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

#define MAX_WALK 20000u /* members visited in one value type */
#define MAX_DEPTH 16u

static const char *const foreign[] = { "bpf_timer",	"bpf_wq",      "bpf_list_head",
				       "bpf_list_node", "bpf_rb_root", "bpf_rb_node",
				       "bpf_refcount",	"bpf_dynptr",  "bpf_res_spin_lock",
				       "bpf_task_work" };

/* State of the walk over the members of a value type. */
struct walk {
	struct ebpf_obj_parse *p;
	const struct ebpf_map_def *d;
	uint32_t left;
	uint32_t locks;
	uint32_t lock_1;
};

static int refuse_value(const struct walk *w, int err, const char *what, const char *name)
{
	struct ebpf_obj_parse *p = w->p;

	report_place(p->r, "%s map %s", p->o->name, w->d->name);
	return report_set(p->r, err, "elf", "%s%s", what, name);
}

static int special(struct walk *w, const char *name, uint32_t offset, unsigned depth)
{
	for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
		if (strcmp(name, foreign[i]) == 0) {
			return refuse_value(w, -EINVAL, "its values cannot have a struct ", name);
		}
	}
	if (strcmp(name, "bpf_spin_lock") != 0) {
		return 0;
	}
	if (depth != 1) {
		return refuse_value(w, -EINVAL,
				    "a lock is a member of a map's value, no variable, not the "
				    "whole value and not inside of another member: struct ",
				    name);
	}
	if (++w->locks > 1) {
		return refuse_value(w, -EINVAL, "its value has more than one struct ", name);
	}
	w->lock_1 = offset + 1;
	return 0;
}

static int walk_type(struct walk *w, uint32_t id, uint32_t offset, unsigned depth);

static int walk_members(struct walk *w, const struct btf_type *t, uint32_t offset, unsigned depth)
{
	for (uint32_t i = 0; i < btf_vlen(t); i++) {
		/* In a union, another member could overwrite the lock. */
		unsigned below = btf_is_union(t) ? MAX(depth + 1, 2u) : depth + 1;
		int err = walk_type(w, btf_members(t)[i].type,
				    offset + btf_member_bit_offset(t, i) / 8, below);

		if (err) {
			return err;
		}
	}
	return 0;
}

static int walk_type(struct walk *w, uint32_t id, uint32_t offset, unsigned depth)
{
	const struct btf_type *t = ebpf_obj_btf_resolve(w->p, id);
	int err;

	if (w->left == 0 || depth > MAX_DEPTH) {
		return refuse_value(w, -E2BIG, "the type of its values is too complicated", "");
	}
	w->left--;
	if (t && btf_is_array(t)) {
		return walk_type(w, btf_array(t)->type, offset, MAX(depth + 1, 2u));
	}
	if (!t || !btf_is_composite(t)) {
		return 0;
	}
	err = special(w, ebpf_obj_btf_name(w->p, t->name_off), offset, depth);
	return err ? err : walk_members(w, t, offset, depth);
}

/* Returns whether the object declares any type that needs the walk; most objects do not. */
static int has_special(const struct ebpf_obj_parse *p)
{
	for (uint32_t id = 1; id < p->n_types; id++) {
		const struct btf_type *t = btf__type_by_id(p->btf, id);
		const char *name = t && btf_is_struct(t) ? ebpf_obj_btf_name(p, t->name_off) : "";

		if (strncmp(name, "bpf_", 4) != 0) {
			continue;
		}
		for (size_t i = 0; i < ARRAY_SIZE(foreign); i++) {
			if (strcmp(name, foreign[i]) == 0) {
				return 1;
			}
		}
		if (strcmp(name, "bpf_spin_lock") == 0) {
			return 1;
		}
	}
	return 0;
}

int ebpf_obj_find_lock(struct ebpf_obj_parse *p, const struct ebpf_map_def *d, uint32_t type,
		       uint32_t *ret_lock_1)
{
	struct walk w = { .p = p, .d = d, .left = MAX_WALK };
	int err;

	*ret_lock_1 = 0;
	if (!type) {
		return 0;
	}
	if (!p->special) {
		p->special = has_special(p) ? 1 : -1;
	}
	err = p->special > 0 ? walk_type(&w, type, 0, 0) : 0;
	if (err || !w.lock_1) {
		return err;
	}
	if (!(d->flags & GBPF_F_DAEMON)) {
		report_hint(p->r,
			    "__uint(map_flags, GBPF_F_DAEMON): programs in tenants' processes "
			    "take no locks");
		return refuse_value(&w, -EINVAL,
				    "locks are for maps that gbpfd alone uses: struct ",
				    "bpf_spin_lock");
	}
	if (!ebpf_map_type_has(d->type, EBPF_MAP_IN_PLACE)) {
		return refuse_value(&w, -EINVAL, "locks are for arrays and hash tables: struct ",
				    "bpf_spin_lock");
	}
	*ret_lock_1 = w.lock_1;
	return 0;
}

static uint32_t data_flags(const char *name)
{
	if (strncmp(name, ".rodata", 7) == 0) {
		return GBPF_F_RDONLY;
	}
	if (strcmp(name, ".data.tenant") == 0 || strcmp(name, ".bss.tenant") == 0) {
		return GBPF_F_TENANT;
	}
	if (strcmp(name, ".data.device") == 0 || strcmp(name, ".bss.device") == 0) {
		return GBPF_F_DEVICE;
	}
	return 0;
}

/* Returns the name of the variable at an offset, for messages. */
static const char *variable_at(const struct ebpf_obj_parse *p, uint32_t section, uint64_t offset)
{
	for (uint32_t i = 0; i < p->n_vars; i++) {
		const Elf64_Sym *sym = &p->syms[p->vars[i]];

		if (sym->st_shndx == section && offset >= sym->st_value &&
		    offset - sym->st_value < sym->st_size) {
			return ebpf_obj_symbol_name(p, sym);
		}
	}
	return "a constant";
}

static int refuse_pointers(struct ebpf_obj_parse *p, uint32_t section)
{
	const struct ebpf_obj_section *s = &p->secs[section];
	const Elf64_Sym *to = &p->syms[ELF64_R_SYM(s->rels[0].r_info)];
	const char *what = ebpf_obj_symbol_defined(to) && p->secs[to->st_shndx].role == OBJ_CODE
				   ? "function pointers"
				   : "initialized pointers";

	report_hint(p->r, "use an index, a switch, or a GBPF_MAP_PROG_ARRAY for programs");
	return ebpf_obj_refuse(p, -EINVAL, s->name, s->rels[0].r_offset,
			       "%s in data are not supported (%s)", what,
			       variable_at(p, section, s->rels[0].r_offset));
}

/* Refuses variables of types that are valid only in map values. */
static int check_variables(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s,
			   const struct ebpf_map_def *d)
{
	const struct btf_type *t = s->datasec ? btf__type_by_id(p->btf, s->datasec) : NULL;
	struct walk w = { .p = p, .d = d, .left = MAX_WALK };
	int err = 0;

	if (!p->special) {
		p->special = has_special(p) ? 1 : -1;
	}
	for (uint32_t i = 0; p->special > 0 && err == 0 && t && i < btf_vlen(t); i++) {
		const struct btf_type *var = btf__type_by_id(p->btf, btf_var_secinfos(t)[i].type);

		err = var && btf_is_var(var) ? walk_type(&w, var->type, 0, 2) : 0;
	}
	return err;
}

static int data_map(struct ebpf_obj_parse *p, uint32_t section)
{
	struct ebpf_obj_section *s = &p->secs[section];
	struct ebpf_map_def *d;
	int err = 0;

	if (s->n_rels) {
		return refuse_pointers(p, section);
	}
	d = ebpf_obj_new_map(p, s->name, &err);
	if (!d) {
		return err;
	}
	d->type = GBPF_MAP_ARRAY;
	d->key_bytes = 4;
	d->value_bytes = s->size > UINT32_MAX ? UINT32_MAX : (uint32_t)s->size;
	d->max_entries = 1;
	d->flags = data_flags(s->name);
	d->is_data = 1;
	err = ebpf_obj_check_map(p, d);
	err = err ? err : check_variables(p, s, d);
	if (err) {
		return err;
	}
	p->o->value_type[p->o->n_maps] = s->datasec;
	p->o->init[p->o->n_maps] = calloc(1, s->size);
	if (!p->o->init[p->o->n_maps]) {
		return -ENOMEM;
	}
	if (s->data) {
		memcpy(p->o->init[p->o->n_maps], s->data, s->size);
	}
	s->map = (int)p->o->n_maps++;
	return 0;
}

int ebpf_obj_read_data(struct ebpf_obj_parse *p)
{
	int err = 0;

	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		err = p->secs[i].role == OBJ_DATA ? data_map(p, i) : 0;
	}
	return err;
}
