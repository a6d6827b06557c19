// `agent web`: memory and processor time without work, with 100 open streams of a busy session, and for each further session; a flood in
// a terminal of the page: its time beside the command's own, and the longest frame. Then beside a Gradio chat with four tools and
// the same endpoint: memory, bytes of the first page, and the time until the first piece of a streamed answer is on the page.
// A part alone: PARTS=streams,sessions,flood,beside.
//
//     .ci/browser && cargo build --profile dist
//     python3 -m venv target/gradio && target/gradio/bin/pip install gradio openai
//     node benches/web.mjs
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { Agent, createServer, get } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const { chromium } = createRequire(resolve('target/browser/x.js'))('playwright-core');
const ROUNDS = 5, STREAMS = 100, IDLE_SECONDS = 20, SESSIONS = 8, MAX_SESSION_MIB = 2, MAX_FLOOD = 1.5, MAX_FRAME_MS = 100;
const runs = part => !process.env.PARTS || process.env.PARTS.split(',').includes(part);
const AGENT = process.env.AGENT_BINARY ?? 'target/dist/agent';
const directory = mkdtempSync(join(tmpdir(), 'agent-bench-'));

// The model: 50 pieces, one each 20 ms.
const sent = [];
const model = createServer(async (request, response) => {
	for await (const _ of request);
	if (request.url.endsWith('/models')) return response.end('{"data":[{"id":"bench"}]}');
	response.setHeader('Content-Type', 'text/event-stream');
	const piece = (delta, finish = null) => response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'bench', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
	piece({ role: 'assistant', content: '' });
	for (let number = 0; number < 50; number++) {
		sent[number] = performance.now();
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
import json, pathlib, subprocess
import gradio as gr, openai
client = openai.OpenAI(base_url="${base}", api_key="x")
def run_commands(command): return subprocess.run(command, shell=True, capture_output=True, text=True).stdout
def read_file(path): return pathlib.Path(path).read_text()
def write_file(path, content): return str(pathlib.Path(path).write_text(content))
def list_files(path): return str(sorted(map(str, pathlib.Path(path).iterdir())))
functions = {one.__name__: one for one in (run_commands, read_file, write_file, list_files)}
def describe(one):
    names = one.__code__.co_varnames[:one.__code__.co_argcount]
    parameters = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}
    return {"type": "function", "function": {"name": one.__name__, "parameters": parameters}}
tools = [describe(one) for one in functions.values()]
def chat(message, history):
    messages = [{"role": one["role"], "content": one["content"]} for one in history] + [{"role": "user", "content": message}]
    while True:
        text, calls = "", {}
        for chunk in client.chat.completions.create(model="bench", stream=True, messages=messages, tools=tools):
            delta = chunk.choices[0].delta
            for call in delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": ""}})
                known["function"]["arguments"] += call.function.arguments or ""
            text += delta.content or ""
            yield text
        if not calls:
            return
        messages.append({"role": "assistant", "content": text, "tool_calls": list(calls.values())})
        for call in calls.values():
            result = functions[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
with gr.Blocks() as page:
    gr.ChatInterface(chat)
    command, output = gr.Textbox(label="Command"), gr.Textbox(label="Output")
    gr.Button("Run").click(run_commands, command, output)
page.launch(server_name="127.0.0.1")
`);

const environment = { ...process.env, AGENT_HOME: directory, AGENT_BASE_URL: base, AGENT_API_KEY: 'x', AGENT_MODEL: 'bench', AGENT_SANDBOX: 'local', GRADIO_ANALYTICS_ENABLED: 'False', PYTHONUNBUFFERED: '1' };
const subjects = [
	{ name: 'agent web', command: [AGENT, 'web', '-C', directory], box: '#prompt', answer: '#log' },
	{ name: 'Gradio', command: ['target/gradio/bin/python', gradio], box: 'textarea', answer: 'body' },
];

/** Resident memory of a process, in MiB. */
function resident(pid) {
	return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1024;
}

/** The same with its children, which are its sandboxes. */
function memory(pid) {
	const own = resident(pid);
	// Each thread has children of its own.
	const children = readdirSync(`/proc/${pid}/task`).flatMap(thread => readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').trim().split(' ').filter(Boolean));
	return children.reduce((sum, child) => sum + memory(child), own);
}

/** Seconds of processor time that a process has taken. */
function cpu(pid) {
	const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
	return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Starts a server; the address that it prints. */
async function start([program, ...rest]) {
	const server = spawn(resolve(program), rest, { env: environment });
	const url = await new Promise(found => {
		let text = '';
		const read = data => { text += data; const match = /http:\/\/127\.0\.0\.1:\d+\S*/.exec(text); if (match) found(match[0]); };
		server.stdout.on('data', read);
		server.stderr.on('data', read);
	});
	return { server, url };
}

const median = numbers => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
const judged = (isHeld, bound) => `${isHeld ? 'holds' : 'MISSES'} ${bound}`;

// Many tabs: when each piece of the answer was sent by the model, and when it was at each stream.
if (runs('streams')) {
	const { server, url } = await start([AGENT, 'web', '-C', directory]);
	const [address, token] = url.split('/#t=');
	await new Promise(done => setTimeout(done, 3000));
	const before = cpu(server.pid);
	await new Promise(done => setTimeout(done, IDLE_SECONDS * 1000));
	console.log(`idle: ${memory(server.pid).toFixed(1)} MiB, ${(cpu(server.pid) - before).toFixed(2)} s of processor time in ${IDLE_SECONDS} s`);
	const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
	const post = (path, body) => fetch(address + path, { method: 'POST', headers, body: JSON.stringify(body) });
	const { session } = await (await post('/api/sessions', {})).json(), at = `/api/session/${session}`;
	const agent = new Agent({ keepAlive: true, maxSockets: Infinity }), late = [], ends = [];
	for (let number = 0; number < STREAMS; number++) {
		await new Promise((open, failed) => get(`${address}${at}/events`, { headers, agent }, response => {
			const seen = new Set();
			let end;
			ends.push(new Promise(done => { end = done; }));
			response.on('data', data => {
				const now = performance.now();
				for (const [, piece] of String(data).matchAll(/piece(\d+)/g)) {
					if (!seen.has(piece)) { seen.add(piece); late.push(now - sent[Number(piece)]); }
				}
				if (seen.size === 50) end();
			});
			open();
		}).on('error', failed));
	}
	await post(`${at}/prompt`, { text: 'hello' });
	await Promise.all(ends);
	late.sort((a, b) => a - b);
	console.log(`${STREAMS} streams: ${memory(server.pid).toFixed(1)} MiB, ${late.length} deliveries, median ${late[late.length >> 1].toFixed(1)} ms, 99 % ${late[Math.floor(late.length * 0.99)].toFixed(1)} ms, latest ${late.at(-1).toFixed(1)} ms after the model sent it`);
	server.kill('SIGTERM');
	agent.destroy();
}

// Sessions: the memory of the server itself, each with a conversation, a command and an open stream. Their sandboxes are other processes.
if (runs('sessions')) {
	const { server, url } = await start([AGENT, 'web', '-C', directory]);
	const [address, token] = url.split('/#t='), headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
	const post = (path, body) => fetch(address + path, { method: 'POST', headers, body: JSON.stringify(body) });
	/** A session that has done some work; when it is idle again. */
	const work = async () => {
		const { session } = await (await post('/api/sessions', {})).json(), at = `/api/session/${session}`;
		const stream = (await fetch(`${address}${at}/events`, { headers })).body.getReader(), decoder = new TextDecoder();
		const until = async pattern => { for (let text = ''; !pattern.test(text);) text += decoder.decode((await stream.read()).value, { stream: true }); };
		await post(`${at}/prompt`, { text: 'hello' });
		await until(/assistant_message/);
		await post(`${at}/command`, { text: 'seq 1 1000' });
		await until(/command_ended/);
	};
	await work();
	await new Promise(done => setTimeout(done, 1000));
	const before = resident(server.pid);
	for (let number = 1; number < SESSIONS; number++) await work();
	await new Promise(done => setTimeout(done, 1000));
	const each = (resident(server.pid) - before) / (SESSIONS - 1);
	console.log(`sessions: ${before.toFixed(1)} MiB with one, ${each.toFixed(2)} MiB for each further one: ${judged(each <= MAX_SESSION_MIB, `${MAX_SESSION_MIB} MiB`)}`);
	server.kill('SIGTERM');
}

const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] });

// A flood in a terminal: from Enter until its end is on the screen, beside its time in a terminal that shows nothing; and the frames meanwhile.
if (runs('flood')) {
	const { server, url } = await start([AGENT, 'web', '-C', directory]);
	const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
	await page.goto(url);
	await page.click('#tab-terminal');
	await page.click('#shell');
	const line = pattern => page.waitForFunction(source => new RegExp(source, 'm').test([...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].map(row => row.textContent.trimEnd()).join('\n')), pattern, { timeout: 60_000 });
	await line('\\$$');
	const area = page.locator('.screen:not([hidden]) textarea'), times = [], ratios = [], frames = [];
	for (let round = 0; round < ROUNDS; round++) {
		await area.focus();
		await page.keyboard.type(`clear; a=$(date +%s%N); seq 1 400000; b=$(date +%s%N); echo took-${round} $(( (b - a) / 1000000 ))`);
		const shown = page.evaluate(wanted => new Promise(done => {
			const begun = performance.now();
			let last = begun, longest = 0;
			const look = now => {
				longest = Math.max(longest, now - last);
				last = now;
				const took = new RegExp(`^took-${wanted} (\\d+)`, 'm').exec([...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].map(row => row.textContent).join('\n'));
				if (took) done({ own: Number(took[1]), until: performance.now() - begun, longest });
				else requestAnimationFrame(look);
			};
			requestAnimationFrame(look);
		}), round);
		await page.keyboard.press('Enter');
		const { own, until, longest } = await shown;
		times.push(until);
		ratios.push(until / own);
		frames.push(longest);
	}
	const ratio = median(ratios), frame = Math.max(...frames);
	console.log(`seq 1 400000: on the screen after ${median(times).toFixed(0)} ms, ${ratio.toFixed(2)} of the command's own time there (${judged(ratio <= MAX_FLOOD, MAX_FLOOD)}), longest frame ${frame.toFixed(0)} ms (${judged(frame <= MAX_FRAME_MS, `${MAX_FRAME_MS} ms`)})`);
	await page.context().close();
	server.kill('SIGTERM');
}

for (const { name, command, box, answer } of runs('beside') ? subjects : []) {
	const { server, url } = await start(command);
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
	console.log(`${name}: ${idle.toFixed(1)} MiB idle, ${memory(server.pid).toFixed(1)} MiB after ${ROUNDS} chats (${resident(server.pid).toFixed(1)} without children), ${bytes} bytes for the first page, first piece after ${median(times)} ms (median of ${ROUNDS})`);
	server.kill('SIGTERM');
}
await browser.close();
process.exit(0);
