/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of graders. A grader is one file that defines rule_grader_NAME, and
 * one line here; keys of its own go into rule_config and rule_options.
 */
#ifndef RULE_GRADERS_H
#define RULE_GRADERS_H

/* NAME is the value of the key `grader`; the text is its line of help. */
#define RULE_GRADERS(X)                                  \
    X(exact, "the response is the ground truth")         \
    X(numeric, "a number of the response is near it")    \
    X(regex, "what a pattern finds is the ground truth") \
    X(gsm8k, "verl's GSM8K scorer")

#endif
