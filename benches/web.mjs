// `agent web` beside a Gradio chat with the same endpoint: memory, bytes of the first page, and the time until the first
// piece of a streamed answer is on the page.
//
//     .ci/browser && cargo build --release
//     python3 -m venv target/gradio && target/gradio/bin/pip install gradio openai
//     node benches/web.mjs
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const { chromium } = createRequire(resolve('target/browser/x.js'))('playwright-core');
const ROUNDS = 5;
const directory = mkdtempSync(join(tmpdir(), 'agent-bench-'));

// The model: 50 pieces, one each 20 ms.
const model = createServer(async (request, response) => {
	for await (const _ of request);
	if (request.url.endsWith('/models')) return response.end('{"data":[{"id":"bench"}]}');
	response.setHeader('Content-Type', 'text/event-stream');
	const piece = (delta, finish = null) => response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'bench', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
	piece({ role: 'assistant', content: '' });
	for (let number = 0; number < 50; number++) {
		piece({ content: `piece${number} ` });
		await new Promise(done => setTimeout(done, 20));
	}
	piece({}, 'stop');
	response.end('data: [DONE]\n\n');
});
await new Promise(done => model.listen(0, '127.0.0.1', done));
const base = `http://127.0.0.1:${model.address().port}/v1`;

const gradio = join(directory, 'app.py');
writeFileSync(gradio, `
import gradio as gr, openai
client = openai.OpenAI(base_url="${base}", api_key="x")
def chat(message, history):
    text = ""
    for chunk in client.chat.completions.create(model="bench", stream=True, messages=[{"role": "user", "content": message}]):
        text += chunk.choices[0].delta.content or ""
        yield text
gr.ChatInterface(chat).launch(server_name="127.0.0.1")
`);

const environment = { ...process.env, AGENT_HOME: directory, AGENT_BASE_URL: base, AGENT_API_KEY: 'x', AGENT_MODEL: 'bench', AGENT_SANDBOX: 'local', GRADIO_ANALYTICS_ENABLED: 'False', PYTHONUNBUFFERED: '1' };
const subjects = [
	{ name: 'agent web', command: ['target/release/agent', 'web', '-C', directory], box: '#prompt', answer: '#log' },
	{ name: 'Gradio', command: ['target/gradio/bin/python', gradio], box: 'textarea', answer: 'body' },
];

/** Resident memory of a process and its children, in MiB. */
function memory(pid) {
	const own = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024;
	const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean);
	return children.reduce((sum, child) => sum + memory(child), own);
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] });
for (const { name, command: [program, ...rest], box, answer } of subjects) {
	const server = spawn(resolve(program), rest, { env: environment });
	const url = await new Promise(found => {
		let text = '';
		const read = data => { text += data; const match = /http:\/\/127\.0\.0\.1:\d+\S*/.exec(text); if (match) found(match[0]); };
		server.stdout.on('data', read);
		server.stderr.on('data', read);
	});
	const idle = memory(server.pid), times = [];
	let bytes = 0;
	for (let round = 0; round < ROUNDS; round++) {
		const page = await (await browser.newContext()).newPage();
		const session = await page.context().newCDPSession(page);
		await session.send('Network.enable');
		if (round === 0) session.on('Network.loadingFinished', event => { bytes += event.encodedDataLength; });
		await page.goto(url, { waitUntil: 'load' });
		await page.waitForSelector(box);
		await page.waitForTimeout(3000);
		if (round === 0) session.removeAllListeners('Network.loadingFinished');
		await page.fill(box, 'hello');
		const started = Date.now();
		await page.press(box, 'Enter');
		await page.waitForFunction(selector => /piece0/.test(document.querySelector(selector).innerText), answer, { polling: 'raf' });
		times.push(Date.now() - started);
		await page.waitForFunction(selector => /piece49/.test(document.querySelector(selector).innerText), answer);
		await page.context().close();
	}
	times.sort((a, b) => a - b);
	console.log(`${name}: ${idle.toFixed(1)} MiB idle, ${memory(server.pid).toFixed(1)} MiB after ${ROUNDS} chats, ${bytes} bytes for the first page, first piece after ${times[ROUNDS >> 1]} ms (median of ${ROUNDS})`);
	server.kill('SIGTERM');
}
await browser.close();
process.exit(0);
