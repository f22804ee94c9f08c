/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: the plugins an INI names, loaded, checked and created. Every
 * command that touches a model opens one.
 */
#ifndef XR_SESSION_H
#define XR_SESSION_H

#include "core/config/run.h"
#include "core/plugin/guard.h"
#include "core/plugin/plugin.h"
#include "core/rl/placement.h"
#include "model/chat/chat.h"
#include "model/text/tokenizer.h"

#define XR_WITH_TRAIN 1u
#define XR_WITH_INFER 2u /* shares the trainer's weights if there is one */
#define XR_WITH_ALGO 4u
#define XR_WITH_REWARD 8u
#define XR_WITH_REFERENCE 16u /* a second, frozen train instance */
#define XR_WITH_TOKENIZER 32u
#define XR_TRAINABLE 64u /* the train instance has gradients */

/* A loaded component with its options and host. */
typedef struct xr_part {
    const xray_component *component; /* NULL: not part of this session */
    const void *ops;
    void *config;
    xr_host *host;
    void *self;           /* or the xr_whole that stands for it */
    const char *instance; /* "train.zero3", "reward.gsm8k" */
    double weight;        /* rewards */
} xr_part;

#define XR_MAX_REWARDS 16

/* Who has what on the device, by XRAY_ROLE_*: core/rl/turn.h. */
typedef struct xr_turns {
    uint32_t goes[XRAY_ROLE_REWARD + 1]; /* 1 << tag: may be sent away */
    uint32_t away[XRAY_ROLE_REWARD + 1];
} xr_turns;

typedef struct xr_session {
    xr_config *config;       /* borrowed */
    const char *plugin_path; /* borrowed, or NULL */
    xr_run_config run;
    xr_plugins *plugins;
    xr_log_sink sink;
    xm_tokenizer *tokenizer;
    xm_chat *chat; /* NULL: none is used */
    char *config_json;
    char *model_path; /* [model] path, or the newest checkpoint in it */
    xray_model model;
    xr_placement placement;
    xray_world worlds[XRAY_ROLE_REWARD + 1]; /* by XRAY_ROLE_* */
    struct xr_whole *whole; /* models are in Workhorses; NULL: in this process
                             */
    uint32_t rank;          /* of this process */
    uint32_t in_worker;     /* 1: this process is a Workhorse */
    char *critic_path;      /* as model_path, of [critic.model] path */
    char *critic_json; /* NULL: the critic starts from the policy's model */
    xray_model critic_model;
    char *score_path; /* the reward model's, as the critic's */
    char *score_json;
    xray_model score_model;
    xray_workload train_load;
    xray_workload critic_load;
    xray_workload score_load;
    xray_workload infer_load;
    xr_part device;
    xr_part comm;    /* several ranks */
    xr_part runtime; /* of a plugin; none: the built-in one */
    xr_part train;
    xr_part reference;
    xr_part critic; /* a third train instance, if the algorithm needs one */
    xr_part score;  /* a reward model; `config` is set where there is one */
    xr_part infer;
    xr_part algo;
    xr_part rewards[XR_MAX_REWARDS];
    size_t reward_count;
    int32_t end_ids[8]; /* of config.json and generation_config.json */
    uint32_t end_count;
    uint32_t with;
    uint32_t needs;     /* XRAY_NEED_* of the algorithm */
    int exact;          /* trainer and engine name one numerics contract */
    int plannable;      /* lengths make sense, so that plans can be asked for */
    int nonfinite;      /* the last error is a NaN or Inf: xr_nonfinite */
    int synced;         /* the engine was told of weights: `published` counts */
    uint64_t published; /* version of the engine's weights */
    xr_turns turns;
    double first_token; /* xr_now() when an engine here had made one; or 0 */
    int publish_due;    /* the next rollout starts with xr_publish */
    int elsewhere;      /* checked for another machine than this one */
    int in_comparison;  /* checked for xray ab, which accepts no changes */
    int accept_changes; /* a resume may change what scores mean */
    int fresh_algo; /* the checkpoint's state is of another algorithm: unread */
    struct xr_transfer *transfer; /* xr_publish: NULL while they are shared */
} xr_session;

/* Decodes the configuration, finds and loads the plugins, checks what needs no
 * device (unknown keys, types, batch arithmetic, files) and adds what is wrong
 * to `errors`; NULL if anything is. Plans and data rows come later. */
xr_session *xr_session_new(xr_config *config, const char *plugin_path,
                           uint32_t with, xr_errors *errors);
/* The same for one who wants to go on looking: the session comes back whatever
 * is wrong, with what is right of it (a part that cannot be used has no
 * component or no config; a model that cannot, no config_json). It can be
 * planned, never started. NULL only when out of memory. */
xr_session *xr_session_draft(xr_config *config, const char *plugin_path,
                             uint32_t with, xr_errors *errors);
void xr_session_free(xr_session *session); /* accepts NULL */

/* What the instances must be ready for; set between new and start. Derived
 * from the INI by xr_session_new; the tools lower or raise them. */
void xr_session_loads(xr_session *session, uint64_t micro_tokens,
                      uint64_t row_tokens, uint64_t sequences);

/* Creates what lives on the host, algorithm and rewards, so that a pattern that
 * does not compile is found; each that cannot be is an error. */
void xr_session_start_host(xr_session *session, xr_errors *errors);

/* Creates device, train, reference, infer, algo, rewards, once the plugins'
 * plans fit the machine. */
xray_status xr_session_start(xr_session *session, xr_err *err);

/* 1 if Workhorses hold the models: several ranks, or [run] runtime. */
int xr_session_is_remote(const xr_session *session);

/* What a Workhorse has of the others. */
typedef struct xr_rank_link {
    uint32_t rank;
    uint32_t reserved;
    xray_comm_trace *traces; /* [ranks] */
    void *exchange_ctx;
    xray_status (*exchange)(void *ctx, const void *mine, uint64_t size,
                            void *all);
} xr_rank_link;
/* In a Workhorse: device, comm, and the roles placed on its rank. */
xray_status xr_session_start_rank(xr_session *session, const xr_rank_link *link,
                                  xr_err *err);
/* The trainer's workload without gradients and without a value head. */
static inline xray_workload xr_reference_load(const xr_session *s)
{
    xray_workload load = s->train_load;
    load.trainable = 0;
    load.trainable_from_layer = 0;
    load.heads &= ~XRAY_HEAD_VALUE;
    return load;
}

/* Tokens of a micro-batch of a role. */
static inline uint64_t xr_role_tokens(const xr_session *s, uint32_t role)
{
    return role == XRAY_ROLE_CRITIC   ? s->critic_load.tokens
           : role == XRAY_ROLE_REWARD ? s->score_load.tokens
                                      : s->train_load.tokens;
}

/* Shorthands for the operation tables. */
static inline const xray_train_ops *xr_train(const xr_session *s)
{
    return (const xray_train_ops *)s->train.ops;
}
static inline const xray_infer_ops *xr_infer(const xr_session *s)
{
    return (const xray_infer_ops *)s->infer.ops;
}
static inline const xray_algo_ops *xr_algo(const xr_session *s)
{
    return (const xray_algo_ops *)s->algo.ops;
}

#endif
