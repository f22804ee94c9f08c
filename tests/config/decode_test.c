/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves bounds, booleans, lists and suggestions of the decoder, one row per
 * case.
 */
#include "tests/config/odd_types.h"

static xr_config *set_all(const char *const *assignments, xr_errors *errors)
{
    xr_config *config = xr_config_new();
    assert_non_null(config);
    for (; *assignments; assignments++)
        xr_config_set(config, *assignments, errors);
    return config;
}

/* Decodes [t] with the assignments and compares the errors. */
static odd_types decode_set(const char *const *assignments, const char *want)
{
    odd_types t;
    xr_errors errors = { 0 };
    xr_config *config = set_all(assignments, &errors);
    memset(&t, 0xff, sizeof(t));
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, want);
    xr_config_free(config);
    return t;
}

static odd_types decode_assignment(const char *assignment, const char *want)
{
    const char *const one[] = { assignment, NULL };
    return decode_set(one, want);
}

/* The reason for refusing each value, after "--set: [t] ". */
static const struct refusal {
    const char *set;
    const char *said;
} refusals[] = {
    { "t.count=0", "count: 0 is out of range; expected 1 to 10" },
    { "t.count=11", "count: 11 is out of range; expected 1 to 10" },
    { "t.count=99999999999999999999",
      "count: 99999999999999999999 is out of range; expected 1 to 10" },
    { "t.count=-99999999999999999999",
      "count: -99999999999999999999 is out of range; expected 1 to 10" },
    { "t.count=-", "count: '-' is not an integer" },
    { "t.count=--1", "count: '--1' is not an integer" },
    { "t.count=1e3", "count: '1e3' is not an integer" },
    { "t.count=", "count: there is no value after '='" },
    { "t.flag=", "flag: there is no value after '='" },
    { "t.rate=", "rate: there is no value after '='" },
    { "t.memory=", "memory: there is no value after '='" },
    { "t.wait=", "wait: there is no value after '='" },
    { "t.mode=", "mode: there is no value after '='" },
    { "t.flag=2", "flag: '2' is neither true nor false" },
    { "t.flag=tru", "flag: 'tru' is neither true nor false" },
    { "t.rate=0.2499", "rate: 0.2499 is out of range; expected 0.25 to 0.75" },
    { "t.rate=0.7501", "rate: 0.7501 is out of range; expected 0.25 to 0.75" },
    { "t.rate=1e999", "rate: '1e999' is not a number" },
    { "t.wait=499999999ns",
      "wait: 499999999ns is out of range; expected 0.5s to 3600s" },
    { "t.wait=3600.5s",
      "wait: 3600.5s is out of range; expected 0.5s to 3600s" },
    { "t.seconds=1000001",
      "seconds: 1000001 is out of range; expected 0s to 1000000s" },
    { "t.wait=-1s", "wait: '-1s' is not a duration such as 500ms, 1.5s or 2h" },
    { "t.room=1023", "room: 1023 bytes is out of range; expected 1K to 1T" },
    { "t.room=1.5T", "room: 1.5T bytes is out of range; expected 1K to 1T" },
    { "t.maybe=2", "maybe: '2' is not true, false or auto" },
    { "t.maybe=aut", "maybe: 'aut' is not true, false or auto" },
    { "t.maybe=", "maybe: there is no value after '='" },
    { "t.mode=lineer",
      "mode: 'lineer' is not one of linear, cosine, liner; did "
      "you mean linear?" },
    { "t.mode=liners",
      "mode: 'liners' is not one of linear, cosine, liner; did "
      "you mean liner?" },
    { "t.mode=cosi",
      "mode: 'cosi' is not one of linear, cosine, liner; did you "
      "mean cosine?" },
    { "t.mode=cos", "mode: 'cos' is not one of linear, cosine, liner" },
    { "t.mode=Linear",
      "mode: 'Linear' is not one of linear, cosine, liner; did "
      "you mean linear?" },
    { "t.list=,a", "list: item 1 of the list is empty" },
    { "t.list=a,", "list: item 2 of the list is empty" },
    { "t.list=a,b, ,c", "list: item 3 of the list is empty" },
    { "t.files= , ", "files: item 1 of the list is empty" },
    /* Unknown names: the most similar one is suggested if it is similar
     * enough. */
    { "t.cuont=1", "cuont: no such option; did you mean count?" },
    { "t.moda=1", "moda: no such option; did you mean mode?" },
    { "t.mxdx=1", "mxdx: no such option" },
    { "t.cxxnt=1", "cxxnt: no such option; did you mean count?" },
    { "t.cxxxt=1", "cxxxt: no such option" },
    { "t.f=1", "f: no such option" },
    { "t.flies=1", "flies: no such option; did you mean files?" },
};

static void values_are_refused_for_what_they_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        char want[256];
        (void)snprintf(want, sizeof(want), "--set: [t] %s", refusals[i].said);
        odd_types t = decode_assignment(refusals[i].set, want);
        /* The preset holds instead. */
        assert_int_equal(t.flag, 0);
        assert_int_equal(t.count, 3);
        assert_int_equal(t.free_count, -5);
        assert_true(t.rate == 0.5);
        assert_int_equal(t.memory, 1024);
        assert_int_equal(t.wait, 2000000000);
        assert_int_equal(t.seconds, 7000000000);
        assert_int_equal(t.mode, 7);
        assert_int_equal(t.list.count, 2);
        assert_int_equal(t.files.count, 0);
    }
}

/* A message shows no secret, and no suggestion that resembles it. */
static void refused_secrets_are_not_shown(void **state)
{
    (void)state;
    static const struct refusal rows[] = {
        { "t.count=9317", "count: (secret) is out of range; expected 1 to 10" },
        { "t.count=9317x", "count: '(secret)' is not an integer" },
        { "t.free_count=99999999999999999999",
          "free_count: (secret) does not fit in 64 bits" },
        { "t.rate=9.317", "rate: (secret) is out of range; expected 0.25 to "
                          "0.75" },
        { "t.rate=x9317", "rate: '(secret)' is not a number" },
        { "t.flag=9317", "flag: '(secret)' is neither true nor false" },
        { "t.maybe=9317", "maybe: '(secret)' is not true, false or auto" },
        { "t.memory=9317Q",
          "memory: '(secret)' is not a size such as 4096, 64M or 1.5G" },
        { "t.wait=9317Q",
          "wait: '(secret)' is not a duration such as 500ms, 1.5s or 2h" },
        { "t.mode=linea",
          "mode: '(secret)' is not one of linear, cosine, liner" },
    };
    xray_option secret[sizeof(options) / sizeof(options[0])];
    memcpy(secret, options, sizeof(options));
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        secret[i].flags |= XRAY_OPT_SECRET;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char want[256];
        odd_types t;
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        xr_config_set(config, rows[i].set, &errors);
        xr_config_decode(config, "t", XR_TABLE(secret), &t, &errors);
        (void)snprintf(want, sizeof(want), "--set: [t] %s", rows[i].said);
        expect_errors(&errors, want);
        xr_config_free(config);
    }
}

static void bounds_are_inclusive(void **state)
{
    (void)state;
    assert_int_equal(decode_assignment("t.count=1", "").count, 1);
    assert_int_equal(decode_assignment("t.count=10", "").count, 10);
    assert_true(decode_assignment("t.rate=0.25", "").rate == 0.25);
    assert_true(decode_assignment("t.rate=0.75", "").rate == 0.75);
    assert_int_equal(decode_assignment("t.wait=500ms", "").wait, 500000000);
    assert_int_equal(decode_assignment("t.wait=1h", "").wait, 3600000000000);
    assert_int_equal(decode_assignment("t.seconds=1000000", "").seconds,
                     1000000000000000);
    assert_int_equal(decode_assignment("t.seconds=3ms", "").seconds, 3000000);
    /* Without bounds, every value that fits is accepted, and no other. */
    assert_int_equal(
        decode_assignment("t.free_count=9223372036854775808",
                          "--set: [t] free_count: 9223372036854775808 does not "
                          "fit in 64 bits")
            .free_count,
        -5);
    assert_int_equal(
        decode_assignment("t.free_count=-9223372036854775809",
                          "--set: [t] free_count: -9223372036854775809 does "
                          "not fit in 64 bits")
            .free_count,
        -5);
    assert_true(
        decode_assignment("t.free_count=-9223372036854775808", "").free_count ==
        INT64_MIN);
    assert_true(
        decode_assignment("t.free_count=9223372036854775807", "").free_count ==
        INT64_MAX);
    assert_true(decode_assignment("t.memory=4T", "").memory == UINT64_C(4)
                                                                   << 40);
    assert_int_equal(decode_assignment("t.memory=0", "").memory, 0);
    assert_int_equal(decode_assignment("t.room=1K", "").room, 1024);
    assert_true(decode_assignment("t.room=1024G", "").room == UINT64_C(1)
                                                                  << 40);
    assert_int_equal(decode_assignment("t.mode=liner", "").mode, 11);
    assert_int_equal(decode_assignment("t.mode=cosine", "").mode, 9);
}

static void bounds_are_printed_readably(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        double value;
        const char *text;
    } rows[] = {
        { XRAY_OPT_REAL, 0.12345678, "0.12345678" },
        { XRAY_OPT_REAL, -2.5, "-2.5" },
        { XRAY_OPT_REAL, 1e300, "1e+300" },
        { XRAY_OPT_REAL, 1e17, "100000000000000000" },
        { XRAY_OPT_INT, 9007199254740992, "9007199254740992" },
        { XRAY_OPT_INT, -1, "-1" },
        { XRAY_OPT_DURATION, 1e6, "0.001s" },
        { XRAY_OPT_DURATION, 1e15, "1000000s" },
        { XRAY_OPT_BYTES, 1023, "1023" },
        { XRAY_OPT_BYTES, 0, "0" },
        { XRAY_OPT_BYTES, 1536, "1536" },
        { XRAY_OPT_BYTES, 3072, "3K" },
        { XRAY_OPT_BYTES, 0x1p50, "1024T" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[40];
        const xray_option o = { .type = rows[i].type };
        assert_string_equal(
            xr_option_bound(&o, rows[i].value, text, sizeof(text)),
            rows[i].text);
    }
}

static void booleans_have_several_words(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        uint32_t value;
    } words[] = {
        { "t.flag=false", 0 }, { "t.flag=no", 0 },   { "t.flag=off", 0 },
        { "t.flag=0", 0 },     { "t.flag=true", 1 }, { "t.flag=yes", 1 },
        { "t.flag=on", 1 },    { "t.flag=1", 1 },    { "t.flag=TRUE", 1 },
        { "t.flag=Off", 0 },
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_int_equal(decode_assignment(words[i].set, "").flag,
                         words[i].value);
}

static void tristates_have_a_third_value(void **state)
{
    (void)state;
    assert_int_equal(decode_assignment("t.count=2", "").maybe, XRAY_AUTO);
    assert_int_equal(decode_assignment("t.maybe=auto", "").maybe, XRAY_AUTO);
    assert_int_equal(decode_assignment("t.maybe=Auto", "").maybe, XRAY_AUTO);
    assert_int_equal(decode_assignment("t.maybe=on", "").maybe, 1);
    assert_int_equal(decode_assignment("t.maybe=no", "").maybe, 0);
    assert_int_equal(decode_assignment("t.maybe=0", "").maybe, 0);
}

static void lists_are_split_at_commas(void **state)
{
    (void)state;
    odd_types t;
    xr_errors errors = { 0 };
    static const char *const sets[] = { "t.list=\t one ,two  words,three\t",
                                        "t.files=", "t.name=", NULL };
    xr_config *config = set_all(sets, &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    expect_errors(&errors, "");
    assert_int_equal(t.list.count, 3);
    assert_string_equal(t.list.items[0], "one");
    assert_string_equal(t.list.items[1], "two  words");
    assert_string_equal(t.list.items[2], "three");
    assert_int_equal(t.files.count, 0);
    assert_string_equal(t.name, "");
    assert_string_equal(t.file, "");
    xr_config_free(config);
}

/* ---- tables that cannot work -------------------------------------------- */

static void presets_are_values_too(void **state)
{
    (void)state;
    static const xray_option wrong[] = {
        XRAY_INT(odd_types, count, "99", 1, 10, NULL, 0u, "0.1", ""),
        { "strange", 77, 0, offsetof(odd_types, strange), "x", "", 1, 0, NULL,
          NULL, "0.1" },
        { "nothing", 0, 0, offsetof(odd_types, strange), "x", "", 1, 0, NULL,
          NULL, "0.1" },
        XRAY_STRING(odd_types, name, NULL, XRAY_OPT_REQUIRED, "0.1", ""),
        XRAY_PATH(odd_types, file, NULL, XRAY_OPT_REQUIRED, "0.1", ""),
    };
    odd_types t;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    xr_config_set(config, "t.count=5", &errors);
    xr_config_set(config, "t.file=", &errors);
    xr_config_decode(config, "t", XR_TABLE(wrong), &t, &errors);
    expect_errors(
        &errors,
        "default: [t] count: 99 is out of range; expected 1 to 10\n"
        "default: [t] strange: the option is of type 77, which this xray does "
        "not know\n"
        "default: [t] nothing: the option is of type 0, which this xray does "
        "not know\n"
        "configuration: [t] name is required\n"
        "--set: [t] file: must not be empty");
    assert_int_equal(t.count, 5);
    assert_string_equal(t.name, "");
    assert_string_equal(t.file, "");
    xr_config_free(config);
}

/* Options of an older plugin are shorter; missing members read as zeros. */
static void option_stride_is_the_authors(void **state)
{
    (void)state;
    struct wide {
        xray_option option;
        uint64_t later[2];
    };
    static const struct wide rows[] = {
        { XRAY_INT(odd_types, count, "3", 1, 10, NULL, 0u, "0.1", ""),
          { 1, 2 } },
        { XRAY_INT(odd_types, free_count, "4", 1, 10, NULL, 0u, "0.1", ""),
          { 3, 4 } },
    };
    odd_types t;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    xr_config_set(config, "t.free_count=9", &errors);
    xr_config_decode(config, "t",
                     (xr_table){ &rows[0].option, 2, sizeof(rows[0]) }, &t,
                     &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    assert_int_equal(t.count, 3);
    assert_int_equal(t.free_count, 9);
    xr_config_free(config);
}

/* So are its choices. */
static void choice_stride_is_the_authors(void **state)
{
    (void)state;
    static const struct wide {
        xray_choice choice;
        uint64_t later;
    } ways[] = { { { "linear", 7, "" }, 1 },
                 { { "cosine", 9, "" }, 2 },
                 { { "liner", 11, "" }, 3 },
                 { { NULL, 0, NULL }, 4 } };
    static const xray_option wide_options[] = {
        { "mode", XRAY_OPT_CHOICE, 0u, offsetof(odd_types, mode), "cosine", "",
          1, 0, &ways[0].choice, NULL, "0.1", sizeof(ways[0]), 0u },
    };
    static const struct {
        const char *set;
        int64_t mode;
        const char *said;
    } rows[] = {
        { "u.mode=linear", 9, "" },
        { "t.mode=linear", 7, "" },
        { "t.mode=liner", 11, "" },
        { "t.mode=liners", 9,
          "--set: [t] mode: 'liners' is not one of linear, cosine, liner; did "
          "you mean liner?" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        odd_types t;
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        xr_config_set(config, rows[i].set, &errors);
        xr_config_decode(config, "t", XR_TABLE(wide_options), &t, &errors);
        expect_errors(&errors, rows[i].said);
        assert_int_equal(t.mode, rows[i].mode);
        xr_config_free(config);
    }
}

/* ---- suggestions for sections ------------------------------------------- */

static void similar_sections_are_suggested(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        const char *said;
    } rows[] = {
        { "trianer.x=1", "--set: [trianer]: no such section; did you mean "
                         "[trainer]?" },
        { "traxxxr.x=1", "--set: [traxxxr]: no such section" },
        { "rex.x=1", "--set: [rex]: no such section; did you mean [ref]?" },
        { "rxx.x=1", "--set: [rxx]: no such section" },
        { "algo.pp.x=1",
          "--set: [algo.pp]: no such section; did you mean [algo.ppo]?" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        odd_types t;
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        xr_config_set(config, rows[i].set, &errors);
        xr_config_decode(config, "ref", XR_TABLE(options), &t, &errors);
        xr_config_decode(config, "trainer", XR_TABLE(options), &t, &errors);
        xr_config_ignore(config, "algo.ppo");
        xr_config_finish(config, &errors);
        expect_errors(&errors, rows[i].said);
        xr_config_free(config);
    }
}

/* A key of another section is only suggested if no similar key exists. */
static void keys_of_other_sections_are_suggested(void **state)
{
    (void)state;
    static const xray_option few[] = {
        XRAY_INT(odd_types, count, "3", 1, 10, NULL, 0u, "0.1", ""),
    };
    odd_types t;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    xr_config_set(config, "few.memory=1", &errors);
    xr_config_set(config, "few.counts=1", &errors);
    xr_config_set(config, "few.unheard=1", &errors);
    xr_config_set(config, "t.unheard=1", &errors);
    xr_config_decode(config, "few", XR_TABLE(few), &t, &errors);
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(
        &errors,
        "--set: [few] memory: no such option; [t] has an option of that name\n"
        "--set: [few] counts: no such option; did you mean count?\n"
        "--set: [few] unheard: no such option\n"
        "--set: [t] unheard: no such option");
    xr_config_free(config);
}

/* The plugin of the section is missing, so nothing in it is checked. */
static void ignored_keys_are_not_suggested(void **state)
{
    (void)state;
    char variable[] = "XRAY_ALGO_OTHER__CLIP=1";
    char *const environment[] = { variable, NULL };
    odd_types t;
    xr_errors errors = { 0 };
    xr_str text = { 0 };
    xr_config *config = xr_config_new();
    xr_config_environment(config, environment, &errors);
    xr_config_set(config, "t.unheard=1", &errors);
    xr_config_ignore(config, "algo.other");
    xr_config_ignore(config, "t");
    xr_config_decode(config, "t", XR_TABLE(options), &t, &errors);
    xr_config_finish(config, &errors);
    expect_errors(&errors, "");
    assert_string_equal(xr_config_get(config, "algo.other", "clip"), "1");
    xr_config_print(config, 0, &text);
    assert_null(strstr(xr_str_text(&text), "algo.other"));
    assert_null(strstr(xr_str_text(&text), "unheard"));
    xr_str_free(&text);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_refused_for_what_they_are),
        cmocka_unit_test(refused_secrets_are_not_shown),
        cmocka_unit_test(bounds_are_inclusive),
        cmocka_unit_test(bounds_are_printed_readably),
        cmocka_unit_test(booleans_have_several_words),
        cmocka_unit_test(tristates_have_a_third_value),
        cmocka_unit_test(lists_are_split_at_commas),
        cmocka_unit_test(presets_are_values_too),
        cmocka_unit_test(option_stride_is_the_authors),
        cmocka_unit_test(choice_stride_is_the_authors),
        cmocka_unit_test(similar_sections_are_suggested),
        cmocka_unit_test(keys_of_other_sections_are_suggested),
        cmocka_unit_test(ignored_keys_are_not_suggested),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
