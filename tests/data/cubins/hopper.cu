// Forms of sm_90 and later: clusters, programmatic dependent launch, changes of register counts.
extern "C" {
__global__ void __cluster_dims__(2, 1, 1) cluster(int *p)
{
	unsigned rank;

	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
	p[threadIdx.x] = rank;
}

__global__ void __launch_bounds__(256, 1, 4) cluster_limit(int *p)
{
	asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
	p[threadIdx.x] = 1;
}

__global__ void waits_for_launch(int *p)
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
	p[threadIdx.x] = 1;
}

__global__ void triggers_launch(int *p)
{
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
	p[threadIdx.x] = 1;
}

#ifdef REGISTERS
__global__ void __launch_bounds__(384, 1) sets_registers(int *p)
{
	if (threadIdx.x < 128) {
		asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
		p[threadIdx.x] = 1;
	} else {
		asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
		p[threadIdx.x] = p[threadIdx.x] * 3;
	}
}
#endif
}
