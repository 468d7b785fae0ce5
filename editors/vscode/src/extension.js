// Starts `vyre lsp` and hands it the .vyre files that are open.
const { commands, workspace, window } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function start() {
  const command = workspace.getConfiguration("vyre").get("command", "vyre");
  const server = { command, args: ["lsp"], transport: TransportKind.stdio };
  client = new LanguageClient("vyre", "vyre", server, { documentSelector: [{ language: "vyre" }] });
  try {
    await client.start();
  } catch (error) {
    const told = `The language server \`${command} lsp\` does not start (${error.message}). Highlighting works without it; the setting vyre.command says where the command is.`;
    window.showWarningMessage(told);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running?.isRunning()) {
    await running.stop();
  }
}

exports.activate = async (context) => {
  const restart = async () => {
    await stop();
    await start();
  };
  context.subscriptions.push(commands.registerCommand("vyre.restart", restart));
  context.subscriptions.push(
    workspace.onDidChangeConfiguration((event) => (event.affectsConfiguration("vyre.command") ? restart() : undefined)),
  );
  await start();
};

exports.deactivate = stop;
