/* y = a x + y from C. docs/c.md says how to compile it. */
#include "vyre.h"

#include <stdio.h>
#include <stdlib.h>

static const char *TEXT =
    "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y {\n"
    "  let i = invocation.x\n"
    "  y[i] = a * x[i] + y[i]\n"
    "}\n";

static void check(vyre_status status) {
    if (status != VYRE_OK) {
        fprintf(stderr, "%s: %s\n", vyre_status_name(status), vyre_error_text());
        exit(1);
    }
}

int main(void) {
    vyre_runtime runtime;
    check(vyre_runtime_new(NULL, &runtime));
    vyre_routine saxpy;
    check(vyre_load(runtime, TEXT, &saxpy));

    enum { COUNT = 1000 };
    float a = 2.0f, x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)i;
        y[i] = 0.5f;
    }
    vyre_argument arguments[] = {
        vyre_in("a", &a, 1, VYRE_F32),
        vyre_in("x", x, COUNT, VYRE_F32),
        vyre_out("y", y, COUNT, VYRE_F32),
    };
    vyre_report report;
    check(vyre_run(saxpy, arguments, 3, NULL, &report));

    char *text;
    check(vyre_report_text(report, &text));
    printf("y[999] = %g\n%s\n", y[999], text);
    vyre_text_free(text);
    vyre_report_free(report);
    vyre_routine_free(saxpy);
    vyre_runtime_free(runtime);
    return y[999] == 1998.5f ? 0 : 1;
}
