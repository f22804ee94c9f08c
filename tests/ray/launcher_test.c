/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that runtime-ray passes on what its bridge reports, forgets what is of
 * a process that was stopped, and tells of a bridge that refuses, crashes, is
 * killed or is not there in a sentence. The bridge is one of the test, or the
 * plugin's own with a Python that has no ray.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/base/child.h"
#include "tests/ray/launcher_rig.h"
#include "tests/scratch.h"

static char fake[512];

/* ---- the channel to the bridge --------------------------------------------
 */

static int in_pieces; /* 1: few bytes pass at once, and calls are interrupted */
static uint32_t turns;

ssize_t __real_send(int fd, const void *data, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t size, int flags);
ssize_t __real_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags);

/* 1 if this call fails: every third is interrupted, or would have to wait. */
static int is_disturbed(void)
{
    errno = ++turns % 2 ? EINTR : EAGAIN;
    return in_pieces && turns % 3 == 0;
}

ssize_t __wrap_send(int fd, const void *data, size_t size, int flags)
{
    if (is_disturbed())
        return -1;
    return __real_send(fd, data, in_pieces && size > 7 ? 7 : size, flags);
}

ssize_t __wrap_recv(int fd, void *out, size_t size, int flags)
{
    if (is_disturbed())
        return -1;
    return __real_recv(fd, out, in_pieces && size > 5 ? 5 : size, flags);
}

static uint64_t
    patience; /* ms that the last bridge was given to end by itself */

void __real_ray_bridge_close(ray_bridge *bridge, uint64_t ms);
void __wrap_ray_bridge_close(ray_bridge *bridge, uint64_t ms);

void __wrap_ray_bridge_close(ray_bridge *bridge, uint64_t ms)
{
    patience = ms;
    __real_ray_bridge_close(bridge, ms);
}

/* ---- tests ----------------------------------------------------------------
 */

static void open_rig(launcher_rig *rig, uint32_t count, const char *word)
{
    rig_prepare(rig, count, fake, word);
    rig_create(rig);
}

static int is_readable(launcher_rig *rig)
{
    struct pollfd wait = { .fd = ray_ops.events(rig->self), .events = POLLIN };
    return poll(&wait, 1, 0) == 1;
}

static void expect_nothing(launcher_rig *rig)
{
    assert_int_equal(ray_ops.next(rig->self, &rig->event), XRAY_AGAIN);
    assert_false(is_readable(rig));
}

/* The bridge is told whether the run begins again, and may lack some of its
 * places now. */
static void test_again(void **state)
{
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 2, fake, "again");
    rig_expect_refused(&rig, XRAY_E_CONFIG, "create: the run is new");
    rig_prepare(&rig, 2, fake, "again");
    rig.setup.restarts = 1;
    rig_create(&rig);
    rig_close(&rig);
}

static void test_events(void **state)
{
    launcher_rig rig;
    (void)state;
    open_rig(&rig, 4, "ok");
    assert_string_equal(ray_ops.host_of(rig.self, 0), "h0");
    assert_string_equal(ray_ops.host_of(rig.self, 3), "h1");
    expect_nothing(&rig);
    rig_start(&rig, 0, "exited with status 0");
    rig_expect(&rig, 0, "a secret", "exited with status 0");
    rig_start(&rig, 3, "was killed by signal 9 (Killed)");
    rig_expect(&rig, 3, "a secret", "was killed by signal 9 (Killed)");
    rig_start(&rig, 3, "exited with status 1"); /* a place may be used again */
    rig_expect(&rig, 3, "a secret", "exited with status 1");
    expect_nothing(&rig);
    rig_close(&rig);
}

/* Requests and answers may pass in any pieces. */
static void test_pieces(void **state)
{
    in_pieces = 1;
    test_events(state);
    in_pieces = 0;
}

/* The bridge is told all of a run that it needs. */
static void test_request(void **state)
{
    static const char *const resources[] = { "fast:1", "zone:0.5" };
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 2, fake, "show");
    rig.config.placement = RAY_SPREAD;
    rig.config.namespace = "ours";
    rig.config.runtime_env = "{}";
    rig.config.resources.items = resources;
    rig.config.resources.count = 2;
    rig.config.autoscale = 1;
    rig.places[0].devices = 2;
    rig.places[1].name = "critic";
    rig.places[1].threads = 3;
    rig.places[1].memory = 5;
    rig.paths[1] = "/data \"x\"";
    rig.setup.path_count = 2;
    rig_expect_refused(
        &rig, XRAY_E_IO,
        "create: {\"address\": \"show\", \"again\": false, \"argv\": [], "
        "\"autoscale\": true, \"build\": \"build 1\", \"do\": \"run\", "
        "\"folder\": \"/\", \"namespace\": \"ours\", \"paths\": [\"/\", "
        "\"/data \\\"x\\\"\"], \"placement\": \"spread\", \"places\": "
        "[{\"devices\": 2, \"memory\": 0, \"name\": \"actor+rollout\", "
        "\"threads\": 1}, {\"devices\": 0, \"memory\": 5, \"name\": "
        "\"critic\", \"threads\": 3}], \"program\": \"/bin/true\", "
        "\"resources\": [\"fast:1\", \"zone:0.5\"], \"runtime_env\": \"{}\", "
        "\"title\": \"run.ini\"}");
    rig_prepare(&rig, 1, fake, "show");
    rig_expect_refused(&rig, XRAY_E_IO, "\"placement\": \"pack\"");
    rig_prepare(&rig, 1, fake, "show");
    rig.config.placement = RAY_STRICT_PACK;
    rig_expect_refused(&rig, XRAY_E_IO, "\"placement\": \"strict_pack\"");
}

/* A run may end while there are reports that nobody has taken. */
static void test_reports_at_the_end(void **state)
{
    launcher_rig rig;
    (void)state;
    open_rig(&rig, 2, "ok");
    rig_start(&rig, 0, "run");
    rig_start(&rig, 1, "exited with status 0");
    ray_ops.stop(rig.self, 0);
    rig_wait(&rig);
    assert_int_equal(rig.event.index, 1);
    rig_close(&rig);
}

/* Events of other places that arrive while `stop` waits are not lost. */
static void test_stop(void **state)
{
    launcher_rig rig;
    (void)state;
    open_rig(&rig, 2, "ok");
    rig_start(&rig, 0, "run");
    rig_start(&rig, 1, "run");
    rig_wait(&rig);
    rig_wait(&rig);
    ray_ops.stop(rig.self, 0);
    assert_true(is_readable(&rig));
    rig_wait(&rig);
    assert_int_equal(rig.event.index, 1);
    assert_string_equal(rig.event.text, "beside ");
    rig_wait(&rig);
    assert_string_equal(rig.event.text, "it");
    expect_nothing(&rig);
    ray_ops.stop(rig.self, 0); /* nothing runs there any more */
    rig_start(&rig, 0, "exited with status 3");
    rig_expect(&rig, 0, "a secret", "exited with status 3");
    rig_close(&rig);
}

static void test_dead_bridge(void **state)
{
    static const char *const cases[][2] = {
        { "die", "was killed by signal 9 (Killed)" },
        { "crash", "exited with status 1: RuntimeError: the cluster is gone" },
        { "lost", "exited with status 1: the cluster's head is gone" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_rig rig;
        char text[1024];
        open_rig(&rig, 2, "ok");
        rig_start(&rig, 1, "run");
        rig_wait(&rig);
        rig_start(&rig, 0, cases[i][0]);
        (void)snprintf(text, sizeof(text), "is gone: the bridge to Ray (%s) %s",
                       fake, cases[i][1]);
        rig_expect(&rig, 0, "", text);
        rig_expect(&rig, 1, "", text);
        expect_nothing(&rig);
        const xray_launch again = { .header = XRAY_HEADER(xray_launch),
                                    .argv = (const char *[]){ "x", NULL },
                                    .token = "" };
        assert_int_equal(ray_ops.start(rig.self, &again), XRAY_E_IO);
        assert_non_null(strstr(rig.host.reason, cases[i][1]));
        ray_ops.stop(rig.self, 0);
        rig_close(&rig);
    }
}

static void test_refusals(void **state)
{
    static const struct {
        const char *word;
        const char *text;
        xray_status status;
    } cases[] = {
        { "refuse", "create: Ray cannot place the run", XRAY_E_CONFIG },
        { "key", "create: address = key: nobody is there", XRAY_E_IO },
        { "few", "the bridge to Ray names no hosts", XRAY_E_IO },
        { "crash", "exited with status 1: ValueError: no such thing",
          XRAY_E_IO },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_rig rig;
        rig_prepare(&rig, 2, fake, cases[i].word);
        rig_expect_refused(&rig, cases[i].status, cases[i].text);
    }
}

/* A run that waits for places says what it waits for, and ends at once when the
 * host stops. */
static void test_cancel(void **state)
{
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 2, fake, "wait");
    rig.stop_on = "waiting 2";
    rig_expect_refused(&rig, XRAY_E_CANCELED, "create: ");
    assert_int_equal(rig.host.warnings, 3);
    assert_string_equal(rig.host.line, "waiting 2");
    assert_int_equal(patience, 0);
    rig_prepare(&rig, 2, fake, "wait");
    rig.stop_on = "waiting 0";
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_E_CANCELED);
    assert_int_equal(patience, 0);
    /* Without a signal Ray has the time to take the places back. */
    open_rig(&rig, 2, "ok");
    rig_close(&rig);
    assert_true(patience > 0);
    rig_prepare(&rig, 2, fake, "few");
    rig_expect_refused(&rig, XRAY_E_IO, "the bridge to Ray names no hosts");
    assert_true(patience > 0);
}

/* The text of the plugin with a Ray of another version than the cluster's. */
static void test_other_version(void **state)
{
    static const char text[] =
        "def init(**options):\n"
        "    raise RuntimeError('Version mismatch: The cluster was started"
        " with:\\n    Ray: 2.60.0\\n    Python: 3.11.9\\nThis process on node"
        " 10.0.0.2 was started with:\\n    Ray: 2.9.0\\n    Python: "
        "3.11.9\\n')\n";
    launcher_rig rig;
    char script[1024];
    (void)state;
    (void)scratch_write("ray.py", text);
    (void)snprintf(script, sizeof(script),
                   "#!/bin/sh\nPYTHONPATH='%s' exec python3 \"$@\"\n",
                   scratch_path(""));
    const char *other = scratch_write("other", script);
    assert_int_equal(chmod(other, 0700), 0);
    rig_prepare(&rig, 2, other, "auto");
    rig_expect_refused(&rig, XRAY_E_UNSUPPORTED,
                       " differs from the cluster: Version mismatch: The "
                       "cluster was started with: Ray: 2.60.0 Python: 3.11.9 "
                       "This process");
    assert_non_null(strstr(rig.host.reason, "create: python: "));
}

/* The text of the plugin with an interpreter that has no package at all. */
static void test_own_bridge(void **state)
{
    launcher_rig rig;
    const char *bare =
        scratch_write("bare", "#!/bin/sh\nexec python3 -S \"$@\"\n");
    (void)state;
    assert_int_equal(chmod(bare, 0700), 0);
    rig_prepare(&rig, 2, bare, "auto");
    rig_expect_refused(&rig, XRAY_E_UNSUPPORTED, "cannot import ray");
    rig_prepare(&rig, 2, bare, "127.0.0.1:9");
    rig_expect_refused(&rig, XRAY_E_IO,
                       "address = 127.0.0.1:9: no Ray cluster answers there");
    rig_prepare(&rig, 2, bare, "nonsense");
    rig_expect_refused(&rig, XRAY_E_CONFIG, "expected auto, or HOST:PORT");
    rig_prepare(&rig, 2, bare, "ray://head:10001");
    rig_expect_refused(&rig, XRAY_E_CONFIG, "Ray Client");
    rig_prepare(&rig, 2, bare, "auto");
    rig.config.runtime_env = "{\"pip\":";
    rig_expect_refused(&rig, XRAY_E_CONFIG,
                       "runtime_env: expected an object of JSON");
    rig_prepare(&rig, 2, "no-such-python", "auto");
    rig_expect_refused(&rig, XRAY_E_CONFIG,
                       "python = no-such-python cannot be started");
}

static void test_check(void **state)
{
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 2, fake, "ok");
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_OK);
    rig_prepare(&rig, 2, fake, "key");
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_E_IO);
    assert_string_equal(rig.host.reason,
                        "check: address = key: nobody is there");
}

/* Runs `submit` with standard output in a file, and reads that. */
static int32_t submit(launcher_rig *rig, char *out, size_t cap)
{
    static const char *const argv[] = { "xray", "train", "run.ini", NULL };
    int32_t number = -1;
    const char *path = scratch_path("out");
    int saved = dup(STDOUT_FILENO);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && file >= 0);
    (void)fflush(stdout);
    (void)dup2(file, STDOUT_FILENO);
    xray_status status =
        ray_ops.submit(&rig->setup, &rig->config, argv, &number);
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    ssize_t n = pread(file, out, cap - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    (void)close(file);
    assert_int_equal(status, XRAY_OK);
    return number;
}

static void test_submit(void **state)
{
    launcher_rig rig;
    char out[256];
    (void)state;
    rig_prepare(&rig, 2, fake, "ok");
    assert_int_equal(submit(&rig, out, sizeof(out)), 7);
    assert_string_equal(out, "argv xray train run.ini\n");
    assert_string_equal(rig.host.line, "job 1");
    rig_prepare(&rig, 2, fake, "cancel");
    rig.stop_on = "job 1";
    assert_int_equal(submit(&rig, out, sizeof(out)), 130);
    assert_string_equal(out, "argv xray train run.ini\ncanceled\n");
}

/* An interpreter whose package ray is that of the test. */
static const char *write_fake(void)
{
    static char path[600];
    char script[1024];
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(script, sizeof(script),
                   "#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 "
                   "PYTHONPATH='%s/tests/ray/fake' exec python3 \"$@\"\n",
                   source ? source : ".");
    (void)snprintf(path, sizeof(path), "%s", scratch_write("fake", script));
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

/* Without a core of its own a Workhorse counts as one, and every one has the
 * memory of the largest. The nodes have 4 CPU, 1 GPU and 8 GiB each. */
static void test_places(void **state)
{
    static const struct {
        uint64_t memory[2];
        const char *resource;
        uint32_t threads;
        uint32_t devices;
        const char *says;
    } cases[] = {
        { { 1, UINT64_C(9) << 30 },
          NULL,
          0,
          0,
          "Ray cannot place the run: no node has 1 CPU + 9.0 GiB of memory; "
          "the cluster has 2 nodes with 8 CPU, 16.0 GiB of memory" },
        { { UINT64_C(8) << 30, 1 },
          NULL,
          1,
          2,
          "no node has 1 CPU + 2 GPU + 8.0 GiB of memory" },
        { { 0, 0 }, NULL, 5, 0, "no node has 5 CPU; the" },
        { { 0, 0 },
          "fast : 0.5",
          2,
          1,
          "no node has 2 CPU + 1 GPU + 0.5 fast" },
        { { 0, 0 }, "CPU:1", 1, 0, "resources: CPU:1: expected NAME:AMOUNT" },
        { { 0, 0 }, "fast:0", 1, 0, "resources: fast:0: expected NAME:AMOUNT" },
    };
    const char *python = write_fake();
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        launcher_rig rig;
        rig_prepare(&rig, 2, python, "auto");
        for (int k = 0; k < 2; k++) {
            rig.places[k].threads = cases[i].threads;
            rig.places[k].devices = cases[i].devices;
            rig.places[k].memory = cases[i].memory[k];
        }
        rig.config.resources =
            (xray_list){ &cases[i].resource, cases[i].resource != NULL };
        rig_expect_refused(&rig, XRAY_E_CONFIG, cases[i].says);
    }
}

/* Ranks are numbered by the addresses of their hosts. A run that had its places
 * waits for what the cluster lacks now, which here does not take long. */
static void test_order(void **state)
{
    static const char *const hosts[] = { "h1", "h1", "h2", "h2" };
    launcher_rig rig;
    (void)state;
    rig_prepare(&rig, 4, write_fake(), "auto");
    rig.places[0].devices = 2;
    rig.setup.restarts = 1;
    rig_create(&rig);
    rig_close(&rig);
    rig_prepare(&rig, 4, write_fake(), "auto");
    rig_create(&rig);
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(ray_ops.host_of(rig.self, i), hosts[i]);
    rig_close(&rig);
    rig_prepare(&rig, 1, write_fake(), "auto");
    rig.config.namespace = "nowhere";
    rig_expect_refused(&rig, XRAY_E_IO,
                       "create: address = auto: no Ray cluster runs on this "
                       "host; `ray start --head` begins one");
    rig.config.namespace = "shut";
    rig_expect_refused(&rig, XRAY_E_IO,
                       "create: address = auto: the Ray cluster does not let "
                       "the run in: this host is no node");
}

/* One sentence says what every node lacks, in the order of their addresses.
 * Places that a cluster may grow by are not compared. */
static void test_nodes(void **state)
{
    launcher_rig rig;
    char program[600];
    char script[64] = "#!/bin/sh\necho build 2\n";
    (void)state;
    (void)snprintf(program, sizeof(program), "%s",
                   scratch_write("program", script));
    assert_int_equal(chmod(program, 0700), 0);
    rig_prepare(&rig, 2, write_fake(), "auto");
    rig.setup.program = program;
    rig.places[0].threads = 9;
    rig.paths[0] = "/none/data";
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_E_CONFIG);
    const char *at = strstr(rig.host.reason, "no node has 9 CPU; the cluster");
    at = at ? strstr(at, "; node 10.0.0.1 has another build of ") : NULL;
    at = at ? strstr(at, ": build 2, while this one is build 1; ") : NULL;
    at = at ? strstr(at, "; node 10.0.0.1 does not see /none/data; ") : NULL;
    at = at ? strstr(at, "; node 10.0.0.2 does not see /none/data") : NULL;
    if (!at)
        fail_msg("the reason is: %s", rig.host.reason);
    rig.setup.program = "/none/xray";
    rig.config.autoscale = 1;
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_E_CONFIG);
    assert_null(strstr(rig.host.reason, "no node has"));
    assert_non_null(strstr(rig.host.reason, "node 10.0.0.1 has no program "
                                            "/none/xray; "));
    (void)scratch_write("program", "#!/bin/sh\necho build 1\n");
    rig.setup.program = program;
    rig.paths[0] = "/";
    assert_int_equal(ray_ops.check(&rig.setup, &rig.config), XRAY_OK);
}

/* A job begins in the folder of the run, has ten minutes to stop unless
 * runtime_env says otherwise, and its exit code is passed on. */
static void test_job(void **state)
{
    launcher_rig rig;
    char out[400];
    (void)state;
    rig_prepare(&rig, 1, write_fake(), "http://head:8265");
    rig.setup.folder = "/two words";
    assert_int_equal(submit(&rig, out, sizeof(out)), 5);
    assert_string_equal(out, "cd '/two words' && exec xray train run.ini "
                             "[('RAY_JOB_STOP_WAIT_TIME_S', '600')] run.ini\n");
    rig_prepare(&rig, 1, write_fake(), "auto");
    rig.config.runtime_env =
        "{\"env_vars\": {\"A\": \"b\", \"RAY_JOB_STOP_WAIT_TIME_S\": \"7\"}}";
    assert_int_equal(submit(&rig, out, sizeof(out)), 5);
    assert_string_equal(out, "cd / && exec xray train run.ini [('A', 'b'), "
                             "('RAY_JOB_STOP_WAIT_TIME_S', '7')] run.ini\n");
}

static int has_python(void)
{
    const xr_child child = { .name = "python3",
                             .argv = RIG_KEYS("python3", "-c", "pass"),
                             .input = open("/dev/null", O_RDONLY),
                             .seconds = 60 };
    xr_str out = { 0 };
    xray_status status = xr_child_run(&child, NULL, NULL, &out);
    xr_str_free(&out);
    (void)close(child.input);
    return status == XRAY_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_other_version),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_reports_at_the_end),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_dead_bridge),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_own_bridge),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_submit),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_job),
    };
    const char *source = getenv("XRAY_SOURCE");
    if (!has_python()) {
        (void)printf("skipped: there is no python3\n");
        return 77;
    }
    (void)snprintf(fake, sizeof(fake), "%s/tests/ray/fake_python.py",
                   source ? source : ".");
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
