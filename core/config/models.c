/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the options of [actor], [critic] and [ref].
 */
#include "core/config/internal.h"
#include "core/config/sections.h"

#define SINCE "0.1"
#define MOST 9007199254740992.0 /* 2^53: bounds are doubles */

/* Options that move memory of a model to the host while other models compute or
 * the engine samples. */
#define PARAM_DOC                                                           \
    "Keep weights in host memory while other models compute or the engine " \
    "samples; those that the engine shares stay on the device."
#define OFFLOAD_OPTIONS(cfg)                                            \
    XRAY_BOOL(cfg, param_offload, "false", 0u, SINCE, PARAM_DOC),       \
        XRAY_BOOL(cfg, grad_offload, "false", 0u, SINCE,                \
                  "Release the memory of gradients during that time."), \
        XRAY_BOOL(                                                      \
            cfg, optimizer_offload, "false", 0u, SINCE,                 \
            "Keep the optimizer's moments in host memory during that time.")

#define ACTOR xr_actor_section
const xray_option xr_actor_options[12] = {
    XRAY_INT(ACTOR, ppo_mini_batch_size, "0", 0, 1 << 24, "prompts", 0u, SINCE,
             "Prompts per optimizer step; divides train_batch_size. 0: all of "
             "a step, so that each update uses its own samples."),
    XRAY_INT(ACTOR, ppo_epochs, "1", 1, 1000, "epochs", 0u, SINCE,
             "Times that each sample is trained on."),
    XRAY_BOOL(
        ACTOR, shuffle, "false", 0u, SINCE,
        "Deal samples to mini-batches in a new order each epoch; those of "
        "a prompt are not kept together."),
    XRAY_INT(ACTOR, ppo_max_token_len_per_gpu, "16384", 1, 1 << 28, "tokens",
             0u, SINCE,
             "Most tokens of a micro-batch. Bounds memory; results do not "
             "depend on it."),
    XRAY_BOOL(ACTOR, share_prompts, "false", 0u, SINCE,
              "Compute the common prompt of a group's samples only once in "
              "gradients. Each group then stays in one micro-batch, which must "
              "fit rollout.n rows. Gradients are rounded differently; "
              "log-probs keep the same bits."),
    XRAY_REAL(ACTOR, grad_clip, "1.0", 0, 1e30, NULL, 0u, SINCE,
              "Global gradient norm is clipped to this; 0: not clipped."),
    XRAY_INT(ACTOR, recompute_old_logp, "0", 0, MOST, "steps", 0u, SINCE,
             "Interval at which the trainer recomputes the samples' log-probs "
             "and compares them bit for bit; 0: never."),
    XRAY_REAL(ACTOR, rollout_probs_diff_max, "1", 0, 1, NULL, 0u, SINCE,
              "The most by which the engine's and the trainer's probability of "
              "a token may differ where they keep different numerics "
              "contracts; 1: any difference is accepted."),
    XRAY_INT(ACTOR, trainable_from_layer, "0", 0, 100000, "layers", 0u, SINCE,
             "The first block that is trained; earlier blocks and the "
             "embedding keep their values. 0: all are trained."),
    OFFLOAD_OPTIONS(ACTOR),
};

/* ---- [critic] ----------------------------------------------------------- */

#define CRITIC xr_critic_section
const xray_option xr_critic_options[9] = {
    XRAY_INT(CRITIC, ppo_mini_batch_size, "-1", -1, 1 << 24, "prompts", 0u,
             SINCE,
             "Prompts per update of the critic; divides train_batch_size. 0: "
             "all of a step; -1: as [actor]."),
    XRAY_INT(CRITIC, ppo_epochs, "0", 0, 1000, "epochs", 0u, SINCE,
             "Times that the critic is trained on each sample; 0: as [actor]."),
    XRAY_TRISTATE(
        CRITIC, shuffle, "auto", 0u, SINCE,
        "Deal samples to mini-batches in a new order each epoch; auto: "
        "as [actor]."),
    XRAY_INT(CRITIC, ppo_max_token_len_per_gpu, "0", 0, 1 << 28, "tokens", 0u,
             SINCE,
             "Most tokens of the critic's micro-batch; 0: as [actor]. Results "
             "do not depend on it."),
    XRAY_TRISTATE(CRITIC, share_prompts, "auto", 0u, SINCE,
                  "Compute the common prompt of a group's samples only once in "
                  "gradients; auto: as [actor]."),
    XRAY_REAL(CRITIC, grad_clip, "1.0", 0, 1e30, NULL, 0u, SINCE,
              "Global gradient norm is clipped to this; 0: not clipped."),
    OFFLOAD_OPTIONS(CRITIC),
};

const xray_option xr_ref_options[1] = {
    XRAY_BOOL(xr_ref_section, param_offload, "false", 0u, SINCE, PARAM_DOC),
};
