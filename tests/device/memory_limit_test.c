/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the memory a run can use is that of the machine, lowered by the
 * limits of control groups.
 */
#include "tests/growth.h"
#include "tests/scratch.h"

#include <sys/stat.h>

#include <xray/device.h>

#include "plugins/device-cpu/device.h"
#include "plugins/device-cpu/instance.h"

#define MACHINE 1000000u

static uint64_t read_limit(const char *groups)
{
    char file[300];
    (void)snprintf(file, sizeof file, "%s", scratch_write("groups", groups));
    return cpu_memory_limit(file, scratch_dir(), MACHINE);
}

static void make_folder(const char *name)
{
    assert_true(mkdir(scratch_path(name), 0700) == 0 ||
                xr_path_exists(scratch_path(name)));
}

static void the_lowest_limit_of_version_2_counts(void **state)
{
    (void)state;
    make_folder("a");
    make_folder("a/b");
    (void)scratch_write("memory.max", "max\n");
    (void)scratch_write("a/memory.max", "400000\n");
    (void)scratch_write("a/b/memory.max", "max\n");
    assert_int_equal(read_limit("0::/a/b\n"), 400000);
    assert_int_equal(read_limit("0::/\n"), MACHINE);
    (void)scratch_write("a/b/memory.max", "300000\n");
    assert_int_equal(read_limit("0::/a/b\n"), 300000);
    /* In a path of another root, the root that the process sees counts. */
    (void)scratch_write("memory.max", "200000\n");
    assert_int_equal(read_limit("0::/elsewhere/deep\n"), 200000);
    (void)unlink(scratch_path("memory.max"));
}

static void the_memory_controller_of_version_1_counts(void **state)
{
    (void)state;
    make_folder("memory");
    make_folder("memory/job");
    (void)scratch_write("memory/memory.limit_in_bytes",
                        "9223372036854771712\n");
    (void)scratch_write("memory/job/memory.limit_in_bytes", "500000\n");
    assert_int_equal(read_limit("5:cpu:/\n4:memory:/job\n"), 500000);
    assert_int_equal(read_limit("4:hugetlb,memory:/job\n0::/\n"), 500000);
    assert_int_equal(read_limit("4:memories:/job\n"), MACHINE);
    assert_int_equal(read_limit("4:mem:/job\n3:cpu,m:/job\n"), MACHINE);
    assert_int_equal(read_limit("4::/job\n"), MACHINE);
    assert_int_equal(read_limit("4:name=memory:/job\n"), MACHINE);
}

static void nothing_is_limited_without_groups(void **state)
{
    (void)state;
    assert_int_equal(cpu_memory_limit("/no/such/file", "/", MACHINE), MACHINE);
    assert_int_equal(read_limit("no line of it\n"), MACHINE);
}

static void plans_use_the_option_or_the_machine(void **state)
{
    (void)state;
    cpu_config config = { .isa = CPU_ISA_SCALAR };
    xray_device_plan out = { .header = XRAY_HEADER(xray_device_plan) };
    assert_int_equal(cpu_plan(NULL, &config, &out), XRAY_OK);
    assert_true(out.memory_bytes > 0);
    assert_true(out.memory_bytes <= cpu_memory_bytes());
    assert_int_equal(out.host_memory, 1);
    config.memory = 12345;
    assert_int_equal(cpu_plan(NULL, &config, &out), XRAY_OK);
    assert_int_equal(out.memory_bytes, 12345);
    EXPECT_FILLED_IN_REACH(xray_device_plan, out, host_memory,
                           cpu_plan(NULL, &config, &out));
    assert_int_equal(out.memory_bytes, 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_limit_of_version_2_counts),
        cmocka_unit_test(the_memory_controller_of_version_1_counts),
        cmocka_unit_test(nothing_is_limited_without_groups),
        cmocka_unit_test(plans_use_the_option_or_the_machine),
    };
    return cmocka_run_group_tests_name("device.memory_limit", tests,
                                       scratch_make, scratch_drop);
}
