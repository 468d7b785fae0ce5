//! The entry point, and functions inlined at each call.

use super::analysis::{Exit, Facts, exits_at_ends, has_exit};
use super::pointee::Root;
use super::statement::items;
use super::statement_list::StatementList;
use super::{InlinedFunction, Lower, Scope, Value};
use crate::fault::{Fault, Result};
use naga::{BuiltIn, Expression, Function, Handle, LocalVariable, TypeInner};
use std::collections::HashMap;
use vyre_foundation::ir::{Builtin, Expr, Name, Node, SubgroupOp};

/// Maximum depth of inlined calls. The shaders of `filetests/import` have at most 2.
const MAX_CALLS: usize = 64;

impl<'m> Lower<'m> {
    /// Lowers the body of the entry point.
    pub(super) fn entry_point(&mut self) -> Result<()> {
        let point = &self.module.entry_points[self.entry];
        self.here = self.span_of_entry();
        let mut arguments = Vec::new();
        for argument in &point.function.arguments {
            let leaves = match (&argument.binding, self.types.inner(argument.ty)) {
                (Some(naga::Binding::BuiltIn(builtin)), _) => self.builtin(*builtin)?,
                (None, TypeInner::Struct { members, .. }) => {
                    let mut leaves = Vec::new();
                    for member in members {
                        let Some(naga::Binding::BuiltIn(builtin)) = member.binding else {
                            return Err(Fault::unsupported("an input that is not built in"));
                        };
                        leaves.extend(self.builtin(builtin)?);
                    }
                    leaves
                }
                _ => return Err(Fault::unsupported("an input that is not built in")),
            };
            arguments.push(Value::Leaves(leaves));
        }
        let info = self.info.get_entry_point(self.entry);
        self.inlined.push(inlined_function(&point.function, info, arguments));
        self.body(&point.function.body)?;
        self.inlined.pop();
        self.here = self.span_of_entry();
        Ok(())
    }

    /// Storage of a local variable. If it is not declared at its first store, it is declared at the
    /// function's start when first encountered.
    pub(super) fn local(&mut self, handle: Handle<LocalVariable>) -> Result<Root> {
        if let Some(root) = self.innermost().locals.get(&handle) {
            return Ok(root.clone());
        }
        let function = self.innermost().function;
        let local = &function.local_variables[handle];
        let here = self.here;
        self.at(function.local_variables.get_span(handle));
        let values = match local.init {
            Some(init) if !matches!(function.expressions[init], Expression::ZeroValue(_)) => {
                Some(self.leaves(init)?)
            }
            _ => None,
        };
        let label = local.name.clone().unwrap_or_else(|| "v".into());
        let mut root = Root::Variables(Vec::new());
        let code = self.nested(|lower| {
            root = lower.declare(&label, lower.types.inner(local.ty), values)?;
            Ok(())
        })?;
        self.here = here;
        let inlined = self.innermost_mut();
        inlined.start.append(code);
        inlined.locals.insert(handle, root.clone());
        Ok(root)
    }

    /// Statements of a function, after the declarations that they need.
    fn body(&mut self, body: &'m naga::Block) -> Result<()> {
        let code = self.nested(|lower| lower.list(&items(body)))?;
        let start = std::mem::take(&mut self.innermost_mut().start);
        self.code.append(start);
        self.code.append(code);
        Ok(())
    }

    pub(super) fn call(
        &mut self,
        callee: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        if self.inlined.len() > MAX_CALLS {
            return Err(Fault::too_large(format!("functions call each other more than {MAX_CALLS} deep")));
        }
        let function = &self.module.functions[callee];
        let mut values = Vec::new();
        for (&argument, declared) in arguments.iter().zip(&function.arguments) {
            values.push(match self.value(argument)? {
                Value::Leaves(leaves) => Value::Leaves(self.argument(declared, leaves)?),
                Value::Pointer(pointee) => Value::Pointer(self.shared_pointee(pointee)?),
            });
        }
        self.settle_all()?;
        let leaves = self.write_out(callee, values)?;
        if let Some(result) = result {
            self.innermost_mut().values.insert(result, Value::Leaves(leaves));
        }
        Ok(())
    }

    /// An argument as names that the function can use any number of times.
    fn argument(&mut self, declared: &naga::FunctionArgument, leaves: Vec<Expr>) -> Result<Vec<Expr>> {
        let label = declared.name.clone().unwrap_or_else(|| "argument".into());
        let labels = self.types.labels(self.types.inner(declared.ty));
        let mut named = Vec::new();
        for (leaf, value) in leaves.into_iter().enumerate() {
            named.push(if self.is_plain(&value) {
                value
            } else {
                let suffix = labels.get(leaf).map_or("", String::as_str);
                self.name_it(&format!("{label}{suffix}"), value)?
            });
        }
        Ok(named)
    }

    /// Inlines a function and returns the scalars of its result.
    fn write_out(&mut self, callee: Handle<Function>, arguments: Vec<Value>) -> Result<Vec<Expr>> {
        let function = &self.module.functions[callee];
        let body = &function.body;
        let straight = match body.split_last() {
            Some((_, before)) => !has_exit(before, Exit::Return) && only_return(body),
            None => true,
        };
        let structured = exits_at_ends(body, Exit::Return);
        let mut inlined = inlined_function(function, &self.info[callee], arguments);
        if !straight {
            inlined.result = self.result_variables(function)?;
        }
        if !structured && loops_return(body) {
            let flag = self.fresh("returned");
            self.emit(Node::let_(flag.clone(), Expr::bool(false)))?;
            inlined.returned = Some(flag);
        }
        let result = inlined.result.clone();
        let here = self.here;
        self.inlined.push(inlined);
        self.scopes.push(if structured { Scope::Call } else { Scope::CallOnce });
        let written = if structured { self.body(body) } else { self.once(|lower| lower.body(body)) };
        self.scopes.pop();
        let inlined = self.inlined.pop();
        written?;
        self.here = here;
        Ok(match inlined {
            Some(inlined) if straight => inlined.returned_leaves,
            _ => result.into_iter().map(Expr::Var).collect(),
        })
    }

    /// Wraps what `make` adds in a single-iteration loop that a `break` leaves.
    pub(super) fn once(&mut self, make: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let counter = self.fresh("once");
        let body = self.nested(make)?;
        self.code.count(&counter, [Expr::u32(0), Expr::u32(1), Expr::u32(1)], body, self.here);
        Ok(())
    }

    fn result_variables(&mut self, function: &Function) -> Result<Vec<Name>> {
        let Some(result) = &function.result else { return Ok(Vec::new()) };
        let inner = self.types.inner(result.ty);
        let labels = self.types.labels(inner);
        let label = function.name.clone().unwrap_or_else(|| "result".into());
        let mut names = Vec::new();
        for (leaf, kind) in self.types.kinds(inner)?.into_iter().enumerate() {
            let name = self.fresh(&format!("{label}{}", labels.get(leaf).map_or("", String::as_str)));
            self.emit(Node::let_(name.clone(), kind.zero()))?;
            names.push(name);
        }
        Ok(names)
    }

    fn builtin(&mut self, builtin: BuiltIn) -> Result<Vec<Expr>> {
        let axes = |builtin: Builtin| (0..3).map(|axis| Expr::Builtin(builtin, axis)).collect();
        let lanes = |op: SubgroupOp| vec![Expr::subgroup(op, [])];
        let leaves = match builtin {
            BuiltIn::GlobalInvocationId => axes(Builtin::InvocationId),
            BuiltIn::LocalInvocationId => axes(Builtin::LocalId),
            BuiltIn::WorkGroupId => axes(Builtin::WorkgroupId),
            BuiltIn::NumWorkGroups => axes(Builtin::GridSize),
            BuiltIn::WorkGroupSize => axes(Builtin::WorkgroupSize),
            BuiltIn::LocalInvocationIndex => vec![self.local_index()],
            BuiltIn::SubgroupSize => lanes(SubgroupOp::Size),
            BuiltIn::SubgroupInvocationId => lanes(SubgroupOp::Lane),
            BuiltIn::SubgroupId => lanes(SubgroupOp::Id),
            BuiltIn::NumSubgroups => lanes(SubgroupOp::Count),
            other => return Err(Fault::unsupported(format!("the built-in value `{other:?}`"))),
        };
        self.shared_all(leaves)
    }

    /// `(z * height + y) * width + x`, without the axes that have a single invocation.
    fn local_index(&self) -> Expr {
        let [_, height, depth] = self.module.entry_points[self.entry].workgroup_size;
        let x = Expr::local_id(0);
        let row = match (height, depth) {
            (1, 1) => return x,
            (_, 1) => Expr::local_id(1),
            _ => Expr::local_id(2) * Expr::workgroup_size(1) + Expr::local_id(1),
        };
        row * Expr::workgroup_size(0) + x
    }

    /// Stores the result of a function being inlined.
    pub(super) fn return_value(&mut self, value: Option<Handle<Expression>>) -> Result<()> {
        let leaves = match value {
            Some(value) => self.leaves(value)?,
            None => Vec::new(),
        };
        let names = self.innermost().result.clone();
        if names.is_empty() {
            let leaves = self.shared_all(leaves)?;
            self.innermost_mut().returned_leaves = leaves;
            return Ok(());
        }
        for (name, leaf) in names.into_iter().zip(leaves) {
            self.emit(Node::assign(name, leaf))?;
        }
        Ok(())
    }
}

fn inlined_function<'m>(
    function: &'m Function,
    info: &'m naga::valid::FunctionInfo,
    arguments: Vec<Value>,
) -> InlinedFunction<'m> {
    InlinedFunction {
        function,
        info,
        facts: Facts::of(function),
        arguments,
        values: HashMap::new(),
        waiting: Vec::new(),
        uses: HashMap::new(),
        locals: HashMap::new(),
        result: Vec::new(),
        returned: None,
        returned_leaves: Vec::new(),
        start: StatementList::default(),
    }
}

/// Whether the only return is the last statement, or the end of a block that is; also true of an
/// empty body.
fn only_return(body: &[naga::Statement]) -> bool {
    match body.split_last() {
        Some((naga::Statement::Return { .. }, _)) | None => true,
        Some((naga::Statement::Block(block), _)) => match block.split_last() {
            Some((_, before)) => !has_exit(before, Exit::Return) && only_return(block),
            None => true,
        },
        Some((last, _)) => !has_exit(std::slice::from_ref(last), Exit::Return),
    }
}

/// Whether there is a return inside a loop or switch.
fn loops_return(statements: &[naga::Statement]) -> bool {
    statements.iter().any(|statement| match statement {
        naga::Statement::Loop { .. } | naga::Statement::Switch { .. } => {
            has_exit(std::slice::from_ref(statement), Exit::Return)
        }
        naga::Statement::Block(block) => loops_return(block),
        naga::Statement::If { accept, reject, .. } => loops_return(accept) || loops_return(reject),
        _ => false,
    })
}
