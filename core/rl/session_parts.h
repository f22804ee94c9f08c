/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside a session: its parts, one file each.
 */
#ifndef XR_SESSION_PARTS_H
#define XR_SESSION_PARTS_H

#include "core/rl/session.h"

/* Loads the selected components and decodes their options. */
void xr_session_find_parts(xr_session *session, xr_errors *errors);
/* Finds a component and decodes `section` (NULL: [kind.name]). */
void xr_session_find_part(xr_session *session, xr_part *part, const char *iface,
                          const char *name, const char *section,
                          xr_errors *errors);
/* The rewards that [run] reward lists. */
void xr_session_find_rewards(xr_session *session, xr_errors *errors);
/* In a Workhorse, which has no rewards: the reward model's options. */
void xr_session_find_score(xr_session *session, xr_errors *errors);
/* True if some plugin provides `interface:name` for a section "kind.name". */
int xr_session_provides(const xr_session *session, const char *section);
/* Destroys what runs and frees options and hosts, in reverse order. */
void xr_session_stop_parts(xr_session *session);
/* Opens tokenizer and chat template, for a session opened without them. */
void xr_session_read_tokenizer(xr_session *session, xr_errors *errors);
/* The folder of a model: `path` itself, or, where that is a run's folder, the
 * `leaf` ("actor", "critic") of its newest checkpoint, written to `buffer`. */
const char *xr_session_model_dir(const char *path, const char *leaf,
                                 char *buffer, size_t cap);
/* 1 if the folder holds weights. */
int xr_session_has_weights(const char *dir);
/* Says that the folder that [section] key names holds none, and where they lie
 * there in another form, the line that converts them. */
void xr_session_no_weights(const xr_session *session, const char *section,
                           const char *key, const char *dir, xr_errors *errors);
/* A plugin or a reader names a key without knowing where it was set:
 * "reward.x: create: pattern: text" of [reward.x], or "...: [data] filters:
 * text", becomes "run.ini:3: [reward.x] pattern: text". Another text, and
 * `section` NULL for none, stays. */
void xr_session_place(const xr_session *session, const char *section,
                      xr_err *err);
#define XR_WEIGHTS_POLICY 0u
#define XR_WEIGHTS_CRITIC 1u /* may lack lm_head, and a value head */
#define XR_WEIGHTS_REWARD 2u /* may lack lm_head, must have a value head */
/* Names, shapes and types of the weights against config.json. */
void xr_session_check_weights(const xray_model *model, uint32_t kind,
                              xr_errors *errors);
/* A model's folder that lies in a checkpoint against its manifest: sizes, which
 * cost nothing, or with `sums` the bytes. Other folders have none. */
xray_status xr_session_verify_folder(const char *dir, int sums, xr_err *err);
/* The bytes of every model that the session is about to load. */
xray_status xr_session_verify(const xr_session *session, xr_err *err);
/* A line on each value head that is trained and that the weights read do not
 * have: it begins with zeros. */
void xr_session_new_heads(const xr_session *session, xr_str *out);
/* A model beside the policy: where it is named, and what becomes of it. */
typedef struct xr_side_model {
    const char *section;
    const char *key;
    const char *path;          /* its value; or a run's folder */
    const char *leaf;          /* the run's model that is meant */
    xray_model *model;         /* out */
    const xray_workload *load; /* its rows */
    char **path_out;           /* out, owned by the session */
    char **json_out;           /* out, the same: NULL where it is wrong */
} xr_side_model;
/* Reads its config.json; what is wrong goes to `errors`. */
void xr_session_side_model(xr_session *session, const xr_side_model *side,
                           xr_errors *errors);
/* What the algorithm's needs ask of the models, once they are known: heads,
 * and the critic's model, workload and batch arithmetic. */
void xr_session_needs(xr_session *session, xr_errors *errors);
/* The keys that deal rows to a model's micro-batches. */
typedef struct xr_dealing {
    const char *section;
    int64_t share_prompts;
    int64_t shuffle;
    int64_t micro; /* ppo_max_token_len_per_gpu */
} xr_dealing;
/* Whether a group can stay in one micro-batch, where it has to. */
void xr_session_check_groups(const xr_session *session, const xr_dealing *deal,
                             xr_errors *errors);
/* Batch arithmetic: divisibility, lengths against the model; files. */
void xr_session_check_batch(xr_session *session, xr_errors *errors);

#endif
