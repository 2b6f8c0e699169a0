/* Every gBPF type that a policy can refer to. Compiled when gBPF is built for its .BTF section,
 * which becomes part of the loader. Nothing here is executed. */
#include "gbpf/gbpf.bpf.h"

struct gbpf_types {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX_BEGIN(hook) struct gbpf_##hook##_ctx hook;
#include "gbpf/hooks.def"
#define GBPF_OPS_BEGIN(table) struct table table;
#include "gbpf/hooks.def"
	struct gbpf_ops gbpf_ops;
	struct gbpf_tenant_credits tenant_credits;
	struct gbpf_job_meta job_meta;
	struct gbpf_vslice_set vslice_set;
	struct gbpf_mempool mempool;
	struct gbpf_io_budgets io_budgets;
	struct gbpf_placement placement;
	struct gbpf_obs_ctrl obs_ctrl;
	struct gbpf_kernel_place kernel_place;
	struct bpf_spin_lock lock;
	struct bpf_iter_num iter_num;
	enum gbpf_const constant;
	enum gbpf_map_type map_type;
	enum gbpf_hook_id hook_id;
	enum gbpf_helper_id helper_id;
	u8 u8_;
	u16 u16_;
	s8 s8_;
	s16 s16_;
	s64 s64_;
};

struct gbpf_types gbpf_types;

/* The loader compares declarations of the same name with these. */
GBPF_STANDARD_MAP(TENANT_CREDITS);
GBPF_STANDARD_MAP(JOB_META);
GBPF_STANDARD_MAP(VSLICE_SET);
GBPF_STANDARD_MAP(MEMPOOL);
GBPF_STANDARD_MAP(IO_BUDGETS);
GBPF_STANDARD_MAP(PLACEMENT);
GBPF_STANDARD_MAP(OBS_CTRL);
GBPF_KERNEL_PLACES(2); /* and any larger number */
