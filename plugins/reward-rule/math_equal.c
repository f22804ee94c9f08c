/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/math_equal.h"

#include <math.h>

#define SAMPLES 8 /* the first five are positive */
#define FEWEST 3  /* samples that must have had values */

typedef struct matrix {
    unsigned rows;
    unsigned columns;
    double complex at[RULE_ENTRIES];
} matrix;

rule_point rule_point_of(int sample, int sign, double percent)
{
    return (rule_point){ .sample = sample, .sign = sign, .percent = percent };
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

int rule_near(double complex a, double complex b, double scale)
{
    double size = larger(cabs(a), cabs(b));
    return cabs(a - b) <= 1e-9 * size + 1e-13 * scale;
}

/* Rounded decimals: `tolerance`, but at most a twentieth of the number. */
static int near_decimals(double difference, double size, double tolerance)
{
    return difference <= tolerance && difference <= 0.05 * size;
}

uint64_t rule_names(rule_tree *tree, uint16_t node)
{
    const rule_node *n = &tree->node[node];
    uint64_t bits = 0;
    tree->steps++;
    if (n->kind == RULE_NAME && n->name < RULE_NAMES)
        bits = (uint64_t)1 << n->name;
    for (uint16_t child = n->first; child; child = tree->node[child].next)
        bits |= rule_names(tree, child);
    return bits;
}

static int one_bit(uint64_t bits)
{
    return bits && !(bits & (bits - 1));
}

/* -1 if it cannot be told exactly. */
static int equal_exactly(const rule_equal_context *c, rule_item a, rule_item b,
                         double percent, int decimals)
{
    rule_ratio x;
    rule_ratio y;
    rule_point pa = rule_point_of(0, a.sign, percent);
    rule_point pb = rule_point_of(0, b.sign, percent);
    if (!rule_exact(c->tree, a.node, &pa, &x) ||
        !rule_exact(c->tree, b.node, &pb, &y))
        return -1;
    int order = rule_ratio_compare(&x, &y);
    if (order == 2)
        return -1;
    if (order == 0 || !decimals)
        return order == 0;
    double size = larger(fabs(rule_ratio_real(&x)), fabs(rule_ratio_real(&y)));
    y.negative = !y.negative;
    if (!rule_ratio_add(&x, &y))
        return -1;
    return near_decimals(fabs(rule_ratio_real(&x)), size, c->how->tolerance);
}

static int equal_at(const rule_equal_context *c, const rule_item side[2],
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
    double scale = larger(point[0].scale, point[1].scale);
    if (rule_near(v[0], v[1], scale))
        return 1;
    return decimals &&
           near_decimals(cabs(v[0] - v[1]), larger(cabs(v[0]), cabs(v[1])),
                         c->how->tolerance);
}

static int equal_with(const rule_equal_context *c, rule_item a, rule_item b,
                      double percent, unsigned bits)
{
    int decimals = (bits & RULE_HAS_DECIMAL) != 0;
    int variables = (bits & RULE_HAS_NAME) != 0;
    const rule_item side[2] = { a, b };
    if (!variables) {
        int exact = equal_exactly(c, a, b, percent, decimals);
        if (exact >= 0)
            return exact;
    }
    int bound = c->how->any_variables && one_bit(rule_names(c->tree, a.node)) &&
                one_bit(rule_names(c->tree, b.node));
    int valid = 0;
    for (int i = 0; i < (variables ? SAMPLES : 1); i++) {
        int counted = 0;
        rule_point point[2] = { rule_point_of(i, a.sign, percent),
                                rule_point_of(i, b.sign, percent) };
        for (int k = 0; bound && k < 2; k++) {
            point[k].bound = 1;
            point[k].value = 0.7 + 0.37 * i;
        }
        if (!equal_at(c, side, point, decimals, &counted))
            return 0;
        valid += counted;
    }
    return valid >= (variables ? FEWEST : 1);
}

int rule_equal_scalars(const rule_equal_context *c, rule_item a, rule_item b)
{
    unsigned bits =
        rule_contents(c->tree, a.node) | rule_contents(c->tree, b.node);
    if (equal_with(c, a, b, 1, bits))
        return 1;
    return (bits & RULE_HAS_PERCENT) && equal_with(c, a, b, 0.01, bits);
}

/* left - right of an equation at a sample. */
static int difference(const rule_equal_context *c, const uint16_t sides[2],
                      int sample, double complex *out)
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
    for (int i = 0; i < SAMPLES; i++) {
        double complex x = 0;
        double complex y = 0;
        if (!difference(c, sides, i, &x) || !difference(c, sides + 2, i, &y))
            continue;
        if (cabs(y) < 1e-9 || cabs(x) < 1e-9)
            return 0;
        if (valid && cabs(x / y - ratio) > 1e-7 * cabs(ratio))
            return 0;
        ratio = x / y;
        valid++;
    }
    return valid >= FEWEST;
}

static int matrix_literal(const rule_equal_context *c, uint16_t node,
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

static int matrix_product(const matrix *a, const matrix *b, matrix *out)
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

static void matrix_scale(matrix *a, double complex factor)
{
    for (unsigned i = 0; i < a->rows * a->columns; i++)
        a->at[i] *= factor;
}

static int matrix_value(const rule_equal_context *c, uint16_t node,
                        rule_point *point, matrix *out);

static int matrix_join(const rule_equal_context *c, int kind, uint16_t node,
                       rule_point *point, matrix *out)
{
    matrix right;
    matrix product;
    if (!matrix_value(c, node, point, &right))
        return 0;
    int scalar = right.rows * right.columns == 1;
    int left_scalar = out->rows * out->columns == 1;
    if (kind == RULE_DIVIDE || (kind == RULE_MULTIPLY && scalar)) {
        if (!scalar)
            return 0;
        matrix_scale(out, kind == RULE_DIVIDE ? 1 / right.at[0] : right.at[0]);
        return 1;
    }
    if (kind == RULE_MULTIPLY && left_scalar) {
        matrix_scale(&right, out->at[0]);
        *out = right;
        return 1;
    }
    if (kind == RULE_MULTIPLY) {
        if (!matrix_product(out, &right, &product))
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

static int matrix_value(const rule_equal_context *c, uint16_t node,
                        rule_point *point, matrix *out)
{
    const rule_node *n = &c->tree->node[node];
    if (!(rule_contents(c->tree, node) & RULE_HAS_MATRIX)) {
        out->rows = out->columns = 1;
        return rule_evaluate(c->tree, node, point, &out->at[0]);
    }
    if (n->kind == RULE_MATRIX)
        return matrix_literal(c, node, point, out);
    if (!n->first || !matrix_value(c, n->first, point, out))
        return 0;
    if (n->kind == RULE_NEGATE)
        matrix_scale(out, -1);
    for (uint16_t child = c->tree->node[n->first].next; child;
         child = c->tree->node[child].next)
        if (!matrix_join(c, n->kind, child, point, out))
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
        if (!rule_near(a, b, scale) &&
            !(decimals && near_decimals(cabs(a - b), larger(cabs(a), cabs(b)),
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
        if (!matrix_value(c, a, &pa, &x) || !matrix_value(c, b, &pb, &y))
            continue;
        if (i >= 5 && (pa.branch || pb.branch))
            continue;
        if (!equal_entries(c, &x, &y, larger(pa.scale, pb.scale), decimals))
            return 0;
        valid++;
    }
    return valid >= (variables ? FEWEST : 1);
}
