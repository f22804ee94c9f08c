/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the small model in every form of a checkpoint, byte by byte, and the
 * goldens of a correct forward and backward pass.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/material/decoder.h"
#include "tests/material/golden.h"
#include "tests/material/material.h"

#define MODELS "models/stories260K/"

enum { AS_F32, AS_BF16, AS_F16 };
static const char *const types[] = { "F32", "BF16", "F16" };

/* ---- numbers ------------------------------------------------------------ */

/* Rounds to 8 bits of mantissa, to nearest even. */
static uint16_t round_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t low = bits & 0xFFFF;
    bits >>= 16;
    if (low > 0x8000 || (low == 0x8000 && (bits & 1)))
        bits++;
    return (uint16_t)bits;
}

static float bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The numbers of f16 are multiples of 2^-24, and of larger units above 2^-14.
 */
static uint16_t round_to_f16(float x)
{
    int exponent;
    if (x == 0)
        return 0;
    (void)frexpf(x, &exponent); /* |x| in [2^(e-1), 2^e) */
    if (exponent < -13)
        exponent = -13;
    double units = nearbyint(fabs((double)x) * pow(2, 11 - exponent));
    uint32_t bits = (uint32_t)units + (uint32_t)(exponent + 13) * 1024;
    if (exponent > 16)
        stop_with_error("a weight that no f16 holds", "model");
    return (uint16_t)((x < 0 ? 0x8000u : 0) | bits);
}

static float f16_to_float(uint16_t half)
{
    int exponent = half >> 10 & 31;
    int mantissa = half & 1023;
    double x = exponent ? (1024 + mantissa) * pow(2, exponent - 25)
                        : mantissa * pow(2, -24);
    return (float)(half & 0x8000 ? -x : x);
}

static double round_value(double x, int as)
{
    if (as == AS_BF16)
        return (double)bf16_to_float(round_to_bf16((float)x));
    return as == AS_F16 ? (double)f16_to_float(round_to_f16((float)x)) : x;
}

static void write_value(FILE *file, double x, int as)
{
    float value = (float)x;
    uint32_t bits = as == AS_BF16 ? round_to_bf16(value) : round_to_f16(value);
    if (as == AS_F32)
        memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < (as == AS_F32 ? 4 : 2); i++)
        (void)fputc((int)(bits >> (8 * i) & 255), file);
}

/* ---- weights ------------------------------------------------------------ */

/* Reads weights.i8, which has for each tensor a float scale and then one byte
 * per value. */
static tensor *read_weights(const material *m)
{
    size_t size = 0;
    char *data = source_read(m, "tests/material/weights.i8", &size);
    tensor *t = tensors_make();
    size_t at = 0;
    for (int i = 0; i < TENSORS; i++) {
        uint32_t count = tensor_count(&t[i]);
        float scale;
        if (at + sizeof scale + count > size)
            stop_with_error("too short", "weights.i8");
        memcpy(&scale, data + at, sizeof scale);
        at += sizeof scale;
        for (uint32_t k = 0; k < count; k++)
            t[i].values[k] = (double)((float)(signed char)data[at + k] * scale);
        at += count;
    }
    if (at != size)
        stop_with_error("too long", "weights.i8");
    free(data);
    return t;
}

static tensor *round_weights(const tensor *from, int as)
{
    tensor *t = tensors_make();
    for (int i = 0; i < TENSORS; i++)
        for (uint32_t k = 0; k < tensor_count(&t[i]); k++)
            t[i].values[k] = round_value(from[i].values[k], as);
    return t;
}

/* ---- checkpoints -------------------------------------------------------- */

/* A tensor as it is stored in a file, with any name and any values. */
typedef struct stored_tensor {
    const char *name;
    const tensor *of;
} stored_tensor;

static void print_tensor(FILE *out, const stored_tensor *s, int as, size_t from)
{
    size_t bytes = tensor_count(s->of) * (as == AS_F32 ? 4u : 2u);
    (void)fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%u", s->name,
                  types[as], s->of->rows);
    if (s->of->cols)
        (void)fprintf(out, ",%u", s->of->cols);
    (void)fprintf(out, "],\"data_offsets\":[%zu,%zu]}", from, from + bytes);
}

/* Writes the length of the header, the header padded with spaces, and the
 * values. */
static void write_shard(const material *m, const char *name,
                        const stored_tensor *list, int count, int as)
{
    char *header = NULL;
    size_t size = 0;
    size_t at = 0;
    FILE *text = open_memstream(&header, &size);
    if (!text)
        stop_with_error("no memory", name);
    (void)fprintf(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < count; i++) {
        print_tensor(text, &list[i], as, at);
        at += tensor_count(list[i].of) * (as == AS_F32 ? 4u : 2u);
    }
    (void)fputc('}', text);
    (void)fclose(text);
    size_t padded = (size + 7) / 8 * 8;
    FILE *file = file_open(m, name);
    for (int i = 0; i < 8; i++)
        (void)fputc((int)(padded >> (8 * i) & 255), file);
    (void)fprintf(file, "%-*s", (int)padded, header);
    for (int i = 0; i < count; i++)
        for (uint32_t k = 0; k < tensor_count(list[i].of); k++)
            write_value(file, list[i].of->values[k], as);
    file_close(file, name);
    free(header);
}

/* Writes two shards, cut in the middle of a layer, and their index. */
static void write_shards(const material *m, const stored_tensor *list,
                         int count)
{
    static const char *const names[] = { "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors" };
    char path[128];
    int half = count / 2;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, MODELS "hf_sharded/%s", names[i]);
        write_shard(m, path, list + i * half, i ? count - half : half, AS_F32);
    }
    FILE *index =
        file_open(m, MODELS "hf_sharded/model.safetensors.index.json");
    (void)fprintf(index,
                  "{\"metadata\": {\"total_size\": 0}, \"weight_map\": {");
    for (int i = 0; i < count; i++)
        (void)fprintf(index, "%s\n  \"%s\": \"%s\"", i ? "," : "", list[i].name,
                      names[i >= half]);
    (void)fprintf(index, "\n}}\n");
    file_close(index, "model.safetensors.index.json");
}

/* Writes config.json with each first text replaced by the second. */
static void write_config(const material *m, const char *folder,
                         const char *(*changes)[2], int count)
{
    char path[128];
    size_t size = 0;
    char *text = source_read(m, "tests/material/config.json", &size);
    const char *at = text;
    (void)snprintf(path, sizeof path, MODELS "%s/config.json", folder);
    FILE *out = file_open(m, path);
    for (int i = 0; i < count; i++) {
        const char *found = strstr(at, changes[i][0]);
        if (!found)
            stop_with_error("config.json lacks it", changes[i][0]);
        (void)fprintf(out, "%.*s%s", (int)(found - at), at, changes[i][1]);
        at = found + strlen(changes[i][0]);
    }
    (void)fputs(at, out);
    file_close(out, path);
    free(text);
}

static void write_folder(const material *m, const char *folder,
                         const char *(*changes)[2], int count)
{
    static const char *const files[][2] = {
        { "tests/material/generation_config.json", "generation_config.json" },
        { "tests/material/tokenizer_config.json", "tokenizer_config.json" },
        { "tests/text/goldens/stories/tokenizer.json", "tokenizer.json" },
    };
    char path[128];
    write_config(m, folder, changes, count);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, MODELS "%s/%s", folder, files[i][1]);
        file_copy(m, files[i][0], path);
    }
}

static void write_untied(const material *m, stored_tensor *list)
{
    static const char *changes[][2] = { { "\"tie_word_embeddings\": true",
                                          "\"tie_word_embeddings\": false" } };
    list[TENSORS] = (stored_tensor){ "lm_head.weight", list[EMBED].of };
    write_folder(m, "hf_untied", changes, 1);
    write_shard(m, MODELS "hf_untied/model.safetensors", list, TENSORS + 1,
                AS_F32);
}

/* Writes the same model as a Qwen2, whose biases are zero. */
static void write_as_qwen2(const material *m, stored_tensor *list)
{
    static const char *changes[][2] = {
        { "LlamaForCausalLM", "Qwen2ForCausalLM" },
        { "\"model_type\": \"llama\"", "\"model_type\": \"qwen2\"" },
        { "\"attention_bias\": false,", "" }, /* Qwen2 always has a bias */
    };
    static const struct {
        int tensor;
        const char *name;
    } biased[] = { { K, "k" }, { Q, "q" }, { V, "v" } };
    char names[LAYERS * 3][64];
    tensor zeros[LAYERS * 3];
    for (int i = 0; i < LAYERS * 3; i++) {
        const tensor *of =
            list[FIRST_LAYER + i / 3 * LAYER_TENSORS + biased[i % 3].tensor].of;
        (void)snprintf(names[i], sizeof names[i],
                       "model.layers.%d.self_attn.%s_proj.bias", i / 3,
                       biased[i % 3].name);
        zeros[i] = (tensor){ .rows = of->rows };
        zeros[i].values = allocate_zeroed(of->rows, sizeof(double));
        list[TENSORS + i] = (stored_tensor){ names[i], &zeros[i] };
    }
    write_folder(m, "hf_as_qwen2", changes, 3);
    write_shard(m, MODELS "hf_as_qwen2/model.safetensors", list,
                TENSORS + LAYERS * 3, AS_F32);
    for (int i = 0; i < LAYERS * 3; i++)
        free(zeros[i].values);
}

static void write_rounded(const material *m, const tensor *model, int as)
{
    static const char *const folders[] = { "hf", "hf_bf16", "hf_f16" };
    static const char *const goldens[] = { "golden.json", "golden_hf_bf16.json",
                                           "golden_hf_f16.json" };
    static const char *const dtypes[] = { "float32", "bfloat16", "float16" };
    const char *changes[][2] = { { "float32", dtypes[as] } };
    char path[128];
    stored_tensor list[TENSORS + LAYERS * 3];
    tensor *t = round_weights(model, as);
    for (int i = 0; i < TENSORS; i++)
        list[i] = (stored_tensor){ t[i].name, &t[i] };
    write_folder(m, folders[as], changes, 1);
    (void)snprintf(path, sizeof path, MODELS "%s/model.safetensors",
                   folders[as]);
    write_shard(m, path, list, TENSORS, as);
    (void)snprintf(path, sizeof path, MODELS "%s", goldens[as]);
    golden_write(m, path, t);
    if (as == AS_F32) {
        golden_write_derivatives(m, MODELS "golden_grad.json", t);
        write_folder(m, "hf_sharded", NULL, 0);
        write_shards(m, list, TENSORS);
        write_untied(m, list);
        write_as_qwen2(m, list);
    }
    tensors_free(t);
}

void models_write(const material *m)
{
    tensor *model = read_weights(m);
    for (int as = AS_F32; as <= AS_F16; as++)
        write_rounded(m, model, as);
    tensors_free(model);
}
