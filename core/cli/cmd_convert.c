/* SPDX-License-Identifier: Apache-2.0
 *
 * xray convert: weights that torch.save wrote become safetensors, in a new
 * folder that is complete or absent.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/base/system_error.h"
#include "core/cli/cli.h"
#include "core/cli/stop.h"
#include "core/plugin/cancel.h"
#include "model/hf/torch_file.h"

/* Elements between two looks at the stop. */
#define PIECE ((uint64_t)1 << 20)

/* ---- weights ------------------------------------------------------------ */

typedef struct conversion {
    const char *from;
    const char *to;
    char *folder; /* whose other files are copied; NULL: none */
    char temp[XR_PATH_CAP];
    xm_torch *torch;
    void *buffer; /* the tensor that is written, where it is not contiguous */
    uint64_t bytes;
    xr_str copied; /* names, with ", " between them */
    xr_str left;
} conversion;

static xray_status feed_tensor(void *ctx, size_t i, xr_err *err,
                               const void **out)
{
    conversion *c = ctx;
    const xm_torch_tensor *t = xm_torch_at(c->torch, i);
    /* What was written is not needed in memory any more. */
    if (i)
        xr_file_release(t[-1].data, (size_t)t[-1].span);
    *out = t->data;
    if (t->contiguous)
        return XRAY_OK;
    free(c->buffer);
    c->buffer = xr_calloc((size_t)t->count, t->width);
    if (!c->buffer)
        return xr_fail(err, XRAY_E_NOMEM,
                       "%s: tensor \"%.200s\": out of memory", c->from,
                       t->name);
    *out = c->buffer;
    xray_status status = XRAY_OK;
    for (uint64_t at = 0; !status && at < t->count; at += PIECE) {
        uint64_t count = t->count - at < PIECE ? t->count - at : PIECE;
        xm_torch_copy(t, at, count, (char *)c->buffer + at * t->width);
        status = xr_cancel_check(err);
    }
    return status;
}

static xray_status write_weights(conversion *c, xr_err *err)
{
    size_t count = xm_torch_count(c->torch);
    xm_st_item *items = xr_calloc(count, sizeof *items);
    const xm_st_feed feed = { feed_tensor, c, &xr_cancel_service };
    if (!items)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const xm_torch_tensor *t = xm_torch_at(c->torch, i);
        items[i] =
            (xm_st_item){ .name = t->name, .dtype = t->dtype, .dims = t->dims };
        memcpy(items[i].shape, t->shape, sizeof t->shape);
        c->bytes += t->count * t->width;
    }
    xray_status status =
        xm_st_write_model(c->temp, items, count, XM_ST_SHARD_BYTES, &feed, err);
    free(items);
    return status;
}

/* ---- the other files of the folder -------------------------------------- */

static int ends_with(const char *name, const char *end)
{
    size_t size = strlen(name);
    size_t tail = strlen(end);
    return size >= tail && strcmp(name + size - tail, end) == 0;
}

/* Weights in whatever format, and what a training left beside them. */
static int is_weights_file(const char *name)
{
    static const char *const ends[] = {
        ".bin", ".index.json", ".safetensors", ".pt", ".pth",  ".ckpt",
        ".h5",  ".msgpack",    ".gguf",        ".ot", ".onnx",
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(name, ends[i]))
            return 1;
    return 0;
}

static void list_name(xr_str *names, const char *name)
{
    xr_str_printf(names, "%s%s", names->size ? ", " : "", name);
}

static xray_status copy_entry(conversion *c, const char *name, xr_err *err)
{
    char from[XR_PATH_CAP];
    char to[XR_PATH_CAP];
    struct stat is;
    if (name[0] == '.' || strncmp(name, "pytorch_model", 13) == 0)
        return XRAY_OK;
    xray_status status = xr_path_join(c->folder, name, from, sizeof from, err);
    if (!status)
        status = xr_path_join(c->temp, name, to, sizeof to, err);
    if (status || xr_path_is_same(from, c->from))
        return status;
    int bad = stat(from, &is) ? errno : 0;
    if (bad && bad != ENOENT &&
        bad != ELOOP) /* links to nothing are left out */
        return xr_fail(err, XRAY_E_IO, "%s: cannot be copied: %s", from,
                       XR_SYSTEM_ERROR(bad));
    if (bad || !S_ISREG(is.st_mode) || is_weights_file(name)) {
        list_name(&c->left, name);
        return XRAY_OK;
    }
    list_name(&c->copied, name);
    return xr_file_copy(from, to, err);
}

static void free_names(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free((void *)names);
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Finds the folder of the model: IN, or that of the file IN if it is a model's,
 * which its config.json tells. */
static xray_status find_model_folder(conversion *c, xr_err *err)
{
    char config[XR_PATH_CAP];
    if (xr_path_is_dir(c->from)) {
        c->folder = xr_strdup(c->from);
    } else {
        c->folder = xr_path_parent(c->from);
        if (c->folder && (xr_path_join(c->folder, "config.json", config,
                                       sizeof config, NULL) != XRAY_OK ||
                          !xr_path_exists(config))) {
            free(c->folder);
            c->folder = NULL;
            return XRAY_OK;
        }
    }
    return c->folder ? XRAY_OK : xr_fail(err, XRAY_E_NOMEM, "out of memory");
}

/* Copies files in the order of their names, so that the report is the same on
 * every file system. */
static xray_status copy_files(conversion *c, xr_err *err)
{
    struct dirent **names = NULL;
    xray_status status = find_model_folder(c, err);
    if (status || !c->folder)
        return status;
    int count = scandir(c->folder, &names, NULL, compare_entries);
    if (count < 0)
        return xr_fail(err, XRAY_E_IO, "%s: cannot read the folder: %s",
                       c->folder, strerror(errno));
    for (int i = 0; !status && i < count; i++) {
        status = xr_cancel_check(err);
        if (!status)
            status = copy_entry(c, names[i]->d_name, err);
    }
    free_names(names, count);
    return status;
}

/* ---- the command -------------------------------------------------------- */

static xray_status check_target(conversion *c, xr_err *err)
{
    char file[XR_PATH_CAP];
    size_t size = strlen(c->to);
    while (size > 1 && c->to[size - 1] == '/')
        size--;
    int length =
        snprintf(c->temp, sizeof c->temp, "%.*s.tmp", (int)size, c->to);
    if (length < 0 || (size_t)length >= sizeof c->temp)
        return xr_fail(err, XRAY_E_CONFIG, "OUT: the path is too long");
    if (xr_path_exists(c->to))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: already exists; a conversion overwrites nothing",
                       c->to);
    if (xr_path_exists(c->temp))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: exists: an earlier conversion was killed, or one "
                       "is under way; remove the folder if none is",
                       c->temp);
    if (xr_path_join(c->from, "model.safetensors", file, sizeof file, NULL) ==
            XRAY_OK &&
        xr_path_exists(file))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: already holds model.safetensors, which is what "
                       "[model] path reads",
                       c->from);
    return XRAY_OK;
}

static xray_status convert_folder(conversion *c, xr_err *err)
{
    xray_status status = xr_dir_make(c->temp, err);
    if (status)
        return status;
    status = write_weights(c, err);
    if (!status)
        status = copy_files(c, err);
    if (!status)
        status = xr_dir_commit(c->temp, c->to, err);
    if (status)
        (void)xr_dir_remove(c->temp, NULL);
    return status;
}

static void report_conversion(const conversion *c)
{
    const char *member = xm_torch_member(c->torch);
    (void)printf("%s: %zu tensors, %llu bytes%s%s%s\n", c->to,
                 xm_torch_count(c->torch), (unsigned long long)c->bytes,
                 member ? ", those of \"" : "", member ? member : "",
                 member ? "\"" : "");
    if (c->copied.size)
        (void)printf("copied: %s\n", xr_str_text(&c->copied));
    if (c->left.size)
        (void)printf("left out: %s\n", xr_str_text(&c->left));
}

static int run_convert(const cli_args *args)
{
    xr_err err = { "" };
    conversion c = { .from = args->words.items[0], .to = args->words.items[1] };
    cli_stop_catch();
    xray_status status = check_target(&c, &err);
    if (!status)
        status = xm_torch_open(c.from, &err, &c.torch);
    if (!status)
        status = convert_folder(&c, &err);
    if (!status)
        report_conversion(&c);
    xm_torch_close(c.torch);
    xr_str_free(&c.copied);
    xr_str_free(&c.left);
    free(c.buffer);
    free(c.folder);
    if (!status)
        return CLI_OK;
    if (status != XRAY_E_CANCELED)
        return cli_fail(status, &err);
    cli_say("the conversion was stopped; %s was not made", c.to);
    return cli_stop_code();
}

static const cli_flag flags[] = { { 0 } };

const cli_command cli_convert = {
    .name = "convert",
    .usage = "IN OUT",
    .summary = "PyTorch's weights to safetensors",
    .about =
        "IN is a folder with pytorch_model.bin, or with shards and\n"
        "pytorch_model.bin.index.json, or a file that torch.save wrote. OUT is "
        "a new folder\nwith model.safetensors, or shards of 5 GB and their "
        "index, and with the other files\nof the model: config.json, "
        "tokenizer. Types are kept. Nothing in a file is executed:\none that "
        "asks for more than what makes tensors is refused.",
    .examples = "  xray convert gpt2 gpt2-safetensors\n"
                "  xray convert checkpoint.pt weights\n",
    .flags = flags,
    .min_words = 2,
    .max_words = 2,
    .run = run_convert,
};
