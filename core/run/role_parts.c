/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes the options that a role has over those of the training backend:
 * [critic.train.NAME] over [train.NAME].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/run/run_setup.h"

static const struct {
    uint32_t role;
    const char *prefix; /* of the section */
    const char *who;    /* begins the errors of a plan */
} roles[] = {
    { XRAY_ROLE_REFERENCE, "ref.", "reference" },
    { XRAY_ROLE_CRITIC, "critic.", "critic" },
    { XRAY_ROLE_REWARD, "reward.", "reward model" },
};
#define ROLES (sizeof(roles) / sizeof(roles[0]))

const char *xr_run_role_section(const char *section)
{
    for (size_t i = 0; i < ROLES; i++) {
        size_t size = strlen(roles[i].prefix);
        if (strncmp(section, roles[i].prefix, size) == 0 &&
            strncmp(section + size, "train.", 6) == 0)
            return section + size;
    }
    return NULL;
}

const xr_part *xr_run_part_of(const xr_run *run, uint32_t role)
{
    if (role == XRAY_ROLE_ROLLOUT)
        return &run->infer;
    return run->role_parts[role].component ? &run->role_parts[role]
                                           : &run->train;
}

/* The keys of a DeepSpeed JSON reach other sections, too, so it belongs to the
 * run and not to one of its models. */
static void refuse_deepspeed(const xr_run *run, const char *section,
                             xr_errors *errors)
{
    const xray_component *train = run->train.component;
    const xr_table table = { train->options, train->option_count,
                             train->option_stride };
    for (uint32_t i = 0; i < train->option_count; i++) {
        xray_option option = xr_option_at(table, i);
        const char *value =
            option.flags & XRAY_OPT_DEEPSPEED
                ? xr_config_get(run->config, section, option.name)
                : NULL;
        if (value && *value)
            xr_errors_add(
                errors,
                "%s: [%s] %s: a DeepSpeed JSON is about all models, expected "
                "it in [%s]",
                xr_config_location(run->config, section, option.name), section,
                option.name, run->train.instance);
    }
}

static void find_role_part(xr_run *run, size_t i, xr_errors *errors)
{
    char section[160];
    void *config = NULL;
    xr_part *part = &run->role_parts[roles[i].role];
    (void)snprintf(section, sizeof(section), "%s%s", roles[i].prefix,
                   run->train.instance);
    xr_component_config_over(run->config, run->train.component, section, errors,
                             &config);
    refuse_deepspeed(run, section, errors);
    if (!config)
        return;
    *part = run->train;
    part->config = config;
    part->host = xr_host_new(roles[i].who, &run->sink);
    part->section = xr_strdup(section);
    if (!part->host || !part->section) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    part->instance = xr_host_instance(part->host);
    xr_host_section(part->host, part->section);
}

void xr_run_find_role_parts(xr_run *run, xr_errors *errors)
{
    for (size_t i = 0; run->train.component && i < ROLES; i++)
        find_role_part(run, i, errors);
}
