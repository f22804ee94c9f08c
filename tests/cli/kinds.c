/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin with an option of every kind, for the pages and schemas that the
 * program prints of options.
 */
#include <stddef.h>

#include <xray/algo.h>
#include <xray/plugin.h>
#include <xray/reward.h>

typedef struct kinds_config {
    const char *asked;
    uint32_t yes;
    uint32_t no;
    uint32_t one;
    int64_t whole;
    double real;
    uint64_t room;
    uint64_t any;
    int64_t wait;
    const char *text;
    const char *secret;
    const char *file;
    int64_t way;
    xray_list items;
    xray_list files;
    int64_t old;
    int64_t maybe;
    int64_t surely;
    int64_t needed;
} kinds_config;

/* Choices as a later version of the interface may have them. */
static const struct wide_choice {
    xray_choice choice;
    uint64_t later;
} ways[] = {
    { { "first", 0, "The first way." }, 1 },
    { { "second", 1, NULL }, 2 },
    { { "third", 2, "a | b < c*" }, 3 },
    { { NULL, 0, NULL }, 4 },
};

static const xray_option options[] = {
    XRAY_STRING(kinds_config, asked, NULL, XRAY_OPT_REQUIRED, "0.1",
                "The first, which has to be set."),
    XRAY_BOOL(kinds_config, yes, "on", 0u, "0.1", "A switch that is on."),
    XRAY_BOOL(kinds_config, no, "false", 0u, NULL, "A switch that is off."),
    XRAY_BOOL(kinds_config, one, "1", 0u, "0.1", "Another one."),
    XRAY_INT(kinds_config, whole, "7", -3, 1e9, "rows", 0u, "0.2",
             "A whole number.\nIts second line; with <tags>, a | and *."),
    XRAY_REAL(kinds_config, real, "1e-6", 0, 0.5, NULL, 0u, "0.1", "A number."),
    XRAY_BYTES(kinds_config, room, "64M", 1024, 0x1p30, 0u, "0.1", "Bytes."),
    XRAY_BYTES(kinds_config, any, "0", 1, 0, 0u, "0.1", "Bytes, no bounds."),
    XRAY_DURATION(kinds_config, wait, "1500ms", 0, 3.6e12, "s", 0u, "0.1",
                  "A time."),
    XRAY_STRING(kinds_config, text, " a ; b ", 0u, "0.1", "A text."),
    XRAY_STRING(kinds_config, secret, NULL, XRAY_OPT_REQUIRED | XRAY_OPT_SECRET,
                "0.1", "A key."),
    XRAY_PATH(kinds_config, file, "", 0u, "0.1", "A file."),
    { "way", XRAY_OPT_CHOICE, 0u, offsetof(kinds_config, way), "second",
      "Which way.", 1, 0, &ways[0].choice, NULL, "0.1", sizeof(ways[0]), 0u },
    XRAY_LIST(kinds_config, items, "a , b c,d", 0u, "0.1", "Items."),
    XRAY_LIST(kinds_config, files, "", XRAY_OPT_PATHS | XRAY_OPT_ADVANCED,
              "0.1", "Files."),
    XRAY_INT(kinds_config, old, NULL, 1, 0, "int",
             XRAY_OPT_DEPRECATED | XRAY_OPT_REQUIRED, "0.1", "Say whole."),
    XRAY_TRISTATE(kinds_config, maybe, "auto", XRAY_OPT_ADVANCED, "0.1",
                  "A third value; auto: as way."),
    XRAY_TRISTATE(kinds_config, surely, "on", 0u, "0.1", "A preset value."),
    XRAY_INT(kinds_config, needed, NULL, 0, 9, "rows", XRAY_OPT_REQUIRED, "0.1",
             "The last, which has to be set."),
};

static const char *const titles[] = { "name of a preset", "source", "a \"b\"" };
static const char *const cells[] = { "one",     "https://one", "1",
                                     "the two", "s",           "2 < 3" };

static const xray_algo_presets presets = {
    .header = XRAY_HEADER(xray_algo_presets),
    .columns = 3,
    .rows = 2,
    .titles = titles,
    .cells = cells,
};

static const void *kinds_extension(void *self, const char *id)
{
    (void)self;
    for (const char *want = XRAY_ALGO_PRESETS; *want || *id; want++, id++)
        if (*want != *id)
            return NULL;
    return &presets;
}

static xray_status kinds_create(const xray_host *host, const void *config,
                                void **out_self)
{
    (void)config;
    (void)out_self;
    return host->fail(host, XRAY_E_UNSUPPORTED, "create",
                      "is there to be looked at");
}

static void kinds_destroy(void *self)
{
    (void)self;
}

static xray_status kinds_needs(void *self, xray_needs *out)
{
    (void)self;
    (void)out;
    return XRAY_OK;
}

static xray_status kinds_prepare(void *self, xray_batch *batch,
                                 const xray_metric_sink *metrics)
{
    (void)self;
    (void)batch;
    (void)metrics;
    return XRAY_OK;
}

static xray_status kinds_context(void *self, const xray_batch *mini,
                                 const xray_totals *totals, void *out,
                                 uint64_t cap, uint64_t *out_size)
{
    (void)self;
    (void)mini;
    (void)totals;
    (void)out;
    (void)cap;
    *out_size = 0;
    return XRAY_OK;
}

static const char *const *kinds_metric_names(void *self)
{
    (void)self;
    static const char *const names[] = { NULL };
    return names;
}

static xray_status kinds_loss(const void *data, uint64_t size,
                              const xray_loss_call *call,
                              xray_metric_sums *sums)
{
    (void)data;
    (void)size;
    (void)call;
    (void)sums;
    return XRAY_OK;
}

static const xray_algo_ops algo = {
    .header = XRAY_HEADER(xray_algo_ops),
    .create = kinds_create,
    .destroy = kinds_destroy,
    .needs = kinds_needs,
    .prepare = kinds_prepare,
    .context = kinds_context,
    .metric_names = kinds_metric_names,
    .loss = kinds_loss,
    .extension = kinds_extension,
};

static xray_status kinds_submit(void *self, const xray_sample_in *samples,
                                uint64_t count, uint64_t stride)
{
    (void)self;
    (void)samples;
    (void)count;
    (void)stride;
    return XRAY_OK;
}

static xray_status kinds_poll(void *self, uint64_t wait_ns, xray_score *out)
{
    (void)self;
    (void)wait_ns;
    (void)out;
    return XRAY_END;
}

static const xray_reward_ops reward = {
    .header = XRAY_HEADER(xray_reward_ops),
    .create = kinds_create,
    .destroy = kinds_destroy,
    .submit = kinds_submit,
    .poll = kinds_poll,
};

static const xray_component first = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_ALGO,
    .name = "kinds",
    .summary = "options of every kind",
    .ops = &algo,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(kinds_config),
    .numerics = "kinds/1",
};

static const xray_component second = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = "kindly",
    .summary = "no option at all",
    .ops = &reward,
};

static const xray_component *const components[] = { &first, &second };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 2,
    .name = "kinds",
    .version = "3.2.1",
    .vendor = "a test",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(kinds, plugin, "kinds", "3.2.1",
                   "xray.algo/0:kinds xray.reward/0:kindly")
XRAY_PLUGIN_ENTRY(kinds)
