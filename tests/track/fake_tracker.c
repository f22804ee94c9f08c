/* SPDX-License-Identifier: Apache-2.0
 *
 * A tracker that fails as its option says, from step 2 on, or with what it is
 * told of the run, under more names than a run may have trackers.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <xray/plugin.h>
#include <xray/tracker.h>

enum {
    NONE,
    CREATE,
    EMPTY,
    SUBMIT,
    MEMORY,
    BUSY,
    SLOW,
    HANG,
    CRASH,
    FLUSH,
    TELL
};

typedef struct fake_config {
    int64_t fault;
} fake_config;

typedef struct fake {
    const xray_host *host;
    int64_t fault;
} fake;

/* Fails with what it was told of the run. */
static xray_status tell_setup(const xray_host *host, const char *call,
                              const xray_track_setup *setup)
{
    char text[128];
    (void)snprintf(text, sizeof(text), "job %s run \"%s\" step %d resumed %d",
                   setup->job, setup->run, (int)setup->step,
                   (int)setup->resumed);
    return host->fail(host, XRAY_E_IO, call, text);
}

static xray_status create_fake(const xray_host *host, const void *config,
                               const xray_track_setup *setup, void **out_self)
{
    const fake_config *c = config;
    if (c->fault == TELL)
        return tell_setup(host, "create", setup);
    if (c->fault == CREATE)
        return host->fail(host, XRAY_E_IO, "create", "the server is away");
    fake *self = c->fault == EMPTY ? NULL : malloc(sizeof(*self));
    if (self)
        *self = (fake){ host, c->fault };
    *out_self = self;
    return XRAY_OK;
}

static void destroy_fake(void *self)
{
    free(self);
}

static void wait_for(long ms)
{
    const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    (void)nanosleep(&time, NULL);
}

static xray_status submit_fake(void *ptr, const xray_track_step *step)
{
    fake *self = ptr;
    if (step->step < 2)
        return XRAY_OK;
    switch (self->fault) {
    case SUBMIT:
        return self->host->fail(self->host, XRAY_E_IO, "submit",
                                "the server went away");
    case MEMORY:
        return step->step % 2 ? XRAY_OK
                              : self->host->fail(self->host, XRAY_E_NOMEM,
                                                 "submit", "out of memory");
    case BUSY:
        return XRAY_AGAIN;
    case SLOW:
        wait_for(800);
        return XRAY_OK;
    case HANG:
        for (;;)
            wait_for(1000);
    case CRASH:
        (void)raise(SIGABRT);
        return XRAY_OK;
    default:
        return XRAY_OK;
    }
}

static xray_status flush_fake(void *ptr)
{
    fake *self = ptr;
    return self->fault == FLUSH
               ? self->host->fail(self->host, XRAY_E_IO, "flush", "disk full")
               : XRAY_OK;
}

static xray_status probe_fake(const xray_host *host, const void *config,
                              const xray_track_setup *setup)
{
    if (((const fake_config *)config)->fault == TELL)
        return tell_setup(host, "probe", setup);
    return ((const fake_config *)config)->fault == CREATE
               ? host->fail(host, XRAY_E_IO, "probe", "the server is away")
               : XRAY_OK;
}

static const xray_tracker_ops ops = {
    .header = XRAY_HEADER(xray_tracker_ops),
    .create = create_fake,
    .destroy = destroy_fake,
    .submit = submit_fake,
    .flush = flush_fake,
    .probe = probe_fake,
};

static const xray_choice faults[] = {
    { "none", NONE, "n" },     { "create", CREATE, "c" },
    { "empty", EMPTY, "e" },   { "submit", SUBMIT, "s" },
    { "memory", MEMORY, "m" }, { "busy", BUSY, "b" },
    { "slow", SLOW, "s" },     { "hang", HANG, "h" },
    { "crash", CRASH, "c" },   { "flush", FLUSH, "f" },
    { "tell", TELL, "t" },     { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_CHOICE(fake_config, fault, "none", faults, 0u, "0.1", "What fails."),
};

#define FAKE(component, text)                  \
    static const xray_component component = {  \
        .header = XRAY_HEADER(xray_component), \
        .iface = XRAY_IFACE_TRACKER,           \
        .name = text,                          \
        .summary = "fails on demand",          \
        .ops = &ops,                           \
        .options = options,                    \
        .option_count = 1,                     \
        .option_stride = sizeof(xray_option),  \
        .config_size = sizeof(fake_config),    \
    };
FAKE(fake_1, "fake")
FAKE(fake_2, "fake_2")
FAKE(fake_3, "fake_3")
FAKE(fake_4, "fake_4")
FAKE(fake_5, "fake_5")
FAKE(fake_6, "fake_6")
FAKE(fake_7, "fake_7")
FAKE(fake_8, "fake_8")
FAKE(fake_9, "fake_9")

static const xray_component *const components[] = { &fake_1, &fake_2, &fake_3,
                                                    &fake_4, &fake_5, &fake_6,
                                                    &fake_7, &fake_8, &fake_9 };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = sizeof(components) / sizeof(components[0]),
    .name = "fake-tracker",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(fake_tracker, plugin, "fake-tracker", "0.1.0",
                   "xray.tracker/0:fake xray.tracker/0:fake_2 "
                   "xray.tracker/0:fake_3 xray.tracker/0:fake_4 "
                   "xray.tracker/0:fake_5 xray.tracker/0:fake_6 "
                   "xray.tracker/0:fake_7 xray.tracker/0:fake_8 "
                   "xray.tracker/0:fake_9")
XRAY_PLUGIN_ENTRY(fake_tracker)
