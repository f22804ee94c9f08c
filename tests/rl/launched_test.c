/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a launcher is told of a run, how it is called, and what becomes
 * of its answers, with a launcher made for the test.
 */
#include "tests/growth.h"
#include "tests/scratch.h"

#include <limits.h>
#include <sys/stat.h>

#include "core/plugin/cancel.h"
#include "core/plugin/guard.h"
#include "core/roles/launch_setup.h"
#include "core/roles/launched.h"
#include "core/run/reward_model.h"
#include "core/run/run_setup.h"

/* ---- a launcher ---------------------------------------------------------- */

static struct {
    xray_status create, check, submit;
    int gives_nothing;
    const char *key; /* that a failure is about */
    const char *hosts[4];
    uint32_t destroys;
    char places[512], paths[1024], build[XR_BUILD_CAP], folder[XR_PATH_CAP];
    char program[XR_PATH_CAP], run[64], argv[256], calls[256];
    uint32_t restarts;
} said;

/* Notes a call as the guard knows it: an asterisk if its time is limited. */
static void note_call(void)
{
    const size_t used = strlen(said.calls);
    xr_guard_call call;
    assert_int_equal(xr_guard_now(&call), 1);
    assert_string_equal(call.plugin, "runtime.fake");
    (void)snprintf(said.calls + used, sizeof(said.calls) - used, "%s%s ",
                   call.call, call.deadline_ns ? "*" : "");
}

static xray_status answer_with(const xray_launch_setup *setup,
                               xray_status status)
{
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .section = "runtime.fake",
                                     .key = said.key };
    if (status == XRAY_OK)
        return status;
    return said.key
               ? setup->host->fail_at(setup->host, status, "here", &location,
                                      " is too small")
               : (setup->host->fail)(setup->host, status, "here", "no places");
}

static void note_setup(const xray_launch_setup *s)
{
    size_t used = 0;
    note_call();
    assert_int_equal(s->header.size, sizeof(*s));
    said.places[0] = said.paths[0] = '\0';
    for (uint32_t i = 0; i < s->count; i++) {
        const xray_launch_place *p =
            (const void *)((const char *)s->places + i * s->place_stride);
        used += (size_t)snprintf(said.places + used, sizeof(said.places) - used,
                                 "%s %u %u %u; ", p->name, p->devices,
                                 p->threads, (unsigned)p->memory);
    }
    used = 0;
    for (uint32_t i = 0; i < s->path_count; i++) {
        const char *base = strrchr(s->paths[i], '/');
        assert_int_equal(s->paths[i][0], '/');
        used += (size_t)snprintf(said.paths + used, sizeof(said.paths) - used,
                                 "%s ", base + 1);
    }
    (void)snprintf(said.build, sizeof(said.build), "%s", s->build);
    (void)snprintf(said.folder, sizeof(said.folder), "%s", s->folder);
    (void)snprintf(said.program, sizeof(said.program), "%s", s->program);
    (void)snprintf(said.run, sizeof(said.run), "%s", s->run);
    said.restarts = s->restarts;
}

static xray_status create_it(const xray_launch_setup *setup, const void *config,
                             void **out_self)
{
    static int self;
    note_setup(setup);
    assert_string_equal(config, "config");
    assert_int_equal(xr_cancels_at_once(), 1); /* nothing would be lost */
    if (said.create == XRAY_OK && !said.gives_nothing)
        *out_self = &self;
    return answer_with(setup, said.create);
}

static void destroy_it(void *self)
{
    assert_non_null(self);
    note_call();
    said.destroys++;
}

static const char *name_host(void *self, uint32_t index)
{
    assert_non_null(self);
    note_call();
    return said.hosts[index];
}

static xray_status start_it(void *self, const xray_launch *launch)
{
    assert_non_null(self);
    note_call();
    return launch->index == 1 ? XRAY_OK : XRAY_E_IO;
}

static void stop_it(void *self, uint32_t index)
{
    assert_non_null(self);
    note_call();
    assert_int_equal(index, 3);
}

static int32_t give_events(void *self)
{
    assert_non_null(self);
    note_call();
    return 77;
}

static xray_status take_event(void *self, xray_launch_event *out)
{
    assert_non_null(self);
    note_call();
    out->index = 2;
    return XRAY_AGAIN;
}

static xray_status check_it(const xray_launch_setup *setup, const void *config)
{
    note_setup(setup);
    assert_string_equal(config, "config");
    return answer_with(setup, said.check);
}

static xray_status submit_it(const xray_launch_setup *setup, const void *config,
                             const char *const *argv, int32_t *out_exit)
{
    note_setup(setup);
    assert_string_equal(config, "config");
    (void)snprintf(said.argv, sizeof(said.argv), "%s %s",
                   strcmp(argv[0], setup->program) == 0 ? "PROGRAM" : argv[0],
                   argv[1]);
    if (said.submit == XRAY_OK)
        *out_exit = 9;
    return answer_with(setup, said.submit);
}

static const xray_launcher_ops ops = { .header = XRAY_HEADER(xray_launcher_ops),
                                       .create = create_it,
                                       .destroy = destroy_it,
                                       .host_of = name_host,
                                       .start = start_it,
                                       .stop = stop_it,
                                       .events = give_events,
                                       .next = take_event,
                                       .check = check_it,
                                       .submit = submit_it };

/* ---- the run ------------------------------------------------------------- */

static int in_host_memory;
static xray_status plan_answer;

static xray_status plan_device(const xray_host *host, const void *config,
                               xray_device_plan *out)
{
    xr_guard_call call;
    assert_non_null(host);
    assert_string_equal(config, "device");
    assert_int_equal(xr_guard_now(&call), 1);
    assert_string_equal(call.call, "plan");
    out->host_memory = (uint32_t)in_host_memory;
    return plan_answer;
}

static xr_run run;
static xr_launched *launched;
static xr_err err;

static void use_ranks(xr_ranks *ranks, uint32_t first, uint32_t count)
{
    ranks->count = count;
    for (uint32_t i = 0; i < count; i++)
        ranks->rank[i] = first + i;
}

static int make_run(void **state)
{
    static const xray_component component = { .name = "fake" };
    static const xray_device_ops device = { .header =
                                                XRAY_HEADER(xray_device_ops),
                                            .plan = plan_device };
    static xr_reward_model_config reward_model;
    xr_errors errors = { 0 };
    (void)state;
    memset(&said, 0, sizeof(said));
    for (int i = 0; i < 4; i++)
        said.hosts[i] = i < 3 ? "n1" : "n2";
    in_host_memory = 0;
    plan_answer = XRAY_OK;
    launched = NULL;
    run = (xr_run){ .config = xr_config_new(), .place_memory = 1234 };
    xr_config_set(run.config, "run.threads=6", &errors);
    xr_config_set(run.config, "runtime.fake.places=1", &errors);
    assert_int_equal(errors.count, 0);
    run.launcher = (xr_part){ .ops = &ops,
                              .config = (void *)(uintptr_t) "config",
                              .instance = "runtime.fake",
                              .host = xr_host_new("runtime.fake", NULL) };
    run.device = (xr_part){ .component = &component,
                            .ops = &device,
                            .config = (void *)(uintptr_t) "device",
                            .instance = "device.fake",
                            .host = xr_host_new("device.fake", NULL) };
    run.train.component = run.infer.component = &component;
    run.placement.size = 4;
    run.needs = XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE;
    run.reward_model_config = &reward_model;
    use_ranks(&run.placement.actor, 0, 2);
    use_ranks(&run.placement.rollout, 0, 4);
    use_ranks(&run.placement.reference, 1, 1);
    use_ranks(&run.placement.critic, 3, 1);
    use_ranks(&run.placement.reward, 2, 1);
    run.restarts = 3;
    run.ini.run.runtime = "fake";
    return 0;
}

static int drop_run(void **state)
{
    (void)state;
    xr_launched_close(launched);
    xr_host_free(run.launcher.host);
    xr_host_free(run.device.host);
    xr_config_free(run.config);
    return 0;
}

static xray_status open_it(void)
{
    return xr_launched_open(&run, &err, &launched);
}

/* ---- cases --------------------------------------------------------------- */

/* A place says its roles, and what it needs of its host. */
static void places_say_what_their_ranks_need(void **state)
{
    static const char *const threads[] = { "run.threads=auto", "run.threads=-2",
                                           "run.threads=0" };
    xr_errors errors = { 0 };
    (void)state;
    xr_guard_limit(INT64_C(600000000000));
    assert_int_equal(open_it(), XRAY_OK);
    xr_guard_limit(0);
    assert_string_equal(said.places, "actor+rollout 1 6 1234; "
                                     "actor+rollout+reference 1 6 1234; "
                                     "rollout+reward 1 6 1234; "
                                     "rollout+critic 1 6 1234; ");
    assert_int_equal(said.restarts, 3);
    assert_string_equal(said.run, "configuration");
    assert_int_equal(xr_cancels_at_once(), 0);
    /* No accelerators, and no roles that the run has not. */
    in_host_memory = 1;
    run.needs = 0;
    run.reward_model_config = NULL;
    for (size_t i = 0; i < 3; i++) {
        xr_config_set(run.config, threads[i], &errors);
        assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
        assert_string_equal(said.places,
                            "actor+rollout 0 0 1234; actor+rollout 0 0 1234; "
                            "rollout 0 0 1234; rollout 0 0 1234; ");
    }
    /* A device that is unknown or cannot plan is none. */
    in_host_memory = 0;
    plan_answer = XRAY_E_DEVICE;
    assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
    assert_non_null(strstr(said.places, "actor+rollout 0 0 1234; "));
    plan_answer = XRAY_OK;
    run.device.component = NULL;
    assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
    assert_non_null(strstr(said.places, "actor+rollout 0 0 1234; "));
}

static char folders[3][64];

/* Files and folders that exist, each once and by their real path; of others the
 * nearest folder above that exists. */
static void paths_are_those_that_every_host_must_see(void **state)
{
    static const char *train[2];
    static const char *val[1];
    char list[256], missing[96], here[XR_PATH_CAP], program[XR_PATH_CAP];
    (void)state;
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = { "models", "data", "plugins" };
        (void)snprintf(folders[i], sizeof(folders[i]), "%s",
                       scratch_path(names[i]));
        assert_int_equal(mkdir(folders[i], 0700), 0);
    }
    (void)snprintf(missing, sizeof(missing), "%s/not/there", folders[1]);
    (void)snprintf(list, sizeof(list), "%s::%s:%s", folders[2], folders[0],
                   folders[1]);
    train[0] = scratch_write("train", "x");
    train[1] = missing;
    val[0] = scratch_write("val", "x");
    run.actor.path = folders[0];
    run.critic.path = folders[0];
    run.reward_model.path = "/no/such/folder";
    run.ini.model.tokenizer_path = "";
    run.ini.data.train_files = (xray_list){ .items = train, .count = 2 };
    run.ini.data.val_files = (xray_list){ .items = val, .count = 1 };
    run.ini.trainer.default_local_dir = folders[2];
    run.plugin_path = list;
    assert_non_null(getcwd(here, sizeof(here)));
    const char *base = strrchr(here, '/') + 1;
    char want[XR_PATH_CAP + 64];
    assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
    (void)snprintf(want, sizeof(want), "%s models  train data val plugins ",
                   base);
    assert_string_equal(said.paths, want);
    assert_string_equal(said.folder, here);
    const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    assert_true(n > 0);
    program[n] = '\0';
    assert_string_equal(said.program, program);
    char build[XR_BUILD_CAP];
    assert_int_equal(xr_launch_build(build, &err), XRAY_OK);
    assert_string_equal(said.build, build);
    assert_int_equal(strlen(build), 12);
    /* The folder of checkpoints counts if the run writes some. */
    run.plugin_path = NULL;
    assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
    assert_null(strstr(said.paths, "plugins"));
    run.with = XR_TRAINABLE;
    assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
    assert_non_null(strstr(said.paths, " plugins"));
}

/* Each call is recorded, and those that compute or wait are not timed. */
static void calls_reach_the_launcher_in_its_name(void **state)
{
    const xray_launch first = { .index = 1 };
    const xray_launch second = { .index = 2 };
    xray_launch_event event = { .index = 0 };
    xr_guard_call call;
    (void)state;
    xr_guard_limit(INT64_C(600000000000));
    said.hosts[1] = said.hosts[0];
    assert_int_equal(open_it(), XRAY_OK);
    assert_string_equal(said.calls,
                        "create host_of* host_of* host_of* host_of* ");
    assert_string_equal(xr_launched_hosts(launched), "n1:3, n2:1");
    assert_string_equal(xr_launched_host_of(launched, 2), "n1");
    assert_string_equal(xr_launched_host_of(launched, 3), "n2");
    assert_string_equal(xr_launched_program(launched), said.program);
    assert_int_equal(run.placement.local[2], 2);
    said.calls[0] = '\0';
    assert_int_equal(xr_launched_ops.start(launched, &first), XRAY_OK);
    assert_int_equal(xr_launched_ops.start(launched, &second), XRAY_E_IO);
    xr_launched_ops.stop(launched, 3);
    assert_int_equal(xr_launched_ops.events(launched), 77);
    assert_int_equal(xr_launched_ops.next(launched, &event), XRAY_AGAIN);
    assert_int_equal(event.index, 2);
    assert_string_equal(xr_launched_ops.host_of(launched, 3), "n2");
    xr_launched_close(launched);
    launched = NULL;
    assert_string_equal(said.calls,
                        "start* start* stop events* next* host_of* destroy ");
    assert_int_equal(said.destroys, 1);
    xr_launched_close(NULL);
    xr_guard_limit(0);
    assert_int_equal(xr_guard_now(&call), 0); /* all of them have ended */
}

static void what_cannot_be_placed_is_given_back(void **state)
{
    (void)state;
    said.hosts[1] = "-x";
    assert_int_equal(open_it(), XRAY_E_BUG);
    assert_non_null(strstr(err.text, "the host of rank 1, \"-x\", is not the "
                                     "name of a host"));
    assert_null(launched);
    assert_int_equal(said.destroys, 1);
    said.hosts[1] = "n1";
    /* Collectives between hosts are not encrypted. */
    use_ranks(&run.placement.actor, 2, 2);
    run.ini.runtime.tls = 1;
    run.ini.run.comm = "tcp";
    assert_int_equal(open_it(), XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "collectives of [run] comm = tcp between "
                                     "the hosts of [placement]"));
    assert_int_equal(said.destroys, 2);
    /* Neither an instance nor an error, and an error. */
    said.gives_nothing = 1;
    assert_int_equal(open_it(), XRAY_E_BUG);
    assert_string_equal(err.text, "runtime.fake: create gave neither an "
                                  "instance nor an error");
    said.create = XRAY_E_UNSUPPORTED;
    assert_int_equal(open_it(), XRAY_E_UNSUPPORTED);
    assert_string_equal(err.text, "runtime.fake: here: no places");
    assert_int_equal(xr_cancels_at_once(), 0);
    assert_int_equal(said.destroys, 2);
    assert_null(launched);
}

static void an_engine_is_asked_and_given_jobs(void **state)
{
    const char *argv[] = { "xray", "train", NULL };
    int32_t status = -1;
    (void)state;
    assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
    said.check = XRAY_E_UNSUPPORTED;
    assert_int_equal(xr_launched_check(&run, &err), XRAY_E_UNSUPPORTED);
    assert_string_equal(err.text, "runtime.fake: here: no places");
    assert_int_equal(xr_launched_submit(&run, argv, &err, &status), XRAY_OK);
    assert_int_equal(status, 9);
    assert_string_equal(said.argv, "PROGRAM train");
    said.submit = XRAY_E_CONFIG;
    assert_int_equal(xr_launched_submit(&run, argv, &err, &status),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "runtime.fake: here: no places");
    said.key = "places";
    assert_int_equal(xr_launched_submit(&run, argv, &err, &status),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "--set: [runtime.fake] places is too small");
    assert_string_equal(said.calls, "check check submit submit submit ");
    /* One that takes no jobs, and cannot be asked. */
    for (int way = 0; way < LACK_WAYS; way++) {
        xray_launcher_ops without = ops;
        LACK_MEMBER(xray_launcher_ops, without, submit, way);
        LACK_MEMBER(xray_launcher_ops, without, check, way);
        run.launcher.ops = &without;
        assert_int_equal(xr_launched_check(&run, &err), XRAY_OK);
        assert_int_equal(xr_launched_submit(&run, argv, &err, &status),
                         XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "[run] runtime: fake takes no jobs"));
        assert_string_equal(said.calls, "check check submit submit submit ");
        assert_int_equal(said.destroys, 0);
    }
    run.launcher.ops = &ops;
}

static xray_status enter_it(const xray_host *host, const void *config,
                            const char *address, xray_launch_entry *out)
{
    (void)host;
    (void)config;
    (void)address;
    (void)out;
    return XRAY_OK;
}

static void processes_are_asked_what_they_are_only_where_that_is(void **state)
{
    xray_launcher_ops enters = ops;
    (void)state;
    assert_int_equal(xr_launched_enters(&run), 0);
    enters.enter = enter_it;
    run.launcher.ops = &enters;
    assert_int_equal(xr_launched_enters(&run), 1);
    LACK_MEMBER(xray_launcher_ops, enters, enter, LACK_ENDS);
    assert_int_equal(xr_launched_enters(&run), 0);
    run.launcher.ops = NULL;
    assert_int_equal(xr_launched_enters(&run), 0);
    run.launcher.ops = &ops;
}

/* The launcher's reason stands behind the runtime's, once. */
static void a_launcher_explains_what_the_runtime_says(void **state)
{
    const xray_host *host = xr_host_api(run.launcher.host);
    (void)state;
    assert_int_equal(open_it(), XRAY_OK);
    (void)xr_fail(&err, XRAY_E_PEER, "workhorse 1 is gone");
    xr_launched_explain(launched, &err);
    assert_string_equal(err.text, "workhorse 1 is gone");
    (void)(host->fail)(host, XRAY_E_IO, "node", "it was preempted");
    xr_launched_explain(launched, &err);
    assert_non_null(strstr(err.text, "workhorse 1 is gone"));
    assert_non_null(strstr(err.text, "it was preempted"));
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_run, drop_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(places_say_what_their_ranks_need),
        CASE(paths_are_those_that_every_host_must_see),
        CASE(calls_reach_the_launcher_in_its_name),
        CASE(what_cannot_be_placed_is_given_back),
        CASE(an_engine_is_asked_and_given_jobs),
        CASE(processes_are_asked_what_they_are_only_where_that_is),
        CASE(a_launcher_explains_what_the_runtime_says),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
