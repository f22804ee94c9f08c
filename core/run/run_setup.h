/* SPDX-License-Identifier: Apache-2.0
 *
 * What core/run is made of, one file each, and what the floors above use of it:
 * selected components, folders of models, batch arithmetic.
 */
#ifndef XR_RUN_SETUP_H
#define XR_RUN_SETUP_H

#include "core/run/run.h"

/* Finds a component and decodes `section` (NULL: [kind.name]). */
void xr_run_find_part(xr_run *run, xr_part *part, const char *iface,
                      const char *name, const char *section, xr_errors *errors);
/* The rewards that [run] reward lists. */
void xr_run_find_rewards(xr_run *run, xr_errors *errors);
/* In a Workhorse, which has no rewards: the reward model's options. */
void xr_run_find_reward_model(xr_run *run, xr_errors *errors);
/* True if some plugin provides `interface:name` for a section "kind.name". */
int xr_run_provides(const xr_run *run, const char *section);
/* Frees options and hosts. */
void xr_run_drop_parts(xr_run *run);
/* Opens tokenizer and chat template, for a run made without them. */
void xr_run_read_tokenizer(xr_run *run, xr_errors *errors);
/* The folder of a model: `path` itself, or, where that is a run's folder, the
 * `leaf` ("actor", "critic") of its newest checkpoint, written to `buffer`. */
const char *xr_run_model_dir(const char *path, const char *leaf, char *buffer,
                             size_t cap);
/* 1 if the folder holds weights. */
int xr_run_has_weights(const char *dir);
/* Says that the folder that [section] key names holds none, and where they lie
 * there in another form, the line that converts them. */
void xr_run_report_no_weights(const xr_run *run, const char *section,
                              const char *key, const char *dir,
                              xr_errors *errors);
/* Where the key that an error is about was set, in place of who says it:
 * "reward.x: create: pattern: text" becomes "run.ini:3: [reward.x] pattern:
 * text". An error about no key stays. */
void xr_run_locate(const xr_run *run, xr_err *err);
#define XR_WEIGHTS_POLICY 0u
#define XR_WEIGHTS_CRITIC 1u /* may lack lm_head, and a value head */
#define XR_WEIGHTS_REWARD 2u /* may lack lm_head, must have a value head */
/* Names, shapes and types of the weights against config.json. */
void xr_run_check_weights(const xray_model *model, uint32_t kind,
                          xr_errors *errors);
/* A model's folder that lies in a checkpoint against its manifest: sizes, which
 * cost nothing, or with `sums` the bytes. Other folders have none. */
xray_status xr_run_verify_folder(const char *dir, int sums, xr_err *err);
/* The bytes of every model that the run is about to load. */
xray_status xr_run_verify_models(const xr_run *run, xr_err *err);
/* A line on each value head that is trained and that the weights read do not
 * have: it begins with zeros. */
void xr_run_report_new_heads(const xr_run *run, xr_str *out);
/* A model beside the policy: where it is named, and what becomes of it. */
typedef struct xr_side_model {
    const char *section;
    const char *key;
    const char *path;    /* its value; or a run's folder */
    const char *leaf;    /* the run's model that is meant */
    xr_model_slot *slot; /* its load is set; path, json and model are out,
                          * json NULL where it is wrong */
} xr_side_model;
/* Reads its config.json; what is wrong goes to `errors`. */
void xr_run_side_model(xr_run *run, const xr_side_model *side,
                       xr_errors *errors);
/* The keys that deal rows to a model's micro-batches. */
typedef struct xr_dealing {
    const char *section;
    int64_t share_prompts;
    int64_t shuffle;
    int64_t micro; /* ppo_max_token_len_per_gpu */
} xr_dealing;
/* Whether a group can stay in one micro-batch, where it has to. */
void xr_run_check_groups(const xr_run *run, const xr_dealing *deal,
                         xr_errors *errors);
/* Batch arithmetic: divisibility, lengths against the model; files. */
void xr_run_check_batch(xr_run *run, xr_errors *errors);

#endif
