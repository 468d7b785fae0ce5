//! Common subexpression elimination: reuses values that a dominating statement already computed.
//!
//! One forward walk numbers values over the structured tree. A table maps the form of a computation
//! to its value; entries that a block adds are removed at the block's end, so a hit always
//! dominates. Loads carry the version of their memory, which changes with each write that the
//! invocation makes and, for shared memory, at each barrier; writes of other invocations between
//! barriers would be a race. Atomics and subgroup exchanges are never merged.

use super::rewrite::Names;
use super::walk::{Writes, is_shared, written};
use crate::kernel::{BufferId, Def, KernelBody, Operands, Place, Stmt, StmtKind, ValueId};
use crate::ops::{Law, Op};
use hashbrown::HashMap;

/// Merges equal computations.
pub(crate) fn run(body: &mut KernelBody) {
    let statements = std::mem::take(&mut body.body);
    let places = body.buffers.len() + body.arrays.len();
    let mut walk = Walk {
        names: Names::new(body),
        body,
        known: HashMap::new(),
        versions: vec![0; places],
        added: Vec::new(),
        next_version: 1,
    };
    let statements = walk.block(statements);
    walk.body.body = statements;
}

/// A computation in canonical form, and the version of the memory that it reads.
type ComputationKey = (Def, u32);

struct Walk<'a> {
    body: &'a mut KernelBody,
    names: Names,
    known: HashMap<ComputationKey, ValueId>,
    /// The keys that the open blocks added to `known`.
    added: Vec<ComputationKey>,
    /// Per buffer, then per array.
    versions: Vec<u32>,
    next_version: u32,
}

impl Walk<'_> {
    fn block(&mut self, block: Vec<Stmt>) -> Vec<Stmt> {
        let mark = self.added.len();
        let mut out = Vec::with_capacity(block.len());
        for mut stmt in block {
            self.names.apply(&mut stmt.kind);
            if let StmtKind::Def(value, def) = &stmt.kind
                && let Some(earlier) = self.number(*value, def)
            {
                self.names.replace(*value, earlier);
                continue;
            }
            self.nested(&mut stmt);
            self.effects(&stmt.kind);
            out.push(stmt);
        }
        self.forget(mark);
        out
    }

    /// The earlier value that this definition repeats; otherwise records the definition.
    fn number(&mut self, value: ValueId, def: &Def) -> Option<ValueId> {
        let key = self.key(def)?;
        if let Some(&earlier) = self.known.get(&key) {
            return Some(earlier);
        }
        self.known.insert(key.clone(), value);
        self.added.push(key);
        None
    }

    fn key(&self, def: &Def) -> Option<ComputationKey> {
        match def {
            Def::Const(_) | Def::Len(_) | Def::Builtin(..) => Some((def.clone(), 0)),
            Def::Op(op, operands) => Some((self.ordered(*op, *operands), 0)),
            // The flag does not affect the value; the earlier load keeps its own flag.
            Def::Load { place, index, .. } => {
                let version = self.versions[self.number_of(*place)];
                Some((Def::Load { place: *place, index: *index, in_bounds: false }, version))
            }
            // The propagate pass handles locals.
            Def::Get(_) | Def::Atomic { .. } | Def::Subgroup(..) => None,
        }
    }

    /// The canonical form: commutative operands sorted by id, and `>` as `<` with swapped operands.
    fn ordered(&self, op: Op, mut operands: Operands) -> Def {
        let (op, swap) = match op {
            Op::Gt => (Op::Lt, true),
            Op::Ge => (Op::Le, true),
            op => {
                let commutes = op.laws(self.body.ty(operands[0])).contains(&Law::Commutative);
                (op, commutes && operands[1] < operands[0])
            }
        };
        if swap {
            operands.swap(0, 1);
        }
        Def::Op(op, operands)
    }

    fn nested(&mut self, stmt: &mut Stmt) {
        let repeats = matches!(stmt.kind, StmtKind::For { .. } | StmtKind::Loop(_));
        if stmt.kind.blocks().iter().all(|block| block.is_empty()) {
            return;
        }
        let writes = Writes::of(stmt.kind.blocks());
        for nested in stmt.kind.blocks_mut().into_iter().flatten() {
            // A loop's body also runs after itself. The second side of a branch does not run after
            // the first, but new versions there cost nothing.
            if repeats {
                self.write_all(&writes);
            }
            let before = self.versions.clone();
            *nested = self.block(std::mem::take(nested));
            self.versions = before;
        }
        self.write_all(&writes);
    }

    fn effects(&mut self, kind: &StmtKind) {
        if let Some(place) = written(kind) {
            self.write(place);
        }
        if matches!(kind, StmtKind::Barrier) {
            self.write_shared();
        }
    }

    fn write_all(&mut self, writes: &Writes) {
        for &place in &writes.places {
            self.write(place);
        }
        if writes.barrier {
            self.write_shared();
        }
    }

    fn write_shared(&mut self) {
        let buffers = (0..self.body.buffers.len() as u32).map(|id| Place::Buffer(BufferId(id)));
        for place in buffers.filter(|&place| is_shared(self.body, place)).collect::<Vec<Place>>() {
            self.write(place);
        }
    }

    fn write(&mut self, place: Place) {
        let number = self.number_of(place);
        self.versions[number] = self.next_version;
        self.next_version += 1;
    }

    fn number_of(&self, place: Place) -> usize {
        match place {
            Place::Buffer(id) => id.index(),
            Place::Array(id) => self.body.buffers.len() + id.index(),
        }
    }

    fn forget(&mut self, mark: usize) {
        for key in self.added.drain(mark..) {
            self.known.remove(&key);
        }
    }
}
