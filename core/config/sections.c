/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the option tables of the core's sections and decodes them. Names and
 * presets are verl's where verl has the key; docs/decisions.md lists the
 * presets that differ.
 */
#include "core/config/sections.h"

#include <stdio.h>
#include <string.h>

#include "core/config/internal.h"

#define SINCE "0.1"
#define MOST 9007199254740992.0 /* 2^53: bounds are doubles */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Options whose key differs from the field's name. */
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

/* The core knows no plugin by name: plugins/CMakeLists.txt, which lists the
 * plugins of this program, defines the defaults. */
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
              "Reward instances; each NAME has a section [reward.NAME], and "
              "the weighted scores are added."),
    XRAY_INT(
        RUN, seed, "42", 0, MOST, NULL, 0u, SINCE,
        "Seed of all random numbers: data order, samples, initial weights."),
    XRAY_INT(RUN, threads, "0", 0, 1024, "threads", 0u, SINCE,
             "Threads of the CPU device; 0: one per core. Results do not "
             "depend on it."),
    XRAY_STRING(
        RUN, log, "warn", 0u, SINCE,
        "Least severe log lines that are shown: error, warn, info or debug."),
    XRAY_DURATION(
        RUN, plugin_timeout, "600s", 0, 1e15, "s", 0u, SINCE,
        "Longest time a plugin may take to load, plan, create or destroy, and "
        "a reward to return its next score; 0: no limit."),
    XRAY_INT(RUN, ranks, "1", 1, XR_MAX_RANKS, "ranks", 0u, SINCE,
             "Workhorses: processes that each hold a device and a shard of the "
             "models."),
    XRAY_STRING(
        RUN, runtime, "auto", 0u, SINCE,
        "How Workhorses start: local starts processes on this host; hosts on "
        "those of [placement] hosts; auto runs a single rank in this process "
        "and several ranks as local; any other name is that of a plugin, which "
        "starts them through an engine or is a runtime of its own, with "
        "options in [runtime.NAME]."),
    XRAY_STRING(
        RUN, comm, XR_DEFAULT_COMM, 0u, SINCE,
        "The collectives among ranks; their options are in [comm.NAME]."),
    XRAY_DURATION(RUN, comm_timeout, "600s", 1e6, 1e15, "s", 0u, SINCE,
                  "Longest time a rank waits for the others in a collective."),
    XRAY_INT(RUN, max_restarts, "0", 0, 1000000, "restarts", 0u, SINCE,
             "How often a run restarts from its last checkpoint by itself "
             "after losing a Workhorse."),
    XRAY_INT(RUN, layout_segments, "0", 0, XR_MAX_SEGMENTS, "segments", 0u,
             SINCE,
             "Add up the gradients of a mini-batch in so many segments, a "
             "power of two: all numbers of replicas that divide it give the "
             "same bits. 0: the bits depend on the replicas."),
};

/* ---- [model] ------------------------------------------------------------ */

static const xray_choice dtypes[] = {
    { "float32", XRAY_F32, "32-bit floating point" },
    { "bfloat16", XRAY_BF16, "brain floating point, 16 bits" },
    { "float16", XRAY_F16, "IEEE half precision" },
    { NULL, 0, NULL },
};
static const xray_choice inits[] = {
    { "load", XR_INIT_LOAD, "load them; a folder without weights is an error" },
    { "random", XR_INIT_RANDOM, "generate them from [run] seed" },
    { NULL, 0, NULL },
};

#define MODEL xr_model_section
static const xray_option model_options[] = {
    XRAY_PATH(MODEL, path, "", XRAY_OPT_MODEL, SINCE,
              "Folder of the model, with config.json, weights and tokenizer; "
              "the folder of a run means its newest checkpoint. Or a Hugging "
              "Face id (ORG/NAME, ORG/NAME@REVISION) in the local cache."),
    XRAY_PATH(MODEL, tokenizer_path, "", XRAY_OPT_MODEL, SINCE,
              "Folder of the tokenizer; empty: that of the model."),
    XRAY_CHOICE(MODEL, dtype, "float32", dtypes, 0u, SINCE,
                "Type of activations and of matrices in products; sums, "
                "gradients, master weights and moments are float32 with either "
                "type. 16-bit checkpoints are widened for float32."),
    XRAY_CHOICE(MODEL, init, "load", inits, 0u, SINCE,
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
    { "auto", XR_CHAT_AUTO, "lists of messages, if the model has a template" },
    { "always", XR_CHAT_ALWAYS, "plain text too, as a user's message" },
    { "never", XR_CHAT_NEVER, "none; messages are joined line by line" },
    { NULL, 0, NULL },
};

#define DATA xr_data_section
static const xray_option data_options[] = {
    XRAY_LIST(DATA, train_files, "", XRAY_OPT_PATHS, SINCE,
              "Files of rows to train on, folders of them, or patterns "
              "(data/*.parquet)."),
    XRAY_LIST(DATA, val_files, "", XRAY_OPT_PATHS, SINCE,
              "The same for validation; empty: none is done."),
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
                "replaced by their values."),
    XRAY_STRING(DATA, response_template, "{answer}", 0u, SINCE,
                "Text of a response that sft trains on; {answer} and any other "
                "{key} of the row are replaced by their values."),
    XRAY_INT(DATA, max_prompt_length, "512", 1, 1 << 24, "tokens", 0u, SINCE,
             "Longest prompt."),
    XRAY_INT(DATA, max_response_length, "512", 1, 1 << 24, "tokens", 0u, SINCE,
             "Longest response; sampling ends there."),
    XRAY_INT(DATA, train_batch_size, "1024", 1, 1 << 24, "prompts", 0u, SINCE,
             "Prompts per step."),
    XRAY_INT(DATA, val_batch_size, "0", 0, 1 << 24, "prompts", 0u, SINCE,
             "Prompts validated at a time; 0: up to 1024."),
    XRAY_BOOL(DATA, shuffle, "true", 0u, SINCE,
              "Visit training rows in a random order given by the seed, a new "
              "one each epoch; false: in the order of the files."),
    XRAY_BOOL(DATA, filter_overlong_prompts, "false", 0u, SINCE,
              "Leave out rows whose prompt is longer than max_prompt_length."),
    XRAY_INT(DATA, seed, "-1", -1, MOST, NULL, 0u, SINCE,
             "Seed of the order of rows; -1: that of [run]."),
    XRAY_CHOICE(DATA, truncation, "error", truncations, 0u, SINCE,
                "How an over-long prompt that is not left out is handled."),
    XRAY_INT(DATA, train_max_samples, "-1", -1, MOST, "rows", 0u, SINCE,
             "Training rows taken from the start of the files; -1: all."),
    XRAY_INT(DATA, val_max_samples, "-1", -1, MOST, "rows", 0u, SINCE,
             "Validation rows taken from the start of the files; -1: all."),
    XRAY_BOOL(DATA, special_tokens, "true", 0u, SINCE,
              "Begin prompts with the tokenizer's BOS, if it has one. A chat "
              "template writes its own."),
    XRAY_LIST(DATA, train_weights, "", 0u, SINCE,
              "Share of each train file among the rows trained on, above 0; "
              "empty: in proportion to its rows."),
    XRAY_LIST(
        DATA, filters, "", 0u, SINCE,
        "Conditions that a row must all meet: key op value with =, !=, <, <=, "
        ">, >= or ~ (contains); a dot in a key descends into an object."),
    XRAY_REAL(DATA, val_split, "0", 0, 0.5, NULL, 0u, SINCE,
              "Share of train_files held out for validation where val_files "
              "is empty; chosen by the prompt's text, the same in every run."),
    XRAY_CHOICE(DATA, apply_chat_template, "auto", chat_modes, 0u, SINCE,
                "Which prompts go through the chat template."),
    XRAY_PATH(DATA, chat_template, "", 0u, SINCE,
              "File with a Jinja chat template; empty: the model's own."),
    XRAY_STRING(DATA, chat_template_kwargs, "", 0u, SINCE,
                "A JSON object of further template variables, such as "
                "{\"enable_thinking\": false}."),
    XRAY_STRING(DATA, chat_date, XR_CHAT_DATE, 0u, SINCE,
                "The date that a template sees as today, YYYY-MM-DD. It is "
                "fixed, so that a repeated run has the same prompts."),
    XRAY_BOOL(DATA, add_generation_prompt, "true", 0u, SINCE,
              "End prompts made by the chat template where the answer begins."),
    XRAY_STRING(DATA, system_prompt, "", 0u, SINCE,
                "System message for conversations that have none; empty: the "
                "template's own."),
    XRAY_STRING(DATA, messages_key, "messages", 0u, SINCE,
                "Key of a conversation that sft trains on: all its assistant "
                "messages."),
    XRAY_STRING(DATA, tools_key, "tools", 0u, SINCE,
                "Key of a row's list of tools, which the template is given."),
};

/* ---- [rollout] ---------------------------------------------------------- */

static const xray_choice shares[] = {
    { "auto", XR_SHARE_AUTO,
      "the trainer's, if it holds all of them in the same process" },
    { "off", XR_SHARE_OFF, "a copy, sent and compared after each step" },
    { NULL, 0, NULL },
};

#define ROLLOUT xr_rollout_section
static const xray_option rollout_options[] = {
    XRAY_INT(ROLLOUT, n, "1", 1, 65536, "samples", 0u, SINCE,
             "Samples per prompt, which form a group of the algorithm."),
    XRAY_REAL(
        ROLLOUT, temperature, "1.0", 0, XR_MAX_TEMPERATURE, NULL, 0u, SINCE,
        "Sampling temperature of at least 0.00001; 0: the most likely token."),
    XRAY_REAL(ROLLOUT, top_p, "1", 0, 1, NULL, 0u, SINCE,
              "Sample from the most likely tokens whose probabilities add up "
              "to this, above 0; 1: off."),
    XRAY_REAL(ROLLOUT, min_p, "0", 0, 1, NULL, 0u, SINCE,
              "Leave out tokens less likely than this fraction of the most "
              "likely one; 0: off."),
    XRAY_INT(ROLLOUT, top_k, "-1", -1, 1 << 30, "tokens", 0u, SINCE,
             "Sample from this many most likely tokens; -1 or 0: off."),
    XRAY_REAL(
        ROLLOUT, repetition_penalty, "1", 0.01, 100, NULL, 0u, SINCE,
        "Divides logits above 0 of tokens in the prompt or the response, "
        "and multiplies others; 1: off. Penalties and min_tokens hold for "
        "xray eval and sft; a run that trains on its samples refuses them."),
    XRAY_REAL(ROLLOUT, frequency_penalty, "0", -2, 2, NULL, 0u, SINCE,
              "Subtracted from a token's logit as often as the response has "
              "it; 0: off."),
    XRAY_REAL(ROLLOUT, presence_penalty, "0", -2, 2, NULL, 0u, SINCE,
              "Subtracted once from the logits of tokens that the response "
              "has; 0: off."),
    XRAY_INT(ROLLOUT, min_tokens, "0", 0, 1 << 30, "tokens", 0u, SINCE,
             "No end token is sampled before a response has this many tokens."),
    XRAY_BOOL(ROLLOUT, ignore_eos, "false", 0u, SINCE,
              "Continue after an end token, up to max_response_length."),
    XRAY_INT(ROLLOUT, max_num_seqs, "0", 0, 1 << 20, "sequences", 0u, SINCE,
             "Most sequences sampled at once; 0: all of a step, at most 512."),
    XRAY_CHOICE(
        ROLLOUT, share_weights, "auto", shares, 0u, SINCE,
        "Weights that the engine samples with; results do not depend on it."),
    XRAY_BOOL(ROLLOUT, free_cache_engine, "false", 0u, SINCE,
              "The engine releases its memory while models compute: keys and "
              "values, activations, its copy of the weights."),
};

static const xray_option val_options[] = {
    AS_INT(ROLLOUT, "n", val_n, "0", 0, 65536, "samples",
           "Samples per validation prompt for mean@n, in addition to the "
           "greedy one; 0: greedy only."),
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
    XRAY_PATH(
        CRITIC, path, "", XRAY_OPT_MODEL, SINCE,
        "Folder of the critic's model; the folder of a run means the critic of "
        "its newest checkpoint; empty: the policy's initial weights."),
};

static const xray_choice schedules[] = {
    { "constant", XR_SCHEDULE_CONSTANT, "lr, after the warm-up" },
    { "linear", XR_SCHEDULE_LINEAR, "linearly down to min_lr_ratio" },
    { "cosine", XR_SCHEDULE_COSINE, "down to min_lr_ratio along a cosine" },
    { NULL, 0, NULL },
};

#define OPTIM xr_optim_section
#define OPTIM_OPTIONS(lr_preset)                                              \
    {                                                                         \
        XRAY_REAL(OPTIM, lr, lr_preset, 0, 1000, NULL, 0u, SINCE,             \
                  "Learning rate after the warm-up."),                        \
            XRAY_CHOICE(OPTIM, lr_scheduler_type, "constant", schedules, 0u,  \
                        SINCE, "How the learning rate decays."),              \
            XRAY_INT(OPTIM, lr_warmup_steps, "-1", -1, MOST, "steps", 0u,     \
                     SINCE,                                                   \
                     "Steps in which the learning rate rises from 0; -1: by " \
                     "lr_warmup_steps_ratio."),                               \
            XRAY_REAL(OPTIM, lr_warmup_steps_ratio, "0", 0, 1, NULL, 0u,      \
                      SINCE, "Warm-up as a fraction of all steps."),          \
            XRAY_REAL(                                                        \
                OPTIM, min_lr_ratio, "0", 0, 1, NULL, 0u, SINCE,              \
                "Lowest learning rate of a schedule, as a fraction of lr."),  \
            XRAY_REAL(OPTIM, num_cycles, "0.5", 0, 1000, NULL, 0u, SINCE,     \
                      "Periods of the cosine; 0.5 decays once."),             \
    }
static const xray_option actor_optim_options[] = OPTIM_OPTIONS("1e-6");
static const xray_option critic_optim_options[] = OPTIM_OPTIONS("1e-5");
static const xray_option sft_optim_options[] = OPTIM_OPTIONS("1e-5");

/* ---- [trainer] ---------------------------------------------------------- */

static const xray_choice nonfinites[] = {
    { "stop", XR_NONFINITE_STOP, "the run ends with an error" },
    { "skip", XR_NONFINITE_SKIP, "the step or update is skipped and counted" },
    { NULL, 0, NULL },
};

#define TRAINER xr_trainer_section
static const xray_option trainer_options[] = {
    XRAY_INT(TRAINER, total_epochs, "30", 1, MOST, "epochs", 0u, SINCE,
             "Passes over the training rows."),
    XRAY_INT(TRAINER, total_training_steps, "0", 0, MOST, "steps", 0u, SINCE,
             "Steps of the run; 0: by total_epochs."),
    XRAY_INT(TRAINER, save_freq, "-1", -1, MOST, "steps", 0u, SINCE,
             "Steps between checkpoints; -1: only at the end. Above 0 and with "
             "val_before_train, global_step_0 is written before the first "
             "step."),
    XRAY_INT(TRAINER, test_freq, "-1", -1, MOST, "steps", 0u, SINCE,
             "Steps between validations; -1: none in between."),
    XRAY_BOOL(TRAINER, val_before_train, "true", 0u, SINCE,
              "Validate before the first step."),
    XRAY_BOOL(TRAINER, val_after_train, "true", 0u, SINCE,
              "Validate after the last step."),
    XRAY_BOOL(TRAINER, val_only, "false", 0u, SINCE,
              "Validate the model, or the checkpoint that a run would resume "
              "from, print the metrics and end."),
    XRAY_INT(TRAINER, log_val_generations, "0", 0, 10000, "samples", 0u, SINCE,
             "Greedy samples that the console shows, and trackers get, at each "
             "validation, of prompts at even distances."),
    XRAY_PATH(TRAINER, default_local_dir, "", 0u, SINCE,
              "Folder of checkpoints and metrics; empty: "
              "checkpoints/PROJECT/EXPERIMENT in the current folder."),
    XRAY_STRING(TRAINER, resume_mode, "auto", 0u, SINCE,
                "auto resumes from the newest checkpoint, resume_path from "
                "that of resume_from_path; disable starts from step 0."),
    XRAY_PATH(
        TRAINER, resume_from_path, "", 0u, SINCE,
        "Checkpoint to resume from, whatever resume_mode says; empty: what "
        "it says."),
    XRAY_PATH(TRAINER, rollout_data_dir, "", 0u, SINCE,
              "Folder for the samples of each step; empty: they are not kept."),
    XRAY_PATH(
        TRAINER, validation_data_dir, "", 0u, SINCE,
        "Folder for the samples of each validation; empty: they are not kept."),
    XRAY_INT(TRAINER, max_actor_ckpt_to_keep, "0", 0, MOST, "checkpoints", 0u,
             SINCE, "Number of newest checkpoints that are kept; 0: all."),
    XRAY_STRING(TRAINER, project_name, "xray", 0u, SINCE,
                "Name of the project, in paths and metrics."),
    XRAY_STRING(TRAINER, experiment_name, "run", 0u, SINCE,
                "Name of the experiment, in paths and metrics."),
    XRAY_LIST(TRAINER, logger, "console, jsonl", 0u, SINCE,
              "Where metrics go: console, jsonl, and trackers of plugins, as "
              "tensorboard; each has its options in [tracker.NAME]."),
    XRAY_INT(TRAINER, critic_warmup, "0", 0, MOST, "steps", 0u, SINCE,
             "The first step that updates the policy; steps before it train "
             "the critic alone."),
    XRAY_CHOICE(TRAINER, on_nonfinite, "stop", nonfinites, 0u, SINCE,
                "How a NaN or Inf in a reward, log-prob, advantage or gradient "
                "is handled; it is reported and never applied."),
};

/* ---- [sft] -------------------------------------------------------------- */

#define SFT xr_sft_section
static const xray_option sft_options[] = {
    XRAY_INT(SFT, train_batch_size, "256", 1, 1 << 24, "rows", 0u, SINCE,
             "Rows per step."),
    XRAY_INT(SFT, total_steps, "1000", 1, MOST, "steps", 0u, SINCE,
             "Steps of the run, unless stop_at ends it earlier."),
    XRAY_INT(SFT, test_freq, "-1", -1, MOST, "steps", 0u, SINCE,
             "Steps between validations; -1: none in between."),
    XRAY_REAL(SFT, stop_at, "0", 0, 1e9, NULL, 0u, SINCE,
              "Greedy validation score that ends the run; 0: off."),
    XRAY_INT(SFT, max_token_len, "16384", 1, 1 << 28, "tokens", 0u, SINCE,
             "Most tokens of a micro-batch."),
    XRAY_REAL(SFT, grad_clip, "1.0", 0, 1e30, NULL, 0u, SINCE,
              "Global gradient norm is clipped to this; 0: not clipped."),
    XRAY_BOOL(SFT, train_on_prompt, "false", 0u, SINCE,
              "Include the prompt's tokens in the loss."),
};

/* ---- [reward.NAME] ------------------------------------------------------ */

#define REWARD xr_reward_section
static const xray_option reward_options[] = {
    XRAY_STRING(REWARD, plugin, "", 0u, SINCE,
                "The reward plugin of this instance; its options are in the "
                "same section. Empty: the plugin with the instance's name, or "
                "rule if the section sets grader."),
    XRAY_REAL(REWARD, weight, "1", -1e30, 1e30, NULL, 0u, SINCE,
              "Factor of the instance's score in the sum of scores."),
};

/* ---- decoding ----------------------------------------------------------- */

#define TABLE(array)                            \
    {                                           \
        array, COUNT(array), sizeof((array)[0]) \
    }
static const xr_section_info sections[] = {
    { "run", "The components of the run and its ranks.", TABLE(run_options) },
    { "placement", "Which ranks hold which model, and on which hosts.",
      TABLE(xr_placement_options) },
    { "runtime", "How Workhorses and the run reach each other.",
      TABLE(xr_runtime_options) },
    { "runtime.hosts", "How Workhorses start with [run] runtime = hosts.",
      TABLE(xr_hosts_options) },
    { "model", "The model that is trained.", TABLE(model_options) },
    { "data", "Data files, prompts and their conversion to tokens.",
      TABLE(data_options) },
    { "rollout", "How responses are sampled.", TABLE(rollout_options) },
    { "rollout.val", "Sampling of validation for mean@n.", TABLE(val_options) },
    { "actor", "Updates of the policy.", TABLE(xr_actor_options) },
    { "actor.optim", "The policy's learning rate.",
      TABLE(actor_optim_options) },
    { "critic", "Updates of the critic, for algorithms that have one.",
      TABLE(xr_critic_options) },
    { "ref", "The frozen reference policy.", TABLE(xr_ref_options) },
    { "critic.optim", "The critic's learning rate.",
      TABLE(critic_optim_options) },
    { "critic.model", "The model that the critic starts from.",
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
        { "runtime", XR_TABLE(xr_runtime_options), &out->runtime },
        { "runtime.hosts", XR_TABLE(xr_hosts_options), &out->runtime },
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
    if (config->failed) { /* xr_config_finish reports it */
        *out = (xr_run_config){ 0 };
        return;
    }
    preset_local_dir(config, &out->trainer);
    xr_errors quiet = { 0 }; /* reported already */
    xr_config_decode(config, "trainer", XR_TABLE(trainer_options),
                     &out->trainer, &quiet);
    xr_errors_free(&quiet);
    xr_run_check(config, out, errors);
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
                      "%s: [run] reward: \"%s\" does not name a section "
                      "[reward.NAME]: use letters, digits, '_', '-' and '.', "
                      "at most %u characters in all",
                      origin ? origin : "default", instance, XR_NAME_MAX);
        return;
    }
    xr_config_decode(config, section, XR_TABLE(reward_options), out, errors);
}
