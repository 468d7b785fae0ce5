//! Decomposition of types: the number of scalars of each kind, their order, and their layout in
//! shared memory.

use super::scalar_type::ScalarType;
use crate::fault::{Fault, Result};
use crate::imported::Layout;
use naga::{ArraySize, Handle, Module, Type, TypeInner};

/// Maximum number of scalars that are loaded or stored as one value. The shaders of
/// `filetests/import` have at most 19.
pub(super) const MAX_LEAVES: usize = 4096;

/// Number of scalars of each kind.
pub(super) type Counts = [u32; ScalarType::COUNT];

/// A scalar of a type in shared memory: its offset in bytes and its kind.
pub(super) type Leaf = (u32, ScalarType);

/// A component of a type and how to reach it.
pub(super) struct Component {
    pub(super) inner: TypeInner,
    /// Bytes from one component to the next; for a struct, from its start to the member.
    pub(super) stride: u32,
}

/// Queries about a module's types.
#[derive(Clone, Copy)]
pub(super) struct Types<'m>(pub(super) &'m Module);

impl<'m> Types<'m> {
    pub(super) fn inner(self, handle: Handle<Type>) -> &'m TypeInner {
        &self.0.types[handle].inner
    }

    /// Size of the type in shared memory, in bytes; a run-time sized tail counts as one element.
    pub(super) fn size(self, inner: &TypeInner) -> u32 {
        inner.size(self.0.to_ctx())
    }

    /// Kinds of a type's scalars, in order.
    pub(super) fn kinds(self, inner: &TypeInner) -> Result<Vec<ScalarType>> {
        Ok(self.leaves(inner)?.into_iter().map(|(_, kind)| kind).collect())
    }

    /// Scalars of a type in order, with their offsets in shared memory.
    pub(super) fn leaves(self, inner: &TypeInner) -> Result<Vec<Leaf>> {
        let mut leaves = Vec::new();
        self.collect(inner, 0, &mut leaves)?;
        Ok(leaves)
    }

    fn collect(self, inner: &TypeInner, at: u32, leaves: &mut Vec<Leaf>) -> Result<()> {
        if leaves.len() > MAX_LEAVES {
            return Err(Fault::too_large(format!(
                "a value of more than {MAX_LEAVES} numbers is copied as a whole, which is more than an invocation can hold"
            )));
        }
        let count = match inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                leaves.push((at, ScalarType::of(*scalar)?));
                return Ok(());
            }
            TypeInner::Struct { members, .. } => members.len() as u32,
            TypeInner::Vector { .. } | TypeInner::Matrix { .. } | TypeInner::Array { .. } => {
                self.count(inner)?
            }
            other => return Err(no_value(other)),
        };
        for index in 0..count {
            let component = self.component(inner, index)?;
            let pointee = match inner {
                TypeInner::Struct { .. } => at.wrapping_add(component.stride),
                _ => at.wrapping_add(index.wrapping_mul(component.stride)),
            };
            self.collect(&component.inner, pointee, leaves)?;
        }
        Ok(())
    }

    /// Number of components of a vector, matrix or array of known size.
    pub(super) fn count(self, inner: &TypeInner) -> Result<u32> {
        match *inner {
            TypeInner::Vector { size, .. } => Ok(size as u32),
            TypeInner::Matrix { columns, .. } => Ok(columns as u32),
            TypeInner::Array { size: ArraySize::Constant(count), .. } => Ok(count.get()),
            TypeInner::Array { size: ArraySize::Pending(size), .. } => self.override_value(size),
            TypeInner::Array { size: ArraySize::Dynamic, .. } => {
                Err(Fault::unsupported("a whole array that is sized at run time"))
            }
            ref other => Err(no_value(other)),
        }
    }

    /// Value of an override.
    fn override_value(self, size: Handle<naga::Override>) -> Result<u32> {
        let init = self.0.overrides[size].init.map(|init| &self.0.global_expressions[init]);
        let count = match init {
            Some(naga::Expression::Literal(naga::Literal::U32(count))) => Some(*count),
            Some(naga::Expression::Literal(naga::Literal::I32(count))) => u32::try_from(*count).ok(),
            _ => None,
        };
        count
            .filter(|count| *count > 0)
            .ok_or_else(|| Fault::constant("the size of an array is not a positive number"))
    }

    /// A component of a type; the index matters for structs only.
    pub(super) fn component(self, inner: &TypeInner, index: u32) -> Result<Component> {
        Ok(match *inner {
            TypeInner::Vector { scalar, .. } | TypeInner::ValuePointer { size: Some(_), scalar, .. } => {
                Component { inner: TypeInner::Scalar(scalar), stride: u32::from(scalar.width) }
            }
            TypeInner::Matrix { rows, scalar, .. } => Component {
                inner: TypeInner::Vector { size: rows, scalar },
                // A column of three is padded to four.
                stride: (if rows as u32 == 3 { 4 } else { rows as u32 }) * u32::from(scalar.width),
            },
            TypeInner::Array { base, stride, .. } => Component { inner: self.inner(base).clone(), stride },
            TypeInner::Struct { ref members, .. } => {
                let Some(member) = members.get(index as usize) else { return Err(no_value(inner)) };
                Component { inner: self.inner(member.ty).clone(), stride: member.offset }
            }
            ref other => return Err(no_value(other)),
        })
    }

    /// Number of scalars of each kind in a type of known size.
    pub(super) fn counts(self, inner: &TypeInner) -> Result<Counts> {
        let mut counts = [0; ScalarType::COUNT];
        match inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                counts[ScalarType::of(*scalar)? as usize] = 1
            }
            TypeInner::Struct { members, .. } => {
                for member in members {
                    add(&mut counts, self.counts(self.inner(member.ty))?, 1)?;
                }
            }
            TypeInner::Vector { .. } | TypeInner::Matrix { .. } | TypeInner::Array { .. } => {
                let one = self.counts(&self.component(inner, 0)?.inner)?;
                add(&mut counts, one, self.count(inner)?)?;
            }
            other => return Err(no_value(other)),
        }
        Ok(counts)
    }

    /// Number of scalars of each kind before a member of a struct.
    pub(super) fn counts_before(self, inner: &TypeInner, index: u32) -> Result<Counts> {
        let mut counts = [0; ScalarType::COUNT];
        if let TypeInner::Struct { members, .. } = inner {
            for member in members.iter().take(index as usize) {
                add(&mut counts, self.counts(self.inner(member.ty))?, 1)?;
            }
        }
        Ok(counts)
    }

    /// Marks the kinds of scalars in a type in shared memory, including run-time sized tails.
    pub(super) fn kinds_in(self, inner: &TypeInner, kinds: &mut [bool; ScalarType::COUNT]) -> Result<()> {
        match inner {
            TypeInner::Scalar(scalar)
            | TypeInner::Atomic(scalar)
            | TypeInner::Vector { scalar, .. }
            | TypeInner::Matrix { scalar, .. } => kinds[ScalarType::of(*scalar)? as usize] = true,
            TypeInner::Array { base, .. } => self.kinds_in(self.inner(*base), kinds)?,
            TypeInner::Struct { members, .. } => {
                for member in members {
                    self.kinds_in(self.inner(member.ty), kinds)?;
                }
            }
            other => return Err(no_value(other)),
        }
        Ok(())
    }

    /// Whether the type contains an array.
    pub(super) fn has_array(self, inner: &TypeInner) -> bool {
        match inner {
            TypeInner::Array { .. } => true,
            TypeInner::Struct { members, .. } => {
                members.iter().any(|member| self.has_array(self.inner(member.ty)))
            }
            _ => false,
        }
    }

    /// Whether the type contains an atomic float.
    pub(super) fn has_atomic_float(self, inner: &TypeInner) -> bool {
        match inner {
            TypeInner::Atomic(scalar) => scalar.kind == naga::ScalarKind::Float,
            TypeInner::Array { base, .. } => self.has_atomic_float(self.inner(*base)),
            TypeInner::Struct { members, .. } => {
                members.iter().any(|member| self.has_atomic_float(self.inner(member.ty)))
            }
            _ => false,
        }
    }

    /// Layout in shared memory.
    pub(super) fn layout(self, inner: &TypeInner) -> Result<Layout> {
        Ok(match inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => {
                Layout::Scalar(ScalarType::of(*scalar)?.data())
            }
            TypeInner::Struct { members, .. } => {
                let member =
                    |member: &naga::StructMember| Ok((member.offset, self.layout(self.inner(member.ty))?));
                Layout::Struct(members.iter().map(member).collect::<Result<_>>()?)
            }
            other => {
                let Component { inner, stride } = self.component(other, 0)?;
                let is_open = matches!(other, TypeInner::Array { size: ArraySize::Dynamic, .. });
                let count = if is_open { None } else { Some(self.count(other)?) };
                Layout::Array { stride, count, element: Box::new(self.layout(&inner)?) }
            }
        })
    }

    /// Labels for the scalars of a small type, as suffixes of a variable's name.
    pub(super) fn labels(self, inner: &TypeInner) -> Vec<String> {
        let mut labels = Vec::new();
        self.label(inner, String::new(), &mut labels);
        labels
    }

    fn label(self, inner: &TypeInner, prefix: String, labels: &mut Vec<String>) {
        match *inner {
            TypeInner::Vector { size, .. } => {
                let axes = ["_x", "_y", "_z", "_w"].iter().take(size as usize);
                labels.extend(axes.map(|axis| format!("{prefix}{axis}")));
            }
            TypeInner::Matrix { columns, rows, scalar } => {
                for index in 0..columns as u32 {
                    let column = TypeInner::Vector { size: rows, scalar };
                    self.label(&column, format!("{prefix}_{index}"), labels);
                }
            }
            TypeInner::Struct { ref members, .. } => {
                for (index, member) in members.iter().enumerate() {
                    let name = member.name.clone().unwrap_or_else(|| index.to_string());
                    self.label(self.inner(member.ty), format!("{prefix}_{name}"), labels);
                }
            }
            _ => labels.push(prefix),
        }
    }
}

fn add(counts: &mut Counts, part: Counts, times: u32) -> Result<()> {
    for (count, part) in counts.iter_mut().zip(part) {
        let sum = part.checked_mul(times).and_then(|part| count.checked_add(part));
        *count = sum.ok_or_else(|| Fault::too_large("an array has more elements than fit in memory"))?;
    }
    Ok(())
}

/// The fault for a type without scalars.
pub(super) fn no_value(inner: &TypeInner) -> Box<Fault> {
    Fault::unsupported(match inner {
        TypeInner::Image { .. } => "a texture",
        TypeInner::Sampler { .. } => "a sampler",
        TypeInner::AccelerationStructure { .. } | TypeInner::RayQuery { .. } => "a ray query",
        TypeInner::BindingArray { .. } => "an array of bindings",
        TypeInner::CooperativeMatrix { .. } => "a cooperative matrix",
        TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => "a pointer that is kept in a variable",
        TypeInner::Scalar(_)
        | TypeInner::Vector { .. }
        | TypeInner::Matrix { .. }
        | TypeInner::Atomic(_)
        | TypeInner::Array { .. }
        | TypeInner::Struct { .. } => "this use of a type",
    })
}
