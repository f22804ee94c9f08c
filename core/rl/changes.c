/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the configuration of a run and its input files with those of a
 * checkpoint.
 */
#include "core/rl/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"

void xr_changes_free(xr_changes *changes)
{
    xr_errors_free(&changes->harmless);
    xr_errors_free(&changes->meaning);
}

/* ---- which keys matter -------------------------------------------------- */

typedef struct key_rule {
    const char *section; /* a name ending in '.' matches every section that
                          * begins with it */
    const char *key;     /* NULL matches every key */
    int kind;
} key_rule;

enum { CHANGE_TOLD, CHANGE_QUIET, CHANGE_MEANING };

/* The first rule that matches decides. A change of a key without a rule is
 * reported. */
static const key_rule rules[] = {
    { "run", "seed",
      CHANGE_QUIET }, /* xr_checkpoint_read refuses another seed */
    { "run", "threads", CHANGE_QUIET },
    { "run", "log", CHANGE_QUIET },
    { "run", "plugin_timeout", CHANGE_QUIET },
    { "run", "comm_timeout", CHANGE_QUIET },
    { "run", "max_restarts", CHANGE_QUIET },
    { "runtime", NULL, CHANGE_QUIET },
    { "runtime.", NULL, CHANGE_QUIET },
    { "run", "reward", CHANGE_MEANING },
    { "run", "algo", CHANGE_MEANING },
    { "algo.", "preset", CHANGE_MEANING },
    { "reward.train.", NULL, CHANGE_TOLD },
    { "reward.", NULL, CHANGE_MEANING },
    { "tracker.", NULL, CHANGE_QUIET },
    { "model", "path", CHANGE_MEANING },
    { "model", "tokenizer_path", CHANGE_MEANING },
    { "data", "train_batch_size", CHANGE_TOLD },
    { "data", "val_batch_size", CHANGE_QUIET },
    { "data", NULL, CHANGE_MEANING },
    { "rollout.val", NULL, CHANGE_MEANING },
    { "trainer", "total_epochs", CHANGE_TOLD },
    { "trainer", "total_training_steps", CHANGE_TOLD },
    { "trainer", "on_nonfinite", CHANGE_TOLD },
    { "trainer", "critic_warmup", CHANGE_TOLD },
    { "trainer", NULL, CHANGE_QUIET },
};

static int find_change_kind(const char *section, const char *key)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const key_rule *r = &rules[i];
        size_t size = strlen(r->section);
        int exact = r->section[size - 1] != '.';
        if (strncmp(section, r->section, size + (exact ? 1 : 0)) == 0 &&
            (!r->key || strcmp(key, r->key) == 0))
            return r->kind;
    }
    return CHANGE_TOLD;
}

/* 1 and 1.0 are the same number. */
static int is_same_value(const char *a, const char *b)
{
    double x = 0;
    double y = 1;
    return strcmp(a, b) == 0 ||
           (xr_parse_real(a, &x) == 0 && xr_parse_real(b, &y) == 0 &&
            !(x < y) && !(x > y));
}

/* ---- files -------------------------------------------------------------- */

/* Adds a path; those of rows may be folders or patterns. */
static xray_status add_input(xr_history *history, const char *key,
                             const char *path, xr_err *err)
{
    xr_file_list found = { NULL, 0 };
    const xray_list names = { &path, 1 };
    if (strcmp(key, "data.train_files") != 0 &&
        strcmp(key, "data.val_files") != 0)
        return xr_history_input(history, key, path, err);
    xray_status status = xr_file_list_find(&names, err, &found);
    for (uint64_t i = 0; i < found.count && status == XRAY_OK; i++)
        status = xr_history_input(history, key, found.items[i], err);
    xr_file_list_free(&found);
    return status;
}

xray_status xr_changes_add_inputs(const xr_run *run, xr_history *history,
                                  xr_err *err)
{
    xr_config_value v;
    size_t at[2] = { 0, 0 };
    xray_status status = XRAY_OK;
    while (status == XRAY_OK && xr_config_next(run->config, at, &v)) {
        char key[200];
        if (!v.is_paths || find_change_kind(v.section, v.key) != CHANGE_MEANING)
            continue;
        (void)snprintf(key, sizeof(key), "%s.%s", v.section, v.key);
        for (const char *item = v.text; status == XRAY_OK && *item;) {
            size_t size = strcspn(item, ",");
            char *path = xr_strndup(item, size);
            status = path ? add_input(history, key, path, err)
                          : xr_fail(err, XRAY_E_NOMEM, "out of memory");
            free(path);
            item += size;
            item += strspn(item, ", ");
        }
    }
    return status;
}

/* Returns the first input of `key` after `last`, or the first of all if `last`
 * is NULL; NULL if there is none. */
static const xr_input *find_next_input(const xr_history *h, const char *key,
                                       const xr_input *last)
{
    size_t i = last ? (size_t)(last - h->inputs) + 1 : 0;
    for (; i < h->input_count; i++)
        if (strcmp(h->inputs[i].key, key) == 0)
            return &h->inputs[i];
    return NULL;
}

/* Returns 1 if both runs read files of the same content under the key, in the
 * same order. Otherwise *out is the first differing file of the present run, or
 * NULL if it only lacks files. */
static int have_same_inputs(const xr_history *now, const xr_history *then,
                            const char *key, const xr_input **out)
{
    const xr_input *a = find_next_input(now, key, NULL);
    const xr_input *b = find_next_input(then, key, NULL);
    while (a && b && a->hash == b->hash) {
        a = find_next_input(now, key, a);
        b = find_next_input(then, key, b);
    }
    *out = a;
    return !a && !b;
}

/* ---- comparing ---------------------------------------------------------- */

typedef struct comparison {
    const xr_config *now;
    const xr_config *then;
    const xr_history *inputs;
    const xr_history *inputs_then;
    const char *checkpoint;
    xr_changes *out;
} comparison;

#define NO_MEMORY                                               \
    "out of memory" /* the text that xr_errors_add uses as well \
                     */

/* Adds the line to the list of its kind and frees it. */
static void add_change_line(const comparison *c, int kind, xr_str *line)
{
    xr_errors_add(kind == CHANGE_MEANING ? &c->out->meaning : &c->out->harmless,
                  "%s", line->failed ? NO_MEMORY : xr_str_text(line));
    xr_str_free(line);
}

/* A line lost for lack of memory might have been the one that refuses the
 * resume. */
static int lost_a_line(const xr_errors *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        if (strcmp(lines->items[i], NO_MEMORY) == 0)
            return 1;
    return 0;
}

static void add_changed_value(const comparison *c, int kind,
                              const xr_config_value *v, const char *was)
{
    xr_str line = { 0 };
    xr_str_printf(&line, "%s: [%s] %s is ", v->given ? v->origin : "default",
                  v->section, v->key);
    xr_config_put_value(v->text, &line);
    xr_str_puts(&line, was ? ", was " : ", was not set");
    if (was)
        xr_config_put_value(was, &line);
    xr_str_printf(&line, " in %s", c->checkpoint);
    add_change_line(c, kind, &line);
}

/* A path may change while the content stays the same, and the content may
 * change under the same path. */
static void compare_key_value(const comparison *c, const xr_config_value *v)
{
    char key[200];
    const xr_input *other = NULL;
    const char *was = xr_config_get(c->then, v->section, v->key);
    int kind = find_change_kind(v->section, v->key);
    if (kind == CHANGE_QUIET || (!was && !v->given))
        return;
    (void)snprintf(key, sizeof(key), "%s.%s", v->section, v->key);
    int known = v->is_paths && find_next_input(c->inputs_then, key, NULL);
    int same =
        known && have_same_inputs(c->inputs, c->inputs_then, key, &other);
    if (was && is_same_value(was, v->text)) {
        xr_str line = { 0 };
        if (!known || same)
            return;
        xr_str_printf(&line,
                      "%s: [%s] %s: %s has other content than it had in %s",
                      v->origin, v->section, v->key,
                      other ? other->path : v->text, c->checkpoint);
        add_change_line(c, kind, &line);
        return;
    }
    if (strcmp(key, "run.algo") == 0)
        c->out->algorithm = 1;
    add_changed_value(c, same ? CHANGE_TOLD : kind, v, was);
}

/* Reports a key that the checkpoint's run read and this run does not. A section
 * that is no longer read at all gets one line. */
static void compare_removed_key(const comparison *c, const xr_config_value *v,
                                char *last, size_t cap)
{
    xr_config_value now;
    size_t at[2] = { 0, 0 };
    int section = 0;
    int kind = find_change_kind(v->section, v->key);
    while (xr_config_next(c->now, at, &now)) {
        if (strcmp(now.section, v->section) != 0)
            continue;
        section = 1;
        if (strcmp(now.key, v->key) == 0)
            return;
    }
    if (kind == CHANGE_QUIET || (!section && strcmp(last, v->section) == 0))
        return;
    xr_str line = { 0 };
    xr_str_printf(&line, "[%s]", v->section);
    if (section) {
        xr_str_printf(&line, " %s is not set, was ", v->key);
        xr_config_put_value(v->text, &line);
        xr_str_printf(&line, " in %s", c->checkpoint);
    } else {
        xr_str_printf(&line, " is not read, was in %s", c->checkpoint);
        (void)snprintf(last, cap, "%s", v->section);
    }
    add_change_line(c, kind, &line);
}

void xr_changes_refuse(const xr_run *run, const char *checkpoint,
                       const xr_changes *changes, xr_errors *errors)
{
    xr_errors_add(
        errors,
        "resume from %s: the meaning of scores has changed; %s:", checkpoint,
        run->in_comparison ? "give the changed runs another --out"
                           : "resume anyway with --accept-changes, or start a "
                             "new run in another [trainer] default_local_dir");
    for (size_t i = 0; i < changes->meaning.count; i++)
        xr_errors_add(errors, "%s", changes->meaning.items[i]);
}

xray_status xr_changes_find(const xr_run *run, const char *checkpoint,
                            const xr_history *now, const xr_history *then,
                            xr_err *err, xr_changes *out)
{
    char path[XR_PATH_CAP];
    char last[200] = "";
    xr_errors errors = { 0 };
    xr_config_value v;
    size_t at[2] = { 0, 0 };
    *out = (xr_changes){ .algorithm = 0 };
    xray_status status =
        xr_path_join(checkpoint, "run.ini", path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    xr_config *before = xr_config_new();
    if (before)
        xr_config_read(before, path, &errors);
    if (!before || xr_config_failed(before))
        status = xr_fail(err, XRAY_E_NOMEM, "%s: " NO_MEMORY, path);
    else if (errors.count)
        status = xr_fail(err, XRAY_E_IO, "%s", errors.items[0]);
    const comparison c = { run->config, before, now, then, checkpoint, out };
    while (status == XRAY_OK && xr_config_next(run->config, at, &v))
        compare_key_value(&c, &v);
    at[0] = at[1] = 0;
    while (status == XRAY_OK && xr_config_next(before, at, &v))
        compare_removed_key(&c, &v, last, sizeof(last));
    if (status == XRAY_OK &&
        (lost_a_line(&out->harmless) || lost_a_line(&out->meaning)))
        status = xr_fail(err, XRAY_E_NOMEM, "%s: " NO_MEMORY, path);
    xr_config_free(before);
    xr_errors_free(&errors);
    return status;
}
