/*
 * vyre for C: compute kernels written once and run on the backend measured fastest.
 *
 * This file is generated from crates/vyre-c by `cargo xtask docs`. docs/c.md explains it.
 *
 * Failure. Most functions give a `vyre_status`: `VYRE_OK`, which is 0, or what kept them from being done.
 * `vyre_error_text` then says what went wrong. A function that fails writes nothing through its pointers,
 * but a call that failed may have written memory that was given to it for writing.
 *
 * Handles. Runtimes, routines, arrays and reports are handles. Each is freed once, by its own function. A
 * handle that was freed, or never was one, gives `VYRE_HANDLE` and does no harm. Freeing null does nothing.
 *
 * Threads. Every function may be called from every thread at any time, on the same handles too. An object
 * that is freed while another thread uses it goes when that use ends. What must not happen at once is
 * what C forbids anyway: memory given to a call for writing must not be read or written elsewhere until
 * the call returns, nor memory given for reading be written. `vyre_error_text` tells of its own thread alone.
 *
 * Text is UTF-8 and ends with a zero byte.
 */
#ifndef VYRE_H
#define VYRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a function came to: `VYRE_OK`, or what kept it from being done. Numbers never change their meaning. */
typedef int32_t vyre_status;
/** Opens backends and runs kernels. Use one for the whole program, from any number of threads. */
typedef struct vyre_runtime_handle *vyre_runtime;
/** Memory that stays on a backend between calls of the runtime that it was made with. */
typedef struct vyre_array_handle *vyre_array;
/** The type of an element. */
typedef uint32_t vyre_type;
/** What a call may do with the memory of an argument. */
typedef uint32_t vyre_access;
/** What a finished call came to: which backend ran it, why, and how long it took. */
typedef struct vyre_report_handle *vyre_report;
/** A program loaded into a runtime. Call it from any number of threads. */
typedef struct vyre_routine_handle *vyre_routine;
/** Whether another backend may do the work if the chosen one cannot. */
typedef uint32_t vyre_fallback;

/** Done. */
#define VYRE_OK 0
/** Anything that no other status describes. */
#define VYRE_OTHER 1
/** The device has no memory left for a buffer or a kernel. */
#define VYRE_DEVICE_OUT_OF_MEMORY 2
/** The backend or its device lacks something that was asked of it. */
#define VYRE_UNSUPPORTED_FEATURE 3
/** The device's own compiler refused the kernel. */
#define VYRE_KERNEL_COMPILE_FAILED 4
/** A launch did not complete. Memory given for writing has unspecified contents. */
#define VYRE_DISPATCH_FAILED 5
/** The program or the arguments of a call break a rule; the text names every fault. */
#define VYRE_INVALID_PROGRAM 6
/** The kernel reached a `trap`. */
#define VYRE_TRAPPED 7
/** The call ran past its timeout and was ended. */
#define VYRE_TIMEOUT 8
/** The device was reset, removed or taken away. */
#define VYRE_DEVICE_LOST 9
/** No backend of this name is part of the library. */
#define VYRE_NOT_LINKED 10
/** Two backends have one name. */
#define VYRE_DUPLICATE_BACKEND 11
/** No backend can be used. */
#define VYRE_NO_USABLE_BACKEND 12
/** An `assert` of the kernel did not hold. */
#define VYRE_ASSERT_FAILED 13
/** The call was cancelled. */
#define VYRE_CANCELLED 14
/** A table of what was learnt could not be written. */
#define VYRE_TABLE_FAILED 15
/** A pointer is null that must not be. */
#define VYRE_NULL 101
/** A handle was freed before, is of another kind, or never was one. */
#define VYRE_HANDLE 102
/** An argument is no text in UTF-8, no element type, too long, or overlaps another one. */
#define VYRE_ARGUMENT 103
/** The header and the library are of different versions of the interface. */
#define VYRE_ABI 104
/** A fault of the library itself, which it survived. Please report it. */
#define VYRE_PANIC 105
/** The version of the interface that this header is of; `vyre_runtime_new` checks it. */
#define VYRE_ABI_VERSION 1
/** One byte, 0 or 1. */
#define VYRE_BOOL 1
/** 8-bit unsigned integer. */
#define VYRE_U8 2
/** 8-bit signed integer. */
#define VYRE_I8 3
/** 16-bit unsigned integer. */
#define VYRE_U16 4
/** 16-bit signed integer. */
#define VYRE_I16 5
/** 32-bit unsigned integer. */
#define VYRE_U32 6
/** 32-bit signed integer. */
#define VYRE_I32 7
/** 64-bit unsigned integer. */
#define VYRE_U64 8
/** 64-bit signed integer. */
#define VYRE_I64 9
/** The 16 bits of an IEEE-754 half. */
#define VYRE_F16 10
/** The upper 16 bits of a float. */
#define VYRE_BF16 11
/** float. */
#define VYRE_F32 12
/** double. */
#define VYRE_F64 13
/** The call only reads it. */
#define VYRE_READ 0
/** The call may read and write it. */
#define VYRE_WRITE 1
/** As usual: a routed call may, one on a named backend may not. */
#define VYRE_FALLBACK_USUAL 0
/** No: the error is the caller's. */
#define VYRE_FALLBACK_FORBID 1
/** Yes, with a warning in the log. */
#define VYRE_FALLBACK_WARN 2
/** Yes; memory that is read and written is saved before each launch. */
#define VYRE_FALLBACK_ALLOW 3

/** Options for a runtime. Set all to zero first (`vyre_runtime_options options = {0};`): zero means the
 * usual. */
typedef struct vyre_runtime_options {
    /** The backends to use, separated by commas, as in "cpu,wgpu"; null for all. */
    const char *backends;
    /** The folder that what is learnt is kept in; null for the user's own. */
    const char *tables;
    /** Not zero keeps what is learnt in memory only. */
    uint32_t without_tables;
    /** Not zero lets only verified rows of the routing table decide. */
    uint32_t frozen;
    /** Hears what kernels print, on the thread that made the call; null for nobody. It must not make calls
     * itself. */
    void (*print)(const char *message, void *context);
    /** Given to `print` as it is. */
    void *context;
} vyre_runtime_options;

/** One argument of a call: memory for the buffer of that name. `vyre_in`, `vyre_out` and `vyre_on_device`
 * make them. */
typedef struct vyre_argument {
    /** The buffer's name in the kernel. */
    const char *name;
    /** The elements, in the machine's own byte order; null only where there are none, or where `array` is
     * set. */
    void *data;
    /** How many elements there are. */
    size_t count;
    /** The type of an element. */
    vyre_type type;
    /** Whether the call may write them. */
    vyre_access access;
    /** A device array, instead of memory; null for none. */
    vyre_array array;
} vyre_argument;

/** The numbers of a report. */
typedef struct vyre_measures {
    /** How many elements the call was over. */
    uint64_t elements;
    /** How many nanoseconds it took, transfers included. */
    uint64_t wall_ns;
    /** How many nanoseconds the kernel ran on the device; 0 where the device did not tell. */
    uint64_t device_ns;
    /** How many messages it printed. */
    uint64_t prints;
} vyre_measures;

/** Another value for a constant of a program's text. */
typedef struct vyre_constant {
    /** The constant's name. */
    const char *name;
    /** Its value, as a text such as "16" or "0.5". */
    const char *value;
} vyre_constant;

/** Options for a call. Set all to zero first (`vyre_options options = {0};`): zero means the usual. */
typedef struct vyre_options {
    /** The backend to run on, and no other; null to have the call routed. */
    const char *backend;
    /** How many nanoseconds the call may take; 0 for no limit. */
    uint64_t timeout_ns;
    /** How many invocations run on each axis; all 0 for the program's own domain, else a 0 stands for 1. */
    uint32_t domain[3];
    /** Whether another backend may do the work. */
    vyre_fallback fallback;
    /** Not zero leaves the program's asserts out. */
    uint32_t without_asserts;
} vyre_options;

/** What went wrong in the last function that failed on this thread, as a text; empty if none has. It is
 * valid until another function fails on this thread, and not to be freed. */
const char *vyre_error_text(void);

/** What to do about the last failure on this thread, as a text; null where that is not known. It is valid
 * as long as `vyre_error_text`. */
const char *vyre_error_fix(void);

/** The name of a status, such as "VYRE_TIMEOUT". It is never freed. */
const char *vyre_status_name(vyre_status status);

/** Frees a text that a function gave through a `char **`. Null is ignored; a text that was freed before, or
 * any other pointer, is an error. */
vyre_status vyre_text_free(char *text);

/** The version of the library, such as "0.2.0". It is never freed. */
const char *vyre_version(void);

/** The version of the interface that the library has; a header with another `VYRE_ABI_VERSION` does not fit
 * it. */
uint32_t vyre_abi_version(void);

/** Makes a runtime; `vyre_runtime_new` calls this with the header's version. Opens every backend that is
 * there, and checks that its results are right. */
vyre_status vyre_runtime_open(uint32_t abi, const vyre_runtime_options *options, vyre_runtime *runtime);

/** Ends a runtime and writes what was learnt. What was loaded into it stays usable until it is freed
 * itself. Null is left alone. */
vyre_status vyre_runtime_free(vyre_runtime runtime);

/** Waits until nothing is being done in the background: drivers met, results verified, code compared. */
vyre_status vyre_runtime_settle(vyre_runtime runtime);

/** Gives the backends that calls are routed to, one per line, and behind them those that are not used, with
 * the reason. Free the text with `vyre_text_free`. */
vyre_status vyre_runtime_backends(vyre_runtime runtime, char **text);

/** Makes a device array with these contents; all zeros if `contents` is null. */
vyre_status vyre_array_new(vyre_runtime runtime, vyre_type type, size_t count, const void *contents, vyre_array *array);

/** Frees a device array. A call on it that is under way on another thread goes on to its end. Null is left
 * alone. */
vyre_status vyre_array_free(vyre_array array);

/** Copies elements out of a device array, from the one at `first` on. */
vyre_status vyre_array_read(vyre_array array, size_t first, size_t count, void *to);

/** Replaces elements of a device array, from the one at `first` on. */
vyre_status vyre_array_write(vyre_array array, size_t first, size_t count, const void *from);

/** Gives how many elements a device array has, and their type. Either pointer may be null. */
vyre_status vyre_array_shape(vyre_array array, size_t *count, vyre_type *type);

/** Gives a report as one line to read. Free it with `vyre_text_free`. */
vyre_status vyre_report_text(vyre_report report, char **text);

/** Gives what the kernel printed, one message per line. Free it with `vyre_text_free`. */
vyre_status vyre_report_prints(vyre_report report, char **text);

/** Gives the numbers of a report. */
vyre_status vyre_report_measures(vyre_report report, vyre_measures *measures);

/** The backend that ran the call; null if this is no report. The text is valid until the report is freed. */
const char *vyre_report_backend(vyre_report report);

/** Frees a report. Null is left alone. */
vyre_status vyre_report_free(vyre_report report);

/** Loads a program from its text. */
vyre_status vyre_load(vyre_runtime runtime, const char *text, vyre_routine *routine);

/** Loads a program from its text, with other values for its constants. */
vyre_status vyre_load_with(vyre_runtime runtime, const char *text, const vyre_constant *constants, size_t count, vyre_routine *routine);

/** Loads a program from bytes in the wire format, as `vyre emit --target wire` writes them. */
vyre_status vyre_load_wire(vyre_runtime runtime, const void *bytes, size_t length, vyre_routine *routine);

/** Frees a routine. A call of it that is under way on another thread goes on to its end. Null is left
 * alone. */
vyre_status vyre_routine_free(vyre_routine routine);

/** Runs a program once and waits for it. Every buffer of the kernel is given by its name, in any order; in
 * the kernel's order it is fastest. `options` and `report` may be null. Memory is used where it is, not
 * copied; nobody else may write it, or read what the call writes, until this returns. */
vyre_status vyre_run(vyre_routine routine, const vyre_argument *arguments, size_t count, const vyre_options *options, vyre_report *report);

/** Explains as text where a call over this many elements would go, and why. Free it with `vyre_text_free`. */
vyre_status vyre_explain(vyre_routine routine, uint64_t elements, char **text);

/** Gives the same as JSON. */
vyre_status vyre_explain_json(vyre_routine routine, uint64_t elements, char **text);

/** Runs a ready op of the catalogue by its name: "sort.keys", "sort.pairs", "reduce.sum", "reduce.min",
 * "reduce.max", "dot", "argmax", "scan.inclusive", "scan.exclusive", "compact", "histogram", "transpose",
 * "softmax.rows" or "matmul". docs/c.md has the buffers of each. Otherwise as `vyre_run`. */
vyre_status vyre_run_op(vyre_runtime runtime, const char *op, const vyre_argument *arguments, size_t count, const vyre_options *options, vyre_report *report);

/* Ready-made arguments. */

/** Makes a runtime: all backends if `options` is null. It is `vyre_runtime_open` with the header's version. */
static inline vyre_status vyre_runtime_new(const vyre_runtime_options *options, vyre_runtime *runtime) {
    return vyre_runtime_open(VYRE_ABI_VERSION, options, runtime);
}

/** An argument that is only read: `vyre_in("x", x, 1000, VYRE_F32)`. A single value is one element. */
static inline vyre_argument vyre_in(const char *name, const void *data, size_t count, vyre_type type) {
    vyre_argument argument = {name, (void *)data, count, type, VYRE_READ, NULL};
    return argument;
}

/** An argument that is written, and may be read: `vyre_out("y", y, 1000, VYRE_F32)`. */
static inline vyre_argument vyre_out(const char *name, void *data, size_t count, vyre_type type) {
    vyre_argument argument = {name, data, count, type, VYRE_WRITE, NULL};
    return argument;
}

/** An argument that is a device array, which the kernel may write. */
static inline vyre_argument vyre_on_device(const char *name, vyre_array array) {
    vyre_argument argument = {name, NULL, 0, 0, VYRE_WRITE, array};
    return argument;
}

#ifdef __cplusplus
}
#endif

#endif /* VYRE_H */
