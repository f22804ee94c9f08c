/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements xray check: batch arithmetic, memory, device, data, weights, and
 * the checkpoint that a run would resume from.
 */
#include "core/rl/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/data/data.h"
#include "core/deepspeed/deepspeed.h"
#include "core/rl/changes.h"
#include "core/rl/checkpoint.h"
#include "core/rl/trackers.h"
#include "core/roles/launched.h"
#include "core/roles/roles.h"
#include "core/run/hosts.h"
#include "core/run/resources.h"
#include "core/run/run_setup.h"
#include "model/hf/config.h"

typedef struct checking {
    xr_run *run;
    xr_str *out;
    xr_errors *errors;
    xr_errors *warnings;
    xr_resources plans;
    uint64_t rows;          /* rows of the training set; 0: not read */
    uint64_t steps;         /* steps of the run; 0: unknown */
    xr_tracked_run tracked; /* what trackers would be told */
} checking;

static int is_sft_run(const xr_run *run)
{
    return (run->with & XR_TRAINABLE) && !(run->with & XR_WITH_ALGO);
}

/* Training and validation set may fail for the same reason. */
static void add_error_once(checking *c, const char *text)
{
    for (size_t i = 0; i < c->errors->count; i++)
        if (strcmp(c->errors->items[i], text) == 0)
            return;
    xr_errors_add(c->errors, "%s", text);
}

/* ---- arithmetic and memory ---------------------------------------------- */

/* Prints the batch sizes that users often confuse, with their numbers worked
 * out. */
static void print_step_size(checking *c)
{
    const xr_run *run = c->run;
    xr_step_size step;
    xr_step_size_of(run, &c->plans, &step);
    if (is_sft_run(run))
        xr_str_printf(c->out, "one step: %" PRIu64 " rows", step.rows);
    else
        xr_str_printf(c->out,
                      "one step: %" PRIu64 " prompts x %" PRIu64
                      " samples = %" PRIu64 " rows",
                      step.prompts, step.samples, step.rows);
    xr_str_printf(c->out, " of at most %lld + %lld tokens\n",
                  (long long)run->ini.data.max_prompt_length,
                  (long long)run->ini.data.max_response_length);
    xr_str_printf(
        c->out,
        "updates per step: %" PRIu64 " epochs x %" PRIu64
        " mini-batches of %" PRIu64
        " rows, cut into micro-batches of at most %" PRIu64 " tokens\n",
        step.epochs, step.mini_batches, step.mini_rows, step.micro_tokens);
    if (run->needs & XRAY_NEED_CRITIC) {
        const xr_critic_section *critic = &run->ini.critic;
        uint64_t mini = (uint64_t)critic->ppo_mini_batch_size;
        mini = mini ? mini : step.prompts;
        xr_str_printf(c->out,
                      "updates of the critic per step: %lld epochs x %" PRIu64
                      " mini-batches of %" PRIu64 " rows\n",
                      (long long)critic->ppo_epochs,
                      mini ? step.prompts / mini : 0, mini * step.samples);
    }
    if (!is_sft_run(run) && step.epochs * step.mini_batches == 1)
        xr_str_puts(c->out, "one update per step: the ratio is 1 and clipping "
                            "never takes effect\n");
}

/* Prints how the ranks hold the models of which one rank does not hold all. */
static void print_layouts(checking *c)
{
    char axes[XR_AXES_CAP];
    for (size_t p = 0; p < c->plans.count; p++) {
        const xr_part_plan *part = &c->plans.parts[p];
        const xr_layout *layout = xr_run_layout(c->run, part->role);
        if (part->role && layout->width > 1)
            xr_str_printf(c->out, "ranks of %s: %u replicas of %u (%s)\n",
                          part->who, layout->replicas, layout->width,
                          xr_axes_text(layout, axes));
    }
}

static void print_memory_plans(checking *c)
{
    const xr_resources *r = &c->plans;
    char text[XR_BYTES_CAP];
    for (size_t p = 0; p < r->count; p++) {
        const xr_part_plan *part = &r->parts[p];
        xr_str_printf(c->out, "memory of %s:", part->who);
        for (size_t i = 0; i < XRAY_TAG_COUNT; i++)
            if (part->plan.bytes[i])
                xr_str_printf(c->out, " %s %s,", xr_tag_name(i),
                              xr_bytes_text(part->plan.bytes[i], text));
        xr_str_printf(c->out, " in all %s", xr_bytes_text(part->bytes, text));
        if (part->ranks > 1 && part->least == part->bytes)
            xr_str_printf(c->out, " on each of %u ranks", part->ranks);
        else if (part->ranks > 1)
            xr_str_printf(c->out, " on rank %u, the fullest of %u",
                          part->fullest, part->ranks);
        xr_str_puts(c->out, "\n");
    }
    if (!r->count || !r->machine.memory_bytes)
        return;
    for (size_t i = 0; i < r->turn_count; i++)
        xr_str_printf(c->out, "memory in the turn of %s: %s\n", r->turns[i].who,
                      xr_bytes_text(r->turns[i].bytes, text));
    xr_str_printf(c->out, "memory of the run: %s",
                  xr_bytes_text(r->bytes, text));
    xr_str_printf(c->out, " of %s\n",
                  xr_bytes_text(r->machine.memory_bytes, text));
    if (r->checkpoint_bytes)
        xr_str_printf(c->out, "one checkpoint: %s\n",
                      xr_bytes_text(r->checkpoint_bytes, text));
}

static void check_memory_fits(checking *c)
{
    xr_err err = { "" };
    int found = xr_resources_check_memory(c->run, &c->plans, &err);
    if (found)
        xr_errors_add(found == 2 ? c->errors : c->warnings, "%s", err.text);
}

/* Reports the error that starting the device on this machine would give. */
static void probe_device(checking *c)
{
    const xr_run *run = c->run;
    const xr_part *part = &run->device;
    const xray_device_ops *ops = (const xray_device_ops *)part->ops;
    xr_err err = { "" };
    if (!part->component || !part->config ||
        !XRAY_HAS(xray_device_ops, ops, probe))
        return;
    xray_status status = XR_CALL_TIMED(
        part, "probe", ops->probe(xr_host_api(part->host), part->config));
    if (status == XRAY_OK)
        return;
    (void)xr_host_error(part->host, status, "probe", &err);
    if (run->elsewhere)
        xr_errors_add(c->warnings, "a run on this machine would fail: %s",
                      err.text);
    else
        xr_errors_add(c->errors,
                      "%s: [run] device: %s; a run for another machine is "
                      "checked with --elsewhere",
                      xr_config_location(run->config, "run", "device"),
                      err.text);
}

/* Asks the engine that is to start the Workhorses. */
static void ask_engine(checking *c)
{
    const xr_run *run = c->run;
    xr_err err = { "" };
    if (run->elsewhere || !run->launcher.component || !run->launcher.config ||
        xr_launched_check(run, &err) == XRAY_OK)
        return;
    const int names_key = *err.location.key != '\0';
    xr_run_locate(run, &err);
    if (names_key)
        xr_errors_add(c->errors, "%s", err.text);
    else
        xr_errors_add(c->errors, "%s: [run] runtime: %s",
                      xr_config_location(run->config, "run", "runtime"),
                      err.text);
}

/* ---- data --------------------------------------------------------------- */

static int64_t step_batch_size(const xr_run *run)
{
    return is_sft_run(run) ? run->ini.sft.train_batch_size
                           : run->ini.data.train_batch_size;
}

xray_status xr_check_rows(const xr_run *run, const xr_dataset *set, xr_err *err)
{
    size_t rows = xr_dataset_count(set);
    if ((int64_t)rows >= step_batch_size(run))
        return XRAY_OK;
    const char *section = is_sft_run(run) ? "sft" : "data";
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: [%s] train_batch_size: a step takes %lld rows, "
                   "train_files hold %zu usable ones (%zu left out for their "
                   "length, %zu by filters)",
                   xr_config_location(run->config, section, "train_batch_size"),
                   section, (long long)step_batch_size(run), rows,
                   xr_dataset_filtered(set), xr_dataset_unwanted(set));
}

static void count_train_rows(checking *c, const xr_dataset *set)
{
    const xr_run_config *ini = &c->run->ini;
    xr_err err = { "" };
    int64_t steps = is_sft_run(c->run) ? ini->sft.total_steps
                                       : ini->trainer.total_training_steps;
    c->rows = xr_dataset_count(set);
    if (xr_check_rows(c->run, set, &err) != XRAY_OK)
        xr_errors_add(c->errors, "%s", err.text);
    c->steps = steps > 0 ? (uint64_t)steps
                         : (uint64_t)ini->trainer.total_epochs *
                               (c->rows / (uint64_t)step_batch_size(c->run));
}

static void check_dataset(checking *c, const char *name,
                          const xr_data_want *want)
{
    xr_err err = { "" };
    xr_dataset *set = NULL;
    if (xr_dataset_open(&c->run->ini.data, want, &err, &set) != XRAY_OK) {
        xr_run_locate(c->run, &err);
        add_error_once(c, err.text);
        return;
    }
    xr_str_printf(c->out,
                  "%s: %zu rows, %zu left out and %zu cut for their length\n",
                  name, xr_dataset_count(set), xr_dataset_filtered(set),
                  xr_dataset_truncated(set));
    if (xr_dataset_unwanted(set))
        xr_str_printf(c->out, "%s: %zu rows left out by [data] filters\n", name,
                      xr_dataset_unwanted(set));
    if (xr_dataset_note(set))
        xr_str_printf(c->out, "%s: %s\n", name, xr_dataset_note(set));
    if (want->part == XR_DATA_TRAIN)
        count_train_rows(c, set);
    xr_dataset_close(set);
}

static int all_readable(const xray_list *files)
{
    for (uint64_t i = 0; i < files->count; i++)
        if (!xr_path_exists(files->items[i]) ||
            !xr_path_may_be_file(files->items[i]))
            return 0;
    return 1;
}

/* Checks only sets whose files all exist; a missing file has its own error. */
static void check_datasets(checking *c)
{
    const xr_run *run = c->run;
    const xr_data_section *data = &run->ini.data;
    xr_data_want want = { .part = XR_DATA_TRAIN,
                          .kind =
                              is_sft_run(run) ? XR_DATA_SFT : XR_DATA_PROMPTS,
                          .tokenizer = run->tokenizer,
                          .chat = run->chat };
    if ((run->with & XR_TRAINABLE) && data->train_files.count &&
        all_readable(&data->train_files))
        check_dataset(c, "train_files", &want);
    want.part = XR_DATA_VAL;
    want.kind = XR_DATA_PROMPTS;
    if (data->val_files.count && all_readable(&data->val_files))
        check_dataset(c, "val_files", &want);
    else if (!data->val_files.count && data->val_split > 0 &&
             all_readable(&data->train_files))
        check_dataset(c, "val_split", &want);
    else if (!xr_data_has_val(data) && !(run->with & XR_TRAINABLE))
        xr_errors_add(c->errors, "%s: [data] val_files is not set",
                      xr_config_location(run->config, "data", "val_files"));
}

/* ---- the model ---------------------------------------------------------- */

static int has_file(const char *dir, const char *name)
{
    char path[XR_PATH_CAP];
    return xr_path_join(dir, name, path, sizeof(path), NULL) == XRAY_OK &&
           xr_path_exists(path);
}

/* Returns 1 for a model folder that holds config.json and nothing else. Such a
 * run can be checked up to the point where the tokenizer is needed. */
static int has_only_config(const xr_run *run)
{
    const char *other = run->ini.model.tokenizer_path;
    return !(other && *other) && !has_file(run->actor.path, "tokenizer.json") &&
           !has_file(run->actor.path, "vocab.json") &&
           run->actor.model.random_init;
}

static void check_tokenizer_and_data(checking *c)
{
    xr_run *run = c->run;
    xr_errors quiet = { 0 };
    if (!run->actor.path || !xr_path_is_dir(run->actor.path))
        return;
    if (run->actor.model.config_json && has_only_config(run)) {
        xr_run_read_tokenizer(run, &quiet);
        for (size_t i = 0; i < quiet.count; i++)
            xr_errors_add(c->warnings,
                          "the data was not checked and a run would stop "
                          "here: %s",
                          quiet.items[i]);
        xr_errors_free(&quiet);
    } else {
        xr_run_read_tokenizer(run, c->errors);
    }
    if (run->tokenizer)
        check_datasets(c);
}

/* ---- checkpoints -------------------------------------------------------- */

/* Reports the changes that a resume would report, and those that it would
 * refuse. */
static xray_status check_changes_since(checking *c, const char *path,
                                       xr_err *err)
{
    xr_run *run = c->run;
    xr_history now = { .input_count = 0 };
    xr_history then = { .input_count = 0 };
    xr_changes changes = { .algorithm = 0 };
    xray_status status = xr_changes_add_inputs(run, &now, err);
    if (status == XRAY_OK)
        status = xr_history_read(path, err, &then);
    if (status == XRAY_OK)
        status = xr_changes_find(run, path, &now, &then, err, &changes);
    for (size_t i = 0; i < changes.harmless.count; i++)
        xr_str_printf(c->out, "changed: %s\n", changes.harmless.items[i]);
    if (changes.meaning.count && !run->accept_changes)
        xr_changes_refuse(run, path, &changes, c->errors);
    for (size_t i = 0; run->accept_changes && i < changes.meaning.count; i++)
        xr_errors_add(c->warnings, "changed: %s", changes.meaning.items[i]);
    xr_changes_free(&changes);
    xr_history_free(&then);
    xr_history_free(&now);
    return status;
}

/* Checks the weights in the checkpoint against the model that they would be
 * loaded into. */
static void check_saved_model(const xray_model *model, const char *path,
                              const char *leaf, xr_errors *faults)
{
    char dir[XR_PATH_CAP];
    xray_model saved = *model;
    xr_err err = { "" };
    if (xr_path_join(path, leaf, dir, sizeof(dir), &err) != XRAY_OK) {
        xr_errors_add(faults, "%s", err.text);
    } else if (!xr_path_is_dir(dir)) {
        xr_errors_add(faults,
                      "%s: the checkpoint has no %s, which this run trains",
                      dir, leaf);
    } else {
        saved.path = dir;
        xr_run_check_weights(&saved,
                             strcmp(leaf, "critic") == 0 ? XR_WEIGHTS_CRITIC
                                                         : XR_WEIGHTS_POLICY,
                             faults);
    }
}

static xray_status check_saved_models(const checking *c, const char *path,
                                      xr_err *err)
{
    const xr_run *run = c->run;
    xray_status status = XRAY_OK;
    xr_errors faults = { 0 };
    if (run->actor.model.config_json)
        check_saved_model(&run->actor.model, path, "actor", &faults);
    const xray_model *critic = xr_run_model(run, XRAY_ROLE_CRITIC);
    if (xr_run_has_role(run, XRAY_ROLE_CRITIC) && critic->config_json)
        check_saved_model(critic, path, "critic", &faults);
    if (faults.count)
        status = xr_fail(err, XRAY_E_CONFIG, "%s", faults.items[0]);
    xr_errors_free(&faults);
    return status;
}

static xray_status check_checkpoint(checking *c, const char *path, xr_err *err)
{
    const xr_run *run = c->run;
    xr_progress expect = { .kind = is_sft_run(run) ? "sft" : "train",
                           .seed = (uint64_t)run->ini.run.seed,
                           .rows = c->rows };
    xray_status status = xr_checkpoint_verify(run, path, err);
    if (status != XRAY_OK)
        return status;
    status = xr_checkpoint_read(path, &expect, &expect, err);
    if (status != XRAY_OK)
        return status;
    c->tracked.step = expect.step;
    c->tracked.resumed = 1;
    status = check_changes_since(c, path, err);
    if (status != XRAY_OK)
        return status;
    return check_saved_models(c, path, err);
}

static void check_resume(checking *c)
{
    const xr_run *run = c->run;
    char path[XR_PATH_CAP];
    char lost[XR_PATH_CAP];
    xr_err err = { "" };
    if (!(run->with & XR_TRAINABLE) || !run->ini.trainer.default_local_dir)
        return;
    xray_status status = xr_checkpoint_find(run, path, &err);
    if (*path && xr_checkpoint_latest_is_lost(run, lost))
        xr_errors_add(c->warnings,
                      "%s is missing; the run resumes from the newest complete "
                      "checkpoint there, %s",
                      lost, path);
    if (status == XRAY_OK && *path)
        status = check_checkpoint(c, path, &err);
    const char *key =
        run->ini.trainer.resume_from_path && *run->ini.trainer.resume_from_path
            ? "resume_from_path"
            : "resume_mode";
    if (status != XRAY_OK)
        xr_errors_add(
            c->errors,
            "%s: [trainer] %s: the run cannot resume from its checkpoint: %s",
            xr_config_location(run->config, "trainer", key), key, err.text);
    else if (*path)
        xr_str_printf(c->out, "the run resumes from %s\n", path);
}

void xr_check_run(xr_run *run, xr_str *out, xr_errors *errors,
                  xr_errors *warnings)
{
    checking c = {
        .run = run, .out = out, .errors = errors, .warnings = warnings
    };
    for (size_t i = 0; xr_config_found(run->config, i); i++)
        xr_str_printf(out, "%s\n", xr_config_found(run->config, i));
    for (const xr_note *n = xr_config_notes(run->config); n; n = n->next)
        if (n->level <= XRAY_LOG_WARN)
            xr_errors_add(warnings, "%s", n->text);
        else
            xr_str_printf(out, "%s\n", n->text);
    xr_hosts_check_here(run, errors);
    xr_roles_try(run, errors);
    if (run->plannable)
        xr_resources_plan(run, errors, &c.plans);
    xr_resources_note_place(run, &c.plans);
    if (run->with & XR_TRAINABLE)
        print_step_size(&c);
    print_layouts(&c);
    print_memory_plans(&c);
    check_memory_fits(&c);
    probe_device(&c);
    ask_engine(&c);
    if (run->actor.model.config_json && !run->actor.model.random_init &&
        xr_run_has_weights(run->actor.path))
        xr_run_check_weights(&run->actor.model, XR_WEIGHTS_POLICY, errors);
    if (run->critic.json && !run->critic.model.random_init)
        xr_run_check_weights(&run->critic.model, XR_WEIGHTS_CRITIC, errors);
    if (run->reward_model.json && !run->reward_model.model.random_init)
        xr_run_check_weights(&run->reward_model.model, XR_WEIGHTS_REWARD,
                             errors);
    xr_run_report_new_heads(run, out);
    check_tokenizer_and_data(&c);
    xr_resources_check_disk(run, &c.plans, c.steps, errors);
    check_resume(&c);
    c.tracked.kind = is_sft_run(run) ? "sft" : "train";
    c.tracked.run = "";
    if (!run->ini.trainer.val_only)
        xr_trackers_probe(run, &c.tracked, errors);
}
