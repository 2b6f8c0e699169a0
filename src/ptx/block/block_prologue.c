/* The first instructions of a clone's blocks. The text is short because every block executes it:
 * two round trips to the second-level cache (leases and the progress word together, then the
 * ticket) and one barrier. Loads bypass the first-level cache, which stores of other processors do
 * not update. The counter itself is not loaded: the load would wait for the additions of all other
 * blocks. */
#include "ptx/block/block_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ptx/block/block_run_text.h"

/* ~ is replaced by the stem. The parameter is struct ptx_block_arg; its offsets are asserted below.
 * The 16 bytes of shared memory hold: x; y and z (16 bits each, the hardware's limit); the grid's
 * x; its y and z. x == UINT32_MAX: leave; no grid is that large. Code that few blocks execute is
 * behind the body, so that the common path is contiguous. %tid.y and z are read while the loads are
 * in flight: in blocks of several lines one thread of each line loads. The ticket is drawn by
 * atom.inc, which wraps like an addition: the compiler turns atom.add into a sum over the warp's
 * threads, which takes more instructions and registers. */
static const char entry_text[] =
	".reg .pred %~p;\n"
	".reg .b32 %~a, %~b, %~c, %~d, %~e, %~n, %~t, %~v, %~at;\n"
	".reg .b32 %~x, %~y, %~z, %~gx, %~gy, %~gz;\n"
	".reg .b64 %~l, %~m;\n"
	"mov.u32 %~at, ~shared;\n"
	"mov.u32 %~t, %dynamic_smem_size;\n"
	"add.u32 %~at, %~at, %~t;\n"
	"ld.param.u32 %~gx, [~arg+40];\n"
	"ld.param.u32 %~gy, [~arg+44];\n"
	"ld.param.u32 %~gz, [~arg+48];\n"
	"mov.u32 %~a, %tid.x;\n"
	"setp.ne.u32 %~p, %~a, 0;\n"
	"@%~p bra $~wait;\n" PTX_BLOCK_LOAD_TEXT("+32768") PTX_BLOCK_LOAD_LEASES_TEXT
	"mov.u32 %~x, 4294967295;\n"
	"mov.u32 %~y, 0;\n"
	"shl.b32 %~e, %~gz, 16;\n"
	"or.b32 %~e, %~e, %~gy;\n"
	"mov.u32 %~t, %tid.y;\n"
	"mov.u32 %~z, %tid.z;\n"
	"or.b32 %~t, %~t, %~z;\n"
	"setp.ne.u32 %~p, %~t, 0;\n"
	"@%~p bra $~wait;\n" PTX_BLOCK_TEST_TEXT "$~draw:\n"
	"ld.param.u32 %~t, [~arg+24];\n"
	"sub.u32 %~v, %~v, %~t;\n"
	"setp.lt.s32 %~p, %~v, 0;\n"
	"@%~p bra $~store;\n"
	"atom.global.inc.u32 %~v, [%~l], 4294967295;\n"
	"sub.u32 %~v, %~v, %~t;\n"
	"ld.param.u32 %~n, [~arg+28];\n"
	"setp.ge.u32 %~p, %~v, %~n;\n"
	"@%~p bra $~store;\n"
	"add.u32 %~n, %~n, 4294967295;\n"
	"setp.eq.u32 %~p, %~v, %~n;\n"
	"@%~p bra $~last;\n"
	"$~drawn:\n"
	"setp.ne.u32 %~p, %~e, 65537;\n"
	"@%~p bra $~cube;\n"
	"mov.u32 %~x, %~v;\n"
	"$~leased:\n"
	"$~store:\n"
	"st.shared.v4.u32 [%~at+-16], {%~x, %~y, %~gx, %~e};\n"
	"$~wait:\n"
	"bar.sync 0;\n"
	"ld.shared.v2.u32 {%~x, %~y}, [%~at+-16];\n"
	"setp.eq.u32 %~p, %~x, 4294967295;\n"
	"@%~p ret;\n"
	"shr.u32 %~z, %~y, 16;\n"
	"and.b32 %~y, %~y, 65535;\n"
	"}\n";

/* Rare paths: leases that may be in force; the last ticket; grids with y or z. */
static const char behind_text[] =
	"ret;\n" PTX_BLOCK_LEASE_TEXT "$~last:\n"
	"add.u32 %~t, %~t, %~v;\n"
	"add.u32 %~t, %~t, 1;\n" PTX_BLOCK_PUBLISH_TEXT("+32768") "bra $~drawn;\n"
								  "$~cube:\n"
								  "div.u32 %~t, %~v, %~gx;\n"
								  "mul.lo.u32 %~x, %~t, %~gx;\n"
								  "sub.u32 %~x, %~v, %~x;\n"
								  "div.u32 %~z, %~t, %~gy;\n"
								  "mul.lo.u32 %~y, %~z, %~gy;\n"
								  "sub.u32 %~y, %~t, %~y;\n"
								  "shl.b32 %~z, %~z, 16;\n"
								  "or.b32 %~y, %~y, %~z;\n"
								  "bra $~store;\n"
								  "}\n";

/* A function reads its block index from the same bytes: nothing writes them after the barrier. */
static const char function_text[] = ".reg .b32 %~t, %~at, %~x, %~y, %~z, %~gx, %~gy, %~gz;\n"
				    "mov.u32 %~at, ~shared;\n"
				    "mov.u32 %~t, %dynamic_smem_size;\n"
				    "add.u32 %~at, %~at, %~t;\n"
				    "ld.shared.v4.u32 {%~x, %~y, %~gx, %~gy}, [%~at+-16];\n"
				    "shr.u32 %~z, %~y, 16;\n"
				    "and.b32 %~y, %~y, 65535;\n"
				    "shr.u32 %~gz, %~gy, 16;\n"
				    "and.b32 %~gy, %~gy, 65535;\n"
				    "}\n";

_Static_assert(sizeof(struct ptx_block_arg) == 56 && offsetof(struct ptx_block_arg, total) == 28 &&
		       offsetof(struct ptx_block_arg, grid_x) == 40,
	       "the text above says so");

static void forget_lines(struct ptx_list *list)
{
	ptx_each (list, it) {
		it->line = 0;
		if (it->kind == PTX_SCOPE) {
			forget_lines(&((struct ptx_scope *)it)->body);
		}
	}
}

/* body ends with the closing brace. */
static int parse(struct ptx_block_work *p, const char *body, size_t len, struct ptx_list *ret)
{
	int err = ptx_body_parse(p->m, body, len, "block", ret, p->report);

	forget_lines(ret);
	return err;
}

void ptx_block_expand(struct buf *out, const char *source, const char *stem)
{
	for (const char *at = source; *at;) {
		size_t n = strcspn(at, "~");

		buf_add(out, at, n);
		at += n;
		if (*at) {
			buf_puts(out, stem);
			at++;
		}
	}
}

static int add(struct ptx_block_work *p, const char *source, struct ptx_list *ret)
{
	struct buf text;
	int err;

	buf_init(&text);
	ptx_block_expand(&text, source, p->stem);
	err = text.failed ? -ENOMEM : parse(p, text.data, text.len, ret);
	buf_finish(&text);
	return err;
}

int ptx_block_prologue(struct ptx_block_work *p, bool is_entry, struct ptx_list *ret)
{
	return add(p, is_entry ? entry_text : function_text, ret);
}

int ptx_block_behind(struct ptx_block_work *p, struct ptx_list *ret)
{
	return add(p, behind_text, ret);
}

const char *ptx_block_text(struct ptx_block_work *p, const char *fmt, ...)
{
	struct buf text;
	const char *ret = NULL;
	va_list ap;

	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (!text.failed) {
		ret = ptx_arena_text(&p->m->arena, buf_text(&text), text.len);
	}
	buf_finish(&text);
	return ret;
}

const char *ptx_block_value(struct ptx_block_work *p, enum ptx_block_sreg what)
{
	static const char *const names[] = {
		[PTX_BLOCK_SREG_CTAID_X] = "x",	  [PTX_BLOCK_SREG_CTAID_Y] = "y",
		[PTX_BLOCK_SREG_CTAID_Z] = "z",	  [PTX_BLOCK_SREG_NCTAID_X] = "gx",
		[PTX_BLOCK_SREG_NCTAID_Y] = "gy", [PTX_BLOCK_SREG_NCTAID_Z] = "gz",
	};

	return ptx_block_text(p, "%%%s%s", p->stem, names[what]);
}

/* Declares a dynamic shared array: all such arrays begin at the same address, whatever their names.
 */
int ptx_block_declare_shared(struct ptx_block_work *p)
{
	struct ptx_variable *v = ptx_arena_alloc(&p->m->arena, sizeof(*v));
	struct ptx_item *first = p->m->items.first;

	if (!v) {
		return -ENOMEM;
	}
	v->item.kind = PTX_VARIABLE;
	v->space = PTX_SHARED;
	v->linkage = ".extern";
	v->attributes = "";
	v->align = 16;
	v->type = ".b8";
	v->name = ptx_block_text(p, "%sshared", p->stem);
	v->open_array = true;
	v->n_dims = 1;
	if (!v->name) {
		return -ENOMEM;
	}
	while (first && first->kind != PTX_FUNCTION) {
		first = first->next;
	}
	ptx_list_insert(&p->m->items, first ? first->prev : p->m->items.last, &v->item);
	return 0;
}
