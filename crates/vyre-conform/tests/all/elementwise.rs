//! The elementwise proof is sound: for a proved program, neither the positions at which columns are
//! cut nor the values of other elements change a result.

use vyre_conform::choices::{Choices, bytes_from_seed, next_random};
use vyre_conform::generate::{Generator, Options};
use vyre_conform::outcome::{given_buffers, returned_buffers};
use vyre_foundation::elementwise::{Elementwise, elementwise};
use vyre_foundation::ir::{BufferDecl, Program};
use vyre_foundation::kernel::Kernel;
use vyre_foundation::text::parse;
use vyre_reference::{RunOptions, run};

/// Length of the columns that programs are run on.
const COUNT: usize = 13;

/// Generates programs over columns `x`, `f`, `y` and `z`, the uniform `a` and the table `t`.
struct Writer<'a> {
    choices: Choices<'a>,
    /// One leaf in this many breaks the elementwise property; 0 for none.
    faults: usize,
    variables: usize,
    text: String,
}

impl Writer<'_> {
    /// An expression of type `u32`, or of type `f32` if `float` is set.
    fn value(&mut self, float: bool, depth: usize) -> String {
        if self.faults > 0 && self.choices.one_in(self.faults) {
            let fault = self.choices.pick_from([
                "i",
                "len(x)",
                "x[i + 1]",
                "x[0]",
                "t[i]",
                "u32(f[len(f) - 1 - i])",
                "kept[i]",
                "i / 8",
            ]);
            return if float { format!("f32({fault})") } else { fault.into() };
        }
        if depth == 0 || self.choices.is_exhausted() {
            return match (float, self.choices.below(7)) {
                (true, 0 | 1) => "f[i]".into(),
                (true, 2) => "z[i]".into(),
                (true, 3) => "1.5".into(),
                (true, _) => format!("f32({})", self.value(false, 0)),
                (false, 0) => "x[i]".into(),
                (false, 1) => "y[i]".into(),
                (false, 2) => "a".into(),
                (false, 3) => "7".into(),
                (false, 4) => "kept[3]".into(),
                (false, 5) => "invocation.y".into(),
                (false, _) if self.variables > 0 => {
                    let number = self.choices.below(self.variables);
                    format!("v{number}")
                }
                (false, _) => "3".into(),
            };
        }
        let (a, b) = (self.value(float, depth - 1), self.value(float, depth - 1));
        match (float, self.choices.below(6)) {
            (true, 0) => format!("sqrt({a})"),
            (true, 1) => format!("min({a}, {b})"),
            (_, 2) => format!("select({}, {a}, {b})", self.condition(depth - 1)),
            (_, 3) => format!("({a} + {b})"),
            (true, _) => format!("({a} * {b})"),
            (false, 0) => format!("t[{a} % 4]"),
            (false, 1) => format!("kept[{a} % 4]"),
            (false, 4) => format!("({a} / {b})"),
            (false, _) => format!("({a} * {b})"),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        match self.choices.below(5) {
            0 => "i < len(x)".into(),
            1 => "min(len(y), len(f)) <= i".into(),
            2 => format!("{} < {}", self.value(true, depth), self.value(true, depth)),
            _ => format!("{} % 3 == {} % 3", self.value(false, depth), self.value(false, depth)),
        }
    }

    fn statement(&mut self, depth: usize) {
        let value = |writer: &mut Self, float| writer.value(float, 2);
        match self.choices.below(9) {
            0 => {
                let value = value(self, false);
                self.text += &format!("y[i] = {value}\n");
            }
            1 | 2 => {
                let value = value(self, true);
                self.text += &format!("z[i] = {value}\n");
            }
            3 => {
                let (index, value) = (value(self, false), value(self, false));
                self.text += &format!("kept[{index} % 4] = {value}\n");
            }
            4 if self.variables > 0 => {
                let (number, value) = (self.choices.below(self.variables), value(self, false));
                self.text += &format!("v{number} = {value}\n");
            }
            5 if depth > 0 => {
                let condition = self.condition(2);
                self.block(&format!("if {condition} "), depth);
            }
            6 if depth > 0 => {
                let bound = value(self, false);
                self.block(&format!("for k{depth} in 0..min({bound}, 3) "), depth);
            }
            _ if depth == 2 => {
                let value = value(self, false);
                self.text += &format!("let v{} = {value}\n", self.variables);
                self.variables += 1;
            }
            _ => {
                let value = value(self, false);
                self.text += &format!("y[i] = y[i] + {value}\n");
            }
        }
    }

    fn block(&mut self, head: &str, depth: usize) {
        self.text += &format!("{head}{{\n");
        (0..2).for_each(|_| self.statement(depth - 1));
        self.text += "}\n";
    }
}

fn written(seed: u64, faults: usize) -> Program {
    let bytes = bytes_from_seed(seed, 400);
    let mut writer = Writer { choices: Choices::new(&bytes), faults, variables: 0, text: String::new() };
    for _ in 0..4 {
        writer.statement(2);
    }
    let text = format!(
        "kernel k(a: u32 uniform, t: read u32[4], x: read u32[], f: read f32[], y: read_write u32[],
                  z: output f32[] len_of x) over x {{ region \"r\" {{
         let i = invocation.x
         array kept: u32[4]
         {} }} }}",
        writer.text
    );
    parse(&text).unwrap_or_else(|faults| panic!("{faults}\n{text}"))
}

fn outputs(kernel: &Kernel, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    run(kernel, &inputs, &RunOptions::default()).unwrap_or_else(|error| panic!("{error}")).outputs
}

/// A program with its proof, and columns to run it on.
struct Tried<'p> {
    kernel: &'p Kernel,
    given: Vec<&'p BufferDecl>,
    returned: Vec<&'p BufferDecl>,
    columns: Vec<&'p str>,
    inputs: Vec<Vec<u8>>,
}

impl<'p> Tried<'p> {
    fn new(program: &'p Program, kernel: &'p Kernel, columns: Vec<&'p str>, seed: u64) -> Tried<'p> {
        let given = given_buffers(program);
        let bytes = |(k, decl): (usize, &&BufferDecl)| {
            let count = if decl.count > 0 { decl.count as usize } else { COUNT };
            bytes_from_seed(seed ^ (k as u64 + 1) << 32, count * decl.element.size())
        };
        let inputs = given.iter().enumerate().map(bytes).collect();
        Tried { kernel, given, returned: returned_buffers(program), columns, inputs }
    }

    fn is_column(&self, decl: &BufferDecl) -> bool {
        self.columns.contains(&&*decl.name)
    }

    /// The inputs, with columns cut to this range of elements.
    fn cut(&self, from: usize, to: usize) -> Vec<Vec<u8>> {
        let part = |(decl, bytes): (&&BufferDecl, &Vec<u8>)| {
            let size = decl.element.size();
            if self.is_column(decl) { bytes[from * size..to * size].to_vec() } else { bytes.clone() }
        };
        self.given.iter().zip(&self.inputs).map(part).collect()
    }

    /// The inputs, with every column element except one replaced by garbage.
    fn with_garbage_but(&self, kept: usize, seed: u64) -> Vec<Vec<u8>> {
        let changed = |(k, (decl, bytes)): (usize, (&&BufferDecl, &Vec<u8>))| {
            if !self.is_column(decl) {
                return bytes.clone();
            }
            let size = decl.element.size();
            let mut other = bytes_from_seed(seed.wrapping_add(k as u64), bytes.len());
            other[kept * size..][..size].copy_from_slice(&bytes[kept * size..][..size]);
            other
        };
        self.given.iter().zip(&self.inputs).enumerate().map(changed).collect()
    }

    /// Describes a result that depends on cuts or on other elements, if there is one.
    fn difference(&self, seed: u64) -> Option<String> {
        let whole = outputs(self.kernel, &self.inputs);
        let mut state = seed;
        let at = next_random(&mut state) as usize % (COUNT - 1) + 1;
        let parts = [self.cut(0, at), self.cut(at, COUNT)].map(|inputs| outputs(self.kernel, &inputs));
        for (k, decl) in self.returned.iter().enumerate() {
            if [&parts[0][k][..], &parts[1][k][..]].concat() != whole[k] {
                return Some(format!("`{}` differs when it is cut at {at}", decl.name));
            }
        }
        let kept = next_random(&mut state) as usize % COUNT;
        let other = outputs(self.kernel, &self.with_garbage_but(kept, next_random(&mut state)));
        for (k, decl) in self.returned.iter().enumerate() {
            let own = kept * decl.element.size()..(kept + 1) * decl.element.size();
            if other[k][own.clone()] != whole[k][own] {
                return Some(format!("element {kept} of `{}` depends on others", decl.name));
            }
        }
        None
    }
}

/// Whether the program was proved elementwise, and a counterexample if one was found.
fn tried(program: &Program, seed: u64) -> (bool, Option<String>) {
    let kernel = program.validate().unwrap_or_else(|faults| panic!("seed {seed}: {faults}"));
    let all = || program.buffers().iter().filter(|decl| decl.count == 0).map(|decl| &*decl.name).collect();
    let proof = elementwise(&kernel);
    let columns: Vec<&str> = match &proof {
        Ok(Elementwise { columns, .. }) => {
            let names = columns.iter().map(|id| kernel.buffer(*id).decl.name.clone());
            let names: Vec<_> = names.collect();
            program
                .buffers()
                .iter()
                .map(|decl| &*decl.name)
                .filter(|name| names.iter().any(|n| **n == **name))
                .collect()
        }
        Err(_) => all(),
    };
    (proof.is_ok(), Tried::new(program, &kernel, columns, seed).difference(seed))
}

#[test]
fn programs_of_element_values_are_elementwise() {
    for seed in 0..400 {
        let program = written(seed, 0);
        let (proved, wrong) = tried(&program, seed);
        assert!(proved, "seed {seed}: {:?}", elementwise(&program.validate().expect("valid")));
        assert_eq!(wrong, None, "seed {seed}");
    }
}

#[test]
fn what_is_proved_holds_and_what_is_refused_often_does_not() {
    let (mut proved, mut refused, mut rightly) = (0, 0, 0);
    for seed in 0..1200 {
        let program = written(seed, 24);
        let (is_elementwise, wrong) = tried(&program, seed);
        if is_elementwise {
            proved += 1;
            assert_eq!(wrong, None, "seed {seed}:\n{}", vyre_foundation::text::print(&program));
        } else {
            refused += 1;
            rightly += u32::from(wrong.is_some());
        }
    }
    // Many faults have no effect: they are multiplied by zero, compared without consequence, or in
    // a branch that is not taken.
    assert!(
        proved > 100 && refused > 400 && rightly > 200,
        "{proved} proved, {refused} refused, {rightly} rightly"
    );
}

#[test]
fn generated_programs_that_are_proved_hold() {
    let generator =
        Generator::new(Options { grouped: false, subgroups: false, shuffles: false, ..Options::default() });
    let mut proved = 0;
    for seed in 0..3000 {
        let program = generator.from_seed(seed).program;
        let kernel = program.validate().unwrap_or_else(|faults| panic!("seed {seed}: {faults}"));
        if elementwise(&kernel).is_ok() {
            proved += 1;
            assert_eq!(tried(&program, seed).1, None, "seed {seed}");
        }
    }
    println!("{proved} of 3000 programs are elementwise");
}
