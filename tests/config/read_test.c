/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the reader, the layers and the decoder on a table with every type.
 */
#include <ctype.h>
#include <sys/stat.h>

#include <xray/numerics.h>

#include "tests/config/config_testing.h"

typedef struct all_types {
    uint32_t flag;
    uint32_t reserved;
    int64_t count;
    double rate;
    uint64_t memory;
    int64_t wait;
    const char *name;
    const char *file;
    int64_t mode;
    xray_list list;
    xray_list files;
    const char *token;
} all_types;

static const xray_choice modes[] = { { "fast", 7, "" },
                                     { "slow", 9, "" },
                                     { NULL, 0, NULL } };

static const xray_option options[] = {
    XRAY_BOOL(all_types, flag, "false", 0u, "0.1", ""),
    XRAY_INT(all_types, count, "3", 1, 10, "steps", 0u, "0.1", ""),
    XRAY_REAL(all_types, rate, "0.5", 0, 1, NULL, 0u, "0.1", ""),
    XRAY_BYTES(all_types, memory, "1K", 1, 0, 0u, "0.1", ""),
    XRAY_DURATION(all_types, wait, "2s", 1, 0, NULL, 0u, "0.1", ""),
    XRAY_STRING(all_types, name, "nobody", 0u, "0.1", ""),
    XRAY_PATH(all_types, file, "", 0u, "0.1", ""),
    XRAY_CHOICE(all_types, mode, "fast", modes, 0u, "0.1", ""),
    XRAY_LIST(all_types, list, "a,b", 0u, "0.1", ""),
    XRAY_LIST(all_types, files, "", XRAY_OPT_PATHS, "0.1", ""),
    XRAY_STRING(all_types, token, "", XRAY_OPT_SECRET, "0.1", ""),
};

typedef struct needed {
    const char *must;
} needed;
static const xray_option needed_options[] = {
    XRAY_STRING(needed, must, NULL, XRAY_OPT_REQUIRED, "0.1", ""),
};

static xr_config *read_ini(const char *text, xr_errors *errors)
{
    xr_config *config = xr_config_new();
    assert_non_null(config);
    write_text("run.ini", text);
    xr_config_read(config, "run.ini", errors);
    return config;
}

/* ---- refused lines ------------------------------------------------------- */

static const struct bad {
    const char *ini;
    const char *errors;
} bad_lines[] = {
    { "[t]\ncount\n", "run.ini:2: expected [section] or key = value" },
    { "[t]\ncount: 3\n", "run.ini:2: expected [section] or key = value" },
    { "[t]\na:b = 3\n",
      "run.ini:2: 'a:b' is not a valid key: use letters, digits, '_' and '-'" },
    { "[t]\n = 3\n", "run.ini:2: there is no key before '='" },
    { "[t]junk\ncount = 3\n", "run.ini:1: there is text after ']'" },
    { "\n\n[t\n", "run.ini:3: the section's name is not followed by ']'" },
    { "[]\n", "run.ini:1: [] is not a valid section name: use letters, digits, "
              "'_', '-' and '.'" },
    { "[t]\nname = \"ab\n", "run.ini:2: the quote is not closed on this line" },
    { "[t]\nname = \"ab\" c\n",
      "run.ini:2: there is text after the closing quote" },
    { "[t]\nname = \"\\q\"\n",
      "run.ini:2: inside quotes, '\\' must be followed by n, t, \\ or \"" },
    { "[t]\nname = a\x01z\n",
      "run.ini:2: the line holds the control character 0x01" },
    { "[t]\ncount = 1\ncount = 2\n",
      "run.ini:3: [t] count: set twice in this file, first on line 2" },
    { "[t]\ncount = 1\n[u]\n[t]\ncount = 1\n",
      "run.ini:5: [t] count: set twice in this file, first on line 2\n"
      "run.ini:3: [u]: no such section" },
    { "count = 1\n", "run.ini:1: count is set before the first section, where "
                     "only include is allowed" },
    { "include =\n", "run.ini:1: include names no file" },
    { "include = run.ini\n", "run.ini:1: include: run.ini includes itself" },
    { "include = none.ini\n",
      "run.ini:1: include: none.ini: cannot open: No such file or directory" },
    /* The decoder refuses these. */
    { "[t]\ncuont = 1\n",
      "run.ini:2: [t] cuont: no such option; did you mean count?" },
    { "[t]\nzebra = 1\n", "run.ini:2: [t] zebra: no such option" },
    { "[need]\nmust = x\ncount = 1\n",
      "run.ini:3: [need] count: no such option; [t] has an option of that "
      "name" },
    { "[tt]\n", "run.ini:1: [tt]: no such section; did you mean [t]?" },
    { "[t]\nflag = maybe\n",
      "run.ini:2: [t] flag: 'maybe' is neither true nor false" },
    { "[t]\ncount = 1.5\n", "run.ini:2: [t] count: '1.5' is not an integer" },
    { "[t]\ncount = 11\n",
      "run.ini:2: [t] count: 11 steps is out of range; expected 1 to 10" },
    { "[t]\nrate = x\n", "run.ini:2: [t] rate: 'x' is not a number" },
    { "[t]\nrate = nan\n", "run.ini:2: [t] rate: 'nan' is not a number" },
    { "[t]\nrate = -0.1\n",
      "run.ini:2: [t] rate: -0.1 is out of range; expected 0 to 1" },
    { "[t]\nmemory = 3Q\n", "run.ini:2: [t] memory: '3Q' is not a size such as "
                            "4096, 64M or 1.5G" },
    { "[t]\nwait = 3\n", "run.ini:2: [t] wait: '3' is not a duration such as "
                         "500ms, 1.5s or 2h" },
    { "[t]\nmode = fsat\n", "run.ini:2: [t] mode: 'fsat' is not one of fast, "
                            "slow; did you mean fast?" },
    { "[t]\nlist = a,,b\n", "run.ini:2: [t] list: item 2 of the list is "
                            "empty" },
    { "[need]\n", "run.ini: [need] must is required" },
    { "[need]\nmust =\n", "run.ini:2: [need] must: must not be empty" },
    /* All errors at once, in the order of the lines per phase. */
    { "[t]\nbad\ncount = x\nrat = 1\n",
      "run.ini:2: expected [section] or key = value\n"
      "run.ini:3: [t] count: 'x' is not an integer\n"
      "run.ini:4: [t] rat: no such option; did you mean rate?" },
};

static void refuses_with_location_and_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_lines) / sizeof(bad_lines[0]); i++) {
        xr_errors errors = { 0 };
        all_types t;
        needed n;
        xr_config *config = read_ini(bad_lines[i].ini, &errors);
        xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
        if (strstr(bad_lines[i].ini, "[need]"))
            xr_config_decode(config, "need", XR_TABLE(needed_options), &n,
                             &errors);
        xr_config_finish(config, &errors);
        expect_errors(&errors, bad_lines[i].errors);
        xr_config_free(config);
    }
}

static void refuses_a_nul_byte(void **state)
{
    (void)state;
    static const char text[] = "[t]\nname = a\0b\n";
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    write_file("run.ini", text, sizeof(text) - 1);
    xr_config_read(config, "run.ini", &errors);
    expect_errors(&errors,
                  "run.ini:2: the line holds the control character 0x00");
    xr_config_free(config);
}

/* With any two bytes changed, the reader reports errors or none, but never
 * faults. */
static void survives_any_bytes(void **state)
{
    (void)state;
    static const char good[] = "include = other.ini\n[t.u] ; x\ncount = 2\n"
                               "name = \"a ; b\\n\"\nlist = a, b\n\n[need]\n";
    static const char bytes[] = "\"\\[];#=\n\r\t .,\0a\x80";
    write_text("other.ini", "[t.u]\nrate = 0.25\n");
    for (uint32_t i = 0; i < 3000; i++) {
        char text[sizeof(good)];
        all_types t;
        xr_errors errors = { 0 };
        xray_philox_out draw = xray_philox(7, i, 0, 0, 0);
        memcpy(text, good, sizeof(good));
        for (int j = 0; j < 2; j++)
            text[draw.w[2 * j] % (sizeof(good) - 1)] =
                bytes[draw.w[2 * j + 1] % sizeof(bytes)];
        xr_config *config = xr_config_new();
        write_file("run.ini", text, sizeof(good) - 1);
        xr_config_read(config, "run.ini", &errors);
        xr_config_decode(config, "t.u", XR_TABLE(options), &t, &errors);
        xr_config_finish(config, &errors);
        xr_errors_free(&errors);
        xr_config_free(config);
    }
}

/* ---- accepted lines ------------------------------------------------------ */

static const struct value {
    const char *line;
    const char *text;
} good_values[] = {
    { "name = plain", "plain" },
    { "name=plain", "plain" },
    { "   name   =   two words  ", "two words" },
    { "name = x ; remark", "x" },
    { "name = x\t# remark", "x" },
    { "name = x;y#z", "x;y#z" },
    { "name = ; remark", "" },
    { "name =", "" },
    { "name = a = b", "a = b" },
    { "name = a : b", "a : b" },
    { "name = say \"hi\"", "say \"hi\"" },
    { "name = \"a ; b # c\" ; remark", "a ; b # c" },
    { "name = \"  kept  \"", "  kept  " },
    { "name = \"l1\\nl2\\t\\\\\\\"q\\\"\"", "l1\nl2\t\\\"q\"" },
    { "name = C:\\dir", "C:\\dir" },
    { "name = windows\r", "windows" },
    { "name = \xC3\xA9t\xC3\xA9", "\xC3\xA9t\xC3\xA9" },
};

static void reads_values_as_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good_values) / sizeof(good_values[0]); i++) {
        char ini[256];
        xr_errors errors = { 0 };
        (void)snprintf(ini, sizeof(ini),
                       "\xEF\xBB\xBF; head\n[t] ; section\ncount = 2\n"
                       "    %s\n# end",
                       good_values[i].line);
        xr_config *config = read_ini(ini, &errors);
        expect_errors(&errors, "");
        assert_string_equal(xr_config_get(config, "t", "name"),
                            good_values[i].text);
        assert_string_equal(xr_config_get(config, "t", "count"), "2");
        assert_string_equal(xr_config_origin(config, "t", "name"), "run.ini:4");
        xr_config_free(config);
    }
}

static void decodes_every_type(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    all_types t;
    xr_config *config =
        read_ini("[t]\nflag = Yes\ncount = 10\nrate = 1e-3\nmemory = 1.5G\n"
                 "wait = 2min\nname = it\nmode = slow\nlist = x , y z,w\n",
                 &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    assert_int_equal(t.flag, 1);
    assert_int_equal(t.count, 10);
    assert_true(t.rate == 1e-3);
    assert_int_equal(t.memory, 3u << 29);
    assert_int_equal(t.wait, 120000000000);
    assert_string_equal(t.name, "it");
    assert_int_equal(t.mode, 9);
    assert_int_equal(t.list.count, 3);
    assert_string_equal(t.list.items[0], "x");
    assert_string_equal(t.list.items[1], "y z");
    assert_string_equal(t.list.items[2], "w");
    assert_int_equal(t.files.count, 0);
    assert_string_equal(t.file, "");
    xr_config_free(config);
}

static void refused_value_leaves_the_preset(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    all_types t;
    memset(&t, 0xff, sizeof(t));
    xr_config *config = read_ini("[t]\ncount = 11\nmode = no\n", &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.mode, 7);
    assert_int_equal(errors.count, 2);
    xr_errors_free(&errors);
    xr_config_free(config);
}

/* ---- layers ------------------------------------------------------------- */

static void layers_override_each_other(void **state)
{
    (void)state;
    char v1[] = "XRAY_T_U__COUNT=4";
    char v2[] = "XRAY_T_U__NAME=env";
    char v3[] = "XRAY_PLUGIN_PATH=/x";
    char *const environment[] = { v1, v2, v3, NULL };
    xr_errors errors = { 0 };
    all_types t;
    /* The file is below the environment and the command line, although it is
     * read after them. */
    xr_config *config = xr_config_new();
    xr_config_set(config, "t.u.name=set = it", &errors);
    xr_config_environment(config, environment, &errors);
    write_text("other.ini", "[t.u]\nrate = 0.25\nwait = 1s\n");
    write_text("run.ini", "include = other.ini\n[t.u]\ncount = 2\nname = file\n"
                          "rate = 0.75\n");
    xr_config_read(config, "run.ini", &errors);
    xr_config_decode(config, "t.u", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    assert_string_equal(t.name, "set = it");
    assert_int_equal(t.count, 4);
    assert_true(t.rate == 0.75);
    assert_int_equal(t.wait, 1000000000);
    static const char *const origins[][2] = {
        { "name", "--set" },     { "count", "XRAY_T_U__COUNT" },
        { "rate", "run.ini:5" }, { "wait", "other.ini:3" },
        { "memory", "default" },
    };
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(xr_config_origin(config, "t.u", origins[i][0]),
                            origins[i][1]);
    assert_string_equal(xr_config_get(config, "t.u", "memory"), "1K");
    xr_config_free(config);
}

static void refuses_what_no_layer_may_hold(void **state)
{
    (void)state;
    char v1[] = "XRAY_NONE__KEY=4";
    char v2[] = "XRAY_T__COUNR=4";
    char v3[] = "XRAY_T__COUNT=\001";
    char *const environment[] = { v1, v2, v3, NULL };
    xr_errors errors = { 0 };
    all_types t;
    xr_config *config = xr_config_new();
    xr_config_set(config, "t=3", &errors);
    xr_config_set(config, "t.name", &errors);
    xr_config_set(config, "t.na me=3", &errors);
    xr_config_set(config, "t.nam=3", &errors);
    xr_config_set(config, "t.name=a\rb", &errors);
    xr_config_set(config, "t.name=a\tb\nc", &errors);
    xr_config_environment(config, environment, &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(
        &errors,
        "--set t=3: expected section.key=value\n"
        "--set t.name: expected section.key=value\n"
        "--set t.na me=3: expected section.key=value\n"
        "--set t.name: the value holds the control character 0x0d\n"
        "XRAY_T__COUNT: the value holds the control character 0x01\n"
        "--set: [t] nam: no such option; did you mean name?\n"
        "XRAY_T__COUNR: [t] counr: no such option; did you mean count?\n"
        "XRAY_NONE__KEY: the name matches no section and key of this run");
    xr_config_free(config);
}

static void cycles_of_includes_are_refused(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    write_text("other.ini", "include = ./run.ini\n");
    xr_config *config = read_ini("include = other.ini\n", &errors);
    expect_errors(&errors, "other.ini:1: include: ./run.ini includes itself");
    xr_config_free(config);
}

static void ignored_section_is_not_checked(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    all_types t;
    xr_config *config =
        read_ini("[t]\ncount = 2\n[algo.other]\nanything = 1\n", &errors);
    xr_config_ignore(config, "algo.other");
    xr_config_ignore(config, "t"); /* decoding a section overrides ignoring
                                    * it */
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    xr_config_free(config);
}

/* ---- printing ----------------------------------------------------------- */

static void paths_are_relative_to_the_file(void **state)
{
    xr_errors errors = { 0 };
    all_types t;
    char want[256];
    xr_config *config = xr_config_new();
    write_text("run.ini", "[t]\nfile = a/b\nfiles = c, /d\n");
    (void)snprintf(want, sizeof(want), "%s/run.ini", (const char *)*state);
    assert_int_equal(chdir("/"), 0);
    xr_config_read(config, want, &errors);
    assert_int_equal(chdir(*state), 0);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    expect_errors(&errors, "");
    (void)snprintf(want, sizeof(want), "%s/a/b", (const char *)*state);
    assert_string_equal(t.file, want);
    (void)snprintf(want, sizeof(want), "%s/c", (const char *)*state);
    assert_string_equal(t.files.items[0], want);
    assert_string_equal(t.files.items[1], "/d");
    xr_config_free(config);
}

/* Paths are relative to the file's own folder, whatever file includes it; a
 * file's own values override those that it includes. */
static void paths_of_an_included_file_are_its_own(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    all_types t;
    assert_int_equal(mkdir("parts", 0700), 0);
    write_text("parts/base.ini", "include = more.ini\n[t]\nfile = a/b\n"
                                 "files = c, /d\nname = base\n");
    write_text("parts/more.ini", "[t]\nfile = z\ncount = 7\n");
    xr_config *config =
        read_ini("include = parts/base.ini\n[t]\nname = run\n", &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    (void)unlink("parts/base.ini");
    (void)unlink("parts/more.ini");
    assert_int_equal(rmdir("parts"), 0);
    expect_errors(&errors, "");
    assert_string_equal(t.file, "parts/a/b");
    assert_string_equal(t.files.items[0], "parts/c");
    assert_string_equal(t.files.items[1], "/d");
    assert_string_equal(t.name, "run");
    assert_int_equal(t.count, 7);
    xr_config_free(config);
}

/* Paths from the command line, the environment or defaults are relative to the
 * working directory, wherever the INI is. Printed paths are absolute. */
static void other_paths_are_relative_to_the_working_directory(void **state)
{
    (void)state;
    char v1[] = "XRAY_E__FILE=deep/b";
    char v2[] = "XRAY_E__FILES=d, /e";
    char *const environment[] = { v1, v2, NULL };
    static const xray_option presets[] = {
        XRAY_PATH(all_types, file, "preset", 0u, "0.1", ""),
        XRAY_LIST(all_types, files, "one,two", XRAY_OPT_PATHS, "0.1", ""),
    };
    static const char *const wants[][2] = { { "a", "b/c" },
                                            { "deep/b", "d" },
                                            { "preset", "one" } };
    xr_errors errors = { 0 };
    xr_str printed = { 0 };
    all_types t[3];
    assert_int_equal(mkdir("sub", 0700), 0);
    write_text("sub/run.ini", "[t]\nfile = x\nfiles = y\n");
    xr_config *config = xr_config_new();
    xr_config_read(config, "sub/run.ini", &errors);
    xr_config_set(config, "t.file=a", &errors);
    xr_config_set(config, "t.files=b/c, /d", &errors);
    xr_config_environment(config, environment, &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t[0], &errors);
    xr_config_decode(config, "e", XR_TABLE(options), &t[1], &errors);
    xr_config_decode(config, "p", XR_TABLE(presets), &t[2], &errors);
    expect_errors(&errors, "");
    for (int i = 0; i < 3; i++) {
        assert_string_equal(t[i].file, wants[i][0]);
        assert_string_equal(t[i].files.items[0], wants[i][1]);
    }
    xr_config_print(config, 0, &printed);
    for (int i = 0; i < 2; i++) {
        char line[256];
        (void)snprintf(line, sizeof(line), "file = %s/%s\n",
                       (const char *)*state, wants[i][0]);
        assert_non_null(strstr(xr_str_text(&printed), line));
        (void)snprintf(line, sizeof(line), "files = %s/%s, /",
                       (const char *)*state, wants[i][1]);
        assert_non_null(strstr(xr_str_text(&printed), line));
    }
    xr_str_free(&printed);
    xr_config_free(config);
    assert_int_equal(unlink("sub/run.ini"), 0);
    assert_int_equal(rmdir("sub"), 0);
}

static const char *const hard_texts[] = {
    "",
    " ",
    "; x",
    "#",
    "a ; b",
    "a # b",
    "a ;b",
    "a #b",
    "a;b",
    "a#b",
    "\"",
    "\"a",
    "a\"b\"",
    "\\n",
    "line\nline",
    "\tx",
    "x\t",
    "a\t#b",
    "[t]",
    "k = v",
    "\\\\",
    "\n",
    "{p}\n#### {answer} ; \"q\"\\",
};

static void expect_read_back(const char *text, int origins)
{
    char set[128];
    xr_errors errors = { 0 };
    xr_str once = { 0 };
    xr_str twice = { 0 };
    all_types t;
    all_types back;
    (void)snprintf(set, sizeof(set), "t.name=%s", text);
    xr_config *config = read_ini("[t]\ncount = 2\nfile = here\nfiles = a , b\n"
                                 "token = hush\nlist = q,r\n",
                                 &errors);
    xr_config_set(config, set, &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_print(config, origins, &once);
    assert_null(strstr(xr_str_text(&once), "hush"));

    xr_config *again = read_ini(xr_str_text(&once), &errors);
    xr_config_decode(again, "t", XR_TABLE(options), &back, &errors);
    expect_errors(&errors, "");
    assert_string_equal(back.name, text);
    assert_int_equal(back.count, 2);
    assert_int_equal(back.memory, 1024);
    assert_int_equal(back.list.count, 2);
    assert_int_equal(back.files.count, 2);
    if (!origins) {
        xr_config_print(again, 0, &twice);
        assert_string_equal(xr_str_text(&once), xr_str_text(&twice));
    }
    xr_config_free(config);
    xr_config_free(again);
    xr_str_free(&once);
    xr_str_free(&twice);
}

static void print_reads_back(void **state)
{
    (void)state;
    static const char *const around[][2] = {
        { "", "" }, { "", "x" }, { "x", "" }, { "x", "y" }, { "x ", "y" }
    };
    for (size_t i = 0; i < sizeof(hard_texts) / sizeof(hard_texts[0]); i++)
        for (int origins = 0; origins < 2; origins++)
            expect_read_back(hard_texts[i], origins);
    /* An INI holds no control characters but these. */
    for (int c = '\t'; c < 127; c = c == '\t' ? '\n' : c < ' ' ? ' ' : c + 1)
        for (size_t i = 0;
             !isalnum(c) && i < sizeof(around) / sizeof(around[0]); i++) {
            char text[8];
            (void)snprintf(text, sizeof(text), "%s%c%s", around[i][0], c,
                           around[i][1]);
            expect_read_back(text, 0);
        }
}

static void print_names_origins(void **state)
{
    xr_errors errors = { 0 };
    xr_str text = { 0 };
    all_types t;
    char want[1024];
    xr_config *config = read_ini("[t]\ncount = 2\nfile = f\n", &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_print(config, 1, &text);
    (void)snprintf(want, sizeof(want),
                   "[t]\ncount = 2 ; run.ini:2\nfile = %s/f ; run.ini:3\n"
                   "flag = false ; default\nrate = 0.5 ; default\n"
                   "memory = 1K ; default\nwait = 2s ; default\n"
                   "name = nobody ; default\nmode = fast ; default\n"
                   "list = a,b ; default\nfiles = \"\" ; default\n",
                   (const char *)*state);
    assert_string_equal(xr_str_text(&text), want);
    expect_errors(&errors, "");
    xr_str_free(&text);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_with_location_and_reason),
        cmocka_unit_test(refuses_a_nul_byte),
        cmocka_unit_test(survives_any_bytes),
        cmocka_unit_test(reads_values_as_written),
        cmocka_unit_test(decodes_every_type),
        cmocka_unit_test(refused_value_leaves_the_preset),
        cmocka_unit_test(layers_override_each_other),
        cmocka_unit_test(refuses_what_no_layer_may_hold),
        cmocka_unit_test(cycles_of_includes_are_refused),
        cmocka_unit_test(ignored_section_is_not_checked),
        cmocka_unit_test(paths_are_relative_to_the_file),
        cmocka_unit_test(paths_of_an_included_file_are_its_own),
        cmocka_unit_test(other_paths_are_relative_to_the_working_directory),
        cmocka_unit_test(print_reads_back),
        cmocka_unit_test(print_names_origins),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
