/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the model library's results for rows of ids, for decoders.py:
 * decoders-probe MODEL ROWS OUT. ROWS is JSON, {"rows":[[id, ...], ...]}. It
 * writes under OUT:
 *   out.safetensors  logits [tokens, vocab], logp [tokens - rows]
 *   grads/           gradients of the mean negative log-likelihood, as a model
 *   one/, shards/    the weights, in one file and in shards of 4 kB
 */
#include <stdlib.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/testing.h"

#define SHARD_BYTES 4096u

typedef struct probe {
    fixture f;
    fixture_rows rows;
    fixture_items items;
    const char *out;
} probe;

static void join_output_path(const probe *p, const char *name,
                             char path[XR_PATH_CAP])
{
    xr_err err = { "" };
    fixture_ok(xr_path_join(p->out, name, path, XR_PATH_CAP, &err), &err);
}

static fixture_rows read_json_rows(const char *path)
{
    xr_err err = { "" };
    cJSON *json = NULL;
    fixture_ok(xr_json_file(path, &err, &json), &err);
    const cJSON *list = xr_json_get(json, "rows");
    uint32_t count = (uint32_t)cJSON_GetArraySize(list);
    uint32_t *lengths = calloc(count + 1u, sizeof *lengths);
    assert_non_null(lengths);
    uint32_t n = 0;
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, list)
    {
        lengths[n++] = (uint32_t)cJSON_GetArraySize(row);
    }
    fixture_rows rows = fixture_rows_make(lengths, count, 2, 1);
    uint32_t t = 0;
    cJSON_ArrayForEach(row, list)
    {
        const cJSON *id = NULL;
        cJSON_ArrayForEach(id, row)
        {
            rows.ids[t++] = id->valueint;
        }
    }
    free(lengths);
    cJSON_Delete(json);
    return rows;
}

static void write_outputs(const probe *p, const float *logits,
                          const float *logp)
{
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    join_output_path(p, "out.safetensors", path);
    const xm_st_item items[] = {
        { .name = "logits",
          .dtype = XM_ST_F32,
          .dims = 2,
          .shape = { p->rows.pack.tokens, p->f.config.vocab },
          .data = logits },
        { .name = "logp",
          .dtype = XM_ST_F32,
          .dims = 1,
          .shape = { p->items.items.count },
          .data = logp },
    };
    fixture_ok(xm_st_write(path, items, 2, NULL, &err), &err);
}

/* Gradients have the layout of the weights, so they can be saved as weights. */
static void write_as_model(const probe *p, float **buckets, const char *name,
                           uint64_t max_shard)
{
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    join_output_path(p, name, path);
    xm_weights view = *p->f.weights;
    view.buckets = buckets;
    fixture_ok(xm_weights_save(&view, path, max_shard, &err), &err);
}

static void run_probe(probe *p)
{
    xr_err err = { "" };
    const xm_pack *pack = &p->rows.pack;
    xm_space *space = NULL;
    fixture_ok(xm_space_create(p->f.decoder, pack->tokens, pack->rows,
                               pack->row_bound, XM_SPACE_TRAIN, "probe", &err,
                               &space),
               &err);
    p->items.items.temperature = NULL;
    uint32_t count = p->items.items.count;
    for (uint32_t i = 0; i < count; i++) {
        p->items.dlogp[i] = -1.0f / (float)count;
        p->items.dentropy[i] = 0;
    }
    float *logp = calloc(count + 1u, sizeof *logp);
    assert_non_null(logp);
    fixture_out out = { .logp = logp };
    xm_grads *grads = fixture_grads(&p->f);
    fixture_pass(&p->f, space, &p->rows, &p->items, NULL, &out);
    float *logits =
        calloc((size_t)pack->tokens * p->f.config.vocab, sizeof *logits);
    assert_non_null(logits);
    fixture_logits(&p->f, xm_space_hidden(space), pack->tokens, logits);
    fixture_pass(&p->f, space, &p->rows, &p->items, grads, NULL);
    fixture_ok(xm_grads_finish(grads, &err), &err);
    write_outputs(p, logits, logp);
    write_as_model(p, grads->buckets, "grads", XM_ST_SHARD_BYTES);
    write_as_model(p, p->f.weights->buckets, "one", XM_ST_SHARD_BYTES);
    write_as_model(p, p->f.weights->buckets, "shards", SHARD_BYTES);
    free(logits);
    free(logp);
    xm_grads_destroy(grads);
    xm_space_destroy(space);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        (void)fputs("usage: decoders-probe MODEL ROWS OUT\n", stderr);
        return 2;
    }
    probe p = { .rows = read_json_rows(argv[2]), .out = argv[3] };
    fixture_load(&p.f, argv[1]);
    p.items = fixture_items_make(&p.rows, 0, 1);
    run_probe(&p);
    fixture_items_free(&p.items);
    fixture_rows_free(&p.rows);
    fixture_end(&p.f);
    return 0;
}
