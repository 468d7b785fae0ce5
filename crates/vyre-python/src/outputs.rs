//! Arrays that a call creates for its results.

use crate::arrays::{array, shape_of};
use crate::errors;
use crate::parameter::Parameter;
use crate::resident::Resident;
use crate::run::Given;
use pyo3::prelude::*;
use vyre::unstable::foundation::kernel::Kernel;
use vyre::unstable::foundation::launch::{Launch, LaunchArgument, Overrides};

/// Facts about a call before its results are created.
pub(crate) struct Sizing<'a, 'py> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) parameters: &'a [Parameter],
    /// Positions of the parameters that are read, in binding order.
    pub(crate) inputs: &'a [usize],
    /// Indices of the parameters among all declarations.
    pub(crate) declared: &'a [usize],
    pub(crate) objects: &'a [Option<Bound<'py, PyAny>>],
    pub(crate) domain: Option<&'a [u32]>,
}

impl<'py> Sizing<'_, 'py> {
    /// Creates arrays for the results that the caller did not pass, by parameter position. `read`
    /// holds the argument of each parameter.
    pub(crate) fn make(
        &self,
        py: Python<'py>,
        read: &[Option<Given<'py>>],
    ) -> PyResult<Vec<(usize, Bound<'py, PyAny>)>> {
        let argument = |&position: &usize| match read.get(position) {
            Some(Some(given)) => LaunchArgument { length: given.len(), contents: given.contents() },
            _ => LaunchArgument { length: 0, contents: None },
        };
        let inputs: Vec<LaunchArgument<'_>> = self.inputs.iter().map(argument).collect();
        let domain = self.domain.map(|axes| std::array::from_fn(|axis| axes.get(axis).copied().unwrap_or(1)));
        let overrides = Overrides { domain, ..Overrides::default() };
        let launch = Launch::from_inputs(self.kernel, &inputs, overrides)
            .map_err(|faults| errors::call(py, &faults.into(), None))?;
        let stays = read.iter().any(|given| matches!(given, Some(Given::Resident(_))));
        let missing = |(position, parameter): &(usize, &Parameter)| {
            parameter.is_result() && self.objects.get(*position).is_some_and(Option::is_none)
        };
        let make = |(position, parameter): (usize, &Parameter)| {
            let shape = self.shape(position, &launch);
            let made = match stays {
                true => Bound::new(py, Resident::zeros(py, parameter.element, shape)?)?.into_any(),
                false => array(py, parameter.element, &shape)?,
            };
            Ok((position, made))
        };
        self.parameters.iter().enumerate().filter(missing).map(make).collect()
    }

    /// Shape of a result: that of the array whose length it has, that of a two- or
    /// three-dimensional domain with as many invocations, else one axis.
    fn shape(&self, position: usize, launch: &Launch) -> Vec<usize> {
        let declared = self.declared.get(position).copied().unwrap_or(0);
        let count = launch.lengths.get(declared).copied().unwrap_or(0) as usize;
        let buffer = self.kernel.buffers.get(declared);
        if let Some(like) = buffer.and_then(|buffer| buffer.decl.len_of.as_ref()) {
            let place = self.parameters.iter().position(|parameter| *parameter.name == **like);
            let object = place.and_then(|place| self.objects.get(place)?.as_ref());
            return object.and_then(|object| shape_of(object, count)).unwrap_or_else(|| vec![count]);
        }
        let mut axes: Vec<usize> = launch.domain.iter().flatten().map(|&axis| axis as usize).collect();
        while axes.len() > 1 && axes.last() == Some(&1) {
            axes.pop();
        }
        axes.reverse();
        let product = axes.iter().try_fold(1_usize, |all, &axis| all.checked_mul(axis));
        if axes.len() > 1 && product == Some(count) { axes } else { vec![count] }
    }
}
