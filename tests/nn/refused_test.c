/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that passes, weights and tables refuse arguments just beyond their
 * bounds, and that a pass reports each refusal of the device.
 */
#include "model/hf/param_slots.h"
#include "tests/nn/fixture.h"
#include "tests/testing.h"

static void assert_refused(xray_status got, xray_status want, const xr_err *err,
                           const char *says)
{
    if (got != want || strcmp(err->text, says) != 0)
        fail_msg("%d, not %d: [%s], not [%s]", (int)got, (int)want, err->text,
                 says);
}

static xm_space *make_space(const fixture *f, uint64_t tokens, uint64_t rows,
                            uint32_t flags)
{
    xr_err err = { "" };
    xm_space *space = NULL;
    fixture_ok(xm_space_create(f->decoder, tokens, rows, 8, flags, "test", &err,
                               &space),
               &err);
    return space;
}

static void spaces_need_tokens_and_rows(void **state)
{
    (void)state;
    static const struct {
        uint64_t tokens;
        uint64_t rows;
        const char *says;
    } cases[] = {
        { 0, 1,
          "test: a space needs between 1 and 2^31 - 1 tokens and at "
          "least one row, got 0 and 1" },
        { 1, 0,
          "test: a space needs between 1 and 2^31 - 1 tokens and at "
          "least one row, got 1 and 0" },
        { UINT64_C(1) << 31, 1,
          "test: a space needs between 1 and 2^31 - 1 tokens and at least one "
          "row, got 2147483648 and 1" },
    };
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    for (size_t i = 0; i < 3; i++) {
        xr_err err = { "" };
        xm_space *space = NULL;
        assert_refused(xm_space_create(f.decoder, cases[i].tokens,
                                       cases[i].rows, 8, 0, "test", &err,
                                       &space),
                       XRAY_E_RANGE, &err, cases[i].says);
        assert_null(space);
    }
    xm_space_destroy(make_space(&f, 1, 1, 0));
    fixture_end(&f);
}

static void forward_passes_fit_their_space(void **state)
{
    (void)state;
    static const uint32_t lengths[] = { 6, 7 };
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    fixture_rows rows = fixture_rows_make(lengths, 2, 30, 1);
    xm_space *exact = make_space(&f, 13, 2, 0);
    xm_space *tokens = make_space(&f, 12, 2, 0);
    xm_space *one_row = make_space(&f, 13, 1, 0);
    fixture_ok(xm_forward(f.decoder, exact, &rows.pack, &err), &err);
    assert_refused(xm_forward(f.decoder, tokens, &rows.pack, &err),
                   XRAY_E_RANGE, &err,
                   "13 tokens in 2 rows do not fit a space of 12 tokens in 2 "
                   "rows");
    assert_refused(xm_forward(f.decoder, one_row, &rows.pack, &err),
                   XRAY_E_RANGE, &err,
                   "13 tokens in 2 rows do not fit a space of 13 tokens in 1 "
                   "rows");
    xm_decoder *few = NULL;
    fixture_ok(
        xm_decoder_create(&f.config, &f.weights->table, 7, "test", &err, &few),
        &err);
    fixture_ok(xm_forward(few, exact, &rows.pack, &err), &err);
    rows.pack.row_bound = 8;
    assert_refused(xm_forward(few, exact, &rows.pack, &err), XRAY_E_RANGE, &err,
                   "a row of 8 tokens is longer than the 7 positions of the "
                   "model");
    xm_decoder_destroy(few);
    xm_space_destroy(one_row);
    xm_space_destroy(tokens);
    xm_space_destroy(exact);
    fixture_rows_free(&rows);
    fixture_end(&f);
}

static void cached_passes_fit_their_space(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    xm_decoder *few = NULL;
    fixture_ok(
        xm_decoder_create(&f.config, &f.weights->table, 7, "test", &err, &few),
        &err);
    xm_space *space = make_space(&f, 4, 1, 0);
    xm_space *train = make_space(&f, 4, 1, XM_SPACE_TRAIN);
    const void *hidden = NULL;
    const struct {
        xm_decode_batch step;
        xm_space *space;
        xray_status want;
        const char *says;
    } cases[] = {
        { { .tokens = 0, .position_bound = 7 }, space, XRAY_OK, "" },
        { { .tokens = 5, .position_bound = 7 },
          space,
          XRAY_E_RANGE,
          "a batch of 5 tokens and 0 outputs does not fit a space of 4 "
          "tokens" },
        { { .tokens = 0, .last_count = 1, .position_bound = 7 },
          space,
          XRAY_E_RANGE,
          "a batch of 0 tokens and 1 outputs does not fit a space of 4 "
          "tokens" },
        { { .tokens = 0, .position_bound = 8 },
          space,
          XRAY_E_RANGE,
          "position 7 lies beyond the 7 positions of the model" },
        { { .tokens = 0, .position_bound = 7 },
          train,
          XRAY_E_ARG,
          "a pass with a KV cache needs a space that is not for training" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        err = (xr_err){ "" };
        assert_refused(
            xm_decode(few, cases[i].space, &cases[i].step, &hidden, &err),
            cases[i].want, &err, cases[i].says);
    }
    xm_space_destroy(train);
    xm_space_destroy(space);
    xm_decoder_destroy(few);
    fixture_end(&f);
}

/* A forward pass yields at most as many outputs as it has tokens; a pass with a
 * KV cache leaves none. */
static void outputs_belong_to_the_last_forward_pass(void **state)
{
    (void)state;
    static const uint32_t lengths[] = { 3 };
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    fixture_rows rows = fixture_rows_make(lengths, 1, 30, 1);
    static const int32_t all[4] = { 0, 1, 2, 2 };
    int32_t *index = fixture_alloc(&f.device, sizeof all);
    memcpy(index, all, sizeof all);
    xm_items items = { .count = 3, .index = index, .target = index };
    xm_space *space = make_space(&f, 4, 1, 0);
    xm_token_outputs out;
    fixture_ok(xm_forward(f.decoder, space, &rows.pack, &err), &err);
    fixture_ok(xm_outputs(f.decoder, space, &items, &out, &err), &err);
    assert_non_null(out.logp);
    assert_non_null(out.entropy);
    assert_null(out.value);
    items.count = 4;
    assert_refused(
        xm_outputs(f.decoder, space, &items, &out, &err), XRAY_E_STATE, &err,
        "outputs of 4 tokens were asked for, but the last forward pass kept 3");
    items.count = 1;
    xm_space_forget(space);
    assert_refused(
        xm_outputs(f.decoder, space, &items, &out, &err), XRAY_E_STATE, &err,
        "outputs of 1 tokens were asked for, but the last forward pass kept 0");
    fixture_ok(xm_forward(f.decoder, space, &rows.pack, &err), &err);
    const void *hidden = NULL;
    const xm_decode_batch none = { .tokens = 0, .position_bound = 1 };
    fixture_ok(xm_decode(f.decoder, space, &none, &hidden, &err), &err);
    assert_refused(
        xm_outputs(f.decoder, space, &items, &out, &err), XRAY_E_STATE, &err,
        "outputs of 1 tokens were asked for, but the last forward pass kept 0");
    /* A refused forward pass keeps nothing either. */
    fixture_ok(xm_forward(f.decoder, space, &rows.pack, &err), &err);
    rows.pack.row_bound = UINT64_C(1) << 40;
    assert_int_equal(xm_forward(f.decoder, space, &rows.pack, &err),
                     XRAY_E_RANGE);
    assert_int_equal(xm_outputs(f.decoder, space, &items, &out, &err),
                     XRAY_E_STATE);
    fixture_free(&f.device, index);
    xm_space_destroy(space);
    fixture_rows_free(&rows);
    fixture_end(&f);
}

static void each_forward_pass_allows_one_backward_pass(void **state)
{
    (void)state;
    static const uint32_t lengths[] = { 3, 2 };
    xr_err err = { "" };
    fixture f;
    fixture g;
    fixture_make(&f, &fixture_kinds[0], 5);
    fixture_make(&g, &fixture_kinds[0], 5);
    fixture_rows rows = fixture_rows_make(lengths, 2, 30, 1);
    fixture_rows one = fixture_rows_make(lengths, 1, 30, 1);
    xm_space *keeps = make_space(&f, 8, 2, XM_SPACE_TRAIN);
    xm_space *plain = make_space(&f, 8, 2, 0);
    xm_grads *grads = fixture_grads(&f);
    const float *d = xm_space_hidden(keeps);
    fixture_ok(xm_forward(f.decoder, plain, &rows.pack, &err), &err);
    assert_refused(
        xm_backward(f.decoder, plain, &rows.pack, d, grads, &err), XRAY_E_STATE,
        &err,
        "the space of this forward pass keeps nothing for a backward "
        "pass");
    const xm_items none = { .count = 0 };
    const xm_output_grads zero = { NULL, NULL, NULL };
    const float *dhidden = NULL;
    assert_refused(
        xm_outputs_backward(f.decoder, plain, &none, &zero, grads, &dhidden,
                            &err),
        XRAY_E_STATE, &err,
        "the space of this forward pass keeps nothing for a backward "
        "pass");
    fixture_ok(xm_forward(f.decoder, keeps, &rows.pack, &err), &err);
    assert_refused(xm_backward(f.decoder, keeps, &one.pack, d, grads, &err),
                   XRAY_E_STATE, &err,
                   "a backward pass of 3 tokens was asked for, but the last "
                   "forward pass kept 5 ("
                   "each backward pass uses them up)");
    fixture_ok(xm_backward(f.decoder, keeps, &rows.pack, d, grads, &err), &err);
    assert_refused(xm_backward(f.decoder, keeps, &rows.pack, d, grads, &err),
                   XRAY_E_STATE, &err,
                   "a backward pass of 5 tokens was asked for, but the last "
                   "forward pass kept 0 ("
                   "each backward pass uses them up)");
    /* Gradients of a model with another MLP size. */
    xm_config other = f.config;
    xm_layout *layout = NULL;
    xm_grads *wrong = NULL;
    other.ffn -= 2;
    fixture_ok(xm_layout_create(&other, 0, &err, &layout), &err);
    fixture_ok(xm_grads_create(&other, layout, f.device.ops, f.device.self,
                               "test", &err, &wrong),
               &err);
    fixture_ok(xm_forward(f.decoder, keeps, &rows.pack, &err), &err);
    assert_refused(xm_backward(f.decoder, keeps, &rows.pack, d, wrong, &err),
                   XRAY_E_ARG, &err,
                   "the gradients are laid out for another model");
    xm_grads_destroy(wrong);
    xm_layout_destroy(layout);
    xm_grads_destroy(grads);
    xm_space_destroy(plain);
    xm_space_destroy(keeps);
    fixture_rows_free(&one);
    fixture_rows_free(&rows);
    fixture_end(&g);
    fixture_end(&f);
}

/* ---- a device that refuses ---------------------------------------------- */

static int32_t calls_left; /* calls until one is refused; below 0: none is
                            * refused */
static int refused;        /* a call was refused */
static int later_calls;    /* calls after that one */

static void refuse_call(int32_t number)
{
    calls_left = number;
    refused = later_calls = 0;
}

static int should_refuse(void)
{
    later_calls += refused;
    if (calls_left < 0 || calls_left-- > 0)
        return 0;
    refused = 1;
    return 1;
}

static const xray_device_ops *cpu_ops; /* those of device-cpu */

#define OPERATORS(X)                       \
    X(matmul, xray_matmul)                 \
    X(matmul_grad, xray_matmul_grad)       \
    X(rmsnorm, xray_rmsnorm)               \
    X(rmsnorm_grad, xray_rmsnorm_grad)     \
    X(layernorm, xray_layernorm)           \
    X(layernorm_grad, xray_layernorm_grad) \
    X(gather, xray_rows)                   \
    X(scatter, xray_rows)                  \
    X(attention, xray_attention)           \
    X(attention_grad, xray_attention_grad) \
    X(lm_head_logp, xray_lm_head_logp)     \
    X(lm_head_grad, xray_lm_head_grad)     \
    X(rope, xray_rope)                     \
    X(glu, xray_glu)                       \
    X(glu_grad, xray_glu_grad)             \
    X(embedding, xray_embedding)           \
    X(embedding_grad, xray_embedding_grad) \
    X(axpby, xray_axpby)                   \
    X(cast, xray_cast)                     \
    X(copy_rows, xray_copy_rows)
#define WRAP(op, type)                                            \
    static xray_status fail_##op(void *self, xray_stream *stream, \
                                 const type *call)                \
    {                                                             \
        return should_refuse() ? XRAY_E_DEVICE                    \
                               : cpu_ops->op(self, stream, call); \
    }
OPERATORS(WRAP)

static xray_status fail_copy(void *self, xray_stream *stream, void *to,
                             const void *from, uint64_t bytes, uint32_t kind)
{
    return should_refuse() ? XRAY_E_DEVICE
                           : cpu_ops->copy(self, stream, to, from, bytes, kind);
}

static const xray_device_ops *wrap_refusing_device(const xray_device_ops *ops)
{
    static xray_device_ops made;
    cpu_ops = ops;
    made = *ops;
#define USE(op, type) made.op = fail_##op;
    OPERATORS(USE)
    made.copy = fail_copy;
    refuse_call(-1);
    return &made;
}

/* Runs forward pass, outputs and backward pass; returns the first error. */
static xray_status run_training_pass(const fixture *f, xm_space *space,
                                     const fixture_rows *rows,
                                     const fixture_items *items,
                                     xm_grads *grads, xr_err *err)
{
    xm_token_outputs out;
    const float *dhidden = NULL;
    const xm_output_grads back = { items->dlogp, items->dentropy, NULL };
    xray_status status = xm_forward(f->decoder, space, &rows->pack, err);
    if (status) /* nothing can be read of a pass that failed */
        assert_int_equal(
            xm_outputs(f->decoder, space, &items->items, &out, NULL),
            XRAY_E_STATE);
    else
        status = xm_outputs(f->decoder, space, &items->items, &out, err);
    if (!status)
        status = xm_outputs_backward(f->decoder, space, &items->items, &back,
                                     grads, &dhidden, err);
    if (!status)
        status =
            xm_backward(f->decoder, space, &rows->pack, dhidden, grads, err);
    return status;
}

/* Adds the layer that a message names, or "-", unless it was the last one. */
static void note_layer(char order[16], const char *text)
{
    size_t used = strlen(order);
    char layer = strncmp(text, "layer ", 6) == 0 ? text[6] : '-';
    if (used && order[used - 1] == layer)
        return;
    assert_true(used < 15);
    order[used] = layer;
    order[used + 1] = '\0';
}

/* The layers of a training pass, of which messages name those of blocks. */
static void list_layers(uint32_t layers, char out[16])
{
    size_t used = 0;
    out[used++] = '-';
    for (uint32_t i = 0; i < layers; i++)
        out[used++] = (char)('0' + i);
    out[used++] = '-';
    for (uint32_t i = layers; i-- > 0;)
        out[used++] = (char)('0' + i);
    out[used++] = '-';
    out[used] = '\0';
}

/* Has the device refuse each call of a training pass in turn. Writes the layers
 * that the messages name, and returns the number of calls. */
static int32_t refuse_each_call(const fixture_kind *kind, uint32_t flags,
                                char order[16])
{
    static const uint32_t lengths[] = { 3, 2 };
    xr_err err = { "" };
    fixture f;
    fixture_device device = fixture_open(1, "auto");
    device.ops = wrap_refusing_device(device.ops);
    fixture_make_on(&f, kind, 5, device);
    fixture_rows rows = fixture_rows_make(lengths, 2, 30, 1);
    fixture_items items = fixture_items_make(&rows, kind->value_head, 1);
    xm_space *space = make_space(&f, 8, 2, flags);
    xm_grads *grads = fixture_grads(&f);
    int32_t calls = 0;
    for (;; calls++) {
        refuse_call(calls);
        err = (xr_err){ "" };
        xray_status status =
            run_training_pass(&f, space, &rows, &items, grads, &err);
        if (!refused) {
            fixture_ok(status, &err);
            break;
        }
        if (status != XRAY_E_DEVICE || later_calls ||
            !strstr(err.text, "the device refused ") ||
            !strstr(err.text, "(-300)"))
            fail_msg("%s, call %d: status %d, %d calls after it: [%s]",
                     kind->name, (int)calls, (int)status, later_calls,
                     err.text);
        if (calls == 2 && kind == &fixture_kinds[0])
            assert_string_equal(
                err.text,
                "layer 0: the device refused a matrix product (-300)");
        note_layer(order, err.text);
    }
    xm_grads_destroy(grads);
    xm_space_destroy(space);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
    fixture_end(&f);
    return calls;
}

/* Whichever call the device refuses, the pass ends with that status and a
 * message that names the layer, nothing more is asked of the device, and the
 * next pass runs in full. */
static void every_refusal_of_the_device_ends_the_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * fixture_kind_count; i++) {
        const fixture_kind *kind = &fixture_kinds[i / 2];
        uint32_t flags = XM_SPACE_TRAIN | (i % 2 ? XM_SPACE_RECOMPUTE : 0);
        char order[16] = "";
        char want[16];
        list_layers(kind->config.layers, want);
        assert_in_range(refuse_each_call(kind, flags, order), 40, 1000);
        assert_string_equal(order, want);
    }
}

/* The first part of a prompt needs no output, but its errors must be reported.
 */
static void cached_passes_without_outputs_report_errors(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_device device = fixture_open(1, "auto");
    device.ops = wrap_refusing_device(device.ops);
    fixture_make_on(&f, &fixture_kinds[0], 5, device);
    xm_space *space = make_space(&f, 4, 1, 0);
    const xm_decode_batch step = { .tokens = 1, .position_bound = 1 };
    const void *hidden = NULL;
    refuse_call(0);
    assert_int_equal(xm_decode(f.decoder, space, &step, &hidden, &err),
                     XRAY_E_DEVICE);
    assert_string_equal(err.text, "the device refused the embedding (-300)");
    xm_space_destroy(space);
    fixture_end(&f);
}

/* ---- tables ------------------------------------------------------------- */

/* Imports an edited table of `f` into the weights of `g`. */
static void import_edited(const fixture *f, const fixture *g, uint32_t edit,
                          xray_status want, const char *says)
{
    xr_err err = { "" };
    uint32_t count = f->layout->param_count;
    xray_tensor *tensors = calloc(count, sizeof *tensors);
    assert_non_null(tensors);
    memcpy(tensors, f->weights->tensors, count * sizeof *tensors);
    xray_tensor *norm = &tensors[count - 1];
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, "model.norm.weight") == 0)
            norm = &tensors[i];
    if (edit == 0)
        norm->name = "model.norm.none";
    if (edit == 1)
        norm->shape[0]++;
    if (edit == 2)
        norm->extent[0]--;
    if (edit == 3)
        norm->dtype = XRAY_BF16;
    if (edit == 4)
        norm->data = NULL;
    if (edit == 5)
        norm->lo[0] = norm->extent[0] - 1, norm->extent[0] = 1;
    if (edit == 6)
        norm->dims = 2;
    xray_weights table = f->weights->table;
    table.tensors = tensors;
    assert_refused(xm_weights_import(g->weights, &table, &err), want, &err,
                   says);
    free(tensors);
}

static void incomplete_tables_are_refused_before_the_import(void **state)
{
    (void)state;
    fixture f;
    fixture g;
    fixture_make(&f, &fixture_kinds[0], 5);
    fixture_make(&g, &fixture_kinds[0], 6);
    char says[256];
    float before = g.weights->buckets[0][0];
    import_edited(&f, &g, 0, XRAY_E_CONFIG,
                  "tensor model.norm.weight is not among the published "
                  "weights");
    (void)snprintf(says, sizeof says,
                   "published weights: tensor model.norm.weight has shape "
                   "[%u], the model's config says [%u]",
                   f.config.hidden + 1, f.config.hidden);
    import_edited(&f, &g, 1, XRAY_E_CONFIG, says);
    import_edited(&f, &g, 2, XRAY_E_UNSUPPORTED,
                  "model.norm.weight: only all of it in one piece can be "
                  "imported from another device");
    (void)snprintf(
        says, sizeof says,
        "tensor model.norm.weight: its published element type is %u, "
        "expected fp32 (or bf16 for a matrix)",
        XRAY_BF16);
    import_edited(&f, &g, 3, XRAY_E_UNSUPPORTED, says);
    (void)snprintf(
        says, sizeof says,
        "tensor model.norm.weight: its published element type is %u, "
        "expected fp32 (or bf16 for a matrix)",
        XRAY_F32);
    import_edited(&f, &g, 4, XRAY_E_UNSUPPORTED, says);
    import_edited(&f, &g, 5, XRAY_E_UNSUPPORTED,
                  "model.norm.weight: only all of it in one piece can be "
                  "imported from another device");
    (void)snprintf(says, sizeof says,
                   "published weights: tensor model.norm.weight has shape "
                   "[%u, 0], the model's config says [%u]",
                   f.config.hidden, f.config.hidden);
    import_edited(&f, &g, 6, XRAY_E_CONFIG, says);
    /* No value was imported from any of them. */
    assert_true(g.weights->buckets[0][0] == before);
    fixture_end(&g);
    fixture_end(&f);
}

static void weights_with_readers_do_not_change(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    const xray_weights *table = &f.weights->table;
    fixture_ok(table->lease(table->owner), NULL);
    assert_refused(xm_weights_random(f.weights, &f.config, 1, &err),
                   XRAY_E_STATE, &err,
                   "the weights cannot change while 1 reader holds them");
    assert_refused(xm_weights_changed(f.weights, 1, &err), XRAY_E_STATE, &err,
                   "the weights changed while 1 lease held them: readers must "
                   "finish first");
    fixture_ok(table->lease(table->owner), NULL);
    assert_refused(xm_weights_import(f.weights, table, &err), XRAY_E_STATE,
                   &err, "the weights cannot change while 2 readers hold them");
    assert_refused(xm_weights_load(f.weights, "no folder", &err), XRAY_E_STATE,
                   &err, "the weights cannot change while 2 readers hold them");
    assert_refused(xm_weights_changed(f.weights, 1, &err), XRAY_E_STATE, &err,
                   "the weights changed while 2 leases held them: readers must "
                   "finish first");
    table->release(table->owner);
    assert_int_equal(xm_weights_changed(f.weights, 1, &err), XRAY_E_STATE);
    table->release(table->owner);
    table->release(table->owner); /* a release too many does no harm */
    fixture_ok(xm_weights_changed(f.weights, 7, &err), &err);
    assert_int_equal(table->version(table->owner), 7);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spaces_need_tokens_and_rows),
        cmocka_unit_test(forward_passes_fit_their_space),
        cmocka_unit_test(cached_passes_fit_their_space),
        cmocka_unit_test(outputs_belong_to_the_last_forward_pass),
        cmocka_unit_test(each_forward_pass_allows_one_backward_pass),
        cmocka_unit_test(every_refusal_of_the_device_ends_the_pass),
        cmocka_unit_test(cached_passes_without_outputs_report_errors),
        cmocka_unit_test(incomplete_tables_are_refused_before_the_import),
        cmocka_unit_test(weights_with_readers_do_not_change),
    };
    return cmocka_run_group_tests_name("nn.refused", tests, NULL, NULL);
}
