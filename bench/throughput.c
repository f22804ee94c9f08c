/* SPDX-License-Identifier: Apache-2.0
 *
 * Training and generation speed of a model through the plugins an INI names.
 *
 *   bench-throughput MODEL_FOLDER [section.key=value ...]
 *
 * Rows have a prompt of [data] max_prompt_length and a response of
 * max_response_length tokens; a step has train_batch_size x n rows. Prints the
 * best of several rounds, with the floating-point rate it stands for.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/file.h"
#include "core/base/philox.h"
#include "core/rl/role.h"
#include "core/rl/samples.h"

#define ROUNDS 7

typedef struct bench {
    xr_session *session;
    xr_rows rows;
    xr_views views;
    xr_samples samples;
    xr_row *data; /* [prompts] */
    const xr_row **prompts;
    int32_t *ids;
    uint32_t prompt_count;
    uint32_t prompt_tokens;
    uint32_t response_tokens;
    uint32_t n;
} bench;

static const char *const presets[] = {
    "data.max_prompt_length=9",
    "data.max_response_length=5",
    "data.train_batch_size=64",
    "rollout.n=8",
    "actor.ppo_mini_batch_size=0",
    "actor.ppo_max_token_len_per_gpu=4096",
    "run.reward=rule",
};

static xray_status zero_loss(void *ctx, const xray_loss_call *call)
{
    (void)ctx;
    for (uint32_t t = 0; t < call->batch->tokens; t++)
        call->dlogp[t] = call->batch->loss_mask[t] * -1e-4f;
    return XRAY_OK;
}

static int make_rows(bench *b, xr_err *err)
{
    uint32_t vocab = b->session->model.vocab_size;
    uint32_t rows = b->prompt_count * b->n;
    uint32_t row = b->prompt_tokens + b->response_tokens;
    b->ids = xr_calloc((size_t)rows * row, sizeof(*b->ids));
    b->data = xr_calloc(b->prompt_count, sizeof(*b->data));
    b->prompts = xr_calloc(b->prompt_count, sizeof(*b->prompts));
    if (!b->ids || !b->data || !b->prompts ||
        xr_rows_init(&b->rows, rows, (uint64_t)rows * row, err) != XRAY_OK ||
        xr_views_init(&b->views, rows, err) != XRAY_OK ||
        xr_samples_init(&b->samples, rows, b->response_tokens, err) != XRAY_OK)
        return -1;
    for (uint32_t r = 0; r < rows; r++) {
        int32_t *ids = b->ids + (size_t)r * row;
        for (uint32_t t = 0; t < row; t++)
            ids[t] = (int32_t)(xr_philox(1, t, r / b->n, 0, 0).w[0] % vocab);
        xr_row_in in = { .prompt = ids,
                         .prompt_count = b->prompt_tokens,
                         .response = ids + b->prompt_tokens,
                         .response_count = b->response_tokens,
                         .group = (int32_t)(r / b->n),
                         .temperature = 1 };
        if (xr_rows_add(&b->rows, &in, err) != XRAY_OK)
            return -1;
        b->data[r / b->n] = (xr_row){ .id = r / b->n,
                                      .ids = ids,
                                      .id_count = b->prompt_tokens,
                                      .prompt_count = b->prompt_tokens };
        b->prompts[r / b->n] = &b->data[r / b->n];
    }
    return 0;
}

static int bench_train(bench *b, xr_err *err)
{
    xr_role actor = xr_role_actor(b->session);
    xray_loss loss = { .head = XRAY_HEAD(xray_loss),
                       .fn = zero_loss,
                       .outputs = XRAY_HEAD_LOGP | XRAY_HEAD_ENTROPY };
    double tokens = b->rows.batch.tokens;
    double best[2] = { 1e30, 1e30 };
    for (int i = 0; i < ROUNDS; i++) {
        xr_future future;
        xray_step_result result;
        double start = xr_now();
        if (xr_views_cut(&b->views, &b->rows, 0, b->rows.batch.rows,
                         b->session->train_load.tokens, err) != XRAY_OK)
            return -1;
        xr_role_gradients(&actor, &b->views, &loss, &future);
        if (xr_wait(&future, err) != XRAY_OK)
            return -1;
        double middle = xr_now();
        xr_role_step(&actor, 0, 1, &result, &future);
        if (xr_wait(&future, err) != XRAY_OK)
            return -1;
        double end = xr_now();
        best[0] = middle - start < best[0] ? middle - start : best[0];
        best[1] = end - middle < best[1] ? end - middle : best[1];
    }
    printf("train: %.0f tokens in %u micro-batches, forward and backward %.2f "
           "ms, optimizer %.2f ms, %.0f tokens/s\n",
           tokens, b->views.count, best[0] * 1e3, best[1] * 1e3,
           tokens / (best[0] + best[1]));
    return 0;
}

static int bench_generate(bench *b, xr_err *err)
{
    xr_sampling how = { .n = b->n,
                        .max_tokens = b->response_tokens,
                        .temperature = 1,
                        .top_p = 1,
                        .seed = 1,
                        .ignore_eos = 1 };
    double tokens = (double)b->prompt_count * b->n * b->response_tokens;
    double best = 1e30;
    for (int i = 0; i < ROUNDS; i++) {
        double start = xr_now();
        how.step = (uint64_t)i;
        const xray_weights *w =
            xr_train(b->session)->weights(b->session->train.self);
        if (xr_infer(b->session)
                    ->update(b->session->infer.self, NULL,
                             w->version(w->owner)) != XRAY_OK ||
            xr_samples_draw(b->session, &b->samples, b->prompts,
                            b->prompt_count, &how, NULL, err) != XRAY_OK)
            return -1;
        double took = xr_now() - start;
        best = took < best ? took : best;
    }
    printf("generate: %.0f tokens of %u sequences in %.2f ms, %.0f tokens/s\n",
           tokens, b->prompt_count * b->n, best * 1e3, tokens / best);
    return 0;
}

static int run(bench *b, xr_err *err)
{
    const xr_run_config *run = &b->session->run;
    b->prompt_count = (uint32_t)run->data.train_batch_size;
    b->n = (uint32_t)run->rollout.n;
    b->prompt_tokens = (uint32_t)run->data.max_prompt_length;
    b->response_tokens = (uint32_t)run->data.max_response_length;
    if (xr_session_start(b->session, err) != XRAY_OK || make_rows(b, err) ||
        bench_train(b, err) || bench_generate(b, err))
        return 1;
    return 0;
}

int main(int argc, char **argv)
{
    xr_errors errors = { 0 };
    xr_err err = { "" };
    bench b = { 0 };
    char model[XR_PATH_CAP];
    xr_config *config = xr_config_new();
    if (argc < 2 || !config) {
        (void)fputs("usage: bench-throughput MODEL_FOLDER "
                    "[section.key=value ...]\n",
                    stderr);
        return 2;
    }
    (void)snprintf(model, sizeof(model), "model.path=%s", argv[1]);
    xr_config_set(config, model, &errors);
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
        xr_config_set(config, presets[i], &errors);
    for (int i = 2; i < argc; i++)
        xr_config_set(config, argv[i], &errors);
    b.session = xr_session_new(
        config, NULL, XR_WITH_TRAIN | XR_TRAINABLE | XR_WITH_INFER, &errors);
    int bad = b.session ? run(&b, &err) : 1;
    for (size_t i = 0; i < errors.count; i++)
        (void)fprintf(stderr, "bench-throughput: %s\n", errors.items[i]);
    if (*err.text)
        (void)fprintf(stderr, "bench-throughput: %s\n", err.text);
    xr_rows_free(&b.rows);
    xr_views_free(&b.views);
    xr_samples_free(&b.samples);
    free(b.ids);
    free(b.data);
    free(b.prompts);
    xr_session_free(b.session);
    xr_config_free(config);
    xr_errors_free(&errors);
    return bad;
}
