/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves field by field which descriptors are refused before any of their
 * callbacks is called.
 */
#include "core/plugin/plugin.h"
#include "tests/testing.h"

static int64_t callback(void)
{
    return 0;
}

/* An interface's table with every callback set. */
typedef struct ops {
    xray_header header;
    void (*fn[128])(void);
} ops;

static void fill_callbacks(ops *o, size_t size)
{
    memset(o, 0, sizeof(*o));
    assert_true(size <= sizeof(*o));
    o->header = (xray_header){ (uint32_t)size, XRAY_ABI };
    for (size_t i = 0; i < sizeof(o->fn) / sizeof(o->fn[0]); i++)
        o->fn[i] = (void (*)(void))callback;
}

/* A plugin with one component; each case changes one member. */
typedef struct sample {
    ops table;
    xray_option options[3];
    xray_choice choices[2];
    xray_component component;
    const xray_component *list[2];
    xray_plugin plugin;
} sample;

static void fill_sample(sample *s)
{
    memset(s, 0, sizeof(*s));
    fill_callbacks(&s->table, sizeof(xray_algo_ops));
    s->choices[0] = (xray_choice){ "one", 1, "" };
    s->options[0] =
        (xray_option){ "count", XRAY_OPT_INT, 0,    0,    "3", "A count.", 1,
                       9,       NULL,         NULL, "0.1" };
    s->options[1] =
        (xray_option){ "flag", XRAY_OPT_BOOL, 0,    8,    "no", "A flag.", 1,
                       0,      NULL,          NULL, "0.1" };
    s->options[2] = (xray_option){ "kind",     XRAY_OPT_CHOICE,
                                   0,          16,
                                   "one",      "A kind.",
                                   1,          0,
                                   s->choices, NULL,
                                   "0.1",      sizeof(xray_choice),
                                   0 };
    s->component = (xray_component){ .header = XRAY_HEADER(xray_component),
                                     .iface = XRAY_IFACE_ALGO,
                                     .name = "it-1_x",
                                     .summary = "An example",
                                     .ops = &s->table,
                                     .options = s->options,
                                     .option_count = 3,
                                     .option_stride = sizeof(xray_option),
                                     .config_size = 24 };
    s->list[0] = s->list[1] = &s->component;
    s->plugin = (xray_plugin){ .header = XRAY_HEADER(xray_plugin),
                               .abi_needed = XRAY_ABI_NEEDED,
                               .component_count = 1,
                               .name = "example",
                               .version = "1",
                               .vendor = "us",
                               .license = "none",
                               .components = s->list };
}

static void expect_fault(const sample *s, const char *want)
{
    xr_err err = { "" };
    xray_status status = xr_plugin_check(&s->plugin, "x.so", &err);
    assert_string_equal(err.text, want);
    assert_int_equal(status, *want ? XRAY_E_ABI : XRAY_OK);
}

/* One member is changed, and the error names it. */
#define CASE(change, want)        \
    do {                          \
        sample s;                 \
        fill_sample(&s);          \
        change;                   \
        expect_fault(&s, (want)); \
    } while (0)

/* ---- callbacks ---------------------------------------------------------- */

static const struct needs {
    const char *iface;
    size_t size;
    const char *names; /* in any order */
} needs[] = {
    { "xray.device/0", sizeof(xray_device_ops),
      "plan plan_weight plan_kv_block plan_scratch create destroy info alloc "
      "free host_alloc host_free memory reserve copy zero copy_rows checksum "
      "stream_create stream_destroy sync event_create event_destroy "
      "event_record event_wait event_query event_sync weight_create "
      "weight_destroy weight_changed "
      "kv_block_bytes matmul matmul_grad embedding embedding_grad gather "
      "scatter rmsnorm rmsnorm_grad layernorm layernorm_grad rope_table rope "
      "glu glu_grad attention attention_grad attention_kv lm_head_logp "
      "lm_head_grad lm_head_join sample edit_logits pick_logp advance axpby "
      "cast "
      "sumsq adamw" },
    { "xray.train/0", sizeof(xray_train_ops),
      "plan create destroy weights forward forward_backward optimizer_step "
      "save load" },
    { "xray.infer/0", sizeof(xray_infer_ops),
      "plan create destroy submit step poll abort stats update" },
    { "xray.algo/0", sizeof(xray_algo_ops),
      "create destroy needs prepare context metric_names loss" },
    { "xray.reward/0", sizeof(xray_reward_ops), "create destroy submit poll" },
    { "xray.tracker/0", sizeof(xray_tracker_ops),
      "create destroy submit flush" },
    { "xray.comm/0", sizeof(xray_comm_ops),
      "serves create destroy group all_reduce all_reduce_max reduce_scatter "
      "all_gather broadcast send recv" },
    { "xray.runtime/0", sizeof(xray_runtime_ops),
      "create attach destroy spawn kill pid send poll region_create "
      "region_destroy region_find record records notify "
      "notice" },
    { "xray.launcher/0", sizeof(xray_launcher_ops),
      "create destroy host_of start stop events next" },
};

static size_t count_words(const char *text)
{
    size_t count = 1;
    for (; *text; text++)
        count += *text == ' ';
    return count;
}

/* Each callback is left out in turn: required ones are named, the others may be
 * missing. */
static void each_missing_callback_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        sample s;
        size_t missed = 0;
        char padded[1024];
        fill_sample(&s);
        fill_callbacks(&s.table, needs[i].size);
        s.component.iface = needs[i].iface;
        expect_fault(&s, "");
        (void)snprintf(padded, sizeof(padded), " %s ", needs[i].names);
        for (size_t k = 0; k < needs[i].size / 8 - 1; k++) {
            char name[64];
            char word[72];
            char rest[80];
            xr_err err = { "" };
            s.table.fn[k] = NULL;
            xray_status status = xr_plugin_check(&s.plugin, "x.so", &err);
            s.table.fn[k] = (void (*)(void))callback;
            if (strstr(err.text, "only one of save and load"))
                continue;
            if (status == XRAY_OK)
                continue;
            missed++;
            assert_int_equal(
                sscanf(err.text,
                       "x.so: 'it-1_x' lacks %63[a-z_], which %79[^\n]", name,
                       rest),
                2);
            (void)snprintf(word, sizeof(word), " %s ", name);
            if (!strstr(padded, word))
                fail_msg("%s: %s", needs[i].iface, err.text);
            (void)snprintf(word, sizeof(word), "%s requires", needs[i].iface);
            assert_string_equal(rest, word);
        }
        assert_int_equal(missed, count_words(needs[i].names));
    }
}

/* A table of an older author may end after the last required callback. */
static void shorter_table_is_read_to_its_end(void **state)
{
    (void)state;
    size_t last = offsetof(xray_reward_ops, poll) + 8;
    CASE((s.component.iface = XRAY_IFACE_REWARD,
          s.table.header.size = (uint32_t)last),
         "");
    CASE((s.component.iface = XRAY_IFACE_REWARD,
          s.table.header.size = (uint32_t)last - 1),
         "x.so: 'it-1_x' lacks poll, which xray.reward/0 requires");
    last = offsetof(xray_comm_ops, exchange);
    CASE((s.component.iface = XRAY_IFACE_COMM,
          s.table.header.size = (uint32_t)last),
         "");
    CASE((s.component.iface = XRAY_IFACE_COMM,
          s.table.header.size = (uint32_t)last - 1),
         "x.so: 'it-1_x' lacks recv, which xray.comm/0 requires");
    CASE(s.table.header.size = 7,
         "x.so: the header of the callbacks of 'it-1_x' has 7 bytes and ABI "
         "0.3, but this is 0.3: fill it with XRAY_HEADER(xray_algo_ops)");
    CASE(s.table.header.abi = 1,
         "x.so: the header of the callbacks of 'it-1_x' has 120 bytes and ABI "
         "0.1, but this is 0.3: fill it with XRAY_HEADER(xray_algo_ops)");
    CASE((s.table.header.abi = 4, s.component.iface = XRAY_IFACE_COMM,
          s.table.header.size = 9),
         "x.so: the header of the callbacks of 'it-1_x' has 9 bytes and ABI "
         "0.4, but this is 0.3: fill it with XRAY_HEADER(xray_comm_ops)");
}

/* State that is saved must also be loaded. */
static void save_and_load_come_together(void **state)
{
    (void)state;
    static const char want[] = "x.so: 'it-1_x' has only one of save and load";
    size_t save = (offsetof(xray_algo_ops, save) - 8) / 8;
    size_t load = (offsetof(xray_algo_ops, load) - 8) / 8;
    CASE(s.table.fn[save] = NULL, want);
    CASE(s.table.fn[load] = NULL, want);
    CASE(s.table.fn[save] = s.table.fn[load] = NULL, "");
}

/* ---- options ------------------------------------------------------------ */

#define OPTION_0 "x.so: option 0 (count) of 'it-1_x': "
#define OPTION_1 "x.so: option 1 (flag) of 'it-1_x': "
#define OPTION_2 "x.so: option 2 (kind) of 'it-1_x': "
#define NAME "its name is not made of a-z, 0-9, '_' and '-'"

static void incomplete_options_are_refused(void **state)
{
    (void)state;
    CASE((void)0, "");
    CASE(s.options[0].name = NULL, "x.so: option 0 () of 'it-1_x': " NAME);
    CASE(s.options[0].name = "", "x.so: option 0 () of 'it-1_x': " NAME);
    CASE(s.options[0].name = "Count",
         "x.so: option 0 (Count) of 'it-1_x': " NAME);
    CASE(s.options[0].name = "a b", "x.so: option 0 (a b) of 'it-1_x': " NAME);
    CASE(s.options[0].name = "a-z_09", "");
    CASE(s.options[0].type = 0, OPTION_0 "its type is not known");
    CASE(s.options[0].type = 11, OPTION_0 "its type is not known");
    CASE(s.options[0].doc = NULL, OPTION_0 "it has no doc");
    CASE(s.options[1].doc = "", OPTION_1 "it has no doc");
    CASE(s.options[0].preset = NULL,
         OPTION_0 "it has no preset and is not required");
    CASE((s.options[0].preset = NULL, s.options[0].flags = XRAY_OPT_REQUIRED),
         "");
    CASE(s.options[2].choices = NULL, OPTION_2 "it has no choices");
    CASE(s.options[2].choice_stride = sizeof(xray_choice) - 1,
         OPTION_2 "its choice_stride is below sizeof(xray_choice)");
    CASE(s.options[1].name = "count",
         "x.so: 'it-1_x' has two options named count");
    CASE(s.options[2].name = "flag",
         "x.so: 'it-1_x' has two options named flag");
    CASE(s.options[0].preset = "0",
         "x.so: [it-1_x] count: 0 is out of range; expected 1 to 9");
    CASE(s.options[1].preset = "maybe",
         "x.so: [it-1_x] flag: 'maybe' is neither true nor false");
    /* A required option without a preset is not a fault of the preset. */
    CASE((s.options[0].type = XRAY_OPT_STRING, s.options[0].preset = NULL,
          s.options[0].flags = XRAY_OPT_REQUIRED),
         "");
}

/* A draft runs on its own minor only; later a host serves all older plugins of
 * its major, and newer ones that say that they need no more than it has. */
static void hosts_serve_what_needs_no_newer_minor(void **state)
{
    static const struct {
        uint32_t host;
        uint32_t built;
        uint32_t needed;
        uint32_t serves;
    } cases[] = {
        { 0x00002, 0x00002, 0x00002, 1 }, { 0x00002, 0x00002, 0, 1 },
        { 0x00002, 0x00001, 0x00001, 0 }, { 0x00002, 0x00003, 0x00002, 0 },
        { 0x00002, 0x00002, 0x00003, 0 }, { 0x10004, 0x10004, 0x10004, 1 },
        { 0x10004, 0x10000, 0x10000, 1 }, { 0x10004, 0x10009, 0x10004, 1 },
        { 0x10004, 0x10009, 0x10005, 0 }, { 0x10004, 0x20000, 0, 0 },
        { 0x10004, 0x00002, 0x00002, 0 }, { 0x20000, 0x10004, 0x10000, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (xray_abi_serves(cases[i].host, cases[i].built, cases[i].needed) !=
            cases[i].serves)
            fail_msg("case %zu", i);
}

static void fields_outside_the_struct_are_refused(void **state)
{
    (void)state;
    static const char out[] =
        OPTION_0 "its field is outside of the config struct";
    static const struct {
        uint32_t type;
        uint64_t size;
        const char *preset;
    } types[] = {
        { XRAY_OPT_BOOL, 4, "no" },       { XRAY_OPT_INT, 8, "3" },
        { XRAY_OPT_REAL, 8, "2" },        { XRAY_OPT_BYTES, 8, "3" },
        { XRAY_OPT_DURATION, 8, "5ns" },  { XRAY_OPT_STRING, 8, "" },
        { XRAY_OPT_PATH, 8, "" },         { XRAY_OPT_LIST, 16, "" },
        { XRAY_OPT_TRISTATE, 8, "auto" },
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        for (uint64_t at = 0; at <= 1; at++)
            CASE((s.options[0].type = types[i].type,
                  s.options[0].preset = types[i].preset,
                  s.options[0].offset =
                      s.component.config_size - types[i].size + at),
                 at ? out : "");
    CASE(s.options[0].offset = UINT64_MAX, out);
}

static void tables_are_bounded(void **state)
{
    (void)state;
    static char many[4096 * sizeof(xray_option)];
    static char names[4096][8];
    CASE(s.component.option_count = 4097,
         "x.so: 'it-1_x' has 4097 options in a struct of 24 bytes, but at most "
         "4096 in 1048576 are allowed");
    CASE(s.component.config_size = (1 << 20) + 1,
         "x.so: 'it-1_x' has 3 options in a struct of 1048577 bytes, but at "
         "most 4096 in 1048576 are allowed");
    CASE(s.component.config_size = 1 << 20, "");
    CASE(s.component.options = NULL,
         "x.so: 'it-1_x' has 3 options of 88 bytes; expected 88 bytes");
    CASE(s.component.option_stride = 80,
         "x.so: 'it-1_x' has 3 options of 80 bytes; expected 88 bytes");
    CASE(s.component.option_stride = 92,
         "x.so: 'it-1_x' has 3 options of 92 bytes; expected 88 bytes");
    CASE((s.component.options = NULL, s.component.option_count = 0,
          s.component.option_stride = 0),
         "");
    for (size_t i = 0; i < 4096; i++) {
        xray_option o = { names[i], XRAY_OPT_INT, 0,    0,
                          "3",      "A count.",   1,    9,
                          NULL,     NULL,         "0.1" };
        (void)snprintf(names[i], sizeof(names[i]), "k%zu", i);
        memcpy(many + i * sizeof(o), &o, sizeof(o));
    }
    CASE((s.component.options = (const void *)many,
          s.component.option_count = 4096),
         "");
}

/* ---- components and descriptors ----------------------------------------- */

static void incomplete_components_are_refused(void **state)
{
    (void)state;
    static const char lacks[] =
        "x.so: a component lacks interface, summary or callbacks";
    uint32_t reach = offsetof(xray_component, config_size) + 8;
    CASE(s.list[0] = NULL, "x.so: component 0 is NULL");
    CASE((s.plugin.component_count = 2, s.list[1] = NULL),
         "x.so: component 1 is NULL");
    CASE(s.component.iface = NULL, lacks);
    CASE(s.component.summary = NULL, lacks);
    CASE(s.component.ops = NULL, lacks);
    CASE(s.component.header.size = reach - 1, lacks);
    CASE(s.component.header.size = reach, "");
    CASE(s.component.header.abi = 0x20003,
         "x.so: the header of component 0 has 72 bytes and ABI 2.3, but this "
         "is 0.3: fill it with XRAY_HEADER(xray_component)");
    CASE(s.component.name = NULL, "x.so: the component's name '' is not made "
                                  "of a-z, 0-9, '_' and '-'");
    CASE(s.component.name = "It", "x.so: the component's name 'It' is not made "
                                  "of a-z, 0-9, '_' and '-'");
    CASE(s.component.iface = "xray.algo/1",
         "x.so: 'it-1_x' implements xray.algo/1, which this xray does not "
         "know");
}

static void incomplete_descriptors_are_refused(void **state)
{
    (void)state;
    static const char lacks[] =
        "x.so: its descriptor lacks name, version, vendor or license";
    CASE(s.plugin.name = NULL, lacks);
    CASE(s.plugin.version = NULL, lacks);
    CASE(s.plugin.vendor = NULL, lacks);
    CASE(s.plugin.license = NULL, lacks);
    CASE(s.plugin.components = NULL, "x.so: provides nothing");
    CASE(s.plugin.component_count = 0, "x.so: provides nothing");
    CASE(s.plugin.component_count = 1025,
         "x.so: has 1025 components, but at most 1024 are allowed");
    CASE(s.plugin.header.size = 55,
         "x.so: its descriptor has 55 bytes, but needs at least 56");
    CASE(s.plugin.header.size = 56, "");
    CASE(s.plugin.header.size = 64, "");
    CASE(s.plugin.header.abi = 0, "x.so: needs xray ABI 0.0, but this is 0.3");
    CASE(s.plugin.abi_needed = 0x10002, "x.so: needs xray ABI 1.2, but this is "
                                        "0.3");
    CASE(s.plugin.abi_needed = 0, "");
    CASE(s.plugin.component_count = 2, "");
}

static void many_components_are_accepted(void **state)
{
    (void)state;
    sample s;
    const xray_component *list[1024];
    fill_sample(&s);
    s.component.option_count = 0;
    for (size_t i = 0; i < 1024; i++)
        list[i] = &s.component;
    s.plugin.components = list;
    s.plugin.component_count = 1024;
    expect_fault(&s, "");
}

/* [algo.it-1_x], or the section that the caller names. */
static void options_have_a_section(void **state)
{
    (void)state;
    sample s;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    fill_sample(&s);
    xr_config_set(config, "algo.it-1_x.count=7", &errors);
    xr_config_set(config, "mine.count=8", &errors);
    xr_config_set(config, "wrong.count=10", &errors);
    int64_t *own = xr_component_config(config, &s.component, NULL, &errors);
    int64_t *mine = xr_component_config(config, &s.component, "mine", &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(own[0], 7);
    assert_int_equal(own[2], 1);
    assert_int_equal(mine[0], 8);
    assert_null(xr_component_config(config, &s.component, "wrong", &errors));
    assert_int_equal(errors.count, 1);
    assert_string_equal(
        errors.items[0],
        "--set: [wrong] count: 10 is out of range; expected 1 to 9");
    /* Earlier errors do not make this section fail. */
    int64_t *again = xr_component_config(config, &s.component, NULL, &errors);
    assert_non_null(again);
    free(own);
    free(mine);
    free(again);
    xr_errors_free(&errors);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_missing_callback_is_named),
        cmocka_unit_test(shorter_table_is_read_to_its_end),
        cmocka_unit_test(save_and_load_come_together),
        cmocka_unit_test(incomplete_options_are_refused),
        cmocka_unit_test(hosts_serve_what_needs_no_newer_minor),
        cmocka_unit_test(fields_outside_the_struct_are_refused),
        cmocka_unit_test(tables_are_bounded),
        cmocka_unit_test(incomplete_components_are_refused),
        cmocka_unit_test(incomplete_descriptors_are_refused),
        cmocka_unit_test(many_components_are_accepted),
        cmocka_unit_test(options_have_a_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
