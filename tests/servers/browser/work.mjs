// What one works with beside the conversation: sessions with addresses and titles, commands and names in the prompt, going back, planning, files.
import assert from 'node:assert/strict';

export async function work({ tab, step, shot, ask, idle, serve, address, makeFile }) {
	await step('a model is chosen before the first prompt, and a session has an address, a title, and can be found and deleted', async () => {
		const one = await tab();
		one.removeAllListeners('dialog');
		const dialogs = [];
		one.on('dialog', dialog => { dialogs.push(dialog.message()); dialog.accept(dialog.type() === 'prompt' ? 'a title of mine' : undefined); });
		await one.waitForFunction(() => [...document.getElementById('model').options].some(option => option.value === 'other-model'));
		await one.selectOption('#model', 'other-model');
		await ask(one, 'nothing much');
		await one.waitForSelector('.answer');
		await idle(one);
		assert.equal(await one.inputValue('#model'), 'other-model');
		assert.match(await one.innerText('#log'), /other-model|did not understand/);
		const url = one.url();
		assert.match(url, /\/s\/[\w-]+$/);
		const mine = one.locator('#list li', { has: one.locator('[aria-current]') });
		await mine.locator('[aria-label^=Rename]').click();
		await one.waitForFunction(() => /a title of mine/.test(document.querySelector('#list [aria-current]')?.innerText));
		await one.fill('#search', 'title OF');
		await one.waitForFunction(() => document.querySelectorAll('#list a').length === 1);
		await shot(one, 'sessions');
		await one.fill('#search', 'no session has this');
		await one.waitForFunction(() => document.querySelectorAll('#list a').length === 0);
		await one.fill('#search', '');
		await one.click('#new');
		assert.equal(one.url(), address);
		await one.goBack();
		await one.waitForFunction(() => /nothing much/.test(document.getElementById('log').innerText));
		assert.equal(one.url(), url);
		await one.reload();
		await one.waitForFunction(() => /nothing much/.test(document.getElementById('log').innerText));
		await mine.locator('[aria-label^=Delete]').click();
		await one.waitForFunction(() => !/a title of mine/.test(document.getElementById('list').innerText));
		assert.equal(await one.isVisible('#welcome'), true);
		assert.match(dialogs.at(-1), /Delete the session “a title of mine”/);
		await one.goto(url);
		await one.waitForFunction(() => /unknown session/.test(document.getElementById('banner').innerText));
		await one.context().close();
	});

	const one = await tab();
	await step('steps are one group, an edit shows its change, code is formatted while it comes', async () => {
		await ask(one, 'three steps');
		await one.waitForFunction(() => /all three/.test(document.getElementById('log').innerText));
		await idle(one);
		assert.match(await one.locator('.steps > summary').innerText(), /^3 steps$/);
		assert.equal(await one.locator('.steps > details').count(), 3);
		assert.match(await one.locator('.steps .edit').innerText(), /notes\.txt \+1 −0[^]*\+a note/);
		await ask(one, 'slow code');
		await one.waitForSelector('.rest .code code');
		assert.ok(!/```/.test(await one.locator('.rest').innerText()));
		await idle(one);
		assert.equal(await one.locator('.answer .code button', { hasText: 'Copy' }).count(), 1);
		await shot(one, 'steps');
	});

	await step('an earlier prompt is changed: conversation and files are as before it', async () => {
		await ask(one, 'change the list');
		await one.waitForSelector('.answer strong');
		await idle(one);
		await one.waitForFunction(() => document.querySelector('#tab-review .count').textContent === '2');
		await one.locator('.again').last().locator('button', { hasText: 'Edit' }).click();
		await one.waitForSelector('.back');
		await one.waitForFunction(() => document.getElementById('prompt').value === 'change the list');
		assert.match(await one.locator('.back > summary').innerText(), /change the list/);
		await one.waitForFunction(() => document.querySelector('#tab-review .count').textContent === '1');
		await one.reload();
		await one.waitForSelector('.back');
		assert.equal(await one.locator('.answer strong').isVisible(), false);
		await one.locator('#log > .again').last().locator('button', { hasText: 'Retry' }).click();
		await one.waitForFunction(() => document.querySelectorAll('.back').length === 2);
		await one.waitForSelector('#log > .answer .code button');
		await idle(one);
	});

	await step('slash commands and @ names are completed', async () => {
		await one.fill('#prompt', '');
		await one.focus('#prompt');
		await one.keyboard.type('/pl');
		await one.waitForSelector('#suggested li');
		assert.match(await one.innerText('#suggested'), /\/plan/);
		await one.keyboard.press('Enter');
		assert.equal(await one.inputValue('#prompt'), '/plan ');
		await one.keyboard.press('Enter');
		await one.waitForSelector('.card button');
		assert.match(await one.innerText('#cards'), /until you accept the plan/);
		await one.locator('#cards button', { hasText: 'Leave' }).click();
		await one.waitForFunction(() => !document.querySelector('#cards *'));
		await one.focus('#prompt');
		await one.keyboard.type('look at @LI');
		await one.waitForFunction(() => /list\.txt/.test(document.getElementById('suggested').innerText));
		await shot(one, 'mention');
		await one.keyboard.press('Tab');
		assert.equal(await one.inputValue('#prompt'), 'look at @list.txt ');
		await one.fill('#prompt', '/home/me is a path');
		await one.press('#prompt', 'Enter');
		await one.waitForFunction(() => /\/home\/me is a path/.test([...document.querySelectorAll('.user')].at(-1).innerText));
		/* A note about the plan says "changed", which holds "hang": this model does not answer. */
		await one.click('#stop');
		await idle(one);
		await ask(one, '/rename by a command');
		await one.waitForFunction(() => /by a command/.test(document.querySelector('#list [aria-current]')?.innerText));
	});

	await step('files are a tree, text and pictures are shown, and all can be taken away or dropped', async () => {
		await one.click('#tab-terminal');
		await one.fill('#command', 'mkdir -p deep/er; printf "one \\342\\200\\256two\\n" > deep/er/text.txt; printf "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" | base64 -d > deep/dot.png');
		await one.press('#command', 'Enter');
		await one.waitForFunction(() => /exit 0/.test(document.getElementById('runs').innerText));
		await one.click('#tab-browse');
		await one.locator('#tree summary', { hasText: 'deep' }).click();
		await one.locator('#tree summary', { hasText: 'er' }).last().click();
		await one.locator('#tree button', { hasText: 'text.txt' }).click();
		await one.waitForFunction(() => /one \\u\{202e\}two/.test(document.getElementById('viewer').innerText));
		const notebook = { nbformat: 4, cells: [
			{ cell_type: 'markdown', source: ['# A title\n', '<img src=x onerror="window.pwned=10">'] },
			{ cell_type: 'code', execution_count: 7, source: 'print("<b>\u202e")', outputs: [
				{ output_type: 'stream', text: ['one\n', '\x1b[31mtwo\x1b[0m'] },
				{ output_type: 'display_data', data: { 'image/png': 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==' } },
				{ output_type: 'display_data', data: { 'image/svg+xml': '<svg xmlns="http://www.w3.org/2000/svg" onload="parent.pwned=11"><script>parent.pwned=12</script></svg>' } },
				{ output_type: 'execute_result', data: { 'text/html': '<script>window.pwned=13</script>' } },
				{ output_type: 'error', ename: 'E', evalue: 'x', traceback: ['\x1b[0;31mTraceback\x1b[0m', 'E: x'] }, null, 7] }, null, { outputs: {} }] };
		await one.setInputFiles('#picked', [{ name: 'cells.ipynb', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(notebook)) }]);
		await one.locator('#tree button', { hasText: 'cells.ipynb' }).click();
		await one.waitForSelector('#viewer .notebook img');
		const shown = await one.innerText('#viewer .notebook');
		assert.match(shown, /# A title\n<img src=x onerror[^]*\[7\][^]*print\("<b>\\u\{202e\}"\)[^]*one\ntwo\n[^]*<script>window\.pwned=13[^]*Traceback\nE: x/);
		assert.equal(await one.locator('#viewer :is(script, svg, b, [onerror])').count(), 1, 'but for the name of the file, nothing of it is markup');
		assert.equal(await one.evaluate(() => window.pwned), undefined);
		await shot(one, 'notebook');
		await one.locator('#tree button', { hasText: 'dot.png' }).click();
		await one.waitForSelector('#viewer:not(:has(.notebook)) img');
		assert.equal(await one.locator('#viewer img').evaluate(image => image.naturalWidth), 1);
		await shot(one, 'files');
		const [all] = await Promise.all([one.waitForEvent('download'), one.click('#all-files')]);
		const { execFileSync } = await import('node:child_process');
		const names = execFileSync('python3', ['-c', 'import sys, zipfile; print(*sorted(zipfile.ZipFile(sys.argv[1]).namelist()))', await all.path()], { encoding: 'utf8' });
		assert.match(names, /deep\/dot\.png deep\/er\/text\.txt list\.txt/);
		const session = await one.context().newCDPSession(one), data = { items: [], files: [makeFile('dropped.txt', 'from outside')], dragOperationsMask: 1 };
		for (const type of ['dragEnter', 'dragOver', 'drop']) await session.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data });
		await one.waitForFunction(() => /@dropped\.txt/.test(document.getElementById('prompt').value));
		await one.locator('#tree button', { hasText: 'dropped.txt' }).click();
		await one.waitForFunction(() => /from outside/.test(document.getElementById('viewer').innerText));
		await one.context().close();
	});

	await step('a question about a write shows what is written', async () => {
		const { child, address: asking } = await serve('127.0.0.1:0', '--approve', 'always');
		const one = await tab({}, asking);
		await ask(one, 'three steps');
		const card = one.locator('.card');
		await card.filter({ hasText: 'echo one' }).locator('button').first().click();
		const write = card.filter({ hasText: 'notes.txt' });
		await write.locator('.diff .a').waitFor();
		assert.match(await write.innerText(), /new: notes\.txt \+1 -0[^]*\+ a note/);
		assert.match(await one.title(), /waits for you/);
		await write.locator('button').first().click();
		await card.filter({ hasText: 'cat notes.txt' }).locator('button').first().click();
		await idle(one);
		await ask(one, 'edit the words');
		await card.locator('.diff .d').waitFor();
		assert.deepEqual(await card.locator('.diff .s7').allInnerTexts(), ['quick', 'slow'], 'the words that change are marked');
		assert.equal(await card.locator('details pre').isVisible(), false);
		await card.locator('summary').click();
		assert.match(await card.locator('details pre').innerText(), /change words\.txt/);
		await shot(one, 'question');
		await one.setViewportSize({ width: 390, height: 844 });
		await one.locator('#views [data-view=terminal]').click();
		await one.click('#waiting');
		assert.ok(await card.locator('button').first().isVisible());
		await shot(one, 'question-phone');
		await card.locator('input').fill('another word, please');
		await one.click('#stop');
		await one.waitForFunction(() => document.getElementById('prompt').value === 'another word, please');
		await one.context().close();
		child.kill('SIGTERM');
	});
}
