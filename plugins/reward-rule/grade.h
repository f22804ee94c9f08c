/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines a grader (its keys and callbacks), the grade of one sample, and the
 * judge that applies a grader to samples.
 */
#ifndef RULE_GRADE_H
#define RULE_GRADE_H

#include <xray/option.h>
#include <xray/reward.h>

#include "core/base/err.h"
#include "plugins/reward-rule/graders.h"
#include "plugins/reward-rule/text.h"

/* Values of the choice keys. */
enum { RULE_LAST, RULE_FIRST };                             /* take */
enum { RULE_STRICT, RULE_FLEXIBLE };                        /* method */
enum { RULE_EM, RULE_F1, RULE_SUBEM };                      /* match */
enum { RULE_TOKENS, RULE_CHARACTERS, RULE_WORDS };          /* unit */
enum { RULE_SHARE, RULE_ALL };                              /* scoring */
enum { RULE_CAP, RULE_LINEAR, RULE_L1_EXACT, RULE_L1_MAX }; /* shape */
enum {                                                      /* format */
       RULE_THINK_ANSWER,
       RULE_THINK_ANSWER_SOFT,
       RULE_THINK,
       RULE_ANSWER,
       RULE_BOXED
};
#define RULE_NO_BASE (-1)

/* Values of `grader` and `base`: the index of the grader in the list. */
#define RULE_GRADER_ENUM(name, text) RULE_IS_##name,
enum { RULE_GRADERS(RULE_GRADER_ENUM) RULE_GRADER_COUNT };

typedef struct rule_config {
    int64_t grader;
    int64_t method;
    int64_t take;
    int64_t search_bytes;
    int64_t base; /* a grader or RULE_NO_BASE */
    int64_t match;
    int64_t format;
    int64_t shape;
    int64_t unit;
    int64_t scoring;
    int64_t option_count;
    int64_t index_from;
    int64_t max_response_length;
    int64_t target_length;
    int64_t overlong_buffer_len;
    int64_t ngram_size;
    int64_t extract;
    double score;
    double format_score;
    double no_answer_score;
    double tolerance;
    double rel_tolerance;
    double overlong_penalty_factor;
    double length_coef;
    double length_offset;
    double min_value_wrong;
    double max_value_wrong;
    double min_value_correct;
    double max_value_correct;
    double max_penalty;
    double min_share;
    const char *after;
    const char *pattern;
    const char *language;
    uint32_t trim;
    uint32_t ignore_case;
    uint32_t match_only;
    uint32_t loose;
    uint32_t allow_set_relation_comp;
} rule_config;

extern const xray_option rule_options[];
extern const uint32_t rule_option_count;
extern const xray_reward_ops rule_ops;

/* ---- a grader ------------------------------------------------------------ */

#define RULE_VALUES 4u

/* It is filled with zeros before a grader sees it. */
typedef struct rule_grade {
    double score;
    double acc;         /* 1: right; metric "acc" */
    double answered;    /* 1: there was something to judge; metric "answered" */
    const char *remark; /* why the sample could not be graded properly through
                         * no fault of the response, or NULL; it is logged as
                         * a warning once; lives as long as the program */
    xray_named_value values[RULE_VALUES]; /* further metrics; names live as
                                           * long as the program */
    uint32_t value_count;
    uint32_t failed; /* 1: memory ran out; the submit fails */
} rule_grade;

typedef struct rule_judge rule_judge;

/* One sample in the form in which a grader receives it. */
typedef struct rule_input {
    const rule_config *config;
    const rule_judge *judge;
    void *state; /* from `open` */
    const xray_sample_in *sample;
    rule_text response; /* the text after the marker `after`, for a grader with
                         * that key; data is never NULL, any bytes may be in
                         * it */
    rule_text truth;    /* data is never NULL */
} rule_input;

/* The samples of one submitted batch and their grades. */
typedef struct rule_batch {
    const rule_config *config;
    void *state;
    const xray_sample_in *samples;
    rule_grade *grades; /* [count] */
    uint64_t count;
    uint64_t stride; /* bytes between samples */
} rule_batch;

/* The keys of every grader that uses the three outcomes of rule_grade_outcome.
 */
#define RULE_SCORES "score format_score no_answer_score "

typedef struct rule_grader {
    /* Names separated by spaces. All other keys of the table must keep their
     * presets, or `create` refuses them by name. */
    const char *keys;
    /* 1: acc says whether the answer is right, so another grader can use this
     * one as its `base`. */
    int decides;
    /* 1: the ground truth is not read, or may be a JSON list or object. */
    int any_truth;
    /* Optional: returns XRAY_E_CONFIG for values that the grader cannot work
     * with. It runs before the check of keys. */
    xray_status (*check)(const rule_config *config, xr_err *err);
    /* Optional: `open` creates the state of an instance, `close` frees it. */
    xray_status (*open)(const rule_config *config, xr_err *err,
                        void **out_state);
    void (*close)(void *state);
    /* Must accept any bytes of any size with bounded work, and give the same
     * grade each time. */
    void (*grade)(const rule_input *input, rule_grade *out);
    /* Optional: called after all samples of a submitted batch were graded one
     * by one. */
    xray_status (*batch)(const rule_batch *batch, xr_err *err);
} rule_grader;

#define RULE_GRADER_EXTERN(name, text) \
    extern const rule_grader rule_grader_##name;
RULE_GRADERS(RULE_GRADER_EXTERN)

/* Both return non-NULL for every value of the enum above. */
const rule_grader *rule_grader_at(int64_t which);
const char *rule_grader_name(int64_t which);

/* Returns 1 if `key` is one of the names in `keys`. */
int rule_uses_key(const char *keys, const char *key);

/* ---- helpers of graders -------------------------------------------------- */

/* Sets the score to `score`, `format_score` or `no_answer_score`, with the
 * matching acc and answered. */
void rule_grade_outcome(const rule_config *config, int answered, int right,
                        rule_grade *out);

/* Sets the score to format_score + share * (score - format_score); acc is 1 if
 * the share is. */
void rule_grade_share(const rule_config *config, double share, rule_grade *out);

/* Adds a metric. More than RULE_VALUES metrics are dropped. */
void rule_add_value(rule_grade *out, const char *name, double value);

/* Grades the sample with the grader that the key `base` names. */
void rule_grade_base(const rule_input *input, rule_grade *out);

/* Returns XRAY_E_CONFIG unless `base` names a grader that decides whether an
 * answer is right. `grader` is the name of the grader that needs it. */
xray_status rule_need_base(const rule_config *config, const char *grader,
                           xr_err *err);

/* Compares two answers under `trim` and `ignore_case`; 1 if equal. */
int rule_same_answer(const rule_config *config, rule_text a, rule_text b);

/* ---- applying a grader --------------------------------------------------- */

struct rule_judge {
    const rule_config *config; /* borrowed */
    const rule_grader *grader;
    void *state;
    const rule_grader *base; /* NULL: none */
    void *base_state;
};

/* Checks the options, then opens the grader. rule_judge_close also accepts a
 * judge filled with zeros. */
xray_status rule_judge_open(const rule_config *config, xr_err *err,
                            rule_judge *out);
void rule_judge_close(rule_judge *judge);
void rule_judge_sample(const rule_judge *judge, const xray_sample_in *sample,
                       rule_grade *out);
xray_status rule_judge_batch(const rule_judge *judge,
                             const xray_sample_in *samples, uint64_t count,
                             uint64_t stride, rule_grade *grades, xr_err *err);

#endif
