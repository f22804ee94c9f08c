/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a plugin's descriptor, components and options are complete before
 * any of its callbacks is called.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/elements.h"
#include "core/base/str.h"
#include "core/plugin/plugin.h"

typedef struct callback {
    const char *name;
    size_t offset;
} callback;

#define NEED(type, member)              \
    {                                   \
#member, offsetof(type, member) \
    }
#define LAST    \
    {           \
        NULL, 0 \
    }

#define OPS xray_device_ops
static const callback device_needs[] = {
    NEED(OPS, plan),
    NEED(OPS, plan_weight),
    NEED(OPS, plan_kv_block),
    NEED(OPS, plan_scratch),
    NEED(OPS, create),
    NEED(OPS, destroy),
    NEED(OPS, info),
    NEED(OPS, alloc),
    NEED(OPS, free),
    NEED(OPS, host_alloc),
    NEED(OPS, host_free),
    NEED(OPS, memory),
    NEED(OPS, reserve),
    NEED(OPS, copy),
    NEED(OPS, zero),
    NEED(OPS, copy_rows),
    NEED(OPS, checksum),
    NEED(OPS, stream_create),
    NEED(OPS, stream_destroy),
    NEED(OPS, sync),
    NEED(OPS, event_create),
    NEED(OPS, event_destroy),
    NEED(OPS, event_record),
    NEED(OPS, event_wait),
    NEED(OPS, event_query),
    NEED(OPS, event_sync),
    NEED(OPS, weight_create),
    NEED(OPS, weight_destroy),
    NEED(OPS, weight_changed),
    NEED(OPS, kv_block_bytes),
    NEED(OPS, matmul),
    NEED(OPS, matmul_grad),
    NEED(OPS, embedding),
    NEED(OPS, embedding_grad),
    NEED(OPS, gather),
    NEED(OPS, scatter),
    NEED(OPS, rmsnorm),
    NEED(OPS, rmsnorm_grad),
    NEED(OPS, layernorm),
    NEED(OPS, layernorm_grad),
    NEED(OPS, rope_table),
    NEED(OPS, rope),
    NEED(OPS, glu),
    NEED(OPS, glu_grad),
    NEED(OPS, attention),
    NEED(OPS, attention_grad),
    NEED(OPS, attention_kv),
    NEED(OPS, lm_head_logp),
    NEED(OPS, lm_head_grad),
    NEED(OPS, lm_head_join),
    NEED(OPS, sample),
    NEED(OPS, edit_logits),
    NEED(OPS, pick_logp),
    NEED(OPS, advance),
    NEED(OPS, axpby),
    NEED(OPS, cast),
    NEED(OPS, sumsq),
    NEED(OPS, adamw),
    LAST,
};
#undef OPS
#define OPS xray_train_ops
static const callback train_needs[] = {
    NEED(OPS, plan),           NEED(OPS, create),
    NEED(OPS, destroy),        NEED(OPS, weights),
    NEED(OPS, forward),        NEED(OPS, forward_backward),
    NEED(OPS, optimizer_step), NEED(OPS, save),
    NEED(OPS, load),           LAST,
};
#undef OPS
#define OPS xray_infer_ops
static const callback infer_needs[] = {
    NEED(OPS, plan),    NEED(OPS, create),
    NEED(OPS, destroy), NEED(OPS, submit),
    NEED(OPS, step),    NEED(OPS, poll),
    NEED(OPS, abort),   NEED(OPS, stats),
    NEED(OPS, update),  LAST,
};
#undef OPS
#define OPS xray_algo_ops
static const callback algo_needs[] = {
    NEED(OPS, create),  NEED(OPS, destroy),
    NEED(OPS, needs),   NEED(OPS, prepare),
    NEED(OPS, context), NEED(OPS, metric_names),
    NEED(OPS, loss),    LAST,
};
#undef OPS
#define OPS xray_reward_ops
static const callback reward_needs[] = {
    NEED(OPS, create),
    NEED(OPS, destroy),
    NEED(OPS, submit),
    NEED(OPS, poll),
    LAST,
};
#undef OPS
#define OPS xray_tracker_ops
static const callback tracker_needs[] = {
    NEED(OPS, create),
    NEED(OPS, destroy),
    NEED(OPS, submit),
    NEED(OPS, flush),
    LAST,
};
#undef OPS

#define OPS xray_comm_ops
static const callback comm_needs[] = {
    NEED(OPS, serves),         NEED(OPS, create),     NEED(OPS, destroy),
    NEED(OPS, group),          NEED(OPS, all_reduce), NEED(OPS, all_reduce_max),
    NEED(OPS, reduce_scatter), NEED(OPS, all_gather), NEED(OPS, broadcast),
    NEED(OPS, send),           NEED(OPS, recv),       LAST,
};
#undef OPS
#define OPS xray_runtime_ops
static const callback runtime_needs[] = {
    NEED(OPS, create),        NEED(OPS, attach),
    NEED(OPS, destroy),       NEED(OPS, spawn),
    NEED(OPS, kill),          NEED(OPS, pid),
    NEED(OPS, send),          NEED(OPS, poll),
    NEED(OPS, region_create), NEED(OPS, region_destroy),
    NEED(OPS, region_find),   NEED(OPS, record),
    NEED(OPS, records),       NEED(OPS, notify),
    NEED(OPS, notice),        LAST,
};
#undef OPS

#define OPS xray_launcher_ops
static const callback launcher_needs[] = {
    NEED(OPS, create), NEED(OPS, destroy), NEED(OPS, host_of), NEED(OPS, start),
    NEED(OPS, stop),   NEED(OPS, events),  NEED(OPS, next),    LAST,
};
#undef OPS

static const struct interface {
    const char *id;
    const callback *needs;
} interfaces[] = {
    { XRAY_IFACE_DEVICE, device_needs },
    { XRAY_IFACE_TRAIN, train_needs },
    { XRAY_IFACE_INFER, infer_needs },
    { XRAY_IFACE_ALGO, algo_needs },
    { XRAY_IFACE_REWARD, reward_needs },
    { XRAY_IFACE_COMM, comm_needs },
    { XRAY_IFACE_RUNTIME, runtime_needs },
    { XRAY_IFACE_LAUNCHER, launcher_needs },
    { XRAY_IFACE_TRACKER, tracker_needs },
};

static const struct interface *find_interface(const char *id)
{
    for (size_t i = 0; i < sizeof(interfaces) / sizeof(interfaces[0]); i++)
        if (strcmp(interfaces[i].id, id) == 0)
            return &interfaces[i];
    return NULL;
}

/* True if the author's table is long enough to hold the callback and sets
 * it. */
static int has_callback(const void *ops, size_t offset)
{
    xray_header header;
    void (*fn)(void) = NULL;
    memcpy(&header, ops, sizeof(header));
    if (header.size < offset + sizeof(fn))
        return 0;
    memcpy(&fn, (const unsigned char *)ops + offset, sizeof(fn));
    return fn != NULL;
}

static int is_valid_name(const char *text)
{
    if (!text || !*text)
        return 0;
    for (; *text; text++)
        if (!islower((unsigned char)*text) && !isdigit((unsigned char)*text) &&
            *text != '_' && *text != '-')
            return 0;
    return 1;
}

/* ---- options ------------------------------------------------------------ */

static uint64_t get_field_size(uint32_t type)
{
    switch (type) {
    case XRAY_OPT_BOOL:
        return sizeof(uint32_t);
    case XRAY_OPT_LIST:
        return sizeof(xray_list);
    default:
        return sizeof(int64_t);
    }
}

/* Describes the fault of an option; NULL if it has none. */
static const char *find_option_fault(const xray_component *c,
                                     const xray_option *o)
{
    uint64_t config_size = c->config_size;
    if (!is_valid_name(o->name))
        return "its name is not made of a-z, 0-9, '_' and '-'";
    if (o->type < XRAY_OPT_BOOL || o->type > XRAY_OPT_TRISTATE)
        return "its type is not known";
    if (!o->doc || !*o->doc)
        return "it has no doc";
    if (!o->preset && !(o->flags & XRAY_OPT_REQUIRED))
        return "it has no preset and is not required";
    if (o->type == XRAY_OPT_CHOICE && !o->choices)
        return "it has no choices";
    if (o->choices && o->choice_stride < sizeof(xray_choice))
        return "its choice_stride is below sizeof(xray_choice)";
    if (o->offset > config_size ||
        get_field_size(o->type) > config_size - o->offset)
        return "its field is outside of the config struct";
    if (o->flags & XRAY_OPT_DEEPSPEED &&
        (o->type != XRAY_OPT_PATH || strcmp(c->iface, XRAY_IFACE_TRAIN) != 0))
        return "only a PATH of a training backend names a DeepSpeed JSON";
    if (o->flags & XRAY_OPT_MODEL && o->type != XRAY_OPT_PATH &&
        o->type != XRAY_OPT_STRING)
        return "only a PATH or STRING names a model";
    return NULL;
}

static xr_table get_table(const xray_component *c)
{
    return (xr_table){ c->options, c->option_count, c->option_stride };
}

/* Decodes only the presets, to find those that their own table refuses. */
static xray_status check_presets(const xray_component *c, const char *from,
                                 xr_err *err)
{
    xray_status status = XRAY_OK;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    void *target = calloc(1, (size_t)c->config_size + 1);
    xr_table table = get_table(c);
    if (!config || !target) {
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory");
    } else {
        xr_config_decode(config, c->name, table, target, &errors);
        for (size_t i = 0; i < errors.count && status == XRAY_OK; i++)
            if (strncmp(errors.items[i], "default: ", 9) == 0)
                status = xr_fail(err, XRAY_E_ABI, "%s: %s", from,
                                 errors.items[i] + 9);
    }
    xr_errors_free(&errors);
    xr_config_free(config);
    free(target);
    return status;
}

/* A larger number is not a count, but arbitrary memory. */
#define OPTIONS_MOST 4096u
#define CONFIG_MOST (1u << 20)
#define COMPONENTS_MOST 1024u

static xray_status check_options(const xray_component *c, const char *from,
                                 xr_err *err)
{
    if (c->option_count > OPTIONS_MOST || c->config_size > CONFIG_MOST)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: '%s' has %u options in a struct of %llu bytes, but "
                       "at most %u in %u are allowed",
                       from, c->name, c->option_count,
                       (unsigned long long)c->config_size, OPTIONS_MOST,
                       CONFIG_MOST);
    if (c->option_count == 0)
        return XRAY_OK;
    if (!c->options ||
        c->option_stride < XR_LEAST(xray_option, choice_stride) ||
        c->option_stride % 8 != 0)
        return xr_fail(
            err, XRAY_E_ABI,
            "%s: '%s' has %u options of %u bytes; expected %zu bytes", from,
            c->name, c->option_count, c->option_stride, sizeof(xray_option));
    for (uint32_t i = 0; i < c->option_count; i++) {
        xray_option o = xr_option_at(get_table(c), i);
        const char *fault = find_option_fault(c, &o);
        if (fault)
            return xr_fail(err, XRAY_E_ABI, "%s: option %u (%s) of '%s': %s",
                           from, i, o.name ? o.name : "", c->name, fault);
        for (uint32_t j = 0; j < i; j++) {
            xray_option before = xr_option_at(get_table(c), j);
            if (strcmp(before.name, o.name) == 0)
                return xr_fail(err, XRAY_E_ABI,
                               "%s: '%s' has two options named %s", from,
                               c->name, o.name);
            if (before.flags & o.flags & XRAY_OPT_DEEPSPEED)
                return xr_fail(err, XRAY_E_ABI,
                               "%s: '%s' has two options that name a DeepSpeed "
                               "JSON, %s and %s",
                               from, c->name, before.name, o.name);
        }
    }
    return check_presets(c, from, err);
}

/* ---- components --------------------------------------------------------- */

/* A missing header reads as zeros or as the member that comes first instead. */
static xray_status check_header(const void *thing, const char *what,
                                const char *type, const char *from, xr_err *err)
{
    xray_header header;
    memcpy(&header, thing, sizeof(header));
    if (header.size >= sizeof(header) &&
        xray_abi_serves(XRAY_ABI, header.abi, 0))
        return XRAY_OK;
    return xr_fail(err, XRAY_E_ABI,
                   "%s: the header of %s has %u bytes and ABI %u.%u, but this "
                   "is %u.%u: fill it with XRAY_HEADER(%s)",
                   from, what, header.size, header.abi >> 16,
                   header.abi & 0xffffu, XRAY_ABI_MAJOR, XRAY_ABI_MINOR, type);
}

static xray_status check_callbacks(const xray_component *c,
                                   const struct interface *interface,
                                   const char *from, xr_err *err)
{
    for (const callback *need = interface->needs; need->name; need++)
        if (!has_callback(c->ops, need->offset))
            return xr_fail(err, XRAY_E_ABI,
                           "%s: '%s' lacks %s, which %s requires", from,
                           c->name, need->name, c->iface);
    /* State that is saved but never loaded would be lost silently. */
    if (strcmp(c->iface, XRAY_IFACE_ALGO) == 0 &&
        has_callback(c->ops, offsetof(xray_algo_ops, save)) !=
            has_callback(c->ops, offsetof(xray_algo_ops, load)))
        return xr_fail(err, XRAY_E_ABI,
                       "%s: '%s' has only one of save and load", from, c->name);
    return XRAY_OK;
}

static xray_status check_ops(const xray_component *c, const char *from,
                             xr_err *err)
{
    char what[128];
    char type[64];
    const struct interface *interface = find_interface(c->iface);
    if (!interface)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: '%s' implements %s, which this xray does not know",
                       from, c->name, c->iface);
    /* "xray.algo/0": xray_algo_ops. */
    const char *kind = strchr(c->iface, '.') + 1;
    (void)snprintf(what, sizeof(what), "the callbacks of '%s'", c->name);
    (void)snprintf(type, sizeof(type), "xray_%.*s_ops", (int)strcspn(kind, "/"),
                   kind);
    xray_status status = check_header(c->ops, what, type, from, err);
    return status == XRAY_OK ? check_callbacks(c, interface, from, err)
                             : status;
}

static xray_status check_component(const xray_component *c, uint32_t number,
                                   const char *from, xr_err *err)
{
    char what[32];
    (void)snprintf(what, sizeof(what), "component %u", number);
    if (!c)
        return xr_fail(err, XRAY_E_ABI, "%s: %s is NULL", from, what);
    xray_status status = check_header(c, what, "xray_component", from, err);
    if (status != XRAY_OK)
        return status;
    if (!XRAY_REACHES(xray_component, c, config_size) || !c->iface || !c->ops ||
        !c->summary)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: a component lacks interface, summary or "
                       "callbacks",
                       from);
    if (!is_valid_name(c->name))
        return xr_fail(err, XRAY_E_ABI,
                       "%s: the component's name '%s' is not made of a-z, "
                       "0-9, '_' and '-'",
                       from, c->name ? c->name : "");
    status = check_ops(c, from, err);
    return status == XRAY_OK ? check_options(c, from, err) : status;
}

xray_status xr_plugin_check(const xray_plugin *plugin, const char *from,
                            xr_err *err)
{
    if (!plugin->header.size)
        return check_header(plugin, "its descriptor", "xray_plugin", from, err);
    if (!XRAY_REACHES(xray_plugin, plugin, components))
        return xr_fail(
            err, XRAY_E_ABI,
            "%s: its descriptor has %u bytes, but needs at least %zu", from,
            plugin->header.size, sizeof(*plugin));
    if (!xray_abi_serves(XRAY_ABI, plugin->header.abi, plugin->abi_needed)) {
        uint32_t abi = xray_abi_serves(XRAY_ABI, plugin->header.abi, 0)
                           ? plugin->abi_needed
                           : plugin->header.abi;
        return xr_fail(
            err, XRAY_E_ABI, "%s: needs xray ABI %u.%u, but this is %u.%u",
            from, abi >> 16, abi & 0xffffu, XRAY_ABI_MAJOR, XRAY_ABI_MINOR);
    }
    if (!plugin->name || !plugin->version || !plugin->license ||
        !plugin->vendor)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: its descriptor lacks name, version, vendor or "
                       "license",
                       from);
    if (!plugin->component_count || !plugin->components)
        return xr_fail(err, XRAY_E_ABI, "%s: provides nothing", from);
    if (plugin->component_count > COMPONENTS_MOST)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: has %u components, but at most %u are allowed",
                       from, plugin->component_count, COMPONENTS_MOST);
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        xray_status status =
            check_component(plugin->components[i], i, from, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

const char *xr_component_section(const xray_component *component,
                                 char buffer[XR_SECTION_CAP])
{
    const char *kind = strchr(component->iface, '.');
    kind = kind ? kind + 1 : component->iface;
    /* [run] runtime names both kinds. */
    const int launcher = strcmp(component->iface, XRAY_IFACE_LAUNCHER) == 0;
    const char *word = launcher ? "runtime" : kind;
    (void)snprintf(buffer, XR_SECTION_CAP, "%.*s.%s", (int)strcspn(word, "/"),
                   word, component->name);
    return buffer;
}

static void *new_component_config(const xray_component *component,
                                  xr_errors *errors)
{
    void *target = calloc(1, (size_t)component->config_size + 1);
    if (!target)
        xr_errors_add(errors, "out of memory");
    return target;
}

static xr_table table_of_component(const xray_component *component)
{
    return (xr_table){ component->options, component->option_count,
                       component->option_stride };
}

void *xr_component_config(xr_config *config, const xray_component *component,
                          const char *section, xr_errors *errors)
{
    char buffer[XR_SECTION_CAP];
    if (!section)
        section = xr_component_section(component, buffer);
    void *target = new_component_config(component, errors);
    if (!target)
        return NULL;
    size_t before = errors->count;
    xr_config_decode(config, section, table_of_component(component), target,
                     errors);
    if (errors->count == before)
        return target;
    free(target);
    return NULL;
}

void xr_component_config_over(xr_config *config,
                              const xray_component *component,
                              const char *section, xr_errors *errors,
                              void **out)
{
    char base[XR_SECTION_CAP];
    size_t before = errors->count;
    *out = new_component_config(component, errors);
    if (!*out)
        return;
    size_t given = xr_config_decode_over(
        config, section, xr_component_section(component, base),
        table_of_component(component), *out, errors);
    if (given && errors->count == before)
        return;
    free(*out);
    *out = NULL;
}
