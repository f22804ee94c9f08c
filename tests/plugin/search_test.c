/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the search path over folders of files that list as plugins: order,
 * hiding, names that are provided, and the error for a missing name.
 */
#include "core/run/run_setup.h"
#include "tests/plugin/image.h"

static const char *make_folder(const char *name)
{
    const char *path = scratch_path(name);
    assert_int_equal(xr_dir_make(path, NULL), XRAY_OK);
    return path;
}

static void put_plugin(const char *in, const char *file, const char *name,
                       const char *provides)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", make_folder(in), file);
    write_plugin(path, name, provides);
}

/* Expects "name", or "-name" for refused files, and "hidden", in order. */
static void expect_list(const char *path, const char *want)
{
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    xr_str text = { 0 };
    if (xr_plugins_open(path, &err, &plugins) != XRAY_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < xr_plugins_count(plugins); i++) {
        const xr_plugin_file *f = xr_plugins_at(plugins, i);
        xr_str_printf(&text, "%s%s%s:%s:%s:%s", i ? " " : "",
                      f->hidden    ? "hidden-"
                      : f->refused ? "refused-"
                                   : "",
                      strrchr(f->path, '/') + 1, f->name, f->version,
                      f->provides);
    }
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
    xr_plugins_close(plugins);
}

static void expect_none(const char *path, const char *iface, const char *name,
                        const char *want)
{
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    const xray_component *component = NULL;
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_OK);
    assert_int_equal(xr_plugins_find(plugins, iface, name, &err, &component),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, want);
    assert_null(component);
    xr_plugins_close(plugins);
}

static void files_are_listed_by_name(void **state)
{
    (void)state;
    static const char *const names[] = { "z.so",  "b.so", ".so",
                                         "a.so2", "a.SO", "ab.so",
                                         "so",    "aso",  "x.so.1" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%zu", i);
        put_plugin("sorted", names[i], name, "xray.algo/0:x");
    }
    expect_list(scratch_path("sorted"), "ab.so:n5:7:xray.algo/0:x "
                                        "b.so:n1:7:xray.algo/0:x "
                                        "z.so:n0:7:xray.algo/0:x");
}

/* More files than the initial capacity, each with its own name. */
static void many_files_are_listed(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    for (int i = 0; i < 40; i++) {
        char file[16];
        char name[16];
        (void)snprintf(file, sizeof(file), "f%02d.so", i);
        (void)snprintf(name, sizeof(name), "p%02d", i);
        put_plugin("many", file, name, name);
    }
    assert_int_equal(xr_plugins_open(scratch_path("many"), &err, &plugins),
                     XRAY_OK);
    assert_int_equal(xr_plugins_count(plugins), 40);
    for (int i = 0; i < 40; i++) {
        char name[16];
        const xr_plugin_file *f = xr_plugins_at(plugins, (size_t)i);
        (void)snprintf(name, sizeof(name), "p%02d", i);
        assert_string_equal(f->name, name);
        assert_string_equal(f->provides, name);
        assert_null(f->refused);
    }
    assert_null(xr_plugins_at(plugins, 40));
    xr_plugins_close(plugins);
    xr_plugins_close(NULL);
}

static void folders_of_the_environment_come_second(void **state)
{
    (void)state;
    char path[1024];
    char want[1024];
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    put_plugin("first", "a.so", "same", "xray.algo/0:x");
    put_plugin("second", "b.so", "same", "xray.algo/0:x");
    put_plugin("second", "c.so", "other", "xray.algo/0:y");
    assert_int_equal(setenv("XRAY_PLUGIN_PATH", make_folder("second"), 1), 0);
    expect_list(make_folder("first"),
                "a.so:same:7:xray.algo/0:x hidden-b.so::: "
                "c.so:other:7:xray.algo/0:y");
    assert_int_equal(xr_plugins_open(make_folder("first"), &err, &plugins),
                     XRAY_OK);
    (void)snprintf(want, sizeof(want),
                   "%s/second/b.so: hidden by %s/first/a.so, which comes "
                   "earlier on the path",
                   scratch_dir(), scratch_dir());
    assert_string_equal(xr_plugins_at(plugins, 1)->refused, want);
    xr_plugins_close(plugins);
    /* A hidden file is not refused for a fault of its own. */
    expect_none(make_folder("first"), "xray.algo/0", "none",
                "no plugin provides xray.algo/0:none; available: x, y");
    expect_list(NULL, "b.so:same:7:xray.algo/0:x c.so:other:7:xray.algo/0:y");
    expect_list("", "b.so:same:7:xray.algo/0:x c.so:other:7:xray.algo/0:y");
    assert_int_equal(unsetenv("XRAY_PLUGIN_PATH"), 0);
    /* Nothing between two colons is not a folder. */
    (void)snprintf(path, sizeof(path), "::%s/second::%s/first:", scratch_dir(),
                   scratch_dir());
    expect_list(path, "b.so:same:7:xray.algo/0:x c.so:other:7:xray.algo/0:y "
                      "hidden-a.so:::");
    (void)snprintf(path, sizeof(path), "%s/first/a.so", scratch_dir());
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "a.so: the folder does not exist"));
}

/* Only names that two folders share are hidden; a refused file hides none. */
static void refused_file_hides_nothing(void **state)
{
    (void)state;
    char path[1024];
    put_plugin("bad", "a.so", "same2", "xray.algo/0:x");
    assert_int_equal(truncate(scratch_path("bad/a.so"), 100), 0);
    put_plugin("good", "a.so", "same2", "xray.algo/0:x");
    write_exporting(scratch_path("bad/b.so"), "same2", "xray.algo/0:x",
                    "other");
    (void)snprintf(path, sizeof(path), "%s/bad:%s/good", scratch_dir(),
                   scratch_dir());
    expect_list(path,
                "refused-a.so::: refused-b.so::: a.so:same2:7:xray.algo/0:x");
    expect_none(
        path, "xray.algo/0", "w",
        "no plugin provides xray.algo/0:w; available: x; did you mean x?; "
        "2 files were refused, see `xray plugin list`");
}

static void folders_are_bounded(void **state)
{
    (void)state;
    char path[8192] = "";
    char here[64];
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    for (int i = 0; i < 64; i++) {
        (void)snprintf(here, sizeof(here), "many%d", i);
        (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), "%s%s",
                       i ? ":" : "", make_folder(here));
    }
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_OK);
    xr_plugins_close(plugins);
    (void)snprintf(path + strlen(path), sizeof(path) - strlen(path), ":%s",
                   make_folder("many64"));
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_E_CONFIG);
    assert_string_equal(err.text, "plugin path: more than 64 folders");
    memset(path, 'x', sizeof(path));
    path[XR_PATH_CAP] = '\0';
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_E_CONFIG);
    assert_string_equal(err.text, "plugin path: a folder's name is too long");
}

/* ---- finding ------------------------------------------------------------ */

static void similar_names_are_suggested(void **state)
{
    (void)state;
    char want[1024];
    put_plugin("find", "a.so", "a", "xray.algo/0:grpo  xray.reward/0:rule");
    put_plugin("find", "b.so", "b",
               " xray.algo/0:ppo xray.algo/01:longer xray.algo/0");
    put_plugin("find", "c.so", "c", "xray.algo/0:ppo_critic");
    const char *path = make_folder("find");
    static const char available[] = "available: grpo, ppo, ppo_critic";
    static const struct {
        const char *name;
        const char *more;
    } rows[] = {
        { "grp", "; did you mean grpo?" },
        { "pppo", "; did you mean ppo?" },
        { "gxpx", "" }, /* half of a short word is wrong */
        { "pp", "; did you mean ppo?" },
        { "ppo_critc", "; did you mean ppo_critic?" },
        { "ppo_crxxic", "; did you mean ppo_critic?" },
        { "ppo_cxxxic", "" },
        { "longer", "" },
        { "rule", "" },
        { "", "" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)snprintf(want, sizeof(want),
                       "no plugin provides xray.algo/0:%s; %s%s", rows[i].name,
                       available, rows[i].more);
        expect_none(path, "xray.algo/0", rows[i].name, want);
    }
    expect_none(path, "xray.train/0", "zero3",
                "no plugin provides xray.train/0:zero3; available: none");
    put_plugin("find", "d.so", "d", "xray.algo/0:grpo");
    path = make_folder("find");
    (void)snprintf(want, sizeof(want),
                   "xray.algo/0:grpo is provided twice, by %s/a.so and "
                   "%s/d.so",
                   path, path);
    expect_none(path, "xray.algo/0", "grpo", want);
}

/* A name may begin another one, which may be listed before it. */
static void sections_are_those_of_entire_names(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    put_plugin("names", "a.so", "a",
               "xray.reward/0:far_x xray.reward/0:far xray.algo/0:near");
    assert_int_equal(xr_plugins_open(scratch_path("names"), &err, &plugins),
                     XRAY_OK);
    const xr_run run = { .plugins = plugins };
    assert_int_equal(xr_run_provides(&run, "reward.far_x"), 1);
    assert_int_equal(xr_run_provides(&run, "reward.far"), 1);
    assert_int_equal(xr_run_provides(&run, "reward.fa"), 0);
    assert_int_equal(xr_run_provides(&run, "reward.near"), 0);
    assert_int_equal(xr_run_provides(&run, "algo.near"), 1);
    xr_plugins_close(plugins);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_listed_by_name),
        cmocka_unit_test(many_files_are_listed),
        cmocka_unit_test(folders_of_the_environment_come_second),
        cmocka_unit_test(refused_file_hides_nothing),
        cmocka_unit_test(folders_are_bounded),
        cmocka_unit_test(similar_names_are_suggested),
        cmocka_unit_test(sections_are_those_of_entire_names),
    };
    (void)unsetenv("XRAY_PLUGIN_PATH");
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
