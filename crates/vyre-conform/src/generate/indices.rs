//! Programs about indices: kernels as users write them, whose accesses a launch proves in range or
//! not.
//!
//! Indices are rows and columns, reversals, strides, remainders, butterflies and random expressions
//! of ids, parameters and loop counters. Guards are right, off by one, or about something else.
//! Parameters are sizes that fit the buffers exactly, or hostile: 0, 1, 2³¹, 2³² − 1. Buffers have
//! exactly the elements that the indices need, or a few less or more.
//!
//! **Race-free.** Invocations only read the buffers that they read at such indices. A store at such
//! an index writes a value that depends on the index alone, so it does not matter which invocation
//! stores last. **Terminating.** A loop whose bounds are hostile ends after a few iterations.

use super::Case;
use crate::choices::Choices;
use vyre_foundation::text::parse;

/// Values that make sizes wrap.
const HOSTILE: [u32; 8] = [0, 1, 1 << 31, u32::MAX, u32::MAX - 1, (1 << 31) - 1, 1 << 16, 3];

/// Elements of the longest buffer.
const LONGEST: u64 = 6000;

/// The case that the decisions lead to.
pub(super) fn case(mut choices: Choices<'_>, subgroup_size: u32) -> Case {
    let most = if choices.one_in(4) { 70 } else { 20 };
    let [w, h] = [(); 2].map(|()| 1 + choices.below(most) as u32);
    let grouped = choices.one_in(3);
    let scope = ["x", "y", "local.x"][..if grouped { 3 } else { 2 }].iter().map(|name| name.to_string());
    let (scope, lines) = (scope.collect(), Vec::new());
    let mut writer = Writer { w, h, n: 0, m: 0, grouped, choices, lines, scope, names: 0 };
    writer.n = writer.parameter();
    writer.m = writer.parameter();
    let lengths = [(); 3].map(|()| writer.length());
    let width = writer.choices.pick_from([8, 16, 32]);
    let height = if grouped { 1 } else { writer.choices.pick_from([1, 2]) };
    let store = if grouped {
        "tile[local.y * workgroup_size.x + local.x] = a[y * w + x]\n             barrier"
    } else {
        ""
    };
    writer.block(3, 2);
    let source = format!(
        "kernel indices(w: u32 uniform, h: u32 uniform, n: u32 uniform, m: u32 uniform, a: read u32[],
           b: read u16[], c: read_write u32[], shape: read u8[], sums: output u32[] len_of shape,
           tile: workgroup u32[{width}]) over [w, h] workgroup [{width}, {height}, 1] {{
           region \"indices\" {{
             let x = invocation.x
             let y = invocation.y
             let sum = 0
             {store}
             {}
             if x < w && y < h {{ sums[y * w + x] = sum }} }} }}",
        writer.lines.join("\n             ")
    );
    let program = match parse(&source) {
        Ok(program) => program,
        Err(wrong) => unreachable!("the generator writes valid text: {wrong}\n{source}"),
    };
    let numbers = [w, h, writer.n, writer.m].map(|number| number.to_le_bytes().to_vec());
    let mut bytes =
        |count: u64, size: u64| (0..count * size).map(|_| writer.choices.below(256) as u8).collect();
    let mut inputs = numbers.to_vec();
    inputs.extend([bytes(lengths[0], 4), bytes(lengths[1], 2), bytes(lengths[2], 4)]);
    inputs.push(vec![0; (w * h) as usize]);
    Case { program, inputs, subgroup_size }
}

struct Writer<'a> {
    /// The sizes of the domain.
    w: u32,
    h: u32,
    /// The parameters.
    n: u32,
    m: u32,
    /// Whether there is workgroup memory, each element written by one invocation.
    grouped: bool,
    choices: Choices<'a>,
    lines: Vec<String>,
    /// The integers in scope.
    scope: Vec<String>,
    names: u32,
}

impl Writer<'_> {
    /// A parameter that fits the domain, or a hostile one.
    fn parameter(&mut self) -> u32 {
        let (w, h) = (self.w, self.h);
        let fitting =
            [w, h, w * h, w.max(h), w + 1, w.next_power_of_two(), 2 * w, (w * h).next_power_of_two()];
        match self.choices.below(4) {
            0 => self.choices.pick_from(HOSTILE),
            _ => self.choices.pick_from(fitting),
        }
    }

    /// The length of a buffer: what common indices need, or a little less or more.
    fn length(&mut self) -> u64 {
        let [w, h, n, m] = [self.w, self.h, self.n, self.m].map(u64::from);
        let needed = [w * h, w * h, n, n * h, n * w, 2 * n + w, n * m, w * h * 2, w, n + m, w * h * 3, 64];
        let exact = self.choices.pick_from(needed);
        let off = match self.choices.below(8) {
            0 => exact.saturating_sub(1),
            1 => exact + 1,
            _ => exact,
        };
        off.min(LONGEST)
    }

    fn block(&mut self, depth: usize, most: usize) {
        for _ in 0..1 + self.choices.below(most + 1) {
            self.statement(depth);
        }
    }

    fn statement(&mut self, depth: usize) {
        match self.choices.below(if depth == 0 { 4 } else { 10 }) {
            0 | 1 => self.load(),
            2 => self.store(),
            3 => self.named(),
            4..=6 => self.guarded(depth),
            7 => self.counted(depth),
            8 => self.walked(depth),
            _ => self.early_return(),
        }
    }

    fn load(&mut self) {
        let index = self.index();
        let place = match self.choices.pick_from(["a", "a", "b", "tile"]) {
            "tile" if !self.grouped => "a",
            place => place,
        };
        let value = if place == "b" { format!("u32({place}[{index}])") } else { format!("{place}[{index}]") };
        self.lines.push(format!("sum = sum * 31 + {value}"));
    }

    fn store(&mut self) {
        let (index, name) = (self.index(), self.fresh("at"));
        self.lines.push(format!("let {name} = {index}"));
        self.lines.push(format!("c[{name}] = {name} * 2654435761 + 7"));
    }

    fn named(&mut self) {
        let (value, name) = (self.index(), self.fresh("v"));
        self.lines.push(format!("let {name} = {value}"));
        self.scope.push(name);
        self.load();
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn guarded(&mut self, depth: usize) {
        let guard = self.guard();
        self.lines.push(format!("if {guard} {{"));
        self.nested(depth);
        if self.choices.one_in(4) {
            self.lines.push("} else {".into());
            self.nested(depth);
        }
        self.lines.push("}".into());
    }

    fn nested(&mut self, depth: usize) {
        let mark = self.scope.len();
        self.block(depth - 1, 2);
        self.scope.truncate(mark);
    }

    /// A counted loop of a few iterations.
    fn counted(&mut self, depth: usize) {
        let name = self.fresh("k");
        let (from, to) = (self.atom(), self.atom());
        let step = self.choices.pick_from(["1", "1", "2", "3", "w"]);
        let small = |number: u32| number <= 9;
        let line = match self.choices.below(5) {
            0 if small(self.n) => format!("for {name} in 0..n {{"),
            1 if small(self.m) => format!("for {name} in 0..m step {step} {{"),
            2 if small(self.w) => format!("for {name} in 0..w {{"),
            3 => format!("for {name} in 0..min({to}, 5) {{"),
            _ => format!("for {name} in {from}..min({to}, {from} + 6) step {step} {{"),
        };
        self.lines.push(line);
        self.scope.push(name);
        self.nested(depth);
        self.scope.pop();
        self.lines.push("}".into());
    }

    /// A loop over a variable, as in a walk of the whole grid, a tree or a search.
    fn walked(&mut self, depth: usize) {
        let [name, rounds] = ["i", "r"].map(|prefix| self.fresh(prefix));
        let limit = self.choices.pick_from(["n", "w * h", "m", "len(a)", "64"]);
        let (start, condition, next) = self.choices.pick_from([
            ("x", "< limit", "+ w"),
            ("y * w + x", "< limit", "+ 7"),
            ("limit", "> 0", "/ 2"),
            ("limit - 1", "< limit", "- 1"),
            ("16", "> 0", ">> 1"),
        ]);
        let [start, condition] = [start, condition].map(|text| text.replace("limit", limit));
        self.lines.push(format!("let {name} = {start}"));
        self.lines.push(format!("let {rounds} = 0"));
        self.lines.push(format!("while {name} {condition} && {rounds} < 6 {{"));
        self.scope.push(name.clone());
        self.nested(depth);
        self.scope.pop();
        self.lines.push(format!("{name} = {name} {next}"));
        self.lines.push(format!("{rounds} = {rounds} + 1"));
        self.lines.push("}".into());
    }

    fn early_return(&mut self) {
        let guard = self.guard();
        self.lines.push(format!("if {guard} {{ return }}"));
    }

    /// A condition: one that users write, sometimes off by one, or a random comparison.
    fn guard(&mut self) -> String {
        let pick = self.choices.below(14);
        let [p, q] = [(); 2].map(|()| self.atom());
        match pick {
            0 => "x > 0 && x + 1 < w && y > 0 && y + 1 < h".into(),
            1 => "x + 1 < n && y + 1 < h".into(),
            2 => "x < n".into(),
            3 => "y * w + x < n".into(),
            4 => "x >= w || y >= h".into(),
            5 => "!(x >= n || y >= m)".into(),
            6 => format!("{p} < len(a)"),
            7 => format!("{p} < len(c) && {q} < len(b)"),
            8 => "x % 2 == 0".into(),
            9 => "x > 0 && y < n - 1".into(),
            10 => format!("i32({p}) - 1 >= 0i32"),
            11 => format!("{p} != 0 && {p} - 1 < {q}"),
            12 => "x <= n".into(),
            _ => {
                let operator = self.choices.pick_from(["<", "<=", ">", ">=", "==", "!="]);
                let constant = self.choices.below(4);
                format!("{p} + {constant} {operator} {q}")
            }
        }
    }

    /// An index: one that users write, or a random expression.
    fn index(&mut self) -> String {
        let pick = self.choices.below(26);
        let [p, q] = [(); 2].map(|()| self.atom());
        match pick {
            0 => "y * w + x".into(),
            1 => "y * n + x".into(),
            2 => format!("(y + 1) * w + {p}"),
            3 => "n - 1 - x".into(),
            4 => "2 * n + x".into(),
            5 => format!("min({p} + 1, n - 1)"),
            6 => format!("(m + {p}) % n"),
            7 => format!("{p} & (n - 1)"),
            8 => "(x / n) * 2 * n + x % n + n".into(),
            9 => "(y * w + x) % n".into(),
            10 => format!("(y * w + x) / n * n + {p} % n"),
            11 => "y * w + x - 1".into(),
            12 => "(y - 1) * w + x + 1".into(),
            13 => format!("u32(clamp(i32({p}) - 1, 0i32, i32(n) - 1))"),
            14 => format!("u32(max(i32({p}) - i32({q}), 0i32))"),
            15 => format!("select({p} == 0, n - 1, {p} - 1)"),
            16 => format!("select({p} + 1 < n, {p} + 1, 0)"),
            17 => format!("x * m + {p}"),
            18 => format!("{p} * ({p} + 1) / 2 + {q}"),
            19 => format!("({p} >> 2) << 2 | {q} & 3"),
            20 => format!("({p} << (m & 7)) + {q}"),
            21 => format!("len(a) - 1 - {p}"),
            22 => "u32(b[y * w + x])".into(),
            23 if self.grouped => format!("local.x + {p}"),
            _ => self.expression(3),
        }
    }

    fn expression(&mut self, depth: usize) -> String {
        if depth == 0 || self.choices.one_in(3) {
            return self.atom();
        }
        let [p, q] = [(); 2].map(|()| self.expression(depth - 1));
        let operator = self
            .choices
            .pick_from(["+", "-", "*", "/", "%", "+", "-", "&", "|", "^", "min", "max", "sat_sub"]);
        match operator.len() {
            1 => format!("({p} {operator} {q})"),
            _ => format!("{operator}({p}, {q})"),
        }
    }

    fn atom(&mut self) -> String {
        match self.choices.below(9) {
            0 => self.choices.pick_from(["0", "1", "2", "3", "7", "w", "h"]).into(),
            1 => "n".into(),
            2 => "m".into(),
            _ => {
                let at = self.choices.below(self.scope.len());
                self.scope[at].clone()
            }
        }
    }
}
