/* SPDX-License-Identifier: Apache-2.0
 *
 * A Workhorse with a run, roles and a process made for tests. The linker puts
 * them in place of those that its text describes.
 */
#ifndef TESTS_RL_WORKHORSE_RIG_H
#define TESTS_RL_WORKHORSE_RIG_H

#include "core/roles/wire.h"
#include "core/roles/workhorse.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

#define RANK 3
#define MOST_ROWS 4

/* The arguments and the answers of the process around a Workhorse. */
typedef struct workhorse_process {
    char folders[64]; /* "none": no folder */
    uint32_t with;
    char seed[16];    /* [run] seed of the INI */
    uint32_t refused; /* 1: the configuration is refused */
    uint32_t freed;   /* runs that were freed */
    uint32_t closed;  /* roles that were freed */
    char phase[64];
    xr_rank_link link;
    xray_status start; /* status of starting the roles */
    xray_status gather;
    xray_status publish;
} workhorse_process;
extern workhorse_process around;

/* A trainer, an engine and a device. */
typedef struct workhorse_plugins {
    char log[1024];
    xray_status status; /* status of every call */
    int bad_row;        /* row_id of the row whose log-probs are NaN, or -1 */
    xray_step_result step;
    xray_request asked[8];
    uint32_t requests;
    uint32_t given;
} workhorse_plugins;
extern workhorse_plugins fake;

extern xr_run run;
extern xr_roles roles;
extern xray_comm_trace traces[RANK + 2];
extern void *horse;
extern xr_err horse_err;

/* Expects these calls of plugins since the last check. */
void expect_log(const char *want);
/* Creates `horse` from a text. */
xray_status create_horse(const char *text);
xr_actor_fn find_method(const char *name);
int begin_test(void **state);
int end_test(void **state);

typedef xray_status (*batch_method)(void *self, uint32_t role,
                                    xray_region *region,
                                    xray_region **out_results, xr_err *why);
typedef xray_status (*loss_method)(void *self, uint32_t role,
                                   xray_region *region,
                                   xray_region **out_results, xr_str *out_fault,
                                   xr_err *why);
typedef xray_status (*role_method)(void *self, uint32_t role, xr_err *why);
typedef xray_status (*plain_method)(void *self, xr_err *why);
typedef xray_status (*file_method)(void *self, uint32_t role, const char *dir,
                                   xr_err *why);
typedef xray_status (*step_method)(void *self, uint32_t role, double lr,
                                   double max_norm, double *norm,
                                   uint32_t *skipped, uint64_t *version,
                                   xr_str *bad, xr_err *why);
typedef xray_status (*ship_method)(void *self, xray_region *region, uint64_t at,
                                   uint64_t bytes, xray_region **out_results,
                                   xr_err *why);
typedef xray_status (*receive_method)(void *self, const xray_region *region,
                                      uint64_t bytes, uint64_t *out_bytes,
                                      xr_err *why);
typedef xray_status (*region_method)(void *self, xray_region *region,
                                     xray_region **out_results, xr_err *why);
typedef xray_status (*count_method)(void *self, uint64_t *out, xr_err *why);
typedef xray_status (*text_method)(void *self, xr_str *out, xr_err *why);

#define METHOD(type, name) ((type)(void (*)(void))find_method(name))

#define TEXT "133 /one:/two\n\n[run]\nseed = 12\n"

#endif
