/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares numbers, expressions with variables, equations and matrices by
 * their values at sample points.
 */
#include "plugins/reward-rule/math_equal.h"

#include <math.h>

#define SAMPLES 8     /* sample points; the first five are positive */
#define MIN_SAMPLES 3 /* sample points at which both sides must have values */

typedef struct matrix {
    unsigned rows;
    unsigned columns;
    double complex at[RULE_ENTRIES];
} matrix;

rule_point rule_point_of(int sample, int sign, double percent)
{
    return (rule_point){ .sample = sample, .sign = sign, .percent = percent };
}

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

int rule_is_near(double complex a, double complex b, double scale)
{
    double size = larger_of(cabs(a), cabs(b));
    return cabs(a - b) <= 1e-9 * size + 1e-13 * scale;
}

/* Rounded decimals may differ by `tolerance`, but by no more than a twentieth
 * of the number. */
static int is_near_decimal(double difference, double size, double tolerance)
{
    return difference <= tolerance && difference <= 0.05 * size;
}

uint64_t rule_find_names(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    uint64_t bits = 0;
    tree->steps++;
    if (n->kind == RULE_NAME && n->name < RULE_NAMES)
        bits = (uint64_t)1 << n->name;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        bits |= rule_find_names(tree, child);
    return bits;
}

static int has_one_bit(uint64_t bits)
{
    return bits && !(bits & (bits - 1));
}

/* Compares by exact arithmetic: 1 if equal, 0 if not, -1 if it cannot decide.
 */
static int equal_exactly(const rule_equal_context *c, rule_item a, rule_item b,
                         double percent, int decimals)
{
    rule_ratio x;
    rule_ratio y;
    rule_point pa = rule_point_of(0, a.sign, percent);
    rule_point pb = rule_point_of(0, b.sign, percent);
    if (!rule_evaluate_exact(c->tree, a.node, &pa, &x) ||
        !rule_evaluate_exact(c->tree, b.node, &pb, &y))
        return -1;
    int order = rule_ratio_compare(&x, &y);
    if (order == 2)
        return -1;
    if (order == 0 || !decimals)
        return order == 0;
    double size =
        larger_of(fabs(rule_ratio_real(&x)), fabs(rule_ratio_real(&y)));
    y.negative = !y.negative;
    if (!rule_ratio_add(&x, &y))
        return -1;
    return is_near_decimal(fabs(rule_ratio_real(&x)), size, c->how->tolerance);
}

static int equal_at_sample(const rule_equal_context *c, const rule_item side[2],
                           rule_point point[2], int decimals, int *out_valid)
{
    double complex v[2] = { 0, 0 };
    int ok[2];
    for (int i = 0; i < 2; i++)
        ok[i] = rule_evaluate(c->tree, side[i].node, &point[i], &v[i]);
    *out_valid = 0;
    if (ok[0] != ok[1])
        return 0;
    int skipped = !ok[0] || (point[0].sample >= 5 &&
                             (point[0].branch || point[1].branch));
    if (skipped)
        return 1;
    *out_valid = 1;
    double scale = larger_of(point[0].scale, point[1].scale);
    if (rule_is_near(v[0], v[1], scale))
        return 1;
    return decimals &&
           is_near_decimal(cabs(v[0] - v[1]), larger_of(cabs(v[0]), cabs(v[1])),
                           c->how->tolerance);
}

static int equal_with_percent(const rule_equal_context *c, rule_item a,
                              rule_item b, double percent, unsigned bits)
{
    int decimals = (bits & RULE_HAS_DECIMAL) != 0;
    int variables = (bits & RULE_HAS_NAME) != 0;
    const rule_item side[2] = { a, b };
    if (!variables) {
        int exact = equal_exactly(c, a, b, percent, decimals);
        if (exact >= 0)
            return exact;
    }
    int bound = c->how->any_variables &&
                has_one_bit(rule_find_names(c->tree, a.node)) &&
                has_one_bit(rule_find_names(c->tree, b.node));
    int valid = 0;
    for (int i = 0; i < (variables ? SAMPLES : 1); i++) {
        int counted = 0;
        rule_point point[2] = { rule_point_of(i, a.sign, percent),
                                rule_point_of(i, b.sign, percent) };
        for (int k = 0; bound && k < 2; k++) {
            point[k].bound = 1;
            point[k].value = 0.7 + 0.37 * i;
        }
        if (!equal_at_sample(c, side, point, decimals, &counted))
            return 0;
        valid += counted;
    }
    return valid >= (variables ? MIN_SAMPLES : 1);
}

int rule_equal_scalars(const rule_equal_context *c, rule_item a, rule_item b)
{
    unsigned bits =
        rule_contents(c->tree, a.node) | rule_contents(c->tree, b.node);
    if (equal_with_percent(c, a, b, 1, bits))
        return 1;
    return (bits & RULE_HAS_PERCENT) && equal_with_percent(c, a, b, 0.01, bits);
}

/* Evaluates left - right of an equation at a sample point. */
static int evaluate_difference(const rule_equal_context *c,
                               const uint16_t sides[2], int sample,
                               double complex *out)
{
    rule_point point = rule_point_of(sample, 1, 1);
    double complex right = 0;
    if (!rule_evaluate(c->tree, sides[0], &point, out) ||
        !rule_evaluate(c->tree, sides[1], &point, &right))
        return 0;
    *out -= right;
    return point.sample < 5 || !point.branch;
}

int rule_equal_equations(const rule_equal_context *c, const uint16_t sides[4])
{
    double complex ratio = 0;
    int valid = 0;
    unsigned bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= rule_contents(c->tree, sides[i]);
    if (!(bits & RULE_HAS_NAME))
        return 0; /* any two numbers have a constant ratio */
    for (int i = 0; i < SAMPLES; i++) {
        double complex x = 0;
        double complex y = 0;
        if (!evaluate_difference(c, sides, i, &x) ||
            !evaluate_difference(c, sides + 2, i, &y))
            continue;
        if (cabs(y) < 1e-9 || cabs(x) < 1e-9)
            return 0;
        if (valid && cabs(x / y - ratio) > 1e-7 * cabs(ratio))
            return 0;
        ratio = x / y;
        valid++;
    }
    return valid >= MIN_SAMPLES;
}

static int evaluate_literal(const rule_equal_context *c, uint16_t node,
                            rule_point *point, matrix *out)
{
    const rule_node *n = &c->tree->node[node];
    unsigned i = 0;
    for (uint16_t child = n->first; child && i < RULE_ENTRIES;
         child = c->tree->node[child].next)
        if (!rule_evaluate(c->tree, child, point, &out->at[i++]))
            return 0;
    out->rows = n->rows ? n->rows : 1;
    out->columns = i / out->rows;
    return i > 0;
}

static int multiply_matrices(const matrix *a, const matrix *b, matrix *out)
{
    out->rows = a->rows;
    out->columns = b->columns;
    if (a->columns != b->rows || a->rows * b->columns > RULE_ENTRIES)
        return 0;
    for (unsigned i = 0; i < out->rows * out->columns; i++) {
        out->at[i] = 0;
        for (unsigned k = 0; k < a->columns; k++)
            out->at[i] += a->at[i / out->columns * a->columns + k] *
                          b->at[k * b->columns + i % out->columns];
    }
    return 1;
}

static void scale_matrix(matrix *a, double complex factor)
{
    for (unsigned i = 0; i < a->rows * a->columns; i++)
        a->at[i] *= factor;
}

static int evaluate_matrix(const rule_equal_context *c, uint16_t node,
                           rule_point *point, matrix *out);

static int apply_operand(const rule_equal_context *c, int kind, uint16_t node,
                         rule_point *point, matrix *out)
{
    matrix right;
    matrix product;
    if (!evaluate_matrix(c, node, point, &right))
        return 0;
    int scalar = right.rows * right.columns == 1;
    int left_scalar = out->rows * out->columns == 1;
    if (kind == RULE_DIVIDE || (kind == RULE_MULTIPLY && scalar)) {
        if (!scalar)
            return 0;
        scale_matrix(out, kind == RULE_DIVIDE ? 1 / right.at[0] : right.at[0]);
        return 1;
    }
    if (kind == RULE_MULTIPLY && left_scalar) {
        scale_matrix(&right, out->at[0]);
        *out = right;
        return 1;
    }
    if (kind == RULE_MULTIPLY) {
        if (!multiply_matrices(out, &right, &product))
            return 0;
        *out = product;
        return 1;
    }
    if (kind != RULE_ADD || out->rows != right.rows ||
        out->columns != right.columns)
        return 0;
    for (unsigned i = 0; i < out->rows * out->columns; i++)
        out->at[i] += right.at[i];
    return 1;
}

static int evaluate_matrix(const rule_equal_context *c, uint16_t node,
                           rule_point *point, matrix *out)
{
    const rule_node *n = &c->tree->node[node];
    if (!(rule_contents(c->tree, node) & RULE_HAS_MATRIX)) {
        out->rows = out->columns = 1;
        return rule_evaluate(c->tree, node, point, &out->at[0]);
    }
    if (n->kind == RULE_MATRIX)
        return evaluate_literal(c, node, point, out);
    if (!n->first || !evaluate_matrix(c, n->first, point, out))
        return 0;
    if (n->kind == RULE_NEGATE)
        scale_matrix(out, -1);
    for (uint16_t child = c->tree->node[n->first].next; child;
         child = c->tree->node[child].next)
        if (!apply_operand(c, n->kind, child, point, out))
            return 0;
    return n->kind == RULE_NEGATE || n->kind == RULE_ADD ||
           n->kind == RULE_MULTIPLY || n->kind == RULE_DIVIDE;
}

static int equal_entries(const rule_equal_context *c, const matrix *x,
                         const matrix *y, double scale, int decimals)
{
    if (x->rows != y->rows || x->columns != y->columns)
        return 0;
    for (unsigned i = 0; i < x->rows * x->columns; i++) {
        double complex a = x->at[i];
        double complex b = y->at[i];
        if (!rule_is_near(a, b, scale) &&
            !(decimals &&
              is_near_decimal(cabs(a - b), larger_of(cabs(a), cabs(b)),
                              c->how->tolerance)))
            return 0;
    }
    return 1;
}

int rule_equal_matrices(const rule_equal_context *c, uint16_t a, uint16_t b)
{
    unsigned bits = rule_contents(c->tree, a) | rule_contents(c->tree, b);
    int decimals = (bits & RULE_HAS_DECIMAL) != 0;
    int variables = (bits & RULE_HAS_NAME) != 0;
    int valid = 0;
    for (int i = 0; i < (variables ? SAMPLES : 1); i++) {
        rule_point pa = rule_point_of(i, 1, 1);
        rule_point pb = rule_point_of(i, 1, 1);
        matrix x;
        matrix y;
        if (!evaluate_matrix(c, a, &pa, &x) || !evaluate_matrix(c, b, &pb, &y))
            continue;
        if (i >= 5 && (pa.branch || pb.branch))
            continue;
        if (!equal_entries(c, &x, &y, larger_of(pa.scale, pb.scale), decimals))
            return 0;
        valid++;
    }
    return valid >= (variables ? MIN_SAMPLES : 1);
}
