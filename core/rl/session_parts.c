/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/session_parts.h"
#include "core/rl/publish.h"
#include "core/rl/resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/rl/whole.h"

/* "xray.train/0" -> "train": what the INI calls the interface. */
static void kind_of(const char *iface, char *out, size_t cap)
{
    const char *dot = strchr(iface, '.');
    const char *kind = dot ? dot + 1 : iface;
    (void)snprintf(out, cap, "%.*s", (int)strcspn(kind, "/"), kind);
}

/* What a component would have in its section is not known when it is missing.
 */
void xr_session_find_part(xr_session *s, xr_part *part, const char *iface,
                          const char *name, const char *section,
                          xr_errors *errors)
{
    xr_err err = { "" };
    char kind[32];
    char instance[128];
    kind_of(iface, kind, sizeof(kind));
    (void)snprintf(instance, sizeof(instance), "%s.%s", kind, name);
    if (xr_plugins_find(s->plugins, iface, name, &err, &part->component) !=
        XRAY_OK) {
        part->component = NULL;
        const char *where = section ? section : "run";
        const char *key = section ? "plugin" : kind;
        xr_errors_add(errors, "%s: [%s] %s: %s",
                      xr_config_place(s->config, where, key), where, key,
                      err.text);
        xr_config_ignore(s->config, section ? section : instance);
        return;
    }
    part->ops = part->component->ops;
    part->host = xr_host_new(section ? section : instance, &s->sink);
    part->config =
        xr_component_config(s->config, part->component, section, errors);
    if (!part->host)
        xr_errors_add(errors, "out of memory");
    else
        part->instance = xr_host_instance(part->host);
}

int xr_session_provides(const xr_session *s, const char *section)
{
    char want[192];
    const char *dot = strchr(section, '.');
    (void)snprintf(want, sizeof(want), "xray.%.*s/0:%s", (int)(dot - section),
                   section, dot + 1);
    size_t size = strlen(want);
    for (size_t i = 0; i < xr_plugins_count(s->plugins); i++) {
        const char *at = xr_plugins_at(s->plugins, i)->provides;
        for (at = at ? strstr(at, want) : NULL; at; at = strstr(at + 1, want))
            if (at[size] == '\0' || at[size] == ' ')
                return 1;
    }
    return 0;
}

static int selected(const xr_session *s, const char *section)
{
    const xr_part *const parts[] = { &s->device, &s->comm,  &s->runtime,
                                     &s->train,  &s->infer, &s->algo };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i]->instance && strcmp(parts[i]->instance, section) == 0)
            return 1;
    for (size_t i = 0; i < s->reward_count; i++)
        if (s->rewards[i].instance &&
            strcmp(s->rewards[i].instance, section) == 0)
            return 1;
    return 0;
}

/* Options of plugins that are there but not selected are no error. */
static void ignore_unselected(xr_session *s)
{
    static const char *const kinds[] = { "train.",  "infer.", "algo.",
                                         "device.", "comm.",  "runtime.",
                                         "reward." };
    const char *section = NULL;
    for (size_t i = 0; (section = xr_config_section(s->config, i)); i++) {
        if (selected(s, section))
            continue;
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            if (strncmp(section, kinds[k], strlen(kinds[k])) == 0 &&
                (strcmp(kinds[k], "reward.") == 0 ||
                 xr_session_provides(s, section)))
                xr_config_ignore(s->config, section);
    }
}

static void find_comm(xr_session *s, xr_errors *errors)
{
    const char *name = s->run.run.comm;
    xr_session_find_part(s, &s->comm, XRAY_IFACE_COMM, name, NULL, errors);
    const xray_comm_ops *ops = (const xray_comm_ops *)s->comm.ops;
    if (s->comm.component && !ops->serves(s->device.component->name))
        xr_errors_add(errors, "%s: [run] comm: %s does not serve the device %s",
                      xr_config_place(s->config, "run", "comm"), name,
                      s->device.component->name);
}

void xr_session_find_parts(xr_session *s, xr_errors *errors)
{
    const xr_run_section *run = &s->run.run;
    xr_guard_limit(run->plugin_timeout);
    if (s->with & (XR_WITH_TRAIN | XR_WITH_INFER))
        xr_session_find_part(s, &s->device, XRAY_IFACE_DEVICE, run->device,
                             NULL, errors);
    if (run->ranks > 1 && s->device.component)
        find_comm(s, errors);
    if (strcmp(run->runtime, "auto") != 0 && strcmp(run->runtime, "local") != 0)
        xr_session_find_part(s, &s->runtime, XRAY_IFACE_RUNTIME, run->runtime,
                             NULL, errors);
    if (s->with & XR_WITH_TRAIN)
        xr_session_find_part(s, &s->train, XRAY_IFACE_TRAIN, run->train, NULL,
                             errors);
    if (s->with & XR_WITH_INFER)
        xr_session_find_part(s, &s->infer, XRAY_IFACE_INFER, run->infer, NULL,
                             errors);
    if (s->with & XR_WITH_ALGO)
        xr_session_find_part(s, &s->algo, XRAY_IFACE_ALGO, run->algo, NULL,
                             errors);
    if (s->with & XR_WITH_REWARD)
        xr_session_find_rewards(s, errors);
    else if (s->with & XR_WITH_ALGO)
        xr_session_find_score(s, errors);
    ignore_unselected(s);
    const xray_component *train = s->train.component;
    const xray_component *infer = s->infer.component;
    s->exact = train && infer && XRAY_HAS(xray_component, train, numerics) &&
               XRAY_HAS(xray_component, infer, numerics) &&
               strcmp(train->numerics, infer->numerics) == 0;
}

static void drop_part(xr_part *part)
{
    free(part->config);
    xr_host_free(part->host);
    *part = (xr_part){ 0 };
}

static void destroy(xr_part *part, void (*fn)(void *self))
{
    if (!part->self)
        return;
    xr_guard_enter(part->instance, "destroy", 1);
    fn(part->self);
    (void)xr_guard_leave(XRAY_OK);
    part->self = NULL;
}

/* What the device held at most, at log level info. */
static void say_memory(const xr_session *s)
{
    const xr_part *part = &s->device;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xray_memory_stats stats = { .head = XRAY_HEAD(xray_memory_stats) };
    xr_str line = { 0 };
    if (!part->self || !s->sink.write || s->sink.level < XRAY_LOG_INFO ||
        XR_CALL(part, "memory", ops->memory(part->self, &stats)) != XRAY_OK)
        return;
    xr_str_puts(&line, "memory at most:");
    for (size_t t = 0; t < XRAY_TAG_COUNT; t++)
        if (stats.high[t])
            xr_str_printf(&line, " %s %llu,", xr_tag_name(t),
                          (unsigned long long)stats.high[t]);
    xr_str_printf(&line, " at once %llu bytes",
                  (unsigned long long)stats.high_all);
    s->sink.write(s->sink.ctx, XRAY_LOG_INFO, part->instance,
                  xr_str_text(&line));
    xr_str_free(&line);
}

void xr_session_stop_parts(xr_session *s)
{
    say_memory(s);
    xr_transfer_free(s);
    if (s->whole) {
        xr_whole_close(s->whole);
        s->whole = NULL;
        s->infer.self = s->critic.self = s->score.self = NULL;
        s->reference.self = s->train.self = NULL;
    }
    for (size_t i = 0; i < s->reward_count; i++) {
        const xray_reward_ops *ops = (const xray_reward_ops *)s->rewards[i].ops;
        if (ops)
            destroy(&s->rewards[i], ops->destroy);
        drop_part(&s->rewards[i]);
    }
    if (s->algo.ops)
        destroy(&s->algo, xr_algo(s)->destroy);
    if (s->infer.ops)
        destroy(&s->infer, xr_infer(s)->destroy);
    if (s->train.ops) {
        destroy(&s->score, xr_train(s)->destroy);
        destroy(&s->critic, xr_train(s)->destroy);
        destroy(&s->reference, xr_train(s)->destroy);
        destroy(&s->train, xr_train(s)->destroy);
    }
    if (s->comm.ops)
        destroy(&s->comm, ((const xray_comm_ops *)s->comm.ops)->destroy);
    if (s->device.ops)
        destroy(&s->device, ((const xray_device_ops *)s->device.ops)->destroy);
    drop_part(&s->algo);
    drop_part(&s->infer);
    drop_part(&s->score);
    drop_part(&s->critic);
    drop_part(&s->reference);
    drop_part(&s->train);
    drop_part(&s->runtime);
    drop_part(&s->comm);
    drop_part(&s->device);
}
