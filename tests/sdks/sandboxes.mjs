// What programs do with E2B's own SDK for JavaScript, against `agent serve`. Node resolves packages from the file's own directory,
// so the test runs a copy of it beside them.

import assert from 'node:assert/strict'
import { CommandExitError, FileNotFoundError, FileType, Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 600_000, metadata: { name: 'one' }, envs: { A: '1' } })
try {
  const result = await sandbox.commands.run('echo out $A; echo err >&2')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out 1\n', 'err\n', 0])
  await assert.rejects(sandbox.commands.run('exit 7'), (error) => error instanceof CommandExitError && error.exitCode === 7)
  const handle = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(handle.pid, 'in\n')
  await sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout, 'in\n')
  const info = await sandbox.files.write('a/b.txt', 'hello')
  assert.equal(info.path, '/home/user/a/b.txt')
  assert.equal(await sandbox.files.read('a/b.txt'), 'hello')
  await sandbox.files.write('bytes', new Blob([new Uint8Array([0, 255])]))
  assert.deepEqual(Array.from(await sandbox.files.read('bytes', { format: 'bytes' })), [0, 255])
  const entries = await sandbox.files.list('.')
  assert.deepEqual(entries.map((entry) => [entry.name, entry.type]), [['a', FileType.DIR], ['bytes', FileType.FILE]])
  assert.equal(await sandbox.files.exists('not/there'), false)
  await assert.rejects(sandbox.files.read('not/there'), FileNotFoundError)
  let output = ''
  const pty = await sandbox.pty.create({ cols: 100, rows: 40, onData: (data) => { output += new TextDecoder().decode(data) } })
  await sandbox.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
  await pty.wait()
  assert.match(output, /40 100/)
  const url = await sandbox.downloadUrl('a/b.txt')
  assert.equal(await (await fetch(url)).text(), 'hello')
  const pages = Sandbox.list({ query: { metadata: { name: 'one' } } })
  assert.deepEqual((await pages.nextItems()).map((item) => item.sandboxId), [sandbox.sandboxId])
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read('a/b.txt'), 'hello')
} finally {
  await sandbox.kill()
}
assert.equal(await sandbox.isRunning(), false)
console.log('passed')
