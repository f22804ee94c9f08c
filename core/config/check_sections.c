/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and completes decoded sections of the core where option tables cannot.
 */
#include <stdio.h>
#include <string.h>

#include <xray/infer.h>

#include "core/config/internal.h"

/* Checks a string that may only have certain values. */
static void check_allowed(const xr_config *config, const char *section,
                          const char *key, const char *value,
                          const char *const *allowed, xr_errors *errors)
{
    xr_str names = { 0 };
    for (size_t i = 0; allowed[i]; i++)
        if (strcmp(value, allowed[i]) == 0)
            return;
    for (size_t i = 0; allowed[i]; i++)
        xr_str_printf(&names, "%s%s", i ? ", " : "", allowed[i]);
    xr_errors_add(errors, "%s: [%s] %s: '%s' is not one of %s",
                  xr_config_origin(config, section, key), section, key, value,
                  xr_str_text(&names));
    xr_str_free(&names);
}

static void check_val_only(const xr_config *config, const xr_run_config *run,
                           xr_errors *errors)
{
    if (run->trainer.val_only && !run->data.val_files.count &&
        run->data.val_split <= 0)
        xr_errors_add(errors,
                      "%s: [trainer] val_only: there is nothing to validate; "
                      "set [data] val_files or val_split",
                      xr_config_origin(config, "trainer", "val_only"));
}

static void check_trainer(const xr_config *config, const xr_trainer_section *t,
                          xr_errors *errors)
{
    static const char *const modes[] = { "auto", "disable", "resume_path",
                                         NULL };
    check_allowed(config, "trainer", "resume_mode", t->resume_mode, modes,
                  errors);
    if (strcmp(t->resume_mode, "resume_path") == 0 && !*t->resume_from_path)
        xr_errors_add(errors,
                      "%s: [trainer] resume_mode: the value resume_path needs "
                      "resume_from_path",
                      xr_config_origin(config, "trainer", "resume_mode"));
    if (t->save_freq == 0 || t->test_freq == 0)
        xr_errors_add(
            errors,
            "%s: [trainer] %s: 0 is not a number of steps; -1 "
            "turns it off",
            xr_config_origin(config, "trainer",
                             t->save_freq ? "test_freq" : "save_freq"),
            t->save_freq ? "test_freq" : "save_freq");
}

/* Fills in the critic's settings that default to the actor's. */
static void inherit_from_actor(xr_run_config *run)
{
    const xr_actor_section *actor = &run->actor;
    xr_critic_section *critic = &run->critic;
    if (critic->ppo_mini_batch_size == XR_AS_ACTOR)
        critic->ppo_mini_batch_size = actor->ppo_mini_batch_size;
    if (!critic->ppo_epochs)
        critic->ppo_epochs = actor->ppo_epochs;
    if (critic->shuffle == XR_AS_ACTOR)
        critic->shuffle = actor->shuffle;
    if (critic->share_prompts == XR_AS_ACTOR)
        critic->share_prompts = actor->share_prompts;
    if (!critic->ppo_max_token_len_per_gpu)
        critic->ppo_max_token_len_per_gpu = actor->ppo_max_token_len_per_gpu;
}

const char *xr_temperature_refused(double value)
{
    return value == 0 || ((float)value >= XRAY_MIN_TEMPERATURE &&
                          value <= XR_MAX_TEMPERATURE)
               ? NULL
               : "0 (greedy) or a number from 0.00001 to 100";
}

/* Engines take top_p as a float. */
const char *xr_top_p_refused(double value)
{
    return (float)value > 0 && value <= 1 ? NULL : "a number above 0, up to 1";
}

static void check_sampling(const xr_config *config, const char *section,
                           double temperature, double top_p, xr_errors *errors)
{
    const struct {
        const char *key;
        double value;
        const char *wanted;
    } values[] = {
        { "temperature", temperature, xr_temperature_refused(temperature) },
        { "top_p", top_p, xr_top_p_refused(top_p) },
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        if (values[i].wanted)
            xr_errors_add(errors, "%s: [%s] %s takes %s, not %g",
                          xr_config_origin(config, section, values[i].key),
                          section, values[i].key, values[i].wanted,
                          values[i].value);
}

void xr_run_check(const xr_config *config, xr_run_config *run,
                  xr_errors *errors)
{
    static const char *const levels[] = { "error", "warn", "info", "debug",
                                          NULL };
    xr_rollout_section *rollout = &run->rollout;
    check_allowed(config, "run", "log", run->run.log, levels, errors);
    check_trainer(config, &run->trainer, errors);
    check_val_only(config, run, errors);
    inherit_from_actor(run);
    /* verl writes "off" as -1, while engines take 0. */
    if (rollout->top_k < 0)
        rollout->top_k = 0;
    if (rollout->val_top_k < 0)
        rollout->val_top_k = 0;
    check_sampling(config, "rollout", rollout->temperature, rollout->top_p,
                   errors);
    check_sampling(config, "rollout.val", rollout->val_temperature,
                   rollout->val_top_p, errors);
}
