/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how the roles of a rank are created: with which setup each plugin is
 * called, which groups of ranks they join, whose weights an engine shares, and
 * which reasons a failure is reported with.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "core/roles/create.h"
#include "tests/testing.h"

/* ---- plugins ------------------------------------------------------------ */

static struct {
    char log[2048];
    const char *failing; /* the call that fails */
    const char *reason;  /* what it tells its host, or NULL */
    const char *deeper;  /* what the device told before, or NULL */
    const char *wider;   /* what the communicator told before, or NULL */
    const char *nothing; /* the call that gives nothing */
    uint32_t extended;   /* 1: the engine has extensions */
    uint32_t copies;     /* 1: the engine has weights of its own */
    uint32_t silent;     /* 1: plans do not say what devices are given */
    uint64_t timeout_ms;
    const xray_weights *shared; /* weights that the engine was given */
    uint32_t needs;
} fake;

static xr_run run;
static xr_roles *roles;
static xr_err err;

static void note_call(const char *fmt, ...)
{
    size_t used = strlen(fake.log);
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(fake.log + used, sizeof(fake.log) - used, fmt, list);
    va_end(list);
}

static void expect_log(const char *want)
{
    assert_string_equal(fake.log, want);
    fake.log[0] = '\0';
}

static void tell_host(xr_part *part, const char *reason)
{
    const xray_host *host = xr_host_api(part->host);
    if (reason)
        (void)xr_host_fail(host, XRAY_E_DEVICE, "here", "%s", reason);
}

/* Ends a call of create: gives `self`, or an error, or neither. */
static xray_status finish_create(const char *call, const xray_host *host,
                                 void *self, void **out)
{
    if (fake.nothing && strcmp(fake.nothing, call) == 0)
        return XRAY_OK;
    if (!fake.failing || strcmp(fake.failing, call) != 0) {
        *out = self;
        return XRAY_OK;
    }
    tell_host(&run.device, fake.deeper);
    tell_host(&run.comm, fake.wider);
    if (fake.reason)
        (void)xr_host_fail(host, XRAY_E_DEVICE, "here", "%s", fake.reason);
    return XRAY_E_DEVICE;
}

static xray_status device_create(const xray_host *host, const void *config,
                                 uint32_t threads, void **out)
{
    (void)config;
    note_call("device %u; ", threads);
    return finish_create("device", host, &fake, out);
}

static void device_destroy(void *self)
{
    assert_ptr_equal(self, &fake);
    note_call("no device; ");
}

static xray_status device_reserve(void *self, const xray_device_work *works,
                                  uint64_t count, uint64_t stride)
{
    void *out = NULL;
    assert_ptr_equal(self, &fake);
    assert_int_equal(stride, sizeof(*works));
    note_call("scratch");
    for (uint64_t i = 0; i < count; i++)
        note_call(" %u", (unsigned)works[i].tokens);
    note_call("; ");
    return finish_create("reserve", xr_host_api(run.device.host), self, &out);
}

/* The plan of every model. */
static xray_status model_plan(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    (void)host;
    (void)config;
    (void)model;
    assert_true(world->rank < world->size);
    (void)out;
    if (load->device_work)
        load->device_work->tokens = fake.silent ? 0 : 7;
    return XRAY_OK;
}

static xray_status device_memory(void *self, xray_memory_stats *out)
{
    (void)self;
    out->high[XRAY_TAG_GRADS] = 7;
    out->live[XRAY_TAG_KV] = 9;
    out->high_all = 8;
    return XRAY_OK;
}

static const xray_device_ops device_ops = { .header =
                                                XRAY_HEADER(xray_device_ops),
                                            .create = device_create,
                                            .destroy = device_destroy,
                                            .memory = device_memory,
                                            .reserve = device_reserve };

/* 64-bit words of a rank's trace in a runtime that records more than the comm
 * knows. */
#define RECORD_WORDS 9

static xray_status comm_create(const xray_comm_setup *setup, const void *config,
                               void **out)
{
    (void)config;
    note_call("comm %u of %u; ", setup->rank, setup->size);
    fake.timeout_ms = setup->timeout_ms;
    assert_ptr_equal(setup->device, &device_ops);
    assert_ptr_equal(setup->device_self, &fake);
    assert_non_null(setup->traces);
    assert_int_equal(setup->trace_stride, 8 * RECORD_WORDS);
    return finish_create("comm", setup->host, &fake, out);
}

static void comm_destroy(void *self)
{
    (void)self;
    note_call("no comm; ");
}

/* Groups are named by the order in which they are made, from 1. */
static char groups[4];
static uint32_t group_count;

static xray_status comm_group(void *self, const uint32_t *ranks, uint32_t count,
                              xray_comm_group **out)
{
    (void)self;
    note_call("group");
    for (uint32_t i = 0; i < count; i++)
        note_call(" %u", ranks[i]);
    note_call("; ");
    if (fake.nothing && strcmp(fake.nothing, "group") == 0)
        return XRAY_OK;
    if (fake.failing && strcmp(fake.failing, "group") == 0)
        return XRAY_E_PEER;
    *out = (xray_comm_group *)(void *)&groups[group_count++];
    return XRAY_OK;
}

static const xray_comm_ops comm_ops = { .header = XRAY_HEADER(xray_comm_ops),
                                        .create = comm_create,
                                        .destroy = comm_destroy,
                                        .group = comm_group };

static int group_number(const xray_world *world)
{
    return world->group
               ? (int)((const char *)(const void *)world->group - groups) + 1
               : 0;
}

static char models[XRAY_ROLE_REWARD + 1];

static xray_status train_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out)
{
    (void)config;
    note_call("model %u trains %u from %u, rank %u of %u, group %d; ",
              setup->role, setup->trainable, setup->trainable_from_layer,
              setup->world->rank, setup->world->size,
              group_number(setup->world));
    assert_int_equal(load->trainable, setup->trainable);
    assert_true(setup->world->comm == (setup->world->group ? &comm_ops : NULL));
    return finish_create("model", setup->host, &models[setup->role], out);
}

static void train_destroy(void *self)
{
    note_call("no model %d; ", (int)((char *)self - models));
}

static uint64_t weights_version(void *owner)
{
    (void)owner;
    return 41;
}

static float numbers[4];
static xray_tensor tensor = { .name = "w",
                              .dims = 1,
                              .shape = { 4 },
                              .extent = { 4 },
                              .stride = { 1 },
                              .data = numbers };
static xray_weights table = { .header = XRAY_HEADER(xray_weights),
                              .tensor_count = 1,
                              .tensor_stride = sizeof(xray_tensor),
                              .tensors = &tensor,
                              .device = &device_ops,
                              .version = weights_version };

static const xray_weights *train_weights(void *self)
{
    assert_ptr_equal(self, &models[XRAY_ROLE_ACTOR]);
    return &table;
}

static xray_status train_offload(void *self, uint32_t tag)
{
    note_call("offload %u of %d; ", tag, (int)((char *)self - models));
    return XRAY_OK;
}

static xray_status train_onload(void *self, uint32_t tag)
{
    note_call("onload %u of %d; ", tag, (int)((char *)self - models));
    return XRAY_OK;
}

static const xray_train_ops train_ops = { .header = XRAY_HEADER(xray_train_ops),
                                          .plan = model_plan,
                                          .create = train_create,
                                          .destroy = train_destroy,
                                          .weights = train_weights,
                                          .offload = train_offload,
                                          .onload = train_onload };

static xray_status infer_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out)
{
    (void)config;
    (void)load;
    note_call("engine %u, rank %u of %u; ", setup->role, setup->world->rank,
              setup->world->size);
    fake.shared = setup->weights;
    return finish_create("engine", setup->host, &fake, out);
}

static void infer_destroy(void *self)
{
    (void)self;
    note_call("no engine; ");
}

static xray_status infer_update(void *self, const xray_weights *from,
                                uint64_t number)
{
    (void)self;
    (void)from;
    note_call("version %u; ", (unsigned)number);
    return XRAY_OK;
}

static xray_infer_ops infer_ops;
static const xray_component train_component = { .name = "fake",
                                                .numerics = "one/0" };
static const xray_component infer_component = { .name = "fake",
                                                .numerics = "one/0" };

/* ---- a run of four ranks ------------------------------------------------ */

static void put_part(xr_part *part, const xray_component *component,
                     const void *ops, const char *name)
{
    *part = (xr_part){ .component = component,
                       .ops = ops,
                       .instance = name,
                       .host = xr_host_new(name, NULL) };
}

static int begin_test(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    group_count = 0;
    err.text[0] = '\0';
    tensor.extent[0] = 4;
    infer_ops = (xray_infer_ops){ .header = XRAY_HEADER(xray_infer_ops),
                                  .plan = model_plan,
                                  .create = infer_create,
                                  .destroy = infer_destroy,
                                  .update = infer_update };
    run = (xr_run){ .ini.run = { .threads = 5,
                                 .ranks = 4,
                                 .runtime = "auto",
                                 .comm_timeout = 1500000000 } };
    run.config = xr_config_new();
    assert_non_null(run.config);
    put_part(&run.device, NULL, &device_ops, "device.fake");
    put_part(&run.comm, NULL, &comm_ops, "comm.fake");
    put_part(&run.train, &train_component, &train_ops, "train.fake");
    put_part(&run.infer, &infer_component, &infer_ops, "infer.fake");
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    run.actor.load.trainable = run.critic.load.trainable = 1;
    run.actor.load.trainable_from_layer = 2;
    run.ini.rollout.share_weights = XR_SHARE_AUTO;
    run.placement = (xr_placement){
        .size = 4,
        .actor = { 2, { 1, 3 } },
        .reference = { 2, { 1, 3 } },
        .critic = { 2, { 0, 3 } },
        .reward = { 1, { 3 } },
        .rollout = { 2, { 1, 3 } },
    };
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_roles_free(roles);
    roles = NULL;
    xr_host_free(run.device.host);
    xr_host_free(run.comm.host);
    xr_host_free(run.train.host);
    xr_host_free(run.infer.host);
    xr_config_free(run.config);
    return 0;
}

static xray_status start_rank(uint32_t rank)
{
    static uint64_t records[2 * RECORD_WORDS];
    const xr_rank_link link = { .rank = rank,
                                .traces = (void *)records,
                                .trace_stride = sizeof(records) / 2 };
    xr_roles_free(roles);
    fake.log[0] = err.text[0] = '\0';
    group_count = 0;
    return xr_roles_start_rank(&run, &link, &err, &roles);
}

/* ---- ranks -------------------------------------------------------------- */

/* Roles on the policy's ranks use its group, the critic has one of its own; a
 * role on one rank has none. A rank is known by its position in the group. */
static void ranks_join_the_groups_of_their_roles(void **state)
{
    (void)state;
    assert_int_equal(start_rank(3), XRAY_OK);
    expect_log("device 5; scratch 7 7 7 7; comm 3 of 4; group 1 3; group 0 3; "
               "model 1 trains 1 from 2, rank 1 of 2, group 1; "
               "model 2 trains 0 from 0, rank 1 of 2, group 1; "
               "model 3 trains 1 from 0, rank 1 of 2, group 2; "
               "engine 4, rank 0 of 1; version 41; ");
    assert_int_equal(fake.timeout_ms, 1500);
    assert_int_equal(start_rank(0), XRAY_OK);
    expect_log("device 5; scratch 7; comm 0 of 4; group 0 3; "
               "model 3 trains 1 from 0, rank 0 of 2, group 1; ");
    assert_int_equal(start_rank(2), XRAY_OK);
    expect_log("device 5; comm 2 of 4; ");
    run.placement.critic = (xr_ranks){ 1, { 3 } };
    assert_int_equal(start_rank(3), XRAY_OK);
    expect_log("device 5; scratch 7 7 7 7; comm 3 of 4; group 1 3; "
               "model 1 trains 1 from 2, rank 1 of 2, group 1; "
               "model 2 trains 0 from 0, rank 1 of 2, group 1; "
               "model 3 trains 1 from 0, rank 0 of 1, group 0; "
               "engine 4, rank 0 of 1; version 41; ");
}

/* Every role is on the same ranks. */
static xr_placement place_all(const xr_ranks *ranks)
{
    return (xr_placement){ .size = ranks->count,
                           .most_here = ranks->count,
                           .actor = *ranks,
                           .reference = *ranks,
                           .critic = *ranks,
                           .reward = *ranks,
                           .rollout = *ranks };
}

static void a_single_rank_needs_no_communicator(void **state)
{
    const xr_ranks one = { 1, { 0 } };
    (void)state;
    run.placement = place_all(&one);
    assert_int_equal(start_rank(0), XRAY_OK);
    expect_log("device 5; scratch 7 7 7 7; model 1 trains 1 from 2, rank 0 of "
               "1, group 0; "
               "model 2 trains 0 from 0, rank 0 of 1, group 0; "
               "model 3 trains 1 from 0, rank 0 of 1, group 0; "
               "engine 4, rank 0 of 1; version 41; ");
    xr_roles_free(roles);
    roles = NULL;
    expect_log("no engine; no model 3; no model 2; no model 1; no device; ");
}

/* An engine shares complete weights of a policy on the same ranks, if the user
 * lets it. */
static void engines_share_weights_where_they_can(void **state)
{
    (void)state;
    assert_int_equal(start_rank(3), XRAY_OK);
    assert_ptr_equal(fake.shared, &table);
    run.ini.rollout.share_weights = XR_SHARE_OFF;
    assert_int_equal(start_rank(3), XRAY_E_CONFIG);
    assert_null(fake.shared);
    run.ini.rollout.share_weights = XR_SHARE_AUTO;
    tensor.extent[0] = 2; /* a shard */
    assert_int_equal(start_rank(3), XRAY_E_BUG);
    assert_null(fake.shared);
    tensor.extent[0] = 4;
    /* On other ranks weights are sent later, even to the rank of both. */
    run.placement.rollout = (xr_ranks){ 2, { 2, 3 } };
    assert_int_equal(start_rank(3), XRAY_OK);
    assert_null(fake.shared);
    assert_null(strstr(fake.log, "version"));
    assert_int_equal(start_rank(2), XRAY_OK);
    expect_log("device 5; scratch 7; comm 2 of 4; engine 4, rank 0 of 1; ");
}

/* The first model makes way while the others are created. */
static void memory_is_given_back_before_the_next_model(void **state)
{
    const xr_ranks one = { 1, { 0 } };
    (void)state;
    run.needs = XRAY_NEED_REFERENCE;
    run.placement = place_all(&one);
    run.ini.actor.optimizer_offload = 1;
    assert_int_equal(start_rank(0), XRAY_OK);
    const char *away = strstr(fake.log, "offload");
    const char *next = strstr(fake.log, "model 2");
    assert_non_null(away);
    assert_non_null(next);
    assert_true(away < next);
}

/* ---- failures ----------------------------------------------------------- */

/* The reason of the plugin comes first, then that of the device, then that of
 * the communicator. */
static void failures_are_explained_by_all_that_took_part(void **state)
{
    static const struct {
        const char *reason, *deeper, *wider, *want;
    } cases[] = {
        { "own", NULL, NULL, "train.fake: here: own" },
        { "own", "low", "far",
          "train.fake: here: own: device.fake: here: low: "
          "comm.fake: here: far" },
        { NULL, "low", "far",
          "train.fake: create: device.fake: here: low: "
          "comm.fake: here: far" },
        { NULL, NULL, "far", "train.fake: create: comm.fake: here: far" },
    };
    (void)state;
    fake.failing = "model";
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake.reason = cases[i].reason;
        fake.deeper = cases[i].deeper;
        fake.wider = cases[i].wider;
        roles = NULL;
        assert_int_equal(start_rank(3), XRAY_E_DEVICE);
        assert_null(roles);
        assert_string_equal(err.text, cases[i].want);
    }
    fake.reason = fake.deeper = fake.wider = NULL;
    assert_int_equal(start_rank(3), XRAY_E_DEVICE);
    assert_memory_equal(err.text, "train.fake: create", 18);
}

/* A key that a role's plugin refuses is one of the section that sets it. */
static void keys_of_a_role_are_those_of_its_section(void **state)
{
    static char own[] = "critic.train.fake";
    const xray_location depth = { .header = XRAY_HEADER(xray_location),
                                  .key = "depth" };
    (void)state;
    run.role_parts[XRAY_ROLE_CRITIC] = run.train;
    run.role_parts[XRAY_ROLE_CRITIC].section = own;
    assert_int_equal(start_rank(3), XRAY_OK);
    for (uint32_t role = XRAY_ROLE_REFERENCE; role <= XRAY_ROLE_CRITIC;
         role++) {
        xr_host *host = roles->named[role].host;
        const int own_section = role == XRAY_ROLE_CRITIC;
        assert_string_equal(roles->named[role].instance,
                            own_section ? "critic" : "reference");
        (void)xr_host_api(host)->fail_at(xr_host_api(host), XRAY_E_CONFIG,
                                         "here", &depth, ": bad");
        (void)xr_host_error(host, XRAY_E_CONFIG, "create", &err);
        assert_string_equal(err.location.section,
                            own_section ? own : "train.fake");
    }
}

/* Scratch memory is taken before there are models; where a plan does not say
 * what it needs, the device takes it as it goes. */
static void scratch_is_taken_first(void **state)
{
    (void)state;
    fake.failing = "reserve";
    fake.reason = "full";
    assert_int_equal(start_rank(3), XRAY_E_DEVICE);
    assert_string_equal(err.text, "device.fake: here: full");
    assert_null(strstr(fake.log, "model"));
    fake.failing = fake.reason = NULL;
    fake.silent = 1;
    assert_int_equal(start_rank(0), XRAY_OK);
    expect_log("device 5; comm 0 of 4; group 0 3; "
               "model 3 trains 1 from 0, rank 0 of 2, group 1; ");
}

/* A plugin that reports success must have made something. */
static void nothing_is_not_an_instance(void **state)
{
    static const struct {
        const char *call, *want;
    } cases[] = {
        { "device", "device.fake: create gave neither an instance nor an "
                    "error" },
        { "comm", "comm.fake: create gave neither an instance nor an error" },
        { "model", "train.fake: create gave neither an instance nor an error" },
        { "engine", "infer.fake: create gave neither an instance nor an "
                    "error" },
        { "group", "comm.fake: group gave neither a group nor an error" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake.nothing = cases[i].call;
        assert_int_equal(start_rank(3), XRAY_E_BUG);
        assert_string_equal(err.text, cases[i].want);
    }
    fake.nothing = NULL;
    fake.failing = "group";
    assert_int_equal(start_rank(3), XRAY_E_PEER);
    assert_null(strstr(fake.log, "model"));
    assert_non_null(strstr(fake.log, "no comm; no device; "));
}

static char said[512];

static void keep_line(void *ctx, uint32_t level, const char *who,
                      const char *text)
{
    (void)ctx;
    (void)level;
    (void)snprintf(said, sizeof(said), "%s: %s", who, text);
}

/* The peak of each tag is logged, not what is in use at the end. */
static void the_peak_of_memory_is_logged(void **state)
{
    (void)state;
    assert_int_equal(start_rank(2), XRAY_OK);
    run.sink = (xr_log_sink){ .level = XRAY_LOG_INFO, .write = keep_line };
    xr_roles_free(roles);
    roles = NULL;
    assert_string_equal(said, "device.fake: memory at most: gradients 7, at "
                              "once 8 bytes");
    run.sink.level = XRAY_LOG_INFO - 1;
    said[0] = '\0';
    assert_int_equal(start_rank(2), XRAY_OK);
    xr_roles_free(roles);
    roles = NULL;
    assert_string_equal(said, "");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_join_the_groups_of_their_roles),
        TEST(a_single_rank_needs_no_communicator),
        TEST(engines_share_weights_where_they_can),
        TEST(memory_is_given_back_before_the_next_model),
        TEST(failures_are_explained_by_all_that_took_part),
        TEST(keys_of_a_role_are_those_of_its_section),
        TEST(scratch_is_taken_first),
        TEST(nothing_is_not_an_instance),
        TEST(the_peak_of_memory_is_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
