/* The NUMA node of a device: what the driver says of it, or its place on the PCI bus. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "gpu/copy_device.h"
#include "../put_file.h"

#define DEVICE 5

static char sysfs[64];
static int host_node;	 /* what the driver says; -2: it does not know the attribute */
static bool has_address; /* the driver knows the device's place */

static CUresult get_attribute(int *ret, CUdevice_attribute what, CUdevice device)
{
	assert_int_equal(device, DEVICE);
	switch (what) {
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*ret = host_node == -2 ? 0 : host_node;
		return host_node == -2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*ret = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*ret = 0x9b;
		return has_address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
		*ret = 0;
		return CUDA_SUCCESS;
	default:
		fail_msg("attribute %d", (int)what);
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static const struct cuabi_table driver = { .cuDeviceGetAttribute = get_attribute };

static int node(void)
{
	return gpu_copy_numa(&driver, DEVICE, sysfs).node;
}

/* Nodes 1 and 2 have all CPUs; the device's place is next to node 2. */
static int make_sysfs(void **state)
{
	(void)state;
	snprintf(sysfs, sizeof(sysfs), "/tmp/gbpf-numa-XXXXXX");
	if (!mkdtemp(sysfs)) {
		return -1;
	}
	put_file(sysfs, "devices/system/node/online", "0-2\n");
	put_file(sysfs, "devices/system/node/node1/cpulist", "0-1023\n");
	put_file(sysfs, "devices/system/node/node2/cpulist", "0-1023\n");
	put_file(sysfs, "bus/pci/devices/0000:9b:00.0/numa_node", "2\n");
	has_address = true;
	return 0;
}

static int remove_sysfs(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", sysfs);
	return system(command);
}

static void the_driver_names_the_node(void **state)
{
	(void)state;
	host_node = 1;
	assert_int_equal(node(), 1);
	host_node = 7; /* there is none */
	assert_int_equal(node(), -1);
}

static void the_place_on_the_bus_counts_where_the_driver_does_not_know(void **state)
{
	(void)state;
	for (host_node = -2; host_node < 0; host_node++) {
		assert_int_equal(node(), 2);
	}
	host_node = -2;
	has_address = false;
	assert_int_equal(node(), -1);
	has_address = true;
	put_file(sysfs, "bus/pci/devices/0000:9b:00.0/numa_node", "-1\n");
	assert_int_equal(node(), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_driver_names_the_node, make_sysfs,
						remove_sysfs),
		cmocka_unit_test_setup_teardown(
			the_place_on_the_bus_counts_where_the_driver_does_not_know, make_sysfs,
			remove_sysfs),
	};

	return cmocka_run_group_tests_name("gpu-copy-numa", tests, NULL, NULL);
}
