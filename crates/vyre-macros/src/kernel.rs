//! `#[vyre::kernel]`: the items that replace a function.
//!
//! `fn saxpy(…)` becomes a function `saxpy` that makes a typed call, and a type `saxpy` with the
//! kernel's own functions: `saxpy::program()` and `saxpy::on_host(…)`. With type parameters there
//! is one kernel per choice of types, each with its own wire bytes; a trait selects the one for a
//! call.

use crate::check;
use crate::host;
use crate::read::{Read, Reader, fault, plain, span_of, untold};
use crate::signature::{self, GenericParameters, KernelOptions};
use crate::source::{self, CheckedSource};
use crate::text::{Header, Writer};
use crate::tree::{Access, Block, Buffer, Domain, Length, Parameter, Size};
use crate::types::Scalar;
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use std::collections::HashMap;
use syn::{Error, ItemFn, ReturnType};

/// A kernel read for one choice of its type parameters.
struct Instance {
    types: Vec<Scalar>,
    reader: Reader,
    parameters: Vec<Parameter>,
    domain: Domain,
    workgroup: Vec<Size>,
    body: Block,
    source: CheckedSource,
}

pub(crate) fn expand(options: &KernelOptions, item: &ItemFn) -> TokenStream {
    let generics = match check_signature(item).and_then(|()| GenericParameters::read(&item.sig.generics)) {
        Ok(generics) => generics,
        Err(fault) => return fault.to_compile_error(),
    };
    let mut instances = Vec::new();
    for types in generics.instances() {
        let mut instance = read(options, item, &generics, types);
        let faults = untold(std::mem::take(&mut instance.reader.faults));
        let failed = !faults.is_empty();
        if failed {
            let errors = faults.iter().map(Error::to_compile_error);
            let items = Items { item, generics: &generics, instances: vec![instance], failed };
            let items = if items.is_callable() { items.tokens() } else { TokenStream::new() };
            return quote!(#(#errors)* #items);
        }
        instances.push(instance);
    }
    Items { item, generics: &generics, instances, failed: false }.tokens()
}

fn check_signature(item: &ItemFn) -> Read<()> {
    let signature = &item.sig;
    if let ReturnType::Type(_, ty) = &signature.output {
        return fault(span_of(ty), "a kernel returns nothing; take a `&mut` slice and write to it");
    }
    if let Some(word) = &signature.asyncness {
        return fault(span_of(word), "a kernel cannot be `async`");
    }
    if let Some(word) = &signature.constness {
        return fault(span_of(word), "a kernel cannot be `const`");
    }
    Ok(())
}

fn read(
    options: &KernelOptions,
    item: &ItemFn,
    generics: &GenericParameters,
    types: HashMap<String, Scalar>,
) -> Instance {
    let mut reader = Reader::new(item.sig.ident.clone(), None);
    let chosen: Vec<Scalar> =
        generics.types.iter().filter_map(|(name, _)| types.get(&plain(name)).copied()).collect();
    reader.generics = types;
    options.add_samples(&mut reader);
    for (name, ty) in &generics.constants {
        match reader.scalar(ty) {
            Ok(scalar) => reader.add_const_generic(name, scalar),
            Err(fault) => reader.faults.push(fault),
        }
    }
    let parameters = signature::parameters(&mut reader, item.sig.inputs.iter());
    let domain = options.domain(&mut reader, &parameters);
    let workgroup = options.workgroup(&mut reader);
    let body = reader.block(&item.block);
    let (domain, workgroup) = match (domain, workgroup) {
        (Ok(domain), Ok(workgroup)) => (domain, workgroup),
        (domain, workgroup) => {
            reader.faults.extend(domain.err());
            reader.faults.extend(workgroup.err());
            (Domain::Default, Vec::new())
        }
    };
    let mut instance = Instance {
        types: chosen,
        reader,
        parameters,
        domain,
        workgroup,
        body,
        source: CheckedSource::default(),
    };
    if instance.reader.faults.is_empty() {
        match instance.check(&item.sig.ident) {
            Ok(source) => instance.source = source,
            Err(faults) => instance.reader.faults = faults,
        }
    }
    instance
}

impl Instance {
    /// Checks the kernel and returns the source to embed.
    fn check(&self, name: &Ident) -> Result<CheckedSource, Vec<Error>> {
        let mut writer = Writer::new(&self.reader);
        let types: Vec<&str> = self.types.iter().map(|ty| ty.name()).collect();
        let title =
            if types.is_empty() { plain(name) } else { format!("{}<{}>", plain(name), types.join(", ")) };
        let header = Header {
            name: &title,
            parameters: &self.parameters,
            domain: &self.domain,
            workgroup: &self.workgroup,
        };
        let written = writer.kernel(&header, &self.body);
        let stand_ins = writer.stand_ins();
        let constants = source::constants(&mut writer, &self.reader);
        if !writer.faults.is_empty() {
            return Err(writer.faults);
        }
        let program = check::program(&written, &stand_ins, name.span().into())?;
        Ok(CheckedSource::new(written.text, program.with_functions(Vec::new()), constants, &self.reader))
    }

    fn type_names(&self) -> Vec<Ident> {
        self.types.iter().map(|ty| Ident::new(ty.name(), Span::call_site())).collect()
    }

    fn bound(&self) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(|parameter| {
            !matches!(parameter, Parameter::Buffer(Buffer { access: Access::Workgroup, .. }))
        })
    }

    /// Whether the invocations can run sequentially on the host.
    fn runs_on_host(&self) -> bool {
        !self.reader.exchanges && self.bound().count() == self.parameters.len()
    }

    /// Copy of the function for rustc to check.
    fn body_function(&self, item: &ItemFn, generics: &GenericParameters) -> TokenStream {
        let parameters = self.parameters.iter().map(|parameter| host_parameter(parameter, None));
        let aliases = self.aliases(generics);
        let (constants, _) = const_parameters(generics);
        let body = host::block(&self.reader, &self.body);
        let unused = if item.block.stmts.is_empty() { quote!(#[allow(unused_variables)]) } else { quote!() };
        quote! {
            #unused
            #[allow(dead_code, unused_parens, unused_braces, clippy::all)]
            fn __vyre_body #constants (#(#parameters),*) { #(#aliases)* #body }
        }
    }

    /// Aliases that bind the type parameters to this instance's types.
    fn aliases(&self, generics: &GenericParameters) -> Vec<TokenStream> {
        let pairs = generics.types.iter().zip(&self.types);
        pairs
            .map(|((name, _), ty)| {
                let ty = Ident::new(ty.name(), Span::call_site());
                quote!(#[allow(dead_code)] type #name = #ty;)
            })
            .collect()
    }

    /// Code that runs every invocation of the domain in turn.
    fn host_run(&self, generics: &GenericParameters) -> TokenStream {
        let mut prepared = Vec::new();
        for parameter in &self.parameters {
            let Parameter::Buffer(Buffer { ident, access: Access::Output(length), .. }) = parameter else {
                continue;
            };
            let name = plain(ident);
            let wanted = match length {
                Length::AsGiven => None,
                Length::Of(other) => Some(quote!(#other.len())),
                Length::Worked(value) => {
                    let value = host::value(&self.reader, value);
                    Some(quote!((#value) as usize))
                }
            };
            prepared.extend(
                wanted.map(|wanted| quote!(::vyre::host::same_length(#name, #ident.len(), #wanted);)),
            );
            prepared.push(quote!(#ident.fill(::std::default::Default::default());));
        }
        let domain = self.host_domain();
        let workgroup = self.workgroup.iter().map(|size| &size.expr);
        let shaped = self.reader.shaped;
        let arguments = self.parameters.iter().map(|parameter| match parameter {
            Parameter::Scalar(ident, _) => quote!(#ident),
            Parameter::Buffer(Buffer { ident, access: Access::ReadWrite | Access::Output(_), .. }) => {
                quote!(&mut *#ident)
            }
            Parameter::Buffer(Buffer { ident, .. }) => quote!(#ident),
        });
        let (_, names) = const_parameters(generics);
        quote! {
            #(#prepared)*
            let domain = #domain;
            ::vyre::host::run(&domain, &[#(#workgroup as usize),*], #shaped, || {
                __vyre_body #names (#(#arguments),*)
            });
        }
    }

    fn host_domain(&self) -> TokenStream {
        let first = |output: bool| {
            self.parameters.iter().find_map(|parameter| match parameter {
                Parameter::Buffer(Buffer { ident, access: Access::Output(_), .. }) if output => Some(ident),
                Parameter::Buffer(Buffer { ident, access: Access::ReadWrite, .. }) if !output => Some(ident),
                Parameter::Buffer(_) | Parameter::Scalar(..) => None,
            })
        };
        match &self.domain {
            Domain::LenOf(ident) => quote!([#ident.len()]),
            Domain::Axes(axes) => {
                let axes = axes.iter().map(|axis| host::value(&self.reader, axis));
                quote!([#((#axes) as usize),*])
            }
            Domain::Default => match first(true).or_else(|| first(false)) {
                Some(ident) => quote!([#ident.len()]),
                None => quote!([1usize]),
            },
        }
    }
}

/// A parameter of the host copy; `ty` overrides its type in a generic one.
fn host_parameter(parameter: &Parameter, ty: Option<&syn::Type>) -> TokenStream {
    match parameter {
        Parameter::Scalar(ident, scalar) => {
            let scalar = Ident::new(scalar.name(), ident.span());
            match ty {
                Some(ty) => quote!(#ident: #ty),
                None => quote!(#ident: #scalar),
            }
        }
        Parameter::Buffer(buffer) => {
            let (ident, element) = (&buffer.ident, Ident::new(buffer.element.name(), buffer.ident.span()));
            if let Some(ty) = ty {
                return quote!(#ident: #ty);
            }
            let mutable = match buffer.access {
                Access::Read | Access::Uniform => quote!(),
                Access::ReadWrite | Access::Output(_) | Access::Workgroup => quote!(mut),
            };
            match &buffer.count {
                Some(Size { expr, .. }) => quote!(#ident: &#mutable [#element; #expr]),
                None => quote!(#ident: &#mutable [#element]),
            }
        }
    }
}

/// `<const N: usize>`, and `::<N>`.
fn const_parameters(generics: &GenericParameters) -> (TokenStream, TokenStream) {
    if generics.constants.is_empty() {
        return (quote!(), quote!());
    }
    let declared = generics.constants.iter().map(|(name, ty)| quote!(const #name: #ty));
    let names = generics.constants.iter().map(|(name, _)| name);
    (quote!(<#(#declared),*>), quote!(::<#({ #names }),*>))
}

/// Everything generated for one function.
struct Items<'t> {
    item: &'t ItemFn,
    generics: &'t GenericParameters,
    instances: Vec<Instance>,
    failed: bool,
}

impl Items<'_> {
    /// Whether every parameter was understood, so that calls can be checked even if the body is
    /// wrong.
    fn is_callable(&self) -> bool {
        self.instances.first().is_some_and(|first| first.parameters.len() == self.item.sig.inputs.len())
    }

    fn tokens(&self) -> TokenStream {
        let name = &self.item.sig.ident;
        let vis = &self.item.vis;
        let configured: Vec<_> = self.item.attrs.iter().filter(|one| one.path().is_ident("cfg")).collect();
        let call = self.call_function();
        let about = format!("What belongs to the kernel [`{name}()`].");
        let members = if self.generics.types.is_empty() { self.members() } else { self.generic_members() };
        quote! {
            #(#configured)*
            #call
            #(#configured)*
            #[doc = #about]
            #[allow(non_camel_case_types, dead_code)]
            #vis struct #name {}
            #(#configured)*
            const _: () = { #members };
        }
    }

    /// The function that makes a typed call.
    fn call_function(&self) -> TokenStream {
        let ItemFn { attrs, vis, sig, .. } = self.item;
        let name = &sig.ident;
        let Some(first) = self.instances.first() else { return TokenStream::new() };
        let names = |scalar: Scalar, at: usize| self.type_of(first, scalar, at);
        let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
        for (at, parameter) in first.parameters.iter().enumerate() {
            match parameter {
                Parameter::Scalar(ident, ty) => {
                    let ty = names(*ty, at);
                    parameters.push(quote!(#ident: #ty));
                    arguments.push(quote!(::vyre::typed::Uniform::argument(#ident)));
                }
                Parameter::Buffer(Buffer { access: Access::Workgroup, .. }) => {}
                Parameter::Buffer(Buffer { ident, element, access, .. }) => {
                    let ty = names(*element, at);
                    let memory = match access {
                        Access::ReadWrite | Access::Output(_) => quote!(::vyre::Write),
                        Access::Read | Access::Uniform | Access::Workgroup => quote!(::vyre::Read),
                    };
                    parameters.push(quote!(#ident: impl #memory<'vyre, #ty>));
                    arguments.push(quote!(#memory::argument(#ident)));
                }
            }
        }
        let count = arguments.len();
        // The bound that restricts the types is that of the kernel's instances.
        let types = sig.generics.params.iter().map(|parameter| match parameter {
            syn::GenericParam::Type(ty) => {
                let ident = &ty.ident;
                quote!(#ident: ::vyre::typed::Uniform)
            }
            other => quote!(#other),
        });
        let (kernel, bound) = self.kernel_of_call();
        let constants = self.constants();
        quote! {
            #(#attrs)*
            #[must_use = "a call does nothing until it is run"]
            #[allow(clippy::too_many_arguments)]
            #vis fn #name<'vyre, #(#types),*>(#(#parameters),*) -> ::vyre::KernelCall<'vyre, #count> #bound {
                ::vyre::KernelCall::new(#kernel, #constants, [#(#arguments),*])
            }
        }
    }

    /// Type of a parameter as the user wrote it, if that is a type parameter.
    fn type_of(&self, first: &Instance, scalar: Scalar, at: usize) -> TokenStream {
        let written = self.item.sig.inputs.iter().nth(at).and_then(|input| match input {
            syn::FnArg::Typed(typed) => Some(element_of(&typed.ty)),
            syn::FnArg::Receiver(_) => None,
        });
        if let Some(syn::Type::Path(path)) = written
            && path.path.get_ident().is_some_and(|ident| first.reader.generics.contains_key(&plain(ident)))
        {
            return quote!(#path);
        }
        let ty = Ident::new(scalar.name(), Span::call_site());
        quote!(#ty)
    }

    /// How a call finds its kernel.
    fn kernel_of_call(&self) -> (TokenStream, TokenStream) {
        let name = &self.item.sig.ident;
        if self.generics.types.is_empty() {
            return (quote!(#name::__kernel()), quote!());
        }
        let types = self.generics.types.iter().map(|(name, _)| name);
        let bound = quote!(::vyre::typed::Instance<(#(#types,)*)>);
        (quote!(<#name as #bound>::kernel()), quote!(where #name: #bound))
    }

    /// Values of the const parameters.
    fn constants(&self) -> TokenStream {
        let Some(first) = self.instances.first() else { return quote!(&[]) };
        let rows = first.reader.constants.iter().filter(|constant| constant.generic).map(|constant| {
            let scalar = first.reader.types.settle(constant.ty).unwrap_or(Scalar::U32);
            source::constant(constant, scalar)
        });
        quote!(const { &[#(#rows),*] })
    }

    fn kernel_function(&self, instance: &Instance) -> TokenStream {
        let source = if self.failed {
            quote!(::vyre::typed::EmbeddedSource::Wire(&[]))
        } else {
            instance.source.tokens()
        };
        let functions = source::functions(&instance.reader);
        quote! {
            static KERNEL: ::vyre::typed::EmbeddedKernel = ::vyre::typed::EmbeddedKernel::new(#source, #functions);
            &KERNEL
        }
    }

    /// Functions of a kernel without type parameters.
    fn members(&self) -> TokenStream {
        let Some(instance) = self.instances.first() else { return TokenStream::new() };
        let (name, constants) = (&self.item.sig.ident, self.constants());
        let (declared, _) = const_parameters(self.generics);
        let kernel = self.kernel_function(instance);
        let on_host = self.on_host(instance);
        quote! {
            #[allow(dead_code)]
            impl #name {
                #[doc(hidden)]
                pub fn __kernel() -> &'static ::vyre::typed::EmbeddedKernel { #kernel }

                /// The kernel's program.
                pub fn program #declared () -> ::std::result::Result<::vyre::Program, ::vyre::BackendError> {
                    #name::__kernel().program(#constants)
                }
            }
            #on_host
        }
    }

    /// `on_host`, if the kernel has it; in any case the copy that rustc checks.
    fn on_host(&self, instance: &Instance) -> TokenStream {
        if self.failed {
            return TokenStream::new();
        }
        let name = &self.item.sig.ident;
        let body = instance.body_function(self.item, self.generics);
        if !instance.runs_on_host() {
            return body;
        }
        let (declared, _) = const_parameters(self.generics);
        let run = instance.host_run(self.generics);
        let parameters = instance.parameters.iter().map(|parameter| host_parameter(parameter, None));
        quote! {
            #body
            #[allow(dead_code)]
            impl #name {
                /// Runs every invocation on this thread as ordinary Rust, one after the other.
                ///
                /// # Panics
                /// Where Rust does: on an index out of range, for example. The kernel has a defined
                /// result there.
                #[allow(clippy::too_many_arguments)]
                pub fn on_host #declared (#(#parameters),*) { #run }
            }
        }
    }

    /// Functions of a kernel with type parameters: one implementation per choice of types.
    fn generic_members(&self) -> TokenStream {
        let (name, constants) = (&self.item.sig.ident, self.constants());
        let parameters: Vec<_> = self.item.sig.generics.params.iter().collect();
        let types: Vec<_> = self.generics.types.iter().map(|(name, _)| name).collect();
        let instances = self.instances.iter().map(|instance| {
            let chosen = instance.type_names();
            let kernel = self.kernel_function(instance);
            quote! {
                impl ::vyre::typed::Instance<(#(#chosen,)*)> for #name {
                    fn kernel() -> &'static ::vyre::typed::EmbeddedKernel { #kernel }
                }
            }
        });
        let on_host = self.generic_on_host();
        quote! {
            #(#instances)*
            #[allow(dead_code)]
            impl #name {
                /// The kernel's program for these types.
                pub fn program<#(#parameters),*>() -> ::std::result::Result<::vyre::Program, ::vyre::BackendError>
                where #name: ::vyre::typed::Instance<(#(#types,)*)> {
                    <#name as ::vyre::typed::Instance<(#(#types,)*)>>::kernel().program(#constants)
                }
            }
            #on_host
        }
    }

    /// `on_host` for every choice of types.
    fn generic_on_host(&self) -> TokenStream {
        if self.failed {
            return TokenStream::new();
        }
        let bodies = self.instances.iter().map(|instance| instance.body_function(self.item, self.generics));
        if !self.instances.iter().all(Instance::runs_on_host) {
            return quote!(#(const _: () = { #bodies };)*);
        }
        let Some(first) = self.instances.first() else { return TokenStream::new() };
        let name = &self.item.sig.ident;
        let types: Vec<_> = self.generics.types.iter().map(|(name, _)| name).collect();
        let all = self.item.sig.generics.params.iter();
        let (declared, names) = const_parameters(self.generics);
        let written: Vec<TokenStream> = first
            .parameters
            .iter()
            .zip(&self.item.sig.inputs)
            .map(|(parameter, input)| match input {
                syn::FnArg::Typed(typed) => host_parameter(parameter, Some(&typed.ty)),
                syn::FnArg::Receiver(_) => TokenStream::new(),
            })
            .collect();
        let idents = first.parameters.iter().map(ident_of);
        let instances = self.instances.iter().zip(bodies).map(|(instance, body)| {
            let chosen = instance.type_names();
            let parameters = instance.parameters.iter().map(|parameter| host_parameter(parameter, None));
            let run = instance.host_run(self.generics);
            quote! {
                impl OnHost<#(#chosen),*> for #name {
                    fn on_host #declared (#(#parameters),*) { #body #run }
                }
            }
        });
        quote! {
            pub trait OnHost<#(#types),*> {
                #[allow(clippy::too_many_arguments)]
                fn on_host #declared (#(#written),*);
            }
            #(#instances)*
            #[allow(dead_code)]
            impl #name {
                /// Runs every invocation on this thread as ordinary Rust, one after the other.
                ///
                /// # Panics
                /// Where Rust does: on an index out of range, for example. The kernel has a defined
                /// result there.
                #[allow(clippy::too_many_arguments)]
                pub fn on_host<#(#all),*>(#(#written),*) where #name: OnHost<#(#types),*> {
                    <#name as OnHost<#(#types),*>>::on_host #names (#(#idents),*)
                }
            }
        }
    }
}

fn ident_of(parameter: &Parameter) -> &Ident {
    match parameter {
        Parameter::Scalar(ident, _) => ident,
        Parameter::Buffer(buffer) => &buffer.ident,
    }
}

/// Element type of a slice or array behind a reference, otherwise the type itself.
fn element_of(ty: &syn::Type) -> &syn::Type {
    match ty {
        syn::Type::Reference(reference) => match &*reference.elem {
            syn::Type::Slice(slice) => &slice.elem,
            syn::Type::Array(array) => &array.elem,
            other => other,
        },
        other => other,
    }
}
