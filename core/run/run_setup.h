/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps that xr_run_new consists of, some of which core/roles and core/rl
 * use as well: selected components, model folders, weights and batch
 * arithmetic.
 */
#ifndef XR_RUN_SETUP_H
#define XR_RUN_SETUP_H

#include "core/run/run.h"

/* Finds a component and decodes `section` (NULL: [kind.name]). */
void xr_run_find_part(xr_run *run, xr_part *part, const char *iface,
                      const char *name, const char *section, xr_errors *errors);

/* Decodes [ref.train.NAME], [critic.train.NAME] and [reward.train.NAME], once
 * the training backend is found. */
void xr_run_find_role_parts(xr_run *run, xr_errors *errors);
/* Returns the section over which such a section is decoded, "train.NAME" within
 * the text; NULL for any other section. */
const char *xr_run_role_section(const char *section);

/* Makes every rank of a role a replica, as it is before layouts are planned. */
void xr_run_reset_layouts(xr_run *run);
/* Gives each engine its share of the sequences. */
void xr_run_share_sequences(xr_run *run);
/* Returns the bound of a micro-batch of at most `tokens`, which holds a row of
 * `row_tokens`, so that it may be padded to the multiple of the layout. */
uint64_t xr_layout_tokens(const xr_layout *layout, uint64_t tokens,
                          uint64_t row_tokens);
/* Asks the backend of a role for its plan of one rank of the role. The plugin
 * owns axes and numerics of the plan. */
xray_status xr_run_ask_plan(const xr_run *run, uint32_t role, uint32_t rank,
                            const xray_workload *load, xray_plan *out);
/* Reports the refusal of a plan once, with the file that it names in front. */
void xr_run_report_plan(const xr_run *run, const xr_part *part,
                        xray_status status, xr_errors *errors);

/* Finds the rewards that [run] reward lists. */
void xr_run_find_rewards(xr_run *run, xr_errors *errors);

/* Finds the trackers that [trainer] logger lists; without XR_WITH_TRACKER, only
 * checks that there are such. */
void xr_run_find_trackers(xr_run *run, xr_errors *errors);

/* Finds the reward model's options in a Workhorse, which has no rewards. */
void xr_run_find_reward_model(xr_run *run, xr_errors *errors);

/* Returns 1 if some plugin provides `interface:name` for a section "kind.name".
 */
int xr_run_provides(const xr_run *run, const char *section);
/* Returns 1 if some plugin provides a launcher of that name. */
int xr_run_has_launcher(const xr_run *run, const char *name);

/* Frees options and hosts. */
void xr_run_drop_parts(xr_run *run);

/* Opens tokenizer and chat template of a run made without XR_WITH_TOKENIZER. */
void xr_run_read_tokenizer(xr_run *run, xr_errors *errors);

/* Returns the folder of a model: `path` itself or, if that is the folder of a
 * run, the subfolder `leaf` ("actor", "critic") of its newest checkpoint,
 * written to `buffer`. */
const char *xr_run_model_dir(const char *path, const char *leaf, char *buffer,
                             size_t cap);

/* Reports that the folder named by [section] key does not exist. If the key has
 * the form of a hub's id, the error says how the model is fetched. */
void xr_run_report_no_folder(const xr_run *run, const char *section,
                             const char *key, const char *dir,
                             xr_errors *errors);
/* Reports a snapshot of the hub's cache whose index names a shard that it
 * lacks. Other folders are left to the reader of weights. */
void xr_run_check_snapshot(const xr_run *run, const char *section,
                           const char *key, const char *dir, xr_errors *errors);

/* Returns 1 if the folder holds weights. */
int xr_run_has_weights(const char *dir);

/* Reports that the folder named by [section] key holds no weights. If it holds
 * weights in another format, the error gives a command that converts them. */
void xr_run_report_no_weights(const xr_run *run, const char *section,
                              const char *key, const char *dir,
                              xr_errors *errors);

/* Begins an error with the location where its key was set:
 * "reward.x: create: pattern: text" becomes "run.ini:3: [reward.x] pattern:
 * text". An error without a key stays as it is. */
void xr_run_locate(const xr_run *run, xr_err *err);

/* Kinds of models, by the tensors that their weights may lack. */
#define XR_WEIGHTS_POLICY 0u
#define XR_WEIGHTS_CRITIC 1u /* may lack lm_head and a value head */
#define XR_WEIGHTS_REWARD 2u /* may lack lm_head, must have a value head */

/* Compares names, shapes and types of the weights with config.json. */
void xr_run_check_weights(const xray_model *model, uint32_t kind,
                          xr_errors *errors);

/* Compares a model's folder in a checkpoint with its manifest: sizes only,
 * which is fast, or with `sums` all bytes. Other folders have no manifest. */
xray_status xr_run_verify_folder(const char *dir, int sums, xr_err *err);

/* Verifies all bytes of every model that the run is about to load. */
xray_status xr_run_verify_models(const xr_run *run, xr_err *err);

/* Adds a line for each value head that is trained but missing in the weights;
 * it begins with zeros. */
void xr_run_report_new_heads(const xr_run *run, xr_str *out);

/* A model besides the policy: the key that names it, and where it is decoded
 * to. */
typedef struct xr_side_model {
    const char *section;
    const char *key;
    const char *path; /* value of the key; may be the folder of a run */
    const char *leaf; /* subfolder of a checkpoint: "actor", "critic" */
    /* Its workload is set by the caller. Path, json and model are filled in;
     * json is NULL if the model is wrong. */
    xr_model_slot *slot;
} xr_side_model;

/* Reads the model's config.json; faults go to `errors`. */
void xr_run_side_model(xr_run *run, const xr_side_model *side,
                       xr_errors *errors);

/* The keys that decide how the rows of a model are divided. */
typedef struct xr_dealing {
    const char *section;
    int64_t share_prompts;
    int64_t shuffle;
    int64_t micro; /* ppo_max_token_len_per_gpu */
} xr_dealing;

/* With share_prompts, checks that a group always fits into one micro-batch. */
void xr_run_check_groups(const xr_run *run, const xr_dealing *deal,
                         xr_errors *errors);

/* Checks batch arithmetic, lengths against the model, and data files. */
void xr_run_check_batch(xr_run *run, xr_errors *errors);

#endif
