/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves runtime-ray against a cluster of two nodes with two cores each, which
 * cluster.sh starts: where places are, what comes back of processes, that
 * nothing outlives a run, and what is said when the cluster cannot give or
 * loses something. Arguments: the interpreter, the head's address, the process
 * of the second node, and a scratch folder.
 */
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "core/base/process.h"
#include "tests/ray/launcher_rig.h"

static const char *python;
static const char *address;
static pid_t third_node;
static const char *scratch;

static void pause_ms(long ms)
{
    const struct timespec pause = { .tv_sec = ms / 1000,
                                    .tv_nsec = ms % 1000 * 1000000 };
    (void)nanosleep(&pause, NULL);
}

static void open_rig(launcher_rig *rig, uint32_t count)
{
    rig_prepare(rig, count, python, address);
    rig_create(rig);
}

/* The number of a process that says it, by the next event. */
static pid_t read_pid(launcher_rig *rig, uint32_t index)
{
    rig_wait(rig);
    assert_int_equal(rig->event.index, index);
    assert_int_equal(rig->event.kind, XRAY_LAUNCH_SAYS);
    return (pid_t)strtol(rig->event.text, NULL, 10);
}

/* Its parent may not have reaped it yet. */
static int is_gone(pid_t pid)
{
    char state = xr_process_state((uint32_t)pid);
    return !state || state == 'Z';
}

static void expect_gone(pid_t pid)
{
    for (int i = 0; i < 600 && !is_gone(pid); i++)
        pause_ms(100);
    assert_true(is_gone(pid));
}

/* Kills the actor, which is the parent of the process that it started. */
static void kill_parent(pid_t pid)
{
    char path[64];
    char text[512];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    (void)fclose(file);
    const char *after = strrchr(text, ')');
    assert_non_null(after);
    pid_t parent = (pid_t)strtol(after + 4, NULL, 10); /* ") S 17" */
    assert_true(parent > 1);
    assert_int_equal(kill(parent, SIGKILL), 0);
}

/* ---- processes ---------------------------------------------------------- */

static void test_processes(void **state)
{
    launcher_rig rig;
    (void)state;
    open_rig(&rig, 2);
    assert_true(strlen(ray_ops.host_of(rig.self, 0)) > 0);
    assert_string_equal(ray_ops.host_of(rig.self, 0),
                        ray_ops.host_of(rig.self, 1));
    rig_start(&rig, 1, "read token; echo \"$token from $PWD\" >&2; exit 0");
    rig_expect(&rig, 1, "a secret from /\n", "exited with status 0");
    rig_start(&rig, 1, "echo again; exit 3");
    rig_expect(&rig, 1, "again\n", "exited with status 3");
    rig_start(&rig, 1, "kill -SEGV $$");
    rig_expect(&rig, 1, "", "was killed by signal 11 (Segmentation fault)");
    /* A process's own children end with it. */
    rig_start(&rig, 1, "sleep 1000 & echo $! >&2; exit 1");
    pid_t left = read_pid(&rig, 1);
    rig_expect(&rig, 1, "", "exited with status 1");
    expect_gone(left);

    rig_start(&rig, 1, "echo $$ >&2; exec sleep 1000");
    pid_t pid = read_pid(&rig, 1);
    ray_ops.stop(rig.self, 1);
    expect_gone(pid);
    rig_start(&rig, 1, "echo $$ >&2; exec sleep 1000");
    pid = read_pid(&rig, 1);
    kill_parent(pid);
    rig_expect(&rig, 1, "", "is gone: its launcher, an actor of Ray on node ");
    expect_gone(pid);
    rig_start(&rig, 1, "exit 0"); /* by another actor */
    rig_expect(&rig, 1, "", "exited with status 0");

    /* Not even a process that is stopped outlives the run. */
    rig_start(&rig, 0, "echo $$ >&2; kill -STOP $$");
    pid = read_pid(&rig, 0);
    rig_close(&rig);
    expect_gone(pid);
}

/* ---- what the cluster has ----------------------------------------------- */

static void test_refusals(void **state)
{
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 4, python, address);
    rig.places[0].threads = 3;
    rig_expect_refused(&rig, XRAY_E_CONFIG,
                       "Ray cannot place the run: no node has 3 CPU; the "
                       "cluster has 2 nodes with 4 CPU");
    rig_prepare(&rig, 4, python, address);
    rig.config.placement = RAY_STRICT_PACK;
    rig_expect_refused(&rig, XRAY_E_CONFIG,
                       "no node has 4 CPU, which strict_pack needs");
    rig_prepare(&rig, 3, python, address);
    for (int i = 0; i < 3; i++)
        rig.places[i].threads = 2;
    rig_expect_refused(&rig, XRAY_E_CONFIG,
                       "3 places with 2 CPU are needed, and there is room for "
                       "2; the cluster has 2 nodes with 4 CPU");
    rig_prepare(&rig, 1, python, address);
    rig.places[0].devices = 2;
    rig_expect_refused(&rig, XRAY_E_CONFIG, "no node has 1 CPU + 2 GPU");
    rig_prepare(&rig, 1, python, address);
    const char *const items[] = { "lots:1" };
    rig.config.resources = (xray_list){ items, 1 };
    rig_expect_refused(&rig, XRAY_E_CONFIG, "no node has 1 CPU + 1 lots");
}

static void test_gpu(void **state)
{
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 2, python, address);
    rig.config.placement = RAY_SPREAD;
    rig.places[0].devices = rig.places[1].devices = 1;
    rig_create(&rig);
    rig_start(&rig, 1, "echo $CUDA_VISIBLE_DEVICES >&2");
    rig_expect(&rig, 1, "0\n", "exited with status 0");
    rig_close(&rig);
}

/* A second run waits until the first has given its places back. */
static void test_waits(void **state)
{
    launcher_rig first;
    launcher_rig second;
    (void)state;
    open_rig(&first, 4);
    rig_prepare(&second, 4, python, address);
    char line[256];
    (void)snprintf(line, sizeof(line),
                   "waiting for Ray: 4 places with 1 CPU (pack); free are 0 "
                   "CPU of 4 CPU");
    second.stop_on = line;
    rig_expect_refused(&second, XRAY_E_CANCELED, "create: ");
    rig_close(&first);
    rig_prepare(&second, 4, python, address);
    rig_create(&second);
    rig_close(&second);
}

/* ---- xray check --------------------------------------------------------- */

static void test_check(void **state)
{
    launcher_rig rig;
    char path[512];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/program", scratch);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("#!/bin/sh\necho build 1\n", file);
    assert_int_equal(fchmod(fileno(file), 0700), 0);
    (void)fclose(file);
    rig_prepare(&rig, 4, python, address);
    rig.setup.program = path;
    if (ray_ops.check(&rig.setup, &rig.config) != XRAY_OK)
        fail_msg("%s", rig.host.reason);
    /* All that is missing is in one message. */
    rig.setup.build = "build 2";
    rig.setup.path_count = 2;
    rig.paths[1] = "/no/such/folder";
    rig.places[3].threads = 9;
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_E_CONFIG);
    assert_non_null(strstr(rig.host.reason, "no node has 9 CPU"));
    assert_non_null(strstr(rig.host.reason, "has another build of "));
    assert_non_null(
        strstr(rig.host.reason, "program: build 1, while this one is build 2"));
    assert_non_null(strstr(rig.host.reason, " does not see /no/such/folder"));
}

/* ---- a node that dies -----------------------------------------------------
 */

static void test_node(void **state)
{
    launcher_rig rig;
    const char *const items[] = { "third:1" };
    (void)state;
    rig_prepare(&rig, 1, python, address);
    rig.config.resources = (xray_list){ items, 1 };
    rig_create(&rig);
    rig_start(&rig, 0, "echo $$ >&2; exec sleep 1000");
    pid_t pid = read_pid(&rig, 0);
    assert_int_equal(kill(third_node, SIGKILL), 0);
    rig_expect(&rig, 0, "", "is gone: its node ");
    expect_gone(pid);
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_node, rig_drop),
        cmocka_unit_test_teardown(test_processes, rig_drop),
        cmocka_unit_test_teardown(test_refusals, rig_drop),
        cmocka_unit_test_teardown(test_gpu, rig_drop),
        cmocka_unit_test_teardown(test_waits, rig_drop),
        cmocka_unit_test_teardown(test_check, rig_drop),
    };
    if (argc != 5)
        return 2;
    python = argv[1];
    address = argv[2];
    third_node = (pid_t)strtol(argv[3], NULL, 10);
    scratch = argv[4];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
