/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which layer wins, which origin a value has, and how values are
 * visited.
 */
#include "tests/config/odd_types.h"

/* ---- layers ------------------------------------------------------------- */

static void names_are_bounded(void **state)
{
    (void)state;
    char set[256];
    char section[130];
    char key[80];
    xr_errors errors = { 0 };
    static const char *const bad[] = { ".k=v",    "t.=v",   "=v",
                                       "t k.x=v", "t.k/=v", "tk=v.w" };
    xr_config *config = xr_config_new();
    memset(section, 's', sizeof(section));
    memset(key, 'k', sizeof(key));
    (void)snprintf(set, sizeof(set), "%.49s.%.49s=v=w.x", section, key);
    xr_config_set(config, set, &errors);
    expect_errors(&errors, "");
    section[49] = key[49] = '\0';
    assert_string_equal(xr_config_get(config, section, key), "v=w.x");
    section[49] = key[49] = 's';
    (void)snprintf(set, sizeof(set), "%.50s.%.49s=v", section, key);
    xr_config_set(config, set, &errors);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.items[0],
                           "=v: a section or a key has at most 49 "
                           "characters"));
    (void)snprintf(set, sizeof(set), "%.49s.%.50s=v", section, key);
    xr_config_set(config, set, &errors);
    assert_int_equal(errors.count, 2);
    assert_non_null(strstr(errors.items[1],
                           "=v: a section or a key has at most 49 "
                           "characters"));
    xr_errors_free(&errors);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char want[128];
        xr_config_set(config, bad[i], &errors);
        (void)snprintf(want, sizeof(want),
                       "--set %s: expected section.key=value", bad[i]);
        expect_errors(&errors, want);
    }
    assert_null(xr_config_section(config, 1));
    xr_config_free(config);
}

static void environment_names_sections_and_keys(void **state)
{
    (void)state;
    char longest[128];
    char v1[] = "XRAY_A_B_C__TOKEN=1=2";
    char v2[] = "XRAY_A_B_C__=4";
    char v3[] = "XRAY_A_B_C_COUNT=4";
    char v4[] = "XRAY_LONE";
    char v5[] = "OTHER_A_B_C__COUNT=4";
    char v6[] = "XRAY_A_B_C__Name=mixed";
    xr_errors errors = { 0 };
    odd_types t;
    char longer[128];
    (void)snprintf(longest, sizeof(longest), "XRAY_A_B_C__%049d=1", 0);
    (void)snprintf(longer, sizeof(longer), "XRAY_A_B_C__%050d=1", 0);
    char *const environment[] = {
        v1, v2, v3, v4, v5, v6, longest, longer, NULL
    };
    xr_config *config = xr_config_new();
    xr_config_environment(config, environment, &errors);
    xr_config_decode(config, "a.b-c", XR_TABLE(options), &t, &errors);
    expect_errors(&errors, "");
    assert_string_equal(xr_config_get(config, "a.b-c", "token"), "1=2");
    assert_string_equal(xr_config_origin(config, "a.b-c", "token"),
                        "XRAY_A_B_C__TOKEN");
    (void)snprintf(longer, sizeof(longer), "%049d", 0);
    assert_string_equal(xr_config_get(config, "a.b-c", longer), "1");
    (void)snprintf(longer, sizeof(longer), "%050d", 0);
    assert_null(xr_config_get(config, "a.b-c", longer));
    assert_string_equal(t.name, "mixed");
    xr_config_free(config);
}

/* The last value of a layer holds; a value of a lower layer never does. */
static void last_value_of_a_layer_wins(void **state)
{
    (void)state;
    char v1[] = "XRAY_T__COUNT=4";
    char *const environment[] = { v1, NULL };
    xr_errors errors = { 0 };
    odd_types t;
    xr_config *config = xr_config_new();
    xr_config_set(config, "t.name=one", &errors);
    xr_config_set(config, "t.name=two", &errors);
    xr_config_preset(config, "t", "name", "preset");
    xr_config_preset(config, "t", "free_count", "8");
    xr_config_preset(config, "t", "free_count", "9");
    xr_config_preset(config, "t", "count", "5");
    xr_config_environment(config, environment, &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_set(config, "t.count=6", &errors);
    expect_errors(&errors, "");
    assert_string_equal(t.name, "two");
    assert_int_equal(t.count, 4);
    assert_string_equal(xr_config_get(config, "t", "count"), "6");
    assert_string_equal(xr_config_origin(config, "t", "count"), "--set");
    assert_string_equal(xr_config_origin(config, "t", "free_count"), "default");
    xr_config_free(config);
}

static void values_know_their_origin(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    odd_types t;
    xr_config *config = xr_config_new();
    assert_string_equal(xr_config_path(config), "configuration");
    write_text("other.ini", "[t]\nname = x\n");
    write_text("run.ini", "[t]\ncount = 11\nrate = 0.5\nmode = cosine\n");
    xr_config_read(config, "run.ini", &errors);
    xr_config_read(config, "other.ini", &errors);
    expect_errors(&errors, "");
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    expect_errors(&errors,
                  "run.ini:2: [t] count: 11 is out of range; expected 1 to 10");
    assert_string_equal(xr_config_path(config), "run.ini");
    assert_string_equal(xr_config_location(config, "t", "rate"), "run.ini:3");
    assert_string_equal(xr_config_location(config, "t", "memory"), "run.ini");
    assert_string_equal(xr_config_location(config, "none", "memory"),
                        "run.ini");
    assert_string_equal(xr_config_origin(config, "t", "memory"), "default");
    assert_string_equal(xr_config_origin(config, "none", "k"), "default");
    assert_null(xr_config_get(config, "none", "k"));
    assert_null(xr_config_get(config, "t", "none"));
    assert_int_equal(xr_config_refused(config, "t", "count"), 1);
    assert_int_equal(xr_config_refused(config, "t", "rate"), 0);
    assert_int_equal(xr_config_refused(config, "t", "none"), 0);
    assert_int_equal(xr_config_failed(config), 0);
    assert_int_equal(xr_config_unread(config), 0);
    xr_config_free(config);
}

/* More sections and keys than the initial capacity. */
static void many_sections_and_keys_are_kept(void **state)
{
    (void)state;
    char set[64];
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    for (int i = 0; i < 40; i++) {
        (void)snprintf(set, sizeof(set), "s%d.k=%d", i, i);
        xr_config_set(config, set, &errors);
        (void)snprintf(set, sizeof(set), "all.k%d=%d", i, i);
        xr_config_set(config, set, &errors);
    }
    expect_errors(&errors, "");
    for (int i = 0; i < 40; i++) {
        char name[16];
        char text[16];
        (void)snprintf(text, sizeof(text), "%d", i);
        (void)snprintf(name, sizeof(name), "s%d", i);
        assert_string_equal(xr_config_get(config, name, "k"), text);
        (void)snprintf(name, sizeof(name), "k%d", i);
        assert_string_equal(xr_config_get(config, "all", name), text);
    }
    assert_string_equal(xr_config_section(config, 1), "all");
    assert_string_equal(xr_config_section(config, 40), "s39");
    assert_null(xr_config_section(config, 41));
    xr_config_free(config);
}

static void errors_are_lines(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    for (int i = 0; i < 40; i++)
        xr_errors_add(&errors, "%d\nof\t%s", i, "them");
    assert_int_equal(errors.count, 40);
    for (int i = 0; i < 40; i++) {
        char want[32];
        (void)snprintf(want, sizeof(want), "%d of them", i);
        assert_string_equal(errors.items[i], want);
    }
    xr_errors_free(&errors);
    assert_int_equal(errors.count, 0);
    assert_null(errors.items);
}

/* ---- visiting and printing ----------------------------------------------- */

static void expect_next(const xr_config *config, const char *want)
{
    size_t at[2] = { 0, 0 };
    xr_config_value v;
    xr_str text = { 0 };
    while (xr_config_next(config, at, &v))
        xr_str_printf(&text, "%s.%s=%s (%s)%s%s\n", v.section, v.key, v.text,
                      v.origin, v.given ? " given" : "",
                      v.is_paths ? " paths" : "");
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
}

static void values_are_visited_in_order(void **state)
{
    (void)state;
    static const xray_option few[] = {
        XRAY_INT(odd_types, count, "3", 1, 10, NULL, 0u, "0.1", ""),
        XRAY_PATH(odd_types, file, "/p", 0u, "0.1", ""),
        XRAY_LIST(odd_types, files, "/q", XRAY_OPT_PATHS, "0.1", ""),
        XRAY_STRING(odd_types, token, "", XRAY_OPT_SECRET, "0.1", ""),
    };
    odd_types t;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    expect_next(config, "");
    xr_config_set(config, "u.other=1", &errors);
    xr_config_set(config, "t.token=hush", &errors);
    xr_config_set(config, "t.file=/z", &errors);
    xr_config_set(config, "t.unknown=1", &errors);
    xr_config_set(config, "v.last=2", &errors);
    expect_next(config, "u.other=1 (--set) given\n"
                        "t.token=hush (--set) given\n"
                        "t.file=/z (--set) given\n"
                        "t.unknown=1 (--set) given\n"
                        "v.last=2 (--set) given\n");
    xr_config_decode(config, "t", XR_TABLE(few), &t, &errors);
    expect_errors(&errors, "");
    expect_next(config, "t.file=/z (--set) given paths\n"
                        "t.count=3 (default)\n"
                        "t.files=/q (default) paths\n");
    xr_config_set(config, "t.file=/later", &errors);
    expect_next(config, "t.file=/later (--set) given paths\n"
                        "t.count=3 (default)\n"
                        "t.files=/q (default) paths\n");
    xr_config_free(config);
}

static void sections_are_separated_by_a_line(void **state)
{
    (void)state;
    static const xray_option one[] = {
        XRAY_INT(odd_types, count, "3", 1, 10, NULL, 0u, "0.1", ""),
    };
    static const xray_option secret[] = {
        XRAY_STRING(odd_types, token, "x", XRAY_OPT_SECRET, "0.1", ""),
    };
    odd_types t;
    xr_errors errors = { 0 };
    xr_str text = { 0 };
    xr_config *config = xr_config_new();
    xr_config_decode(config, "a", XR_TABLE(one), &t, &errors);
    xr_config_decode(config, "b", XR_TABLE(secret), &t, &errors);
    xr_config_set(config, "c.count=5", &errors);
    xr_config_decode(config, "c", XR_TABLE(one), &t, &errors);
    xr_config_print(config, 0, &text);
    assert_string_equal(xr_str_text(&text),
                        "[a]\ncount = 3\n\n[c]\ncount = 5\n");
    expect_errors(&errors, "");
    xr_str_free(&text);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_bounded),
        cmocka_unit_test(environment_names_sections_and_keys),
        cmocka_unit_test(last_value_of_a_layer_wins),
        cmocka_unit_test(values_know_their_origin),
        cmocka_unit_test(many_sections_and_keys_are_kept),
        cmocka_unit_test(errors_are_lines),
        cmocka_unit_test(values_are_visited_in_order),
        cmocka_unit_test(sections_are_separated_by_a_line),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
