/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds a tiny algorithm plugin with the fault that a macro ZOO_... selects.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <xray/algo.h>
#include <xray/plugin.h>

/* ---- faults -------------------------------------------------------------- */

#if defined(ZOO_LOAD_CRASHES) || defined(ZOO_QUERY_CRASHES) || \
    defined(ZOO_CREATE_CRASHES)
static void crash_here(void)
{
    /* Volatile, so that the optimiser does not see the address. */
    int *volatile nowhere = (int *)(uintptr_t)16;
    *nowhere = 1;
}
#endif

#if defined(ZOO_QUERY_HANGS) || defined(ZOO_CREATE_HANGS)
static void hang_forever(void)
{
    for (;;)
        (void)pause();
}
#endif

#if defined(ZOO_CREATE_OVERFLOWS)
static volatile int bottom;
static int overflow_stack(int depth)
{
    volatile char frame[4096];
    frame[0] = (char)depth;
    return bottom ? frame[0] : overflow_stack(depth + 1) + frame[0];
}
#endif

#if defined(ZOO_LOAD_CRASHES)
__attribute__((constructor)) static void construct(void)
{
    crash_here();
}
#endif

#if defined(ZOO_EXTRA_SYMBOLS)
XRAY_EXPORT int zoo_helper(void);
int zoo_helper(void)
{
    return 1;
}
#endif

/* ---- the plugin --------------------------------------------------------- */

typedef struct zoo_config {
    int64_t count;
} zoo_config;

#if defined(ZOO_BAD_PRESET)
#define PRESET "11"
#else
#define PRESET "3"
#endif

#if defined(ZOO_CUT_LIST)
typedef struct longer_config {
    xray_list count; /* larger than zoo_config */
} longer_config;

static const xray_option options[] = {
    XRAY_LIST(longer_config, count, "", 0, "0.1", "Counts."),
};
#else
static const xray_option options[] = {
    XRAY_INT(zoo_config, count, PRESET, 1, 10, NULL, 0u, "0.1", "A count."),
};
#endif

static xray_status zoo_create(const xray_host *host, const void *config,
                              void **out_self)
{
    (void)config;
    (void)out_self;
    (void)host;
#if defined(ZOO_CREATE_CRASHES)
    crash_here();
    return XRAY_OK;
#elif defined(ZOO_CREATE_OVERFLOWS)
    return overflow_stack(0);
#elif defined(ZOO_CREATE_HANGS)
    hang_forever();
    return XRAY_OK;
#elif defined(ZOO_CREATE_EXITS)
    exit(0);
#elif defined(ZOO_CREATE_ABORTS)
    (void)raise(SIGABRT);
    return XRAY_OK;
#elif defined(ZOO_CREATE_SILENT)
    return XRAY_E_CONFIG; /* without a reason */
#elif defined(ZOO_CREATE_ODD)
    return 7; /* not a status of the ABI */
#elif defined(ZOO_CREATE_EMPTY)
    return XRAY_OK; /* creates nothing */
#elif defined(ZOO_NEEDS_ODD) || defined(ZOO_NEEDS_FORWARD) || \
    defined(ZOO_NAMES_NULL)
    static int instance;
    *out_self = &instance;
    return XRAY_OK;
#elif defined(ZOO_NAMES_KEY)
    const xray_location location = { .header = XRAY_HEADER(xray_location),
                                     .key = "count" };
    return XRAY_HAS(xray_host, host, fail_at)
               ? host->fail_at(host, XRAY_E_CONFIG, __func__, &location,
                               ": only for looks")
               : XRAY_E_ABI;
#elif defined(ZOO_WRITES_KEY)
    return host->fail(host, XRAY_E_CONFIG, "count",
                      "[data] filters: only for looks");
#else
    return host->fail(host, XRAY_E_CONFIG, __func__, "only for looks");
#endif
}

static void zoo_destroy(void *self)
{
    (void)self;
}

static xray_status zoo_needs(void *self, xray_needs *out)
{
    (void)self;
#if defined(ZOO_NEEDS_ODD)
    out->flags = 1u << 20;
#elif defined(ZOO_NEEDS_FORWARD)
    out->flags = XRAY_NEED_MINI_FORWARD;
#else
    out->flags = 0;
#endif
    return XRAY_OK;
}

static xray_status zoo_prepare(void *self, xray_batch *batch,
                               const xray_metric_sink *metrics)
{
    (void)self;
    (void)batch;
    (void)metrics;
    return XRAY_OK;
}

static xray_status zoo_context(void *self, const xray_batch *mini,
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

static const char *const *zoo_metric_names(void *self)
{
    (void)self;
#if defined(ZOO_NAMES_NULL)
    return NULL;
#else
    static const char *const none[] = { NULL };
    return none;
#endif
}

#if defined(ZOO_PRESETS_MOST)
/* As many as are accepted; with ZOO_BOUND=W or H, one column or row more. Other
 * letters are other faults, and 'e' is a table without rows. */
static const void *zoo_extension(void *self, const char *id)
{
    static const char *cells[1025 * 2];
    static xray_algo_presets presets = { .header =
                                             XRAY_HEADER(xray_algo_presets) };
    const char *bound = getenv("ZOO_BOUND");
    char letter = bound ? *bound : 'h';
    int wide = letter == 'W' || letter == 'w';
    (void)self;
    (void)id;
    for (int i = 0; i < 1025 * 2; i++)
        cells[i] = letter == 'n' && i == 0 ? NULL : "x";
    if (letter == 's')
        presets.header.size = offsetof(xray_algo_presets, cells);
    presets.columns = (wide ? 1024u : 1u) + (letter == 'W' ? 1u : 0u);
    presets.rows = (wide ? 1u : 1024u) + (letter == 'H' ? 1u : 0u);
    presets.columns = letter == 'z' ? 0 : presets.columns;
    presets.rows = letter == 'e' ? 0 : presets.rows;
    presets.titles = letter == 't' ? NULL : cells;
    presets.cells = letter == 'c' || letter == 'e' ? NULL : cells;
    return &presets;
}
#elif defined(ZOO_PRESETS_WIDE) || defined(ZOO_PRESETS_NULL)
static const void *zoo_extension(void *self, const char *id)
{
    static const char *const titles[] = { "preset", "A(1)" };
    static const char *const cells[] = { "one", NULL };
    static const xray_algo_presets presets = {
        .header = XRAY_HEADER(xray_algo_presets),
#if defined(ZOO_PRESETS_WIDE)
        .columns = 1u << 31,
        .rows = 2,
#else
        .columns = 2,
        .rows = 1,
#endif
        .titles = titles,
        .cells = cells,
    };
    (void)self;
    (void)id;
    return &presets;
}
#endif

#if !defined(ZOO_MISSING)
static xray_status zoo_loss(const void *context, uint64_t size,
                            const xray_loss_call *call, xray_metric_sums *sums)
{
    (void)context;
    (void)size;
    (void)call;
    (void)sums;
    return XRAY_OK;
}
#endif

static const xray_algo_ops ops = {
#if defined(ZOO_SHORT_TABLE)
    .header = { offsetof(xray_algo_ops, prepare), XRAY_ABI },
#elif defined(ZOO_EMPTY_TABLE)
    .header = { 0, 0 },
#else
    .header = XRAY_HEADER(xray_algo_ops),
#endif
    .create = zoo_create,
    .destroy = zoo_destroy,
    .needs = zoo_needs,
    .prepare = zoo_prepare,
    .context = zoo_context,
    .metric_names = zoo_metric_names,
#if defined(ZOO_PRESETS_WIDE) || defined(ZOO_PRESETS_NULL) || \
    defined(ZOO_PRESETS_MOST)
    .extension = zoo_extension,
#endif
#if !defined(ZOO_MISSING)
    .loss = zoo_loss,
#endif
};

static const xray_component component = {
#if defined(ZOO_SHORT_COMPONENT)
    .header = { offsetof(xray_component, options), XRAY_ABI },
#elif defined(ZOO_EMPTY_COMPONENT)
    .header = { 0, 0 },
#else
    .header = XRAY_HEADER(xray_component),
#endif
#if defined(ZOO_UNKNOWN_INTERFACE)
    .iface = "xray.oracle/0",
#else
    .iface = XRAY_IFACE_ALGO,
#endif
    .name = "zoo",
    .summary = "An exhibit",
    .ops = &ops,
    .options = options,
#if defined(ZOO_ABSURD_OPTIONS)
    .option_count = 1u << 31,
#else
    .option_count = sizeof(options) / sizeof(options[0]),
#endif
    .option_stride = sizeof(options[0]),
#if defined(ZOO_BAD_FIELD)
    .config_size = 4,
#elif defined(ZOO_ABSURD_CONFIG)
    .config_size = UINT64_MAX,
#else
    .config_size = sizeof(zoo_config),
#endif
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
#if defined(ZOO_NEWER_DESCRIPTOR)
    .header = { sizeof(xray_plugin), XRAY_ABI + 1 },
#elif defined(ZOO_SHORT_DESCRIPTOR)
    .header = { offsetof(xray_plugin, vendor), XRAY_ABI },
#elif defined(ZOO_EMPTY_DESCRIPTOR)
    .header = { 0, 0 },
#else
    .header = XRAY_HEADER(xray_plugin),
#endif
#if defined(ZOO_NEEDS_NEWER)
    .abi_needed = XRAY_ABI + 1,
#else
    .abi_needed = XRAY_ABI_NEEDED,
#endif
#if defined(ZOO_ABSURD_COMPONENTS)
    .component_count = 1u << 31,
#else
    .component_count = 1,
#endif
    .name = "zoo",
    .version = "1.2.3",
    .vendor = "tests",
    .license = "Apache-2.0",
    .components = components,
};

#if defined(ZOO_NEWER_ABI)
#define NOTE_ABI "0.9"
#elif defined(ZOO_OLDER_ABI)
#define NOTE_ABI "0.0"
#else
#define NOTE_ABI XRAY_STR(XRAY_ABI_MAJOR_N) "." XRAY_STR(XRAY_ABI_MINOR_N)
#endif
#if defined(ZOO_NOTE_LIES)
#define PROVIDES "xray.algo/0:zoo xray.algo/0:more"
#elif defined(ZOO_UNKNOWN_INTERFACE)
#define PROVIDES "xray.oracle/0:zoo"
#else
#define PROVIDES "xray.algo/0:zoo"
#endif

#if !defined(ZOO_NO_NOTE)
XRAY_NOTE_("{\"manifest\":1,\"abi\":\"" NOTE_ABI
           "\",\"name\":\"zoo\",\"version\":\"1.2.3\",\"provides\":\"" PROVIDES
           "\"}");
#endif

#if defined(ZOO_NO_SYMBOL)
#define QUERY zoo_query
const xray_plugin *zoo_query(uint32_t host_abi);
#else
#define QUERY xray_plugin_query
XRAY_EXPORT const xray_plugin *xray_plugin_query(uint32_t host_abi);
#endif
const xray_plugin *QUERY(uint32_t host_abi)
{
#if defined(ZOO_QUERY_CRASHES)
    crash_here();
#elif defined(ZOO_QUERY_HANGS)
    hang_forever();
#elif defined(ZOO_QUERY_EXITS)
    exit(0);
#elif defined(ZOO_QUERY_DIES)
    const char *number = getenv("ZOO_SIGNAL");
    const char *command = getenv("ZOO_COMMAND");
    if (number)
        (void)raise((int)strtol(number, NULL, 10));
    else
        _exit(command ? system(command) >> 8 : 3);
#endif
#if defined(ZOO_REFUSES)
    return host_abi == 0 ? &plugin : NULL;
#else
    return host_abi == XRAY_ABI ? &plugin : NULL;
#endif
}
