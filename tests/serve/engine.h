/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixtures of the engine's suites: a host, a CPU device, small models, a
 * run of requests, and the log-probabilities of a trainer's forward pass.
 */
#ifndef TEST_ENGINE_H
#define TEST_ENGINE_H

#include "tests/testing.h"

#include <xray/box.h>
#include <xray/infer.h>
#include <xray/plugin.h>

#include "model/nn/decoder.h"
#include "plugins/infer-dsinf/dsinf.h"
#include "plugins/infer-paged/paged.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_infer_dsinf(uint32_t host_abi);
const xray_plugin *xray_plugin_query_infer_paged(uint32_t host_abi);

typedef struct rig {
    xray_host host;
    char said[2048];   /* the last failure */
    char log[2048];    /* the last log line */
    const void *calls; /* services that the host has, or NULL */
    const void *metrics;
    const xray_device_ops *device;
    void *device_self;
    const xray_infer_ops *ops;
    paged_config paged;      /* block_size 0: the engine is dsinf */
    int64_t speculate;       /* of all engines */
    const xray_world *world; /* of the engine; NULL: one rank */
    xray_device_ops late;
} rig;

/* With XRAY_TEST_LATE in the environment the rig is late from the start, with
 * XRAY_TEST_PAGED its engines are paged, and with XRAY_TEST_SPECULATE they
 * compute drafts. */
rig *rig_open(uint32_t threads);
/* From now on engines are paged ones. Their weights, sequences and tokens of a
 * step are those of the size, the rest is that of `config`. */
void rig_use_paged(rig *r, const paged_config *config);
/* From now on the device's memory is apart from the host's, and its work seems
 * not to be done until somebody waits for it. */
void rig_make_late(rig *r);
uint32_t rig_advances(void); /* calls of `advance` by late rigs so far */
/* The last failure is this one; a sentence that begins with "dsinf: " begins
 * with the engine's name. */
void rig_expect_said(const rig *r, const char *says);
void rig_close(rig *r);
uint64_t rig_high(rig *r, uint32_t tag); /* bytes, the peak so far */
uint64_t rig_live(rig *r);               /* bytes of all tags */
uint64_t rig_scratch(
    rig *r); /* what the device keeps for itself after everything was freed */

/* A small model with random weights: those of a trainer, to be shared. */
typedef struct model {
    xm_config config;
    xm_layout *layout;
    xm_weights *weights;
    const char *json;
    uint64_t seed;
    uint32_t dtype; /* of activations and caches; 0: fp32 */
} model;

enum {
    MODEL_LLAMA,
    MODEL_LLAMA_UNTIED,
    MODEL_QWEN2,
    MODEL_QWEN3,
    MODEL_LLAMA3, /* every bias, scaled positions */
    MODEL_QWEN2_YARN,
    MODEL_MISTRAL,
    MODEL_GEMMA,
    MODEL_GEMMA2,
    MODEL_GEMMA3,
    MODEL_GPT2,
    MODEL_PHI3,
    MODEL_COUNT
};
model *model_open(rig *r, int which);
/* `json` outlives the model. */
model *model_open_json(rig *r, const char *json);
void model_close(model *m);

typedef struct engine_size {
    uint64_t rows;
    uint64_t row_tokens;
    dsinf_config config;
} engine_size;

/* The options of the rig's engine; `own` is memory for them. */
typedef union engine_config {
    dsinf_config dsinf;
    paged_config paged;
} engine_config;
const void *rig_config(const rig *r, const engine_size *size,
                       engine_config *own);
/* weights NULL: the engine draws its own from the model's seed */
xray_status engine_try(rig *r, const model *m, const xray_weights *weights,
                       const engine_size *size, void **out);
void *engine_open(rig *r, const model *m, const engine_size *size);

/* All results of a run, by request and sample. */
enum { MAX_OUT = 96, MAX_OUT_TOKENS = 256 };
typedef struct result {
    uint64_t id;
    uint32_t sample;
    uint32_t count;
    uint32_t finish;
    int32_t tokens[MAX_OUT_TOKENS];
    float raw[MAX_OUT_TOKENS];
    float logp[MAX_OUT_TOKENS];
} result;
typedef struct results {
    uint32_t count;
    result r[MAX_OUT];
} results;

void engine_submit(rig *r, void *engine, const xray_request *request);
/* Steps until the engine is idle, and polls results as they come. */
void engine_run(rig *r, void *engine, results *out);
void engine_poll(rig *r, void *engine, results *out);
const result *result_find(const results *all, uint64_t id, uint32_t sample);
/* Compares all bits, in any order of the results. */
void results_equal(const results *a, const results *b);

/* Makes a request of 1 sample at temperature 1. */
xray_request request_make(uint64_t id, const int32_t *ids, uint32_t count,
                          uint32_t max_tokens);

/* Computes logp of row[first ...] at the temperature as a trainer does. */
void trainer_logp(rig *r, const model *m, const int32_t *row, uint32_t count,
                  uint32_t first, float temperature, float *out);

#endif
