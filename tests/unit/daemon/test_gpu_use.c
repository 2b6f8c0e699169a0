/* What NVML is asked about the processes on a GPU, and what its answers mean. */
#include "nvml_rig.h"

#define UUID "GPU-01010101-0101-0101-0101-010101010101"

static void measure(void)
{
	snprintf(use.library, sizeof(use.library), "%s/soft/libnvidia-ml.so.1", dir);
	daemon_gpu_use_measure(&use.job);
}

static void without_nvml_nothing_is_measured(void **state)
{
	snprintf(use.library, sizeof(use.library), "%s/nothing.so", dir);
	snprintf(use.gpu[0].uuid, sizeof(use.gpu[0].uuid), UUID);
	daemon_gpu_use_measure(&use.job);
	assert_false(use.gpu[0].measured);
	nvml->init = 1; /* no driver yet */
	measure();
	assert_false(use.gpu[0].measured);
	assert_int_equal(nvml->inits, 1);
	nvml->init = 0;
	measure();
	assert_true(use.gpu[0].measured);
	assert_int_equal(nvml->inits, 2);
	measure();
	assert_int_equal(nvml->inits, 2); /* once is enough */
	assert_string_equal(nvml->uuid, UUID);
}

static bool has_worked(int pid)
{
	const struct daemon_gpu_use_process *p = daemon_gpu_use_find(&use.gpu[2], pid);

	return p && p->has_worked;
}

static void processes_that_have_worked_are_told_from_others(void **state)
{
	reset();
	snprintf(use.gpu[2].uuid, sizeof(use.gpu[2].uuid), UUID);
	nvml->n_processes = 4;
	for (unsigned i = 0; i < 4; i++) {
		nvml->process[i] = 100 + i;
	}
	nvml->n_samples = 4;
	nvml->sample[0] = (struct fake_nvml_sample){ .pid = 100, .at_us = 50, .sm = 1 };
	nvml->sample[1] = (struct fake_nvml_sample){ .pid = 101, .at_us = 70, .memory = 1 };
	nvml->sample[2] = (struct fake_nvml_sample){ .pid = 102, .at_us = 60, .encoder = 9 };
	nvml->sample[3] = (struct fake_nvml_sample){ .pid = 999, .at_us = 10, .sm = 9 };
	measure();
	assert_int_equal(nvml->measures, 1); /* the only GPU that is named */
	assert_int_equal(nvml->after_us, 0);
	assert_int_equal(use.gpu[2].n, 4);
	assert_true(has_worked(100) && has_worked(101));
	assert_false(has_worked(102) || has_worked(103));
	assert_null(daemon_gpu_use_find(&use.gpu[2], 999));
	assert_null(daemon_gpu_use_find(&use.gpu[2], 0));
	measure();
	assert_int_equal(nvml->after_us, 70); /* samples that were read before do not count again */
	nvml->n_samples = 0;
	measure();
	assert_int_equal(nvml->after_us, 70);
	assert_false(has_worked(100));
}

static void failures_of_nvml(void **state)
{
	reset();
	snprintf(use.gpu[2].uuid, sizeof(use.gpu[2].uuid), UUID);
	nvml->n_processes = 1;
	nvml->process[0] = 100;
	nvml->sample[0] = (struct fake_nvml_sample){ .pid = 100, .at_us = 1000, .sm = 1 };
	nvml->n_samples = 1;
	nvml->by_uuid = 6;
	measure();
	assert_false(use.gpu[2].measured);
	nvml->by_uuid = 0;
	nvml->processes = 1;
	measure();
	assert_false(use.gpu[2].measured);
	nvml->processes = 0;
	nvml->n_processes = 257; /* more than are looked at */
	measure();
	assert_false(use.gpu[2].measured);
	nvml->n_processes = 256;
	nvml->process[255] = 300;
	measure();
	assert_true(use.gpu[2].measured);
	assert_int_equal(use.gpu[2].n, 256);
	assert_non_null(daemon_gpu_use_find(&use.gpu[2], 300));
	nvml->n_processes = 1;
	nvml->samples = 6; /* no sample since then */
	measure();
	assert_true(use.gpu[2].measured);
	assert_false(has_worked(100));
	nvml->samples = 3; /* not supported: all count as working */
	measure();
	assert_true(has_worked(100));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_nvml_nothing_is_measured),
		cmocka_unit_test(processes_that_have_worked_are_told_from_others),
		cmocka_unit_test(failures_of_nvml),
	};

	return cmocka_run_group_tests(tests, make_library, remove_library);
}
