/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run is: its INI decoded, the plugins it names found and their options
 * decoded, the models it names looked at. Every command that touches a model
 * makes one; core/roles creates what it describes. A run is constant from the
 * moment its roles start.
 */
#ifndef XR_RUN_H
#define XR_RUN_H

#include "core/config/sections.h"
#include "core/plugin/guard.h"
#include "core/plugin/plugin.h"
#include "core/run/placement.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

#define XR_WITH_TRAIN 1u
#define XR_WITH_INFER 2u /* shares the trainer's weights if there is one */
#define XR_WITH_ALGO 4u
#define XR_WITH_REWARD 8u
#define XR_WITH_REFERENCE 16u /* a second, frozen train instance */
#define XR_WITH_TOKENIZER 32u
#define XR_TRAINABLE 64u /* the train instance has gradients */

/* A selected component with its options and its host. */
typedef struct xr_part {
    const xray_component *component; /* NULL: not part of this run */
    const void *ops;
    void *config;
    xr_host *host;
    const char *instance; /* "train.NAME", "reward.gsm8k" */
    double weight;        /* rewards */
} xr_part;

/* A model of the run, and what an instance of it must be ready for. */
typedef struct xr_model_slot {
    char *path; /* the folder: what the INI names, or the newest checkpoint
                 * in it; NULL: it is the policy's model */
    char *json; /* its config.json; NULL where that cannot be used */
    xray_model model; /* points to both */
    xray_workload load;
} xr_model_slot;

#define XR_MAX_REWARDS 16

typedef struct xr_run {
    xr_config *config;       /* borrowed */
    const char *plugin_path; /* borrowed, or NULL */
    xr_run_config ini;       /* the core's own sections */
    xr_plugins *plugins;
    xr_log_sink sink;
    xm_tokenizer *tokenizer;
    xm_chat *chat; /* NULL: none is used */
    xr_placement placement;
    xr_model_slot actor;  /* the policy */
    xr_model_slot critic; /* if the algorithm needs one */
    xr_model_slot
        reward_model;      /* the reward model, if [run] reward lists one */
    xr_model_slot rollout; /* the engine: its workload; the model is the
                            * policy's */
    xr_part device;
    xr_part comm;    /* several ranks */
    xr_part runtime; /* of a plugin; none: the built-in one */
    xr_part train;   /* of actor, reference, critic and reward model */
    xr_part infer;
    xr_part algo;
    xr_part rewards[XR_MAX_REWARDS];
    size_t reward_count;
    struct xr_reward_model_config
        *reward_model_config; /* of the reward model, or NULL */
    int32_t end_ids[8];       /* of config.json and generation_config.json */
    uint32_t end_count;
    uint32_t with;      /* XR_WITH_*, XR_TRAINABLE */
    uint32_t needs;     /* XRAY_NEED_* of the algorithm: xr_run_apply_needs */
    int exact;          /* trainer and engine name one numerics contract */
    int plannable;      /* lengths make sense, so that plans can be asked for */
    int elsewhere;      /* checked for another machine than this one */
    int in_comparison;  /* checked for xray ab, which accepts no changes */
    int accept_changes; /* a resume may change what scores mean */
} xr_run;

/* Decodes the configuration, finds and loads the plugins, checks what needs no
 * device (unknown keys, types, batch arithmetic, files) and adds what is wrong
 * to `errors`; NULL if anything is. Plans and data rows come later. */
xr_run *xr_run_new(xr_config *config, const char *plugin_path, uint32_t with,
                   xr_errors *errors);
/* The same for one who wants to go on looking: the run comes back whatever is
 * wrong, with what is right of it (a part that cannot be used has no component
 * or no config; a model that cannot, no json). It can be planned, never
 * started. NULL only when out of memory. */
xr_run *xr_run_draft(xr_config *config, const char *plugin_path, uint32_t with,
                     xr_errors *errors);
void xr_run_free(xr_run *run); /* accepts NULL */

/* What the instances must be ready for; set before the roles start. Derived
 * from the INI by xr_run_new; the tools lower or raise them. */
void xr_run_set_workloads(xr_run *run, uint64_t micro_tokens,
                          uint64_t row_tokens, uint64_t sequences);
/* What the algorithm's needs, XRAY_NEED_*, ask of the models: heads, and the
 * model, workload and batch arithmetic of critic and reward model. */
void xr_run_apply_needs(xr_run *run, uint32_t needs, xr_errors *errors);

/* 1 if Workhorses hold the models: several ranks, or [run] runtime. */
int xr_run_is_remote(const xr_run *run);
/* 1 if the run has a model in this role (XRAY_ROLE_*), once its needs are
 * known. */
int xr_run_has_role(const xr_run *run, uint32_t role);
/* The ranks that hold a role. */
const xr_ranks *xr_run_ranks(const xr_run *run, uint32_t role);
/* The model of a role: the policy's where the role has none of its own. */
const xray_model *xr_run_model(const xr_run *run, uint32_t role);
/* What an instance of a role must be ready for. */
xray_workload xr_run_workload(const xr_run *run, uint32_t role);
/* The world a plan of a role is asked for: rank 0, without comm. */
xray_world xr_run_world(const xr_run *run, uint32_t role);
/* Most rows that one call takes: those of a step. */
uint64_t xr_run_max_rows(const xr_run *run);

/* Shorthands for the operation tables. */
static inline const xray_train_ops *xr_train(const xr_run *run)
{
    return (const xray_train_ops *)run->train.ops;
}
static inline const xray_infer_ops *xr_infer(const xr_run *run)
{
    return (const xray_infer_ops *)run->infer.ops;
}
static inline const xray_algo_ops *xr_algo(const xr_run *run)
{
    return (const xray_algo_ops *)run->algo.ops;
}

#endif
