/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks are on which host, and what is refused.
 */
#include "core/config/config.h"
#include "core/run/hosts.h"
#include "tests/testing.h"

static xr_placement got;
static xr_errors errors;

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
    got = (xr_placement){ .size = 4, .most_here = 4 };
    xr_errors_free(&errors);
    xr_hosts_read(config, ini, &got, &errors);
    xr_config_free(config);
}

static void expect_hosts(const xr_run_config *ini, const char *want)
{
    char text[200] = "";
    char name[XR_HOST_NAME_CAP];
    size_t at = 0;
    for (uint32_t r = 0; r < 4; r++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s.%u",
                               r ? " " : "", xr_hosts_name(ini, &got, r, name),
                               got.local[r]);
    assert_string_equal(text, want);
}

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
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
          ":4",
          "b", "is not the name of a host" },
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_fill_hosts_in_order),
        cmocka_unit_test(wrong_hosts_are_refused),
        cmocka_unit_test(what_hosts_need_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
