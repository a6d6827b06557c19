// The kept JavaScript interpreter, on Node. It is read from descriptor 3 by the command that starts it and is called with
// `load`, the `import()` of that command.
//
// Descriptor 4 first gets the line "ready". A request on descriptor 3 is a line "NONCE FLAGS DISPLAY CODE" (two lengths),
// then the display directory and the code. The answer goes to descriptor 4: a line "NONCE STATUS EXIT VALUE ERROR" (two
// lengths), then the two texts. Standard error is standard output, and a mark with the nonce stands behind what the program
// printed when the cell has ended.
(function (load) {
  'use strict';
  const fs = require('node:fs');
  const inspector = require('node:inspector');
  const net = require('node:net');
  const path = require('node:path');
  const util = require('node:util');
  const vm = require('node:vm');
  const { createRequire, isBuiltin } = require('node:module');
  const { pathToFileURL } = require('node:url');

  const MAX_TEXT = 64 * 1024;
  const CHANNEL = 4;
  const IS_NOTEBOOK = 2;
  // What a pipe takes whole.
  const PIECE = 2048;
  const RUN = Symbol.for('agent.run');
  const IMPORT = Symbol.for('agent.import');
  const KEEP = Symbol.for('agent.keep');
  const exitProcess = process.reallyExit.bind(process);
  const stdout = process.stdout;
  const writeOut = stdout.write.bind(stdout);
  const { env } = process;
  const session = new inspector.Session();
  session.connect();

  class Exit {
    constructor(code) {
      this.code = code;
    }
  }
  let waiting = null;
  process.exit = (code) => {
    const exit = new Exit(Number(code ?? process.exitCode ?? 0) & 0xff);
    // In a callback there is no cell to end by throwing.
    if (waiting) waiting.exit(exit);
    throw exit;
  };

  const base = path.join(process.cwd(), 'cell');
  globalThis.require = createRequire(base);
  globalThis.module = { exports: {} };
  globalThis.exports = globalThis.module.exports;
  globalThis.__dirname = process.cwd();
  globalThis.__filename = base;

  function hidden(symbol, value) {
    Object.defineProperty(globalThis, symbol, { value, configurable: true, writable: true, enumerable: false });
  }

  // A module of the workspace, of Node, or of the sandbox's own libraries.
  hidden(IMPORT, async (name) => {
    name = String(name);
    if (/^\.{0,2}\//.test(name)) return load(pathToFileURL(path.resolve(process.cwd(), name)).href);
    if (isBuiltin(name) || /^[a-z]+:/.test(name)) return load(name);
    try {
      return await load(name);
    } catch (error) {
      const loader = path.join(env.AGENT_NODE_LIBRARIES || '', 'load.mjs');
      if (error?.code !== 'ERR_MODULE_NOT_FOUND' || !fs.existsSync(loader)) throw error;
      return (await load(pathToFileURL(loader).href)).default(name);
    }
  });

  // Where code stands, and not strings, templates or comments.
  function* pieces(code) {
    const token = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:\\[\s\S]|[^"\\\n])*"|'(?:\\[\s\S]|[^'\\\n])*'|`(?:\\[\s\S]|[^`\\])*`/g;
    let from = 0;
    for (const match of code.matchAll(token)) {
      yield [code.slice(from, match.index), true];
      yield [match[0], false];
      from = match.index + match[0].length;
    }
    yield [code.slice(from), true];
  }

  // `import` as a statement and as a function, in terms of a function that scripts have.
  function withoutImports(code) {
    if (!/\bimport\b/.test(code)) return code;
    const call = 'globalThis[Symbol.for("agent.import")]';
    const statement = /^([ \t]*)import\s+(?:([\w$*{][^'";]*?)\s+from\s+)?(["'])([^"'\n]+)\3(?:\s+(?:with|assert)\s*\{[^}]*\})?[ \t]*;?/gm;
    const rewritten = code.replace(statement, (_, indent, names, _quote, from) => {
      const loaded = `await ${call}(${JSON.stringify(from)})`;
      if (names === undefined) return `${indent}${loaded};`;
      const parts = names.trim().match(/^(?:([\w$]+)\s*,?\s*)?(?:\*\s+as\s+([\w$]+)|\{([\s\S]*)\})?$/);
      if (!parts) return _;
      const [, standard, all, some] = parts;
      let bound = (some ?? '').split(',').map((part) => part.trim().replace(/\s+as\s+/, ': ')).filter(Boolean);
      if (standard) bound = [`default: ${standard}`, ...bound];
      const lines = names.split('\n').length - 1;
      const declared = all ? `const ${all} = ${loaded};` : '';
      const others = bound.length ? `const { ${bound.join(', ')} } = ${all ? all : loaded};` : '';
      return `${indent}${declared}${others}${'\n'.repeat(lines)}`;
    });
    let result = '';
    for (const [text, isCode] of pieces(rewritten)) {
      result += isCode ? text.replace(/(?<![.\w$])import(?=\s*\()/g, call) : text;
    }
    return result;
  }

  // Runs a function so that SIGINT ends it even in a busy loop. Whether it came to its end.
  const script = new vm.Script('globalThis[Symbol.for("agent.run")]()', { filename: 'agent' });
  function interruptibly(action) {
    hidden(RUN, action);
    try {
      script.runInThisContext({ breakOnSigint: true });
      return true;
    } catch (error) {
      if (error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') return false;
      throw error;
    }
  }

  // What the inspector holds, as a value of this program.
  function valueOf(object) {
    let kept;
    hidden(KEEP, (value) => {
      kept = value;
    });
    if (object.objectId === undefined) {
      if (object.unserializableValue !== undefined) {
        const text = object.unserializableValue;
        return text.endsWith('n') ? BigInt(text.slice(0, -1)) : text === '-0' ? -0 : Number(text);
      }
      return object.value;
    }
    session.post('Runtime.callFunctionOn', {
      objectId: object.objectId,
      functionDeclaration: 'function (value) { globalThis[Symbol.for("agent.keep")](value) }',
      arguments: [{ objectId: object.objectId }],
    });
    return kept;
  }

  function shortened(text) {
    text = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT / 2)}\n[…]\n${text.slice(-MAX_TEXT / 2)}` : text;
    return Buffer.from(text);
  }

  function inspected(value) {
    let text = '';
    const done = interruptibly(() => {
      text = util.inspect(value, { depth: 4, maxArrayLength: 100, maxStringLength: 20000, breakLength: 100 });
    });
    if (!done) throw new Error('interrupted while the value was shown');
    return text;
  }

  function isOwnFrame(line) {
    return !/\(?(node:|agent-driver|agent:)|[\\/]node_modules[\\/]/.test(line);
  }

  function described(details, number) {
    let error;
    try {
      error = valueOf(details.exception ?? { value: details.text });
    } catch {
      return `${details.text}\n`;
    }
    if (!(util.types.isNativeError(error) || error instanceof Error)) {
      return `Uncaught ${inspected(error)}\n`;
    }
    const stack = String(error.stack ?? error);
    const head = [];
    const frames = [];
    for (const line of stack.split('\n')) {
      if (!/^\s+at /.test(line)) head.push(line);
      else if (/Session\.post|agent-driver/.test(line)) break;
      else if (isOwnFrame(line)) frames.push(line);
    }
    if (!frames.length && details.lineNumber !== undefined && error instanceof SyntaxError) {
      frames.push(`    at cell ${number}:${details.lineNumber + 1}:${(details.columnNumber ?? 0) + 1}`);
    }
    const text = [...head, ...frames.slice(0, 30)].join('\n');
    const cause = error.cause === undefined ? '' : `\n[cause: ${inspected(error.cause)}]`;
    return `${text}${cause}\n`;
  }

  async function run(number, code) {
    const expression = `${withoutImports(code)}\n//# sourceURL=cell-${number}.js`;
    const options = { expression, replMode: true, awaitPromise: true, objectGroup: 'cell', silent: true };
    const interrupted = ['interrupted', 130, '', 'Interrupted\n'];
    const ended = new Promise((resolve) => {
      waiting = { interrupt: () => resolve(interrupted), exit: (exit) => resolve(['exit', exit.code, '', '']) };
      const evaluate = () => session.post('Runtime.evaluate', options, (error, answer) => {
        resolve(error ? ['error', 1, '', `${error.message}\n`] : answer);
      });
      if (!interruptibly(evaluate)) resolve(interrupted);
    });
    const answer = await ended;
    waiting = null;
    if (Array.isArray(answer)) return answer;
    if (answer.exceptionDetails) {
      const thrown = answer.exceptionDetails.exception;
      const value = thrown?.className === 'Exit' ? valueOf(thrown) : undefined;
      if (value instanceof Exit) return ['exit', value.code, '', ''];
      return ['error', 1, '', described(answer.exceptionDetails, number)];
    }
    const value = valueOf(answer.result);
    return ['ok', 0, value === undefined ? '' : inspected(value), ''];
  }

  function writeAll(descriptor, buffer) {
    const start = Date.now();
    for (let at = 0; at < buffer.length; ) {
      try {
        at += fs.writeSync(descriptor, buffer, at);
      } catch (error) {
        if (error.code === 'EAGAIN' && Date.now() - start < 60000) continue;
        // The program closed it: nobody can be answered any more.
        exitProcess(70);
      }
    }
  }

  function isOpen(descriptor) {
    try {
      fs.fstatSync(descriptor);
      return true;
    } catch {
      return false;
    }
  }

  function mark(nonce) {
    const text = `\x1e${nonce}\x1e`;
    return new Promise((resolve) => {
      // Node cannot open it again.
      if (!isOpen(1) || stdout.destroyed || stdout.writableEnded) exitProcess(70);
      writeOut(text, () => resolve());
    });
  }

  // Standard error of a notebook's cell: each piece is marked in the output, so that both keep their order.
  const writeError = process.stderr.write.bind(process.stderr);
  let marked = null;
  process.stderr.write = (data, encoding, done) => {
    if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
    if (marked === null) return writeError(data, encoding, done);
    const bytes = Buffer.from(data, encoding);
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.subarray(at, at + PIECE);
      writeOut(Buffer.concat([Buffer.from(`\x1e${marked}\x1f${piece.length}\n`), piece]));
    }
    if (done) process.nextTick(done);
    return true;
  };

  let number = 0;
  async function serve([nonce, flags, display, code]) {
    number += 1;
    marked = flags & IS_NOTEBOOK ? nonce : null;
    env.AGENT_DISPLAY_DIR = display;
    let result;
    try {
      result = await run(number, code);
    } catch (error) {
      result = ['error', 1, '', `${util.inspect(error)}\n`];
    }
    waiting = null;
    marked = null;
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    const [status, exit] = result;
    const [value, error] = [shortened(result[2]), shortened(result[3])];
    await mark(nonce);
    writeAll(CHANNEL, Buffer.concat([
      Buffer.from(`${nonce} ${status} ${exit} ${value.length} ${error.length}\n`), value, error,
    ]));
  }

  process.on('SIGINT', () => waiting?.interrupt());
  // Of what no cell waits for any more.
  function report(error) {
    if (error instanceof Exit || !isOpen(2)) return;
    const lines = util.inspect(error).split('\n');
    const end = lines.findIndex((line) => /Session\.post|agent-driver/.test(line));
    process.stderr.write(`Uncaught ${(end < 0 ? lines : lines.slice(0, end)).join('\n')}\n`);
  }
  process.on('uncaughtException', report);
  process.on('unhandledRejection', report);

  const requests = new net.Socket({ fd: 3, readable: true, writable: false });
  let received = Buffer.alloc(0);
  let busy = false;
  async function next() {
    if (busy) return;
    const end = received.indexOf(10);
    if (end < 0) return;
    const [nonce, flags, display, code] = received.subarray(0, end).toString().split(' ');
    const lengths = [Number(display), Number(code)];
    const whole = end + 1 + lengths[0] + lengths[1];
    if (received.length < whole) return;
    const texts = [received.subarray(end + 1, end + 1 + lengths[0]), received.subarray(end + 1 + lengths[0], whole)];
    received = received.subarray(whole);
    busy = true;
    await serve([nonce, flags, ...texts.map(String)]);
    busy = false;
    next();
  }
  requests.on('data', (data) => {
    received = Buffer.concat([received, data]);
    next();
  });
  requests.on('end', () => exitProcess(0));
  requests.on('error', () => exitProcess(70));
  writeAll(CHANNEL, Buffer.from('\x1eready\n'));
});
