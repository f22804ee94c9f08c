/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the rewards that [run] reward lists: the component of each instance,
 * and its options.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/run/reward_model.h"
#include "core/run/run_setup.h"

#define KIND "reward."
#define RULE "rule" /* the reward plugin that has the key `grader` */

static const xray_option options[] = {
    XRAY_STRING(xr_reward_model_config, path, "", XRAY_OPT_MODEL, "0.1",
                "Folder of the reward model: a sequence classifier with one "
                "label and the policy's vocabulary, in Hugging Face's format."),
};

const xray_component xr_reward_model_component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = XR_REWARD_MODEL_NAME,
    .summary = "a reward model, held by the training backend",
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(xr_reward_model_config),
};

/* The built-in reward model: its options are decoded once and kept with the
 * model. A Workhorse has the model but no rewards. */
static void find_reward_model(xr_run *run, xr_part *part, const char *section,
                              xr_errors *errors)
{
    const uint32_t need = XR_WITH_TRAIN | XR_WITH_ALGO;
    const char *wrong = run->reward_model_config     ? "the run has one already"
                        : (run->with & need) != need ? "only xray train has one"
                                                     : NULL;
    if (wrong) {
        xr_errors_add(errors, "%s: [%s] plugin: model: %s",
                      xr_config_location(run->config, section, "plugin"),
                      section, wrong);
        xr_config_ignore(run->config, section);
        return;
    }
    run->reward_model_config = xr_component_config(
        run->config, &xr_reward_model_component, section, errors);
    if (!part)
        return;
    part->component = &xr_reward_model_component;
    part->host = xr_host_new(section, &run->sink);
    part->config = run->reward_model_config
                       ? xr_calloc(1, sizeof(xr_reward_model_config))
                       : NULL;
    if (part->config)
        memcpy(part->config, run->reward_model_config,
               sizeof(xr_reward_model_config));
    if (!part->host || (run->reward_model_config && !part->config))
        xr_errors_add(errors, "out of memory");
    else
        part->instance = xr_host_instance(part->host);
}

void xr_run_find_reward_model(xr_run *run, xr_errors *errors)
{
    const xray_list *list = &run->ini.run.reward;
    for (uint64_t i = 0; i < list->count; i++) {
        char section[160];
        (void)snprintf(section, sizeof(section), "reward.%s", list->items[i]);
        const char *plugin = xr_config_get(run->config, section, "plugin");
        xr_reward_section own = { 0 };
        if (!plugin || strcmp(plugin, XR_REWARD_MODEL_NAME) != 0)
            continue;
        xr_run_reward(run->config, list->items[i], &own, errors);
        find_reward_model(run, NULL, section, errors);
    }
}

/* ---- the component of an instance ---------------------------------------- */

static int has_section(const xr_config *config, const char *name)
{
    const char *section = NULL;
    for (size_t i = 0; (section = xr_config_section(config, i)); i++)
        if (strcmp(section, name) == 0)
            return 1;
    return 0;
}

/* Returns the [reward.NAME] that was probably meant, or NULL. */
static const char *find_similar_section(const xr_config *config,
                                        const char *name)
{
    const char *near = NULL;
    const char *section = NULL;
    unsigned best = strlen(name) - strlen(KIND) < 5 ? 2 : 3;
    for (size_t i = 0; (section = xr_config_section(config, i)); i++) {
        unsigned distance = strncmp(section, KIND, strlen(KIND)) != 0
                                ? best
                                : xr_edit_distance(name, section, best);
        if (distance && distance < best) {
            best = distance;
            near = section;
        }
    }
    return near;
}

/* Reports an unknown reward with the names that the plugins offer and, if a
 * similar section exists, that section. */
static void report_unknown_reward(const xr_run *run, const char *section,
                                  int there, xr_errors *errors)
{
    const xray_component *none = NULL;
    xr_err err = { "" };
    const char *near = find_similar_section(run->config, section);
    (void)xr_plugins_find(run->plugins, XRAY_IFACE_REWARD,
                          section + strlen(KIND), &err, &none);
    if (there)
        xr_errors_add(errors,
                      "%s: [%s] plugin is not set, and %s; a section that sets "
                      "grader belongs to " RULE,
                      xr_config_location(run->config, section, "plugin"),
                      section, err.text);
    else
        xr_errors_add(
            errors, "%s: [run] reward: there is no section [%s], and %s%s%s%s",
            xr_config_location(run->config, "run", "reward"), section, err.text,
            near ? "; did you mean [" : "", near ? near : "", near ? "]?" : "");
    xr_config_ignore(run->config, section);
}

/* Returns the component of an instance that does not name one: the component of
 * the same name, or the one whose key `grader` is set. NULL after an error. */
static const char *guess_reward_plugin(xr_run *run, const char *section,
                                       int there, xr_errors *errors)
{
    const char *name = section + strlen(KIND);
    if (strcmp(name, XR_REWARD_MODEL_NAME) != 0 &&
        !xr_run_provides(run, section)) {
        name = xr_config_get(run->config, section, "grader") ? RULE : NULL;
        if (!name)
            report_unknown_reward(run, section, there, errors);
    }
    if (name)
        xr_config_preset(run->config, section, "plugin", name);
    return name;
}

/* ---- [run] reward ------------------------------------------------------- */

/* If [run] reward is not set, the default reward grades. That is not the
 * intention of a file that configures another reward, so it is an error. */
static void check_reward_is_listed(const xr_run *run, xr_errors *errors)
{
    const char *first = NULL;
    const char *section = NULL;
    const char *origin = xr_config_origin(run->config, "run", "reward");
    if (strcmp(origin, "default") != 0)
        return;
    for (size_t i = 0; (section = xr_config_section(run->config, i)); i++) {
        if (strncmp(section, KIND, strlen(KIND)) != 0 ||
            xr_run_role_section(section))
            continue;
        if (strcmp(section, KIND RULE) == 0)
            return;
        first = first ? first : section;
    }
    if (first)
        xr_errors_add(errors,
                      "%s: [run] reward is not set, so nothing would read "
                      "[%s]; expected reward = %s, or a list of others",
                      xr_config_location(run->config, "run", "reward"), first,
                      first + strlen(KIND));
}

static void find_listed_reward(xr_run *run, const char *instance, xr_part *part,
                               xr_errors *errors)
{
    char section[160];
    xr_reward_section own = { 0 };
    (void)snprintf(section, sizeof(section), KIND "%s", instance);
    if (xr_run_role_section(section)) {
        xr_errors_add(errors,
                      "%s: [run] reward: %s cannot be the name of a reward, "
                      "since [%s] holds options of the reward model",
                      xr_config_location(run->config, "run", "reward"),
                      instance, section);
        return;
    }
    int there = has_section(run->config, section);
    xr_run_reward(run->config, instance, &own, errors);
    part->weight = own.weight;
    const char *plugin = own.plugin;
    if (plugin && !*plugin)
        plugin = guess_reward_plugin(run, section, there, errors);
    if (plugin && strcmp(plugin, XR_REWARD_MODEL_NAME) == 0)
        find_reward_model(run, part, section, errors);
    else if (plugin)
        xr_run_find_part(run, part, XRAY_IFACE_REWARD, plugin, section, errors);
}

void xr_run_find_rewards(xr_run *run, xr_errors *errors)
{
    const xray_list *list = &run->ini.run.reward;
    if (list->count > XR_MAX_REWARDS) {
        xr_errors_add(
            errors,
            "%s: [run] reward lists %llu instances, at most %d are allowed",
            xr_config_location(run->config, "run", "reward"),
            (unsigned long long)list->count, XR_MAX_REWARDS);
        return;
    }
    check_reward_is_listed(run, errors);
    if (!list->count)
        xr_errors_add(errors,
                      "%s: [run] reward is not set; it lists instances, each a "
                      "section [reward.NAME]",
                      xr_config_location(run->config, "run", "reward"));
    for (uint64_t i = 0; i < list->count; i++)
        find_listed_reward(run, list->items[i],
                           &run->rewards[run->reward_count++], errors);
}
