/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that all layouts write one format of checkpoints: whichever backend,
 * stage and number of ranks wrote a file, with rows divided or not, each goes
 * on from it with the same bits of weights and moments as others that sum
 * tokens in the same order.
 */
#include "core/base/file.h"
#include "tests/train/ranks.h"

/* Those of a family sum tokens in the same order. The first of each is what
 * others are compared with. */
enum { ALONE, PAIR, CONTEXT, FAMILIES };
static const struct layout {
    uint32_t family;
    uint32_t tensor; /* megatron with so many ranks of a replica; 0: zero3 */
    uint32_t stage;
    uint32_t stages; /* of the pipeline; 0: 1 */
} layouts[] = {
    { ALONE, 0, 0 },      { ALONE, 0, 1 },    { ALONE, 0, 2 },
    { ALONE, 0, 3 },      { ALONE, 1, 0 },    { ALONE, 2, 0 },
    { ALONE, 4, 0 },      { ALONE, 1, 0, 2 }, { ALONE, 2, 0, 2 },
    { PAIR, 0, 0 },       { PAIR, 0, 1 },     { PAIR, 0, 2 },
    { PAIR, 0, 3 },       { PAIR, 1, 0 },     { PAIR, 2, 0 },
    { PAIR, 4, 0 },       { PAIR, 1, 0, 2 },  { PAIR, 2, 0, 2 },
    { CONTEXT, 1, 0 },    { CONTEXT, 2, 0 },  { CONTEXT, 1, 0, 2 },
    { CONTEXT, 2, 0, 2 },
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static int files_differ(const char *a, const char *b, const char *name)
{
    char path[2][600];
    char *text[2] = { NULL };
    size_t size[2] = { 0 };
    xr_err err = { "" };
    (void)snprintf(path[0], sizeof(path[0]), "%s/%s", a, name);
    (void)snprintf(path[1], sizeof(path[1]), "%s/%s", b, name);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            xr_file_read(path[i], 1u << 24, &err, &text[i], &size[i]), XRAY_OK);
    int differ = size[0] != size[1] || memcmp(text[0], text[1], size[0]) != 0;
    free(text[0]);
    free(text[1]);
    return differ;
}

static void expect_same_checkpoint(const char *want, const char *dir,
                                   const struct layout *layout)
{
    if (files_differ(want, dir, "model.safetensors"))
        fail_msg("family %u, tp %u, stage %u, %u stages: other weights",
                 layout->family, layout->tensor, layout->stage, layout->stages);
    if (files_differ(want, dir, "optim.safetensors"))
        fail_msg("family %u, tp %u, stage %u, %u stages: other moments",
                 layout->family, layout->tensor, layout->stage, layout->stages);
}

static uint32_t frozen; /* layers that no run trains, the first ones */

/* Trains for `steps` steps from the checkpoint in `from`, or from the start if
 * that is NULL, and saves what comes out. */
static void train_on(const struct layout *layout, uint32_t steps,
                     const char *from, uint32_t first_step, const char *dir)
{
    uint32_t width = (layout->tensor ? layout->tensor : 1) *
                     (layout->stages ? layout->stages : 1);
    ranks_run run = ranks_of(
        ranks_qwen3, (layout->family == ALONE ? 1 : 2) * width, layout->stage);
    run.spec.context = layout->family == CONTEXT ? 2 : 1;
    run.spec.tensor = layout->tensor;
    run.spec.stages = layout->stages;
    run.spec.from_layer = frozen;
    run.steps = steps;
    run.first_step = first_step;
    run.load_dir = from;
    run.save_dir = dir;
    ranks_go(&run);
    ranks_free(&run);
}

/* The folders of checkpoints after two steps and after a third one, by family.
 * A run may go on from the second step of another one. */
typedef struct folders {
    char second[FAMILIES][64];
    char third[FAMILIES][FAMILIES][64]; /* [that wrote] [that read] */
} folders;

static void write_all(folders *f)
{
    char dir[64];
    for (size_t i = 0; i < LAYOUTS; i++) {
        char *want = f->second[layouts[i].family];
        int first = !want[0];
        train_on(&layouts[i], 2, NULL, 0,
                 first ? rig_mkdir(want, sizeof(f->second[0]))
                       : rig_mkdir(dir, sizeof(dir)));
        if (first)
            continue;
        expect_same_checkpoint(want, dir, &layouts[i]);
        rig_rmdir(dir);
    }
}

static void read_all(folders *f, uint32_t written)
{
    char dir[64];
    for (size_t i = 0; i < LAYOUTS; i++) {
        char *want = f->third[written][layouts[i].family];
        int first = !want[0];
        train_on(&layouts[i], 1, f->second[written], 2,
                 first ? rig_mkdir(want, sizeof(f->third[0][0]))
                       : rig_mkdir(dir, sizeof(dir)));
        if (first)
            continue;
        expect_same_checkpoint(want, dir, &layouts[i]);
        rig_rmdir(dir);
    }
}

static void every_layout_goes_on_from_every_other(void **state)
{
    (void)state;
    folders f = { 0 };
    char dir[64];
    write_all(&f);
    for (uint32_t n = 0; n < FAMILIES; n++)
        read_all(&f, n);
    for (size_t i = 0; i < LAYOUTS; i++) {
        uint32_t n = layouts[i].family;
        if (i > 0 && layouts[i - 1].family == n)
            continue;
        /* The run that was not interrupted. */
        train_on(&layouts[i], 3, NULL, 0, rig_mkdir(dir, sizeof(dir)));
        expect_same_checkpoint(dir, f.third[n][n], &layouts[i]);
        rig_rmdir(dir);
        rig_rmdir(f.second[n]);
        for (uint32_t wrote = 0; wrote < FAMILIES; wrote++)
            rig_rmdir(f.third[wrote][n]);
    }
}

/* Frozen layers have weights but no moments in the files. */
static void layouts_go_on_with_frozen_layers(void **state)
{
    (void)state;
    static const struct layout some[] = {
        { ALONE, 0, 0 }, { ALONE, 0, 3 }, { ALONE, 2, 0 }, { ALONE, 1, 0, 2 }
    };
    char second[64];
    char third[64];
    char dir[64];
    frozen = 1;
    train_on(&some[0], 2, NULL, 0, rig_mkdir(second, sizeof(second)));
    train_on(&some[0], 3, NULL, 0, rig_mkdir(third, sizeof(third)));
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        train_on(&some[i], 2, NULL, 0, rig_mkdir(dir, sizeof(dir)));
        expect_same_checkpoint(second, dir, &some[i]);
        rig_rmdir(dir);
        train_on(&some[i], 1, second, 2, rig_mkdir(dir, sizeof(dir)));
        expect_same_checkpoint(third, dir, &some[i]);
        rig_rmdir(dir);
    }
    frozen = 0;
    rig_rmdir(second);
    rig_rmdir(third);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_goes_on_from_every_other),
        cmocka_unit_test(layouts_go_on_with_frozen_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
