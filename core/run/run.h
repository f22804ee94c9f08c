/* SPDX-License-Identifier: Apache-2.0
 *
 * A run: its INI decoded, its plugins found, their options decoded, and its
 * models looked at. Every command that uses a model makes one, and core/roles
 * creates what it describes. A run is constant once its roles start.
 */
#ifndef XR_RUN_H
#define XR_RUN_H

#include "core/config/sections.h"
#include "core/data/file_list.h"
#include "core/plugin/guard.h"
#include "core/plugin/plugin.h"
#include "core/run/layout.h"
#include "core/run/placement.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

#define XR_WITH_TRAIN 1u
/* shares the trainer's weights if there is a trainer */
#define XR_WITH_INFER 2u
#define XR_WITH_ALGO 4u
#define XR_WITH_REWARD 8u
#define XR_WITH_REFERENCE 16u /* a second, frozen train instance */
#define XR_WITH_TOKENIZER 32u
#define XR_TRAINABLE 64u     /* the train instance computes gradients */
#define XR_WITH_TRACKER 128u /* the process that drives a run has trackers */
#define XR_IN_WORKHORSE \
    256u /* the process is a Workhorse, whose host is known */

/* A component that the run selects, with its options and its host. */
typedef struct xr_part {
    const xray_component *component; /* NULL: not part of this run */
    const void *ops;
    void *config;
    xr_host *host;
    const char *instance; /* "train.NAME", "reward.gsm8k" */
    double weight;        /* weight of a reward */
    char *section; /* of its options, if `instance` does not name it; owned by
                    * the run */
} xr_part;

/* A model of the run, and the workload that an instance of it must be ready
 * for. */
typedef struct xr_model_slot {
    char *path; /* folder given by the INI, or its newest checkpoint; NULL: the
                 * policy's model is used */
    char *json; /* text of config.json; NULL if it cannot be used */
    xray_model model; /* points to path and json */
    xray_workload load;
} xr_model_slot;

#define XR_MAX_REWARDS 16
#define XR_MAX_TRACKERS 8

typedef struct xr_run {
    xr_config *config;          /* borrowed */
    const char *plugin_path;    /* borrowed, or NULL */
    xr_run_config ini;          /* the core's own sections; [data] has the files
                                 * that folders and patterns stand for */
    xr_file_list data_files[2]; /* memory of those lists */
    xr_plugins *plugins;
    xr_log_sink sink;
    xm_tokenizer *tokenizer;
    xm_chat *chat; /* chat template; NULL: none is used */
    xr_placement placement;
    xr_model_slot actor;  /* the policy */
    xr_model_slot critic; /* used if the algorithm needs a critic */
    /* Used if [run] reward lists the reward model. */
    xr_model_slot reward_model;
    /* Workload of the engine; its model is the policy's. */
    xr_model_slot rollout;
    /* Most sequences that are sampled at once, on all engines together; 0: an
     * engine's number was set by the caller of xr_run_set_workloads. */
    uint64_t sequences;
    uint64_t place_memory; /* bytes of host memory of the rank that takes most;
                            * 0: unknown */
    xr_part device;
    xr_part comm;     /* used with several ranks */
    xr_part runtime;  /* used if a plugin provides the runtime; otherwise the
                       * built-in one */
    xr_part launcher; /* used if [run] runtime names one; the runtime is that
                       * of several hosts then */
    xr_part train;    /* for actor, reference, critic and reward model */
    /* By XRAY_ROLE_*: the backend with options that the INI sets for one role;
     * no component: the role has those of `train`. See xr_run_part_of. */
    xr_part role_parts[XRAY_ROLE_REWARD + 1];
    xr_part infer;
    xr_part algo;
    xr_layout layouts[XRAY_ROLE_REWARD + 1]; /* by XRAY_ROLE_* */
    xr_part rewards[XR_MAX_REWARDS];
    size_t reward_count;
    xr_part trackers[XR_MAX_TRACKERS];
    size_t tracker_count;
    /* Options of the reward model, or NULL. */
    struct xr_reward_model_config *reward_model_config;
    int32_t end_ids[8]; /* from config.json and generation_config.json */
    uint32_t end_count;
    uint32_t with;  /* XR_WITH_*, XR_TRAINABLE */
    uint32_t needs; /* XRAY_NEED_* of the algorithm: xr_run_apply_needs */
    /* 1: trainer and engine keep the same numerics contract; set with the
     * layouts */
    int exact;
    uint32_t restarts; /* of the job so far, after the loss of a Workhorse */
    int plannable; /* 1: lengths are valid, so plugins can be asked for plans */
    int elsewhere; /* 1: checked for another machine than this one */
    int in_comparison;  /* 1: checked for xray ab, which accepts no changes */
    int accept_changes; /* 1: a resume may change the meaning of scores */
} xr_run;

/* Decodes the configuration, finds and loads the plugins, and checks everything
 * that needs no device: unknown keys, types, batch arithmetic and files. Faults
 * are added to `errors`; NULL if there are any. Plans and data rows are not
 * checked here. */
xr_run *xr_run_new(xr_config *config, const char *plugin_path, uint32_t with,
                   xr_errors *errors);
/* Does the same for a caller that wants to continue checking: returns the run
 * despite its faults. A part that cannot be used has no component or no config,
 * and a model that cannot be used has no json. Such a run can be planned but
 * never started. NULL only if out of memory. */
xr_run *xr_run_draft(xr_config *config, const char *plugin_path, uint32_t with,
                     xr_errors *errors);
void xr_run_free(xr_run *run); /* accepts NULL */
/* Says on standard error which snapshots the run's ids of the hub stand for. */
void xr_run_say_found(const xr_run *run);

/* Sets the workloads that instances must be ready for, before the roles start.
 * xr_run_new derives them from the INI; the tools change them. `sequences`: the
 * most that an engine samples at once; 0: its share of [rollout] max_num_seqs,
 * of prompts as [data] has them. */
void xr_run_set_workloads(xr_run *run, uint64_t micro_tokens,
                          uint64_t row_tokens, uint64_t sequences);
/* Applies the algorithm's needs, XRAY_NEED_*, to the models: heads, and the
 * model, workload and batch arithmetic of critic and reward model. */
void xr_run_apply_needs(xr_run *run, uint32_t needs, xr_errors *errors);

/* Returns 1 if Workhorses hold the models: with several ranks, or if [run]
 * runtime is set. */
int xr_run_is_remote(const xr_run *run);
/* Returns 1 if the run has a model in this role (XRAY_ROLE_*), once the needs
 * are known. */
int xr_run_has_role(const xr_run *run, uint32_t role);
/* Returns the backend of a role, with the options that hold for it: those of
 * [critic.train.NAME] over those of [train.NAME]. */
const xr_part *xr_run_part_of(const xr_run *run, uint32_t role);
/* Returns the ranks that hold a role. */
const xr_ranks *xr_run_ranks(const xr_run *run, uint32_t role);
/* Asks the backends for the layout of every role, once the needs are known, and
 * fits the workloads to it: engines share max_num_seqs, and micro-batches hold
 * a multiple of tokens. The driver and every Workhorse do this before they
 * create instances. */
void xr_run_plan_layouts(xr_run *run, xr_errors *errors);
/* Returns the id of the numerics contract that the instances of a role keep;
 * NULL if they name none. */
const char *xr_run_numerics(const xr_run *run, uint32_t role);
/* The contract of the device's products and attention; NULL: it has none of its
 * own. */
const char *xr_run_device_numerics(const xr_run *run);
/* Returns how the ranks of a role hold its model: replicas of one rank before
 * xr_run_plan_layouts. */
const xr_layout *xr_run_layout(const xr_run *run, uint32_t role);
/* Returns the model of a role; the policy's if the role has none of its own. */
const xray_model *xr_run_model(const xr_run *run, uint32_t role);
/* Returns the workload that an instance of a role must be ready for; `tokens`
 * is the bound of its micro-batches. */
xray_workload xr_run_workload(const xr_run *run, uint32_t role);
/* Returns the world for which a plan of a role is requested: its ranks, of
 * which this is the first, without communicator. */
xray_world xr_run_world(const xr_run *run, uint32_t role);
/* Returns the most rows that one call takes: those of a step. */
uint64_t xr_run_max_rows(const xr_run *run);

/* The operation tables of the parts. */
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
