/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests an instance in each of its states: exports that begin and end, weights
 * under a lease, and offloaded memory, which every call that needs it must
 * name.
 */
#include "tests/scratch.h"
#include "tests/train/rig.h"
#include "tests/train/rows.h"

static const xray_device_ops *cpu;

/* ---- export ------------------------------------------------------------- */

static uint32_t take_parts(const rig *r, uint32_t *out_tensors)
{
    const xray_weights *part = NULL;
    uint32_t parts = 0;
    *out_tensors = 0;
    while (r->ops->export_next(r->self, &part) == XRAY_OK) {
        parts++;
        assert_int_equal(part->offloaded, 0); /* it can be copied from */
        *out_tensors += part->tensor_count;
    }
    assert_int_equal(r->ops->export_next(r->self, &part), XRAY_END);
    return parts;
}

static void exports_begin_and_end(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    for (uint32_t offload = 0; offload < 2; offload++) {
        rig_spec spec = { .offload_param = offload };
        const xray_weights *part = NULL;
        uint32_t whole = offload ? 4 : 1; /* embedding, two blocks, head */
        uint32_t tensors = 0;
        rig r;
        assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
        assert_int_equal(rig_debug(&r)->header.size, sizeof(xray_train_debug));
        assert_null(r.ops->extension(r.self, "xray.another/0"));
        const xray_weights *own = r.ops->weights(r.self);
        uint32_t count = own->tensor_count;
        assert_int_equal(own->offloaded, offload);
        assert_int_equal(r.ops->export_next(r.self, &part), XRAY_E_STATE);
        assert_string_equal(rig_error(),
                            "train.zero3/actor: no export has begun");
        for (int again = 0; again < 2; again++) {
            assert_int_equal(r.ops->export_begin(r.self), XRAY_OK);
            assert_int_equal(take_parts(&r, &tensors), whole);
            assert_int_equal(tensors, count);
            r.ops->export_end(r.self);
        }
        /* An export that begins after the first part of another one begins at
         * the start; a refused call changes nothing. */
        assert_int_equal(r.ops->export_begin(r.self), XRAY_OK);
        assert_int_equal(r.ops->export_next(r.self, &part), XRAY_OK);
        assert_int_equal(r.ops->export_begin(r.self), XRAY_E_STATE);
        assert_string_equal(rig_error(),
                            "train.zero3/actor: an export has begun already");
        assert_int_equal(take_parts(&r, &tensors), whole - 1);
        r.ops->export_end(r.self);
        assert_int_equal(r.ops->export_next(r.self, &part), XRAY_E_STATE);
        assert_int_equal(r.ops->offload(r.self, XRAY_TAG_WEIGHTS), XRAY_OK);
        assert_int_equal(r.ops->export_begin(r.self), XRAY_E_STATE);
        assert_int_equal(r.ops->onload(r.self, XRAY_TAG_WEIGHTS), XRAY_OK);
        assert_int_equal(r.ops->export_begin(r.self), XRAY_OK);
        assert_int_equal(take_parts(&r, &tensors), whole);
        r.ops->export_end(r.self);
        rig_close(&r);
    }
    rig_device_close(&device);
}

/* A part can be leased: no update is allowed until the lease is released. */
static void part_under_lease_blocks_the_update(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .offload_param = 1 };
    const xray_weights *part = NULL;
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    assert_int_equal(r.ops->export_begin(r.self), XRAY_OK);
    assert_int_equal(r.ops->export_next(r.self, &part), XRAY_OK);
    assert_int_equal(part->version(part->owner), 0);
    assert_int_equal(part->lease(part->owner), XRAY_OK);
    assert_int_equal(part->lease(part->owner), XRAY_OK);
    part->release(part->owner);
    r.ops->export_end(r.self);
    assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &result),
                     XRAY_E_STATE);
    assert_string_equal(rig_error(),
                        "the weights of train.zero3/actor are held by 1 "
                        "lease(s): an update must wait for the engine");
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_WEIGHTS), XRAY_E_STATE);
    assert_string_equal(rig_error(),
                        "the weights of train.zero3/actor are held by 1 "
                        "lease(s) and cannot be offloaded");
    part->release(part->owner);
    part->release(part->owner); /* one release too many */
    assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &result), XRAY_OK);
    assert_int_equal(part->version(part->owner), 1);
    rig_close(&r);
    rig_device_close(&device);
}

/* ---- messages
 * ------------------------------------------------------------- */

static void messages_name_the_role(void **state)
{
    (void)state;
    static const struct {
        uint32_t role;
        const char *name;
    } roles[] = {
        { XRAY_ROLE_ACTOR, "actor" },   { XRAY_ROLE_REFERENCE, "reference" },
        { XRAY_ROLE_CRITIC, "critic" }, { XRAY_ROLE_ROLLOUT, "rollout" },
        { XRAY_ROLE_REWARD, "reward" }, { 99, "model" }
    };
    rig_device device = rig_device_open(1);
    const rig_spec spec = { .frozen = 1 };
    rig_request request = rig_request_of(&spec);
    const xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++) {
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        char want[128];
        rig r;
        const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                                   .host = rig_host(),
                                   .device = device.ops,
                                   .device_self = device.self,
                                   .model = &request.model,
                                   .world = &world,
                                   .role = roles[i].role };
        r.ops = rig_component()->ops;
        assert_int_equal(
            r.ops->create(&setup, request.config, &request.load, &r.self),
            XRAY_OK);
        assert_int_equal(r.ops->optimizer_step(r.self, 1e-3, 1, &result),
                         XRAY_E_STATE);
        (void)snprintf(
            want, sizeof(want),
            "train.zero3/%s was created for forward passes only, so it has no "
            "optimizer",
            roles[i].name);
        assert_string_equal(rig_error(), want);
        assert_null(rig_debug(&r)->gradients(r.self));
        rig_close(&r);
    }
    rig_request_free(&request);
    rig_device_close(&device);
}

/* Every call that needs an offloaded tag names that tag. */
static void offloaded_tags_are_named_by_every_call(void **state)
{
    (void)state;
    static const struct {
        uint32_t tag;
        const char *name;
        const char *needs; /* f forward, b backward, s step, w save, l load,
                            * i import, d discard */
    } cases[] = { { XRAY_TAG_WEIGHTS, "weights", "fbswli" },
                  { XRAY_TAG_GRADS, "gradients", "bsld" },
                  { XRAY_TAG_OPTIMIZER, "moments", "swl" },
                  { XRAY_TAG_ACTIVATIONS, "activations", "fb" } };
    static const char calls[] = "fbswlid";
    static const char *const names[] = { "forward",        "forward_backward",
                                         "optimizer_step", "save",
                                         "load",           "import",
                                         "discard" };
    static rows batch;
    static float logp[64];
    rig_device device = rig_device_open(1);
    rig_spec spec = { 0 };
    rig r;
    rig other;
    rows_loss ctx = { 0 };
    rows_full(&batch, 4, 16, 40);
    assert_int_equal(rig_open(&device, &spec, &other), XRAY_OK);
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    assert_int_equal(r.ops->save(r.self, scratch_dir()), XRAY_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char want[128];
        (void)snprintf(want, sizeof(want),
                       "train.zero3/actor: the %s are offloaded; onload them "
                       "first",
                       cases[i].name);
        assert_int_equal(r.ops->offload(r.self, XRAY_TAG_KV),
                         XRAY_E_UNSUPPORTED);
        assert_string_equal(rig_where(), "offload");
        assert_int_equal(r.ops->onload(r.self, XRAY_TAG_KV),
                         XRAY_E_UNSUPPORTED);
        assert_string_equal(rig_where(), "onload");
        for (const char *call = calls; *call; call++) {
            xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                                 .logp = logp };
            xray_step_result result = { .header =
                                            XRAY_HEADER(xray_step_result) };
            const xray_loss loss = rows_loss_of(&ctx, &batch);
            assert_int_equal(r.ops->offload(r.self, cases[i].tag), XRAY_OK);
            rig_clear();
            xray_status status =
                *call == 'f' ? forward_one(r.ops, r.self, &batch.batch,
                                           XRAY_OUTPUT_LOGP, &out)
                : *call == 'b'
                    ? r.ops->forward_backward(r.self, batch.pointers, 1, &loss)
                : *call == 's' ? r.ops->optimizer_step(r.self, 1e-3, 1, &result)
                : *call == 'w' ? r.ops->save(r.self, scratch_dir())
                : *call == 'l' ? r.ops->load(r.self, scratch_dir())
                : *call == 'i' ? rig_debug(&r)->import(
                                     r.self, other.ops->weights(other.self))
                               : r.ops->discard(r.self);
            int needed = strchr(cases[i].needs, *call) != NULL;
            if (status != (needed ? XRAY_E_STATE : XRAY_OK))
                fail_msg("%c without %s: %d", *call, cases[i].name, status);
            assert_string_equal(rig_error(), needed ? want : "");
            assert_string_equal(rig_where(), needed ? names[call - calls] : "");
            assert_int_equal(r.ops->onload(r.self, cases[i].tag), XRAY_OK);
        }
    }
    /* Onloading one tag leaves the others offloaded. */
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS), XRAY_OK);
    assert_int_equal(r.ops->offload(r.self, XRAY_TAG_OPTIMIZER), XRAY_OK);
    assert_int_equal(r.ops->onload(r.self, XRAY_TAG_GRADS), XRAY_OK);
    assert_int_equal(r.ops->discard(r.self), XRAY_OK);
    assert_int_equal(r.ops->save(r.self, scratch_dir()), XRAY_E_STATE);
    rig_close(&r);
    rig_close(&other);
    rig_device_close(&device);
}

/* Gradients of a tied embedding's look-ups, which are still separate from the
 * sums, survive an offload as well. */
static void unfinished_gradients_survive_an_offload(void **state)
{
    (void)state;
    static rows batch;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .config_json = rig_tiny_tied };
    rig r[2];
    rows_draw(&batch, 6, 20, 37, 5);
    for (int away = 0; away < 2; away++) {
        rows_loss ctx = { 0 };
        const xray_loss loss = rows_loss_of(&ctx, &batch);
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        assert_int_equal(rig_open(&device, &spec, &r[away]), XRAY_OK);
        assert_int_equal(r[away].ops->forward_backward(
                             r[away].self, batch.pointers, 1, &loss),
                         XRAY_OK);
        if (away) {
            assert_int_equal(r[1].ops->offload(r[1].self, XRAY_TAG_GRADS),
                             XRAY_OK);
            assert_int_equal(r[1].ops->onload(r[1].self, XRAY_TAG_GRADS),
                             XRAY_OK);
        }
        assert_int_equal(
            r[away].ops->optimizer_step(r[away].self, 1e-2, 1, &result),
            XRAY_OK);
    }
    rig_same_weights(&r[0], &r[1]);
    rig_close(&r[0]);
    rig_close(&r[1]);
    rig_device_close(&device);
}

static const char tiny_tied[] =
    "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":32,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"intermediate_size\":56,\"vocab_size\":40,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"tie_word_embeddings\":true}";

/* A folder without an LM head serves a model of which only values are
 * requested. */
static void folder_without_head(void **state)
{
    (void)state;
    static const struct {
        uint32_t outputs;
        xray_status status;
    } cases[] = { { XRAY_OUTPUT_VALUE, XRAY_OK },
                  { XRAY_OUTPUT_LOGP, XRAY_E_CONFIG },
                  { XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE, XRAY_E_CONFIG } };
    rig_device device = rig_device_open(1);
    rig_spec spec = { .config_json = tiny_tied };
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    assert_int_equal(r.ops->save(r.self, scratch_dir()), XRAY_OK);
    rig_close(&r);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        spec = (rig_spec){ .path = scratch_dir(),
                           .config_json = rig_tiny,
                           .outputs = cases[i].outputs };
        assert_int_equal(rig_open(&device, &spec, &r), cases[i].status);
        if (cases[i].status == XRAY_OK)
            rig_close(&r);
        else
            assert_non_null(
                strstr(rig_error(), "tensor lm_head.weight is missing"));
    }
    rig_device_close(&device);
}

static xray_status report_device_memory(void *self, xray_device_info *info)
{
    xray_status status = cpu->info(self, info);
    info->host_memory = 0;
    return status;
}

static void train_steps(const rig *r, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        rows batch;
        rows_loss ctx = { .entropy_weight = 0.01 };
        rows_draw(&batch, 9, 24, 37, i);
        xray_loss loss = rows_loss_of(&ctx, &batch);
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        assert_int_equal(
            r->ops->forward_backward(r->self, batch.pointers, 1, &loss),
            XRAY_OK);
        assert_int_equal(r->ops->optimizer_step(r->self, 5e-3, 1, &result),
                         XRAY_OK);
    }
}

/* A device that does not compute in host memory takes moments from there piece
 * by piece; it cannot take weights. */
static void offloading_on_a_device_apart(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    cpu = device.ops;
    xray_device_ops ops = *cpu;
    ops.info = report_device_memory;
    const rig_device apart = { .ops = &ops, .self = device.self };
    rig_spec spec = { .offload_param = 1 };
    rig near;
    rig streamed;
    assert_int_equal(rig_open(&apart, &spec, &streamed), XRAY_E_CONFIG);
    assert_non_null(strstr(rig_error(),
                           "offload_param = host needs a device that computes "
                           "in host memory, as cpu does"));
    spec = (rig_spec){ 0 };
    assert_int_equal(rig_open(&device, &spec, &near), XRAY_OK);
    spec.offload_optimizer = 1;
    assert_int_equal(rig_open(&apart, &spec, &streamed), XRAY_OK);
    train_steps(&near, 3);
    train_steps(&streamed, 3);
    rig_same_weights(&near, &streamed);
    rig_close(&near);
    rig_close(&streamed);
    rig_device_close(&device);
}

/* Such a device copies offloaded tags from and to page-locked memory, which it
 * keeps for the next time and gives back at the end. */
static void turns_on_a_device_apart(void **state)
{
    (void)state;
    static const uint32_t tags[] = { XRAY_TAG_WEIGHTS, XRAY_TAG_GRADS,
                                     XRAY_TAG_OPTIMIZER, XRAY_TAG_ACTIVATIONS };
    rig_device device = rig_device_open(1);
    cpu = device.ops;
    xray_device_ops ops = *cpu;
    ops.info = report_device_memory;
    const rig_device apart = { .ops = &ops, .self = device.self };
    const rig_spec spec = { 0 };
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    uint64_t taken[3];
    uint64_t moments;
    rig near;
    rig turns;
    assert_int_equal(rig_open(&device, &spec, &near), XRAY_OK);
    assert_int_equal(cpu->memory(device.self, &stats), XRAY_OK);
    moments = stats.live[XRAY_TAG_OPTIMIZER];
    assert_int_equal(rig_open(&apart, &spec, &turns), XRAY_OK);
    assert_int_equal(cpu->memory(device.self, &stats), XRAY_OK);
    assert_int_equal(stats.live[XRAY_TAG_OPTIMIZER], 2 * moments);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(cpu->memory(device.self, &stats), XRAY_OK);
        taken[round] = stats.host_live;
        train_steps(&near, 1);
        train_steps(&turns, 1);
        for (size_t t = 0; t < 4; t++)
            assert_int_equal(turns.ops->offload(turns.self, tags[t]), XRAY_OK);
        for (size_t t = 0; t < 4; t++)
            assert_int_equal(turns.ops->onload(turns.self, tags[t]), XRAY_OK);
    }
    assert_true(taken[1] > taken[0]);
    assert_int_equal(taken[2], taken[1]);
    rig_same_weights(&near, &turns);
    rig_close(&near);
    rig_close(&turns);
    assert_int_equal(cpu->memory(device.self, &stats), XRAY_OK);
    assert_int_equal(stats.host_live, 0);
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exports_begin_and_end),
        cmocka_unit_test(part_under_lease_blocks_the_update),
        cmocka_unit_test(messages_name_the_role),
        cmocka_unit_test(offloaded_tags_are_named_by_every_call),
        cmocka_unit_test(unfinished_gradients_survive_an_offload),
        cmocka_unit_test(folder_without_head),
        cmocka_unit_test(offloading_on_a_device_apart),
        cmocka_unit_test(turns_on_a_device_apart),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
