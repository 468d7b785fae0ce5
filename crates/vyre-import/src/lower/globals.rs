//! Module variables: buffers, workgroup memory, and variables private to an invocation.

use super::Lower;
use super::pointee::{Buffer, Root};
use super::scalar_type::ScalarType;
use super::types::no_value;
use crate::fault::{Fault, Result, span_of};
use crate::imported::ShaderBinding;
use naga::valid::GlobalUse;
use naga::{AddressSpace, Expression, GlobalVariable, Handle, TypeInner};
use std::collections::HashSet;
use vyre_foundation::ir::{Access, Axis, BufferDecl, Domain, Expr, Formula, Span};

/// Distance between the bindings of successive groups, more than WebGPU allows in one group.
const GROUP: u32 = 1000;

impl<'m> Lower<'m> {
    /// Declares every module variable that the entry point uses, with buffers ordered by group and
    /// binding.
    pub(super) fn declare_buffers(&mut self) -> Result<()> {
        let usage = self.info.get_entry_point(self.entry);
        let variables = &self.module.global_variables;
        let mut used: Vec<_> = variables.iter().filter(|(handle, _)| !usage[*handle].is_empty()).collect();
        used.sort_by_key(|(_, variable)| {
            let binding = variable.binding.as_ref();
            (binding.is_none(), binding.map(|binding| (binding.group, binding.binding)))
        });
        let recast = self.recast_globals();
        for (handle, variable) in used {
            self.at(variables.get_span(handle));
            let at = Some(self.here);
            let root = self
                .declare_global(handle, variable, recast.contains(&handle))
                .map_err(|fault| fault.or_at(at))?;
            self.globals.insert(handle, root);
        }
        Ok(())
    }

    pub(super) fn global(&self, handle: Handle<GlobalVariable>) -> Result<Root> {
        self.globals
            .get(&handle)
            .cloned()
            .ok_or_else(|| Fault::unsupported("a variable of another entry point"))
    }

    fn declare_global(
        &mut self,
        handle: Handle<GlobalVariable>,
        variable: &GlobalVariable,
        recast: bool,
    ) -> Result<Root> {
        let inner = self.types.inner(variable.ty).clone();
        let label = match (&variable.name, &variable.binding) {
            (Some(name), _) if !name.is_empty() => name.clone(),
            (_, Some(binding)) => format!("binding_{}_{}", binding.group, binding.binding),
            _ => "global".into(),
        };
        match variable.space {
            AddressSpace::Private => {
                let values = variable.init.map(|init| self.constant(init)).transpose()?;
                let mut root = Root::Variables(Vec::new());
                let code = self.nested(|lower| {
                    root = lower.declare(&label, &inner, values)?;
                    Ok(())
                })?;
                self.prologue.append(code);
                Ok(root)
            }
            AddressSpace::WorkGroup => self.declare_workgroup(&label, &inner),
            AddressSpace::Storage { .. } | AddressSpace::Uniform | AddressSpace::Immediate => {
                let usage = self.info.get_entry_point(self.entry)[handle];
                let access = match variable.space {
                    AddressSpace::Storage { .. }
                        if usage.intersects(GlobalUse::WRITE | GlobalUse::ATOMIC) =>
                    {
                        Access::ReadWrite
                    }
                    AddressSpace::Storage { .. } => Access::Read,
                    _ => Access::Uniform,
                };
                self.declare_buffer(&label, &inner, access, variable, recast)
            }
            AddressSpace::Handle => Err(no_value(&inner)),
            AddressSpace::Function
            | AddressSpace::TaskPayload
            | AddressSpace::RayPayload
            | AddressSpace::IncomingRayPayload => Err(Fault::unsupported("a variable of this address space")),
        }
    }

    fn declare_workgroup(&mut self, label: &str, inner: &TypeInner) -> Result<Root> {
        let counts = self.types.counts(inner)?;
        let several = counts.iter().filter(|count| **count > 0).count() > 1;
        let mut names = vec![None; ScalarType::COUNT];
        for kind in ScalarType::ALL.into_iter().filter(|kind| counts[*kind as usize] > 0) {
            let label = if several { format!("{label}_{}", kind.suffix()) } else { label.into() };
            let name = self.fresh(&label);
            self.buffers.push(BufferDecl::workgroup(name.clone(), counts[kind as usize], kind.data()));
            self.buffer_places.push(self.here);
            names[kind as usize] = Some(name);
        }
        Ok(Root::Arrays(names))
    }

    fn declare_buffer(
        &mut self,
        label: &str,
        inner: &TypeInner,
        access: Access,
        variable: &GlobalVariable,
        recast: bool,
    ) -> Result<Root> {
        let mut kinds = [false; ScalarType::COUNT];
        self.types.kinds_in(inner, &mut kinds)?;
        let mut present = ScalarType::ALL.into_iter().filter(|kind| kinds[*kind as usize]);
        let element = match (present.next(), present.next()) {
            (Some(kind), None)
                if !(self.types.has_atomic_float(inner) || recast && kind == ScalarType::F32) =>
            {
                Some(kind)
            }
            _ => None,
        };
        let name = self.fresh(label);
        let number = match &variable.binding {
            Some(binding) => binding.group.saturating_mul(GROUP).saturating_add(binding.binding),
            None => self.bindings.iter().map(|binding| binding.number + 1).max().unwrap_or(0),
        };
        let all_long = ScalarType::ALL.into_iter().all(|kind| !kinds[kind as usize] || kind.width() == 8);
        let word = if all_long { ScalarType::U64 } else { ScalarType::U32 };
        let data = element.unwrap_or(word).data();
        let buffer = Buffer { name: name.clone(), element, word, written: access == Access::ReadWrite };
        let layout = self.types.layout(inner)?;
        let count = match layout.tail() {
            Some(_) => 0,
            None => (self.types.size(inner) / buffer.unit()).max(1),
        };
        let declared = match access {
            Access::ReadWrite => BufferDecl::read_write(name.clone(), number, data),
            Access::Uniform => BufferDecl::uniform(name.clone(), number, data),
            Access::Read | Access::Output | Access::Workgroup => BufferDecl::read(name.clone(), number, data),
        };
        self.buffers.push(declared.with_count(count));
        self.buffer_places.push(self.here);
        if access != Access::ReadWrite {
            self.constant.insert(name.clone());
        }
        self.bindings.push(ShaderBinding {
            name: name.to_string(),
            group: variable.binding.as_ref().map(|binding| binding.group),
            binding: variable.binding.as_ref().map(|binding| binding.binding),
            number,
            layout,
        });
        Ok(Root::Buffer(buffer))
    }

    /// Float buffers whose bits the shader inspects: these are words, so that NaNs keep their bits.
    fn recast_globals(&self) -> HashSet<Handle<GlobalVariable>> {
        let module = self.module;
        let functions = module.functions.iter().map(|(_, function)| function);
        let entry = &module.entry_points[self.entry].function;
        let mut found = HashSet::new();
        for function in functions.chain([entry]) {
            for (_, expression) in function.expressions.iter() {
                if let Expression::As { expr, convert: None, .. } = *expression
                    && let Expression::Load { pointer } = function.expressions[expr]
                {
                    found.extend(global_root(function, pointer));
                }
            }
        }
        found
    }

    /// Default domain of a dispatch: the elements of the first buffer that the shader writes. It is
    /// one workgroup if workgroups have two or three dimensions, if the shader writes no buffer, or
    /// if that buffer has a single element.
    pub(super) fn domain(&self) -> Domain {
        let size = self.module.entry_points[self.entry].workgroup_size;
        let written = self.buffers.iter().filter(|buffer| buffer.access == Access::ReadWrite);
        let layouts = written.filter_map(|buffer| {
            let binding = self.bindings.iter().find(|binding| *binding.name == *buffer.name)?;
            Some((buffer, binding.layout.tail()))
        });
        let Some((buffer, tail)) = layouts.into_iter().next() else { return Domain::Counts(size) };
        if size[1] * size[2] != 1 {
            return Domain::Counts(size);
        }
        let Some((offset, stride)) = tail else {
            return if buffer.count > 1 { Domain::LenOf(buffer.name.clone()) } else { Domain::Counts(size) };
        };
        let unit = buffer.element.size() as u32;
        let length = Expr::buf_len(buffer.name.clone());
        let rest = if offset == 0 { length } else { length.sat_sub(Expr::u32(offset / unit)) };
        if offset == 0 && stride == unit {
            return Domain::LenOf(buffer.name.clone());
        }
        match Formula::new(rest / Expr::u32((stride / unit).max(1))) {
            Ok(formula) => Domain::Axes([Axis::Of(formula), Axis::Count(1), Axis::Count(1)]),
            Err(count) => Domain::Counts([count, 1, 1]),
        }
    }

    /// Position of the entry point in the shader.
    pub(super) fn span_of_entry(&self) -> Span {
        let function = &self.module.entry_points[self.entry].function;
        let first = function.body.span_iter().next().and_then(|(_, span)| span_of(*span));
        first.unwrap_or_default()
    }
}

/// The module variable that a pointer refers to.
pub(super) fn global_root(
    function: &naga::Function,
    mut pointer: Handle<Expression>,
) -> Option<Handle<GlobalVariable>> {
    loop {
        match function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
            Expression::GlobalVariable(global) => return Some(global),
            _ => return None,
        }
    }
}
