/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which ranks hold a model together, which of them answers, and which
 * groups a rank joins for each role and each axis of its layout.
 */
#include <stdarg.h>

#include "core/roles/create.h"
#include "core/roles/worlds.h"
#include "core/run/replicas.h"
#include "tests/testing.h"

#define GROUPS 16

static char log_text[1024]; /* calls of the plugin: "0 1 2; 1 2; " */
static char groups[GROUPS]; /* in the order in which they are made */
static uint32_t group_count;
static int refuses;

static xray_status comm_group(void *self, const uint32_t *ranks, uint32_t count,
                              xray_comm_group **out)
{
    size_t used = strlen(log_text);
    (void)self;
    if (refuses)
        return XRAY_E_PEER;
    for (uint32_t i = 0; i < count; i++)
        used += (size_t)snprintf(log_text + used, sizeof(log_text) - used,
                                 "%s%u", i ? " " : "", ranks[i]);
    (void)snprintf(log_text + used, sizeof(log_text) - used, "; ");
    assert_true(group_count < GROUPS);
    *out = (xray_comm_group *)(void *)&groups[group_count++];
    return XRAY_OK;
}

static const xray_comm_ops comm_ops = { .header = XRAY_HEADER(xray_comm_ops),
                                        .group = comm_group };
static const xray_component component = { .name = "fake" };

static xr_run run;
static xr_roles *roles;
static xr_err err;

static const xr_layout square = { .width = 4,
                                  .replicas = 2,
                                  .answers = 2,
                                  .axis_count = 2,
                                  .axes = { { "tp", 2 }, { "pp", 2 } } };

/* Ranks 10 to 17, of which rank 10 + i has the position i. */
static int begin_test(void **state)
{
    (void)state;
    run = (xr_run){ .comm = { .ops = &comm_ops, .instance = "comm.fake" } };
    run.comm.host = xr_host_new("comm.fake", NULL);
    run.train.component = run.infer.component = &component;
    run.placement.actor.count = 8;
    for (uint32_t i = 0; i < 8; i++)
        run.placement.actor.rank[i] = 10 + i;
    run.placement.rollout = run.placement.reference = run.placement.critic =
        run.placement.reward = run.placement.actor;
    run.layouts[XRAY_ROLE_ACTOR] = square;
    err.text[0] = '\0';
    refuses = 0;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_roles_free(roles);
    roles = NULL;
    xr_host_free(run.comm.host);
    return 0;
}

static xray_status join_worlds(uint32_t rank)
{
    xr_roles_free(roles);
    roles = xr_roles_new(&run);
    assert_non_null(roles);
    log_text[0] = '\0';
    group_count = 0;
    roles->rank = rank;
    return xr_worlds_join(roles, &err);
}

/* Expects the log of calls, and forgets it. */
static void expect_groups(const char *want)
{
    assert_string_equal(log_text, want);
    log_text[0] = '\0';
}

/* Returns the number of a group, from 1; 0 for none. */
static int number_of(const xray_comm_group *group)
{
    return group ? (int)((const char *)(const void *)group - groups) + 1 : 0;
}

/* Expects "NAME RANK/SIZE GROUP; ..." of a role. */
static void expect_subgroups(uint32_t role, const char *want)
{
    const xray_world *world = &roles->worlds[role];
    char text[256] = "";
    size_t used = 0;
    assert_int_equal(world->subgroup_stride, sizeof(xray_subgroup));
    for (uint32_t i = 0; i < world->subgroup_count; i++) {
        const xray_subgroup *s = &world->subgroups[i];
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s %u/%u %d; ",
                             s->name, s->rank, s->size, number_of(s->group));
    }
    assert_string_equal(text, want);
}

/* ---- replicas ------------------------------------------------------------ */

static void ranks_in_a_row_hold_a_model(void **state)
{
    (void)state;
    xr_replicas all = xr_replicas_of(&run, XRAY_ROLE_ACTOR);
    assert_int_equal(all.width, 4);
    assert_int_equal(all.count, 2);
    assert_int_equal(xr_replicas_answering(&all, 0), 12);
    assert_int_equal(xr_replicas_answering(&all, 1), 16);
    for (uint32_t rank = 9; rank < 19; rank++)
        assert_int_equal(xr_rank_answers(&run, XRAY_ROLE_ACTOR, rank),
                         rank == 12 || rank == 16 || rank == 9 || rank == 18);
    /* Without a layout each rank is a replica. */
    all = xr_replicas_of(&run, XRAY_ROLE_ROLLOUT);
    assert_int_equal(all.width, 1);
    assert_int_equal(all.count, 8);
    assert_int_equal(xr_replicas_answering(&all, 5), 15);
    assert_int_equal(xr_rank_answers(&run, XRAY_ROLE_ROLLOUT, 15), 1);
}

static void only_equal_layouts_on_equal_ranks_match(void **state)
{
    (void)state;
    xr_layout *engine = &run.layouts[XRAY_ROLE_ROLLOUT];
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 0);
    *engine = square;
    engine->answers = 0;
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 1);
    (void)snprintf(engine->axes[0].name, XR_AXIS_NAME_CAP, "pp");
    (void)snprintf(engine->axes[1].name, XR_AXIS_NAME_CAP, "tp");
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 0);
    *engine = square;
    engine->axis_count = 1;
    engine->axes[0].size = 4;
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 0);
    *engine = square;
    run.placement.rollout.rank[7]++;
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 0);
    /* Axes of one rank cut nothing. */
    *engine = (xr_layout){
        .width = 4,
        .axis_count = 4,
        .axes = { { "cp", 1 }, { "tp", 2 }, { "ep", 1 }, { "pp", 2 } }
    };
    run.placement.rollout = run.placement.actor;
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 1);
    engine->axes[3].size = 1;
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 0);
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ROLLOUT, XRAY_ROLE_ACTOR), 0);
    run.layouts[XRAY_ROLE_ACTOR] = (xr_layout){ .width = 0 };
    *engine =
        (xr_layout){ .width = 1, .axis_count = 1, .axes = { { "tp", 1 } } };
    assert_int_equal(
        xr_replicas_match(&run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT), 1);
}

/* ---- groups -------------------------------------------------------------- */

/* Rank 15 is at the position 5: the second rank of the first stage of the
 * second replica. */
static void a_rank_joins_a_group_for_each_axis(void **state)
{
    (void)state;
    assert_int_equal(join_worlds(15), XRAY_OK);
    expect_groups(
        "10 11 12 13 14 15 16 17; 14 15 16 17; 14 15; 15 17; 11 15; ");
    expect_subgroups(XRAY_ROLE_ACTOR,
                     "tp 1/2 3; pp 0/2 4; dp 1/2 5; replica 1/4 2; ");
    const xray_world *world = &roles->worlds[XRAY_ROLE_ACTOR];
    assert_int_equal(world->rank, 5);
    assert_int_equal(world->size, 8);
    assert_int_equal(number_of(world->group), 1);
    assert_ptr_equal(world->comm, &comm_ops);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(world->global_ranks[i], 10 + i);
    /* An engine of one rank depends on no other. */
    world = &roles->worlds[XRAY_ROLE_ROLLOUT];
    assert_int_equal(world->size, 1);
    assert_null(world->comm);
    assert_int_equal(world->global_ranks[0], 15);
    expect_subgroups(XRAY_ROLE_ROLLOUT, "dp 0/1 0; replica 0/1 0; ");
}

/* An engine of two ranks is a world of its own. */
static void an_engine_is_a_world_of_its_own(void **state)
{
    (void)state;
    run.train.component = NULL;
    run.layouts[XRAY_ROLE_ACTOR].width = 1;
    run.layouts[XRAY_ROLE_ACTOR].axis_count = 0;
    run.layouts[XRAY_ROLE_ROLLOUT] =
        (xr_layout){ .width = 2, .axis_count = 1, .axes = { { "tp", 2 } } };
    assert_int_equal(join_worlds(13), XRAY_OK);
    expect_groups("10 11 12 13 14 15 16 17; 12 13; ");
    expect_subgroups(XRAY_ROLE_ACTOR, "dp 3/8 1; replica 0/1 0; ");
    expect_subgroups(XRAY_ROLE_ROLLOUT, "tp 1/2 2; dp 0/1 0; replica 1/2 2; ");
    const xray_world *world = &roles->worlds[XRAY_ROLE_ROLLOUT];
    assert_int_equal(world->rank, 1);
    assert_int_equal(world->size, 2);
    assert_int_equal(world->global_ranks[0], 12);
    assert_int_equal(world->global_ranks[1], 13);
}

/* A subgroup with the ranks of another one uses its group. */
static void equal_ranks_share_a_group(void **state)
{
    (void)state;
    run.placement.actor.count = 4;
    assert_int_equal(join_worlds(13), XRAY_OK);
    expect_groups("10 11 12 13; 12 13; 11 13; ");
    expect_subgroups(XRAY_ROLE_ACTOR,
                     "tp 1/2 2; pp 1/2 3; dp 0/1 0; replica 3/4 1; ");
    run.placement.actor.count = 8;
    run.layouts[XRAY_ROLE_ACTOR].axes[0].size = 1;
    run.layouts[XRAY_ROLE_ACTOR].width = 2;
    assert_int_equal(join_worlds(13), XRAY_OK);
    expect_groups("10 11 12 13 14 15 16 17; 12 13; 11 13 15 17; ");
    expect_subgroups(XRAY_ROLE_ACTOR,
                     "tp 0/1 0; pp 1/2 2; dp 1/4 3; replica 1/2 2; ");
}

/* A model that is held as the policy uses the policy's groups; one that is cut
 * otherwise has its own. */
static void models_held_alike_share_groups(void **state)
{
    (void)state;
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    run.layouts[XRAY_ROLE_REFERENCE] =
        (xr_layout){ .width = 4,
                     .axis_count = 3,
                     .axes = { { "cp", 1 }, { "tp", 2 }, { "pp", 2 } } };
    run.layouts[XRAY_ROLE_CRITIC] =
        (xr_layout){ .width = 2, .axis_count = 1, .axes = { { "cp", 2 } } };
    assert_int_equal(join_worlds(10), XRAY_OK);
    expect_groups("10 11 12 13 14 15 16 17; 10 11 12 13; 10 11; 10 12; 10 14; "
                  "10 11 12 13 14 15 16 17; 10 11; 10 12 14 16; ");
    expect_subgroups(XRAY_ROLE_REFERENCE,
                     "cp 0/1 0; tp 0/2 3; pp 0/2 4; dp 0/2 5; replica 0/4 2; ");
    expect_subgroups(XRAY_ROLE_CRITIC, "cp 0/2 7; dp 0/4 8; replica 0/2 7; ");
}

static void a_group_that_fails_is_reported(void **state)
{
    (void)state;
    refuses = 1;
    assert_int_equal(join_worlds(10), XRAY_E_PEER);
    assert_non_null(strstr(err.text, "comm.fake: group"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_in_a_row_hold_a_model),
        TEST(only_equal_layouts_on_equal_ranks_match),
        TEST(a_rank_joins_a_group_for_each_axis),
        TEST(an_engine_is_a_world_of_its_own),
        TEST(equal_ranks_share_a_group),
        TEST(models_held_alike_share_groups),
        TEST(a_group_that_fails_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
