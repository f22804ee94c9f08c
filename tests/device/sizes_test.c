/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that what a device says without an instance is what an instance takes:
 * packed copies of matrices, blocks of a cache, and scratch memory.
 */
#include "tests/device/bench.h"

enum { VOCAB = 90000 }; /* the largest */
enum { TOKENS = TEST_STEP > 1 ? 1300 : 2500 };

/* A device with its options, whose memory the host can access. */
typedef struct kind {
    const char *name;
    const xray_device_ops *ops;
    const void *config;
    uint32_t threads;
    uint32_t tokens; /* of a row; large ones are slow on the emulator, */
    uint32_t vocab;  /* and so are large vocabularies */
    uint32_t dtype;  /* of activations and caches */
    int on_cuda;
} kind;

#define MOST_KINDS 5

static const cpu_config narrow_cpu = { .isa = CPU_ISA_AVX2 };
#ifdef BENCH_CUDA
static const cuda_config float32 = { .precision = CUDA_FLOAT32 };
static const cuda_config bfloat16 = { .precision = CUDA_BFLOAT16 };
#endif

static size_t list_kinds(kind kinds[MOST_KINDS])
{
    const xray_device_ops *cpu = device_ops();
    kinds[0] = (kind){ "cpu", cpu, NULL, 1, TOKENS, VOCAB, 0, 0 };
    kinds[1] =
        (kind){ "avx2", cpu, &narrow_cpu, 2, TOKENS, VOCAB, XRAY_BF16, 0 };
#ifdef BENCH_CUDA
    const xray_device_ops *cuda =
        xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
    kinds[2] =
        (kind){ "cuda float32", cuda, &float32, 1, 40, 6000, XRAY_BF16, 1 };
    kinds[3] =
        (kind){ "cuda bfloat16", cuda, &bfloat16, 1, 40, 6000, XRAY_F32, 1 };
    kinds[4] = kinds[3];
    kinds[4].dtype = XRAY_BF16;
    return 5;
#else
    return 2;
#endif
}

static void *open_kind(const kind *k)
{
    void *self = NULL;
    must(k->ops->create(&bench_host, k->config, k->threads, &self));
    return self;
}

static xray_memory_stats read_memory(const kind *k, void *self)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    must(k->ops->memory(self, &stats));
    return stats;
}

/* ---- matrices and blocks ------------------------------------------------ */

static void check_matrix(const kind *k, void *self, xray_weight_desc desc)
{
    _Alignas(64) static float data[40 * 50];
    xray_weight *w = NULL;
    uint64_t before = read_memory(k, self).live[XRAY_TAG_WEIGHTS];
    uint64_t planned = k->ops->plan_weight(k->config, &desc);
    desc.data = data;
    must(k->ops->weight_create(self, &desc, &w));
    uint64_t taken = read_memory(k, self).live[XRAY_TAG_WEIGHTS] - before;
    if (planned != taken)
        fail_msg("%s: %llu x %llu of type %u as %u for %u: planned %llu, taken "
                 "%llu",
                 k->name, (unsigned long long)desc.rows,
                 (unsigned long long)desc.cols, desc.dtype, desc.product_dtype,
                 desc.uses, (unsigned long long)planned,
                 (unsigned long long)taken);
    k->ops->weight_destroy(self, w);
}

static void packed_copies_are_planned(void **state)
{
    (void)state;
    static const uint64_t shapes[][2] = {
        { 1, 1 }, { 16, 16 }, { 40, 50 }, { 33, 8 }, { 7, 48 }
    };
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        void *self = open_kind(&kinds[i]);
        for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
            for (uint32_t dtype = XRAY_F32; dtype <= XRAY_F16; dtype++)
                for (uint32_t n = 2; n < 16; n++)
                    check_matrix(&kinds[i], self,
                                 (xray_weight_desc){
                                     .header = XRAY_HEADER(xray_weight_desc),
                                     .rows = shapes[s][0],
                                     .cols = shapes[s][1],
                                     .dtype = dtype,
                                     .uses = n / 2,
                                     .product_dtype = n % 2 ? XRAY_BF16 : 0 });
        kinds[i].ops->destroy(self);
    }
}

static void what_would_be_refused_has_no_size(void **state)
{
    (void)state;
    const xray_weight_desc good = { .header = XRAY_HEADER(xray_weight_desc),
                                    .rows = 40,
                                    .cols = 50,
                                    .dtype = XRAY_F32,
                                    .uses = XRAY_USE_NT };
    const xray_kv block = { .header = XRAY_HEADER(xray_kv),
                            .block_tokens = 16,
                            .kv_heads = 2,
                            .head_dim = 8,
                            .dtype = XRAY_F32 };
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        const kind *k = &kinds[i];
        for (int bad = 0; bad < 6; bad++) {
            xray_weight_desc desc = good;
            desc.product_dtype = bad == 5 ? XRAY_F16 : 0;
            desc.rows = bad == 0 ? 0 : desc.rows;
            desc.dtype = bad == 1 ? 9 : desc.dtype;
            desc.uses = bad == 2 ? 0 : bad == 3 ? 8 : desc.uses;
            desc.header.size = bad == 4 ? 8 : desc.header.size;
            assert_int_equal(k->ops->plan_weight(k->config, &desc), 0);
            xray_kv kv = block;
            kv.block_tokens = bad == 0 ? 24 : kv.block_tokens;
            kv.dtype = bad == 1 ? XRAY_F16 : kv.dtype;
            kv.header.size = bad == 4 ? 8 : kv.header.size;
            assert_int_equal(k->ops->plan_kv_block(k->config, &kv) == 0,
                             bad < 2 || bad == 4);
        }
        assert_int_equal(k->ops->plan_weight(k->config, NULL), 0);
        assert_int_equal(k->ops->plan_kv_block(k->config, NULL), 0);
    }
}

static void blocks_are_planned(void **state)
{
    (void)state;
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        const kind *k = &kinds[i];
        void *self = open_kind(k);
        for (uint32_t dim = 4; dim < 80; dim += 12) {
            const xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                                 .block_tokens = 32,
                                 .kv_heads = 3,
                                 .head_dim = dim,
                                 .dtype = k->dtype };
            uint64_t bytes = k->ops->kv_block_bytes(self, &kv);
            assert_true(bytes > 0);
            assert_int_equal(k->ops->plan_kv_block(k->config, &kv), bytes);
        }
        k->ops->destroy(self);
    }
}

/* ---- scratch ------------------------------------------------------------ */

enum { HEADS = 4, KV_HEADS = 2, DIM = 32, HIDDEN = 24 };

/* The arrays of every operator below, all of them large enough. */
typedef struct arrays {
    float *x, *y, *z, *w, *dw, *lse;
    int32_t *index;
    int32_t row_start[2];
} arrays;

static arrays make_arrays(const kind *k)
{
    size_t tokens = k->tokens;
    size_t wide = tokens * HEADS * DIM;
    arrays a = { .x = random_floats(wide, 1),
                 .y = alloc_floats(wide),
                 .z = random_floats(wide, 1),
                 .w = random_floats((size_t)VOCAB * HIDDEN, 1),
                 .dw = alloc_floats((size_t)VOCAB * HIDDEN),
                 .lse = alloc_floats(tokens * HEADS),
                 .index = calloc(tokens, sizeof(int32_t)),
                 .row_start = { 0, (int32_t)tokens } };
    assert_non_null(a.index);
    for (size_t i = 0; k->dtype == XRAY_BF16 && i < wide; i++) {
        uint16_t half = cpu_to_bf16(a.x[i]);
        memcpy((char *)a.x + i * sizeof(half), &half, sizeof(half));
    }
    return a;
}

static void free_arrays(arrays *a)
{
    float *const all[] = { a->x, a->y, a->z, a->w, a->dw, a->lse };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    free(a->index);
}

static void run_rows(const kind *k, void *self, const arrays *a,
                     uint32_t passes)
{
    static const int32_t none[1] = { -1 };
    xray_attention forward = { .header = XRAY_HEADER(xray_attention),
                               .tokens = { k->tokens, NULL },
                               .row_start = a->row_start,
                               .rows = 1,
                               .row_bound = k->tokens,
                               .q = a->x,
                               .k = a->x,
                               .v = a->x,
                               .o = a->y,
                               .lse = a->lse,
                               .q_stride = (uint64_t)HEADS * DIM,
                               .k_stride = (uint64_t)HEADS * DIM,
                               .v_stride = (uint64_t)HEADS * DIM,
                               .o_stride = (uint64_t)HEADS * DIM,
                               .heads = HEADS,
                               .kv_heads = KV_HEADS,
                               .head_dim = DIM,
                               .scale = 1,
                               .parent =
                                   passes & XRAY_PASS_PARENTS ? none : NULL,
                               .dtype = k->dtype };
    xray_attention_grad grad = { .header = XRAY_HEADER(xray_attention_grad),
                                 .forward = &forward,
                                 .d_o = a->z,
                                 .dq = a->dw,
                                 .dk = a->dw + (size_t)k->tokens * HEADS * DIM,
                                 .dv = a->dw +
                                       2 * (size_t)k->tokens * HEADS * DIM,
                                 .dq_stride = (uint64_t)HEADS * DIM,
                                 .dk_stride = (uint64_t)HEADS * DIM,
                                 .dv_stride = (uint64_t)HEADS * DIM };
    must(k->ops->attention(self, NULL, &forward));
    if (passes & XRAY_PASS_GRADS)
        must(k->ops->attention_grad(self, NULL, &grad));
}

enum { LAST = 3 };

/* The last tokens of a row, which are alone in the call. */
static void run_cache(const kind *k, void *self, const arrays *a)
{
    int32_t positions[LAST];
    for (int32_t i = 0; i < LAST; i++)
        positions[i] = (int32_t)k->tokens - LAST + i;
    xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                   .table_stride = (k->tokens + 15) / 16,
                   .block_tokens = 16,
                   .kv_heads = KV_HEADS,
                   .head_dim = DIM,
                   .dtype = k->dtype };
    kv.blocks = calloc(kv.table_stride, k->ops->kv_block_bytes(self, &kv));
    assert_non_null(kv.blocks);
    xray_attention_kv op = { .header = XRAY_HEADER(xray_attention_kv),
                             .tokens = { LAST, NULL },
                             .kv = &kv,
                             .seq = a->index,
                             .positions = positions,
                             .q = a->x,
                             .k = a->x,
                             .v = a->x,
                             .o = a->y,
                             .q_stride = (uint64_t)HEADS * DIM,
                             .k_stride = (uint64_t)HEADS * DIM,
                             .v_stride = (uint64_t)HEADS * DIM,
                             .o_stride = (uint64_t)HEADS * DIM,
                             .position_bound = k->tokens,
                             .heads = HEADS,
                             .scale = 1,
                             .dtype = k->dtype };
    must(k->ops->attention_kv(self, NULL, &op));
    free(kv.blocks);
}

/* Draws from the weight, then from given logits, whose log-probabilities are
 * picked as well. */
static void run_sampling(const kind *k, void *self, const xray_sample *fused)
{
    static float logits[VOCAB];
    xray_sample given = *fused;
    given.weight = NULL;
    given.logits = logits;
    given.logits_stride = k->vocab;
    given.vocab = k->vocab;
    xray_pick_logp pick = { .header = XRAY_HEADER(xray_pick_logp),
                            .items = { 1, NULL },
                            .logits = logits,
                            .stride = k->vocab,
                            .vocab = k->vocab,
                            .ids = fused->token,
                            .logp = fused->logp,
                            .count = 1,
                            .softcap = 1 };
    must(k->ops->sample(self, NULL, fused));
    must(k->ops->sample(self, NULL, &given));
    must(k->ops->pick_logp(self, NULL, &pick));
}

static void run_head(const kind *k, void *self, const arrays *a,
                     uint32_t passes)
{
    static float logits[VOCAB + 16];
    float one[4] = { 0, 1, 0, 0 };
    xray_weight *w = create_weight_on(k->ops, self, a->w, k->vocab, HIDDEN);
    xray_lm_head_logp forward = { .header = XRAY_HEADER(xray_lm_head_logp),
                                  .items = { 1, NULL },
                                  .weight = w,
                                  .x = a->x,
                                  .targets = a->index,
                                  .logp = one,
                                  .lse = one + 2,
                                  .logits =
                                      passes & XRAY_PASS_LOGITS ? logits : NULL,
                                  .x_dtype = k->dtype };
    xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                               .forward = &forward,
                               .dlogp = one + 1,
                               .dx = a->y,
                               .dweight = a->dw };
    const xray_draw draw = { .temperature = 1, .top_p = 1 };
    int32_t token = 0;
    xray_sample sample = { .header = XRAY_HEADER(xray_sample),
                           .items = { 1, NULL },
                           .weight = w,
                           .x = a->x,
                           .draws = &draw,
                           .token = &token,
                           .raw_logp = one,
                           .logp = one + 3,
                           .draw_stride = sizeof(draw),
                           .x_dtype = k->dtype };
    if (passes & XRAY_PASS_LOGP)
        must(k->ops->lm_head_logp(self, NULL, &forward));
    if (passes & XRAY_PASS_LOGP && passes & XRAY_PASS_GRADS)
        must(k->ops->lm_head_grad(self, NULL, &grad));
    if (passes & XRAY_PASS_SAMPLE)
        run_sampling(k, self, &sample);
    k->ops->weight_destroy(self, w);
}

/* Sums with many segments take the most scratch that products do. */
static uint32_t count_segments(uint32_t passes)
{
    return passes & XRAY_PASS_LOGP ? XRAY_SEGMENTS : 0;
}

/* A matrix of DIM outputs and HEADS * DIM inputs, the largest of the work.
 * Inputs that are scaled are copied, of any type. */
static void run_products(const kind *k, void *self, const arrays *a,
                         uint32_t passes)
{
    xray_weight *w = create_weight_on(k->ops, self, a->w, DIM, HEADS * DIM);
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { k->tokens, NULL },
                       .x = a->x,
                       .y = a->y,
                       .x_stride = (uint64_t)HEADS * DIM,
                       .y_stride = DIM,
                       .kind = XRAY_NT,
                       .alpha = 0.5f,
                       .segments = count_segments(passes),
                       .x_dtype = k->dtype,
                       .y_dtype = k->dtype };
    xray_matmul_grad grad = { .header = XRAY_HEADER(xray_matmul_grad),
                              .tokens = { k->tokens, NULL },
                              .dy = a->z,
                              .x = a->x,
                              .dy_stride = DIM,
                              .x_stride = (uint64_t)HEADS * DIM,
                              .rows = DIM,
                              .cols = (uint64_t)HEADS * DIM,
                              .dw = a->dw,
                              .x_dtype = k->dtype };
    xray_embedding_grad table = { .header = XRAY_HEADER(xray_embedding_grad),
                                  .tokens = { k->tokens, NULL },
                                  .ids = a->index,
                                  .dy = a->z,
                                  .dtable = a->dw,
                                  .vocab = 1,
                                  .dim = DIM,
                                  .scale = 1 };
    must(k->ops->matmul(self, NULL, &op));
    if (passes & XRAY_PASS_GRADS) {
        must(k->ops->matmul_grad(self, NULL, &grad));
        must(k->ops->embedding_grad(self, NULL, &table));
    }
    k->ops->weight_destroy(self, w);
}

static xray_device_work describe_work(const kind *k, uint32_t passes)
{
    return (xray_device_work){ .header = XRAY_HEADER(xray_device_work),
                               .tokens = k->tokens,
                               .row_tokens = k->tokens,
                               .width = (uint64_t)HEADS * DIM,
                               .sides = (uint64_t)HEADS * DIM + DIM,
                               .vocab = k->vocab,
                               .hidden = HIDDEN,
                               .heads = HEADS,
                               .kv_heads = KV_HEADS,
                               .head_dim = DIM,
                               .passes = passes,
                               .segments = count_segments(passes),
                               .dtype = k->dtype };
}

static xray_device_work run_work(const kind *k, void *self, const arrays *a,
                                 uint32_t passes)
{
    run_products(k, self, a, passes);
    if (passes & XRAY_PASS_ROWS)
        run_rows(k, self, a, passes);
    if (passes & XRAY_PASS_CACHE)
        run_cache(k, self, a);
    run_head(k, self, a, passes);
    return describe_work(k, passes);
}

/* The plan for two users of one instance, whose passes are given, may be a
 * little more than what their operators take together, never less. */
static void check_scratch(const kind *k, const arrays *a, uint32_t first,
                          uint32_t second)
{
    struct {
        xray_device_work work;
        uint64_t more; /* as in a later version */
    } users[2];
    void *self = open_kind(k);
    uint64_t own =
        k->on_cuda ? read_memory(k, self).live[XRAY_TAG_WORKSPACE] : 0;
    users[0].work = run_work(k, self, a, first);
    users[1].work = run_work(k, self, a, second);
    uint64_t taken = read_memory(k, self).high[XRAY_TAG_WORKSPACE] - own;
    uint64_t planned = k->ops->plan_scratch(
        k->config, k->threads, &users[0].work, 2, sizeof(users[0]));
    /* Operands of bf16 are copied only if they are not aligned. */
    uint64_t copies = k->dtype == XRAY_BF16 ? 65536 : 4096;
    uint64_t more = k->on_cuda ? taken / 8 + copies : 0;
    if (planned < taken || planned > taken + more)
        fail_msg("%s, passes 0x%x and 0x%x: planned %llu, taken %llu", k->name,
                 first, second, (unsigned long long)planned,
                 (unsigned long long)taken);
    k->ops->destroy(self);
}

static void scratch_is_planned(void **state)
{
    (void)state;
    static const uint32_t passes[] = {
        XRAY_PASS_ROWS,
        XRAY_PASS_ROWS | XRAY_PASS_PARENTS,
        XRAY_PASS_ROWS | XRAY_PASS_GRADS,
        XRAY_PASS_ROWS | XRAY_PASS_GRADS | XRAY_PASS_PARENTS,
        XRAY_PASS_CACHE,
        XRAY_PASS_LOGP,
        XRAY_PASS_LOGP | XRAY_PASS_LOGITS,
        XRAY_PASS_LOGP | XRAY_PASS_GRADS | XRAY_PASS_ROWS,
        XRAY_PASS_LOGP | XRAY_PASS_GRADS | XRAY_PASS_ROWS | XRAY_PASS_LOGITS,
        XRAY_PASS_SAMPLE | XRAY_PASS_CACHE,
    };
    const size_t last = sizeof(passes) / sizeof(*passes) - 1;
    const size_t step = TEST_STEP;
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        arrays a = make_arrays(&kinds[i]);
        /* alone, and beside an engine, before and after it */
        for (size_t p = 0; p <= last; p += step) {
            if (step == 1)
                check_scratch(&kinds[i], &a, passes[p], passes[p]);
            check_scratch(&kinds[i], &a, passes[p], passes[last]);
        }
        check_scratch(&kinds[i], &a, passes[last], passes[last - 1]);
        free_arrays(&a);
    }
}

/* As much is reserved as was planned, and operators do not add to it. */
static void check_reserved(const kind *k, const arrays *a, uint32_t passes)
{
    void *self = open_kind(k);
    xray_device_work work = describe_work(k, passes);
    uint64_t own =
        k->on_cuda ? read_memory(k, self).live[XRAY_TAG_WORKSPACE] : 0;
    uint64_t planned =
        k->ops->plan_scratch(k->config, k->threads, &work, 1, sizeof(work));
    must(k->ops->reserve(self, &work, 1, sizeof(work)));
    uint64_t taken = read_memory(k, self).live[XRAY_TAG_WORKSPACE];
    assert_true(taken - own <= planned);
    if (!k->on_cuda)
        assert_int_equal(taken, planned);
    (void)run_work(k, self, a, passes);
    assert_int_equal(read_memory(k, self).high[XRAY_TAG_WORKSPACE], taken);
    work.vocab = UINT64_C(1) << 40;
    for (int i = 0; i < 2; i++) /* a refusal does not allow the next one */
        assert_int_equal(k->ops->reserve(self, &work, 1, sizeof(work)),
                         XRAY_E_STATE);
    k->ops->destroy(self);
}

static void reserved_scratch_does_not_grow(void **state)
{
    (void)state;
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        const kind *k = &kinds[i];
        arrays a = make_arrays(k);
        check_reserved(k, &a, XRAY_PASS_SAMPLE | XRAY_PASS_CACHE);
        check_reserved(k, &a,
                       XRAY_PASS_LOGP | XRAY_PASS_GRADS | XRAY_PASS_ROWS);
        void *self = open_kind(k);
        must(k->ops->reserve(self, NULL, 0, 0));
        xray_weight *w = create_weight_on(k->ops, self, a.w, k->vocab, HIDDEN);
        float one[2] = { 0 };
        xray_lm_head_logp op = { .header = XRAY_HEADER(xray_lm_head_logp),
                                 .items = { 1, NULL },
                                 .weight = w,
                                 .x = a.x,
                                 .targets = a.index,
                                 .logp = one,
                                 .lse = one + 1,
                                 .x_dtype = k->dtype };
        last_failure[0] = '\0';
        assert_int_equal(k->ops->lm_head_logp(self, NULL, &op), XRAY_E_STATE);
        assert_non_null(strstr(last_failure, "scratch: "));
        assert_non_null(strstr(last_failure,
                               " bytes of scratch are needed, but 0 were "
                               "reserved"));
        k->ops->weight_destroy(self, w);
        k->ops->destroy(self);
        free_arrays(&a);
    }
}

/* Splits of a long row of a cache have partial results. */
static void splits_of_a_long_cache_are_planned(void **state)
{
    (void)state;
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        kind k = kinds[i];
        k.tokens = k.on_cuda ? 2048 : k.tokens;
        arrays a = make_arrays(&k);
        void *self = open_kind(&k);
        xray_device_work work = describe_work(&k, XRAY_PASS_CACHE);
        work.tokens = LAST;
        must(k.ops->reserve(self, &work, 1, sizeof(work)));
        run_cache(&k, self, &a);
        k.ops->destroy(self);
        free_arrays(&a);
    }
}

static void an_instance_without_users_is_planned(void **state)
{
    (void)state;
    kind kinds[MOST_KINDS];
    size_t count = list_kinds(kinds);
    for (size_t i = 0; i < count; i++) {
        const kind *k = &kinds[i];
        void *self = open_kind(k);
        uint64_t own = read_memory(k, self).live[XRAY_TAG_WORKSPACE];
        assert_int_equal(
            k->ops->plan_scratch(k->config, k->threads, NULL, 0, 0),
            k->on_cuda ? 0 : own);
        k->ops->destroy(self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_copies_are_planned),
        cmocka_unit_test(what_would_be_refused_has_no_size),
        cmocka_unit_test(blocks_are_planned),
        cmocka_unit_test(scratch_is_planned),
        cmocka_unit_test(reserved_scratch_does_not_grow),
        cmocka_unit_test(splits_of_a_long_cache_are_planned),
        cmocka_unit_test(an_instance_without_users_is_planned),
    };
    return cmocka_run_group_tests_name("device.sizes", tests, NULL, NULL);
}
