/* SPDX-License-Identifier: Apache-2.0
 *
 * A host for unit tests of plugins. It keeps the last reason, counts warnings,
 * and fills the configuration of a component from its option table.
 */
#ifndef XR_FAKE_HOST_H
#define XR_FAKE_HOST_H

#include "core/base/str.h"
#include "tests/testing.h"

#include <xray/plugin.h>

typedef struct fake_host {
    xray_host api;
    char reason[512];
    char line[512]; /* the last line that was logged */
    int warnings;
} fake_host;

static inline void fake_log(const xray_host *api, uint32_t level,
                            const char *text)
{
    fake_host *host = (fake_host *)api->host_data;
    host->warnings += level <= XRAY_LOG_WARN;
    (void)snprintf(host->line, sizeof(host->line), "%s", text);
}

static inline xray_status fake_fail(const xray_host *api, xray_status code,
                                    const char *where, const char *text)
{
    fake_host *host = (fake_host *)api->host_data;
    (void)snprintf(host->reason, sizeof(host->reason), "%s: %s", where, text);
    return code;
}

static inline const void *fake_service(const xray_host *api, const char *id)
{
    (void)api;
    (void)id;
    return NULL;
}

static inline void fake_host_init(fake_host *host)
{
    memset(host, 0, sizeof(*host));
    host->api = (xray_host){ .header = XRAY_HEADER(xray_host),
                             .host_data = host,
                             .version = "test",
                             .log = fake_log,
                             .fail = fake_fail,
                             .service = fake_service };
}

/* Returns the component of a plugin, which must have this interface and name.
 */
static inline const xray_component *
fake_component(const xray_plugin *(*query)(uint32_t host_abi),
               const char *iface, const char *name)
{
    const xray_plugin *plugin = query(XRAY_ABI);
    assert_non_null(plugin);
    const xray_component *c = plugin->components[0];
    assert_string_equal(c->iface, iface);
    assert_string_equal(c->name, name);
    return c;
}

static inline void fake_choice(const xray_option *option, const char *text,
                               int64_t *out)
{
    for (const xray_choice *c = option->choices; c->name;
         c = xray_next_choice(option, c))
        if (strcmp(c->name, text) == 0) {
            *out = c->value;
            return;
        }
    fail_msg("%s has no choice %s", option->name, text);
}

static inline void fake_decode(const xray_option *option, const char *text,
                               void *config)
{
    void *field = (char *)config + option->offset;
    switch (option->type) {
    case XRAY_OPT_CHOICE:
        fake_choice(option, text, field);
        return;
    case XRAY_OPT_BOOL:
        *(uint32_t *)field = strcmp(text, "true") == 0;
        return;
    case XRAY_OPT_TRISTATE:
        *(int64_t *)field =
            strcmp(text, "auto") == 0 ? XRAY_AUTO : strcmp(text, "true") == 0;
        return;
    case XRAY_OPT_INT:
        assert_int_equal(xr_parse_int(text, field), 0);
        return;
    case XRAY_OPT_REAL:
        assert_int_equal(xr_parse_real(text, field), 0);
        return;
    case XRAY_OPT_BYTES:
        assert_int_equal(xr_parse_bytes(text, field), 0);
        return;
    case XRAY_OPT_DURATION:
        assert_int_equal(xr_parse_duration(text, option->unit, field), 0);
        return;
    case XRAY_OPT_PATH:
    case XRAY_OPT_STRING:
        *(const char **)field = text;
        return;
    case XRAY_OPT_LIST:
        assert_string_equal(text, "");
        return;
    default:
        fail_msg("%s has a type the test does not know", option->name);
    }
}

#define RIG_KEYS(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* Sets the presets, then `keys`: pairs of name and value that end with NULL.
 * The values must outlive the config. */
static inline void fake_config(const xray_component *component,
                               const char *const *keys, void *config)
{
    memset(config, 0, (size_t)component->config_size);
    for (uint32_t i = 0; i < component->option_count; i++)
        fake_decode(&component->options[i], component->options[i].preset,
                    config);
    for (; keys && keys[0]; keys += 2) {
        uint32_t i = 0;
        while (i < component->option_count &&
               strcmp(component->options[i].name, keys[0]) != 0)
            i++;
        if (i == component->option_count)
            fail_msg("no option %s", keys[0]);
        fake_decode(&component->options[i], keys[1], config);
    }
}

#endif
