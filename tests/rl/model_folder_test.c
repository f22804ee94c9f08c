/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how a model's weights are compared with its config.json, tensor by
 * tensor, without a backend: which tensors are required, optional or refused.
 */
#include "core/base/str.h"
#include "core/run/inventory.h"
#include "core/run/run.h"
#include "core/run/run_setup.h"
#include "tests/scratch.h"

/* Not tied: the model has an LM head of its own. */
#define CONFIG(tied)                                                      \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," \
    "\"hidden_act\":\"silu\",\"hidden_size\":4,\"intermediate_size\":6,"  \
    "\"max_position_embeddings\":64,\"num_attention_heads\":2,"           \
    "\"num_hidden_layers\":1,\"num_key_value_heads\":1,"                  \
    "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":" tied ",\"vocab_size\":8}"

typedef struct tensor {
    const char *name;
    int rows;
    int cols; /* 0: one dimension */
} tensor;

static const tensor model[] = {
    { "model.embed_tokens.weight", 8, 4 },
    { "model.layers.0.input_layernorm.weight", 4, 0 },
    { "model.layers.0.self_attn.q_proj.weight", 4, 4 },
    { "model.layers.0.self_attn.k_proj.weight", 2, 4 },
    { "model.layers.0.self_attn.v_proj.weight", 2, 4 },
    { "model.layers.0.self_attn.o_proj.weight", 4, 4 },
    { "model.layers.0.post_attention_layernorm.weight", 4, 0 },
    { "model.layers.0.mlp.gate_proj.weight", 6, 4 },
    { "model.layers.0.mlp.up_proj.weight", 6, 4 },
    { "model.layers.0.mlp.down_proj.weight", 4, 6 },
    { "model.norm.weight", 4, 0 },
    { "lm_head.weight", 8, 4 },
};
#define TENSORS (sizeof(model) / sizeof(model[0]))

/* Writes a file of zeros under these names. */
static void write_file(const tensor *list, size_t count)
{
    static const char zeros[4096];
    char path[300];
    xr_str head = { 0 };
    uint64_t at = 0;
    xr_err err = { "" };
    xr_str_puts(&head, "{");
    for (size_t i = 0; i < count; i++) {
        const tensor *t = &list[i];
        uint64_t end =
            at + 4u * (uint64_t)t->rows * (uint64_t)(t->cols ? t->cols : 1);
        xr_str_printf(&head, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d",
                      head.size > 1 ? "," : "", t->name, t->rows);
        if (t->cols)
            xr_str_printf(&head, ",%d", t->cols);
        xr_str_printf(&head, "],\"data_offsets\":[%llu,%llu]}",
                      (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    xr_str_puts(&head, "}");
    uint64_t size = head.size;
    xr_file_out out;
    (void)snprintf(path, sizeof(path), "%s",
                   scratch_path("m/model.safetensors"));
    assert_int_equal(xr_file_begin(path, &err, &out), XRAY_OK);
    assert_int_equal(xr_file_append(&out, &size, 8, &err), XRAY_OK);
    assert_int_equal(xr_file_append(&out, head.data, size, &err), XRAY_OK);
    assert_true(at <= sizeof(zeros));
    assert_int_equal(xr_file_append(&out, zeros, at, &err), XRAY_OK);
    assert_int_equal(xr_file_finish(&out, &err), XRAY_OK);
    xr_str_free(&head);
}

/* Writes the file of a model, with `instead[i]` in place of tensor i if it has
 * a name ("" leaves it out), followed by `more`, which ends with an entry
 * without a name. */
static void write_model(const tensor *instead, const tensor *more)
{
    tensor all[TENSORS + 2];
    size_t count = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        const tensor *t = instead && instead[i].name ? &instead[i] : &model[i];
        if (*t->name)
            all[count++] = *t;
    }
    for (; more && more->name && *more->name; more++)
        all[count++] = *more;
    write_file(all, count);
}

static void expect_weights(uint32_t kind, int tied, const char *want)
{
    xr_errors errors = { 0 };
    char dir[300];
    char text[600] = "";
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("m"));
    const xray_model m = { .path = dir,
                           .config_json =
                               tied ? CONFIG("true") : CONFIG("false") };
    xr_run_check_weights(&m, kind, &errors);
    if (*want)
        (void)snprintf(text, sizeof(text), "%s: tensor %s", dir, want);
    assert_string_equal(errors.count ? errors.items[0] : "", text);
    assert_true(errors.count <= 1);
    xr_errors_free(&errors);
}

#define POLICY XR_WEIGHTS_POLICY, 0
#define CRITIC XR_WEIGHTS_CRITIC, 0
#define REWARD XR_WEIGHTS_REWARD, 0

static void missing_tensors_are_reported(void **state)
{
    (void)state;
    tensor t[TENSORS] = { { NULL, 0, 0 } };
    write_model(NULL, NULL);
    expect_weights(POLICY, "");
    expect_weights(CRITIC, "");
    t[4].name = "";
    write_model(t, NULL);
    expect_weights(POLICY, "model.layers.0.self_attn.v_proj.weight is missing, "
                           "the model's config asks for it");
    t[9].name = "";
    t[10].name = "";
    write_model(t, NULL);
    expect_weights(POLICY, "model.layers.0.self_attn.v_proj.weight is missing, "
                           "the model's config asks for it (and 2 more tensors "
                           "do not match)");
    memset(t, 0, sizeof(t));
    t[11].name = ""; /* a model with a value head does not need this head */
    write_model(t, NULL);
    expect_weights(POLICY, "lm_head.weight is missing, the model's config asks "
                           "for it");
    expect_weights(CRITIC, "");
    expect_weights(XR_WEIGHTS_POLICY, 1, "");
    expect_weights(REWARD, "score.weight is missing, a reward model needs one");
}

static void shapes_must_match_the_config(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        tensor is;
        const char *want;
    } cases[] = {
        { 0,
          { "model.embed_tokens.weight", 9, 4 },
          "model.embed_tokens.weight has shape [9, 4], the model's config says "
          "[8, 4]" },
        { 9,
          { "model.layers.0.mlp.down_proj.weight", 6, 4 },
          "model.layers.0.mlp.down_proj.weight has shape [6, 4], the model's "
          "config says [4, 6]" },
        { 9,
          { "model.layers.0.mlp.down_proj.weight", 4, 5 },
          "model.layers.0.mlp.down_proj.weight has shape [4, 5], the model's "
          "config says [4, 6]" },
        { 10,
          { "model.norm.weight", 5, 0 },
          "model.norm.weight has shape [5], the model's config says [4]" },
        { 10,
          { "model.norm.weight", 4, 1 },
          "model.norm.weight has shape [4, 1], the model's config says [4]" },
        { 3,
          { "model.layers.0.self_attn.k_proj.weight", 8, 0 },
          "model.layers.0.self_attn.k_proj.weight has shape [8], the model's "
          "config says [2, 4]" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tensor t[TENSORS] = { { NULL, 0, 0 } };
        t[cases[i].at] = cases[i].is;
        write_model(t, NULL);
        expect_weights(POLICY, cases[i].want);
    }
}

/* GPT-2 stores its matrices transposed. */
static void gpt2_shapes_are_transposed(void **state)
{
    (void)state;
    static const char config[] =
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\","
        "\"n_embd\":4,\"n_head\":2,\"n_layer\":1,\"n_positions\":16,"
        "\"n_ctx\":16,\"vocab_size\":8,\"layer_norm_epsilon\":1e-5,"
        "\"activation_function\":\"gelu_new\"}";
    tensor t[] = {
        { "wte.weight", 8, 4 },
        { "wpe.weight", 16, 4 },
        { "h.0.ln_1.weight", 4, 0 },
        { "h.0.ln_1.bias", 4, 0 },
        { "h.0.attn.c_attn.weight", 4, 12 },
        { "h.0.attn.c_attn.bias", 12, 0 },
        { "h.0.attn.c_proj.weight", 4, 4 },
        { "h.0.attn.c_proj.bias", 4, 0 },
        { "h.0.ln_2.weight", 4, 0 },
        { "h.0.ln_2.bias", 4, 0 },
        { "h.0.mlp.c_fc.weight", 4, 16 },
        { "h.0.mlp.c_fc.bias", 16, 0 },
        { "h.0.mlp.c_proj.weight", 16, 4 },
        { "h.0.mlp.c_proj.bias", 4, 0 },
        { "ln_f.weight", 4, 0 },
        { "ln_f.bias", 4, 0 },
    };
    char dir[300];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("m"));
    const xray_model m = { .path = dir, .config_json = config };
    for (int turned = 0; turned < 2; turned++) {
        xr_errors errors = { 0 };
        write_file(t, sizeof(t) / sizeof(t[0]));
        xr_run_check_weights(&m, XR_WEIGHTS_POLICY, &errors);
        assert_int_equal(errors.count, turned);
        if (turned)
            assert_non_null(strstr(errors.items[0],
                                   "h.0.mlp.c_fc.weight has shape [16, 4], the "
                                   "model's config says [4, 16]"));
        xr_errors_free(&errors);
        t[10] = (tensor){ "h.0.mlp.c_fc.weight", 16, 4 };
    }
}

/* ---- folders of checkpoints --------------------------------------------- */

static void put_model(const char *leaf)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "run/%s", leaf);
    assert_int_equal(xr_dir_make(scratch_path(name), NULL), XRAY_OK);
    (void)snprintf(name, sizeof(name), "run/%s/weights", leaf);
    (void)scratch_write(name, "weights");
    (void)snprintf(name, sizeof(name), "run/%s/optim", leaf);
    (void)scratch_write(name, "optim");
}

/* Expects the folder to be a complete model: by sizes alone, and by checksums.
 */
static void expect_folder(const char *name, const char *sizes, const char *sums)
{
    for (int bytes = 0; bytes < 2; bytes++) {
        const char *want = bytes ? sums : sizes;
        xr_err err = { "" };
        char dir[300];
        (void)snprintf(dir, sizeof(dir), "%s", scratch_path(name));
        assert_int_equal(xr_run_verify_folder(dir, bytes, &err),
                         *want ? XRAY_E_IO : XRAY_OK);
        if (!strstr(err.text, want) || !*want != !*err.text)
            fail_msg("%s: \"%s\", expected \"%s\"", name, err.text, want);
    }
}

static void models_of_a_checkpoint_are_verified(void **state)
{
    (void)state;
    xr_err err = { "" };
    put_model("actor");
    put_model("critic");
    put_model("other");
    (void)scratch_write("run/state.json", "{}");
    (void)scratch_write("run/run.ini", "");
    assert_int_equal(xr_inventory_write(scratch_path("run"), &err), XRAY_OK);
    expect_folder("run/actor", "", "");
    (void)scratch_write("run/critic/weights", "weightz");
    expect_folder("run/actor", "", "");
    expect_folder("run/critic", "", "run/critic/weights is damaged");
    expect_folder("run/critic//", "", "run/critic/weights is damaged");
    (void)scratch_write("run/actor/weights", "weight");
    expect_folder("run/actor", "run/actor/weights has 6 bytes",
                  "run/actor/weights has 6 bytes");
    (void)scratch_write("run/other/weights", "");
    expect_folder("run/other", "", ""); /* none of its models */
    /* Every model that is loaded is verified once. */
    char actor[300];
    char critic[300];
    (void)snprintf(actor, sizeof(actor), "%s", scratch_path("run/actor"));
    (void)snprintf(critic, sizeof(critic), "%s", scratch_path("run/critic"));
    for (int i = 0; i < 3; i++) {
        char elsewhere[] = "/";
        xr_run s = { .actor.path = elsewhere };
        xr_model_slot *m = i == 0   ? &s.actor
                           : i == 1 ? &s.critic
                                    : &s.reward_model;
        m->path = i == 0 ? actor : critic;
        assert_int_equal(xr_run_verify_models(&s, &err), XRAY_E_IO);
        assert_non_null(strstr(err.text, i ? critic : actor));
        m->model.random_init =
            1; /* initialized at random, whatever the folder holds */
        assert_int_equal(xr_run_verify_models(&s, &err), XRAY_OK);
    }
    /* Without the manifest it is still a checkpoint; without the files that
     * make it one it is a folder like any other. */
    assert_int_equal(remove(scratch_path("run/manifest.json")), 0);
    expect_folder("run/actor", "manifest.json is missing",
                  "manifest.json is missing");
    assert_int_equal(remove(scratch_path("run/state.json")), 0);
    expect_folder("run/actor", "", "");
    (void)scratch_write("run/state.json", "{}");
    assert_int_equal(remove(scratch_path("run/run.ini")), 0);
    expect_folder("run/actor", "", "");
    assert_int_equal(remove(scratch_path("run/state.json")), 0);
    (void)scratch_write("run/manifest.json",
                        "{\"format\": \"xray.checkpoint/1");
    expect_folder("run/actor", "manifest.json is cut off or damaged",
                  "manifest.json is cut off or damaged");
}

/* Files of the body alone lack its prefix. */
static void names_may_lack_their_prefix(void **state)
{
    (void)state;
    tensor t[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) {
        t[i] = model[i];
        if (strncmp(t[i].name, "model.", 6) == 0)
            t[i].name += 6;
    }
    write_model(t, NULL);
    expect_weights(POLICY, "");
}

static void extra_tensors_are_reported(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int place;
    } cases[] = {
        { "model.layers.1.mlp.up_proj.weight", 0 },
        { "model.layers.0.self_attn.rotary_emb.inv_freq", 1 },
        { "h.0.attn.bias", 1 },
        { "h.0.attn.masked_bias", 1 },
        { "h.0.attn.bias.other", 0 },
        { "value_head.weight", 1 },
        { "value_head.bias", 0 },
        { "score.weight", 1 },
        { "score.bias", 1 },
        { "scores.weight", 0 },
        { "v_head.summary.weight", 1 },
        { "other", 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const tensor more[2] = { { cases[i].name, 1, 4 }, { NULL, 0, 0 } };
        char want[200];
        write_model(NULL, more);
        (void)snprintf(
            want, sizeof(want),
            "%s does not belong to the model that config.json describes",
            cases[i].name);
        expect_weights(POLICY, cases[i].place ? "" : want);
    }
    /* The first tensor of a file is none that nobody looks at. */
    tensor all[TENSORS + 1] = { { "a", 1, 4 } };
    memcpy(all + 1, model, TENSORS * sizeof(*model));
    write_file(all, TENSORS + 1);
    expect_weights(POLICY,
                   "a does not belong to the model that config.json describes");
    /* A tied head may be stored a second time. */
    write_model(NULL, NULL);
    expect_weights(XR_WEIGHTS_POLICY, 1, "");
    /* Missing and mismatched tensors are reported before extra ones. */
    const tensor more[2] = { { "other", 1, 4 }, { NULL, 0, 0 } };
    tensor t[TENSORS] = { { NULL, 0, 0 } };
    t[10].name = "";
    write_model(t, more);
    expect_weights(POLICY, "model.norm.weight is missing, the model's config "
                           "asks for it");
}

static void value_heads_are_optional_or_required(void **state)
{
    (void)state;
    static const char *const heads[] = { "score.weight", "value_head.weight",
                                         "v_head.summary.weight", "" };
    char dir[300];
    char want[800];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("m"));
    for (size_t i = 0; i < 4; i++) {
        const tensor more[2] = { { heads[i], 1, 4 }, { NULL, 0, 0 } };
        xr_run s = { .actor.model.path = dir, .critic.model.path = dir };
        xr_str out = { 0 };
        write_model(NULL, more);
        expect_weights(REWARD, i < 2 ? ""
                                     : "score.weight is missing, a reward "
                                       "model needs one");
        for (int k = 0; k < 3; k++) {
            s.needs = k == 0   ? XRAY_NEED_VALUE_HEAD
                      : k == 1 ? XRAY_NEED_CRITIC
                               : 0;
            s.critic.model.random_init = 0;
            xr_str_clear(&out);
            xr_run_report_new_heads(&s, &out);
            (void)snprintf(want, sizeof(want),
                           "the value head of the %s is new and begins with "
                           "zeros: %s has none\n",
                           k ? "critic" : "policy", dir);
            assert_string_equal(xr_str_text(&out), i < 2 || k == 2 ? "" : want);
            s.critic.model.random_init = s.actor.model.random_init =
                1; /* initialized at random */
            xr_str_clear(&out);
            xr_run_report_new_heads(&s, &out);
            assert_string_equal(xr_str_text(&out), "");
            s.actor.model.random_init = 0;
        }
        xr_str_free(&out);
    }
}

/* A model that the core does not know is checked by its backend. */
static void unknown_models_are_left_to_the_backend(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    char dir[300];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("m"));
    const tensor more[2] = { { "anything", 1, 4 }, { NULL, 0, 0 } };
    write_model(NULL, more);
    const xray_model m = { .path = dir, .config_json = "{\"vocab_size\":8}" };
    xr_run_check_weights(&m, XR_WEIGHTS_POLICY, &errors);
    assert_int_equal(errors.count, 0);
    assert_int_equal(remove(scratch_path("m/model.safetensors")), 0);
    xr_run_check_weights(&m, XR_WEIGHTS_POLICY, &errors);
    assert_int_equal(errors.count, 1);
    xr_errors_free(&errors);
}

static int begin_test(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    return xr_dir_make(scratch_path("m"), NULL) == XRAY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_tensors_are_reported),
        cmocka_unit_test(shapes_must_match_the_config),
        cmocka_unit_test(gpt2_shapes_are_transposed),
        cmocka_unit_test(names_may_lack_their_prefix),
        cmocka_unit_test(models_of_a_checkpoint_are_verified),
        cmocka_unit_test(extra_tensors_are_reported),
        cmocka_unit_test(value_heads_are_optional_or_required),
        cmocka_unit_test(unknown_models_are_left_to_the_backend),
    };
    return cmocka_run_group_tests_name("rl.model_folder", tests, begin_test,
                                       scratch_drop);
}
