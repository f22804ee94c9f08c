/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that whichever call a device refuses while weights are created,
 * filled, saved, imported, evicted or restored, or a space for activations is,
 * that refusal is what the caller is told: nothing more is asked of the device,
 * the version stays, and what could not be created leaves no memory or handle.
 */
#include "model/hf/safetensors.h"
#include "model/nn/weights.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"

static const xray_device_ops *cpu_ops; /* those of device-cpu */
static int32_t calls_left; /* calls until one is refused; below 0: none is */
static int refused;        /* a call was refused */
static int later_calls;    /* calls after that one */
static int host_memory;    /* what the device says of its memory */
static int held;           /* blocks of memory and handles that exist */

static int should_refuse(void)
{
    later_calls += refused;
    if (refused || calls_left < 0 || calls_left-- > 0)
        return 0;
    refused = 1;
    return 1;
}

#define REFUSABLE(op, params, args)                                \
    static xray_status try_##op params                             \
    {                                                              \
        return should_refuse() ? XRAY_E_DEVICE : cpu_ops->op args; \
    }
REFUSABLE(copy,
          (void *self, xray_stream *stream, void *to, const void *from,
           uint64_t bytes, uint32_t kind),
          (self, stream, to, from, bytes, kind))
REFUSABLE(sync, (void *self, xray_stream *stream), (self, stream))
REFUSABLE(cast, (void *self, xray_stream *stream, const xray_cast *call),
          (self, stream, call))
REFUSABLE(weight_changed, (void *self, xray_weight *weight), (self, weight))
REFUSABLE(weight_evict, (void *self, xray_weight *weight), (self, weight))
REFUSABLE(evict, (void *self, void *ptr), (self, ptr))
REFUSABLE(restore, (void *self, void *ptr), (self, ptr))

static xray_status try_info(void *self, xray_device_info *info)
{
    xray_status status =
        should_refuse() ? XRAY_E_DEVICE : cpu_ops->info(self, info);
    info->host_memory = host_memory != 0;
    return status;
}

static xray_status try_alloc(void *self, const char *owner, uint32_t tag,
                             uint64_t bytes, void **out)
{
    xray_status status = should_refuse()
                             ? XRAY_E_DEVICE
                             : cpu_ops->alloc(self, owner, tag, bytes, out);
    held += status == XRAY_OK;
    return status;
}

static void count_free(void *self, void *ptr)
{
    held -= ptr != NULL;
    cpu_ops->free(self, ptr);
}

static xray_status try_weight_create(void *self, const xray_weight_desc *desc,
                                     xray_weight **out)
{
    xray_status status = should_refuse()
                             ? XRAY_E_DEVICE
                             : cpu_ops->weight_create(self, desc, out);
    held += status == XRAY_OK;
    return status;
}

static void count_weight_destroy(void *self, xray_weight *weight)
{
    held--;
    cpu_ops->weight_destroy(self, weight);
}

static fixture_device open_refusing_device(void)
{
    static xray_device_ops made;
    fixture_device device = fixture_open(1, "auto");
    cpu_ops = device.ops;
    made = *cpu_ops;
    made.info = try_info;
    made.alloc = try_alloc;
    made.free = count_free;
    made.copy = try_copy;
    made.sync = try_sync;
    made.cast = try_cast;
    made.weight_create = try_weight_create;
    made.weight_destroy = count_weight_destroy;
    made.weight_changed = try_weight_changed;
    made.weight_evict = try_weight_evict;
    made.evict = try_evict;
    made.restore = try_restore;
    device.ops = &made;
    return device;
}

/* The models of a case: `mine` is filled, `here` is on the same device and
 * `there` on another one. */
typedef struct models {
    fixture mine;
    xm_weights *here;
    fixture there;
    uint32_t flags; /* of spaces */
} models;

typedef xray_status (*operation)(models *m, xr_err *err);

static void open_models(models *m, int flags)
{
    xr_err err = { "" };
    calls_left = -1;
    refused = 0;
    host_memory = 1;
    fixture_make_on(&m->mine, &fixture_kinds[0], 5, open_refusing_device());
    fixture_make_on(&m->there, &fixture_kinds[0], 6, open_refusing_device());
    fixture_ok(xm_weights_create(m->mine.layout, m->mine.device.ops,
                                 m->mine.device.self, "test", flags, &err,
                                 &m->here),
               &err);
    fixture_ok(xm_weights_save(m->there.weights, scratch_dir(),
                               XM_ST_SHARD_BYTES, &err),
               &err);
}

static void close_models(models *m)
{
    xm_weights_destroy(m->here);
    fixture_end(&m->there);
    fixture_end(&m->mine);
}

/* Refuses the first call of the operation, then the second and so on, until
 * none is left. */
static void refuse_each_call(models *m, operation run, int32_t at_least)
{
    int32_t calls = 0;
    int before = held;
    for (;; calls++) {
        xr_err err = { "" };
        calls_left = calls;
        refused = later_calls = 0;
        uint64_t version = m->here->version;
        xray_status status = run(m, &err);
        if (!refused) {
            fixture_ok(status, &err);
            break;
        }
        if (status != XRAY_E_DEVICE || later_calls || held != before)
            fail_msg("call %d: status %d, %d calls after it, %d of %d blocks",
                     (int)calls, (int)status, later_calls, held, before);
        assert_int_equal(m->here->version, version);
    }
    calls_left = -1;
    if (calls < at_least)
        fail_msg("only %d calls", (int)calls);
}

static xray_status create_and_destroy(models *m, xr_err *err)
{
    xm_weights *made = NULL;
    xray_status status =
        xm_weights_create(m->mine.layout, m->mine.device.ops,
                          m->mine.device.self, "test", 0, err, &made);
    if (status != XRAY_OK)
        assert_non_null(strstr(err->text, "device"));
    xm_weights_destroy(made);
    return status;
}

static xray_status load_files(models *m, xr_err *err)
{
    xray_status status = xm_weights_load(m->here, scratch_dir(), err);
    assert_int_equal(status != XRAY_OK, err->text[0] != '\0');
    return status;
}

static xray_status save_files(models *m, xr_err *err)
{
    xray_status status =
        xm_weights_save(m->here, scratch_dir(), XM_ST_SHARD_BYTES, err);
    assert_int_equal(status != XRAY_OK, err->text[0] != '\0');
    return status;
}

static xray_status import_from(models *m, xm_weights *from, xr_err *err)
{
    from->version = m->here->version + 1;
    xray_status status = xm_weights_import(m->here, &from->table, err);
    assert_int_equal(status != XRAY_OK, err->text[0] != '\0');
    return status;
}

static xray_status import_from_here(models *m, xr_err *err)
{
    return import_from(m, m->mine.weights, err);
}

static xray_status import_from_there(models *m, xr_err *err)
{
    return import_from(m, m->there.weights, err);
}

static xray_status import_part(models *m, xr_err *err)
{
    uint64_t *came = calloc(m->mine.layout->param_count, sizeof(*came));
    assert_non_null(came);
    xray_status status =
        xm_weights_import_part(m->here, &m->mine.weights->table, came, err);
    free(came);
    return status;
}

/* A space, and one beside it, that are evicted and restored. */
static xray_status use_spaces(models *m, xr_err *err)
{
    xm_space *first = NULL;
    xm_space *second = NULL;
    xray_status status = xm_space_create(m->mine.decoder, 16, 2, 8, m->flags,
                                         "test", err, &first);
    assert_int_equal(status == XRAY_OK, first != NULL);
    if (status == XRAY_OK)
        status = xm_space_create_beside(m->mine.decoder, first, "test", err,
                                        &second);
    assert_int_equal(status == XRAY_OK, second != NULL);
    if (status == XRAY_OK)
        status = xm_space_evict(first);
    if (status == XRAY_OK)
        status = xm_space_restore(first);
    xm_space_destroy(second);
    xm_space_destroy(first);
    return status;
}

static xray_status evict_all(models *m, xr_err *err)
{
    (void)err;
    return xm_weights_evict(m->here);
}

static xray_status restore_all(models *m, xr_err *err)
{
    (void)err;
    return xm_weights_restore(m->here);
}

static void weights_not_created_leave_nothing(void **state)
{
    (void)state;
    models m;
    open_models(&m, 0);
    refuse_each_call(&m, create_and_destroy, 10);
    close_models(&m);
}

static void refusals_end_a_load(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        models m;
        open_models(&m, i & 1 ? XM_WEIGHTS_BF16 : 0);
        host_memory = i < 2;
        refuse_each_call(&m, load_files, 5);
        close_models(&m);
    }
}

static void refusals_end_a_save(void **state)
{
    (void)state;
    models m;
    open_models(&m, 0);
    refuse_each_call(&m, save_files, 2);
    host_memory = 0;
    refuse_each_call(&m, save_files, 20);
    close_models(&m);
}

static void refusals_end_an_import(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        models m;
        open_models(&m, i ? XM_WEIGHTS_BF16 : 0);
        refuse_each_call(&m, import_from_here, 20);
        refuse_each_call(&m, import_part, 20);
        refuse_each_call(&m, import_from_there, 20);
        host_memory = 0;
        refuse_each_call(&m, import_from_there, 20);
        close_models(&m);
    }
}

static void refusals_end_an_eviction(void **state)
{
    (void)state;
    models m;
    open_models(&m, 0);
    refuse_each_call(&m, evict_all, 10);
    refuse_each_call(&m, restore_all, 4);
    close_models(&m);
}

static void refusals_end_a_space(void **state)
{
    (void)state;
    models m;
    open_models(&m, 0);
    m.flags = 0;
    refuse_each_call(&m, use_spaces, 5);
    m.flags = XM_SPACE_TRAIN;
    refuse_each_call(&m, use_spaces, 5);
    close_models(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_not_created_leave_nothing),
        cmocka_unit_test(refusals_end_a_load),
        cmocka_unit_test(refusals_end_a_save),
        cmocka_unit_test(refusals_end_an_import),
        cmocka_unit_test(refusals_end_an_eviction),
        cmocka_unit_test(refusals_end_a_space),
    };
    return cmocka_run_group_tests_name("nn.device_refuses", tests, scratch_make,
                                       scratch_drop);
}
