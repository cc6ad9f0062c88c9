// Starts `zerograd server` and shows what it says. All that is known about gradients is in the server.
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function start() {
  const [command, ...args] = vscode.workspace.getConfiguration("zerograd").get("command");
  const server = { command, args, transport: TransportKind.stdio };
  const options = {
    documentSelector: [
      { language: "python", scheme: "file" },
      { language: "python", scheme: "untitled" },
    ],
  };
  client = new LanguageClient("zerograd", "zerograd", server, options);
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const way = `pip install "zerograd[lsp]", or set zerograd.command`;
    vscode.window.showErrorMessage(`zerograd: ${command} does not start (${error.message}): ${way}`);
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running) await running.stop();
}

async function restart() {
  await stop();
  await start();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("zerograd.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("zerograd")) return restart();
    }),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
