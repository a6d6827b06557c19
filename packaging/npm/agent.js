#!/usr/bin/env node
// Starts the program of this machine's architecture with the same arguments and streams, and ends as it ends.
"use strict";
const { spawn } = require("node:child_process");

const name = `agentsandbox-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/agent`);
} catch {
  console.error(
    `agent: the package ${name} is not installed. There are programs for Linux on x64 and arm64; where npm leaves ` +
      "optional dependencies out, install it by name.",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// The terminal sends Ctrl-C to both; what is sent to this process alone is passed on.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`agent: ${program} could not be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(signal ? 128 + require("node:os").constants.signals[signal] : code));
