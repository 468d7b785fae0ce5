//! The table of diagnostic codes. A code is never reused; `docs/errors.md` is generated from here.

use super::Severity;
use std::fmt;

macro_rules! codes {
    ($($variant:ident $code:literal $title:literal $explain:literal;)*) => {
        /// A diagnostic code: a row of the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $title] $variant),* }

        impl Code {
            /// Every code, in table order.
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];
            const ROWS: &'static [(&'static str, &'static str, &'static str)] = &[$(($code, $title, $explain)),*];
        }
    };
}

codes! {
    // T: text that cannot be parsed.
    UnexpectedToken "T001" "unexpected text"
        "The text does not follow the grammar of docs/text-format.md at this place. A statement ends at the end of its \
         line; it continues on the next line only inside parentheses or brackets, or after an operator or comma. A \
         name that is a keyword is written in backticks.";
    BadLiteral "T002" "impossible literal"
        "A number cannot be read, or does not fit its type. A number has the type of its suffix, as in `-1i32` or \
         `7u64`. Without a suffix it takes the type of the operand next to it, within its kind; if that does not \
         determine the type, a whole number is a u32, and a number with a point or exponent is an f32.";
    Unclosed "T003" "never closed"
        "A brace, string, quoted name or comment is opened but not closed. Strings and quoted names end on the line \
         that they start on.";
    BadCharacter "T004" "unknown character"
        "The text has a character or an escape that the grammar does not allow. Names that are not plain identifiers \
         are written in backticks; the escapes are `\\n`, `\\r`, `\\t`, `\\\\`, `\\\"`, ``\\` `` and `\\u{…}`.";
    UnknownType "T005" "unknown type or access"
        "A buffer is declared as `name: access type[count]`, with one of the accesses read, read_write, output, \
         uniform and workgroup, or as `name: type uniform` for a single value. Variables, arrays and parameters have \
         value types: bool, u32, i32, u64, i64, f32, f64.";
    OneKernel "T006" "not exactly one kernel"
        "The text of a program holds one kernel and any number of functions.";
    NoResult "T007" "function without a result"
        "The last line of a function is an expression, its result, unless every path through it ends with `return` and \
         a value.";
    RepeatedIndex "T008" "index would be evaluated twice"
        "`a[i] += x` means `a[i] = a[i] + x`, which evaluates the index twice; an index with an atomic in it \
         would act twice. Name the index with `let` first.";
    TextTooLarge "T009" "text too large"
        "The text of a program is limited to 64 MiB.";

    Constant "T010" "impossible constant"
        "A constant is declared before its first use, as in `const N: u32 = 16`. Its value has its type and is made of \
         literals, earlier constants and table ops. Domains and the sizes of arrays, workgroups and buffers can use \
         constants. A caller overrides the value with `--set N=32` or `Constants`.";

    // V: validation errors.
    UnknownVariable "V001" "unknown variable"
        "An expression or assignment names a variable that is not declared, or whose block has ended. A variable is \
         visible from its `let` to the end of the block that contains the `let`.";
    UnknownBuffer "V002" "unknown buffer or array"
        "A load, store, `len` or atomic names something that is neither a buffer of the program nor a private array \
         declared before it. Functions see no buffers at all: pass the value in as an argument.";
    UnknownFunction "V003" "unknown function"
        "A call names neither an op of the table nor a function that the program defines.";
    DuplicateName "V004" "name declared twice"
        "A declaration uses a name that is already visible there: a buffer, function, variable, array, counter or \
         parameter. Shadowing is refused because an inner `let` is most often a mistyped assignment.";
    OperandTypes "V005" "operands of the wrong type"
        "An op does not take operands of these types. There are no implicit conversions: write the conversion, as in \
         `f32(i)`. A number without a suffix takes the type of the operand next to it only within its kind: next to a \
         float write `2.0`, not `2`.";
    OperandCount "V006" "wrong number of operands"
        "An op, atomic, subgroup op or function takes a fixed number of operands.";
    ConditionType "V007" "condition is not bool"
        "The condition of `if` and `while` must be a bool. Compare explicitly, as in `x != 0`.";
    AssignType "V008" "assignment of another type"
        "A variable keeps the type of its first value.";
    AssignTarget "V009" "cannot be assigned"
        "Loop counters, parameters, buffers and arrays are not variables. A counter is fixed by its loop; copy it to \
         a `let` to change it. An element is written with `name[index] = value`.";
    StoreType "V010" "stored value has the wrong type"
        "An element takes the value type of its storage type: `u8` and `u16` take u32, `i8` and `i16` take i32, `f16` \
         and `bf16` take f32.";
    IndexType "V011" "index is not u32"
        "Indices and lengths are u32 everywhere. Convert with `u32(…)`.";
    NotWritable "V012" "buffer is not writable"
        "Stores and atomics need a buffer with access read_write, output or workgroup.";
    DuplicateBinding "V013" "binding used twice"
        "Two buffers share a binding number, so a caller could not distinguish them.";
    WorkgroupSize "V014" "impossible workgroup size"
        "Every axis of the workgroup size is at least 1, and the product is at most 2^31 - 1. A device's own limits \
         are checked when the program is compiled for it.";
    BarrierDivergent "V015" "barrier in divergent control flow"
        "A barrier waits for every invocation of the workgroup, so all must reach it together: no `if` or loop around \
         it, and no return, break or continue before it, may depend on a value that differs between invocations. \
         Uniform values are literals, workgroup ids, sizes, lengths, uniform buffers, loads from `read` buffers at a \
         uniform index, results of `workgroup_broadcast` (which is itself a barrier), and values computed from these.";
    SubgroupDivergent "V016" "subgroup op in divergent control flow"
        "Subgroup ops exchange values between lanes, so all lanes of the subgroup must reach one together: no `if` or \
         loop around it, and no return, break or continue before it, may depend on a value that differs within the \
         subgroup. Values that are the same across a subgroup are uniform values, `subgroup_id`, ballots, broadcasts \
         and reductions, and values computed from these.";
    WorkgroupMemory "V017" "impossible workgroup memory"
        "A workgroup buffer has a fixed number of elements, at least 1, and all of a program's together take at most \
         1 GiB. A device's own limit is checked when the program is compiled for it.";
    Recursion "V018" "function calls itself"
        "Functions are inlined, so none may call itself, directly or through others. Write a loop.";
    TooDeep "V019" "nested too deep"
        "Expressions nest at most 256 deep and blocks at most 128. Name intermediate results with `let`, or use a \
         loop.";
    TooLarge "V020" "program too large"
        "With its functions inlined the program has more than a million values or statements, which no backend would \
         compile in reasonable time. Use loops instead of repeated code.";
    OutsideLoop "V021" "break or continue outside a loop"
        "`break` and `continue` act on the innermost `for` or `while` around them.";
    NotPure "V022" "function is not pure"
        "A function computes its result from its parameters: no memory but its own arrays, no atomics, barriers, \
         subgroup ops, builtins, regions, traps, or `return` without a value.";
    AtomicType "V023" "atomic on memory that has none"
        "Atomics work on elements of u32, i32, u64 or i64 in read_write, output or workgroup buffers.";
    Axis "V024" "no such axis"
        "Ids and sizes have the axes 0, 1 and 2: x, y and z.";
    NotRegions "V025" "top level is not all regions"
        "Every statement at the top level of a program is a region, the unit that is profiled and hinted. \
         `Program::wrapped` puts a bare body in one.";
    LengthSource "V026" "length taken from an unsuitable buffer"
        "A domain or a run-time sized buffer takes its length from another buffer of the program that is bound at \
         dispatch. A buffer cannot take its own length, and a chain of such references must end.";
    LoopBounds "V027" "loop bounds of different or unsuitable types"
        "From, to and step of a counted loop are integers of one type.";
    LaneNotUniform "V028" "broadcast lane is not uniform"
        "A broadcast reads one lane for the whole subgroup. Use a shuffle for lanes that differ.";
    ArraySize "V029" "impossible array size"
        "A private array has between 1 and 65,536 elements, and all of an invocation's arrays together take at most \
         1 MiB.";
    ResultType "V030" "function result has the wrong type"
        "The last expression of a function has the type that its header names.";
    BufferCount "V031" "impossible buffer size"
        "A buffer has fewer than 2^32 elements and takes fewer than 2^63 bytes; a buffer with a fixed count cannot \
         also take its length from another.";

    SizeFormula "V032" "impossible size"
        "The axes of a domain and the length of an output are u32 expressions over literals, single-value uniforms, \
         `len(…)` of bound buffers and table ops, since they are evaluated before the kernel runs: `over [width, \
         height]`, `y: output f32[width * height]`. Convert another type with `u32(…)`.";

    MessageFormat "V033" "message does not fit its operands"
        "The message of `print` and `assert` has one `{}` for each operand, at most 16, and no other brace: write `{{` \
         and `}}` for `{` and `}`.";
    MessageOperand "V034" "operand of a message has side effects"
        "`print` and `assert` only observe: the program behaves the same with and without them. So their operands and \
         conditions cannot contain an atomic, a subgroup op, a workgroup op or a call of a function that itself prints \
         or asserts. Name its value with `let` first.";

    // W: validation warnings.
    IndexOutOfRange "W001" "index always out of range"
        "A constant index is outside a buffer or array of known size: the load gives zero, the store does nothing.";
    UnusedBuffer "W002" "buffer is never used"
        "A buffer is declared but the body neither reads nor writes it nor uses its length.";

    OneInvocation "W003" "domain of a single value"
        "`over n` runs one invocation per element of `n`, and a single-value uniform has one element. Write `over [n]` \
         to run as many invocations as its value.";

    // D: a dispatch that does not match its program.
    InputCount "D001" "wrong number of inputs"
        "A dispatch takes one input per read, uniform and read_write buffer, in binding order; with bound buffers, one \
         per buffer that is not workgroup memory.";
    InputLength "D002" "input has the wrong length"
        "An input's length in bytes is a whole number of elements, and exactly the declared count where there is one.";
    OutputLength "D003" "output length is not known"
        "A run-time sized output takes its length from the buffer it names with `len_of`, else from the longest \
         run-time sized input that is not a uniform. With neither, give it a count.";
    TooManyElements "D004" "buffer is too long"
        "Lengths and indices are u32, so a buffer of 2^32 elements or more is refused.";
    GridSize "D005" "impossible grid or workgroup override"
        "An override must have no zero axis for the workgroup size, and each axis of the grid in invocations must fit \
         in 32 bits.";
    Argument "D006" "argument does not fit its buffer"
        "A call binds one argument to each buffer of the program that is not workgroup memory, by the buffer's name. \
         Its element type is the buffer's (`u8` for bool, `u16` for the bits of f16 and bf16), and memory that the \
         program writes is passed as `&mut`.";
    SizeUnknown "D007" "size depends on memory that the host cannot read"
        "The domain, or the length of an output, is an expression over uniforms whose bytes are on a device. Bind them \
         as numbers or in the host's memory, or give the dispatch its own domain.";

    // A: programs that cannot run over table columns.
    NotElementwise "A001" "not elementwise"
        "Engines that process columns in batches split them anywhere, and a column holds arbitrary bytes where a value \
         is missing. So a program that runs inside such an engine is elementwise: invocation `i` reads and writes only \
         element `invocation.x` of the buffers that are sized at dispatch; what it writes depends only on these, on \
         uniforms and on `read` buffers of a fixed size; and it neither traps, asserts nor prints. The position can \
         index buffers and be compared with their lengths.";

    // S: shaders that cannot be imported.
    UnreadableShader "S001" "shader cannot be read"
        "The text or the words are not a valid shader: naga, which reads WGSL, SPIR-V and GLSL, says what is wrong and \
         where.";
    UnsupportedShader "S002" "shader uses an unsupported feature"
        "The shader uses something that programs cannot express, such as a texture, a ray query or an 8-bit integer. \
         docs/import.md lists what is supported.";
    ShaderEntry "S003" "no such entry point"
        "A program is made from one compute entry point. If a shader has several, name one: `--entry NAME`, or \
         the argument of `load_wgsl`.";
    ShaderConstant "S004" "impossible override"
        "An override or specialisation constant has no value, cannot take the value that was set, or is not in \
         the shader. Set a value by name or number, as in `--set WIDTH=64`.";
    ShaderTooLarge "S005" "shader beyond a limit"
        "The shader is too large, nests too deep, or becomes too large when its functions are inlined. \
         docs/import.md has the limits.";
}

impl Code {
    fn row(self) -> (&'static str, &'static str, &'static str) {
        Code::ROWS[self as usize]
    }

    /// The code as text, such as `V001`; stable, never reused.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The code with that text, if there is one.
    #[expect(clippy::should_implement_trait, reason = "absence is not an error")]
    pub fn from_str(text: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text))
    }

    /// A short title.
    pub fn title(self) -> &'static str {
        self.row().1
    }

    /// What it means and what to do, in a few sentences.
    pub fn explain(self) -> &'static str {
        self.row().2
    }

    /// Whether it rejects the program or only warns.
    pub fn severity(self) -> Severity {
        if self.as_str().starts_with('W') { Severity::Warning } else { Severity::Error }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
