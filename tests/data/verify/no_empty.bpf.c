/* refuse: no program for any hook */
#include "gbpf/gbpf.bpf.h"

u64 x;

GBPF_LICENSE("GPL");
