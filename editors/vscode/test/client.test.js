// The extension, with the real client in it, speaks to the real server; only VS Code itself is a stand-in.
"use strict";

const assert = require("node:assert");
const Module = require("node:module");
const os = require("node:os");
const path = require("node:path");
const test = require("node:test");
const { vscode, shown, settings, open } = require("./vscode.js");

const original = Module._load;
Module._load = function (name, ...rest) { return name === "vscode" ? vscode : original.call(this, name, ...rest); };
const extension = require("../extension.js");

const FORGOTTEN_ZERO = `import torch

model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in data:
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
`;

async function until(seen) {
  const end = Date.now() + 30_000;
  while (!seen()) {
    assert.ok(Date.now() < end, "it did not happen");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return seen();
}

// The tests of the repository name the command that they have installed.
settings.command = JSON.parse(process.env.ZEROGRAD_COMMAND || '["zerograd", "server"]');

test("a finding of the server becomes a diagnostic, with its page and its quick fixes", async () => {
  await extension.activate({ subscriptions: [] });
  assert.deepStrictEqual(shown.errors, []);
  const document = open(FORGOTTEN_ZERO, path.join(os.tmpdir(), "zerograd-extension", "train.py"));
  const found = await until(() => shown.diagnostics.get(document.uri.toString()));
  assert.strictEqual(found.length, 1);
  const [one] = found;
  assert.strictEqual(one.source, "zerograd");
  assert.strictEqual(one.code, "ZG101");
  assert.strictEqual(one.range.start.line, 6);
  assert.strictEqual(one.relatedInformation[0].location.range.start.line, 7);
  const token = new vscode.CancellationTokenSource().token;
  const page = await shown.providers.hover.provideHover(document, one.range.start, token);
  assert.match(page.contents.value, /ZG101 stale-gradient/);
  const context = { diagnostics: [one], triggerKind: 1 };
  const offered = await shown.providers.actions.provideCodeActions(document, one.range, context, token);
  assert.deepStrictEqual(
    offered.map((action) => action.title),
    ["stale-gradient: insert optimizer.zero_grad()", "Allow stale-gradient here"],
  );
  assert.strictEqual(offered[0].isPreferred, true);
  assert.match(JSON.stringify(offered[0].edit), /optimizer\.zero_grad\(\)/);
  assert.ok(shown.commands.has("zerograd.restart"));
  await extension.deactivate();
});

test("a command that is not there is reported with the way out", async () => {
  settings.command = ["/no/such/zerograd", "server"];
  await extension.activate({ subscriptions: [] });
  await until(() => shown.errors.length);
  assert.match(shown.errors.at(-1), /pip install "zerograd\[lsp\]"/);
  await extension.deactivate();
});
