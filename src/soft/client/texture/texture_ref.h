/* Texture and surface references: variables .texref and .surfref of a module, which programs bind
 * to resources by the driver's older calls. */
#ifndef GBPF_SOFT_CLIENT_TEXTURE_TEXTURE_REF_H
#define GBPF_SOFT_CLIENT_TEXTURE_TEXTURE_REF_H

#include "soft/client/process.h"

struct CUtexref_st {
	struct soft_object object;
	CUtexref next;	   /* of the same module */
	CUmodule module;   /* NULL: made by cuTexRefCreate */
	char *name;	   /* owned */
	uint64_t variable; /* address; it holds the handle of the object that is bound */
	uint64_t handle;
	bool surface, bound;
	bool dirty; /* changed since the handle was made */
	CUarray_format format;
	int channels;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture;
};

struct CUsurfref_st {
	struct CUtexref_st ref;
};

/* Finds or makes the reference of a variable of the module; surface: a .surfref. */
CUresult soft_reference_get(CUmodule m, const char *name, uint64_t variable, bool surface,
			    CUtexref *ret);
/* Before a launch in s: gives the variables of the module the objects that are bound now. Launches
 * of other streams that run at this time see them, too. */
CUresult soft_reference_bind(CUmodule m, CUstream s);
/* When the module is unloaded. */
void soft_reference_drop_module(CUmodule m) REQUIRES(soft.lock);

#endif
