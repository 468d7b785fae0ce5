//! Latency that an editor sees: `cargo bench -p vyre-cli --bench lsp`, or `… --
//! target/release/vyre` for a prebuilt command.
//!
//! Starts `vyre lsp`, opens texts of 2,000 lines and types into the middle of each, one character
//! per change, as an editor does. Prints the median and the 90th percentile of the time from a
//! change to its diagnostics, and from a change to diagnostics, colours and inlay hints.

use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const LINES: usize = 2000;
const CHANGES: usize = 100;
const URI: &str = "file:///bench.vyre";

fn main() -> Result<(), Box<dyn Error>> {
    for (name, text) in [("one long kernel", long()), ("functions with loops", functions())] {
        let mut client = Client::new()?;
        client.open(&text)?;
        let place = |column: usize| json!({ "line": LINES / 2, "character": column });
        client.change(2, json!({ "range": { "start": place(0), "end": place(0) }, "text": "// \n" }))?;
        let (mut diagnosed, mut coloured) = (Vec::new(), Vec::new());
        for version in 3..CHANGES + 3 {
            let range = json!({ "start": place(version), "end": place(version) });
            let began = Instant::now();
            client.change(version, json!({ "range": range, "text": "a" }))?;
            diagnosed.push(began.elapsed());
            client.ask("semanticTokens/full", json!({}))?;
            let end = json!({ "line": LINES, "character": 0 });
            client.ask(
                "inlayHint",
                json!({ "range": { "start": { "line": 0, "character": 0 }, "end": end } }),
            )?;
            coloured.push(began.elapsed());
        }
        let (lines, diagnosed, coloured) = (text.lines().count(), shown(diagnosed), shown(coloured));
        println!("{name}, {lines} lines: diagnostics {diagnosed}; with colours and hints {coloured}");
        client.leave()?;
    }
    Ok(())
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |tenths: usize| times[times.len() * tenths / 10].as_secs_f64() * 1e3;
    format!("{:.1} ms (p90 {:.1})", at(5), at(9))
}

/// A kernel in which every line uses two earlier ones.
fn long() -> String {
    let mut text = String::from("kernel long(x: read_write f32[]) over x {\n  let v0 = x[invocation.x]\n");
    for k in 1..LINES - 3 {
        text += &format!("  let v{k} = v{} * 0.5 + sqrt(abs(v{}))\n", k - 1, k / 2);
    }
    text + &format!("  x[invocation.x] = v{}\n}}\n", LINES - 4)
}

/// Functions with loops and conditions.
fn functions() -> String {
    let mut text = String::new();
    for k in 0..LINES / 11 {
        text += &format!("fn smooth{k}(x: f32, n: u32) -> f32 {{\n  let sum = 0.0\n");
        text += &format!("  for i in 0..min(n, {}) {{\n    let t = f32(i) * x\n", k % 7 + 1);
        text += "    if t > 1.0 {\n      sum += sin(t)\n    } else {\n      sum -= t * t\n    }\n  }\n";
        text += "  return sum\n}\n";
    }
    text += "kernel all(x: read f32[], y: output f32[] len_of x) over x {\n  let sum = 0.0\n";
    for k in 0..20 {
        text += &format!("  sum += smooth{k}(x[invocation.x], {k})\n");
    }
    text + "  y[invocation.x] = sum\n}\n"
}

/// A server and its pipes.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    fn new() -> Result<Client, Box<dyn Error>> {
        let named = std::env::args().skip(1).find(|word| !word.starts_with('-'));
        let mut command = Command::new(named.as_deref().unwrap_or(env!("CARGO_BIN_EXE_vyre")));
        let mut child = command.arg("lsp").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("no pipes")?;
        let mut client = Client { child, input, output: BufReader::new(output), next: 0 };
        client.request("initialize", json!({ "capabilities": {} }))?;
        client.tell("initialized", json!({}))?;
        Ok(client)
    }

    /// Opens the text and waits for its diagnostics.
    fn open(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        let document = json!({ "uri": URI, "languageId": "vyre", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }))?;
        self.diagnostics(1)
    }

    /// Makes a change and waits for its diagnostics.
    fn change(&mut self, version: usize, change: Value) -> Result<(), Box<dyn Error>> {
        let document = json!({ "uri": URI, "version": version });
        self.tell("textDocument/didChange", json!({ "textDocument": document, "contentChanges": [change] }))?;
        self.diagnostics(version)
    }

    /// Waits for the diagnostics of a version that has no faults.
    fn diagnostics(&mut self, version: usize) -> Result<(), Box<dyn Error>> {
        loop {
            let message = self.read()?;
            if message["params"]["version"] != version {
                continue;
            }
            let mut found = message["params"]["diagnostics"].as_array().into_iter().flatten();
            return match found.find(|diagnostic| diagnostic["severity"] == 1) {
                None => Ok(()),
                Some(fault) => Err(format!("the text has a fault: {fault}").into()),
            };
        }
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Result<(), Box<dyn Error>> {
        params["textDocument"] = json!({ "uri": URI });
        self.request(&format!("textDocument/{method}"), params)
    }

    fn request(&mut self, method: &str, params: Value) -> Result<(), Box<dyn Error>> {
        self.next += 1;
        self.send(json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }))?;
        loop {
            let message = self.read()?;
            if message["id"] == self.next {
                return if message["error"].is_null() { Ok(()) } else { Err(message.to_string().into()) };
            }
        }
    }

    fn tell(&mut self, method: &str, params: Value) -> Result<(), Box<dyn Error>> {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    fn send(&mut self, message: Value) -> Result<(), Box<dyn Error>> {
        let body = message.to_string();
        Ok(write!(self.input, "Content-Length: {}\r\n\r\n{body}", body.len())?)
    }

    fn read(&mut self) -> Result<Value, Box<dyn Error>> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err("the server ended".into());
            }
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse()?,
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }

    fn leave(mut self) -> Result<(), Box<dyn Error>> {
        self.request("shutdown", Value::Null)?;
        self.tell("exit", Value::Null)?;
        drop(self.input);
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }
}
