/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares exp and log with equal bits on every machine, and the
 * value-and-derivative pair of model/rl. This folder holds the pure functions
 * of reinforcement learning that algorithms share, in double precision, without
 * allocation or state. Its comments name verl (verl/trainer/ppo/core_algos.py),
 * OpenRLHF, TRL, trlX, NeMo-RL, SkyRL, slime and open-instruct; the versions
 * are in docs/algorithms.md.
 */
#ifndef XM_RL_PORTABLE_MATH_H
#define XM_RL_PORTABLE_MATH_H

/* A function's value, and its derivative with respect to the token's current
 * log-probability or value estimate. */
typedef struct xm_rl_term {
    double value;
    double slope;
} xm_rl_term;

/* exp(x), correct to about one unit in the last place, from additions and
 * multiplications alone, so that its bits are the same wherever it runs;
 * exp(0) is exactly 1. */
double xm_rl_exp(double x);

/* Natural logarithm, likewise; log(1) is exactly 0. NaN below 0, -inf at 0. */
double xm_rl_log(double x);

#endif
