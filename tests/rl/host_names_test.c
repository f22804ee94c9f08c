/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks are on which host, and what is refused.
 */
#include "core/config/config.h"
#include "core/run/hosts.h"
#include "tests/testing.h"

static xr_placement got;
static xr_errors errors;
static uint32_t engine; /* XR_ENGINE_* */

/* Decodes up to four hosts, for four ranks unless `ini` says otherwise. */
static void read_hosts(xr_run_config *ini, const char *const *hosts)
{
    xr_config *config = xr_config_new();
    assert_non_null(config);
    if (!ini->run.runtime)
        ini->run.runtime = "hosts";
    if (!ini->runtime.launch)
        ini->runtime.launch = "ssh {host} xray workhorse {address}";
    if (!ini->runtime.interface)
        ini->runtime.interface = "eth0";
    ini->placement.hosts = (xray_list){ .items = hosts };
    while (ini->placement.hosts.count < 4 && hosts[ini->placement.hosts.count])
        ini->placement.hosts.count++;
    got = (xr_placement){ .size = 4, .most_here = 4, .engine = engine };
    xr_errors_free(&errors);
    xr_hosts_read(config, ini, &got, &errors);
    xr_config_free(config);
}

static void expect_hosts(const xr_run_config *ini, const char *want)
{
    char text[300] = "";
    char name[XR_HOST_NAME_CAP];
    size_t at = 0;
    for (uint32_t r = 0; r < 4; r++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s.%u",
                               r ? " " : "", xr_hosts_name(ini, &got, r, name),
                               got.local[r]);
    assert_string_equal(text, want);
}

/* As many characters as a name may have. */
#define NAME_63 \
    "n23456789-123456789-123456789-123456789-123456789-123456789-123"

static void ranks_fill_hosts_in_order(void **state)
{
    static const struct {
        const char *hosts[4];
        const char *ranks;
        uint32_t most;
        uint32_t count;
    } cases[] = {
        { { "a:2", "b:2" }, "a.0 a.1 b.0 b.1", 2, 2 },
        { { "a", "b:3" }, "a.0 b.0 b.1 b.2", 3, 2 },
        { { "a", "b", "c", "10.0.0.4" }, "a.0 b.0 c.0 10.0.0.4.0", 1, 4 },
        { { "a:4", "b:4" }, "a.0 a.1 a.2 a.3", 4, 1 },
        { { "_n-1.A_z:2", "Zz09:2" },
          "_n-1.A_z.0 _n-1.A_z.1 Zz09.0 Zz09.1",
          2,
          2 },
        { { NAME_63 ":4" },
          NAME_63 ".0 " NAME_63 ".1 " NAME_63 ".2 " NAME_63 ".3",
          4,
          1 },
        { { "a:3", "b:1024" }, "a.0 a.1 a.2 b.0", 3, 2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_run_config ini = { 0 };
        read_hosts(&ini, cases[i].hosts);
        assert_int_equal(errors.count, 0);
        expect_hosts(&ini, cases[i].ranks);
        assert_int_equal(got.most_here, cases[i].most);
        assert_int_equal(got.hosts, cases[i].count);
    }
}

static void expect_fault(const char *text)
{
    assert_int_equal(errors.count, 1);
    if (!strstr(errors.items[0], text))
        fail_msg("expected \"%s\" in: %s", text, errors.items[0]);
}

static void wrong_hosts_are_refused(void **state)
{
    static const char *const cases[][3] = {
        { "a:2", "b", "has places for 3 ranks, but [run] ranks is 4" },
        { "a:2", "a:2", "\"a:2\" names a host twice" },
        { "a:0", "b:4", "\"a:0\" has no number of ranks" },
        { "a:", "b:4", "\"a:\" has no number of ranks" },
        { "a:1025", "b", "\"a:1025\" has no number of ranks" },
        { "a:x", "b", "\"a:x\" has no number of ranks" },
        { ":4", "b", "\":4\" is not the name of a host" },
        { "-a:4", "b", "\"-a:4\" is not the name of a host" },
        { "a;b:4", "b", "\"a;b:4\" is not the name of a host" },
        { "a$(b):4", "b", "\"a$(b):4\" is not the name of a host" },
        { NAME_63 "4:4", "b", "4:4\" is not the name of a host" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const hosts[3] = { cases[i][0], cases[i][1], NULL };
        xr_run_config ini = { 0 };
        read_hosts(&ini, hosts);
        expect_fault(cases[i][2]);
    }
}

static void what_hosts_need_is_said(void **state)
{
    static const char *const two[] = { "a:2", "b:2", NULL };
    static const char *const here[] = { "localhost:4", NULL };
    static const char *const none[] = { NULL };
    (void)state;
    xr_run_config ini = { 0 };
    read_hosts(&ini, none);
    expect_fault("hosts needs [placement] hosts");
    ini = (xr_run_config){ .runtime.interface = "" };
    read_hosts(&ini, two);
    expect_fault("hosts needs [runtime] interface");
    read_hosts(&ini, here);
    assert_int_equal(errors.count, 0);
    ini = (xr_run_config){ .runtime.launch = "ssh {host} xray" };
    read_hosts(&ini, two);
    expect_fault("launch does not say {address}");
    ini = (xr_run_config){ .runtime.launch = "xray workhorse {address}" };
    read_hosts(&ini, two);
    expect_fault("launch does not say {host}");
    ini = (xr_run_config){ .runtime.launch = "'ssh {host} {address}" };
    read_hosts(&ini, two);
    expect_fault("launch has a quote that does not end");
    ini = (xr_run_config){ .run.runtime = "local" };
    read_hosts(&ini, two);
    expect_fault("with [run] runtime = local all ranks are on this host");
    /* A plugin's runtime is told the names, and has a launcher of its own. */
    ini = (xr_run_config){ .run.runtime = "ray", .runtime.launch = "" };
    read_hosts(&ini, two);
    assert_int_equal(errors.count, 0);
    expect_hosts(&ini, "a.0 a.1 b.0 b.1");
    ini = (xr_run_config){ .run.runtime = "ray" };
    read_hosts(&ini, none);
    assert_int_equal(errors.count, 0);
    char name[XR_HOST_NAME_CAP];
    assert_null(xr_hosts_name(&ini, &got, 0, name));
    xr_errors_free(&errors);
}

/* A run that an engine places needs an interface, and names no hosts. */
static void engine_chooses_hosts(void **state)
{
    static const char *const two[] = { "a:2", "b:2", NULL };
    static const char *const none[] = { NULL };
    (void)state;
    xr_run_config ini = { .run.runtime = "ray", .runtime.tls = 1 };
    engine = XR_ENGINE_CHOOSES;
    read_hosts(&ini, none);
    assert_int_equal(errors.count, 0);
    assert_int_equal(got.elsewhere, 1);
    read_hosts(&ini, two);
    expect_fault("with [run] runtime = ray the engine chooses the hosts");
    ini.runtime.interface = "";
    read_hosts(&ini, none);
    expect_fault("ray needs [runtime] interface");
    /* A Workhorse is told, and needs no interface. */
    engine = XR_ENGINE_CHOSE;
    read_hosts(&ini, two);
    assert_int_equal(errors.count, 0);
    expect_hosts(&ini, "a.0 a.1 b.0 b.1");
    read_hosts(&ini, none);
    expect_fault("this Workhorse was not told what the engine chose");
    engine = XR_ENGINE_NONE;
    read_hosts(&ini, two);
    expect_fault("[runtime] tls: [run] runtime = ray does not know it");
    xr_errors_free(&errors);
}

static xr_run run; /* too large for the stack */

/* Places four ranks: the text of [placement] hosts, or why not. */
static void expect_places(const char *const *names, const char *want)
{
    xr_str text = { 0 };
    xr_err err = { "" };
    run.placement = (xr_placement){ .size = 4, .most_here = 4 };
    run.launcher.instance = "runtime.ray";
    xray_status status = xr_hosts_place(&run, names, &text, &err);
    if (!strstr(status == XRAY_OK ? xr_str_text(&text) : err.text, want))
        fail_msg("expected \"%s\": %s%s", want, xr_str_text(&text), err.text);
    xr_str_free(&text);
}

static void engine_places_ranks(void **state)
{
    static const char *const names[][4] = {
        { "node1", "node1", "node2", "node2" },
        { "a", "a", "a", "b" },
        { "a", "b", "a", "b" },
        { "a", "b", "b", "two words" },
        { "a", NULL, "b", "b" },
        { "a", "", "b", "b" },
        { "-a", "-a", "b", "b" },
        { NAME_63, NAME_63, "_b", "_b" },
        { "a", NAME_63 "4", NAME_63 "4", NAME_63 "4" },
    };
    (void)state;
    expect_places(names[0], "node1:2, node2:2");
    assert_int_equal(run.placement.hosts, 2);
    assert_int_equal(run.placement.most_here, 2);
    assert_int_equal(run.placement.local[3], 1);
    assert_int_equal(run.placement.host[2], 1);
    expect_places(names[1], "a:3, b:1");
    assert_int_equal(run.placement.most_here, 3);
    expect_places(names[2],
                  "runtime.ray: the host of rank 2, \"a\", has places "
                  "that are no neighbours");
    expect_places(names[3],
                  "the host of rank 3, \"two words\", is not the name");
    expect_places(names[4], "the host of rank 1, \"\", is not the name");
    expect_places(names[5], "the host of rank 1, \"\", is not the name");
    expect_places(names[6], "the host of rank 0, \"-a\", is not the name");
    expect_places(names[7], NAME_63 ":2, _b:2");
    expect_places(names[8],
                  "the host of rank 1, \"" NAME_63 "4\", is not the name");
}

static xr_ranks *ranks_of(uint32_t role)
{
    xr_placement *p = &run.placement;
    return role == XRAY_ROLE_ACTOR       ? &p->actor
           : role == XRAY_ROLE_ROLLOUT   ? &p->rollout
           : role == XRAY_ROLE_REFERENCE ? &p->reference
           : role == XRAY_ROLE_CRITIC    ? &p->critic
                                         : &p->reward;
}

/* Checks a run with all roles; `want` is NULL if it encrypts everything. */
static void expect_encrypted(const char *want)
{
    xr_errors_free(&errors);
    xr_hosts_check_tls(&run, &errors);
    if (want)
        expect_fault(want);
    else
        assert_int_equal(errors.count, 0);
}

/* Ranks 0 and 1 are on one host, 2 and 3 on the other. */
static void prepare_tls_run(xr_config *config)
{
    static const xray_component any = { .name = "any" };
    static struct xr_reward_model_config *const reward_model =
        (struct xr_reward_model_config *)(void *)&run;
    memset(&run, 0, sizeof(run));
    run.config = config;
    run.ini.run.comm = "tcp";
    run.ini.runtime.tls = 1;
    run.train.component = run.infer.component = &any;
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    run.reward_model_config = reward_model;
    run.placement.size = 4;
    run.placement.hosts = 2;
    for (uint32_t r = 0; r < 4; r++)
        run.placement.host[r] = r / 2;
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++)
        *ranks_of(role) = (xr_ranks){ .count = 2, .rank = { 0, 1 } };
}

static void role_that_spans_hosts_is_named(void **state)
{
    static const struct {
        uint32_t role;
        const char *name;
    } roles[] = {
        { XRAY_ROLE_ACTOR, "hosts of [placement] actor are not encrypted" },
        { XRAY_ROLE_REFERENCE, "[placement] reference are not" },
        { XRAY_ROLE_CRITIC, "[placement] critic are not" },
        { XRAY_ROLE_REWARD, "[placement] reward are not" },
    };
    xr_config *config = xr_config_new();
    (void)state;
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        prepare_tls_run(config);
        expect_encrypted(NULL);
        ranks_of(roles[i].role)->rank[0] = 2;
        expect_encrypted(roles[i].name);
        ranks_of(roles[i].role)->rank[1] = 3;
        expect_encrypted(NULL);
        ranks_of(roles[i].role)->rank[0] = 1;
        run.ini.runtime.tls = 0;
        expect_encrypted(NULL);
    }
    xr_config_free(config);
}

/* Engines join the ranks of a replica alone. */
static void engines_beside_each_other_are_encrypted(void **state)
{
    xr_config *config = xr_config_new();
    (void)state;
    prepare_tls_run(config);
    xr_layout *layout = &run.layouts[XRAY_ROLE_ROLLOUT];
    run.placement.rollout = (xr_ranks){ .count = 4, .rank = { 0, 1, 2, 3 } };
    expect_encrypted(NULL);
    layout->width = 2;
    expect_encrypted(NULL);
    layout->width = 4;
    expect_encrypted("[placement] rollout are not");
    layout->width = 2;
    run.placement.rollout = (xr_ranks){ .count = 4, .rank = { 0, 1, 3, 0 } };
    expect_encrypted("[placement] rollout are not");
    xr_errors_free(&errors);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_fill_hosts_in_order),
        cmocka_unit_test(wrong_hosts_are_refused),
        cmocka_unit_test(what_hosts_need_is_said),
        cmocka_unit_test(engine_chooses_hosts),
        cmocka_unit_test(engine_places_ranks),
        cmocka_unit_test(role_that_spans_hosts_is_named),
        cmocka_unit_test(engines_beside_each_other_are_encrypted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
