/* What the NVML of these tests answers. */
#ifndef GBPF_TESTS_DAEMON_FAKE_NVML_H
#define GBPF_TESTS_DAEMON_FAKE_NVML_H

struct fake_nvml {
	int init, by_uuid, processes, samples; /* results of the functions; 0: success */
	unsigned n_processes, n_samples;
	unsigned process[300]; /* process ids that have a context */
	struct fake_nvml_sample {
		unsigned pid;
		unsigned long long at_us;
		unsigned sm, memory, encoder, decoder;
	} sample[8];
	/* how it was called */
	unsigned inits, measures;
	unsigned long long after_us;
	char uuid[48];
};

/* The library's variable. */
extern struct fake_nvml fake_nvml;

#endif
