/* SPDX-License-Identifier: Apache-2.0
 *
 * The wishes that a line of xray generate may have beside the options of the
 * command: keys whose values are ids, or that ask for more log-probs.
 */
#ifndef XR_CLI_WISHES_H
#define XR_CLI_WISHES_H

#include <xray/infer.h>

#include "core/base/err.h"
#include "core/base/json.h"

typedef struct cli_ids {
    int32_t *ids;
    uint32_t count;
} cli_ids;

typedef struct cli_id_lists {
    xray_id_list *lists;
    int32_t **ids; /* [count] those of each list */
    uint32_t count;
} cli_id_lists;

/* All 0: nothing. */
typedef struct cli_wishes {
    cli_ids stops;
    cli_ids allowed;
    cli_ids forced;
    cli_ids picked; /* whose log-probs are wanted with each token */
    cli_id_lists stop_lists;
    cli_id_lists banned;
    xray_bias *biases; /* [bias_count] */
    uint32_t bias_count;
    uint32_t top_count;
    int prompt_logp;
} cli_wishes;

/* The keys, at most CLI_WISH_KEYS; ends with NULL. */
enum { CLI_WISH_KEYS = 9 };
extern const char *const cli_wish_keys[CLI_WISH_KEYS + 1];

/* Reads the keys of a line; cli_wishes_free in any case. */
xray_status cli_wishes_read(const cJSON *object, const char *where, xr_err *err,
                            cli_wishes *out);
/* Adds ids at which samples stop. */
xray_status cli_wishes_stop(cli_wishes *wishes, const int32_t *ids,
                            uint32_t count, xr_err *err);
/* Sets the members of a request; their arrays remain those of the wishes. */
void cli_wishes_fill(const cli_wishes *wishes, xray_request *out);
void cli_wishes_free(cli_wishes *wishes);

#endif
