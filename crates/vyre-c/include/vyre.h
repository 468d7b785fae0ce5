/*
 * vyre for C: compute kernels written once and run on the backend measured fastest.
 *
 * This file is generated from crates/vyre-c by `cargo xtask docs`. docs/c.md explains it.
 *
 * Errors. Most functions return a `vyre_status`: `VYRE_OK`, which is 0, or an error, which
 * `vyre_error_text` describes. A function that fails writes nothing through its pointers, but a
 * call that failed may have written to the memory of its arguments.
 *
 * Handles. Runtimes, routines, arrays and reports are handles. Free each once, with its own
 * function. A handle that was freed or never valid results in `VYRE_HANDLE` and does no harm.
 * Freeing null does nothing.
 *
 * Threads. Any thread may call any function at any time, with the same handles too. An object
 * freed while another thread uses it is destroyed when that use ends. As everywhere in C, data
 * races are forbidden: until a call returns, nothing else may access the memory that it writes, or
 * write the memory that it reads. `vyre_error_text` is per thread.
 *
 * Strings are UTF-8 and end with a zero byte.
 */
#ifndef VYRE_H
#define VYRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The result of a function: `VYRE_OK` or an error. A number never changes its meaning. */
typedef int32_t vyre_status;
/** Opens backends and runs kernels. Use one for the whole program, from any number of threads. */
typedef struct vyre_runtime_handle *vyre_runtime;
/** Memory that stays on a backend between calls. It belongs to the runtime that it was made
 * with. */
typedef struct vyre_array_handle *vyre_array;
/** The type of an element. */
typedef uint32_t vyre_type;
/** What a call may do with the memory of an argument. */
typedef uint32_t vyre_access;
/** Facts about a finished call: which backend ran it, why, and how long it took. */
typedef struct vyre_report_handle *vyre_report;
/** A program loaded into a runtime. Call it from any number of threads. */
typedef struct vyre_routine_handle *vyre_routine;
/** Whether another backend may run the call if the selected one cannot. */
typedef uint32_t vyre_fallback;

/** Done. */
#define VYRE_OK 0
/** An error that no other status describes. */
#define VYRE_OTHER 1
/** The device has no memory left for a buffer or a kernel. */
#define VYRE_DEVICE_OUT_OF_MEMORY 2
/** The backend or its device lacks a feature that the program or the call needs. */
#define VYRE_UNSUPPORTED_FEATURE 3
/** The device's own compiler refused the kernel. */
#define VYRE_KERNEL_COMPILE_FAILED 4
/** A launch did not complete. The contents of memory that it writes are unspecified. */
#define VYRE_DISPATCH_FAILED 5
/** The program or the arguments of a call break a rule; `vyre_error_text` lists every fault. */
#define VYRE_INVALID_PROGRAM 6
/** The kernel reached a `trap`. */
#define VYRE_TRAPPED 7
/** The call ran past its timeout and was ended. */
#define VYRE_TIMEOUT 8
/** The device was reset or removed. */
#define VYRE_DEVICE_LOST 9
/** The library has no backend of this name. */
#define VYRE_NOT_LINKED 10
/** Two backends have the same name. */
#define VYRE_DUPLICATE_BACKEND 11
/** No backend can be used. */
#define VYRE_NO_USABLE_BACKEND 12
/** An `assert` of the kernel did not hold. */
#define VYRE_ASSERT_FAILED 13
/** The call was cancelled. */
#define VYRE_CANCELLED 14
/** A table could not be written. */
#define VYRE_TABLE_FAILED 15
/** A pointer that must not be null is null. */
#define VYRE_NULL 101
/** A handle was already freed, is of another kind, or was never valid. */
#define VYRE_HANDLE 102
/** An argument is not UTF-8, is not an element type, is too long, or overlaps another argument. */
#define VYRE_ARGUMENT 103
/** The header and the library have different versions of the interface. */
#define VYRE_ABI 104
/** An internal error of the library, which remains usable. Please report it. */
#define VYRE_PANIC 105
/** The version of the interface that this header declares; `vyre_runtime_new` checks it. */
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
/** The default: yes for a routed call, no for a call on a named backend. */
#define VYRE_FALLBACK_USUAL 0
/** No: the caller gets the error. */
#define VYRE_FALLBACK_FORBID 1
/** Yes, with a warning in the log. */
#define VYRE_FALLBACK_WARN 2
/** Yes; memory that is read and written is saved before each launch. */
#define VYRE_FALLBACK_ALLOW 3

/** Options for a runtime. Set all to zero first (`vyre_runtime_options options = {0};`): zero
 * selects the default. */
typedef struct vyre_runtime_options {
    /** The backends to use, separated by commas, as in "cpu,wgpu"; null for all. */
    const char *backends;
    /** The folder of the tables, which hold what vyre measured; null for the user's folders. */
    const char *tables;
    /** Nonzero keeps the tables in memory only. */
    uint32_t without_tables;
    /** Nonzero routes by verified rows of the routing table only. */
    uint32_t frozen;
    /** Receives what kernels print, on the thread that made the call; null discards it. It must
     * not make calls itself. */
    void (*print)(const char *message, void *context);
    /** Passed to `print` unchanged. */
    void *context;
} vyre_runtime_options;

/** An argument of a call: memory for the buffer of that name. Made by `vyre_in`, `vyre_out` and
 * `vyre_on_device`. */
typedef struct vyre_argument {
    /** The buffer's name in the kernel. */
    const char *name;
    /** The elements, in native byte order; null only if there are none or `array` is set. */
    void *data;
    /** The number of elements. */
    size_t count;
    /** The type of an element. */
    vyre_type type;
    /** Whether the call may write them. */
    vyre_access access;
    /** A device array, used instead of memory; null for none. */
    vyre_array array;
} vyre_argument;

/** The numbers of a report. */
typedef struct vyre_measures {
    /** The number of elements that the call was over. */
    uint64_t elements;
    /** The time of the call in nanoseconds, transfers included. */
    uint64_t wall_ns;
    /** The time of the kernel on the device in nanoseconds; 0 if the device did not report it. */
    uint64_t device_ns;
    /** The number of messages that it printed. */
    uint64_t prints;
} vyre_measures;

/** A new value for a constant of a program's text. */
typedef struct vyre_constant {
    /** The constant's name. */
    const char *name;
    /** Its value as text, such as "16" or "0.5". */
    const char *value;
} vyre_constant;

/** Options for a call. Set all to zero first (`vyre_options options = {0};`): zero selects the
 * default. */
typedef struct vyre_options {
    /** The only backend to run on; null routes the call. */
    const char *backend;
    /** The time limit of the call in nanoseconds; 0 for no limit. */
    uint64_t timeout_ns;
    /** The number of invocations on each axis, where 0 means 1; all 0 for the program's own
     * domain. */
    uint32_t domain[3];
    /** Whether another backend may run the call. */
    vyre_fallback fallback;
    /** Nonzero disables the program's asserts. */
    uint32_t without_asserts;
} vyre_options;

/** The error message of the last function that failed on this thread; empty if none failed. It
 * is valid until another function fails on this thread; do not free it. */
const char *vyre_error_text(void);

/** A suggested fix for the last failure on this thread; null if none is known. It is valid as
 * long as `vyre_error_text`. */
const char *vyre_error_fix(void);

/** The name of a status, such as "VYRE_TIMEOUT". Do not free it. */
const char *vyre_status_name(vyre_status status);

/** Frees a string that a function returned through a `char **`. Null is ignored; a string that
 * was already freed, or any other pointer, is an error. */
vyre_status vyre_text_free(char *text);

/** The version of the library, such as "0.2.0". Do not free it. */
const char *vyre_version(void);

/** The interface version of the library; a header with another `VYRE_ABI_VERSION` is
 * incompatible. */
uint32_t vyre_abi_version(void);

/** Creates a runtime; `vyre_runtime_new` calls this with the header's version. It opens every
 * available backend and checks its results. */
vyre_status vyre_runtime_open(uint32_t abi, const vyre_runtime_options *options, vyre_runtime *runtime);

/** Frees a runtime and saves its tables. Routines and arrays made with it stay usable until they
 * are freed themselves. Null is ignored. */
vyre_status vyre_runtime_free(vyre_runtime runtime);

/** Waits until all background work is done: opening and certifying drivers, verifying results,
 * comparing code. */
vyre_status vyre_runtime_settle(vyre_runtime runtime);

/** Returns the backends that calls are routed to, one per line, followed by those that are not
 * used, with the reason. Free the string with `vyre_text_free`. */
vyre_status vyre_runtime_backends(vyre_runtime runtime, char **text);

/** Creates a device array with these contents; all zeros if `contents` is null. */
vyre_status vyre_array_new(vyre_runtime runtime, vyre_type type, size_t count, const void *contents, vyre_array *array);

/** Frees a device array. A call that uses it on another thread completes first. Null is ignored. */
vyre_status vyre_array_free(vyre_array array);

/** Copies elements out of a device array, starting at index `first`. */
vyre_status vyre_array_read(vyre_array array, size_t first, size_t count, void *to);

/** Replaces elements of a device array, starting at index `first`. */
vyre_status vyre_array_write(vyre_array array, size_t first, size_t count, const void *from);

/** Returns the number of elements of a device array, and their type. Either pointer may be null. */
vyre_status vyre_array_shape(vyre_array array, size_t *count, vyre_type *type);

/** Returns the report as one line of text. Free it with `vyre_text_free`. */
vyre_status vyre_report_text(vyre_report report, char **text);

/** Returns what the kernel printed, one message per line. Free it with `vyre_text_free`. */
vyre_status vyre_report_prints(vyre_report report, char **text);

/** Returns the numbers of a report. */
vyre_status vyre_report_measures(vyre_report report, vyre_measures *measures);

/** The backend that ran the call; null if the handle is not a report. The string is valid until
 * the report is freed. */
const char *vyre_report_backend(vyre_report report);

/** Frees a report. Null is ignored. */
vyre_status vyre_report_free(vyre_report report);

/** Loads a program from its text. */
vyre_status vyre_load(vyre_runtime runtime, const char *text, vyre_routine *routine);

/** Loads a program from its text, with new values for its constants. */
vyre_status vyre_load_with(vyre_runtime runtime, const char *text, const vyre_constant *constants, size_t count, vyre_routine *routine);

/** Loads a program from bytes in the wire format, as `vyre emit --target wire` writes them. */
vyre_status vyre_load_wire(vyre_runtime runtime, const void *bytes, size_t length, vyre_routine *routine);

/** Frees a routine. A call of it on another thread completes first. Null is ignored. */
vyre_status vyre_routine_free(vyre_routine routine);

/** Runs a program once and waits for it. Each argument names a buffer of the kernel; any order
 * works, the kernel's order is fastest. `options` and `report` may be null. Memory is used in
 * place, not copied: until this returns, nothing else may write it or read what the call writes. */
vyre_status vyre_run(vyre_routine routine, const vyre_argument *arguments, size_t count, const vyre_options *options, vyre_report *report);

/** Explains which backend would run a call over this many elements, and why. Free the text with
 * `vyre_text_free`. */
vyre_status vyre_explain(vyre_routine routine, uint64_t elements, char **text);

/** Returns the same explanation as JSON. */
vyre_status vyre_explain_json(vyre_routine routine, uint64_t elements, char **text);

/** Runs a ready op of the catalogue by its name: "sort.keys", "sort.pairs", "reduce.sum",
 * "reduce.min", "reduce.max", "dot", "argmax", "scan.inclusive", "scan.exclusive", "compact",
 * "histogram", "transpose", "softmax.rows" or "matmul". docs/c.md lists the buffers of each.
 * Otherwise like `vyre_run`. */
vyre_status vyre_run_op(vyre_runtime runtime, const char *op, const vyre_argument *arguments, size_t count, const vyre_options *options, vyre_report *report);

/* Functions that make arguments. */

/** Creates a runtime, with all backends if `options` is null: `vyre_runtime_open` with the
 * header's version. */
static inline vyre_status vyre_runtime_new(const vyre_runtime_options *options, vyre_runtime *runtime) {
    return vyre_runtime_open(VYRE_ABI_VERSION, options, runtime);
}

/** An argument that the call reads: `vyre_in("x", x, 1000, VYRE_F32)`. A single value is one
 * element. */
static inline vyre_argument vyre_in(const char *name, const void *data, size_t count, vyre_type type) {
    vyre_argument argument = {name, (void *)data, count, type, VYRE_READ, NULL};
    return argument;
}

/** An argument that the call writes, and may read: `vyre_out("y", y, 1000, VYRE_F32)`. */
static inline vyre_argument vyre_out(const char *name, void *data, size_t count, vyre_type type) {
    vyre_argument argument = {name, data, count, type, VYRE_WRITE, NULL};
    return argument;
}

/** A device array as an argument; the kernel may write it. */
static inline vyre_argument vyre_on_device(const char *name, vyre_array array) {
    vyre_argument argument = {name, NULL, 0, 0, VYRE_WRITE, array};
    return argument;
}

#ifdef __cplusplus
}
#endif

#endif /* VYRE_H */
