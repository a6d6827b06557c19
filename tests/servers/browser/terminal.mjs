// The terminals of the page: programs of the sandbox that have a terminal, floods, several of them, and what a reload keeps.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';

const screen = page => page.locator('.screen:not([hidden])');
const rows = page => page.evaluate(() => [...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].map(row => row.textContent.trimEnd()).join('\n'));

/** Waits until the rows match, which is what a user sees. */
export async function sees(page, pattern) {
	try {
		await page.waitForFunction(([source]) => new RegExp(source, 'm').test([...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].map(row => row.textContent.trimEnd()).join('\n')), [pattern.source], { timeout: 20_000 });
	} catch {
		assert.fail(`${pattern} is not on the screen:\n${await rows(page)}`);
	}
}

export async function open(page) {
	await page.click('#tab-terminal');
	await page.click('#shell');
	await sees(page, /\$ $|\$$/);
}

async function type(page, text) {
	await screen(page).locator('textarea').focus();
	await page.keyboard.type(text);
	await page.keyboard.press('Enter');
}

async function paste(page, text) {
	await screen(page).locator('textarea').evaluate((area, pasted) => {
		const clipboardData = new DataTransfer();
		clipboardData.setData('text/plain', pasted);
		area.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true }));
	}, text);
}

/** The time of the command by itself, until its end is on the screen, and the longest task of the page meanwhile. */
async function flood(page, number) {
	await page.evaluate(() => {
		window.longest = 0;
		window.watching ||= new PerformanceObserver(list => { for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration); });
		window.watching.observe({ entryTypes: ['longtask'] });
	});
	await screen(page).locator('textarea').focus();
	await page.keyboard.type(`a=$(date +%s%N); seq 1 400000; b=$(date +%s%N); echo took-${number} $(( (b - a) / 1000000 ))`);
	const shown = page.evaluate(wanted => new Promise(done => {
		const begun = performance.now();
		const look = () => {
			const took = new RegExp(`^took-${wanted} (\\d+)`, 'm').exec([...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].map(row => row.textContent).join('\n'));
			if (took) done({ own: Number(took[1]), shown: performance.now() - begun });
			else requestAnimationFrame(look);
		};
		look();
	}), number);
	await page.keyboard.press('Enter');
	const { own, shown: until } = await shown;
	return { own, until, longest: await page.evaluate(() => window.longest) };
}

export async function terminals({ page, tab, step, shot }) {
	await step('a terminal is one: colours, arrows, a size, programs that draw', async () => {
		assert.equal(await page.evaluate(() => performance.getEntriesByType('resource').filter(({ name }) => /xterm|terminal\.js/.test(name)).length), 0, 'it is loaded when it is opened');
		await open(page);
		await type(page, 'cd /tmp; printf "\\033[31mred\\033[38;2;1;120;200mtrue\\033[0m\\n"; test -t 0 && echo is-a-tty');
		await sees(page, /^redtrue$[^]*^is-a-tty$/);
		const colours = await screen(page).evaluate(node => ['red', 'true'].map(text => getComputedStyle([...node.querySelectorAll('.xterm-rows span')].find(span => span.textContent === text)).color));
		assert.notEqual(colours[0], colours[1]);
		assert.match(colours[1], /rgb\(\d+, 1\d\d, \d+\)/, 'a colour of its own, which the policy let through');
		await type(page, 'pwd');
		await sees(page, /^\/tmp$/);
		await page.keyboard.type('echo a-b');
		for (let i = 0; i < 2; i++) await page.keyboard.press('ArrowLeft');
		await page.keyboard.type('X');
		await page.keyboard.press('Enter');
		await sees(page, /^aX-b$/);
		await page.keyboard.press('ArrowUp');
		await page.keyboard.press('Enter');
		await page.waitForFunction(() => [...document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div')].filter(row => /^aX-b$/.test(row.textContent.trimEnd())).length === 2);
		await type(page, 'stty size');
		const lines = await page.locator('.screen:not([hidden]) .xterm-rows > div').count();
		await sees(page, new RegExp(`^${lines} \\d+$`));
		await page.setViewportSize({ width: 1500, height: 600 });
		await page.waitForFunction(before => document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div').length < before, lines);
		const fewer = await page.evaluate(() => document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div').length);
		await type(page, 'stty size');
		await sees(page, new RegExp(`^${fewer} \\d+$`));
		await page.setViewportSize({ width: 1280, height: 800 });
		await shot(page, 'terminal');
	});

	await step('Ctrl-C ends a command, python3 answers, several pasted lines are several', async () => {
		await type(page, 'clear; echo begun; sleep 1000');
		await sees(page, /^begun$/);
		await page.keyboard.press('Control+c');
		await type(page, 'echo after-$?');
		await sees(page, /^after-130$/);
		await type(page, 'python3 -q');
		await sees(page, /^>>>/);
		await page.keyboard.type('6 * 7');
		await page.keyboard.press('Enter');
		await sees(page, /^42$/);
		await page.keyboard.press('Control+d');
		await sees(page, /\$$/);
		await type(page, 'clear');
		await paste(page, 'echo one\necho two\necho three\n');
		await page.keyboard.press('Enter');
		await sees(page, /^one$[^]*^two$[^]*^three$/);
		/* A paste that is larger than what the terminal takes at once. */
		await type(page, 'clear; echo reads; cat > /tmp/pasted');
		await sees(page, /^reads$/);
		await paste(page, `${'0123456789 abcdefghij\n'.repeat(20_000)}`);
		await page.keyboard.press('Control+d');
		await type(page, 'clear; wc -c < /tmp/pasted');
		await sees(page, /^440000$/);
	});

	await step('vim and top draw, take keys and follow the size', async () => {
		/* CI has both; elsewhere the one that is there. */
		const has = program => ['/usr/bin/', '/bin/'].some(directory => existsSync(directory + program));
		if (has('vim')) {
			await type(page, 'clear; printf "first\\nsecond\\n" > /tmp/edited.txt; vim -u NONE -N /tmp/edited.txt');
			await sees(page, /^first$[^]*^second$[^]*^~$/);
			await page.keyboard.press('G');
			await page.keyboard.press('o');
			await page.keyboard.type('third, by hand');
			await page.keyboard.press('ArrowLeft');
			await page.keyboard.press('Delete');
			await page.keyboard.press('Escape');
			await page.setViewportSize({ width: 1500, height: 600 });
			await page.keyboard.type(':set lines?');
			await page.keyboard.press('Enter');
			const lines = await page.evaluate(() => document.querySelectorAll('.screen:not([hidden]) .xterm-rows > div').length);
			await sees(page, new RegExp(`lines=${lines}$`));
			await page.keyboard.type(':wq');
			await page.keyboard.press('Enter');
			await page.setViewportSize({ width: 1280, height: 800 });
			await sees(page, /\$$/);
			await type(page, 'clear; cat /tmp/edited.txt');
			await sees(page, /^second$[^]*^third, by han$/);
		}
		if (has('top')) {
			await type(page, 'clear; top -d 1');
			await sees(page, /PID +USER/);
			await page.keyboard.press('q');
			await type(page, 'clear; echo "top ended with $?"');
			await sees(page, /^top ended with 0$/);
		}
	});

	await step('a flood is on the screen, and Ctrl-C stops one', async () => {
		const { own, until, longest } = await flood(page, 1);
		console.log(`   seq 1 400000: ${own} ms by itself, ${Math.round(until)} ms until shown, longest task ${longest} ms`);
		await type(page, 'yes');
		await sees(page, /^y$/);
		const begun = Date.now();
		await page.keyboard.press('Control+c');
		await type(page, 'clear; echo stopped');
		await sees(page, /^stopped$/);
		assert.ok(Date.now() - begun < 5000, `Ctrl-C took ${Date.now() - begun} ms`);
	});

	await step('a reload keeps the scrollback, and two tabs show one terminal', async () => {
		await type(page, 'clear; seq 1 500; printf "\\033[c"; echo the-end');
		await sees(page, /^the-end/);
		await page.keyboard.press('Control+c');
		await page.reload();
		await page.click('#tab-terminal');
		await page.locator('#shells button', { hasText: 'Terminal 1' }).click();
		await sees(page, /^the-end/);
		await type(page, 'echo "[$(echo still-here)]"');
		await sees(page, /^\[still-here\]$/);
		const text = await rows(page);
		assert.equal(text.match(/\?\d+;\d*c/g)?.length || 0, 0, `what a program asked the terminal is not answered again:\n${text}`);
		await screen(page).locator('.xterm-screen').hover();
		await page.mouse.wheel(0, -3000);
		await sees(page, /^4\d\d$/);
		const other = await tab();
		await other.locator('#list a').first().click();
		await other.click('#tab-terminal');
		await other.locator('#shells button', { hasText: 'Terminal 1' }).click();
		await sees(other, /^\[still-here\]$/);
		await type(other, 'echo from-the-other');
		await sees(other, /^from-the-other$/);
		await type(page, '');
		await sees(page, /^from-the-other$/);
		await other.context().close();
	});

	await step('several terminals, each for itself, closed one by one', async () => {
		await page.click('#shell');
		await page.waitForFunction(() => document.querySelectorAll('.screen').length === 2);
		await sees(page, /\$$/);
		await type(page, 'echo second; echo made > /workspace/by-terminal.txt || echo made > by-terminal.txt');
		await sees(page, /^second$/);
		await page.waitForFunction(() => document.querySelector('#tab-review .count').textContent !== '', undefined, { timeout: 20_000 });
		await type(page, 'rm by-terminal.txt; exit');
		await page.waitForFunction(() => /has ended: exit 0/.test(document.querySelector('.screen:not([hidden]) .says')?.textContent));
		await page.locator('#shells button', { hasText: 'Terminal 1' }).click();
		await sees(page, /from-the-other/);
		await page.keyboard.press('F6');
		assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Terminal 1', 'the keyboard leaves it');
		await page.locator('#shells [aria-label="Close terminal 2"]').click();
		await page.waitForFunction(() => document.querySelectorAll('.screen').length === 1);
		await page.locator('#shells [aria-label="Close terminal 1"]').click();
		await page.waitForSelector('#command:visible');
	});
}
