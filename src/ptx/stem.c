/* Names that a pass adds; see stem.h. */
#include "ptx/stem.h"

#include <string.h>

#include "base/compiler.h"

/* Returns the number after the word in a name such as %gbpf12_x, plus 1; 0 for other names. */
static uint32_t behind(const char *name, const char *word)
{
	uint32_t n = 0;

	name += *name == '%' || *name == '$';
	if (strncmp(name, word, strlen(word)) != 0) {
		return 0;
	}
	for (name += strlen(word); *name >= '0' && *name <= '9'; name++) {
		n = n > PTX_STEM_MAX ? n : n * 10 + (uint32_t)(*name - '0');
	}
	return n + 1;
}

static uint32_t of_variables(const struct ptx_variable *v, uint32_t n, const char *word)
{
	uint32_t ret = 0;

	for (uint32_t i = 0; i < n; i++) {
		ret = MAX(ret, behind(v[i].name, word));
	}
	return ret;
}

/* Recursion is bounded by the parser's limit on scopes. */
uint32_t ptx_stem_number(const struct ptx_list *list, const char *word)
{
	uint32_t n = 0;

	ptx_each (list, it) {
		uint32_t own = 0;

		if (it->kind == PTX_VARIABLE) {
			own = behind(((const struct ptx_variable *)it)->name, word);
		} else if (it->kind == PTX_LABEL) {
			own = behind(((const struct ptx_label *)it)->name, word);
		} else if (it->kind == PTX_SCOPE) {
			own = ptx_stem_number(&((const struct ptx_scope *)it)->body, word);
		} else if (it->kind == PTX_FUNCTION) {
			const struct ptx_function *f = (const struct ptx_function *)it;

			own = MAX(behind(f->name, word), ptx_stem_number(&f->body, word));
			own = MAX(own, of_variables(f->params, f->n_params, word));
			own = MAX(own, of_variables(f->returns, f->n_returns, word));
		}
		n = MAX(n, own);
	}
	return n;
}
