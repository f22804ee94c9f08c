/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates expressions, as complex numbers at a sample point or as exact
 * rational numbers.
 */
#include <math.h>

#include "plugins/reward-rule/math_tree.h"

#define PI 3.14159265358979323846

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

/* Mixes the hash of a name and a sample number into a number in [0, 1), with
 * the finaliser of splitmix64. */
static double hash_to_fraction(uint64_t hash, int sample)
{
    uint64_t z = hash + 0x9E3779B97F4A7C15u * (uint64_t)(sample + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * (1.0 / 9007199254740992.0);
}

/* All names are positive at the first five sample points and negative at the
 * sixth. At the last two, their signs differ from each other. */
static double evaluate_name(const rule_tree *tree, uint16_t name,
                            const rule_point *point)
{
    uint64_t hash = name < RULE_NAMES ? tree->name[name] : 0;
    if (point->bound)
        return point->value;
    double size = 0.3 + 2 * hash_to_fraction(hash, point->sample);
    int negative = point->sample == 5 ||
                   (point->sample > 5 &&
                    (hash_to_fraction(hash, 5) < 0.5) == (point->sample == 6));
    return negative ? -size : size;
}

static int is_finite_value(double complex z)
{
    return isfinite(creal(z)) && isfinite(cimag(z));
}

static int is_real_value(double complex z)
{
    return fabs(cimag(z)) <= 1e-12 * larger_of(1, fabs(creal(z)));
}

static int is_integer(double x)
{
    return fabs(x) < 1e9 && x == floor(x);
}

/* A negated real number has the imaginary part -0, which would place it on the
 * other side of the branch cut of roots and logarithms along the negative
 * numbers. */
static double complex move_above_cut(double complex z)
{
    double complex real = creal(z);
    return cimag(z) == 0 ? real : z;
}

static double complex evaluate_power(double complex a, double complex b,
                                     rule_point *point)
{
    a = move_above_cut(a);
    int whole = is_real_value(b) && is_integer(creal(b));
    if (whole && fabs(creal(b)) <= 64) {
        int count = (int)fabs(creal(b));
        double complex out = 1;
        while (count-- > 0)
            out *= a;
        return creal(b) < 0 ? 1 / out : out;
    }
    if (!whole && (!is_real_value(a) || creal(a) < 0))
        point->branch = 1;
    if (creal(a) == 0 && cimag(a) == 0)
        return creal(b) > 0 ? 0 : NAN;
    point->scale = larger_of(point->scale, cabs(b));
    return is_real_value(a) && is_real_value(b) && creal(a) > 0
               ? pow(creal(a), creal(b))
               : cpow(a, b);
}

/* Odd real roots of negative numbers are real. */
static double complex evaluate_root(double complex a, double complex n,
                                    rule_point *point)
{
    a = move_above_cut(a);
    if (is_real_value(n) && creal(n) == 2) {
        int real = is_real_value(a) && creal(a) >= 0;
        point->branch |= !real;
        return real ? sqrt(creal(a)) : csqrt(a);
    }
    int odd =
        is_real_value(n) && is_integer(creal(n)) && fmod(creal(n), 2) != 0;
    if (odd && is_real_value(a) && creal(a) < 0) {
        point->branch = 1;
        return -pow(-creal(a), 1 / creal(n));
    }
    return evaluate_power(a, 1 / n, point);
}

static double complex evaluate_logarithm(double complex a, rule_point *point)
{
    a = move_above_cut(a);
    if (!is_real_value(a) || creal(a) <= 0)
        point->branch = 1;
    point->scale = larger_of(point->scale, 1);
    return is_real_value(a) && creal(a) > 0 ? log(creal(a)) : clog(a);
}

static double complex evaluate_factorial(double complex a)
{
    double x = creal(a);
    if (!is_real_value(a) || x < -20 || x > 170)
        return NAN;
    if (!is_integer(x))
        return tgamma(x + 1);
    double out = 1;
    for (int i = (int)x; i > 1; i--)
        out *= i;
    return x < 0 ? NAN : out;
}

static double complex evaluate_binomial(double complex a, double complex b)
{
    double k = creal(b);
    double complex out = 1;
    if (!is_real_value(b) || !is_integer(k) || k < 0 || k > 1000)
        return NAN;
    for (int i = 0; i < (int)k; i++)
        out = out * (a - i) / (i + 1);
    return out;
}

/* Integers beyond 2^53 are not exact in a double. */
static double complex evaluate_modulo(double complex a, double complex b)
{
    double x = creal(a);
    double y = creal(b);
    if (!is_real_value(a) || !is_real_value(b) || y == 0 ||
        fabs(x) > 9007199254740992.0)
        return NAN;
    return x - y * floor(x / y);
}

static double complex evaluate_circular(int op, double complex a)
{
    switch (op) {
    case RULE_SIN:
        return csin(a);
    case RULE_COS:
        return ccos(a);
    case RULE_TAN:
        return ctan(a);
    case RULE_COT:
        return ccos(a) / csin(a);
    case RULE_SEC:
        return 1 / ccos(a);
    default:
        return 1 / csin(a);
    }
}

static double complex evaluate_function(int op, double complex a,
                                        double complex b, rule_point *point)
{
    point->scale = larger_of(point->scale, op <= RULE_CSC ? cabs(a) : 0);
    switch (op) {
    case RULE_ARCSIN:
        return casin(a);
    case RULE_ARCCOS:
        return cacos(a);
    case RULE_ARCTAN:
        return catan(a);
    case RULE_SINH:
        return csinh(a);
    case RULE_COSH:
        return ccosh(a);
    case RULE_TANH:
        return ctanh(a);
    case RULE_LN:
        return evaluate_logarithm(a, point);
    case RULE_LOG:
        return evaluate_logarithm(a, point) / evaluate_logarithm(b, point);
    case RULE_EXP:
        return cexp(a);
    case RULE_ABS:
        return cabs(a);
    case RULE_FLOOR:
        return is_real_value(a) ? floor(creal(a)) : NAN;
    case RULE_CEIL:
        return is_real_value(a) ? ceil(creal(a)) : NAN;
    case RULE_FACTORIAL:
        return evaluate_factorial(a);
    case RULE_BINOMIAL:
        return evaluate_binomial(a, b);
    case RULE_MODULO:
        return evaluate_modulo(a, b);
    default:
        return evaluate_circular(op, a);
    }
}

static int evaluate_call(rule_tree *tree, const rule_node *n, rule_point *point,
                         double complex *out)
{
    double complex a = 0;
    double complex b = 10;
    uint16_t second = tree->node[n->first].next;
    if (!rule_evaluate(tree, n->first, point, &a) ||
        (second && !rule_evaluate(tree, second, point, &b)))
        return 0;
    if (n->op <= RULE_CSC && tree->node[n->first].kind == RULE_DEGREE)
        a *= PI / 180;
    *out = evaluate_function(n->op, a, b, point);
    return 1;
}

/* Evaluates an arbitrary smooth function in place of an unknown one. Equal
 * arguments give equal values; different ones almost never do. Each sample
 * point has another function, so that f(2) is not a constant. */
static int evaluate_opaque(rule_tree *tree, const rule_node *n,
                           rule_point *point, double complex *out)
{
    uint64_t hash = n->name < RULE_NAMES ? tree->name[n->name] : 0;
    hash += (uint64_t)point->sample * 0xD6E8FEB86659FD93u;
    double complex sum = 1.5 + hash_to_fraction(hash, 100);
    int i = 0;
    for (uint16_t child = n->first; child; child = tree->node[child].next) {
        double complex a = 0;
        if (!rule_evaluate(tree, child, point, &a))
            return 0;
        sum += csin(a * (0.4 + hash_to_fraction(hash, 101 + i)) + 0.3 * i) +
               a * (0.1 + 0.2 * hash_to_fraction(hash, 201 + i));
        i++;
    }
    point->scale = larger_of(point->scale, cabs(sum));
    *out = sum;
    return 1;
}

static int evaluate_operands(rule_tree *tree, const rule_node *n,
                             rule_point *point, double complex *out)
{
    double complex total = 0;
    int first = 1;
    for (uint16_t child = n->first; child; child = tree->node[child].next) {
        double complex a = 0;
        if (!rule_evaluate(tree, child, point, &a))
            return 0;
        if (n->kind == RULE_ADD) {
            point->scale = larger_of(point->scale, cabs(a));
            total += a;
        } else if (first) {
            total = a;
        } else if (n->kind == RULE_MULTIPLY) {
            total *= a;
        } else if (n->kind == RULE_POWER) {
            total = evaluate_power(total, a, point);
        } else {
            total /= a;
        }
        first = 0;
    }
    *out = total;
    return !first;
}

static int evaluate_number(rule_tree *tree, rule_text text, double complex *out)
{
    rule_ratio ratio;
    tree->steps += (uint32_t)text.size / 8;
    if (!rule_ratio_parse(&ratio, text))
        return 0;
    *out = rule_ratio_real(&ratio);
    return 1;
}

static double complex evaluate_constant(int op)
{
    switch (op) {
    case 'p':
        return PI;
    case 'e':
        return 2.71828182845904523536;
    case 'i':
        return I;
    default:
        return RULE_INFINITY;
    }
}

static int evaluate_unary(rule_tree *tree, const rule_node *n,
                          rule_point *point, double complex *out)
{
    double complex degree = 2;
    uint16_t second = tree->node[n->first].next;
    if (!rule_evaluate(tree, n->first, point, out))
        return 0;
    switch (n->kind) {
    case RULE_NEGATE:
        *out = -*out;
        return 1;
    case RULE_EITHER:
        *out *= n->op == '+' ? point->sign : -point->sign;
        return 1;
    case RULE_PERCENT:
        *out *= point->percent;
        return 1;
    case RULE_ROOT:
        if (second && !rule_evaluate(tree, second, point, &degree))
            return 0;
        *out = evaluate_root(*out, degree, point);
        return 1;
    default:
        return 1;
    }
}

/* Returns the right end of a chain, which is its value where the limits of a
 * sum are chains. */
static uint16_t find_last_child(const rule_tree *tree, const rule_node *n)
{
    uint16_t child = n->first;
    while (child && tree->node[child].next)
        child = tree->node[child].next;
    return child;
}

static int evaluate_node(rule_tree *tree, const rule_node *n, rule_point *point,
                         double complex *out)
{
    switch (n->kind) {
    case RULE_NUMBER:
        return evaluate_number(tree, n->text, out);
    case RULE_NAME:
        *out = evaluate_name(tree, n->name, point);
        return 1;
    case RULE_CONSTANT:
        *out = evaluate_constant(n->op);
        return 1;
    case RULE_ADD:
    case RULE_MULTIPLY:
    case RULE_DIVIDE:
    case RULE_POWER:
    case RULE_RATIO:
        return evaluate_operands(tree, n, point, out);
    case RULE_CALL:
        return evaluate_call(tree, n, point, out);
    case RULE_OPAQUE:
        return evaluate_opaque(tree, n, point, out);
    case RULE_NEGATE:
    case RULE_EITHER:
    case RULE_PERCENT:
    case RULE_DEGREE:
    case RULE_ROOT:
        return evaluate_unary(tree, n, point, out);
    case RULE_CHAIN:
        return rule_evaluate(tree, find_last_child(tree, n), point, out);
    case RULE_LIST:
        return n->count == 1 && rule_evaluate(tree, n->first, point, out);
    default:
        return 0;
    }
}

int rule_evaluate(rule_tree *tree, uint16_t node, rule_point *point,
                  double complex *out)
{
    if (!node || tree->steps++ > RULE_STEPS)
        return 0;
    return evaluate_node(tree, &tree->node[node], point, out) &&
           is_finite_value(*out);
}

static int compute_exact_factorial(rule_ratio *out)
{
    int n = 0;
    rule_ratio factor;
    if (!rule_ratio_small_integer(out, &n) || n < 0 || n > 200)
        return 0;
    rule_ratio_set(out, 1);
    for (int i = 2; i <= n; i++) {
        rule_ratio_set(&factor, (uint32_t)i);
        if (!rule_ratio_multiply(out, &factor))
            return 0;
    }
    return 1;
}

static int compute_exact_binomial(rule_ratio *top, const rule_ratio *bottom)
{
    int n = 0;
    int k = 0;
    rule_ratio factor;
    if (!rule_ratio_small_integer(top, &n) ||
        !rule_ratio_small_integer(bottom, &k) || n < 0 || k < 0 || k > n ||
        n > 400)
        return 0;
    rule_ratio_set(top, 1);
    k = k > n - k ? n - k : k;
    for (int i = 0; i < k; i++) {
        rule_ratio_set(&factor, (uint32_t)(n - i));
        if (!rule_ratio_multiply(top, &factor))
            return 0;
        rule_ratio_set(&factor, (uint32_t)(i + 1));
        if (!rule_ratio_divide(top, &factor))
            return 0;
    }
    return 1;
}

static int apply_exact_operand(int kind, rule_ratio *out, const rule_ratio *b)
{
    switch (kind) {
    case RULE_ADD:
        return rule_ratio_add(out, b);
    case RULE_MULTIPLY:
        return rule_ratio_multiply(out, b);
    case RULE_POWER:
        return rule_ratio_power(out, b);
    case RULE_CALL:
        return compute_exact_binomial(out, b);
    default:
        return rule_ratio_divide(out, b);
    }
}

static int evaluate_exact_operands(rule_tree *tree, const rule_node *n,
                                   const rule_point *point, rule_ratio *out)
{
    if (!rule_evaluate_exact(tree, n->first, point, out))
        return 0;
    for (uint16_t child = tree->node[n->first].next; child;
         child = tree->node[child].next) {
        rule_ratio b;
        tree->steps += n->kind == RULE_POWER ? 200 : 10;
        if (!rule_evaluate_exact(tree, child, point, &b) ||
            !apply_exact_operand(n->kind, out, &b))
            return 0;
    }
    return 1;
}

int rule_evaluate_exact(rule_tree *tree, uint16_t node, const rule_point *point,
                        rule_ratio *out)
{
    const rule_node *n = &tree->node[node];
    rule_ratio hundred;
    if (!node || tree->steps++ > RULE_STEPS)
        return 0;
    switch (n->kind) {
    case RULE_NUMBER:
        tree->steps += (uint32_t)n->text.size / 8;
        return rule_ratio_parse(out, n->text);
    case RULE_ADD:
    case RULE_MULTIPLY:
    case RULE_DIVIDE:
    case RULE_POWER:
    case RULE_RATIO:
        return evaluate_exact_operands(tree, n, point, out);
    case RULE_CALL:
        if (n->op == RULE_BINOMIAL)
            return evaluate_exact_operands(tree, n, point, out);
        tree->steps += 400;
        return n->op == RULE_FACTORIAL &&
               rule_evaluate_exact(tree, n->first, point, out) &&
               compute_exact_factorial(out);
    case RULE_NEGATE:
        if (!rule_evaluate_exact(tree, n->first, point, out))
            return 0;
        out->negative = !out->negative;
        return 1;
    case RULE_EITHER:
        if (!rule_evaluate_exact(tree, n->first, point, out))
            return 0;
        out->negative ^= (n->op == '+') == (point->sign < 0);
        return 1;
    case RULE_PERCENT:
        rule_ratio_set(&hundred, point->percent == 1 ? 1 : 100);
        return rule_evaluate_exact(tree, n->first, point, out) &&
               rule_ratio_divide(out, &hundred);
    case RULE_DEGREE:
        return rule_evaluate_exact(tree, n->first, point, out);
    case RULE_LIST:
        return n->count == 1 && rule_evaluate_exact(tree, n->first, point, out);
    default:
        return 0;
    }
}
