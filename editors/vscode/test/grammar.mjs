// Compares the grammar's scopes with the language server's tokens, on every .vyre file of the
// repository.
//
// `VYRE` names the command; without it only the grammar's own rules are checked: every character of
// a line is in a scope, and nothing is left open at the end of a file.
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const require = createRequire(import.meta.url);
const textmate = require("vscode-textmate");
const oniguruma = require("vscode-oniguruma");

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../../..");

/** Scopes that the grammar may give to what the server calls so. */
const EXPECTED = {
  keyword: /^(keyword\.(declaration|control|other)|constant\.language)/,
  type: /^(storage\.type|entity\.name\.function)/,
  number: /^constant\.numeric/,
  string: /^(string|constant)/,
  operator: /^(keyword\.operator|constant\.numeric)/,
  function: /^(entity\.name\.function|string|variable\.other\.quoted)/,
  macro: /^entity\.name\.function/,
  // Words that are keywords or types in other places can be names.
  property: /^(variable|entity\.name\.function|keyword\.other|storage\.type)/,
  parameter: /^(variable|keyword\.other|storage\.type)/,
  variable: /^(variable|keyword\.other|storage\.type)/,
  enumMember: /^variable/,
};

function files(folder) {
  const skipped = new Set(["target", "node_modules", ".git"]);
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return skipped.has(entry.name) ? [] : files(path);
    return entry.name.endsWith(".vyre") ? [path] : [];
  });
}

async function loadGrammar() {
  const wasm = readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => {
      const path = join(here, "../syntaxes/vyre.tmLanguage.json");
      return textmate.parseRawGrammar(readFileSync(path, "utf8"), path);
    },
  });
  return registry.loadGrammar("source.vyre");
}

/** Per line, the innermost scope of each character. */
function scopes(grammar, text) {
  let stack = textmate.INITIAL;
  const lines = text.split("\n").map((line) => {
    const { tokens, ruleStack } = grammar.tokenizeLine(line, stack);
    stack = ruleStack;
    const found = [];
    for (const token of tokens) {
      for (let at = token.startIndex; at < token.endIndex; at++) found[at] = token.scopes.at(-1);
    }
    return found;
  });
  return { lines, depth: stack.depth };
}

/** Speaks with the language server. */
class Server {
  constructor(command) {
    this.child = spawn(command, ["lsp"], { stdio: ["pipe", "pipe", "inherit"] });
    this.waiting = new Map();
    this.next = 0;
    let heard = Buffer.alloc(0);
    this.child.stdout.on("data", (data) => {
      heard = Buffer.concat([heard, data]);
      for (;;) {
        const head = heard.indexOf("\r\n\r\n");
        if (head < 0) return;
        const length = Number(/Content-Length: (\d+)/.exec(heard.toString("latin1", 0, head))[1]);
        if (heard.length < head + 4 + length) return;
        const message = JSON.parse(heard.toString("utf8", head + 4, head + 4 + length));
        heard = heard.subarray(head + 4 + length);
        if (message.id !== undefined) this.waiting.get(message.id)?.(message);
      }
    });
  }
  send(message) {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    this.child.stdin.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  }
  ask(method, params) {
    const id = ++this.next;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, (message) => (message.error ? reject(new Error(message.error.message)) : resolve(message.result)));
      this.send({ id, method, params });
    });
  }
}

function compare(path, text, lines, tokens, types) {
  const problems = [];
  let [line, character] = [0, 0];
  for (let k = 0; k < tokens.length; k += 5) {
    const [down, right, length, type] = tokens.slice(k, k + 4);
    character = down > 0 ? right : character + right;
    line += down;
    for (let at = character; at < character + length; at++) {
      const scope = lines[line][at] ?? "nothing";
      if (!EXPECTED[types[type]].test(scope)) {
        const word = text.split("\n")[line].slice(character, character + length);
        problems.push(`${path}:${line + 1}:${character + 1}: \`${word}\` is ${types[type]}, and the grammar says ${scope}`);
        break;
      }
    }
  }
  return problems;
}

const grammar = await loadGrammar();
const server = process.env.VYRE ? new Server(process.env.VYRE) : undefined;
const legend = server
  ? (await server.ask("initialize", { capabilities: {} })).capabilities.semanticTokensProvider.legend.tokenTypes
  : [];
server?.send({ method: "initialized", params: {} });
const problems = [];
const all = files(root);
for (const [k, path] of all.entries()) {
  const text = readFileSync(path, "utf8");
  const { lines, depth } = scopes(grammar, text);
  if (depth > 1) problems.push(`${path}: something is open at the end`);
  text.split("\n").forEach((line, number) => {
    for (let at = 0; at < line.length; at++) {
      if (/\S/.test(line[at]) && (lines[number][at] ?? "source.vyre") === "source.vyre") {
        problems.push(`${path}:${number + 1}:${at + 1}: \`${line[at]}\` has no scope`);
        break;
      }
    }
  });
  if (server) {
    const uri = `file:///${k}.vyre`;
    server.send({ method: "textDocument/didOpen", params: { textDocument: { uri, languageId: "vyre", version: 1, text } } });
    const { data } = await server.ask("textDocument/semanticTokens/full", { textDocument: { uri } });
    problems.push(...compare(path, text, lines, data, legend));
    server.send({ method: "textDocument/didClose", params: { textDocument: { uri } } });
  }
}
if (server) {
  await server.ask("shutdown", null);
  server.send({ method: "exit" });
}
if (problems.length > 0) {
  console.error(problems.slice(0, 40).join("\n"));
  console.error(`${problems.length} problems`);
  process.exitCode = 1;
} else {
  console.log(`${all.length} files${server ? ", each as the language server says" : ""}: ok`);
}
