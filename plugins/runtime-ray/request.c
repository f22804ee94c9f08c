/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the requests to the bridge, and waits for its answers.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/runtime-ray/ray.h"

#define WAIT_MS 50 /* between two looks at whether the host stops */

/* ---- requests ----------------------------------------------------------- */

static void put_text(xr_str *out, const char *key, const char *text)
{
    xr_str_printf(out, ",\"%s\":", key);
    xr_str_json(out, text, strlen(text));
}

static void put_texts(xr_str *out, const char *key, const char *const *texts,
                      uint64_t count)
{
    xr_str_printf(out, ",\"%s\":[", key);
    for (uint64_t i = 0; i < count; i++) {
        xr_str_puts(out, i ? "," : "");
        xr_str_json(out, texts[i], strlen(texts[i]));
    }
    xr_str_puts(out, "]");
}

static void put_words(xr_str *out, const char *const *argv)
{
    uint64_t count = 0;
    while (argv && argv[count])
        count++;
    put_texts(out, "argv", argv, count);
}

static void put_places(xr_str *out, const xray_launch_setup *setup)
{
    const char *at = (const char *)setup->places;
    xr_str_puts(out, ",\"places\":[");
    for (uint32_t i = 0; i < setup->count; i++, at += setup->place_stride) {
        const xray_launch_place *place = (const void *)at;
        xr_str_puts(out, i ? ",{\"name\":" : "{\"name\":");
        xr_str_json(out, place->name, strlen(place->name));
        xr_str_printf(out,
                      ",\"devices\":%" PRIu32 ",\"threads\":%" PRIu32
                      ",\"memory\":%" PRIu64 "}",
                      place->devices, place->threads, place->memory);
    }
    xr_str_puts(out, "]");
}

/* The folder of the plugins is that of this one, which may have been loaded by
 * a link. */
static void put_plugins(xr_str *out)
{
    Dl_info info;
    char *module =
        dladdr(&ray_ops, &info) ? realpath(info.dli_fname, NULL) : NULL;
    char *slash = module ? strrchr(module, '/') : NULL;
    if (slash)
        *slash = '\0';
    put_text(out, "plugins", slash ? module : "");
    free(module);
}

void ray_request_open(const char *what, const xray_launch_setup *setup,
                      const ray_config *config, const char *const *argv,
                      xr_str *out)
{
    static const char *const placements[] = { [RAY_PACK] = "pack",
                                              [RAY_SPREAD] = "spread",
                                              [RAY_STRICT_PACK] =
                                                  "strict_pack" };
    xr_str_puts(out, "{\"do\":");
    xr_str_json(out, what, strlen(what));
    put_text(out, "address", config->address);
    put_text(out, "placement", placements[config->placement]);
    put_texts(out, "resources", config->resources.items,
              config->resources.count);
    put_text(out, "namespace", config->namespace);
    put_text(out, "runtime_env", config->runtime_env);
    xr_str_printf(out, ",\"autoscale\":%s,\"again\":%s",
                  config->autoscale ? "true" : "false",
                  setup->restarts ? "true" : "false");
    put_text(out, "title", setup->run);
    put_text(out, "program", setup->program);
    put_text(out, "build", setup->build);
    put_text(out, "folder", setup->folder);
    put_texts(out, "paths", setup->paths, setup->path_count);
    put_plugins(out);
    put_places(out, setup);
    put_words(out, argv);
    xr_str_puts(out, "}\n");
}

void ray_request_start(const xray_launch *launch, uint64_t turn, xr_str *out)
{
    xr_str_printf(out,
                  "{\"do\":\"start\",\"index\":%" PRIu32 ",\"turn\":%" PRIu64,
                  launch->index, turn);
    put_text(out, "token", launch->token);
    put_words(out, launch->argv);
    xr_str_puts(out, "}\n");
}

void ray_request_stop(uint32_t index, uint64_t turn, xr_str *out)
{
    xr_str_printf(
        out, "{\"do\":\"stop\",\"index\":%" PRIu32 ",\"turn\":%" PRIu64 "}\n",
        index, turn);
}

/* ---- answers ------------------------------------------------------------ */

static const char *text_of(const cJSON *message, const char *key)
{
    const char *text = "";
    (void)xr_json_string_or(message, key, "", "", NULL, &text);
    return text;
}

int ray_log_message(const xray_host *host, const cJSON *message)
{
    int64_t level = XRAY_LOG_WARN;
    if (strcmp(text_of(message, "is"), "log") != 0)
        return 0;
    (void)xr_json_int_or(message, "level", level, "", NULL, &level);
    char *line = xr_strdup(text_of(message, "text"));
    if (line) {
        xr_one_line(line);
        host->log(host, (uint32_t)level, line);
    }
    free(line);
    return 1;
}

/* The sentence is the bridge's; that of an option begins after its name. */
static xray_status fail_as_told(const cJSON *message, xr_err *err)
{
    const char *word = text_of(message, "status");
    const char *key = text_of(message, "key");
    const char *text = text_of(message, "text");
    xray_status status = strcmp(word, "config") == 0        ? XRAY_E_CONFIG
                         : strcmp(word, "unsupported") == 0 ? XRAY_E_UNSUPPORTED
                                                            : XRAY_E_IO;
    return *key ? xr_fail_key(err, status, NULL, key, "%s", text)
                : xr_fail(err, status, "%s", text);
}

static void write_text(int out, const char *text)
{
    size_t left = strlen(text);
    while (left) {
        ssize_t n = write(out, text, left);
        if (n <= 0)
            return;
        text += n;
        left -= (size_t)n;
    }
}

/* Returns 1 if the wait is over. */
static int judge_message(const ray_wait *wait, const cJSON *message,
                         xr_err *err, xray_status *out)
{
    const char *is = text_of(message, "is");
    *out = XRAY_OK;
    if (strcmp(is, wait->is) == 0)
        return 1;
    if (strcmp(is, "failed") == 0) {
        *out = fail_as_told(message, err);
        return 1;
    }
    if (wait->out >= 0 && strcmp(is, "out") == 0)
        write_text(wait->out, text_of(message, "text"));
    else
        (void)ray_log_message(wait->host, message);
    return 0;
}

/* Once the host stops: the end of the wait, or of the first of its parts. */
static xray_status obey_stop(const ray_wait *wait, ray_bridge *bridge,
                             int *asked, xr_err *err)
{
    if (*asked)
        return XRAY_OK;
    xray_status status = xr_stop_check(wait->calls, err);
    if (status == XRAY_OK || !wait->asks)
        return status;
    xr_str line = { 0 };
    xr_str_puts(&line, "{\"do\":\"cancel\"}\n");
    ray_bridge_send(bridge, &line);
    xr_str_free(&line);
    *asked = 1;
    if (err)
        err->text[0] = '\0';
    return XRAY_OK;
}

xray_status ray_wait_answer(const ray_wait *wait, ray_bridge *bridge,
                            xr_err *err, cJSON **out)
{
    int asked = 0;
    for (;;) {
        cJSON *message = NULL;
        xray_status status = obey_stop(wait, bridge, &asked, err);
        if (status != XRAY_OK)
            return status;
        int found = ray_bridge_receive(bridge, WAIT_MS, &message);
        if (found == RAY_ENDED)
            return xr_fail(err, XRAY_E_IO, "%s", bridge->why);
        if (found == RAY_NOTHING)
            continue;
        int over = judge_message(wait, message, err, &status);
        if (over && status == XRAY_OK && out)
            *out = message;
        else
            cJSON_Delete(message);
        if (over)
            return status;
    }
}
