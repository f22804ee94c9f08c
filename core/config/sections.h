/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the core's own sections in decoded form. Keys are verl's leaf names
 * where one exists (reference: verl's generated trainer configuration).
 */
#ifndef XR_SECTIONS_H
#define XR_SECTIONS_H

#include "core/config/config.h"

typedef struct xr_run_section { /* [run] */
    const char *train;          /* selected components */
    const char *infer;
    const char *algo;
    const char *device;
    xray_list reward; /* instances, each with a section [reward.NAME] */
    int64_t seed;
    int64_t threads;        /* 0: one per core */
    const char *log;        /* error|warn|info|debug */
    int64_t plugin_timeout; /* longest ns of a call that sets up a plugin; 0:
                             * any */
    int64_t ranks;          /* Workhorses */
    const char *runtime;    /* "auto": one rank runs in this process, several
                             * are local */
    const char *comm;
    int64_t comm_timeout;    /* longest ns a collective waits for its ranks */
    int64_t max_restarts;    /* after the loss of a Workhorse */
    int64_t layout_segments; /* of a mini-batch; 0: undivided */
} xr_run_section;

#define XR_MAX_RANKS 1024
#define XR_MAX_SEGMENTS 1024
#define XR_MAX_TEMPERATURE 100

typedef struct xr_placement_section { /* [placement]: ranks of each role */
    xray_list actor;                  /* "all", "0-1", "3" */
    xray_list reference;              /* empty: as the actor */
    xray_list critic;
    xray_list reward;
    xray_list rollout;
    xray_list hosts; /* "a:2": name and number of ranks */
} xr_placement_section;

typedef struct xr_runtime_section { /* [runtime], [runtime.hosts] */
    const char *interface;
    int64_t silence; /* ns */
    uint32_t tls;
    const char *launch;
} xr_runtime_section;

enum { XR_INIT_LOAD, XR_INIT_RANDOM };
typedef struct xr_model_section { /* [model] */
    const char *path;
    const char *tokenizer_path; /* "" : path */
    int64_t dtype;              /* XRAY_F32 */
    int64_t init;               /* XR_INIT_* */
} xr_model_section;

/* The date that chat templates see as today unless [data] chat_date sets
 * another. It is fixed, so that a repeated run has the same prompts. */
#define XR_CHAT_DATE "2024-07-26"

enum { XR_TRUNCATE_ERROR, XR_TRUNCATE_LEFT, XR_TRUNCATE_RIGHT };
enum { XR_CHAT_AUTO, XR_CHAT_ALWAYS, XR_CHAT_NEVER };
typedef struct xr_data_section { /* [data] */
    xray_list train_files;
    xray_list val_files;
    const char *prompt_key; /* "prompt": a string, or verl's list of messages */
    const char *answer_key; /* "answer": ground truth of plain rows, and the SFT
                             * target */
    const char *response_key;  /* SFT target; "" : answer_key */
    const char *reward_fn_key; /* "data_source" */
    const char *template; /* "{prompt}": text around the prompt; it may hold any
                           * {key} of the row */
    const char *response_template; /* SFT: "{answer}" */
    int64_t max_prompt_length;
    int64_t max_response_length;
    int64_t train_batch_size; /* prompts per step */
    int64_t val_batch_size;   /* 0: up to 1024 */
    uint32_t shuffle;
    uint32_t filter_overlong_prompts;
    int64_t seed;              /* -1: as in [run] */
    int64_t truncation;        /* XR_TRUNCATE_* */
    int64_t train_max_samples; /* -1: all */
    int64_t val_max_samples;
    uint32_t special_tokens; /* 1: the tokenizer's own BOS rule applies to
                              * prompts */
    uint32_t add_generation_prompt; /* 1: a prompt ends where the answer
                                     * begins */
    xray_list train_weights; /* shares of the train files; empty: by their
                              * rows */
    xray_list filters;       /* conditions that rows must meet */
    double val_split;        /* part of train_files held out for validation */
    int64_t apply_chat_template;      /* XR_CHAT_* */
    const char *chat_template;        /* a file; "": the model's */
    const char *chat_template_kwargs; /* a JSON object; "": none */
    const char *chat_date;            /* YYYY-MM-DD, today's date for chat
                                       * templates */
    const char *system_prompt;        /* "": none */
    const char *messages_key;         /* SFT: key of a conversation */
    const char *tools_key;
} xr_data_section;

enum { XR_SHARE_AUTO, XR_SHARE_OFF };
typedef struct xr_rollout_section { /* [rollout] */
    int64_t n;                      /* samples per prompt */
    double temperature;
    double top_p;
    double min_p;
    int64_t top_k;
    double repetition_penalty; /* 1: off */
    double frequency_penalty;
    double presence_penalty;
    int64_t min_tokens;
    uint32_t ignore_eos;
    uint32_t free_cache_engine; /* 1: the engine sleeps between rollouts */
    int64_t max_num_seqs;       /* 0: the rows of a step, at most 512 */
    int64_t share_weights;      /* XR_SHARE_* */
    /* Validation: [rollout.val] */
    int64_t val_n; /* verl's val_kwargs.n, samples for mean@n; 0: greedy only */
    double val_temperature;
    double val_top_p;
    int64_t val_top_k;
} xr_rollout_section;

typedef struct xr_actor_section { /* [actor] */
    int64_t ppo_mini_batch_size;  /* prompts per optimizer step; 0: all */
    int64_t ppo_epochs;
    uint32_t shuffle;
    uint32_t param_offload;            /* 1: in host memory while other models
                                        * compute */
    int64_t ppo_max_token_len_per_gpu; /* tokens of a micro-batch */
    double grad_clip;
    int64_t recompute_old_logp; /* check each k-th step; 0: never */
    double rollout_probs_diff_max;
    int64_t trainable_from_layer; /* blocks below it are frozen; 0: none */
    uint32_t grad_offload;
    uint32_t optimizer_offload;
    uint32_t share_prompts; /* 1: computes a group's prompt once in gradients */
    uint32_t reserved;
} xr_actor_section;

typedef struct xr_ref_section { /* [ref] */
    uint32_t param_offload;
    uint32_t reserved;
} xr_ref_section;

enum { XR_AS_ACTOR = -1 };
typedef struct xr_critic_section {     /* [critic], [critic.model] */
    int64_t ppo_mini_batch_size;       /* XR_AS_ACTOR */
    int64_t ppo_epochs;                /* 0: as the actor */
    int64_t shuffle;                   /* 0, 1 or XR_AS_ACTOR */
    int64_t ppo_max_token_len_per_gpu; /* 0: as the actor */
    double grad_clip;
    const char *path; /* "": the policy's model */
    uint32_t param_offload;
    uint32_t grad_offload;
    uint32_t optimizer_offload;
    uint32_t reserved;
    int64_t share_prompts; /* 0, 1 or XR_AS_ACTOR */
} xr_critic_section;

enum { XR_SCHEDULE_CONSTANT, XR_SCHEDULE_LINEAR, XR_SCHEDULE_COSINE };
typedef struct xr_optim_section { /* [actor.optim], [critic.optim], ... */
    double lr;
    int64_t lr_scheduler_type;
    int64_t lr_warmup_steps; /* -1: by the ratio */
    double lr_warmup_steps_ratio;
    double min_lr_ratio;
    double num_cycles;
} xr_optim_section;

enum { XR_NONFINITE_STOP, XR_NONFINITE_SKIP };
typedef struct xr_trainer_section { /* [trainer] */
    int64_t total_epochs;
    int64_t total_training_steps; /* 0: by epochs */
    int64_t save_freq;            /* -1: only at the end */
    int64_t test_freq;            /* -1: only before and after */
    uint32_t val_before_train;
    uint32_t val_after_train;
    const char *default_local_dir;
    const char *resume_mode;         /* auto|disable */
    const char *resume_from_path;    /* "" : newest in default_local_dir */
    const char *rollout_data_dir;    /* "" : samples are not kept */
    const char *validation_data_dir; /* "" : samples are not kept */
    int64_t max_actor_ckpt_to_keep;  /* 0: all */
    const char *project_name;
    const char *experiment_name;
    xray_list logger;      /* console, jsonl, names of trackers */
    int64_t on_nonfinite;  /* XR_NONFINITE_* */
    int64_t critic_warmup; /* first step that updates the policy */
    uint32_t val_only;
    int64_t log_val_generations; /* samples shown at each validation */
} xr_trainer_section;

typedef struct xr_sft_section { /* [sft] */
    int64_t train_batch_size;   /* rows per step */
    int64_t total_steps;
    int64_t test_freq;
    double stop_at; /* greedy validation score that ends the run; 0: off */
    int64_t max_token_len; /* tokens of a micro-batch */
    double grad_clip;
    uint32_t train_on_prompt;
    uint32_t reserved;
} xr_sft_section;

typedef struct xr_reward_section { /* [reward.NAME]: the core's keys */
    const char *plugin;            /* "rule" */
    double weight;
} xr_reward_section;

typedef struct xr_run_config {
    xr_run_section run;
    xr_placement_section placement;
    xr_runtime_section runtime;
    xr_model_section model;
    xr_data_section data;
    xr_rollout_section rollout;
    xr_actor_section actor;
    xr_optim_section actor_optim;
    xr_critic_section critic;
    xr_optim_section critic_optim;
    xr_ref_section ref;
    xr_trainer_section trainer;
    xr_sft_section sft;
    xr_optim_section sft_optim;
} xr_run_config;

/* Check a sampling parameter from an INI, an option or a line: return NULL if
 * it may be used, or else a text with the allowed values. */
const char *xr_temperature_refused(double value);
const char *xr_top_p_refused(double value);

/* Decodes [run] alone, because a layer between defaults and files depends on
 * it. Values with errors keep their defaults; xr_run_decode reports them. */
void xr_run_decode_first(xr_config *config, xr_run_section *out);
/* Decodes all core sections except [reward.*], which xr_run_reward decodes by
 * name. */
void xr_run_decode(xr_config *config, xr_run_config *out, xr_errors *errors);
void xr_run_reward(xr_config *config, const char *instance,
                   xr_reward_section *out, xr_errors *errors);

/* Rows per step of reinforcement learning: prompts times samples. */
static inline uint64_t xr_step_rows(const xr_run_config *run)
{
    return (uint64_t)run->data.train_batch_size * (uint64_t)run->rollout.n;
}

/* A core section and its table, for documentation and `config print`; NULL
 * after the last. */
typedef struct xr_section_info {
    const char *section;
    const char *doc;
    xr_table table;
} xr_section_info;
const xr_section_info *xr_run_sections(size_t i);

#endif
