/* A table of counts by the number of the launch, on the GPU. */
#include <gbpf/gbpf.bpf.h>

#define BY_LAUNCH(name)                                                                            \
	struct {                                                                                   \
		__uint(type, GBPF_MAP_HASH);                                                       \
		__uint(map_flags, GBPF_F_DEVICE);                                                  \
		__uint(max_entries, 2048);                                                         \
		__type(key, u64);                                                                  \
		__type(value, u64);                                                                \
	} name SEC(".maps")
