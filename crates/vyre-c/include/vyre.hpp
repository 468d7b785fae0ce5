/*
 * vyre for C++17: the interface of vyre.h with RAII handles, deduced element types and exceptions.
 * docs/c.md explains it.
 *
 *     vyre::runtime runtime;
 *     vyre::routine saxpy = runtime.load(text);
 *     saxpy.run(vyre::value("a", 2.0f), vyre::in("x", x), vyre::out("y", y));
 */
#ifndef VYRE_HPP
#define VYRE_HPP

#include "vyre.h"

#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace vyre {

/** The failure of a function of vyre.h: its status and message. */
class error : public std::runtime_error {
  public:
    error(vyre_status status, const std::string &text, std::string fix)
        : std::runtime_error(text), status_(status), fix_(std::move(fix)) {}

    vyre_status status() const noexcept { return status_; }
    /** A suggested fix; empty if none is known. */
    const std::string &fix() const noexcept { return fix_; }

  private:
    vyre_status status_;
    std::string fix_;
};

/** Throws the last error of this thread, unless the status is `VYRE_OK`. */
inline void check(vyre_status status) {
    if (status != VYRE_OK) {
        const char *fix = vyre_error_fix();
        throw error(status, vyre_error_text(), fix ? fix : "");
    }
}

namespace detail {

template <typename T> struct always_false : std::false_type {};

/** The element type of a C++ number type. */
template <typename T> constexpr vyre_type type_of() {
    if constexpr (std::is_same_v<T, bool>) {
        static_assert(sizeof(bool) == 1, "elements of bool are bytes");
        return VYRE_BOOL;
    } else if constexpr (std::is_same_v<T, float>) {
        return VYRE_F32;
    } else if constexpr (std::is_same_v<T, double>) {
        return VYRE_F64;
    } else if constexpr (std::is_integral_v<T>) {
        constexpr bool is_signed = std::is_signed_v<T>;
        if constexpr (sizeof(T) == 1) return is_signed ? VYRE_I8 : VYRE_U8;
        if constexpr (sizeof(T) == 2) return is_signed ? VYRE_I16 : VYRE_U16;
        if constexpr (sizeof(T) == 4) return is_signed ? VYRE_I32 : VYRE_U32;
        if constexpr (sizeof(T) == 8) return is_signed ? VYRE_I64 : VYRE_U64;
    } else {
        static_assert(always_false<T>::value, "no element type of vyre has these values");
    }
}

/** A handle that its destructor frees; movable, not copyable. */
template <typename Handle, vyre_status (*free_handle)(Handle)> class owned {
  public:
    owned() = default;
    explicit owned(Handle handle) : handle_(handle) {}
    owned(owned &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    owned &operator=(owned &&other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    ~owned() { free_handle(handle_); }

    /** The handle, for functions of vyre.h. This object still owns it. */
    Handle get() const noexcept { return handle_; }

  protected:
    Handle handle_ = nullptr;
};

/** The string that a function returns. */
template <typename Function, typename... Arguments>
std::string text_of(Function function, Arguments... arguments) {
    char *text = nullptr;
    check(function(arguments..., &text));
    struct guard {
        char *text;
        ~guard() { vyre_text_free(text); }
    } freed{text};
    return text;
}

} // namespace detail

/** An argument of a call. It holds a single value, or a pointer to memory. */
class argument {
  public:
    explicit argument(vyre_argument given) : given_(given) {}

    template <typename T> static argument of_value(const char *name, T value) {
        static_assert(sizeof(T) <= sizeof(bytes_), "a number has eight bytes at most");
        argument made(vyre_in(name, nullptr, 1, detail::type_of<T>()));
        const unsigned char *from = reinterpret_cast<const unsigned char *>(&value);
        for (std::size_t k = 0; k < sizeof(T); ++k) made.bytes_[k] = from[k];
        made.holds_ = true;
        return made;
    }

    /** The argument for C; valid until this object is moved or destroyed. */
    vyre_argument get() const {
        vyre_argument given = given_;
        if (holds_) given.data = const_cast<unsigned char *>(bytes_);
        return given;
    }

  private:
    vyre_argument given_;
    alignas(8) unsigned char bytes_[8] = {};
    bool holds_ = false;
};

/** A single value, such as an `f32 uniform`. */
template <typename T> argument value(const char *name, T number) {
    return argument::of_value<T>(name, number);
}

/** Memory that the call reads. */
template <typename T> argument in(const char *name, const T *data, std::size_t count) {
    return argument(vyre_in(name, data, count, detail::type_of<std::remove_cv_t<T>>()));
}

/** The elements of a vector, array or other container, which the call reads. */
template <typename Container> auto in(const char *name, const Container &elements) -> decltype(in(name, elements.data(), elements.size())) {
    return in(name, elements.data(), elements.size());
}

/** The elements of a C array, which the call reads. */
template <typename T, std::size_t N> argument in(const char *name, const T (&elements)[N]) {
    return in(name, &elements[0], N);
}

/** Memory that the call writes. */
template <typename T> argument out(const char *name, T *data, std::size_t count) {
    return argument(vyre_out(name, data, count, detail::type_of<T>()));
}

/** The elements of a container, which the call writes. */
template <typename Container> auto out(const char *name, Container &elements) -> decltype(out(name, elements.data(), elements.size())) {
    return out(name, elements.data(), elements.size());
}

/** The elements of a C array, which the call writes. */
template <typename T, std::size_t N> argument out(const char *name, T (&elements)[N]) {
    return out(name, &elements[0], N);
}

/** Facts about a finished call. */
class report : public detail::owned<vyre_report, vyre_report_free> {
  public:
    using owned::owned;

    std::string text() const { return detail::text_of(vyre_report_text, handle_); }
    /** What the kernel printed, one message per line. */
    std::string prints() const { return detail::text_of(vyre_report_prints, handle_); }
    std::string backend() const {
        const char *name = vyre_report_backend(handle_);
        return name ? name : "";
    }
    vyre_measures measures() const {
        vyre_measures found = {};
        check(vyre_report_measures(handle_, &found));
        return found;
    }
};

/** Memory that stays on a backend between calls. */
template <typename T> class device_array : public detail::owned<vyre_array, vyre_array_free> {
  public:
    using owned::owned;

    std::size_t size() const {
        std::size_t count = 0;
        check(vyre_array_shape(handle_, &count, nullptr));
        return count;
    }
    /** A copy of the contents. */
    std::vector<T> read() const {
        std::vector<T> contents(size());
        check(vyre_array_read(handle_, 0, contents.size(), contents.data()));
        return contents;
    }
    /** Replaces elements, starting at index `first`. */
    void write(std::size_t first, const std::vector<T> &elements) {
        check(vyre_array_write(handle_, first, elements.size(), elements.data()));
    }
};

/** A device array as an argument; the kernel may write it. */
template <typename T> argument on_device(const char *name, const device_array<T> &array) {
    return argument(vyre_on_device(name, array.get()));
}

/** A program loaded into a runtime. */
class routine : public detail::owned<vyre_routine, vyre_routine_free> {
  public:
    using owned::owned;

    /** Runs the program once and waits for it. */
    template <typename... Arguments> void run(const Arguments &...arguments) const {
        run_with(nullptr, arguments...);
    }

    /** Runs the program once, with options. */
    template <typename... Arguments> void run_with(const vyre_options *options, const Arguments &...arguments) const {
        const std::array<vyre_argument, sizeof...(Arguments)> given = {arguments.get()...};
        check(vyre_run(handle_, given.data(), given.size(), options, nullptr));
    }

    /** Runs the program once and returns its report. */
    template <typename... Arguments> report reported(const vyre_options *options, const Arguments &...arguments) const {
        const std::array<vyre_argument, sizeof...(Arguments)> given = {arguments.get()...};
        vyre_report made = nullptr;
        check(vyre_run(handle_, given.data(), given.size(), options, &made));
        return report(made);
    }

    /** Explains which backend would run a call over this many elements, and why. */
    std::string explain(std::uint64_t elements) const {
        return detail::text_of(vyre_explain, handle_, elements);
    }
};

/** Opens backends and runs kernels. */
class runtime : public detail::owned<vyre_runtime, vyre_runtime_free> {
  public:
    explicit runtime(const vyre_runtime_options *options = nullptr) {
        check(vyre_runtime_new(options, &handle_));
    }

    /** Loads a program from its text, with other values for constants:
     * `load(text, {{"WIDTH", "16"}})`. */
    routine load(const std::string &text, std::initializer_list<vyre_constant> constants = {}) const {
        vyre_routine loaded = nullptr;
        check(vyre_load_with(handle_, text.c_str(), constants.begin(), constants.size(), &loaded));
        return routine(loaded);
    }

    /** Loads a program from bytes in the wire format. */
    routine load_wire(const void *bytes, std::size_t length) const {
        vyre_routine loaded = nullptr;
        check(vyre_load_wire(handle_, bytes, length, &loaded));
        return routine(loaded);
    }

    /** A device array with these contents. */
    template <typename T> device_array<T> array(const std::vector<T> &contents) const {
        vyre_array made = nullptr;
        check(vyre_array_new(handle_, detail::type_of<T>(), contents.size(), contents.data(), &made));
        return device_array<T>(made);
    }

    /** Runs a ready op, such as "sort.keys". */
    template <typename... Arguments> void run_op(const char *op, const Arguments &...arguments) const {
        const std::array<vyre_argument, sizeof...(Arguments)> given = {arguments.get()...};
        check(vyre_run_op(handle_, op, given.data(), given.size(), nullptr, nullptr));
    }

    /** The backends in use, one per line, and those that are not, with the reason. */
    std::string backends() const { return detail::text_of(vyre_runtime_backends, handle_); }
};

} // namespace vyre

#endif // VYRE_HPP
