/* SPDX-License-Identifier: Apache-2.0
 *
 * make_score FOLDER VOCABULARY [headless]: writes a sequence classifier whose
 * scores are known. Its one block adds nothing, the embedding of an id is a
 * unit vector, and the score of a row is (id % 16 - 7) / 10 / sqrt(1 / 16 +
 * eps) for its last id. `headless` leaves the value head out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/hf/safetensors.h"

#define WIDE 16
#define MOST 128 /* ids */

static const char config[] =
    "{\"architectures\": [\"LlamaForSequenceClassification\"],"
    "\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 1,"
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 2,"
    "\"intermediate_size\": 16, \"max_position_embeddings\": 64,"
    "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,"
    "\"hidden_act\": \"silu\", \"num_labels\": 1, \"vocab_size\": %u}\n";

static float embedding[MOST * WIDE];
static float square[WIDE * WIDE];
static float ones[WIDE];
static float head[WIDE];

static xm_st_item make_item(const char *name, const float *data, uint64_t rows,
                            uint64_t cols)
{
    xm_st_item it = { .name = name, .data = data, .dtype = XRAY_F32 };
    it.dims = cols ? 2 : 1;
    it.shape[0] = rows;
    it.shape[1] = cols;
    return it;
}

int main(int argc, char **argv)
{
    char path[512];
    xr_err err = { "" };
    unsigned vocab = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    if (!vocab || vocab > MOST)
        return 2;
    for (unsigned i = 0; i < WIDE; i++) {
        ones[i] = 1;
        head[i] = ((float)i - 7) / 10;
    }
    for (unsigned i = 0; i < vocab; i++)
        embedding[i * WIDE + i % WIDE] = 1;
    const xm_st_item items[] = {
        make_item("model.embed_tokens.weight", embedding, vocab, WIDE),
        make_item("model.layers.0.input_layernorm.weight", ones, WIDE, 0),
        make_item("model.layers.0.self_attn.q_proj.weight", square, WIDE, WIDE),
        make_item("model.layers.0.self_attn.k_proj.weight", square, WIDE, WIDE),
        make_item("model.layers.0.self_attn.v_proj.weight", square, WIDE, WIDE),
        make_item("model.layers.0.self_attn.o_proj.weight", square, WIDE, WIDE),
        make_item("model.layers.0.post_attention_layernorm.weight", ones, WIDE,
                  0),
        make_item("model.layers.0.mlp.gate_proj.weight", square, WIDE, WIDE),
        make_item("model.layers.0.mlp.up_proj.weight", square, WIDE, WIDE),
        make_item("model.layers.0.mlp.down_proj.weight", square, WIDE, WIDE),
        make_item("model.norm.weight", ones, WIDE, 0),
        make_item("score.weight", head, 1, WIDE),
    };
    size_t count = sizeof(items) / sizeof(items[0]) - (argc > 3 ? 1 : 0);
    (void)snprintf(path, sizeof(path), "%s/config.json", argv[1]);
    FILE *file = fopen(path, "w");
    if (!file)
        return 1;
    int bad = fprintf(file, config, vocab) < 0;
    if (fclose(file) || bad)
        return 1;
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", argv[1]);
    if (xm_st_write(path, items, count, NULL, &err) == XRAY_OK)
        return 0;
    (void)fprintf(stderr, "make_score: %s\n", err.text);
    return 1;
}
