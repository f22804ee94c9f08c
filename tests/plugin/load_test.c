/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that plugins are found and loaded, that each fault is reported in one
 * sentence, and that listing runs no code of a plugin.
 */
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/plugin/plugin.h"
#include "tests/testing.h"

static char zoo[2048]; /* where the exhibits are */
static char scratch[] = "/tmp/xray-plugin-XXXXXX";

static int find_zoo(void **state)
{
    (void)state;
    const char *build = getenv("XRAY_BUILD");
    (void)snprintf(zoo, sizeof(zoo), "%s/tests/zoo", build ? build : ".");
    return mkdtemp(scratch) ? 0 : -1;
}

static int remove_scratch(void **state)
{
    (void)state;
    return xr_dir_remove(scratch, NULL) == XRAY_OK ? 0 : -1;
}

static const char *get_exhibit_path(const char *kind)
{
    static char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s.so", zoo, kind);
    return path;
}

static const char *get_scratch_path(const char *name)
{
    static char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", scratch, name);
    return path;
}

/* Copies the first `size` bytes of an exhibit. */
static void copy_part(const char *kind, const char *to, size_t size)
{
    char *data = NULL;
    size_t all = 0;
    xr_err err = { "" };
    assert_int_equal(
        xr_file_read(get_exhibit_path(kind), 1 << 26, &err, &data, &all),
        XRAY_OK);
    assert_int_equal(xr_file_write(to, data, size < all ? size : all, &err),
                     XRAY_OK);
    free(data);
}

static void good_plugin_loads(void **state)
{
    (void)state;
    xr_err err = { "" };
    const xray_plugin *plugin = NULL;
    assert_int_equal(xr_plugin_load(get_exhibit_path("good"), &err, &plugin),
                     XRAY_OK);
    assert_string_equal(plugin->name, "zoo");
    assert_string_equal(plugin->components[0]->name, "zoo");
}

static const struct refused {
    const char *kind;
    const char *sentence;
} refusals[] = {
    { "no_note", "has no xray note, so it is not a plugin" },
    { "no_symbol", "exports no xray_plugin_query of its own; XRAY_PLUGIN_ENTRY "
                   "defines it" },
    { "borrowed", "exports no xray_plugin_query of its own; XRAY_PLUGIN_ENTRY "
                  "defines it" },
    { "newer_abi", "built for xray ABI 0.9, but this is 0.3; a draft ABI runs "
                   "only on its own minor version" },
    { "older_abi", "built for xray ABI 0.0, but this is 0.3; a draft ABI runs "
                   "only on its own minor version" },
    { "short_descriptor",
      "its descriptor has 32 bytes, but needs at least 56" },
    { "short_component", "a component lacks interface, summary or callbacks" },
    { "extra_symbols", "exports zoo_helper besides xray_plugin_query; hide all "
                       "other symbols, as xray_add_plugin does" },
    { "newer_descriptor", "needs xray ABI 0.4, but this is 0.3" },
    { "needs_newer", "needs xray ABI 0.4, but this is 0.3" },
    { "missing", "'zoo' lacks loss, which xray.algo/0 requires" },
    { "short_table", "'zoo' lacks prepare, which xray.algo/0 requires" },
    { "refuses", "refuses xray ABI 0.3" },
    { "note_lies",
      "its note lists xray.algo/0:more, which the plugin does not provide" },
    { "unknown_interface",
      "'zoo' implements xray.oracle/0, which this xray does not know" },
    { "bad_preset", "[zoo] count: 11 is out of range; expected 1 to 10" },
    { "empty_descriptor",
      "the header of its descriptor has 0 bytes and ABI 0.0, but this is 0.3: "
      "fill it with XRAY_HEADER(xray_plugin)" },
    { "empty_component", "the header of component 0 has 0 bytes and ABI 0.0, "
                         "but this is 0.3: fill it with "
                         "XRAY_HEADER(xray_component)" },
    { "empty_table", "the header of the callbacks of 'zoo' has 0 bytes and ABI "
                     "0.0, but this is 0.3: fill it with "
                     "XRAY_HEADER(xray_algo_ops)" },
    { "absurd_options", "'zoo' has 2147483648 options in a struct of 8 bytes, "
                        "but at most 4096 in 1048576 are allowed" },
    { "absurd_config",
      "'zoo' has 1 options in a struct of "
      "18446744073709551615 bytes, but at most 4096 in 1048576 are allowed" },
    { "absurd_components",
      "has 2147483648 components, but at most 1024 are allowed" },
    { "bad_field", "option 0 (count) of 'zoo': its field is outside of the "
                   "config struct" },
    { "cut_list", "option 0 (count) of 'zoo': its field is outside of the "
                  "config struct" },
};

static void bad_plugin_is_refused_with_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        xr_err err = { "" };
        const xray_plugin *plugin = NULL;
        const char *path = get_exhibit_path(refusals[i].kind);
        assert_int_equal(xr_plugin_load(path, &err, &plugin), XRAY_E_ABI);
        assert_memory_equal(err.text, path, strlen(path));
        assert_memory_equal(err.text + strlen(path), ": ", 2);
        assert_string_equal(err.text + strlen(path) + 2, refusals[i].sentence);
        assert_null(plugin);
    }
}

/* The note lists something else than the code provides. */
static void note_must_match_the_code(void **state)
{
    (void)state;
    static const char ours[] = "xray.algo/0:zoo";
    static const struct {
        const char *note; /* as long as ours */
        const char *said;
    } rows[] = {
        { "               ",
          "its note lists 0 components, but the plugin has 1" },
        { "xray.algo/0_zoo",
          "its note lists xray.algo/0_zoo, which the plugin does not provide" },
        { "xray.algo/0:zo ",
          "its note lists xray.algo/0:zo, which the plugin does not provide" },
        { "xray.alg/0:zoo ",
          "its note lists xray.alg/0:zoo, which the plugin does not provide" },
        { "xray.algo/1:zoo",
          "its note lists xray.algo/1:zoo, which the plugin does not provide" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *data = NULL;
        char name[32];
        size_t size = 0;
        xr_err err = { "" };
        const xray_plugin *plugin = NULL;
        assert_int_equal(
            xr_file_read(get_exhibit_path("good"), 1 << 26, &err, &data, &size),
            XRAY_OK);
        /* The note's text precedes the strings of the code. */
        for (size_t at = 0; at + sizeof(ours) < size; at++)
            if (memcmp(data + at, "\"provides\":\"", 12) == 0)
                memcpy(data + at + 12, rows[i].note, sizeof(ours) - 1);
        (void)snprintf(name, sizeof(name), "note%zu.so", i);
        const char *path = get_scratch_path(name);
        assert_int_equal(xr_file_write(path, data, size, &err), XRAY_OK);
        free(data);
        assert_int_equal(xr_plugin_load(path, &err, &plugin), XRAY_E_ABI);
        assert_string_equal(err.text + strlen(path) + 2, rows[i].said);
        assert_null(plugin);
        (void)unlink(path);
    }
}

/* A name without a folder is a file in the working directory. */
static void bare_name_loads(void **state)
{
    (void)state;
    xr_err err = { "" };
    char here[2048];
    const xray_plugin *plugin = NULL;
    assert_non_null(getcwd(here, sizeof(here)));
    copy_part("good", get_scratch_path("bare.so"), SIZE_MAX);
    assert_int_equal(chdir(scratch), 0);
    xray_status status = xr_plugin_load("bare.so", &err, &plugin);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(status, XRAY_OK);
    assert_string_equal(plugin->name, "zoo");
    (void)unlink(get_scratch_path("bare.so"));
}

static void other_files_than_elf_are_refused(void **state)
{
    (void)state;
    xr_err err = { "" };
    const xray_plugin *plugin = NULL;
    const char *path = get_scratch_path("text.so");
    assert_int_equal(xr_file_write(path, "hello", 5, &err), XRAY_OK);
    assert_int_equal(xr_plugin_load(path, &err, &plugin), XRAY_E_ABI);
    assert_non_null(strstr(err.text, "text.so: is not a 64-bit ELF file"));
    assert_int_equal(xr_plugin_load("/nowhere/x.so", &err, &plugin), XRAY_E_IO);
    assert_non_null(strstr(err.text, "/nowhere/x.so"));
    (void)unlink(path);
}

/* A file that is cut anywhere is refused, and nothing is read out of bounds. */
static void truncated_file_is_refused(void **state)
{
    (void)state;
    for (size_t size = 0; size < 1500; size += 1 + size / 8) {
        xr_err err = { "" };
        const xray_plugin *plugin = NULL;
        const char *path = get_scratch_path("cut.so");
        copy_part("good", path, size);
        assert_int_not_equal(xr_plugin_load(path, &err, &plugin), XRAY_OK);
        assert_true(strlen(err.text) > strlen(path));
    }
    (void)unlink(get_scratch_path("cut.so"));
}

/* With any byte of the headers changed, there is an answer and never a
 * fault. */
static void damaged_file_is_survived(void **state)
{
    (void)state;
    char text[4096];
    char *data = NULL;
    size_t size = 0;
    xr_err err = { "" };
    assert_int_equal(
        xr_file_read(get_exhibit_path("good"), 1 << 26, &err, &data, &size),
        XRAY_OK);
    for (size_t at = 0; at < 1024 && at < size; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            data[at] = (char)(data[at] ^ (1 << bit));
            (void)xr_note_find(data, size, text, sizeof(text));
            data[at] = (char)(data[at] ^ (1 << bit));
        }
    assert_int_equal(xr_note_find(data, size, text, sizeof(text)), XRAY_OK);
    assert_int_equal(xr_note_find(data, size, text, 20), XRAY_E_RANGE);
    free(data);
}

static void folder_is_listed_and_searched(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    const xray_component *component = NULL;
    copy_part("good", get_scratch_path("b.so"), SIZE_MAX);
    copy_part("no_note", get_scratch_path("a.so"), SIZE_MAX);
    assert_int_equal(xr_file_write(get_scratch_path("c.txt"), "", 0, &err),
                     XRAY_OK);
    assert_int_equal(xr_plugins_open(scratch, &err, &plugins), XRAY_OK);
    assert_int_equal(xr_plugins_count(plugins), 2);
    assert_non_null(strstr(xr_plugins_at(plugins, 0)->refused, "no xray note"));
    assert_string_equal(xr_plugins_at(plugins, 0)->name, "");
    assert_null(xr_plugins_at(plugins, 1)->refused);
    assert_string_equal(xr_plugins_at(plugins, 1)->name, "zoo");
    assert_string_equal(xr_plugins_at(plugins, 1)->version, "1.2.3");
    assert_string_equal(xr_plugins_at(plugins, 1)->provides, "xray.algo/0:zoo");
    assert_null(xr_plugins_at(plugins, 2));
    assert_int_equal(
        xr_plugins_find(plugins, XRAY_IFACE_ALGO, "zoo", &err, &component),
        XRAY_OK);
    assert_string_equal(component->summary, "An exhibit");
    assert_int_equal(
        xr_plugins_find(plugins, XRAY_IFACE_ALGO, "zo", &err, &component),
        XRAY_E_CONFIG);
    static const char says[] = "no plugin provides xray.algo/0:zo; available: "
                               "zoo; did you mean zoo?; a file was refused: ";
    assert_int_equal(strncmp(err.text, says, strlen(says)), 0);
    assert_non_null(strstr(err.text + strlen(says), "a.so: "));
    xr_plugins_close(plugins);

    /* A file that does not load because the symbol is missing is not a valid
     * plugin. */
    copy_part("no_symbol", get_scratch_path("e.so"), SIZE_MAX);
    assert_int_equal(xr_plugins_open(scratch, &err, &plugins), XRAY_OK);
    assert_int_equal(xr_plugins_count(plugins), 3);
    assert_non_null(strstr(xr_plugins_at(plugins, 2)->refused,
                           "exports no xray_plugin_query of its own"));
    xr_plugins_close(plugins);

    copy_part("missing", get_scratch_path("d.so"), SIZE_MAX);
    assert_int_equal(xr_plugins_open(scratch, &err, &plugins), XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "plugin zoo was found twice: "));
    assert_non_null(strstr(err.text, "/b.so and "));
    assert_non_null(strstr(err.text, "/d.so"));
    static const char *const names[] = { "a.so", "b.so", "c.txt", "d.so",
                                         "e.so" };
    for (size_t i = 0; i < 5; i++)
        (void)unlink(get_scratch_path(names[i]));
}

static void search_path_is_checked(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    char twice[128];
    char here[2048];
    char sentence[4096];
    assert_non_null(getcwd(here, sizeof(here)));
    (void)snprintf(sentence, sizeof(sentence),
                   "plugin folder %s/no-such: the folder does not exist", here);
    assert_int_equal(xr_plugins_open("no-such", &err, &plugins), XRAY_E_CONFIG);
    assert_string_equal(err.text, sentence);
    assert_int_equal(xr_plugins_open("/no/where", &err, &plugins),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text,
                        "plugin folder /no/where: the folder does not exist");
    /* Naming one folder twice is not a conflict. */
    copy_part("good", get_scratch_path("b.so"), SIZE_MAX);
    (void)snprintf(twice, sizeof(twice), "%s:%s/.", scratch, scratch);
    assert_int_equal(xr_plugins_open(twice, &err, &plugins), XRAY_OK);
    assert_int_equal(xr_plugins_count(plugins), 1);
    xr_plugins_close(plugins);
    /* A relative folder is relative to the working directory. */
    assert_int_equal(chdir(scratch), 0);
    assert_int_equal(xr_plugins_open(".", &err, &plugins), XRAY_OK);
    assert_int_equal(chdir(here), 0);
    assert_int_equal(xr_plugins_count(plugins), 1);
    assert_int_equal(xr_plugins_at(plugins, 0)->path[0], '/');
    assert_int_equal(access(xr_plugins_at(plugins, 0)->path, R_OK), 0);
    xr_plugins_close(plugins);
    (void)unlink(get_scratch_path("b.so"));
}

/* The first folder's plugin replaces one of the same name in a later folder,
 * and the list reports it. */
static void earlier_folder_comes_first(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_plugins *plugins = NULL;
    const xray_component *component = NULL;
    char own[4096];
    char installed[4096];
    char path[sizeof(own) + sizeof(installed)];
    (void)snprintf(own, sizeof(own), "%s", get_scratch_path("own"));
    (void)snprintf(installed, sizeof(installed), "%s",
                   get_scratch_path("installed"));
    assert_int_equal(mkdir(own, 0700) | mkdir(installed, 0700), 0);
    copy_part("good", get_scratch_path("own/z.so"), SIZE_MAX);
    /* It would be refused if any of its components were requested. */
    copy_part("missing", get_scratch_path("installed/a.so"), SIZE_MAX);
    (void)snprintf(path, sizeof(path), "%s:%s", own, installed);
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_OK);
    assert_int_equal(xr_plugins_count(plugins), 2);
    assert_int_equal(xr_plugins_at(plugins, 0)->hidden, 0);
    assert_int_equal(xr_plugins_at(plugins, 1)->hidden, 1);
    assert_non_null(strstr(xr_plugins_at(plugins, 1)->refused,
                           "/installed/a.so: hidden by "));
    assert_non_null(strstr(xr_plugins_at(plugins, 1)->refused, "/own/z.so"));
    assert_int_equal(
        xr_plugins_find(plugins, XRAY_IFACE_ALGO, "zoo", &err, &component),
        XRAY_OK);
    xr_plugins_close(plugins);
    /* In the opposite order, the broken one is used. */
    (void)snprintf(path, sizeof(path), "%s:%s", installed, own);
    assert_int_equal(xr_plugins_open(path, &err, &plugins), XRAY_OK);
    assert_int_equal(
        xr_plugins_find(plugins, XRAY_IFACE_ALGO, "zoo", &err, &component),
        XRAY_E_ABI);
    assert_non_null(strstr(err.text, "/installed/a.so: 'zoo' lacks loss"));
    xr_plugins_close(plugins);
}

/* A plugin that crashed or hung is not started again in the same program: the
 * first answer stays. Here a file is missing and then restored. */
static void failed_load_is_not_tried_again(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_err again = { "" };
    xr_plugins *plugins = NULL;
    const xray_component *component = NULL;
    copy_part("good", get_scratch_path("f.so"), SIZE_MAX);
    assert_int_equal(xr_plugins_open(scratch, &err, &plugins), XRAY_OK);
    (void)unlink(get_scratch_path("f.so"));
    assert_int_equal(
        xr_plugins_find(plugins, XRAY_IFACE_ALGO, "zoo", &err, &component),
        XRAY_E_IO);
    copy_part("good", get_scratch_path("f.so"), SIZE_MAX);
    assert_int_equal(
        xr_plugins_find(plugins, XRAY_IFACE_ALGO, "zoo", &again, &component),
        XRAY_E_IO);
    assert_non_null(strstr(err.text, "/f.so: "));
    assert_string_equal(again.text, err.text);
    xr_plugins_close(plugins);
    (void)unlink(get_scratch_path("f.so"));
}

/* Checks a component with that table instead of its own. */
static void expect_table(const xray_component *like, xr_table table,
                         const char *sentence)
{
    xr_err err = { "" };
    xray_component c = *like;
    const xray_component *const list[] = { &c };
    c.options = table.options;
    c.option_count = (uint32_t)table.count;
    c.config_size = 64;
    const xray_plugin plugin = {
        .header = XRAY_HEADER(xray_plugin),
        .abi_needed = XRAY_ABI_NEEDED,
        .component_count = 1,
        .name = "p",
        .version = "1",
        .vendor = "me",
        .license = "MIT",
        .components = list,
    };
    assert_int_equal(xr_plugin_check(&plugin, "p.so", &err),
                     *sentence ? XRAY_E_ABI : XRAY_OK);
    assert_string_equal(err.text, sentence);
}

static void only_a_backends_path_takes_a_deepspeed_json(void **state)
{
    (void)state;
    typedef struct config {
        const char *a;
        const char *b;
        int64_t count;
    } config;
    static const xray_option one[] = {
        XRAY_PATH(config, a, "", XRAY_OPT_DEEPSPEED, "1", "A file."),
        XRAY_PATH(config, b, "", 0u, "1", "A file."),
    };
    static const xray_option two[] = {
        XRAY_PATH(config, a, "", XRAY_OPT_DEEPSPEED, "1", "A file."),
        XRAY_PATH(config, b, "", XRAY_OPT_DEEPSPEED, "1", "A file."),
    };
    static const xray_option no_path[] = {
        XRAY_STRING(config, a, "", XRAY_OPT_DEEPSPEED, "1", "A file."),
    };
    char path[4096];
    xr_err err = { "" };
    const xray_plugin *backend = NULL;
    const xray_plugin *algo = NULL;
    const char *build = getenv("XRAY_BUILD");
    (void)snprintf(path, sizeof(path), "%s/plugins/backend-zero3.so",
                   build ? build : ".");
    assert_int_equal(xr_plugin_load(path, &err, &backend), XRAY_OK);
    assert_int_equal(xr_plugin_load(get_exhibit_path("good"), &err, &algo),
                     XRAY_OK);
    const xray_component *train = backend->components[0];
    expect_table(train, XR_TABLE(one), "");
    expect_table(train, XR_TABLE(two),
                 "p.so: 'zero3' has two options that name a DeepSpeed JSON, a "
                 "and b");
    expect_table(train, XR_TABLE(no_path),
                 "p.so: option 0 (a) of 'zero3': only a PATH of a training "
                 "backend names a DeepSpeed JSON");
    expect_table(algo->components[0], XR_TABLE(one),
                 "p.so: option 0 (a) of 'zoo': only a PATH of a training "
                 "backend names a DeepSpeed JSON");
}

static void only_a_text_or_path_names_a_model(void **state)
{
    typedef struct config {
        int64_t count;
    } config;
    static const xray_option number[] = {
        XRAY_INT(config, count, "0", 0, 1, NULL, XRAY_OPT_MODEL, "1", "One."),
    };
    xr_err err = { "" };
    const xray_plugin *algo = NULL;
    (void)state;
    assert_int_equal(xr_plugin_load(get_exhibit_path("good"), &err, &algo),
                     XRAY_OK);
    expect_table(algo->components[0], XR_TABLE(number),
                 "p.so: option 0 (count) of 'zoo': only a PATH or STRING names "
                 "a model");
}

static void options_come_from_the_section(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_errors errors = { 0 };
    const xray_plugin *plugin = NULL;
    assert_int_equal(xr_plugin_load(get_exhibit_path("good"), &err, &plugin),
                     XRAY_OK);
    xr_config *config = xr_config_new();
    xr_config_set(config, "algo.zoo.count=7", &errors);
    xr_config_set(config, "other.count=70", &errors);
    int64_t *options =
        xr_component_config(config, plugin->components[0], NULL, &errors);
    assert_non_null(options);
    assert_int_equal(*options, 7);
    assert_int_equal(errors.count, 0);
    assert_null(
        xr_component_config(config, plugin->components[0], "other", &errors));
    assert_int_equal(errors.count, 1);
    free(options);
    xr_errors_free(&errors);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_plugin_loads),
        cmocka_unit_test(bad_plugin_is_refused_with_a_reason),
        cmocka_unit_test(note_must_match_the_code),
        cmocka_unit_test(bare_name_loads),
        cmocka_unit_test(other_files_than_elf_are_refused),
        cmocka_unit_test(truncated_file_is_refused),
        cmocka_unit_test(damaged_file_is_survived),
        cmocka_unit_test(folder_is_listed_and_searched),
        cmocka_unit_test(search_path_is_checked),
        cmocka_unit_test(earlier_folder_comes_first),
        cmocka_unit_test(failed_load_is_not_tried_again),
        cmocka_unit_test(only_a_backends_path_takes_a_deepspeed_json),
        cmocka_unit_test(only_a_text_or_path_names_a_model),
        cmocka_unit_test(options_come_from_the_section),
    };
    return cmocka_run_group_tests(tests, find_zoo, remove_scratch);
}
