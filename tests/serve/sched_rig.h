/* SPDX-License-Identifier: Apache-2.0
 *
 * Drives the scheduler with a model that is a hash: what a position keeps in
 * the cache follows from its token and from what two positions before it keep,
 * and a drawn token from what the last position keeps and from the draw's key.
 * Every sample thus has a single right answer, which an oracle computes without
 * slots, blocks or steps.
 */
#ifndef TEST_SCHED_RIG_H
#define TEST_SCHED_RIG_H

#include "tests/testing.h"

#include "model/serve/sched.h"

enum { VOCAB = 97, STOP_ID = 5, MOST_ROW = 4096, MOST_DRAWS = 256 };

/* Draws and their answers. */
typedef struct answers {
    uint32_t count;
    xray_draw draws[MOST_DRAWS];
    int32_t token[MOST_DRAWS];
    float raw[MOST_DRAWS];
    float logp[MOST_DRAWS];
} answers;

typedef struct rig {
    xm_sched *sched;
    xm_sched_limits limits;
    uint64_t *memory; /* what each position of each slot or block keeps */
    int32_t *ids, *seq, *positions, *last; /* [step tokens] */
    uint32_t draw_cap;
    uint32_t most_tokens; /* of a step */
    uint64_t copies;
    uint64_t computed;  /* tokens of all steps */
    uint64_t version;   /* of the weights */
    uint32_t letters;   /* every drawn token is below; 0: VOCAB */
    uint32_t period;    /* not 0: a drawn token is its position modulo this */
    int hurries;        /* 1: steps are made ahead where that can be */
    uint64_t hurried;   /* steps that were */
    xm_sched_step next; /* the one that is made ahead */
    answers ahead;      /* its draws; count 0: there is none */
    int traced;         /* 1: steps leave a trace */
    char trace[256];
} rig;

/* The table of a paged cache, whose `blocks` are not 0, is the rig's. At most
 * `draw_cap` draws, up to MOST_DRAWS, are answered at once. */
rig *rig_new(const xm_sched_limits *limits, uint32_t draw_cap);
void rig_free(rig *r);
/* Makes a step. Its trace has the blocks that are copied ("B>D"), then what is
 * computed in its order: request 1 is "a", its sample 0 "a0", a prompt that has
 * no sample yet "a"; positions 4 to 6 are ":4-6"; in a paged cache the blocks
 * of the sequence follow, of which 'A' is block 0. */
void rig_step(rig *r);
void rig_run(rig *r); /* until nothing is left to compute */
void rig_submit(rig *r, const xray_request *request);
xray_infer_stats rig_stats(const rig *r);

/* Fills in ids that are different for each `text`. */
void fill_text(uint64_t text, uint32_t count, int32_t *ids);
/* Makes a request with a stop id whose prompt is the text of its id; the prompt
 * is good until the next call. */
xray_request make_test_request(uint64_t id, uint32_t prompt, uint32_t count,
                               uint32_t max_tokens);

/* A row as it has to be. */
typedef struct oracle {
    uint32_t count;
    uint32_t bound; /* most tokens of a row */
    int32_t ids[MOST_ROW];
    uint64_t kept[MOST_ROW];
} oracle;

void oracle_begin(const rig *r, const int32_t *ids, uint32_t count,
                  oracle *out);
void oracle_add(const rig *r, const int32_t *ids, uint32_t count, oracle *row);
/* Samples until a rule ends the row; returns the finish reason, and the number
 * of tokens in *made. */
uint32_t oracle_sample(const rig *r, const xray_request *q, uint32_t sample,
                       oracle *row, uint32_t *made);
/* Compares a result with the oracle's, and the log-probs of its prompt. */
void check_result(const rig *r, const xray_request *q,
                  const xray_sample_out *out);

#endif
