//! `vyre lsp` driven by a protocol client on real files.

use crate::Bench;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const URI: &str = "file:///test.vyre";

struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    version: i64,
    /// Messages that arrived while waiting for a response.
    heard: VecDeque<Value>,
    text: String,
}

impl Client {
    /// A client that negotiates this position encoding.
    fn new(encoding: &str) -> Client {
        let bench = Bench::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_vyre"));
        command.args(["lsp", "--stdio"]).current_dir(bench.folder.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let mut client = Client {
            child,
            input,
            output: BufReader::new(output),
            next: 0,
            version: 0,
            heard: VecDeque::new(),
            text: String::new(),
        };
        let general = json!({ "positionEncodings": [encoding] });
        let about = client.ask("initialize", json!({ "capabilities": { "general": general } }));
        assert_eq!(about["capabilities"]["positionEncoding"], encoding);
        client.tell("initialized", json!({}));
        client
    }

    /// A client with an open document.
    fn with(text: &str) -> Client {
        let mut client = Client::new("utf-8");
        client.open(text);
        client
    }

    fn send(&mut self, message: Value) {
        let body = message.to_string();
        let input = self.input.as_mut().expect("it is open");
        write!(input, "Content-Length: {}\r\n\r\n{body}", body.len()).expect("it listens");
        input.flush().expect("it listens");
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    fn read(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("it speaks") > 0, "it ended");
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().expect("a length"),
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).expect("a whole message");
        serde_json::from_slice(&body).expect("JSON")
    }

    /// The complete response to a request.
    fn answer(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.read();
            if message["id"] == id {
                return message;
            }
            self.heard.push_back(message);
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let answer = self.answer(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    fn open(&mut self, text: &str) {
        self.text = text.into();
        self.version += 1;
        let document = json!({ "uri": URI, "languageId": "vyre", "version": self.version, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
    }

    /// Replaces a range of the text, as an editor does.
    fn edit(&mut self, range: std::ops::Range<usize>, by: &str) {
        let place = json!({ "start": self.at(range.start), "end": self.at(range.end) });
        self.text.replace_range(range, by);
        self.version += 1;
        self.tell(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": URI, "version": self.version },
                "contentChanges": [{ "range": place, "text": by }],
            }),
        );
    }

    /// Diagnostics for the current version of the text.
    fn diagnostics(&mut self) -> Vec<Value> {
        loop {
            let message = self.heard.pop_front().unwrap_or_else(|| self.read());
            let params = &message["params"];
            if message["method"] == "textDocument/publishDiagnostics" && params["version"] == self.version {
                return params["diagnostics"].as_array().expect("a list").clone();
            }
        }
    }

    /// Position of an offset, with columns counted in bytes.
    fn at(&self, offset: usize) -> Value {
        let before = &self.text[..offset];
        let line = before.matches('\n').count();
        json!({ "line": line, "character": offset - before.rfind('\n').map_or(0, |end| end + 1) })
    }

    fn offset(&self, position: &Value) -> usize {
        let [line, character] = ["line", "character"].map(|of| position[of].as_u64().unwrap() as usize);
        let starts = std::iter::once(0).chain(self.text.match_indices('\n').map(|(at, _)| at + 1));
        starts.into_iter().nth(line).unwrap() + character
    }

    /// Sends a request about a position.
    fn about(&mut self, method: &str, offset: usize, more: Value) -> Value {
        let mut params = json!({ "textDocument": { "uri": URI }, "position": self.at(offset) });
        more.as_object().into_iter().flatten().for_each(|(key, value)| params[key] = value.clone());
        self.ask(&format!("textDocument/{method}"), params)
    }

    fn hover(&mut self, offset: usize) -> String {
        self.about("hover", offset, json!({}))["contents"]["value"].as_str().unwrap_or_default().into()
    }

    /// Offset of the `nth` occurrence of a text.
    fn find(&self, text: &str, nth: usize) -> usize {
        self.text.match_indices(text).nth(nth).unwrap_or_else(|| panic!("no {text}")).0
    }

    /// The text with the edits applied, last position first.
    fn edited(&self, edits: &Value) -> String {
        let mut list: Vec<(usize, usize, &str)> = edits
            .as_array()
            .expect("edits")
            .iter()
            .map(|edit| {
                let [start, end] = ["start", "end"].map(|end| self.offset(&edit["range"][end]));
                (start, end, edit["newText"].as_str().expect("a text"))
            })
            .collect();
        list.sort_unstable();
        let mut text = self.text.clone();
        list.into_iter().rev().for_each(|(start, end, by)| text.replace_range(start..end, by));
        text
    }

    /// Shuts down and checks that the server exits cleanly.
    fn leave(mut self) {
        assert!(self.ask("shutdown", Value::Null).is_null());
        self.tell("exit", Value::Null);
        drop(self.input.take());
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(path).expect("an example")
}

#[test]
fn a_session_on_a_real_file() {
    let mut client = Client::with(&example("black_scholes.vyre"));
    assert_eq!(client.diagnostics(), Vec::<Value>::new());

    let spread = client.find("spread", 1);
    let hover = client.hover(spread);
    assert!(hover.contains("let spread: f32") && hover.contains("uniform"), "{hover}");
    let hover = client.hover(client.find("s =", 0));
    assert!(hover.contains("let s: f32") && hover.contains("varying"), "{hover}");
    let hover = client.hover(client.find("sqrt", 0));
    assert!(hover.contains("Square root"), "{hover}");
    let hover = client.hover(client.find("strike)", 0));
    assert!(hover.contains("strike: f32 uniform"), "{hover}");
    let hover = client.hover(client.find("spot[", 0));
    assert!(hover.contains("read f32[]") && hover.contains("proved in range"), "{hover}");

    let found = client.about("definition", client.find("normal_below", 1), json!({}));
    assert_eq!(client.offset(&found["range"]["start"]), client.find("normal_below", 0));
    let places = client.about("references", spread, json!({ "context": { "includeDeclaration": true } }));
    assert_eq!(places.as_array().map(Vec::len), Some(3));

    let edit = client.about("rename", spread, json!({ "newName": "sigma" }));
    let renamed = client.edited(&edit["changes"][URI]);
    assert_eq!(renamed, client.text.replace("spread", "sigma"));
    let edit = client.about("rename", client.find("normal_below", 0), json!({ "newName": "phi" }));
    assert_eq!(client.edited(&edit["changes"][URI]), client.text.replace("normal_below", "phi"));
    let position = client.at(spread);
    let refused = client.answer(
        "textDocument/rename",
        json!({ "textDocument": { "uri": URI }, "position": position, "newName": "d1" }),
    );
    assert!(
        refused["error"]["message"].as_str().unwrap_or_default().contains("already declared"),
        "{refused}"
    );

    let hints = client.ask(
        "textDocument/inlayHint",
        json!({
            "textDocument": { "uri": URI },
            "range": { "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } },
        }),
    );
    assert_eq!(hints.as_array().map(Vec::len), Some(4), "{hints}");
    assert_eq!(hints[0]["label"], ": f32");

    let outline = client.ask("textDocument/documentSymbol", json!({ "textDocument": { "uri": URI } }));
    let names: Vec<&str> =
        outline.as_array().into_iter().flatten().filter_map(|symbol| symbol["name"].as_str()).collect();
    assert!(names.contains(&"normal_below") && names.contains(&"black_scholes"), "{names:?}");

    let unknown = client.answer("textDocument/somethingElse", json!({ "textDocument": { "uri": URI } }));
    assert_eq!(unknown["error"]["code"], -32601);
    client.leave();
}

#[test]
fn completion_knows_names_ops_and_axes() {
    let text = "fn half(x: f32) -> f32 { x * 0.5 }\nkernel k(a: f32 uniform, y: output f32[64]) over y {\n  let i = invocation.\n  let scaled = 2.0\n  y[i] = \n}\n";
    let mut client = Client::with(text);
    let labels = |found: Value| -> Vec<String> {
        let items = found.as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item["label"].as_str().map(str::to_owned)).collect()
    };
    let axes = labels(client.about("completion", client.find("invocation.", 0) + 11, json!({})));
    assert_eq!(axes, ["x", "y", "z"]);
    let value = labels(client.about("completion", client.find("y[i] = ", 0) + 7, json!({})));
    for name in ["scaled", "a", "y", "half", "sqrt", "atomic_add", "invocation", "len"] {
        assert!(value.iter().any(|label| label == name), "{name}: {value:?}");
    }
    assert!(!value.contains(&"x".to_string()), "a parameter of another function");
    let access = labels(client.about("completion", client.find("y: ", 0) + 3, json!({})));
    assert!(access.contains(&"read_write".to_string()) && access.contains(&"f32".to_string()), "{access:?}");
    let items = labels(client.about("completion", 0, json!({})));
    assert_eq!(items, ["kernel", "fn", "const"]);
    client.leave();
}

#[test]
fn faults_have_codes_and_mends() {
    let good = "kernel k(n: i32 uniform, values: read_write f32[]) over values {\n  let index = invocation.x\n  if n > 0 {\n    values[index] = sqrt(values[index])\n  }\n}\n";
    // Original text, its replacement, the expected code, and the fix, which need not restore the
    // original.
    let check = |from: &str, to: &str, code: &str, title: &str| {
        let mut client = Client::with(good);
        assert_eq!(client.diagnostics(), Vec::<Value>::new());
        let start = client.find(from, 0);
        client.edit(start..start + from.len(), to);
        let diagnostics = client.diagnostics();
        assert!(diagnostics.iter().any(|fault| fault["code"] == code), "{to}: {diagnostics:?}");
        let range = diagnostics[0]["range"].clone();
        let actions = client.ask(
            "textDocument/codeAction",
            json!({ "textDocument": { "uri": URI }, "range": range, "context": { "diagnostics": [] } }),
        );
        let action = actions.as_array().into_iter().flatten().find(|action| action["title"] == title);
        let action = action.unwrap_or_else(|| panic!("{title}: {actions}"));
        let mended = client.edited(&action["edit"]["changes"][URI]);
        let whole = 0..client.text.len();
        client.edit(whole, &mended);
        assert_eq!(client.diagnostics(), Vec::<Value>::new(), "{mended}");
        client.leave();
    };
    check("sqrt(values[index])", "sqrt(values[indx])", "V001", "write `index` for `indx`");
    check("sqrt", "sqqrt", "V003", "write `sqrt` for `sqqrt`");
    check("values[index] = ", "valus[index] = ", "V002", "write `values` for `valus`");
    check("values: read_write", "values: read", "V012", "write `read_write` for `read`");
    check("read_write", "read_wrote", "T005", "write `read_write` for `read_wrote`");
    check("n > 0", "n", "V007", "write `(…) != 0`");
    check("sqrt(values[index])", "sqrt(f64(values[index]))", "V010", "write `f32(…)`");
    check("values: read_write", "z: read u32[], values: read_write", "W002", "remove `z: read u32[]`");
    check("sqrt(values[index])", "sqrt(values[index]", "T001", "add `)`");
    check("  }\n}", "  }\n", "T003", "add `}`");
}

#[test]
fn a_broken_line_does_not_blind_the_rest() {
    let mut client = Client::with(&example("mandelbrot.vyre"));
    assert_eq!(client.diagnostics(), Vec::<Value>::new());
    let line = client.find("let cx = ", 0) + "let cx = ".len();
    let end = client.text[line..].find('\n').unwrap() + line;
    client.edit(line..end, "(f32(px) - ");
    let diagnostics = client.diagnostics();
    assert_eq!(diagnostics.len(), 1, "one mistake, one message: {diagnostics:?}");
    let hover = client.hover(client.find("next", 0));
    assert!(hover.contains("let next"), "{hover}");
    let hover = client.hover(client.find("cy =", 0));
    assert!(hover.contains("let cy: f32"), "{hover}");
    let found = client.about("definition", client.find("px)", 0), json!({}));
    assert_eq!(client.offset(&found["range"]["start"]), client.find("px", 0));
    client.leave();
}

#[test]
fn every_text_on_the_way_is_answered() {
    for name in ["black_scholes.vyre", "histogram.vyre", "n_body.vyre"] {
        let whole = example(name);
        let mut client = Client::with("");
        let cuts = whole.char_indices().map(|(at, _)| at).step_by(23).chain([whole.len()]);
        for cut in cuts {
            let end = client.text.len();
            client.edit(end..end, &whole[end..cut]);
            client.about("completion", cut, json!({}));
            client.hover(cut.saturating_sub(1));
            client.ask("textDocument/semanticTokens/full", json!({ "textDocument": { "uri": URI } }));
        }
        assert_eq!(client.diagnostics(), Vec::<Value>::new());
        client.leave();
    }
}

#[test]
fn formatting_and_colours() {
    let mut client = Client::with("kernel  k(y: output u32[4]) over y {\n// ü: kept\ny[invocation.x]=7 }\n");
    let edits = client.ask(
        "textDocument/formatting",
        json!({ "textDocument": { "uri": URI }, "options": { "tabSize": 2, "insertSpaces": true } }),
    );
    let laid_out = client.edited(&edits);
    assert_eq!(laid_out, "kernel k(y: output u32[4]) over y {\n  // ü: kept\n  y[invocation.x] = 7\n}\n");
    let tokens = client.ask("textDocument/semanticTokens/full", json!({ "textDocument": { "uri": URI } }));
    let data: Vec<u64> = tokens["data"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    // `kernel`, a keyword, then two columns later `k`, a function.
    assert_eq!(data[..10], [0, 0, 6, 0, 0, 0, 8, 1, 5, 0]);
    client.leave();
}

#[test]
fn columns_are_counted_as_the_client_does() {
    let mut client = Client::new("utf-16");
    client.open("/* 𝄞ü */ kernel k(y: output u32[4]) over y { y[0] = z }\n");
    let diagnostics = client.diagnostics();
    // Four bytes are two UTF-16 units, two bytes are one.
    let bytes = client.find("z }", 0) as u64;
    assert_eq!(diagnostics[0]["range"]["start"]["character"], bytes - 3);
    client.leave();
}

#[test]
fn two_thousand_lines() {
    let mut text = String::from("kernel long(x: read_write f32[]) over x {\n  let v0 = x[invocation.x]\n");
    for k in 1..2000 {
        text += &format!("  let v{k} = v{} * 0.5 + sqrt(abs(v{})) // line {k}\n", k - 1, k / 2);
    }
    text += "  x[invocation.x] = v1999\n}\n";
    let mut client = Client::with(&text);
    assert_eq!(client.diagnostics(), Vec::<Value>::new());
    let place = client.find("v1000 =", 0);
    client.edit(place..place + 5, "v1000b");
    let diagnostics = client.diagnostics();
    assert!(
        !diagnostics.is_empty() && diagnostics.iter().all(|fault| fault["code"] == "V001"),
        "{diagnostics:?}"
    );
    client.edit(place..place + 6, "v1000");
    assert_eq!(client.diagnostics(), Vec::<Value>::new());
    let hover = client.hover(client.find("v1999", 1));
    assert!(hover.contains("let v1999: f32"), "{hover}");
    client.leave();
}
