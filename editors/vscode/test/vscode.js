// A stand-in for the module that VS Code gives to extensions: as much of it as the client uses. Documents that a test
// opens and diagnostics that the client sets are real; what the client only registers is taken and forgotten.
"use strict";

const { EventEmitter: NodeEmitter } = require("node:events");
const { pathToFileURL, fileURLToPath } = require("node:url");

class Disposable {
  constructor(dispose) { this.dispose = dispose || (() => {}); }
  static from(...all) { return new Disposable(() => all.forEach((one) => one.dispose())); }
}

class EventEmitter {
  constructor() {
    this.node = new NodeEmitter();
    this.event = (listener, self) => {
      const bound = self ? listener.bind(self) : listener;
      this.node.on("fire", bound);
      return new Disposable(() => this.node.off("fire", bound));
    };
  }
  fire(value) { this.node.emit("fire", value); }
  dispose() { this.node.removeAllListeners(); }
}

class Position { constructor(line, character) { Object.assign(this, { line, character }); } }
class Range {
  constructor(start, end, ...rest) {
    if (rest.length) [start, end] = [new Position(start, end), new Position(...rest)];
    Object.assign(this, { start, end });
  }
}
class Location { constructor(uri, range) { Object.assign(this, { uri, range }); } }
class Uri {
  constructor(text) { this.text = text; this.scheme = text.split(":")[0]; }
  get fsPath() { return fileURLToPath(this.text); }
  get path() { return new URL(this.text).pathname; }
  toString() { return this.text; }
  static parse(text) { return new Uri(text); }
  static file(path) { return new Uri(pathToFileURL(path).href); }
}
class Diagnostic { constructor(range, message, severity) { Object.assign(this, { range, message, severity }); } }
class DiagnosticRelatedInformation { constructor(location, message) { Object.assign(this, { location, message }); } }
class CancellationTokenSource { constructor() { this.token = { isCancellationRequested: false, onCancellationRequested: event() }; } cancel() {} dispose() {} }
class MarkdownString { constructor(value = "") { this.value = value; } appendMarkdown(text) { this.value += text; return this; } }
class Hover { constructor(contents, range) { Object.assign(this, { contents, range }); } }
class CodeAction { constructor(title, kind) { Object.assign(this, { title, kind }); } }
class CodeActionKind {
  constructor(value) { this.value = value; }
  append(part) { return new CodeActionKind(this.value ? `${this.value}.${part}` : part); }
  static Empty = new CodeActionKind("");
  static QuickFix = new CodeActionKind("quickfix");
  static Refactor = new CodeActionKind("refactor");
  static Source = new CodeActionKind("source");
}
class WorkspaceEdit {
  constructor() { this.edits = []; }
  set(uri, edits) { this.edits.push([uri.toString(), edits]); }
  replace(uri, range, newText) { this.edits.push([uri.toString(), range, newText]); }
  insert(uri, position, newText) { this.edits.push([uri.toString(), position, newText]); }
}
class TextEdit { constructor(range, newText) { Object.assign(this, { range, newText }); } }
class Anything { constructor(...given) { this.given = given; } }

function event() { return () => new Disposable(); }

const opened = new EventEmitter();
const changed = new EventEmitter();
const configured = new EventEmitter();
const shown = { diagnostics: new Map(), errors: [], news: new EventEmitter(), commands: new Map(), providers: {} };
const settings = { command: ["zerograd", "server"] };

// An enumeration counts its names in the order in which they are asked for; members of others are events.
const enumeration = (names) => Object.fromEntries(names.flatMap((name, at) => [[name, at], [at, name]]));

const known = {
  Disposable, EventEmitter, Position, Range, Location, Uri, Diagnostic, DiagnosticRelatedInformation,
  CancellationTokenSource, MarkdownString, Hover, CodeAction, CodeActionKind, WorkspaceEdit, TextEdit,
  version: "1.95.0",
  DiagnosticSeverity: enumeration(["Error", "Warning", "Information", "Hint"]),
  env: { appName: "test", language: "en", openExternal: async () => true },
  l10n: { t: (text) => text },
  commands: { registerCommand: (name, run) => { shown.commands.set(name, run); return new Disposable(); } },
  window: {
    createOutputChannel: () => new Proxy({}, { get: () => () => {} }),
    showErrorMessage: async (text) => { shown.errors.push(text); shown.news.fire(); },
    showInformationMessage: async () => {}, showWarningMessage: async () => {}, showTextDocument: async () => {},
    visibleTextEditors: [], activeTextEditor: undefined, tabGroups: { all: [], onDidChangeTabs: event(), onDidChangeTabGroups: event() },
  },
  workspace: {
    getConfiguration: () => ({ get: (name, fallback) => (name in settings ? settings[name] : fallback) }),
    textDocuments: [], notebookDocuments: [], workspaceFolders: undefined, workspaceFile: undefined,
    onDidOpenTextDocument: opened.event, onDidChangeTextDocument: changed.event, onDidChangeConfiguration: configured.event,
    createFileSystemWatcher: () => ({ onDidCreate: event(), onDidChange: event(), onDidDelete: event(), dispose() {} }),
    getWorkspaceFolder: () => undefined, fs: {}, applyEdit: async () => true,
  },
  languages: {
    createDiagnosticCollection: () => ({
      set(uri, found) { shown.diagnostics.set(uri.toString(), found); shown.news.fire(); },
      delete(uri) { shown.diagnostics.delete(uri.toString()); }, clear() { shown.diagnostics.clear(); }, dispose() {},
    }),
    match: (selector, document) => [selector].flat().some((one) => one.language === document.languageId) ? 10 : 0,
    registerHoverProvider: (_, provider) => { shown.providers.hover = provider; return new Disposable(); },
    registerCodeActionsProvider: (_, provider) => { shown.providers.actions = provider; return new Disposable(); },
  },
};

function open(text, path, version = 1) {
  const document = {
    uri: Uri.file(path), languageId: "python", version, isClosed: false, fileName: path, getText: () => text,
    lineCount: text.split("\n").length,
  };
  known.workspace.textDocuments.push(document);
  opened.fire(document);
  return document;
}

// What is not known here is a class if its name is capitalised, an event if it begins with `on`, else a function.
const completed = (members) => new Proxy(members, {
  get: (held, name) => {
    if (name in held || typeof name === "symbol") return held[name];
    if (/^on[A-Z]/.test(name)) return event();
    if (/^[A-Z]/.test(name)) return new Proxy(class extends Anything {}, { get: (kind, inner) => (inner in kind ? kind[inner] : inner === "prototype" ? kind.prototype : 0) });
    return undefined;
  },
  has: () => true,
});
for (const room of ["window", "workspace", "languages"]) known[room] = completed(known[room]);

module.exports = { vscode: completed(known), shown, settings, open };
