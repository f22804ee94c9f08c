/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the layouts of a training step on two processors: one rank with two
 * threads, two ranks of one thread each that divide layers, rows, the model's
 * depth or the batch, and the stages of zero3. All of them train a Llama with
 * random weights on the same tokens.
 *
 *   bench-layouts [name=value ...]
 *
 *   hidden=512 layers=8 ffn=1024 vocab=32000   the model, of 8 heads and 4 KV
 *                                              heads
 *   tokens=4096 micro=1024 row=256             a step, in micro-batches of rows
 *   segments=0                                 of a step's micro-batches, for
 *                                              stages 2 and 3 one each: every
 *                                              layout runs without and with
 *   rounds=3                                   in which the layouts take turns
 *
 * Prints the fastest step of each layout in milliseconds, the mean of its
 * ranks: the time of its three phases, of the device's operators by kind, and
 * of collectives, divided into waiting for the other rank to arrive and the
 * rest. Operators of ranks with one thread are in processor time. One rank
 * with one thread comes first: a rank of two would have half of
 * its operators' time if nothing were computed twice.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xray/numerics.h>
#include <xray/plugin.h>

#include "bench/flops.h"
#include "bench/host.h"
#include "bench/probe.h"
#include "bench/timed.h"
#include "plugins/backend-megatron/megatron.h"
#include "plugins/backend-zero3/zero3.h"

#define STEPS 3 /* of a round; the first one warms up */

#define MOST_OPTIONS 9
#define GROUPS 4 /* of a rank */

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_shm(uint32_t host_abi);
const xray_plugin *xray_plugin_query_backend_zero3(uint32_t host_abi);
const xray_plugin *xray_plugin_query_backend_megatron(uint32_t host_abi);

typedef struct shape {
    uint64_t hidden;
    uint64_t layers;
    uint64_t ffn;
    uint64_t vocab;
    uint64_t tokens;
    uint64_t micro;
    uint64_t row;
    uint64_t segments;
    uint64_t rounds;
} shape;

typedef struct layout {
    const char *name;
    uint32_t ranks;
    uint32_t threads;
    uint32_t tensor; /* of megatron; 0: zero3 */
    uint32_t sequence;
    uint32_t stage;   /* of zero3 */
    uint32_t context; /* of megatron [1] */
    uint32_t stages;  /* of megatron's pipeline [1] */
    uint32_t chunks;  /* of each stage [1] */
} layout;

static const layout layouts[] = {
    { "one rank, 1 thread", 1, 1, 1, 0, 0 },
    { "one rank, 2 threads", 1, 2, 1, 0, 0 },
    { "TP 2", 2, 1, 2, 0, 0 },
    { "TP 2, sequence", 2, 1, 2, 1, 0 },
    { "CP 2", 2, 1, 1, 0, 0, 2, 1 },
    { "PP 2", 2, 1, 1, 0, 0, 1, 2 },
    { "PP 2, 2 chunks", 2, 1, 1, 0, 0, 1, 2, 2 },
    { "DP 2", 2, 1, 1, 0, 0 },
    { "zero3, stage 0", 2, 1, 0, 0, 0 },
    { "zero3, stage 1", 2, 1, 0, 0, 1 },
    { "zero3, stage 2", 2, 1, 0, 0, 2 },
    { "zero3, stage 3", 2, 1, 0, 0, 3 },
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

#define SIDES (2 * LAYOUTS) /* all layouts, and again with segments */

static const layout *self_layout; /* of this process */

/* The ranks of a replica, which are both or one. */
static uint32_t count_replica_ranks(const layout *how)
{
    return how->tensor > 1 || how->context > 1 || how->stages > 1 ? RANKS : 1;
}

/* ---- ranks -------------------------------------------------------------- */

static void wait_for_all_ranks(void)
{
    shared_board *b = self.board;
    uint32_t round = atomic_load(&b->round);
    if (atomic_fetch_add(&b->arrived, 1) + 1 == self_layout->ranks) {
        atomic_store(&b->arrived, 0);
        atomic_fetch_add(&b->round, 1);
        return;
    }
    while (atomic_load(&b->round) == round)
        (void)nanosleep(&(struct timespec){ 0, 100000 }, NULL);
}

static xray_status gather_offers(void *ctx, const void *mine, uint64_t size,
                                 void *all)
{
    shared_board *b = self.board;
    (void)ctx;
    if (size > sizeof(b->offers[0]))
        return XRAY_E_RANGE;
    memcpy(b->offers[self.rank], mine, size);
    wait_for_all_ranks();
    for (uint32_t r = 0; r < RANKS; r++)
        memcpy((char *)all + r * size, b->offers[r], size);
    wait_for_all_ranks();
    return XRAY_OK;
}

/* A rank waits in a call from its own arrival until the other's. */
static void finish_figures(void)
{
    const shared_board *b = self.board;
    for (uint64_t n = 0; n < self.now.calls; n++) {
        double own = b->begun[self.rank][n];
        double other = b->begun[self_layout->ranks - 1 - self.rank][n];
        self.now.called += b->ended[self.rank][n] - own;
        self.now.waited += other > own ? other - own : 0;
    }
}

static double sum_phases(const figures *f)
{
    double sum = 0;
    for (uint32_t i = 0; i < PHASES; i++)
        sum += f->phase[i];
    return sum;
}

/* ---- a step ------------------------------------------------------------- */

typedef struct micro_batches {
    const shape *s;
    xray_batch *batches; /* [count] */
    const xray_batch **pointers;
    int32_t *ids;    /* [count, micro] */
    uint32_t *index; /* [count, rows] */
    float *mask;     /* [micro] */
    int32_t *start;  /* [rows + 1] */
    uint32_t count;  /* of this rank */
} micro_batches;

static xray_status take_log_loss(void *ctx, const xray_loss_call *call)
{
    const micro_batches *m = ctx;
    const xray_batch *batch = call->batch;
    for (uint32_t t = 0; t < batch->tokens; t++)
        if (t % m->s->row)
            call->dlogp[t] = -1.0f / (float)m->s->tokens;
    enter_phase(BACKWARD);
    return XRAY_OK;
}

static void free_batches(micro_batches *m)
{
    free(m->batches);
    free(m->pointers);
    free(m->ids);
    free(m->index);
    free(m->mask);
    free(m->start);
}

/* Returns the segment of micro-batch i of a replica. */
static uint32_t find_segment(const shape *s, uint32_t i, uint32_t replica,
                             uint32_t replicas)
{
    uint64_t all = s->tokens / s->micro;
    int in_turn = s->segments && !self_layout->tensor && self_layout->stage > 1;
    return (uint32_t)(in_turn ? i * replicas + replica
                              : (replica * (all / replicas) + i) * s->segments /
                                    all);
}

/* The ranks of a replica have the same tokens. */
static int make_batches(const shape *s, uint32_t replica, uint32_t replicas,
                        micro_batches *m)
{
    uint64_t rows = s->micro / s->row;
    uint32_t count = (uint32_t)(s->tokens / s->micro / replicas);
    *m = (micro_batches){ .s = s,
                          .batches = calloc(count, sizeof(*m->batches)),
                          .pointers = calloc(count, sizeof(*m->pointers)),
                          .ids = calloc(count * s->micro, sizeof(*m->ids)),
                          .index = calloc(count * rows, sizeof(*m->index)),
                          .mask = calloc(s->micro, sizeof(*m->mask)),
                          .start = calloc(rows + 1, sizeof(*m->start)),
                          .count = count };
    if (!m->batches || !m->pointers || !m->ids || !m->index || !m->mask ||
        !m->start)
        return 0;
    for (uint64_t t = 0; t < count * s->micro; t++)
        m->ids[t] = (int32_t)(xray_mix64(replica, t) % s->vocab);
    for (uint64_t t = 0; t < s->micro; t++)
        m->mask[t] = t % s->row ? 1 : 0;
    for (uint64_t r = 0; r <= rows; r++)
        m->start[r] = (int32_t)(r * s->row);
    for (uint32_t r = 0; r < count * rows; r++)
        m->index[r] = r;
    for (uint32_t i = 0; i < count; i++) {
        m->batches[i] =
            (xray_batch){ .header = XRAY_HEADER(xray_batch),
                          .rows = (uint32_t)rows,
                          .tokens = (uint32_t)s->micro,
                          .ids = m->ids + i * s->micro,
                          .row_start = m->start,
                          .loss_mask = m->mask,
                          .row_index = m->index + i * rows,
                          .segment = find_segment(s, i, replica, replicas) };
        m->pointers[i] = &m->batches[i];
    }
    return 1;
}

static int train_step(const xray_train_ops *ops, void *trainer,
                      micro_batches *m, int counts)
{
    const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                             .ctx = m,
                             .fn = take_log_loss,
                             .outputs = XRAY_OUTPUT_LOGP };
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    figures *best = &self.board->best[self.rank];
    self.now = (figures){ .calls = 0 };
    wait_for_all_ranks();
    self.phase = FORWARD;
    self.since = read_clock();
    if (ops->forward_backward(trainer, m->pointers, m->count, &loss) != XRAY_OK)
        return 0;
    enter_phase(UPDATE);
    if (ops->optimizer_step(trainer, 1e-4, 1, &result) != XRAY_OK)
        return 0;
    enter_phase(UPDATE);
    wait_for_all_ranks();
    finish_figures();
    if (counts &&
        (best->phase[0] == 0 || sum_phases(&self.now) < sum_phases(best)))
        *best = self.now;
    return 1;
}

/* ---- instances ---------------------------------------------------------- */

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .version = "bench",
                                .log = NULL,
                                .fail = print_failure };

static void write_model(const shape *s, char *json, size_t cap)
{
    (void)snprintf(
        json, cap,
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
        "\"hidden_act\":\"silu\",\"hidden_size\":%llu,"
        "\"num_hidden_layers\":%llu,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":4,\"intermediate_size\":%llu,"
        "\"vocab_size\":%llu,\"max_position_embeddings\":4096,"
        "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
        "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}",
        (unsigned long long)s->hidden, (unsigned long long)s->layers,
        (unsigned long long)s->ffn, (unsigned long long)s->vocab);
}

/* Creates the trainer of this rank; NULL: it has said why. */
static void *create_trainer(const shape *s, const xray_world *world,
                            const xray_device_ops *device, void *device_self,
                            const xray_train_ops *ops)
{
    const layout *how = self_layout;
    char json[1024];
    const mg_config mg_options = {
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .tensor_model_parallel_size = how->tensor,
        .context_parallel_size = how->context ? how->context : 1,
        .pipeline_model_parallel_size = how->stages ? how->stages : 1,
        .virtual_pipeline_model_parallel_size = how->chunks ? how->chunks : 1,
        .recompute_granularity = XM_TRAINER_RECOMPUTE_SELECTIVE,
        .use_distributed_optimizer = 1,
        .overlap_grad_reduce = 1,
        .sequence_parallel = how->sequence
    };
    const z3_config zero3_options = { .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8,
                                      .stage = how->stage,
                                      .prefetch = 1 };
    const xray_model model = { .header = XRAY_HEADER(xray_model),
                               .config_json = json,
                               .dtype = XRAY_F32,
                               .random_init = 1 };
    const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                 .tokens = s->micro,
                                 .rows = s->micro / s->row,
                                 .row_tokens = s->row,
                                 .outputs = XRAY_OUTPUT_LOGP,
                                 .trainable = 1,
                                 .segments = (uint32_t)s->segments,
                                 .device = device };
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = &host,
                               .device = device,
                               .device_self = device_self,
                               .model = &model,
                               .world = world,
                               .role = XRAY_ROLE_ACTOR,
                               .trainable = 1 };
    void *trainer = NULL;
    write_model(s, json, sizeof(json));
    return ops->create(&setup,
                       how->tensor ? (const void *)&mg_options
                                   : (const void *)&zero3_options,
                       &load, &trainer) == XRAY_OK
               ? trainer
               : NULL;
}

/* Makes the groups of a replica, of the ranks of equal position, and of those
 * that are stages or divide rows, which are all ranks or this one alone. */
static int join_world(const xray_comm_ops *comm, void *comm_self,
                      xray_world *world, xray_subgroup *groups)
{
    static const uint32_t both[] = { 0, 1 };
    const int in[GROUPS] = { count_replica_ranks(self_layout) > 1,
                             count_replica_ranks(self_layout) == 1,
                             self_layout->context > 1,
                             self_layout->stages > 1 };
    if (comm->group(comm_self, both, RANKS, &world->group) != XRAY_OK)
        return 0;
    for (uint32_t i = 0; i < GROUPS; i++)
        if (in[i]) {
            groups[i].group = world->group;
            groups[i].rank = self.rank;
            groups[i].size = RANKS;
        }
    world->comm = comm;
    world->comm_self = comm_self;
    return 1;
}

static int run_rank(const shape *s)
{
    const layout *how = self_layout;
    uint32_t width = count_replica_ranks(how);
    const xray_device_ops device =
        time_device(xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops);
    const xray_comm_ops comm =
        time_comm(xray_plugin_query_comm_shm(XRAY_ABI)->components[0]->ops);
    const xray_train_ops *ops =
        (how->tensor ? xray_plugin_query_backend_megatron(XRAY_ABI)
                     : xray_plugin_query_backend_zero3(XRAY_ABI))
            ->components[0]
            ->ops;
    void *device_self = NULL;
    void *comm_self = NULL;
    xray_subgroup groups[GROUPS] = { { XRAY_AXIS_REPLICA, NULL, 0, 1 },
                                     { XRAY_AXIS_DATA, NULL, 0, 1 },
                                     { XRAY_AXIS_CONTEXT, NULL, 0, 1 },
                                     { XRAY_AXIS_PIPELINE, NULL, 0, 1 } };
    xray_world world = { .header = XRAY_HEADER(xray_world),
                         .rank = self.rank,
                         .size = how->ranks,
                         .subgroups = groups,
                         .subgroup_count = GROUPS,
                         .subgroup_stride = sizeof(groups[0]) };
    micro_batches m = { .s = s };
    /* The first stage receives gradients, the last one hidden states, of the
     * tokens that a row reads. */
    self.received = self.rank ? FORWARD : BACKWARD;
    if (how->stages > 1)
        self.hidden_bytes =
            s->micro / s->row * (s->row - 1) * s->hidden * sizeof(float);
    if (device.create(&host, NULL, how->threads, &device_self) != XRAY_OK)
        return 0;
    const xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                                    .host = &host,
                                    .device = &device,
                                    .device_self = device_self,
                                    .rank = self.rank,
                                    .size = how->ranks,
                                    .timeout_ms = 60000,
                                    .gather = gather_offers };
    if (how->ranks > 1 && (comm.create(&setup, NULL, &comm_self) != XRAY_OK ||
                           !join_world(&comm, comm_self, &world, groups)))
        return 0;
    void *trainer = create_trainer(s, &world, &device, device_self, ops);
    int good =
        trainer && make_batches(s, self.rank / width, how->ranks / width, &m);
    for (int i = 0; good && i < STEPS; i++)
        good = train_step(ops, trainer, &m, i > 0);
    free_batches(&m);
    return good; /* the process ends, and the rest with it */
}

/* Becomes a rank: argv holds "--rank", the rank, the layout, the descriptor of
 * the boards, and the options. */
static int run_as_rank(shape *s, char **argv)
{
    size_t side = strtoul(argv[3], NULL, 10);
    shared_board *boards =
        mmap(NULL, SIDES * sizeof(*boards), PROT_READ | PROT_WRITE, MAP_SHARED,
             (int)strtol(argv[4], NULL, 10), 0);
    if (boards == MAP_FAILED || side >= SIDES)
        return 1;
    if (side < LAYOUTS)
        s->segments = 0;
    self_layout = &layouts[side % LAYOUTS];
    self.board = &boards[side];
    self.rank = (uint32_t)strtoul(argv[2], NULL, 10);
    self.threads = self_layout->threads;
    return run_rank(s) ? 0 : 1;
}

static int run_side(size_t side, int fd, char **options)
{
    pid_t pids[RANKS];
    uint32_t ranks = layouts[side % LAYOUTS].ranks;
    int good = 1;
    for (uint32_t r = 0; r < ranks; r++) {
        char program[] = "/proc/self/exe";
        char option[] = "--rank";
        char text[3][16];
        char *argv[5 + MOST_OPTIONS + 1] = { program, option, text[0], text[1],
                                             text[2] };
        (void)snprintf(text[0], 16, "%u", r);
        (void)snprintf(text[1], 16, "%zu", side);
        (void)snprintf(text[2], 16, "%d", fd);
        for (int i = 0; options[i]; i++)
            argv[5 + i] = options[i];
        if (posix_spawn(&pids[r], program, NULL, NULL, argv, environ) != 0)
            return 0;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        int status = 0;
        good = waitpid(pids[r], &status, 0) > 0 && status == 0 && good;
    }
    return good;
}

/* ---- results ------------------------------------------------------------ */

static double count_flops(const shape *s, const xm_config *config)
{
    double weights =
        count_block_weights(config) + count_lm_head_weights(config);
    double row = (double)s->row;
    return (double)s->tokens * 6 * weights +
           (double)s->tokens / row * 3.5 *
               count_attention_flops(config, row * (row + 1) / 2);
}

static void print_floor(const shape *s)
{
    char json[1024];
    xr_err err = { "" };
    xm_config config;
    probe_rates machine = probe_machine(2, probe_has_avx512());
    write_model(s, json, sizeof(json));
    if (xm_config_parse(json, "config.json", &err, &config) == XRAY_OK)
        printf("machine: 2 threads, %.0f GF/s fp32 FMA; floor %.1f ms a step\n",
               machine.flops * 1e-9,
               1e3 * count_flops(s, &config) / machine.flops);
    printf("%-20s %7s %9s | %7s %7s %7s | %7s %7s %7s %7s %7s %7s | %6s %6s "
           "%7s %7s\n",
           "ms", "step", "tokens/s", "forward", "backw.", "update", "product",
           "attent.", "lm_head", "norms", "other", "adamw", "calls", "MB",
           "waiting", "moving");
}

static void print_layout(const shape *s, const layout *how, const figures *best)
{
    figures f = { .calls = best[0].calls, .bytes = best[0].bytes };
    double share = 1e3 / how->ranks;
    for (uint32_t r = 0; r < how->ranks; r++) {
        for (uint32_t i = 0; i < PHASES; i++)
            f.phase[i] += share * best[r].phase[i];
        for (uint32_t i = 0; i < KINDS; i++)
            f.kind[i] += share * best[r].kind[i];
        f.waited += share * best[r].waited;
        f.called += share * best[r].called;
    }
    double step = sum_phases(&f);
    printf("%-20s %7.1f %9.0f | %7.1f %7.1f %7.1f | %7.1f %7.1f %7.1f %7.1f "
           "%7.1f %7.1f | %6llu %6.1f %7.1f %7.1f\n",
           how->name, step, 1e3 * (double)s->tokens / step, f.phase[FORWARD],
           f.phase[BACKWARD], f.phase[UPDATE], f.kind[PRODUCTS],
           f.kind[ATTENTION], f.kind[HEAD], f.kind[NORMS],
           f.kind[INPUT] + f.kind[OTHER], f.kind[ADAM],
           (unsigned long long)f.calls, f.bytes / 1e6, f.waited,
           f.called - f.waited);
}

static int read_options(shape *s, char **argv)
{
    const struct {
        const char *name;
        uint64_t *to;
    } names[] = { { "hidden", &s->hidden }, { "layers", &s->layers },
                  { "ffn", &s->ffn },       { "vocab", &s->vocab },
                  { "tokens", &s->tokens }, { "micro", &s->micro },
                  { "row", &s->row },       { "segments", &s->segments },
                  { "rounds", &s->rounds } };
    for (; *argv; argv++) {
        size_t length = strcspn(*argv, "=");
        uint64_t *to = NULL;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strlen(names[i].name) == length &&
                strncmp(*argv, names[i].name, length) == 0)
                to = names[i].to;
        if (!to || (*argv)[length] != '=')
            return 0;
        *to = strtoull(*argv + length + 1, NULL, 10);
        if (*to == 0)
            return 0;
    }
    return s->micro % s->row == 0 && s->tokens % (RANKS * s->micro) == 0;
}

int main(int argc, char **argv)
{
    shape s = { 512, 8, 1024, 32000, 4096, 1024, 256, 0, 3 };
    int is_rank = argc > 4 && strcmp(argv[1], "--rank") == 0;
    char **options = argv + (is_rank ? 5 : 1);
    if (argc < 1 || argc > 5 + MOST_OPTIONS || !read_options(&s, options)) {
        (void)fputs("usage: bench-layouts [hidden=512] [layers=8] [ffn=1024] "
                    "[vocab=32000] [tokens=4096] [micro=1024] [row=256] "
                    "[segments=0] [rounds=3]: micro must be a multiple of "
                    "row, and tokens of two times micro\n",
                    stderr);
        return 2;
    }
    if (is_rank)
        return run_as_rank(&s, argv);
    int fd = memfd_create("bench", 0);
    size_t sides = s.segments ? SIDES : LAYOUTS;
    uint64_t bytes = SIDES * sizeof(shared_board);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return 1;
    const shared_board *boards =
        mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (boards == MAP_FAILED)
        return 1;
    print_floor(&s);
    (void)fflush(stdout);
    for (uint64_t round = 0; round < s.rounds; round++)
        for (size_t i = 0; i < LAYOUTS; i++)
            for (size_t side = i; side < sides; side += LAYOUTS)
                if (!run_side(side, fd, options))
                    return 1;
    for (size_t i = 0; i < sides; i++) {
        if (i == LAYOUTS)
            printf("with %llu segments\n", (unsigned long long)s.segments);
        print_layout(&s, &layouts[i % LAYOUTS], boards[i].best);
    }
    return 0;
}
