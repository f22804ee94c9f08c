/* SPDX-License-Identifier: Apache-2.0
 *
 * The caller's side of actors survives the failure of each of its allocations.
 */
#include "tests/actor/rig.h"
#include "tests/alloc/failing.h"

static xray_status use_actors(xr_actors *actors, xr_err *err)
{
    const xr_actor_spawn_spec spec = { &rig_class, rig_argv, "workhorse",
                                       "",         0,        1 };
    xr_actor *actor = NULL;
    xray_region *region = NULL;
    xr_str text = { 0 };
    uint64_t sum;
    xray_status status = xr_actor_spawn(actors, &spec, err, &actor);
    if (!status)
        status = xr_actor_ready(actor, 30000, err);
    if (!status)
        status = xr_actor_ask(actor, "echo", 30000, err, 1u, 2, UINT64_C(3),
                              INT64_C(4), 5.0, "text", "bytes", UINT64_C(5),
                              NULL, NULL, NULL, NULL, NULL, &text, NULL);
    if (!status)
        status = xr_region_get(actors, 4096, err, &region);
    if (!status)
        status = xr_actor_ask(actor, "add_one", 30000, err, region,
                              UINT64_C(4096), &sum);
    if (!status)
        status = xr_actor_ask(actor, "make", 30000, err, UINT64_C(4096), 1u,
                              &region);
    if (!status)
        status = xr_actor_stop(actor, 30000, err);
    xr_str_free(&text);
    return status;
}

static xray_status try_actors(void *ctx, xr_err *err)
{
    const xr_actors_setup setup = { .actors = 2 };
    xr_actors *actors = NULL;
    (void)ctx;
    xray_status status = xr_actors_new(&setup, err, &actors);
    if (!status)
        status = use_actors(actors, err);
    xr_actors_free(actors);
    return status;
}

static void actors_survive_failing_allocations(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    failing_sweep("actors", try_actors, NULL, 0);
    assert_int_equal(rig_fds(), fds);
    assert_int_equal(rig_maps(), 0);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (rig_child(argc, argv, &code))
        return code;
    failing_init();
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        actors_survive_failing_allocations) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
