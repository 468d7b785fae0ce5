//! Generates `crates/vyre-c/include/vyre.h` from the sources of `vyre-c`.
//!
//! It reads `extern "C"` functions, `repr(C)` structs, handles (`repr(transparent)`), type aliases
//! and constants, including those in the tables `statuses!` and `types!`, each with its comment. C
//! needs a type declared before its use, so handles and aliases come first, then constants, structs
//! and functions. The rest (the head, inline functions) comes from `src/vyre.h.in`.

use crate::root;
use std::fmt::Write;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Fields, FnArg, Item, Lit, Pat, PointerMutability, ReturnType, Type};

/// Source files, in the order of the header.
const SOURCES: [&str; 7] =
    ["status.rs", "runtime.rs", "array.rs", "argument.rs", "report.rs", "routine.rs", "ops.rs"];

/// Path of the header, relative to the repository's root.
pub(crate) const PATH: &str = "crates/vyre-c/include/vyre.h";

/// Generates the text of the header.
pub(crate) fn generate() -> Result<String, String> {
    let folder = root().join("crates/vyre-c/src");
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mut parts = Parts::default();
    for name in SOURCES {
        let file = syn::parse_file(&read(name)?).map_err(|error| format!("{name}: {error}"))?;
        for item in &file.items {
            parts.add(item).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    let Parts { types, constants, structs, functions } = parts;
    let declarations = format!("{types}\n{constants}\n{structs}{functions}");
    Ok(read("vyre.h.in")?.replace("@DECLARATIONS@\n", &declarations))
}

#[derive(Default)]
struct Parts {
    types: String,
    constants: String,
    structs: String,
    functions: String,
}

impl Parts {
    fn add(&mut self, item: &Item) -> Result<(), String> {
        match item {
            Item::Type(alias) if alias.ident.to_string().starts_with("vyre_") => {
                comment(&mut self.types, "", &alias.attrs);
                self.types += &format!("typedef {};\n", declared(&alias.ty, &alias.ident.to_string())?);
            }
            Item::Const(constant) if constant.ident.to_string().starts_with("VYRE_") => {
                let value = number(&constant.expr).ok_or(format!("{}: no number", constant.ident))?;
                self.constant(&constant.attrs, &constant.ident.to_string(), &value);
            }
            Item::Macro(table) => {
                let name = table.mac.path.get_ident().map(ToString::to_string).unwrap_or_default();
                if name == "statuses" || name == "types" {
                    let rows: Rows =
                        syn::parse2(table.mac.tokens.clone()).map_err(|error| error.to_string())?;
                    for row in rows.0 {
                        self.constant(&row.attrs, &row.name, &row.value);
                    }
                }
            }
            Item::Struct(item) if is(&item.attrs, "transparent") => {
                comment(&mut self.types, "", &item.attrs);
                let name = &item.ident;
                self.types += &format!("typedef struct {name}_handle *{name};\n");
            }
            Item::Struct(item) if is(&item.attrs, "C") => {
                comment(&mut self.structs, "", &item.attrs);
                let name = &item.ident;
                self.structs += &format!("typedef struct {name} {{\n");
                let Fields::Named(fields) = &item.fields else { return Err(format!("{name} has no fields")) };
                for field in &fields.named {
                    comment(&mut self.structs, "    ", &field.attrs);
                    let ident = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                    self.structs += &format!("    {};\n", declared(&field.ty, c_name(&ident))?);
                }
                self.structs += &format!("}} {name};\n\n");
            }
            Item::Fn(function) if function.sig.abi.is_some() => self.function(function)?,
            _ => {}
        }
        Ok(())
    }

    fn constant(&mut self, attrs: &[Attribute], name: &str, value: &str) {
        comment(&mut self.constants, "", attrs);
        self.constants += &format!("#define {name} {value}\n");
    }

    fn function(&mut self, function: &syn::ItemFn) -> Result<(), String> {
        let signature = &function.sig;
        comment(&mut self.functions, "", &function.attrs);
        let mut parameters = Vec::new();
        for input in &signature.inputs {
            let FnArg::Typed(parameter) = input else { return Err("a function with self".into()) };
            let Pat::Ident(name) = &*parameter.pat else { return Err("a parameter without a name".into()) };
            parameters.push(declared(&parameter.ty, c_name(&name.ident.to_string()))?);
        }
        let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
        let named = format!("{}({parameters})", signature.ident);
        let whole = match &signature.output {
            ReturnType::Default => format!("void {named}"),
            ReturnType::Type(_, ty) => declared(ty, &named)?,
        };
        self.functions += &format!("{whole};\n\n");
        Ok(())
    }
}

/// Row of a table of constants: comments, name, `=`, number, optionally more, and `;`.
struct Row {
    attrs: Vec<Attribute>,
    name: String,
    value: String,
}

struct Rows(Vec<Row>);

impl Parse for Rows {
    fn parse(input: ParseStream<'_>) -> syn::Result<Rows> {
        let mut rows = Vec::new();
        while !input.is_empty() {
            let attrs = Attribute::parse_outer(input)?;
            let name: syn::Ident = input.parse()?;
            input.parse::<syn::Token![=]>()?;
            let value: syn::LitInt = input.parse()?;
            while !input.peek(syn::Token![;]) {
                input.parse::<syn::Ident>()?;
            }
            input.parse::<syn::Token![;]>()?;
            rows.push(Row { attrs, name: name.to_string(), value: value.base10_digits().to_string() });
        }
        Ok(Rows(rows))
    }
}

fn is(attrs: &[Attribute], representation: &str) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("repr")
            && attr.parse_args::<syn::Ident>().is_ok_and(|argument| argument == representation)
    })
}

fn number(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => Some(number.base10_digits().to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Name in C: Rust's `type_` is C's `type`.
fn c_name(name: &str) -> &str {
    name.trim_end_matches('_')
}

/// Writes an item's doc comment as a C comment, up to its safety section, which applies to Rust
/// only.
fn comment(to: &mut String, indent: &str, attrs: &[Attribute]) {
    let lines = attrs.iter().filter(|attr| attr.path().is_ident("doc")).filter_map(|attr| {
        let syn::Meta::NameValue(pair) = &attr.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(text) = &literal.lit else { return None };
        Some(text.value().trim().to_string())
    });
    let text: Vec<String> = lines.take_while(|line| line != "# Safety").collect();
    let text = text.join(" ");
    let mut line = format!("{indent}/**");
    for word in text.split_whitespace() {
        if line.len() + word.len() + 1 > 97 {
            let _ = writeln!(to, "{line}");
            line = format!("{indent} *");
        }
        line += " ";
        line += word;
    }
    let _ = writeln!(to, "{line} */");
}

/// C declaration with this name and type.
fn declared(ty: &Type, name: &str) -> Result<String, String> {
    match ty {
        Type::Ptr(pointer) => {
            let constant = match pointer.mutability {
                PointerMutability::Const(_) => "const ",
                PointerMutability::Mut(_) => "",
            };
            let inner = declared(&pointer.elem, &format!("*{name}"))?;
            // `const` applies to the pointee; pointers to pointers occur only without it.
            Ok(format!("{constant}{inner}"))
        }
        Type::Array(array) => {
            let length = number(&array.len).ok_or("an array without a number of elements")?;
            declared(&array.elem, &format!("{name}[{length}]"))
        }
        Type::Path(path) => {
            let last = path.path.segments.last().ok_or("an empty path")?;
            if last.ident == "Option" {
                return function_pointer(last, name);
            }
            let known = match last.ident.to_string().as_str() {
                "c_char" => "char".to_string(),
                "c_void" => "void".to_string(),
                "u32" => "uint32_t".to_string(),
                "i32" => "int32_t".to_string(),
                "u64" => "uint64_t".to_string(),
                "usize" => "size_t".to_string(),
                other if other.starts_with("vyre_") => other.to_string(),
                other => return Err(format!("a type that C does not have: {other}")),
            };
            Ok(format!("{known} {name}"))
        }
        _ => Err("a type that C does not have".into()),
    }
}

/// C declaration for `Option<unsafe extern "C" fn(…)>`.
fn function_pointer(segment: &syn::PathSegment, name: &str) -> Result<String, String> {
    let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return Err("an option of nothing".into());
    };
    let Some(syn::GenericArgument::Type(Type::FnPtr(function))) = arguments.args.first() else {
        return Err("an option of something that is no function".into());
    };
    let mut parameters = Vec::new();
    for parameter in &function.inputs {
        let named = parameter.name.as_ref().map(|(name, _)| name.to_string()).unwrap_or_default();
        parameters.push(declared(&parameter.ty, &named)?);
    }
    Ok(format!("void (*{name})({})", parameters.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_header_is_current() {
        let committed = std::fs::read_to_string(root().join(PATH)).unwrap_or_default();
        assert!(committed == generate().unwrap(), "{PATH} is stale; run `cargo xtask docs`");
    }

    #[test]
    fn declarations_are_written_as_in_c() {
        let check = |rust: &str, c: &str| {
            assert_eq!(declared(&syn::parse_str(rust).unwrap(), "x").unwrap(), c);
        };
        check("*const c_char", "const char *x");
        check("*mut *mut c_char", "char **x");
        check("[u32; 3]", "uint32_t x[3]");
        check("array::vyre_array", "vyre_array x");
        check(
            "Option<unsafe extern \"C\" fn(a: *const c_char, b: *mut c_void)>",
            "void (*x)(const char *a, void *b)",
        );
    }
}
