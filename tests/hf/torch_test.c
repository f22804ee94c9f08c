/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that weights in PyTorch's files are read with the values, types and
 * shapes that PyTorch gave them, and that a file which is cut off, lies about
 * its sizes, or asks for anything but tensors is refused with a sentence.
 *
 * tests/hf/goldens/torch1.bin, torch2.bin, torch4.bin and nested.bin were
 * written by torch.save of PyTorch 2.15 (the number is that of the protocol),
 * legacy.bin by its older format; the tables below say what was saved.
 */
#include "model/hf/torch_file.h"
#include "tests/scratch.h"
#include "tests/torch_archive.h"

/* ---- files of PyTorch --------------------------------------------------- */

/* Element i is (i or its place in the storage - less) / over. */
typedef struct saved {
    const char *name;
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[3];
    int contiguous;
    double less;
    double over;
    const int *places; /* NULL: in order */
} saved;

static const int transposed[] = { 0, 6, 12, 18, 1, 7,  13, 19, 2, 8,  14, 20,
                                  3, 9, 15, 21, 4, 10, 16, 22, 5, 11, 17, 23 };
static const int columns[] = { 2, 4, 8, 10, 14, 16, 20, 22 };
static const int rows[] = { 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 };
static const int repeated[] = { 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2 };
static const int permuted[] = { 0, 4, 8,  12, 16, 20, 1, 5, 9,  13, 17, 21,
                                2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23 };

static const saved all_saved[] = {
    { "w", XM_ST_F32, 2, { 4, 6 }, 1, 5, 8, NULL },
    { "w.t", XM_ST_F32, 2, { 6, 4 }, 0, 5, 8, transposed },
    { "rows", XM_ST_F32, 2, { 2, 6 }, 1, 5, 8, rows },
    { "cols", XM_ST_F32, 2, { 4, 2 }, 0, 5, 8, columns },
    { "scalar", XM_ST_F32, 0, { 0 }, 1, 2.5, 1, NULL },
    { "empty", XM_ST_F32, 2, { 0, 3 }, 1, 0, 1, NULL },
    { "bf16", XM_ST_BF16, 2, { 3, 5 }, 1, 3, 4, NULL },
    { "tied", XM_ST_BF16, 2, { 3, 5 }, 1, 3, 4, NULL },
    { "f16", XM_ST_F16, 1, { 7 }, 1, 3, 4, NULL },
    { "f64", XM_ST_F64, 2, { 2, 2 }, 1, 1.5, 1, NULL },
    { "i64", XM_ST_I64, 1, { 5 }, 1, 2, 1, NULL },
    { "i32", XM_ST_I32, 1, { 5 }, 1, 2, 1, NULL },
    { "i16", XM_ST_I16, 1, { 5 }, 1, 2, 1, NULL },
    { "i8", XM_ST_I8, 1, { 5 }, 1, 2, 1, NULL },
    { "u8", XM_ST_U8, 1, { 5 }, 1, 0, 1, NULL },
    { "bool", XM_ST_BOOL, 1, { 3 }, 1, 0, 1, (const int[]){ 1, 0, 1 } },
    { "expanded", XM_ST_F32, 2, { 4, 3 }, 0, 0, 1, repeated },
    { "permuted", XM_ST_F32, 3, { 4, 2, 3 }, 0, 0, 1, permuted },
    { "parameter", XM_ST_F32, 2, { 2, 2 }, 1, 0, 1, NULL },
};
enum { SAVED = sizeof all_saved / sizeof all_saved[0] };

static double read_element(const void *at, uint32_t dtype, uint32_t width)
{
    union {
        float f32;
        double f64;
        uint16_t half;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        int8_t i8;
        uint8_t u8;
        unsigned char bytes[8];
    } is = { .i64 = 0 };
    memcpy(is.bytes, at, width);
    switch (dtype) {
    case XM_ST_F32:
        return (double)is.f32;
    case XM_ST_F64:
        return is.f64;
    case XM_ST_BF16:
        return (double)xm_bf16_to_f32(is.half);
    case XM_ST_F16:
        return (double)xm_f16_to_f32(is.half);
    case XM_ST_I64:
        return (double)is.i64;
    case XM_ST_I32:
        return is.i32;
    case XM_ST_I16:
        return is.i16;
    case XM_ST_I8:
        return is.i8;
    default:
        return is.u8;
    }
}

static void expect_saved(const xm_torch_tensor *t, const saved *s)
{
    unsigned char all[24 * 8];
    uint64_t count = 1;
    assert_string_equal(t->name, s->name);
    assert_int_equal(t->dtype, s->dtype);
    assert_int_equal(t->dims, s->dims);
    for (uint32_t d = 0; d < s->dims; d++) {
        assert_int_equal(t->shape[d], s->shape[d]);
        count *= s->shape[d];
    }
    assert_int_equal(t->count, count);
    assert_int_equal(t->contiguous, s->contiguous);
    assert_true(!s->contiguous || t->span == count * t->width);
    xm_torch_copy(t, 0, count, all);
    if (count && t->contiguous)
        assert_memory_equal(t->data, all, count * t->width);
    for (uint64_t i = 0; i < count; i++) {
        unsigned char one[8];
        int place = s->places ? s->places[i] : (int)i;
        double value = read_element(all + i * t->width, t->dtype, t->width);
        assert_true(value == (place - s->less) / s->over);
        /* A part that begins anywhere has the same elements. */
        xm_torch_copy(t, i, 1, one);
        assert_memory_equal(one, all + i * t->width, t->width);
    }
}

static const char *golden_path(const char *name)
{
    static char path[4096];
    (void)snprintf(path, sizeof path, "%s/tests/hf/goldens/%s",
                   getenv("XRAY_SOURCE"), name);
    return path;
}

static void expect_golden(const char *name, const char *member)
{
    xr_err err = { "" };
    xm_torch *torch = NULL;
    if (xm_torch_open(golden_path(name), &err, &torch) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(xm_torch_count(torch), SAVED);
    if (member)
        assert_string_equal(xm_torch_member(torch), member);
    else
        assert_null(xm_torch_member(torch));
    for (size_t i = 0; i < SAVED; i++)
        expect_saved(xm_torch_at(torch, i), &all_saved[i]);
    xm_torch_close(torch);
}

static void files_of_pytorch_have_their_values(void **state)
{
    (void)state;
    expect_golden("torch1.bin", NULL);
    expect_golden("torch2.bin", NULL);
    expect_golden("torch4.bin", NULL);
}

static void weights_beside_other_values_are_found(void **state)
{
    (void)state;
    expect_golden("nested.bin", "state_dict");
}

/* ---- refusals ----------------------------------------------------------- */

static void expect_refused(const char *path, const char *says)
{
    xr_err err = { "" };
    xm_torch *torch = NULL;
    if (xm_torch_open(path, &err, &torch) == XRAY_OK)
        fail_msg("%s opens, expected: %s", path, says);
    if (!strstr(err.text, says))
        fail_msg("expected: %s\ngot: %s", says, err.text);
    assert_null(strchr(err.text, '\n'));
}

/* Without a sync, since thousands of files are written. */
static const char *write_bytes(const char *name, const void *data, size_t size)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    char *data = NULL;
    size_t size = 0;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(
        xr_file_read(golden_path("torch4.bin"), 1u << 20, &err, &data, &size),
        XRAY_OK);
    for (size_t cut = 0; cut < size; cut++)
        expect_refused(write_bytes("cut.bin", data, cut), "cut.bin: ");
    free(data);
}

static void other_formats_are_named(void **state)
{
    char tar[512] = "storages";
    (void)state;
    expect_refused(golden_path("legacy.bin"),
                   "legacy.bin: is in the format of PyTorch before 1.6, which "
                   "is not read; python3 -c");
    memcpy(tar + 257, "ustar", 5);
    expect_refused(write_bytes("old.pt", tar, sizeof tar),
                   "is a tar archive, the format of PyTorch before 0.1.10");
    expect_refused(write_bytes("x.bin", "GGUF....", 8), "this is a GGUF file");
    expect_refused(write_bytes("x.bin", "\x80\x02}.", 4),
                   "is not a file that torch.save wrote, expected a zip "
                   "archive");
    expect_refused(scratch_dir(), "holds neither pytorch_model.bin nor "
                                  "pytorch_model.bin.index.json");
    expect_refused(scratch_path("missing.bin"), "missing.bin");
}

static const unsigned char zeros[64];

/* Writes an archive with this pickle and a storage "0" of 64 bytes. */
static const char *write_pickle(const void *pickle, size_t size)
{
    torch_archive a = { .wide = 1 };
    torch_add(&a, "m/data.pkl", pickle, size);
    torch_add(&a, "m/byteorder", "little", 6);
    torch_add(&a, "m/data/0", zeros, sizeof zeros);
    torch_finish(&a);
    const char *path = write_bytes("p.bin", a.file.data, a.file.size);
    torch_archive_free(&a);
    return path;
}

#define PICKLE(bytes) bytes, sizeof(bytes) - 1
#define NONE_RUN                                                               \
    ", which is not part of a state dict of tensors; nothing of the file was " \
    "run"

static const struct {
    const char *bytes;
    size_t size;
    const char *says;
} pickles[] = {
    { PICKLE("\x80\x02"
             "cos\nsystem\n(X\x02\0\0\0ls"
             "tR."),
      "p.bin: data.pkl: byte 13: the file asks for os.system" NONE_RUN },
    { PICKLE("\x80\x04\x8c\x02os\x8c\x06system\x93."),
      "the file asks for os.system" NONE_RUN },
    { PICKLE("cbuiltins\neval\n."), "the file asks for builtins.eval" },
    { PICKLE("ctorch._utils\n_rebuild_tensor_v3\n."),
      "the file asks for torch._utils._rebuild_tensor_v3" },
    { PICKLE("ctorch\nFloatStorag\n."), "the file asks for torch.FloatStorag" },
    { PICKLE("ccollections.\nOrderedDict\n."),
      "the file asks for collections..OrderedDict" },
    { PICKLE("(ios\nsystem\n."),
      "byte 2: opcode 0x69 is not one of a state dict of tensors; nothing of "
      "the file was run" },
    { PICKLE("\x80\x06}."), "the protocol is 6, expected at most 5" },
    { PICKLE("\x80"), "the pickle ends inside an opcode" },
    { PICKLE("X\xff\xff\xff\x7f."), "the pickle ends inside an opcode" },
    { PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
      "the pickle ends inside an opcode" },
    { PICKLE("cos"), "the pickle ends inside an opcode" },
    { PICKLE("}"), "the pickle has no end" },
    { PICKLE("."), "there is no value on the stack" },
    { PICKLE("}}."), "values are left on the stack" },
    { PICKLE("(."), "a mark is where a value should be" },
    { PICKLE("(\x85."), "a mark is where a value should be" },
    { PICKLE("\x85."), "there is no value on the stack" },
    { PICKLE("t."), "there is no mark on the stack" },
    { PICKLE("}s."), "there is no value on the stack" },
    { PICKLE("}(Nu."), "the pairs are not those of a dict" },
    { PICKLE("](NNu."), "the pairs are not those of a dict" },
    { PICKLE("(u."), "the pairs are not those of a dict" },
    { PICKLE("}(Ne."), "the items are not those of a list" },
    { PICKLE("a."), "the items are not those of a list" },
    { PICKLE("}h\0."), "nothing was put into memo 0" },
    { PICKLE("}q\2h\1."), "nothing was put into memo 1" },
    { PICKLE("}r\xff\xff\xff\x7f."),
      "memo 2147483647 is beyond what a pickle of this size can use" },
    { PICKLE("q\0."), "there is no value on the stack" },
    { PICKLE("N)R."), "None is called with a tuple" },
    { PICKLE("ccollections\nOrderedDict\nNR."),
      "a global is called with None" },
    { PICKLE("ccollections\nOrderedDict\n(NtR."),
      "collections.OrderedDict is called in a way that torch.save does not "
      "write" },
    { PICKLE("ctorch._utils\n_rebuild_parameter\n(NtR."),
      "torch._utils._rebuild_parameter is called in a way" },
    { PICKLE("ctorch._utils\n_rebuild_parameter\n)R."),
      "torch._utils._rebuild_parameter is called in a way" },
    { PICKLE("ctorch\nFloatStorage\n)R."), "torch.FloatStorage is called" },
    { PICKLE("ctorch._utils\n_rebuild_tensor_v2\n)R."),
      "a tensor has 0 arguments, expected 6 or 7" },
    { PICKLE("ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR."),
      "the arguments of a tensor are malformed" },
    { PICKLE("NQ."), "the reference to a storage is malformed" },
    { PICKLE("(NNNNNtQ."), "the reference to a storage is malformed" },
    { PICKLE("N}b."), "attributes are set on None" },
    { PICKLE("NN\x93."), "the name of a global is not a text" },
    { PICKLE("N\x8c\1n\x93."), "the name of a global is not a text" },
    { PICKLE("\x8c\1mN\x93."), "the name of a global is not a text" },
    { PICKLE("\x8a\t123456789."), "an integer has more than 64 bits" },
    { PICKLE("I1x\n."), "an integer is not a number of 64 bits" },
    { PICKLE("L99999999999999999999999999999999999L\n."),
      "an integer is not a number of 64 bits" },
    { PICKLE("N."), "p.bin: holds None, expected a state dict" },
    { PICKLE("}."), "p.bin: holds no tensors" },
    { PICKLE("}K\1Ns."),
      "a key of the dict is an integer, expected the name of a tensor" },
    { PICKLE("}X\1\0\0\0aI-7\ns."),
      "p.bin: \"a\" is an integer, expected a state dict, which holds tensors "
      "only" },
    { PICKLE("}X\1\0\0\0aI01\ns."), "\"a\" is a bool" },
    { PICKLE("}X\1\0\0\0aG\0\0\0\0\0\0\0\0s."), "\"a\" is a float" },
    { PICKLE("}X\1\0\0\0a}s."), "\"a\" is a dict" },
    { PICKLE("}X\1\0\0\0\0Ns."),
      "a tensor has a name that safetensors cannot have" },
    { PICKLE("}X\1\0\0\0\xffNs."),
      "a tensor has a name that safetensors cannot have" },
    { PICKLE("}X\x0c\0\0\0__metadata__Ns."),
      "a tensor has a name that safetensors cannot have" },
};

static void a_pickle_that_is_no_state_dict_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++)
        expect_refused(write_pickle(pickles[i].bytes, pickles[i].size),
                       pickles[i].says);
}

static void a_pickle_without_bounds_is_refused(void **state)
{
    static char marks[70000];
    (void)state;
    memset(marks, '(', sizeof marks);
    expect_refused(write_pickle(marks, sizeof marks),
                   "more than 65536 values are on the stack");
}

#define BIG INT64_C(0x4000000000000000)
#define F "FloatStorage"

static const struct {
    torch_tensor is;
    const char *says; /* NULL: it opens */
} tensors[] = {
    { { "t", F, "0", 16, 0, 2, { 4, 4 }, { 4, 1 } }, NULL },
    { { "t", F, "0", 16, 15, 1, { 1 }, { 99 } }, NULL },
    { { "t", F, "0", 16, 0, 2, { 2, 2 }, { 13, 2 } }, NULL },
    { { "t", F, "0", 16, 0, 2, { 2, 2 }, { 14, 2 } },
      "tensor \"t\": its elements do not lie in its storage" },
    { { "t", F, "0", 16, 16, 0, { 0 }, { 0 } }, "its elements do not lie in" },
    { { "t", F, "0", 16, 16, 1, { 0 }, { 1 } }, NULL },
    { { "t", F, "0", 16, 1, 2, { 4, 4 }, { 4, 1 } },
      "its elements do not lie" },
    { { "t", F, "0", 16, INT64_MAX, 1, { 1 }, { 1 } }, "its elements do not" },
    { { "t", F, "0", 16, 0, 2, { BIG, 8 }, { 0, 0 } },
      "its shape is too large" },
    { { "t", F, "0", 16, 0, 1, { 5 }, { BIG } }, "its shape is too large" },
    { { "t", F, "0", 16, 0, 2, { 2, 2 }, { BIG, BIG } }, "its shape is too" },
    { { "t", F, "0", 16, 0, 1, { 1 << 28 }, { 0 } }, NULL },
    { { "t", F, "0", 16, 0, 1, { (1 << 28) + 1 }, { 0 } },
      "tensor \"t\": it repeats its storage to more than 1 GiB" },
    { { "t", F, "0", 17, 0, 1, { 1 }, { 1 } },
      "tensor \"t\": its storage is shorter than the pickle says" },
    { { "t", "DoubleStorage", "0", 9, 0, 1, { 1 }, { 1 } },
      "its storage is shorter than the pickle says" },
    { { "t", F, "0", INT64_MAX, 0, 1, { 1 }, { 1 } },
      "its storage is shorter" },
    { { "t", F, "1", 16, 0, 1, { 1 }, { 1 } },
      "tensor \"t\": the archive lacks its storage" },
    { { "t", F, "0", -1, 0, 1, { 1 }, { 1 } }, "the reference to a storage" },
    { { "t", F, "0", 16, -1, 1, { 1 }, { 1 } }, "the arguments of a tensor" },
    { { "t", F, "0", 16, 0, 1, { -1 }, { 1 } },
      "a shape or stride is not an integer from 0" },
    { { "t", F, "0", 16, 0, 1, { 1 }, { -1 } },
      "a shape or stride is not an integer from 0" },
    { { "t", F, "0", 16, 0, 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 0 } }, NULL },
    { { "t", F, "0", 16, 0, 9, { 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 0 } },
      "a tensor has 9 dimensions, expected at most 8" },
    { { "t", "_rebuild", "0", 16, 0, 1, { 1 }, { 1 } },
      "the file asks for torch._rebuild" },
};

static const char *write_state(const torch_tensor *is, size_t count)
{
    xr_str pickle = { 0 };
    torch_state(&pickle, is, count);
    const char *path = write_pickle(pickle.data, pickle.size);
    xr_str_free(&pickle);
    return path;
}

static void a_tensor_beyond_its_storage_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        const char *path = write_state(&tensors[i].is, 1);
        xr_err err = { "" };
        xm_torch *torch = NULL;
        if (tensors[i].says) {
            expect_refused(path, tensors[i].says);
            continue;
        }
        if (xm_torch_open(path, &err, &torch) != XRAY_OK)
            fail_msg("case %zu: %s", i, err.text);
        xm_torch_close(torch);
    }
}

/* As in rows of ids, which expand((1, -1)) makes; the elements are in order. */
static void the_stride_of_one_element_does_not_matter(void **state)
{
    static const torch_tensor ids = { "t", F, "0",       16,
                                      0,   2, { 1, 16 }, { 99, 1 } };
    xr_err err = { "" };
    xm_torch *torch = NULL;
    (void)state;
    assert_int_equal(xm_torch_open(write_state(&ids, 1), &err, &torch),
                     XRAY_OK);
    assert_true(xm_torch_at(torch, 0)->contiguous);
    xm_torch_close(torch);
}

static void a_name_that_occurs_twice_is_refused(void **state)
{
    const torch_tensor twice[] = {
        { "t", F, "0", 16, 0, 1, { 1 }, { 1 } },
        { "t", F, "0", 16, 1, 1, { 1 }, { 1 } },
    };
    (void)state;
    expect_refused(write_state(twice, 2),
                   "tensor \"t\": the name occurs twice");
}

static void a_conjugate_or_negative_view_is_refused(void **state)
{
    xr_str pickle = { 0 };
    (void)state;
    xr_str_puts(&pickle, "}");
    torch_text(&pickle, "t");
    torch_put_tensor(&pickle, &tensors[0].is);
    /* The seventh argument, in the place of the end of the tuple. */
    pickle.size -= 2;
    xr_str_puts(&pickle, "}");
    torch_text(&pickle, "neg");
    xr_str_puts(&pickle, "\x88stRs.");
    expect_refused(write_pickle(pickle.data, pickle.size),
                   "a tensor is a conjugate or negative view");
    xr_str_free(&pickle);
}

/* ---- archives ----------------------------------------------------------- */

/* An archive whose second entry has these fields. */
static const char *write_odd_archive(torch_archive odd, const char *order)
{
    static const torch_tensor one = { "t", F, "0", 16, 0, 1, { 1 }, { 1 } };
    torch_archive a = { .wide = odd.wide };
    xr_str pickle = { 0 };
    torch_state(&pickle, &one, 1);
    torch_add(&a, "m/data.pkl", pickle.data, pickle.size);
    torch_add(&a, "m/byteorder", order, strlen(order));
    a.method = odd.method;
    a.flags = odd.flags;
    a.more_size = odd.more_size;
    torch_add(&a, "m/data/0", zeros, sizeof zeros);
    if (odd.count)
        torch_add(&a, "m/data/0", zeros, sizeof zeros);
    torch_finish(&a);
    const char *path = write_bytes("odd.bin", a.file.data, a.file.size);
    xr_str_free(&pickle);
    torch_archive_free(&a);
    return path;
}

static void an_archive_that_torch_does_not_write_is_refused(void **state)
{
    torch_archive empty = { .wide = 1 };
    (void)state;
    expect_refused(write_odd_archive((torch_archive){ .method = 8 }, "little"),
                   "odd.bin: entry m/data/0: is compressed, as in programs of "
                   "TorchScript; torch.save stores its entries");
    expect_refused(write_odd_archive((torch_archive){ .flags = 1 }, "little"),
                   "entry m/data/0: is encrypted");
    expect_refused(write_odd_archive((torch_archive){ .count = 1 }, "little"),
                   "entry m/data/0: the name occurs twice");
    for (int wide = 0; wide < 2; wide++)
        expect_refused(write_odd_archive((torch_archive){ .more_size = 1 << 20,
                                                          .wide = wide },
                                         "little"),
                       "entry m/data/0: its data does not lie in the file");
    expect_refused(write_odd_archive((torch_archive){ .wide = 1 }, "big"),
                   "odd.bin: its byteorder is big, expected little");
    torch_add(&empty, "data.pkl", "}.", 2);
    torch_finish(&empty);
    expect_refused(write_bytes("e.bin", empty.file.data, empty.file.size),
                   "the zip archive holds no data.pkl");
    torch_archive_free(&empty);
}

/* Every byte of the archive's own records may be wrong; the file opens or is
 * refused, and what opens can be read. */
static void any_byte_may_be_wrong(void **state)
{
    char *data = NULL;
    size_t size = 0;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(
        xr_file_read(write_odd_archive((torch_archive){ .wide = 1 }, "little"),
                     1u << 20, &err, &data, &size),
        XRAY_OK);
    for (size_t i = 0; i < size; i++)
        for (int flip = 1; flip < 256; flip *= 16) {
            xm_torch *torch = NULL;
            data[i] = (char)(data[i] ^ flip);
            if (!xm_torch_open(write_bytes("w.bin", data, size), &err,
                               &torch)) {
                float value;
                const xm_torch_tensor *t = xm_torch_at(torch, 0);
                xm_torch_copy(t, 0, t->count && t->width == 4, &value);
            }
            xm_torch_close(torch);
            data[i] = (char)(data[i] ^ flip);
        }
    free(data);
}

/* ---- shards ------------------------------------------------------------- */

static void write_shard(const char *name, const char *tensor)
{
    char path[512];
    const torch_tensor one = { tensor, F, "0", 16, 0, 1, { 2 }, { 1 } };
    const char *made = write_state(&one, 1);
    (void)snprintf(path, sizeof path, "%s/%s", scratch_dir(), name);
    assert_int_equal(rename(made, path), 0);
}

static void shards_are_those_of_the_index(void **state)
{
    const char *const index = "pytorch_model.bin.index.json";
    xr_err err = { "" };
    xm_torch *torch = NULL;
    (void)state;
    write_shard("s1.bin", "a");
    write_shard("s2.bin", "b");
    (void)scratch_write(index,
                        "{\"weight_map\":{\"b\":\"s2.bin\",\"a\":\"s1.bin\"}}");
    if (xm_torch_open(scratch_dir(), &err, &torch) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(xm_torch_count(torch), 2);
    assert_string_equal(xm_torch_at(torch, 0)->name, "b");
    assert_string_equal(xm_torch_at(torch, 1)->name, "a");
    xm_torch_close(torch);
    (void)scratch_write(index,
                        "{\"weight_map\":{\"a\":\"s2.bin\",\"b\":\"s1.bin\"}}");
    expect_refused(scratch_dir(), "tensor \"a\" is not in s2.bin");
    (void)scratch_write(index, "{\"weight_map\":{\"a\":\"../s1.bin\"}}");
    expect_refused(scratch_dir(), "must be a name in the same folder");
    (void)scratch_write(index, "{\"weight_map\":{}}");
    expect_refused(scratch_dir(),
                   "\"weight_map\" must be an object with tensors");
    (void)scratch_write(index, "{\"weight_map\":{\"a\":\"s3.bin\"}}");
    expect_refused(scratch_dir(), "s3.bin");
    write_shard("s2.bin", "a");
    (void)scratch_write(index,
                        "{\"weight_map\":{\"a\":\"s1.bin\",\"b\":\"s2.bin\"}}");
    expect_refused(scratch_dir(),
                   "s2.bin: tensor \"a\": the name occurs twice");
    /* A single file is read in their place. */
    write_shard("pytorch_model.bin", "c");
    assert_int_equal(xm_torch_open(scratch_dir(), &err, &torch), XRAY_OK);
    assert_string_equal(xm_torch_at(torch, 0)->name, "c");
    xm_torch_close(torch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_pytorch_have_their_values),
        cmocka_unit_test(weights_beside_other_values_are_found),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(a_pickle_that_is_no_state_dict_is_refused),
        cmocka_unit_test(a_pickle_without_bounds_is_refused),
        cmocka_unit_test(a_tensor_beyond_its_storage_is_refused),
        cmocka_unit_test(the_stride_of_one_element_does_not_matter),
        cmocka_unit_test(a_name_that_occurs_twice_is_refused),
        cmocka_unit_test(a_conjugate_or_negative_view_is_refused),
        cmocka_unit_test(an_archive_that_torch_does_not_write_is_refused),
        cmocka_unit_test(any_byte_may_be_wrong),
        cmocka_unit_test(shards_are_those_of_the_index),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
