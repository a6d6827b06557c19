// Makes docs/web.png: one task on report/, for real, in `agent web` in Chromium. Only the model's part is written down here.
//
//     .ci/browser && cargo build && node docs/demo/web.mjs
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const { chromium } = createRequire(resolve('target/browser/x.js'))('playwright-core');
const AGENT = resolve(process.env.AGENT_BINARY ?? 'target/debug/agent'), SHOWN = resolve(process.argv[2] ?? 'docs/web.png'), WAIT = 120_000;

const CHART = `import csv
rows = list(csv.DictReader(open("sales.csv")))
class Chart:
    def _repr_svg_(self):
        top, bars = max(float(row["revenue"]) for row in rows), ""
        for at, row in enumerate(rows):
            high = 150 * float(row["revenue"]) / top
            bars += (f'<rect x="{20 + 88 * at}" y="{180 - high:.0f}" width="60" height="{high:.0f}" rx="4" fill="#0f766e"/>'
                     f'<text x="{50 + 88 * at}" y="{174 - high:.0f}" text-anchor="middle">{float(row["revenue"]) / 1000:.1f}k</text>'
                     f'<text x="{50 + 88 * at}" y="198" text-anchor="middle">{row["month"]}</text>')
        style = 'font-family="sans-serif" font-size="13" fill="#14191f"'
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="560" height="206" {style}>'
                f'<text x="20" y="16" font-weight="bold">Revenue by month</text>{bars}</svg>')
Chart()`;
const STEPS = [
	['run_commands', { command: 'python3 report.py' }],
	['edit_file', { path: 'report.py', old: 'revenue = row["revenue"]', new: 'revenue = float(row["revenue"])' }],
	['run_commands', { command: 'python3 report.py' }],
	['run_code', { language: 'python', code: CHART }],
];
const ANSWER = 'The revenues came out of the CSV as text, so adding them failed. **The report works again: 132,561.85 in six months**, with June the best one.';

const model = createServer(async (request, response) => {
	let body = '';
	for await (const piece of request) body += piece;
	if (!body) return response.end('{"data":[{"id":"demo-model"}]}');
	const step = JSON.parse(body).messages.filter(({ role }) => role === 'tool').length;
	const [name, given] = STEPS[step] ?? [], call = { index: 0, id: `call-${step}`, type: 'function', function: { name, arguments: JSON.stringify(given) } };
	response.setHeader('Content-Type', 'text/event-stream');
	const usage = { prompt_tokens: 1840 + 210 * step, completion_tokens: 60, total_tokens: 1900 + 210 * step };
	const send = (delta, finish = null) => response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'demo-model', usage, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`);
	send(name ? { tool_calls: [call] } : { content: ANSWER });
	send({}, name ? 'tool_calls' : 'stop');
	response.end('data: [DONE]\n\n');
});
await new Promise(done => model.listen(0, '127.0.0.1', done));

const made = mkdtempSync(join(tmpdir(), 'agent-demo-')), project = join(made, 'report');
cpSync('docs/demo/report', project, { recursive: true });
const server = spawn(AGENT, ['web', '-C', project], { env: {
	PATH: process.env.PATH, HOME: made, AGENT_HOME: made, AGENT_SANDBOX: 'local', AGENT_BASE_URL: `http://127.0.0.1:${model.address().port}/v1`,
	AGENT_API_KEY: 'x', AGENT_MODEL: 'demo-model', PYTHONDONTWRITEBYTECODE: '1' } });
try {
	const url = await new Promise((found, failed) => {
		let text = '';
		server.stderr.on('data', data => { text += data; const match = /http:\/\/127\.0\.0\.1:\d+\S*/.exec(text); if (match) found(match[0]); });
		server.on('exit', () => failed(new Error(text)));
	});
	const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] });
	const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, colorScheme: 'light' });
	page.setDefaultTimeout(WAIT);
	await page.goto(url);
	await page.fill('#prompt', 'report.py crashes. Fix it, and draw the revenue by month');
	await page.press('#prompt', 'Enter');
	await page.waitForSelector('.answer strong');
	await page.waitForSelector('.call img');
	await page.waitForSelector('#send:not([hidden])');
	await page.click('#tab-review');
	await page.waitForSelector('.hunk');
	await page.waitForFunction(() => document.querySelector('#list a'));
	await page.evaluate(() => { document.getElementById('place').textContent = '~/report'; });
	/* The edit is in the review, so its step is folded, and all of the task fits. */
	await page.locator('.call', { hasText: 'edit_file' }).last().locator(':scope > summary').click();
	await page.evaluate(() => { document.getElementById('log').scrollTop = 0; document.activeElement.blur(); });
	await page.mouse.move(0, 0);
	await page.waitForTimeout(500);
	await page.screenshot({ path: SHOWN });
	await browser.close();
} finally {
	server.kill('SIGTERM');
	model.close();
	rmSync(made, { recursive: true, force: true });
}
