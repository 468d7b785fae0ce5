//! `vyre lsp`: a language server for `.vyre` files, on standard input and output.
//!
//! A single thread reads messages and answers each before the next. Analysing a whole document
//! takes a few milliseconds (`vyre_foundation::text::analysis`), so nothing is cached between
//! versions of a document. Queued changes are applied together before their diagnostics are
//! published. `document.rs` holds an open document, `answers.rs` the answers.

mod answers;
mod document;

use crate::output::Ending;
use document::{Document, Encoding};
use lsp_server::{Connection, ErrorCode, Message, Notification, Request, Response};
use lsp_types as lsp;
use lsp_types::notification::Notification as _;
use lsp_types::request::Request as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
An editor starts it and speaks the Language Server Protocol on standard input and output; docs/editors.md \
has the settings for several editors. It provides diagnostics with fixes, types, uniformity and ranges of \
values, definitions, references, renaming, completion, formatting, highlighting and inlay hints.

Examples:
  vyre lsp           start the server; editors run this for `.vyre` files")]
pub(crate) struct Arguments {
    /// Use standard input and output, the only transport; accepted because editors pass it
    #[arg(long)]
    stdio: bool,
}

pub(crate) fn run(_: &Arguments) -> Ending {
    let (connection, threads) = Connection::stdio();
    let ended = serve(&connection);
    drop(connection);
    match (ended, threads.join()) {
        (Ok(()), Ok(())) => Ending::Done,
        (Err(problem), _) => Ending::Usage(format!("language server: {problem}")),
        (Ok(()), Err(error)) => Ending::Usage(format!("language server: {error}")),
    }
}

/// Serves a client until it shuts the connection down.
fn serve(connection: &Connection) -> Result<(), String> {
    let text_of = |error: lsp_server::ProtocolError| error.to_string();
    let (id, parameters) = connection.initialize_start().map_err(text_of)?;
    let parameters: lsp::InitializeParams =
        serde_json::from_value(parameters).map_err(|error| format!("initialize: {error}"))?;
    let encoding = Encoding::of(&parameters);
    let about = serde_json::json!({
        "capabilities": answers::capabilities(encoding),
        "serverInfo": { "name": "vyre", "version": env!("CARGO_PKG_VERSION") },
    });
    connection.initialize_finish(id, about).map_err(text_of)?;
    let mut server = Server { connection, encoding, documents: HashMap::new(), changed: BTreeSet::new() };
    for message in &connection.receiver {
        match message {
            Message::Request(request) => {
                if connection.handle_shutdown(&request).map_err(text_of)? {
                    return Ok(());
                }
                server.publish();
                let response = server.answer(request);
                server.send(Message::Response(response));
            }
            Message::Notification(notification) => server.take(notification),
            Message::Response(_) => {}
        }
        if connection.receiver.is_empty() {
            server.publish();
        }
    }
    Ok(())
}

struct Server<'a> {
    connection: &'a Connection,
    encoding: Encoding,
    documents: HashMap<lsp::Uri, Document>,
    /// Documents whose diagnostics have not been published yet.
    changed: BTreeSet<String>,
}

impl Server<'_> {
    fn send(&self, message: Message) {
        // The client is gone; the next receive ends the loop.
        let _ = self.connection.sender.send(message);
    }

    fn notify<N: lsp::notification::Notification>(&self, parameters: N::Params) {
        self.send(Message::Notification(Notification::new(N::METHOD.into(), parameters)));
    }

    fn take(&mut self, notification: Notification) {
        use lsp::notification::{DidChangeTextDocument, DidCloseTextDocument, DidOpenTextDocument};
        let Notification { method, params } = notification;
        match method.as_str() {
            DidOpenTextDocument::METHOD => {
                let Some(opened) = read::<lsp::DidOpenTextDocumentParams>(params) else { return };
                let lsp::TextDocumentItem { uri, version, text, .. } = opened.text_document;
                self.changed.insert(uri.to_string());
                self.documents.insert(uri, Document::new(text, version, self.encoding));
            }
            DidChangeTextDocument::METHOD => {
                let Some(change) = read::<lsp::DidChangeTextDocumentParams>(params) else { return };
                let uri = change.text_document.uri;
                if let Some(document) = self.documents.get_mut(&uri) {
                    document.change(change.content_changes, change.text_document.version);
                    self.changed.insert(uri.to_string());
                }
            }
            DidCloseTextDocument::METHOD => {
                let Some(closed) = read::<lsp::DidCloseTextDocumentParams>(params) else { return };
                let uri = closed.text_document.uri;
                self.documents.remove(&uri);
                self.changed.remove(&uri.to_string());
                let nothing = lsp::PublishDiagnosticsParams { uri, diagnostics: Vec::new(), version: None };
                self.notify::<lsp::notification::PublishDiagnostics>(nothing);
            }
            _ => {}
        }
    }

    /// Publishes the diagnostics of the changed documents.
    fn publish(&mut self) {
        let changed = std::mem::take(&mut self.changed);
        let documents = self.documents.iter().filter(|(uri, _)| changed.contains(&uri.to_string()));
        let found: Vec<lsp::PublishDiagnosticsParams> = documents
            .map(|(uri, document)| lsp::PublishDiagnosticsParams {
                uri: uri.clone(),
                diagnostics: answers::diagnostics(uri, document),
                version: Some(document.version),
            })
            .collect();
        found.into_iter().for_each(|found| self.notify::<lsp::notification::PublishDiagnostics>(found));
    }

    fn answer(&self, request: Request) -> Response {
        let Request { id, method, params } = request;
        let outcome = vyre_driver::contain(|| self.outcome(&method, params));
        match outcome {
            Ok(Ok(value)) => Response::new_ok(id, value),
            Ok(Err((code, message))) => Response::new_err(id, code as i32, message),
            Err(message) => Response::new_err(id, ErrorCode::InternalError as i32, message),
        }
    }

    fn outcome(&self, method: &str, params: Value) -> Result<Value, (ErrorCode, String)> {
        use lsp::request::{
            CodeActionRequest, Completion, DocumentHighlightRequest, DocumentSymbolRequest, Formatting,
            GotoDefinition, HoverRequest, InlayHintRequest, PrepareRenameRequest, References, Rename,
            SemanticTokensFullRequest,
        };
        match method {
            HoverRequest::METHOD => self.reply::<HoverRequest>(params, answers::hover),
            GotoDefinition::METHOD => self.reply::<GotoDefinition>(params, answers::definition),
            References::METHOD => self.reply::<References>(params, answers::references),
            DocumentHighlightRequest::METHOD => {
                self.reply::<DocumentHighlightRequest>(params, answers::highlights)
            }
            PrepareRenameRequest::METHOD => {
                self.reply::<PrepareRenameRequest>(params, answers::prepare_rename)
            }
            Rename::METHOD => {
                let (document, parameters) = self.of::<Rename>(params)?;
                let edit = answers::rename(document, parameters)
                    .map_err(|problem| (ErrorCode::RequestFailed, problem))?;
                value(edit)
            }
            Completion::METHOD => self.reply::<Completion>(params, answers::completion),
            Formatting::METHOD => self.reply::<Formatting>(params, answers::formatting),
            CodeActionRequest::METHOD => self.reply::<CodeActionRequest>(params, answers::code_actions),
            DocumentSymbolRequest::METHOD => self.reply::<DocumentSymbolRequest>(params, answers::symbols),
            SemanticTokensFullRequest::METHOD => {
                self.reply::<SemanticTokensFullRequest>(params, answers::semantic_tokens)
            }
            InlayHintRequest::METHOD => self.reply::<InlayHintRequest>(params, answers::inlay_hints),
            unknown => Err((ErrorCode::MethodNotFound, format!("the request `{unknown}` is not supported"))),
        }
    }

    /// Finds the document that a request is about, and parses its parameters.
    fn of<R: lsp::request::Request>(
        &self,
        params: Value,
    ) -> Result<(&Document, R::Params), (ErrorCode, String)>
    where
        R::Params: DeserializeOwned,
    {
        let wrong = |message: String| (ErrorCode::InvalidParams, message);
        let place = &params["textDocument"];
        let uri = if place.is_null() { &params["textDocumentPositionParams"]["textDocument"] } else { place };
        let uri: lsp::Uri =
            serde_json::from_value(uri["uri"].clone()).map_err(|error| wrong(format!("uri: {error}")))?;
        let document =
            self.documents.get(&uri).ok_or_else(|| wrong(format!("`{}` is not open", uri.as_str())))?;
        let parameters = serde_json::from_value(params).map_err(|error| wrong(error.to_string()))?;
        Ok((document, parameters))
    }

    fn reply<R: lsp::request::Request>(
        &self,
        params: Value,
        make: impl FnOnce(&Document, R::Params) -> R::Result,
    ) -> Result<Value, (ErrorCode, String)>
    where
        R::Params: DeserializeOwned,
    {
        let (document, parameters) = self.of::<R>(params)?;
        value(make(document, parameters))
    }
}

fn value(result: impl serde::Serialize) -> Result<Value, (ErrorCode, String)> {
    serde_json::to_value(result).map_err(|error| (ErrorCode::InternalError, error.to_string()))
}

/// Parses the parameters of a notification; one that does not parse is ignored.
fn read<P: DeserializeOwned>(params: Value) -> Option<P> {
    serde_json::from_value(params)
        .inspect_err(|error| tracing::warn!(%error, "a notification cannot be read"))
        .ok()
}
