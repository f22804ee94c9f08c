/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the cluster whether it could run what is set up, and has it run a
 * command line as a job of its own.
 */
#include <unistd.h>

#include "plugins/runtime-ray/ray.h"

#define CLOSE_MS 8000u

/* Asks the bridge once; *out_exit is the number in its answer. */
static xray_status ask_once(const char *what, const xray_launch_setup *setup,
                            const ray_config *config, const char *const *argv,
                            int32_t *out_exit)
{
    const ray_wait wait = { .host = setup->host,
                            .calls = xr_calls_of(setup->host),
                            .is = "done",
                            .out = argv ? STDOUT_FILENO : -1,
                            .asks = argv ? 1 : 0 };
    xr_err err = { "" };
    xr_str line = { 0 };
    ray_bridge bridge;
    cJSON *answer = NULL;
    int64_t number = 0;
    xray_status status = ray_bridge_open(config, &err, &bridge);
    if (status != XRAY_OK)
        return xr_host_tell(setup->host, status, what, &err);
    ray_request_open(what, setup, config, argv, &line);
    if (line.failed)
        status = xr_fail(&err, XRAY_E_NOMEM, "out of memory");
    if (status == XRAY_OK) {
        ray_bridge_send(&bridge, &line);
        status = ray_wait_answer(&wait, &bridge, &err, &answer);
    }
    if (status == XRAY_OK)
        (void)xr_json_int_or(answer, "exit", 0, what, NULL, &number);
    *out_exit = (int32_t)number;
    cJSON_Delete(answer);
    xr_str_free(&line);
    ray_bridge_close(&bridge, status == XRAY_E_CANCELED ? 0 : CLOSE_MS);
    return status == XRAY_OK ? status
                             : xr_host_tell(setup->host, status, what, &err);
}

xray_status ray_check(const xray_launch_setup *setup, const void *config)
{
    int32_t number = 0;
    return ask_once("check", setup, config, NULL, &number);
}

xray_status ray_submit(const xray_launch_setup *setup, const void *config,
                       const char *const *argv, int32_t *out_exit)
{
    return ask_once("submit", setup, config, argv, out_exit);
}
