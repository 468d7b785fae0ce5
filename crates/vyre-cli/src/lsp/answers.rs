//! Answers to each request, from the analysis of a document.

use super::document::{Document, Encoding};
use lsp_types as lsp;
use std::collections::HashMap;
use vyre_foundation::diagnostics::{Diagnostic, Severity};
use vyre_foundation::ir::Span;
use vyre_foundation::text;
use vyre_foundation::text::analysis::{
    Symbol, SymbolKind, TokenKind, ValueFacts, describe_word, is_plain_name,
};

pub(super) fn capabilities(encoding: Encoding) -> lsp::ServerCapabilities {
    let sync = lsp::TextDocumentSyncKind::INCREMENTAL;
    lsp::ServerCapabilities {
        position_encoding: Some(encoding.name()),
        text_document_sync: Some(lsp::TextDocumentSyncCapability::Kind(sync)),
        hover_provider: Some(lsp::HoverProviderCapability::Simple(true)),
        definition_provider: Some(lsp::OneOf::Left(true)),
        references_provider: Some(lsp::OneOf::Left(true)),
        document_highlight_provider: Some(lsp::OneOf::Left(true)),
        document_symbol_provider: Some(lsp::OneOf::Left(true)),
        rename_provider: Some(lsp::OneOf::Right(lsp::RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: Default::default(),
        })),
        completion_provider: Some(lsp::CompletionOptions {
            trigger_characters: Some(vec![".".into()]),
            ..Default::default()
        }),
        document_formatting_provider: Some(lsp::OneOf::Left(true)),
        code_action_provider: Some(lsp::CodeActionProviderCapability::Simple(true)),
        inlay_hint_provider: Some(lsp::OneOf::Left(true)),
        semantic_tokens_provider: Some(
            lsp::SemanticTokensOptions {
                legend: lsp::SemanticTokensLegend {
                    token_types: TOKEN_TYPES.map(lsp::SemanticTokenType::new).to_vec(),
                    token_modifiers: Vec::new(),
                },
                full: Some(lsp::SemanticTokensFullOptions::Bool(true)),
                ..Default::default()
            }
            .into(),
        ),
        ..Default::default()
    }
}

// Diagnostics and quick fixes.

pub(super) fn diagnostics(uri: &lsp::Uri, document: &Document) -> Vec<lsp::Diagnostic> {
    let shown = |fault: &Diagnostic| diagnostic(uri, document, fault);
    document.analysis().diagnostics().iter().map(shown).collect()
}

fn diagnostic(uri: &lsp::Uri, document: &Document, fault: &Diagnostic) -> lsp::Diagnostic {
    let help = fault.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    let cause = fault.cause.map(|(span, what)| {
        let location = lsp::Location { uri: uri.clone(), range: document.range(span) };
        vec![lsp::DiagnosticRelatedInformation { location, message: what.into() }]
    });
    lsp::Diagnostic {
        range: document.range(shown(document, fault)),
        severity: Some(match fault.severity() {
            Severity::Warning => lsp::DiagnosticSeverity::WARNING,
            Severity::Error => lsp::DiagnosticSeverity::ERROR,
        }),
        code: Some(lsp::NumberOrString::String(fault.code.to_string())),
        source: Some("vyre".into()),
        message: format!("{}{help}", fault.message),
        related_information: cause,
        ..Default::default()
    }
}

/// Span to underline for a diagnostic: its first line only, so that a diagnostic on a block does
/// not cover the block.
fn shown(document: &Document, fault: &Diagnostic) -> Span {
    let span = fault.span.unwrap_or_default();
    let text = document.text().get(span.start as usize..span.end as usize).unwrap_or_default();
    let first = text.find('\n').map_or(text.len(), |end| text[..end].trim_end().len());
    Span { start: span.start, end: span.start + first as u32 }
}

pub(super) fn code_actions(
    document: &Document,
    parameters: lsp::CodeActionParams,
) -> Option<lsp::CodeActionResponse> {
    let uri = parameters.text_document.uri;
    let asked = parameters.range;
    let touches = |range: lsp::Range| range.start <= asked.end && asked.start <= range.end;
    let faults = document.analysis().diagnostics().iter();
    let mends = faults.filter(|fault| !fault.edits.is_empty());
    let actions =
        mends.filter(|fault| touches(document.range(fault.span.unwrap_or_default()))).map(|fault| {
            let edit = |(span, text): &(Span, String)| lsp::TextEdit {
                range: document.range(*span),
                new_text: text.clone(),
            };
            let edits = fault.edits.iter().map(edit).collect();
            lsp::CodeActionOrCommand::CodeAction(lsp::CodeAction {
                title: title_of(document, fault),
                kind: Some(lsp::CodeActionKind::QUICKFIX),
                diagnostics: Some(vec![diagnostic(&uri, document, fault)]),
                edit: Some(changes(&uri, edits)),
                is_preferred: Some(true),
                ..Default::default()
            })
        });
    Some(actions.collect())
}

/// Short title of a quick fix.
fn title_of(document: &Document, fault: &Diagnostic) -> String {
    match &fault.edits[..] {
        [(span, by)] if by.is_empty() => {
            let gone = document.text().get(span.start as usize..span.end as usize).unwrap_or_default();
            format!("remove `{}`", gone.trim().trim_matches(',').trim())
        }
        [(span, by)] if span.start < span.end => {
            let before = document.text().get(span.start as usize..span.end as usize).unwrap_or_default();
            format!("write `{by}` for `{before}`")
        }
        [(_, by)] => format!("add `{}`", by.trim()),
        edits => format!("write `{}`", edits.iter().map(|(_, by)| &**by).collect::<Vec<_>>().join("…")),
    }
}

fn changes(uri: &lsp::Uri, edits: Vec<lsp::TextEdit>) -> lsp::WorkspaceEdit {
    // The protocol defines this type; a `Uri` is not mutated while it is a key.
    #[allow(clippy::mutable_key_type)]
    let changes = HashMap::from([(uri.clone(), edits)]);
    lsp::WorkspaceEdit { changes: Some(changes), ..Default::default() }
}

// Hover.

pub(super) fn hover(document: &Document, parameters: lsp::HoverParams) -> Option<lsp::Hover> {
    let at = parameters.text_document_position_params.position;
    let position = document.offset(at) as u32;
    let analysis = document.analysis();
    let symbol = analysis.symbol_at(position).map(|symbol| &analysis.symbols()[symbol]);
    let (span, text) = match symbol {
        Some(symbol) => {
            let span = analysis.name_at(position)?;
            let is_declaration = span == symbol.span;
            let facts =
                if is_declaration { analysis.declared_value(symbol) } else { analysis.value_at(position) };
            // A buffer's name alone is not a value; the element access around it is.
            let facts = facts.filter(|facts| facts.span == span || symbol.kind == SymbolKind::Buffer);
            let mut text = format!("```vyre\n{}\n```", analysis.declaration(symbol));
            text += &facts.map(|facts| described(&facts)).unwrap_or_default();
            (span, text)
        }
        None => match word_at(document, position as usize) {
            Some((span, word)) if describe_word(word).is_some() => {
                let op = describe_word(word)?;
                let value = analysis.value_at(position).map(|facts| described(&facts)).unwrap_or_default();
                (span, format!("```vyre\n{}\n```\n{}\n\n{}{value}", op.label, op.documentation, op.detail))
            }
            _ => {
                let facts = analysis.value_at(position)?;
                (facts.span, format!("```vyre\n{}\n```{}", facts.ty, described(&facts)))
            }
        },
    };
    let value = lsp::MarkupContent { kind: lsp::MarkupKind::Markdown, value: text };
    Some(lsp::Hover { contents: lsp::HoverContents::Markup(value), range: Some(document.range(span)) })
}

/// Describes the facts about a value in one paragraph.
fn described(facts: &ValueFacts) -> String {
    let mut parts = vec![format!("{}", facts.ty)];
    parts.extend(facts.uniform.map(|uniform| {
        let word = if uniform { "uniform: the same for the whole workgroup" } else { "varying" };
        word.to_string()
    }));
    parts.extend(facts.range.map(|(low, high)| match low == high {
        true => format!("always {low}"),
        false => format!("from {low} to {high}"),
    }));
    parts.extend(facts.below.iter().map(|buffer| format!("below len({buffer})")));
    parts.extend(facts.in_bounds.map(|proved| {
        let word = if proved { "index proved in range" } else { "index checked at run time" };
        word.to_string()
    }));
    format!("\n\n{}", parts.join("; "))
}

fn word_at(document: &Document, position: usize) -> Option<(Span, &str)> {
    let text = document.text();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let start = text.get(..position)?.trim_end_matches(is_part).len();
    let rest = &text[start..];
    let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    (length > 0).then(|| (Span { start: start as u32, end: (start + length) as u32 }, &rest[..length]))
}

// Symbols.

fn symbol_at(document: &Document, at: lsp::Position) -> Option<usize> {
    document.analysis().symbol_at(document.offset(at) as u32)
}

pub(super) fn definition(
    document: &Document,
    parameters: lsp::GotoDefinitionParams,
) -> Option<lsp::GotoDefinitionResponse> {
    let place = parameters.text_document_position_params;
    let symbol = &document.analysis().symbols()[symbol_at(document, place.position)?];
    let location = lsp::Location { uri: place.text_document.uri, range: document.range(symbol.span) };
    Some(lsp::GotoDefinitionResponse::Scalar(location))
}

pub(super) fn references(
    document: &Document,
    parameters: lsp::ReferenceParams,
) -> Option<Vec<lsp::Location>> {
    let place = parameters.text_document_position;
    let symbol = symbol_at(document, place.position)?;
    let declared = document.analysis().symbols()[symbol].span;
    let wanted = |span: &Span| parameters.context.include_declaration || *span != declared;
    let location = |span| lsp::Location { uri: place.text_document.uri.clone(), range: document.range(span) };
    Some(document.analysis().references_of(symbol).filter(wanted).map(location).collect())
}

pub(super) fn highlights(
    document: &Document,
    parameters: lsp::DocumentHighlightParams,
) -> Option<Vec<lsp::DocumentHighlight>> {
    let symbol = symbol_at(document, parameters.text_document_position_params.position)?;
    let highlight = |span| lsp::DocumentHighlight { range: document.range(span), kind: None };
    Some(document.analysis().references_of(symbol).map(highlight).collect())
}

pub(super) fn prepare_rename(
    document: &Document,
    parameters: lsp::TextDocumentPositionParams,
) -> Option<lsp::PrepareRenameResponse> {
    let span = document.analysis().name_at(document.offset(parameters.position) as u32)?;
    Some(lsp::PrepareRenameResponse::Range(document.range(span)))
}

/// Edits that rename a symbol, or why it cannot take that name.
pub(super) fn rename(
    document: &Document,
    parameters: lsp::RenameParams,
) -> Result<Option<lsp::WorkspaceEdit>, String> {
    let analysis = document.analysis();
    let (place, name) = (parameters.text_document_position, parameters.new_name);
    let Some(renamed) = symbol_at(document, place.position) else { return Ok(None) };
    let symbol = &analysis.symbols()[renamed];
    if name.is_empty() || name.contains(char::is_control) || name.contains(['`', '\\', '"']) {
        return Err(format!("`{name}` is not a valid name"));
    }
    let quoted = if is_plain_name(&name) { name.clone() } else { format!("`{name}`") };
    let meets = |other: &Symbol| {
        *other.name == *name
            && other.kind != SymbolKind::Kernel
            && symbol.kind != SymbolKind::Kernel
            && other.scope.start <= symbol.scope.end
            && symbol.scope.start <= other.scope.end
    };
    let others = analysis.symbols().iter().enumerate().filter(|(index, _)| *index != renamed);
    if let Some((_, other)) = others.into_iter().find(|(_, other)| meets(other)) {
        let line = document.position(other.span.start as usize).line + 1;
        return Err(format!("`{name}` is already declared on line {line}"));
    }
    let edit = |span: Span| {
        let is_string = document.text()[span.start as usize..].starts_with('"');
        let new_text = if is_string { format!("\"{name}\"") } else { quoted.clone() };
        lsp::TextEdit { range: document.range(span), new_text }
    };
    let edits = analysis.references_of(renamed).map(edit).collect();
    Ok(Some(changes(&place.text_document.uri, edits)))
}

#[expect(deprecated, reason = "the field has to be written, as nothing")]
pub(super) fn symbols(
    document: &Document,
    _: lsp::DocumentSymbolParams,
) -> Option<lsp::DocumentSymbolResponse> {
    let analysis = document.analysis();
    let shown = |symbol: &&Symbol| {
        use SymbolKind::{Array, Buffer, Constant, Counter, Function, Kernel, Parameter, Variable};
        match symbol.kind {
            Kernel | Function | Constant | Buffer => true,
            Parameter | Variable | Counter | Array => false,
        }
    };
    let outlined = |symbol: &Symbol| lsp::DocumentSymbol {
        name: symbol.name.to_string(),
        detail: Some(analysis.declaration(symbol)),
        kind: match symbol.kind {
            SymbolKind::Kernel => lsp::SymbolKind::CLASS,
            SymbolKind::Function => lsp::SymbolKind::FUNCTION,
            SymbolKind::Constant => lsp::SymbolKind::CONSTANT,
            SymbolKind::Buffer => lsp::SymbolKind::FIELD,
            SymbolKind::Parameter | SymbolKind::Variable | SymbolKind::Counter | SymbolKind::Array => {
                lsp::SymbolKind::VARIABLE
            }
        },
        tags: None,
        deprecated: None,
        range: document.range(symbol.whole),
        selection_range: document.range(symbol.span),
        children: None,
    };
    let found = analysis.symbols().iter().filter(shown).map(outlined).collect();
    Some(lsp::DocumentSymbolResponse::Nested(found))
}

// Completion and formatting.

pub(super) fn completion(
    document: &Document,
    parameters: lsp::CompletionParams,
) -> Option<lsp::CompletionResponse> {
    let position = document.offset(parameters.text_document_position.position) as u32;
    let candidates = document.analysis().completions(position).into_iter().enumerate();
    let items = candidates.map(|(rank, candidate)| lsp::CompletionItem {
        kind: Some(match candidate.kind {
            TokenKind::Keyword => lsp::CompletionItemKind::KEYWORD,
            TokenKind::Type => lsp::CompletionItemKind::TYPE_PARAMETER,
            TokenKind::Op | TokenKind::Symbol(SymbolKind::Function) => lsp::CompletionItemKind::FUNCTION,
            TokenKind::Symbol(SymbolKind::Buffer | SymbolKind::Array) => lsp::CompletionItemKind::FIELD,
            TokenKind::Symbol(SymbolKind::Constant) => lsp::CompletionItemKind::CONSTANT,
            TokenKind::Symbol(_) => lsp::CompletionItemKind::VARIABLE,
            TokenKind::Builtin | TokenKind::Number | TokenKind::String | TokenKind::Operator => {
                lsp::CompletionItemKind::PROPERTY
            }
        }),
        label: candidate.label,
        detail: (!candidate.detail.is_empty()).then_some(candidate.detail),
        documentation: (!candidate.documentation.is_empty())
            .then_some(lsp::Documentation::String(candidate.documentation)),
        sort_text: Some(format!("{rank:05}")),
        ..Default::default()
    });
    Some(lsp::CompletionResponse::Array(items.collect()))
}

/// Formats the whole document; `None` if it does not parse.
pub(super) fn formatting(
    document: &Document,
    _: lsp::DocumentFormattingParams,
) -> Option<Vec<lsp::TextEdit>> {
    let laid_out = text::format(document.text()).ok()?;
    if laid_out == document.text() {
        return Some(Vec::new());
    }
    // A single edit from the first difference to the last leaves a cursor outside it in position.
    let (old, new) = (document.text(), &*laid_out);
    let alike = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    let start = old.floor_char_boundary(alike).min(new.floor_char_boundary(alike));
    let tail = old[start..].bytes().rev().zip(new[start..].bytes().rev()).take_while(|(a, b)| a == b).count();
    let mut tail = tail;
    while !old.is_char_boundary(old.len() - tail) || !new.is_char_boundary(new.len() - tail) {
        tail -= 1;
    }
    let span = Span { start: start as u32, end: (old.len() - tail) as u32 };
    let new_text = new[start..new.len() - tail].to_string();
    Some(vec![lsp::TextEdit { range: document.range(span), new_text }])
}

// Semantic tokens and inlay hints.

const TOKEN_TYPES: [&str; 11] = [
    "keyword",
    "type",
    "number",
    "string",
    "operator",
    "function",
    "macro",
    "parameter",
    "variable",
    "property",
    "enumMember",
];

fn token_type(kind: TokenKind) -> usize {
    let name = match kind {
        TokenKind::Keyword => "keyword",
        TokenKind::Type => "type",
        TokenKind::Number => "number",
        TokenKind::String => "string",
        TokenKind::Operator => "operator",
        TokenKind::Op => "macro",
        TokenKind::Builtin | TokenKind::Symbol(SymbolKind::Buffer) => "property",
        TokenKind::Symbol(SymbolKind::Kernel | SymbolKind::Function) => "function",
        TokenKind::Symbol(SymbolKind::Constant) => "enumMember",
        TokenKind::Symbol(SymbolKind::Parameter) => "parameter",
        TokenKind::Symbol(SymbolKind::Variable | SymbolKind::Counter | SymbolKind::Array) => "variable",
    };
    TOKEN_TYPES.iter().position(|known| *known == name).unwrap_or(0)
}

pub(super) fn semantic_tokens(
    document: &Document,
    _: lsp::SemanticTokensParams,
) -> Option<lsp::SemanticTokensResult> {
    let mut last = lsp::Position::default();
    let mut data = Vec::new();
    for (span, kind) in document.analysis().tokens() {
        let range = document.range(span);
        let start = range.start;
        let on_line = if start.line == last.line { last.character } else { 0 };
        data.push(lsp::SemanticToken {
            delta_line: start.line - last.line,
            delta_start: start.character - on_line,
            length: range.end.character.saturating_sub(start.character),
            token_type: token_type(kind) as u32,
            token_modifiers_bitset: 0,
        });
        last = start;
    }
    Some(lsp::SemanticTokensResult::Tokens(lsp::SemanticTokens { result_id: None, data }))
}

/// Inlay hints with the types of variables and counters, which the text does not write.
pub(super) fn inlay_hints(
    document: &Document,
    parameters: lsp::InlayHintParams,
) -> Option<Vec<lsp::InlayHint>> {
    let [from, to] = [parameters.range.start, parameters.range.end].map(|at| document.offset(at) as u32);
    let symbols = document.analysis().symbols().iter();
    let hints = symbols
        .filter(|symbol| matches!(symbol.kind, SymbolKind::Variable | SymbolKind::Counter))
        .filter(|symbol| from <= symbol.span.end && symbol.span.start <= to)
        .filter_map(|symbol| Some((symbol, symbol.ty?)))
        .map(|(symbol, ty)| lsp::InlayHint {
            position: document.position(symbol.span.end as usize),
            label: lsp::InlayHintLabel::String(format!(": {ty}")),
            kind: Some(lsp::InlayHintKind::TYPE),
            text_edits: None,
            tooltip: None,
            padding_left: None,
            padding_right: None,
            data: None,
        });
    Some(hints.collect())
}
