/* Misuse and its error messages: every line of main is one mistake. */
#include "vyre.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int line, vyre_status got, vyre_status wanted, const char *text) {
    if (got == wanted && (text == NULL || strstr(vyre_error_text(), text) != NULL)) return;
    printf("line %d: %s instead of %s; it says: %s\n", line, vyre_status_name(got), vyre_status_name(wanted), vyre_error_text());
    failures++;
}
#define EXPECT(call, wanted, text) expect(__LINE__, call, wanted, text)

static void hear(const char *message, void *context) {
    strncat((char *)context, message, 60);
}

int main(void) {
    char heard[256] = "";
    vyre_runtime_options usual = {0};
    usual.backends = "cpu, cpu-ref";
    usual.without_tables = 1;
    usual.print = hear;
    usual.context = heard;

    vyre_runtime runtime = NULL, other = NULL;
    EXPECT(vyre_runtime_open(VYRE_ABI_VERSION + 1, NULL, &runtime), VYRE_ABI, "version");
    EXPECT(vyre_runtime_new(&usual, NULL), VYRE_NULL, "`runtime`");
    vyre_runtime_options wrong = {0};
    wrong.backends = "no such backend";
    EXPECT(vyre_runtime_new(&wrong, &runtime), VYRE_NO_USABLE_BACKEND, "no such backend");
    wrong.backends = "\xff\xfe";
    EXPECT(vyre_runtime_new(&wrong, &runtime), VYRE_ARGUMENT, "UTF-8");
    EXPECT(runtime == NULL ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_runtime_new(&usual, &runtime), VYRE_OK, NULL);
    EXPECT(vyre_runtime_new(&usual, &other), VYRE_OK, NULL);

    vyre_routine add = NULL;
    const char *text = "const BY: u32 = 1\nkernel add(x: read u32[], y: read_write u32[]) over y { y[invocation.x] = x[invocation.x] + BY }";
    EXPECT(vyre_load(NULL, text, &add), VYRE_NULL, "runtime");
    EXPECT(vyre_load(runtime, NULL, &add), VYRE_NULL, "`text`");
    EXPECT(vyre_load(runtime, text, NULL), VYRE_NULL, "`routine`");
    EXPECT(vyre_load(runtime, "kernel", &add), VYRE_INVALID_PROGRAM, "expected");
    EXPECT(vyre_load(runtime, "", &add), VYRE_INVALID_PROGRAM, "no kernel");
    EXPECT(vyre_load_wire(runtime, "nonsense", 8, &add), VYRE_INVALID_PROGRAM, NULL);
    EXPECT(vyre_load_wire(runtime, NULL, 8, &add), VYRE_NULL, "`bytes`");
    EXPECT(vyre_load_wire(runtime, "nonsense", SIZE_MAX, &add), VYRE_ARGUMENT, "memory");
    vyre_constant set[] = {{"BY", "5"}}, unset[] = {{"BYE", "5"}}, empty[] = {{NULL, "5"}};
    EXPECT(vyre_load_with(runtime, text, unset, 1, &add), VYRE_INVALID_PROGRAM, "BYE");
    EXPECT(vyre_load_with(runtime, text, empty, 1, &add), VYRE_NULL, "constant");
    EXPECT(vyre_load_with(runtime, text, NULL, 1, &add), VYRE_NULL, "`constants`");
    EXPECT(vyre_load_with(runtime, text, set, SIZE_MAX, &add), VYRE_ARGUMENT, "constants");
    EXPECT(vyre_load_with(runtime, text, set, 1, &add), VYRE_OK, NULL);

    uint32_t x[4] = {1, 2, 3, 4}, y[4] = {0};
    vyre_argument good[] = {vyre_in("x", x, 4, VYRE_U32), vyre_out("y", y, 4, VYRE_U32)};
    EXPECT(vyre_run(add, good, 2, NULL, NULL), VYRE_OK, NULL);
    EXPECT(y[3] == 9 ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_run(NULL, good, 2, NULL, NULL), VYRE_NULL, "routine");
    EXPECT(vyre_run((vyre_routine)runtime, good, 2, NULL, NULL), VYRE_HANDLE, "not a valid routine");
    EXPECT(vyre_run((vyre_routine)(uintptr_t)12345, good, 2, NULL, NULL), VYRE_HANDLE, "not a valid routine");
    EXPECT(vyre_run((vyre_routine)(void *)x, good, 2, NULL, NULL), VYRE_HANDLE, "not a valid routine");
    EXPECT(vyre_run(add, NULL, 2, NULL, NULL), VYRE_NULL, "`arguments`");
    EXPECT(vyre_run(add, good, 1, NULL, NULL), VYRE_INVALID_PROGRAM, "`y`");
    EXPECT(vyre_run(add, good, 1000000000, NULL, NULL), VYRE_ARGUMENT, "arguments");

    vyre_argument bad[2] = {good[0], good[1]};
#define BAD(field, value, status, says) \
    do { \
        bad[1] = good[1]; \
        bad[1].field = value; \
        EXPECT(vyre_run(add, bad, 2, NULL, NULL), status, says); \
    } while (0)
    BAD(name, NULL, VYRE_NULL, "name");
    BAD(name, "z", VYRE_INVALID_PROGRAM, "`z`");
    BAD(name, "x", VYRE_INVALID_PROGRAM, "twice");
    BAD(name, "\xc3", VYRE_ARGUMENT, "UTF-8");
    BAD(data, NULL, VYRE_NULL, "`data` of `y`");
    BAD(data, x, VYRE_ARGUMENT, "overlaps");
    BAD(data, x + 2, VYRE_ARGUMENT, "overlaps");
    BAD(count, SIZE_MAX, VYRE_ARGUMENT, "elements");
    BAD(count, SIZE_MAX / 4, VYRE_ARGUMENT, "elements");
    BAD(type, VYRE_F32, VYRE_INVALID_PROGRAM, "f32");
    BAD(type, 0, VYRE_ARGUMENT, "not an element type");
    BAD(type, 99, VYRE_ARGUMENT, "not an element type");
    BAD(access, VYRE_READ, VYRE_INVALID_PROGRAM, "written");
    BAD(access, 7, VYRE_ARGUMENT, "not an access");
    BAD(array, (vyre_array)add, VYRE_HANDLE, "not a valid array");

    vyre_options options = {0};
    options.backend = "nowhere";
    EXPECT(vyre_run(add, good, 2, &options, NULL), VYRE_NOT_LINKED, "nowhere");
    options.backend = "cpu-ref";
    options.fallback = 9;
    EXPECT(vyre_run(add, good, 2, &options, NULL), VYRE_ARGUMENT, "not a fallback policy");
    options.fallback = VYRE_FALLBACK_FORBID;
    vyre_report report = NULL;
    EXPECT(vyre_run(add, good, 2, &options, &report), VYRE_OK, NULL);
    EXPECT(strcmp(vyre_report_backend(report), "cpu-ref") == 0 ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_report_text(report, NULL), VYRE_NULL, "`text`");
    EXPECT(vyre_report_measures(report, NULL), VYRE_NULL, "`measures`");
    vyre_measures measures;
    EXPECT(vyre_report_measures(report, &measures), VYRE_OK, NULL);
    EXPECT(measures.elements == 4 ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_report_free(report), VYRE_OK, NULL);
    EXPECT(vyre_report_free(report), VYRE_HANDLE, "freed");
    EXPECT(vyre_report_backend(report) == NULL ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_report_free(NULL), VYRE_OK, NULL);

    vyre_array array = NULL, foreign = NULL;
    EXPECT(vyre_array_new(runtime, VYRE_U32, SIZE_MAX / 2, NULL, &array), VYRE_ARGUMENT, "elements");
    EXPECT(vyre_array_new(runtime, 55, 4, NULL, &array), VYRE_ARGUMENT, "not an element type");
    EXPECT(vyre_array_new(runtime, VYRE_U32, 4, NULL, NULL), VYRE_NULL, "`array`");
    EXPECT(vyre_array_new(runtime, VYRE_U32, 4, NULL, &array), VYRE_OK, NULL);
    EXPECT(vyre_array_new(other, VYRE_U32, 4, NULL, &foreign), VYRE_OK, NULL);
    vyre_argument resident[] = {good[0], vyre_on_device("y", array)};
    EXPECT(vyre_run(add, resident, 2, NULL, NULL), VYRE_OK, NULL);
    EXPECT(vyre_array_read(array, 2, 3, y), VYRE_ARGUMENT, "has 4");
    EXPECT(vyre_array_read(array, SIZE_MAX, 2, y), VYRE_ARGUMENT, "has 4");
    EXPECT(vyre_array_read(array, 0, 4, NULL), VYRE_NULL, NULL);
    EXPECT(vyre_array_read(array, 4, 0, NULL), VYRE_OK, NULL);
    memset(y, 0, sizeof y);
    EXPECT(vyre_array_read(array, 0, 4, y), VYRE_OK, NULL);
    EXPECT(y[0] == 6 && y[3] == 9 ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_array_write(array, 3, 2, y), VYRE_ARGUMENT, "has 4");
    resident[1] = vyre_on_device("y", foreign);
    EXPECT(vyre_run(add, resident, 2, NULL, NULL), VYRE_INVALID_PROGRAM, "another runtime");
    EXPECT(vyre_array_free(array), VYRE_OK, NULL);
    resident[1] = vyre_on_device("y", array);
    EXPECT(vyre_run(add, resident, 2, NULL, NULL), VYRE_HANDLE, "`y`");
    EXPECT(vyre_array_free(array), VYRE_HANDLE, "freed");
    EXPECT(vyre_array_free((vyre_array)add), VYRE_HANDLE, "not a valid array");

    EXPECT(vyre_run_op(runtime, "no.such", good, 2, NULL, NULL), VYRE_ARGUMENT, "sort.keys");
    EXPECT(vyre_run_op(runtime, NULL, good, 2, NULL, NULL), VYRE_NULL, "`op`");
    EXPECT(vyre_run_op(runtime, "reduce.sum", good + 1, 1, NULL, NULL), VYRE_ARGUMENT, "`x`");
    uint32_t sum = 0;
    vyre_argument sums[] = {good[0], vyre_out("result", &sum, 1, VYRE_U32)};
    EXPECT(vyre_run_op(runtime, "reduce.sum", sums, 2, NULL, NULL), VYRE_OK, NULL);
    EXPECT(sum == 10 ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    sums[1].count = 0;
    EXPECT(vyre_run_op(runtime, "reduce.sum", sums, 2, NULL, NULL), VYRE_INVALID_PROGRAM, NULL);

    char *explanation = NULL;
    EXPECT(vyre_explain(add, 4, NULL), VYRE_NULL, "`text`");
    EXPECT(vyre_explain(add, 4, &explanation), VYRE_OK, NULL);
    EXPECT(vyre_text_free(explanation), VYRE_OK, NULL);
    EXPECT(vyre_text_free(explanation), VYRE_HANDLE, "not a valid text");
    EXPECT(vyre_text_free(heard), VYRE_HANDLE, "not a valid text");
    EXPECT(vyre_text_free(NULL), VYRE_OK, NULL);
    EXPECT(vyre_explain_json(add, 4, &explanation), VYRE_OK, NULL);
    EXPECT(explanation[0] == '{' ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_text_free(explanation), VYRE_OK, NULL);

    vyre_routine hello = NULL, trap = NULL, claim = NULL, spin = NULL;
    EXPECT(vyre_load(runtime, "kernel hello() over 1 { print(\"hello {}\", 7) }", &hello), VYRE_OK, NULL);
    EXPECT(vyre_run(hello, NULL, 0, NULL, NULL), VYRE_OK, NULL);
    EXPECT(strcmp(heard, "hello 7") == 0 ? VYRE_OK : VYRE_OTHER, VYRE_OK, NULL);
    EXPECT(vyre_load(runtime, "kernel t(y: output u32[1]) { y[0] = 1; trap 5 }", &trap), VYRE_OK, NULL);
    vyre_argument one[] = {vyre_out("y", y, 1, VYRE_U32)};
    EXPECT(vyre_run(trap, one, 1, NULL, NULL), VYRE_TRAPPED, "code 5");
    EXPECT(vyre_load(runtime, "kernel c(y: output u32[1]) { assert(false, \"never\"); y[0] = 1 }", &claim), VYRE_OK, NULL);
    EXPECT(vyre_run(claim, one, 1, NULL, NULL), VYRE_ASSERT_FAILED, "never");
    vyre_options careless = {0};
    careless.without_asserts = 1;
    EXPECT(vyre_run(claim, one, 1, &careless, NULL), VYRE_OK, NULL);
    EXPECT(vyre_load(runtime, "kernel s(y: read_write u32[1]) { while y[0] < 2 { y[0] = 1 } }", &spin), VYRE_OK, NULL);
    vyre_options short_time = {0};
    short_time.timeout_ns = 50000000;
    y[0] = 0;
    EXPECT(vyre_run(spin, one, 1, &short_time, NULL), VYRE_TIMEOUT, NULL);

    /* What was loaded outlives its runtime. */
    EXPECT(vyre_runtime_free(runtime), VYRE_OK, NULL);
    EXPECT(vyre_runtime_free(runtime), VYRE_HANDLE, "freed");
    EXPECT(vyre_load(runtime, text, &hello), VYRE_HANDLE, "freed");
    EXPECT(vyre_run(add, good, 2, NULL, NULL), VYRE_OK, NULL);
    EXPECT(vyre_routine_free(add), VYRE_OK, NULL);
    EXPECT(vyre_run(add, good, 2, NULL, NULL), VYRE_HANDLE, "freed");
    EXPECT(vyre_routine_free(add), VYRE_HANDLE, "freed");
    EXPECT(vyre_routine_free(hello), VYRE_OK, NULL);
    EXPECT(vyre_routine_free(trap), VYRE_OK, NULL);
    EXPECT(vyre_routine_free(claim), VYRE_OK, NULL);
    EXPECT(vyre_routine_free(spin), VYRE_OK, NULL);
    EXPECT(vyre_array_free(foreign), VYRE_OK, NULL);
    EXPECT(vyre_runtime_free(other), VYRE_OK, NULL);
    return failures;
}
