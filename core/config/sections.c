/* SPDX-License-Identifier: Apache-2.0
 *
 * Option tables of the core's sections. Names and presets are verl's where verl
 * has the key; docs/decisions.md lists where a preset differs.
 */
#include "core/config/sections.h"

#include <stdio.h>
#include <string.h>

#include <xray/infer.h>

#include "core/config/internal.h"

#define SINCE "0.1"
#define MOST 9007199254740992.0 /* 2^53: bounds are doubles */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* An option whose key is not the field's name. */
#define AS_INT(cfg, key, field, preset, min, max, unit, doc)            \
    {                                                                   \
        key, XRAY_OPT_INT, 0u,                                          \
            offsetof(cfg, field) + XRAY_FIELD_IS_(cfg, field, int64_t), \
            preset, doc, min, max, NULL, unit, SINCE                    \
    }
#define AS_REAL(cfg, key, field, preset, min, max, doc)                        \
    {                                                                          \
        key, XRAY_OPT_REAL, 0u,                                                \
            offsetof(cfg, field) + XRAY_FIELD_IS_(cfg, field, double), preset, \
            doc, min, max, NULL, NULL, SINCE                                   \
    }

/* ---- [run] -------------------------------------------------------------- */

/* The core knows no plugin by its name: which ones are the defaults is said by
 * plugins/CMakeLists.txt, where the plugins of this program are listed. */
#define RUN xr_run_section
static const xray_option run_options[] = {
    XRAY_STRING(RUN, train, XR_DEFAULT_TRAIN, 0u, SINCE,
                "The training backend; its options are in [train.NAME]."),
    XRAY_STRING(RUN, infer, XR_DEFAULT_INFER, 0u, SINCE,
                "The inference backend; its options are in [infer.NAME]."),
    XRAY_STRING(RUN, algo, XR_DEFAULT_ALGO, 0u, SINCE,
                "The algorithm; its options are in [algo.NAME]."),
    XRAY_STRING(RUN, device, XR_DEFAULT_DEVICE, 0u, SINCE,
                "The device; its options are in [device.NAME]."),
    XRAY_LIST(RUN, reward, XR_DEFAULT_REWARD, 0u, SINCE,
              "Reward instances; NAME is set up in [reward.NAME], and the "
              "weighted scores are added."),
    XRAY_INT(RUN, seed, "42", 0, MOST, NULL, SINCE,
             "Seed of everything that is drawn: data order, samples, initial "
             "weights."),
    XRAY_INT(RUN, threads, "0", 0, 1024, "threads", SINCE,
             "Threads of the CPU device; 0: one a core. Results do not depend "
             "on it."),
    XRAY_STRING(RUN, log, "warn", 0u, SINCE,
                "Least urgent log lines that are shown: error, warn, info or "
                "debug."),
    XRAY_DURATION(RUN, plugin_timeout, "600s", 0, 1e15, "s", SINCE,
                  "Longest time a plugin may take to load, plan, create or "
                  "destroy, and a reward to give its next answer; 0: any."),
    XRAY_INT(RUN, ranks, "1", 1, XR_MAX_RANKS, "ranks", SINCE,
             "Workhorses, processes that hold a device and a shard of the "
             "models each."),
    XRAY_STRING(RUN, runtime, "auto", 0u, SINCE,
                "What starts Workhorses: local, processes of this host; auto: "
                "one rank runs in this process, several are local; or the name "
                "of a plugin, whose options are in [runtime.NAME]."),
    XRAY_STRING(RUN, comm, XR_DEFAULT_COMM, 0u, SINCE,
                "Collectives among ranks; its options are in [comm.NAME]."),
    XRAY_DURATION(RUN, comm_timeout, "600s", 1e6, 1e15, "s", SINCE,
                  "Longest time a rank waits for the others in a collective."),
    XRAY_INT(RUN, max_restarts, "0", 0, 1000000, "restarts", SINCE,
             "How often a run goes on from its last checkpoint by itself after "
             "a Workhorse was lost."),
};

/* ---- [model] ------------------------------------------------------------ */

static const xray_choice dtypes[] = {
    { "float32", XRAY_F32, "32-bit floating point" },
    { "bfloat16", XRAY_BF16, "brain floating point, 16 bits" },
    { "float16", XRAY_F16, "IEEE half precision" },
    { NULL, 0, NULL },
};
static const xray_choice inits[] = {
    { "load", XR_INIT_LOAD, "load them; a folder without is an error" },
    { "random", XR_INIT_RANDOM, "draw them by [run] seed" },
    { NULL, 0, NULL },
};

#define MODEL xr_model_section
static const xray_option model_options[] = {
    XRAY_PATH(MODEL, path, "", 0u, SINCE,
              "Folder of the model, with config.json, weights and tokenizer, "
              "or folder of a run, which stands for its newest checkpoint."),
    XRAY_PATH(MODEL, tokenizer_path, "", 0u, SINCE,
              "Folder of the tokenizer; empty: that of the model."),
    XRAY_CHOICE(MODEL, dtype, "float32", dtypes, SINCE,
                "What weights are computed in; 16-bit checkpoints are widened "
                "for float32."),
    XRAY_CHOICE(MODEL, init, "load", inits, SINCE,
                "Where the first weights come from."),
};

/* ---- [data] ------------------------------------------------------------- */

static const xray_choice truncations[] = {
    { "error", XR_TRUNCATE_ERROR, "an over-long prompt ends the run" },
    { "left", XR_TRUNCATE_LEFT, "its first tokens are cut" },
    { "right", XR_TRUNCATE_RIGHT, "its last tokens are cut" },
    { NULL, 0, NULL },
};

static const xray_choice chat_modes[] = {
    { "auto", XR_CHAT_AUTO, "lists of messages, if the model has one" },
    { "always", XR_CHAT_ALWAYS, "plain text too, as a user's message" },
    { "never", XR_CHAT_NEVER, "none; messages are joined line by line" },
    { NULL, 0, NULL },
};

#define DATA xr_data_section
static const xray_option data_options[] = {
    XRAY_LIST(DATA, train_files, "", XRAY_OPT_PATHS, SINCE,
              "JSON-lines files to train on."),
    XRAY_LIST(DATA, val_files, "", XRAY_OPT_PATHS, SINCE,
              "JSON-lines files for validation; empty: none is done."),
    XRAY_STRING(DATA, prompt_key, "prompt", 0u, SINCE,
                "Key of a row's prompt: a string, or a list of messages."),
    XRAY_STRING(DATA, answer_key, "answer", 0u, SINCE,
                "Key of the ground truth of rows without reward_model."),
    XRAY_STRING(DATA, response_key, "", 0u, SINCE,
                "Key of the response that sft trains on; empty: answer_key."),
    XRAY_STRING(DATA, reward_fn_key, "data_source", 0u, SINCE,
                "Key of the name by which a reward tells data sets apart."),
    XRAY_STRING(DATA, template, "{prompt}", 0u, SINCE,
                "Text of a prompt; {prompt} and any other {key} of the row are "
                "filled in."),
    XRAY_STRING(DATA, response_template, "{answer}", 0u, SINCE,
                "Text of a response that sft trains on; {answer} and any other "
                "{key} of the row are filled in."),
    XRAY_INT(DATA, max_prompt_length, "512", 1, 1 << 24, "tokens", SINCE,
             "Longest prompt."),
    XRAY_INT(DATA, max_response_length, "512", 1, 1 << 24, "tokens", SINCE,
             "Longest response; sampling ends there."),
    XRAY_INT(DATA, train_batch_size, "1024", 1, 1 << 24, "prompts", SINCE,
             "Prompts of a step."),
    XRAY_INT(DATA, val_batch_size, "0", 0, 1 << 24, "prompts", SINCE,
             "Prompts validated at a time; 0: up to 1024."),
    XRAY_BOOL(DATA, shuffle, "true", SINCE,
              "Draw training rows in an order that the seed gives, a new one "
              "each epoch; false: as the files have them."),
    XRAY_BOOL(DATA, filter_overlong_prompts, "false", SINCE,
              "Leave out rows whose prompt is over max_prompt_length."),
    XRAY_INT(DATA, seed, "-1", -1, MOST, NULL, SINCE,
             "Seed of the order of rows; -1: that of [run]."),
    XRAY_CHOICE(DATA, truncation, "error", truncations, SINCE,
                "What is done with an over-long prompt that is not left out."),
    XRAY_INT(DATA, train_max_samples, "-1", -1, MOST, "rows", SINCE,
             "Training rows taken from the start of the files; -1: all."),
    XRAY_INT(DATA, val_max_samples, "-1", -1, MOST, "rows", SINCE,
             "Validation rows taken from the start of the files; -1: all."),
    XRAY_BOOL(DATA, special_tokens, "true", SINCE,
              "Put the tokenizer's own BOS in front of prompts, if it has "
              "one. A chat template writes its own."),
    XRAY_LIST(DATA, train_weights, "", 0u, SINCE,
              "Share of each train file among the rows that are drawn, above "
              "0; none: files count by their rows."),
    XRAY_LIST(DATA, filters, "", 0u, SINCE,
              "Conditions on rows, all of which must hold: key op value with "
              "=, !=, <, <=, >, >= or ~ (contains); a dot goes into an "
              "object."),
    XRAY_REAL(DATA, val_split, "0", 0, 0.5, NULL, SINCE,
              "Share of train_files held out for validation where val_files "
              "is empty; chosen by the prompt's text, the same in every run."),
    XRAY_CHOICE(DATA, apply_chat_template, "auto", chat_modes, SINCE,
                "Which prompts go through the chat template."),
    XRAY_PATH(DATA, chat_template, "", 0u, SINCE,
              "File with a Jinja chat template; empty: the model's own."),
    XRAY_STRING(DATA, chat_template_kwargs, "", 0u, SINCE,
                "A JSON object of further variables of the template, as "
                "{\"enable_thinking\": false}."),
    XRAY_STRING(DATA, chat_date, XR_CHAT_DATE, 0u, SINCE,
                "The date a template sees as today, YYYY-MM-DD: fixed, so "
                "that a rerun has the same prompts."),
    XRAY_BOOL(DATA, add_generation_prompt, "true", SINCE,
              "Prompts made by the chat template end where the answer "
              "begins."),
    XRAY_STRING(DATA, system_prompt, "", 0u, SINCE,
                "System message of conversations that have none; empty: the "
                "template's own."),
    XRAY_STRING(DATA, messages_key, "messages", 0u, SINCE,
                "Key of a conversation that sft trains on: all its assistant "
                "messages."),
    XRAY_STRING(DATA, tools_key, "tools", 0u, SINCE,
                "Key of a row's list of tools, which the template is given."),
};

/* ---- [rollout] ---------------------------------------------------------- */

static const xray_choice shares[] = {
    { "auto", XR_SHARE_AUTO, "the trainer's, where they lie whole beside it" },
    { "off", XR_SHARE_OFF, "a copy, sent and compared after each step" },
    { NULL, 0, NULL },
};

#define ROLLOUT xr_rollout_section
static const xray_option rollout_options[] = {
    XRAY_INT(ROLLOUT, n, "1", 1, 65536, "samples", SINCE,
             "Samples of each prompt; a group of the algorithm."),
    XRAY_REAL(ROLLOUT, temperature, "1.0", 0, XR_MAX_TEMPERATURE, NULL, SINCE,
              "Sampling temperature, 0.00001 and more, or 0: the most likely "
              "token."),
    XRAY_REAL(ROLLOUT, top_p, "1", 0, 1, NULL, SINCE,
              "Sample from the likeliest tokens that have this probability "
              "together, above 0; 1: off."),
    XRAY_REAL(ROLLOUT, min_p, "0", 0, 1, NULL, SINCE,
              "Leave out tokens less likely than this part of the likeliest; "
              "0: off."),
    XRAY_INT(ROLLOUT, top_k, "-1", -1, 1 << 30, "tokens", SINCE,
             "Sample from this many likeliest tokens; -1 or 0: off."),
    XRAY_BOOL(ROLLOUT, ignore_eos, "false", SINCE,
              "Go on behind an end token, up to max_response_length."),
    XRAY_INT(ROLLOUT, max_num_seqs, "0", 0, 1 << 20, "sequences", SINCE,
             "Most sequences sampled at once; 0: those of a step, at most "
             "512."),
    XRAY_CHOICE(ROLLOUT, share_weights, "auto", shares, SINCE,
                "Weights the engine samples with; results do not depend on "
                "it."),
    XRAY_BOOL(ROLLOUT, free_cache_engine, "false", SINCE,
              "The engine gives its memory back while models compute: keys and "
              "values, activations, a copy of the weights."),
};

static const xray_option val_options[] = {
    AS_INT(ROLLOUT, "n", val_n, "0", 0, 65536, "samples",
           "Samples of each validation prompt, for mean@n beside the greedy "
           "one; 0: greedy only."),
    AS_REAL(ROLLOUT, "temperature", val_temperature, "1.0", 0,
            XR_MAX_TEMPERATURE, "Sampling temperature of mean@n."),
    AS_REAL(ROLLOUT, "top_p", val_top_p, "1", 0, 1, "As in [rollout]."),
    AS_INT(ROLLOUT, "top_k", val_top_k, "-1", -1, 1 << 30, "tokens",
           "As in [rollout]."),
};

/* ---- [critic.model], [actor.optim], [sft.optim] ---------------------------
 */

#define CRITIC xr_critic_section
static const xray_option critic_model_options[] = {
    XRAY_PATH(CRITIC, path, "", 0u, SINCE,
              "Folder of the critic's model, or of a run, which stands for its "
              "newest checkpoint's critic; empty: the policy's first weights."),
};

static const xray_choice schedules[] = {
    { "constant", XR_SCHEDULE_CONSTANT, "lr, after the warm-up" },
    { "linear", XR_SCHEDULE_LINEAR, "down to min_lr_ratio in a line" },
    { "cosine", XR_SCHEDULE_COSINE, "down to min_lr_ratio as a cosine" },
    { NULL, 0, NULL },
};

#define OPTIM xr_optim_section
#define OPTIM_OPTIONS(lr_preset)                                               \
    {                                                                          \
        XRAY_REAL(OPTIM, lr, lr_preset, 0, 1000, NULL, SINCE,                  \
                  "Learning rate behind the warm-up."),                        \
            XRAY_CHOICE(OPTIM, lr_scheduler_type, "constant", schedules,       \
                        SINCE, "How the learning rate goes down."),            \
            XRAY_INT(OPTIM, lr_warmup_steps, "-1", -1, MOST, "steps", SINCE,   \
                     "Steps in which the learning rate rises from 0; -1: by "  \
                     "lr_warmup_steps_ratio."),                                \
            XRAY_REAL(OPTIM, lr_warmup_steps_ratio, "0", 0, 1, NULL, SINCE,    \
                      "Warm-up as a part of all steps."),                      \
            XRAY_REAL(OPTIM, min_lr_ratio, "0", 0, 1, NULL, SINCE,             \
                      "Lowest learning rate of a schedule, as a part of lr."), \
            XRAY_REAL(OPTIM, num_cycles, "0.5", 0, 1000, NULL, SINCE,          \
                      "Waves of the cosine; 0.5 goes down once."),             \
    }
static const xray_option actor_optim_options[] = OPTIM_OPTIONS("1e-6");
static const xray_option critic_optim_options[] = OPTIM_OPTIONS("1e-5");
static const xray_option sft_optim_options[] = OPTIM_OPTIONS("1e-5");

/* ---- [trainer] ---------------------------------------------------------- */

static const xray_choice nonfinites[] = {
    { "stop", XR_NONFINITE_STOP, "the run ends with an error" },
    { "skip", XR_NONFINITE_SKIP,
      "the step, or the update, is left out and counted" },
    { NULL, 0, NULL },
};

#define TRAINER xr_trainer_section
static const xray_option trainer_options[] = {
    XRAY_INT(TRAINER, total_epochs, "30", 1, MOST, "epochs", SINCE,
             "Times the training rows are gone through."),
    XRAY_INT(TRAINER, total_training_steps, "0", 0, MOST, "steps", SINCE,
             "Steps of the run; 0: by total_epochs."),
    XRAY_INT(TRAINER, save_freq, "-1", -1, MOST, "steps", SINCE,
             "Steps between checkpoints; -1: only at the end. Above 0 and with "
             "val_before_train, global_step_0 is written before the first "
             "step."),
    XRAY_INT(TRAINER, test_freq, "-1", -1, MOST, "steps", SINCE,
             "Steps between validations; -1: none in between."),
    XRAY_BOOL(TRAINER, val_before_train, "true", SINCE,
              "Validate before the first step."),
    XRAY_BOOL(TRAINER, val_after_train, "true", SINCE,
              "Validate behind the last step."),
    XRAY_PATH(TRAINER, default_local_dir, "", 0u, SINCE,
              "Folder of checkpoints and metrics; empty: "
              "checkpoints/PROJECT/EXPERIMENT in the current folder."),
    XRAY_STRING(TRAINER, resume_mode, "auto", 0u, SINCE,
                "auto goes on from the newest checkpoint, resume_path from "
                "that of resume_from_path, disable starts anew."),
    XRAY_PATH(TRAINER, resume_from_path, "", 0u, SINCE,
              "Checkpoint to go on from; empty: the newest of "
              "default_local_dir."),
    XRAY_PATH(TRAINER, rollout_data_dir, "", 0u, SINCE,
              "Folder the samples of each step are written to; empty: they "
              "are not kept."),
    XRAY_PATH(TRAINER, validation_data_dir, "", 0u, SINCE,
              "Folder the samples of each validation are written to; empty: "
              "they are not kept."),
    XRAY_INT(TRAINER, max_actor_ckpt_to_keep, "0", 0, MOST, "checkpoints",
             SINCE, "Checkpoints that are kept, the newest ones; 0: all."),
    XRAY_STRING(TRAINER, project_name, "xray", 0u, SINCE,
                "Name of the project, in paths and metrics."),
    XRAY_STRING(TRAINER, experiment_name, "run", 0u, SINCE,
                "Name of the experiment, in paths and metrics."),
    XRAY_LIST(TRAINER, logger, "console, jsonl", 0u, SINCE,
              "Where metrics go: console, jsonl."),
    XRAY_INT(TRAINER, critic_warmup, "0", 0, MOST, "steps", SINCE,
             "The first step that updates the policy; steps before it train "
             "the critic alone."),
    XRAY_CHOICE(TRAINER, on_nonfinite, "stop", nonfinites, SINCE,
                "What a NaN or Inf in a reward, log-prob, advantage or "
                "gradient does; it is named, and never applied."),
};

/* ---- [sft] -------------------------------------------------------------- */

#define SFT xr_sft_section
static const xray_option sft_options[] = {
    XRAY_INT(SFT, train_batch_size, "256", 1, 1 << 24, "rows", SINCE,
             "Rows of a step."),
    XRAY_INT(SFT, total_steps, "1000", 1, MOST, "steps", SINCE,
             "Steps of the run, if stop_at does not end it."),
    XRAY_INT(SFT, test_freq, "-1", -1, MOST, "steps", SINCE,
             "Steps between validations; -1: none in between."),
    XRAY_REAL(SFT, stop_at, "0", 0, 1e9, NULL, SINCE,
              "Greedy validation score that ends the run; 0: off."),
    XRAY_INT(SFT, max_token_len, "16384", 1, 1 << 28, "tokens", SINCE,
             "Most tokens of a micro-batch."),
    XRAY_REAL(SFT, grad_clip, "1.0", 0, 1e30, NULL, SINCE,
              "Global gradient norm is clipped to this; 0: not clipped."),
    XRAY_BOOL(SFT, train_on_prompt, "false", SINCE,
              "Count the prompt's tokens in the loss too."),
};

/* ---- [reward.NAME] ------------------------------------------------------ */

#define REWARD xr_reward_section
static const xray_option reward_options[] = {
    XRAY_STRING(REWARD, plugin, "", 0u, SINCE,
                "The reward this is an instance of; its own options stand in "
                "the same section. Empty: the one of the instance's name, else "
                "rule where the section sets grader."),
    XRAY_REAL(REWARD, weight, "1", -1e30, 1e30, NULL, SINCE,
              "What its score is multiplied by before scores are added."),
};

/* ---- decoding ----------------------------------------------------------- */

#define TABLE(array)                            \
    {                                           \
        array, COUNT(array), sizeof((array)[0]) \
    }
static const xr_section_info sections[] = {
    { "run", "What the run is made of.", TABLE(run_options) },
    { "placement", "Which ranks hold which model.",
      TABLE(xr_placement_options) },
    { "model", "The model that is trained.", TABLE(model_options) },
    { "data", "Prompts and how they become tokens.", TABLE(data_options) },
    { "rollout", "How responses are sampled.", TABLE(rollout_options) },
    { "rollout.val", "How validation samples beside the greedy one.",
      TABLE(val_options) },
    { "actor", "Updates of the policy.", TABLE(xr_actor_options) },
    { "actor.optim", "The policy's learning rate.",
      TABLE(actor_optim_options) },
    { "critic", "Updates of the critic, for algorithms that have one.",
      TABLE(xr_critic_options) },
    { "ref", "The frozen reference.", TABLE(xr_ref_options) },
    { "critic.optim", "The critic's learning rate.",
      TABLE(critic_optim_options) },
    { "critic.model", "The model the critic starts from.",
      TABLE(critic_model_options) },
    { "trainer", "Length of the run, checkpoints, validation, metrics.",
      TABLE(trainer_options) },
    { "sft", "Supervised fine-tuning, xray sft.", TABLE(sft_options) },
    { "sft.optim", "The learning rate of xray sft.", TABLE(sft_optim_options) },
    { "reward.NAME", "An instance of a reward; [run] reward lists them.",
      TABLE(reward_options) },
};

const xr_section_info *xr_run_sections(size_t i)
{
    return i < COUNT(sections) ? &sections[i] : NULL;
}

/* A string that may only have certain values. */
static void one_of(const xr_config *config, const char *section,
                   const char *key, const char *value,
                   const char *const *allowed, xr_errors *errors)
{
    xr_str names = { 0 };
    for (size_t i = 0; allowed[i]; i++)
        if (strcmp(value, allowed[i]) == 0)
            return;
    for (size_t i = 0; allowed[i]; i++)
        xr_str_printf(&names, "%s%s", i ? ", " : "", allowed[i]);
    xr_errors_add(errors, "%s: [%s] %s: '%s' is none of %s",
                  xr_config_origin(config, section, key), section, key, value,
                  xr_str_text(&names));
    xr_str_free(&names);
}

/* Runs of different names must not resume each other's checkpoints. */
static void preset_local_dir(xr_config *config, const xr_trainer_section *t)
{
    const char *key = "default_local_dir";
    const char *set = xr_config_get(config, "trainer", key);
    if (set && *set)
        return;
    xr_config_preset(config, "trainer", key,
                     xr_config_keepf(config, "checkpoints/%s/%s",
                                     t->project_name, t->experiment_name));
}

static void check_trainer(const xr_config *config, const xr_trainer_section *t,
                          xr_errors *errors)
{
    static const char *const modes[] = { "auto", "disable", "resume_path",
                                         NULL };
    static const char *const loggers[] = { "console", "jsonl", NULL };
    one_of(config, "trainer", "resume_mode", t->resume_mode, modes, errors);
    for (uint64_t i = 0; i < t->logger.count; i++)
        one_of(config, "trainer", "logger", t->logger.items[i], loggers,
               errors);
    if (strcmp(t->resume_mode, "resume_path") == 0 && !*t->resume_from_path)
        xr_errors_add(errors,
                      "%s: [trainer] resume_mode: resume_path needs "
                      "resume_from_path",
                      xr_config_origin(config, "trainer", "resume_mode"));
    if (t->save_freq == 0 || t->test_freq == 0)
        xr_errors_add(
            errors,
            "%s: [trainer] %s: 0 is no number of steps; -1 "
            "turns it off",
            xr_config_origin(config, "trainer",
                             t->save_freq ? "test_freq" : "save_freq"),
            t->save_freq ? "test_freq" : "save_freq");
}

/* What the critic takes over from the actor. */
static void complete_critic(xr_run_config *run)
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

/* An engine takes it as a float. */
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
    for (size_t i = 0; i < COUNT(values); i++)
        if (values[i].wanted)
            xr_errors_add(errors, "%s: [%s] %s takes %s, not %g",
                          xr_config_origin(config, section, values[i].key),
                          section, values[i].key, values[i].wanted,
                          values[i].value);
}

static void check(const xr_config *config, xr_run_config *run,
                  xr_errors *errors)
{
    static const char *const levels[] = { "error", "warn", "info", "debug",
                                          NULL };
    xr_rollout_section *rollout = &run->rollout;
    one_of(config, "run", "log", run->run.log, levels, errors);
    check_trainer(config, &run->trainer, errors);
    complete_critic(run);
    /* verl writes "off" as -1, the engine takes 0. */
    if (rollout->top_k < 0)
        rollout->top_k = 0;
    if (rollout->val_top_k < 0)
        rollout->val_top_k = 0;
    check_sampling(config, "rollout", rollout->temperature, rollout->top_p,
                   errors);
    check_sampling(config, "rollout.val", rollout->val_temperature,
                   rollout->val_top_p, errors);
}

void xr_run_decode_first(xr_config *config, xr_run_section *out)
{
    xr_errors later = { 0 };
    *out = (xr_run_section){ 0 };
    xr_config_decode(config, "run", XR_TABLE(run_options), out, &later);
    if (config->failed)
        *out = (xr_run_section){ 0 };
    xr_errors_free(&later);
}

void xr_run_decode(xr_config *config, xr_run_config *out, xr_errors *errors)
{
    *out = (xr_run_config){ 0 };
    const struct {
        const char *section;
        xr_table table;
        void *target;
    } parts[] = {
        { "run", XR_TABLE(run_options), &out->run },
        { "placement", XR_TABLE(xr_placement_options), &out->placement },
        { "model", XR_TABLE(model_options), &out->model },
        { "data", XR_TABLE(data_options), &out->data },
        { "rollout", XR_TABLE(rollout_options), &out->rollout },
        { "rollout.val", XR_TABLE(val_options), &out->rollout },
        { "actor", XR_TABLE(xr_actor_options), &out->actor },
        { "actor.optim", XR_TABLE(actor_optim_options), &out->actor_optim },
        { "critic", XR_TABLE(xr_critic_options), &out->critic },
        { "ref", XR_TABLE(xr_ref_options), &out->ref },
        { "critic.optim", XR_TABLE(critic_optim_options), &out->critic_optim },
        { "critic.model", XR_TABLE(critic_model_options), &out->critic },
        { "trainer", XR_TABLE(trainer_options), &out->trainer },
        { "sft", XR_TABLE(sft_options), &out->sft },
        { "sft.optim", XR_TABLE(sft_optim_options), &out->sft_optim },
    };
    for (size_t i = 0; i < COUNT(parts); i++)
        xr_config_decode(config, parts[i].section, parts[i].table,
                         parts[i].target, errors);
    if (config->failed) { /* xr_config_finish says so */
        *out = (xr_run_config){ 0 };
        return;
    }
    preset_local_dir(config, &out->trainer);
    xr_errors quiet = { 0 }; /* said already */
    xr_config_decode(config, "trainer", XR_TABLE(trainer_options),
                     &out->trainer, &quiet);
    xr_errors_free(&quiet);
    check(config, out, errors);
}

void xr_run_reward(xr_config *config, const char *instance,
                   xr_reward_section *out, xr_errors *errors)
{
    char section[XR_NAME_MAX + 8];
    *out = (xr_reward_section){ 0 };
    int size = snprintf(section, sizeof(section), "reward.%s", instance);
    if (size < 0 || (size_t)size > XR_NAME_MAX ||
        !xr_config_name_ok(section, (size_t)size, 1)) {
        const char *origin = xr_config_origin(config, "run", "reward");
        xr_errors_add(errors,
                      "%s: [run] reward: \"%s\" names no section "
                      "[reward.NAME]: letters, digits, '_', '-' and '.' make "
                      "one, of at most %u characters",
                      origin ? origin : "default", instance, XR_NAME_MAX);
        return;
    }
    xr_config_decode(config, section, XR_TABLE(reward_options), out, errors);
}
