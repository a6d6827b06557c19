/* The review: what changed in files and hunks, what of it the user takes, and what they say about it. Loaded when it is looked at. */
/* By the path of a file, which version of the host's the user writes over, and whether by a version that they made by hand. */
let remarks = [], over = new Map(), deciding = Promise.resolve(), looking = Promise.resolve();
const PART = 2000;
const PICTURES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp', svg: 'image/svg+xml' };

/* What is shown already stays as it is, and so does the change that the user is choosing from. */
export const look = () => review(true);

/* Another session is shown. */
export function reset() {
	[remarks, over] = [[], new Map()];
	showRemarks();
}

/* One comparison after the other: an answer never takes the place of a later one. */
function review(isOnlyLook) {
	looking = looking.catch(() => {}).then(() => compare(isOnlyLook));
	return looking;
}

const isChoosing = () => hasChosen || $('files').querySelector('.remark textarea, .conflict textarea');

async function compare(isOnlyLook) {
	if (!session) return;
	const note = $('note'), before = [...note.childNodes], comparing = 'Comparing …';
	const waits = setTimeout(() => { note.textContent = comparing; }, isOnlyLook && diff ? 500 : 0);
	await deciding.catch(() => {});
	const shown = await act(() => read(here('diff')), note);
	clearTimeout(waits);
	if (!shown) return;
	if (isOnlyLook && diff) {
		const isSame = shown.digest === diff.digest && (isChoosing() || JSON.stringify(shown) === JSON.stringify(diff));
		if (!isSame && isChoosing()) return note.replaceChildren('The change may be another one now. ', quiet('Show it', () => review()));
		if (isSame) {
			if (note.textContent === comparing) note.replaceChildren(...before);
			return;
		}
	}
	/* That was decided about what was shown before. */
	for (const [path, { isByHand }] of over) if (!isByHand) over.delete(path);
	showDiff(shown);
}

function showDiff(shown, why) {
	[diff, hasChosen] = [shown, false];
	const { counts, files, risks, messages, more_files: more } = shown, notes = why ? [why] : [], top = $('files').scrollTop;
	if (files.length) notes.push(`${counts.added} added, ${counts.modified} modified, ${counts.deleted} deleted`);
	if (files.some(({ is_refused: isRefused }) => isRefused)) notes.push('What you refused is still refused.');
	if (risks.length) notes.push(`Look at these first, other programs run them: ${risks.join(', ')}`);
	if (more) notes.push(`${more} more files are not shown: apply them with agent apply.`);
	$('note').textContent = [...notes, ...messages].join('\n');
	const cards = files.map(file);
	$('files').replaceChildren(...cards.length ? [...contents(cards), ...cards] : [el('p.empty', {}, 'Nothing has changed.')]);
	$('files').scrollTop = top;
	$('unapply').hidden = !shown.can_unapply;
	showRemarks();
	showStatus();
}

/* The list of the files, where there are several. */
function contents(cards) {
	if (cards.length < 2) return [];
	const entry = card => el('li', {}, quiet(card.shown.name, () => { card.open = true; card.scrollIntoView({ block: 'start' }); card.querySelector('summary').focus(); }),
		card.shown.risk ? el('span.risk', {}, '! ') : '', lineCounts(card.shown));
	return [el('ol.contents', { ariaLabel: 'Changed files' }, ...cards.map(entry))];
}

const lineCounts = ({ added, removed }) => (added == null ? '' : el('span', {}, el('span.plus', {}, `+${added}`), ' ', el('span.minus', {}, `-${removed}`)));

/* Text with the colours that the server's painter chose; every other escape is shown as text by it. */
function painted(text) {
	let style = '';
	return text.split(/\x1b\[([\d;]*)m/).map((piece, at) => {
		if (at % 2) style = piece === '0' ? '' : `${style}.s${piece.split(';').join('.s')}`;
		return at % 2 || !piece ? '' : style ? el(`span${style}`, {}, piece) : piece;
	});
}

/* Lines with their numbers: of the old file where one went, else of the new one. */
function lineNodes(lines, at) {
	const kinds = { '+': 'a', '-': 'd', '@': 'h', '\\': 'h' };
	return lines.map(([mark, text]) => {
		const starts = mark === '@' && /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(text);
		if (starts) [at.old, at.now] = [Number(starts[1]), Number(starts[2])];
		const number = mark === '-' ? at.old : mark === '@' || mark === '\\' ? '' : at.now;
		if (mark === '-' || mark === ' ') at.old++;
		if (mark === '+' || mark === ' ') at.now++;
		const node = el(`div.${kinds[mark] || 'c'}`, {}, el('span.no', {}, String(number)),
			el('span', {}, ...mark === '@' ? [text] : [`${mark} `, ...painted(text)]));
		Object.assign(node, { number, mark });
		return node;
	});
}

/* What a call would do to files, in a card that asks about it. */
export function showCall(node, { what, diffs }) {
	const change = ({ name, is_new: isNew, is_text: isText, lines, left_out: left, added, removed }) => el('div.change', {},
		el('p.line', {}, el('b', {}, `${isNew ? 'new: ' : ''}${name} `), isText ? lineCounts({ added, removed }) : 'not text'),
		el('div.diff', { role: 'group', tabIndex: 0, ariaLabel: `Changes of ${name}`, hidden: !lines.length }, ...lineNodes(lines, { old: 1, now: 1 })),
		left ? el('p.line', {}, `${left} more lines, which the whole call has`) : '');
	node.replaceChildren(...diffs.map(change), el('details', {}, el('summary', {}, 'The whole call'), block('Call', what)));
}

function file(shown, number) {
	const box = el('input', { type: 'checkbox', checked: shown.taken, ariaLabel: `Apply ${shown.name}` });
	const hunks = shown.hunks.map(({ id, place, lines, taken = true }) => {
		const check = el('input', { type: 'checkbox' }), start = { old: 1, now: 1 };
		const view = el('div.diff', {}, ...lineNodes(lines, start));
		const comment = quiet('Comment', () => remark(shown, view));
		const node = el('div.hunk', {}, el('div.place', {}, shown.whole ? '' : el('label', {}, check, ` ${place}`), comment), view);
		view.onclick = event => { if (event.target.classList.contains('no') && event.target.textContent) remark(shown, view, event.target.parentNode); };
		const set = on => { check.checked = on; node.classList.toggle('off', !on); };
		set(shown.taken && taken);
		check.onchange = () => { set(check.checked); box.checked = hunks.some(other => other.check.checked); };
		return { node, check, set, id };
	});
	box.onchange = () => hunks.forEach(({ set }) => set(box.checked));
	const name = el('span.name', {}, shown.headline), risk = shown.risk && el('span.risk', { title: 'Other programs run or obey this' }, `! ${shown.risk}`);
	const conflict = el('div.conflict', { hidden: true });
	const node = el('details.file', { open: true }, el('summary', {}, name, risk || '', lineCounts(shown)),
		el('label.empty', {}, box, shown.is_shown ? ' Apply' : ' Apply (it was not shown)'), conflict, ...hunks.map(hunk => hunk.node));
	const ending = /\.(\w+)$/.exec(shown.name)?.[1].toLowerCase();
	if (PICTURES[ending]) node.append(pictures(shown, number, PICTURES[ending]));
	else if (shown.lines) node.append(inParts(shown, number));
	Object.assign(node, { shown, conflict, box, set: on => { box.checked = on; box.onchange(); } });
	node.choice = () => box.checked && [number, hunks.flatMap(({ check, id }) => (check.checked ? [] : [id]))];
	return node;
}

const part = (number, query) => here(`diff/part?${new URLSearchParams({ file: number, digest: diff.digest, ...query })}`);

/* A file that is too long to be shown at once. */
function inParts(shown, number) {
	const view = el('div.diff'), at = { old: 1, now: 1, from: 0 };
	view.onclick = event => { if (event.target.classList.contains('no') && event.target.textContent) remark(shown, view, event.target.parentNode); };
	const more = quiet(`Show its ${shown.lines} lines`, () => act(async () => {
		const { lines } = await read(part(number, { from: at.from }));
		at.from += lines.length;
		view.append(...lineNodes(lines, at));
		more.hidden = !lines.length || at.from >= shown.lines;
		more.textContent = `Show the next ${Math.min(PART, shown.lines - at.from)} of ${shown.lines - at.from} lines`;
	}, $('note')));
	return el('div.hunk', {}, view, more);
}

/* A picture before and after, fetched when the user asks for it. */
function pictures(shown, number, type) {
	const view = el('div.pictures');
	const button = quiet('Show the picture', () => act(async () => {
		for (const side of shown.sides) {
			const bytes = await (await request('GET', here(`diff/picture?${new URLSearchParams({ file: number, digest: diff.digest, side })}`))).blob();
			const image = el('img', { alt: `${shown.name}, ${side}`, src: URL.createObjectURL(new Blob([bytes], { type })) });
			view.append(el('figure', {}, el('figcaption', {}, side), image));
			await image.decode().catch(() => {});
			URL.revokeObjectURL(image.src);
		}
		button.hidden = true;
	}, $('note')));
	return el('div.hunk', {}, view, button);
}

/* ---- what was decided ---- */

/* The server keeps what is refused: it stays so after an apply, a reload and a restart. A file is taken as long as all of it is. */
function decide() {
	const decided = {}, note = (key, on) => { decided[key] = on && decided[key] !== false; };
	for (const card of $('files').children) {
		const choice = card.choice?.(), { shown } = card;
		if (!shown) continue;
		const refused = new Set(choice ? choice[1] : shown.hunks.map(({ id }) => id));
		note(shown.key, !!choice && !refused.size);
		if (shown.content) note(shown.content, !!choice);
		shown.hunks.forEach(({ key, id }) => key && note(key, !refused.has(id)));
	}
	const path = here('decisions');
	deciding = deciding.catch(() => {}).then(() => send(path, { decided }));
	return deciding;
}

async function apply() {
	/* All of it as it is shown now: another change may be shown before this one is sent. */
	const cards = [...$('files').children].filter(node => node.shown), { digest } = diff, note = $('note'), numbers = {};
	const files = Object.fromEntries(cards.map(card => card.choice()).filter(Boolean));
	for (const [number, { shown }] of cards.entries()) if (over.has(shown.path)) numbers[number] = over.get(shown.path).found;
	try {
		await decide();
		const { applied, merged } = await send(here('apply'), { digest, files, over: numbers });
		hasChosen = false;
		over.clear();
		await review();
		note.textContent = `Written: ${applied.added} added, ${applied.modified} modified, ${applied.deleted} deleted${merged.length ? `; merged with your edits: ${merged.join(', ')}` : ''}\n${note.textContent}`;
	} catch (error) {
		if (error.body?.diff) showDiff(error.body.diff, error.text);
		else note.textContent = error.text || 'The server does not answer.';
		showConflicts(error.body?.details || []);
	}
}

/* Each file that the host has otherwise: whose version counts, or one that the user writes. */
function showConflicts(conflicts) {
	for (const [number, card] of [...$('files').querySelectorAll('.file')].entries()) {
		const found = conflicts.find?.(({ path }) => path === card.shown.path);
		card.conflict.hidden = !found;
		if (!found) continue;
		const chosen = text => { card.conflict.replaceChildren(text); hasChosen = true; };
		card.conflict.replaceChildren(`${found.reason}. `,
			quiet('Keep mine', () => { over.delete(card.shown.path); card.set(false); chosen('Yours stays.'); decide().catch(() => {}); }),
			quiet('Take the sandbox’s', () => { over.set(card.shown.path, { found: found.found }); chosen('Apply writes the sandbox’s version over yours; Take back restores it.'); }),
			quiet('Edit by hand', () => act(() => byHand(card, number), $('note'))));
		card.scrollIntoView({ block: 'nearest' });
	}
}

/* Both versions in one text, which the user edits: the sandbox gets it, and the next apply writes it over what the host had. */
async function byHand(card, number) {
	const { path, name } = card.shown, { text, found } = await read(part(number, {}).replace('/part?', '/conflict?'));
	const box = el('textarea', { rows: 12, spellcheck: false, value: text, ariaLabel: `Both versions of ${name}` });
	const use = quiet('Use this', () => act(async () => {
		if (/^(<{7}|>{7}) /m.test(box.value) && !confirm('It still has conflict markers. Use it?')) return;
		const count = ends => text.split(ends).length - 1;
		const made = count('\r\n') * 2 > count('\n') ? box.value.replace(/\r?\n/g, '\r\n') : box.value;
		await json('PUT', here(`file?${new URLSearchParams({ path })}`), new Blob([made]));
		over.set(path, { found, isByHand: true });
		await review();
		for (const other of $('files').querySelectorAll('.file')) if (other.shown.path === path) other.set(true);
		hasChosen = true;
		await decide();
		$('note').textContent = `${name} is in the sandbox as you wrote it; Apply writes it over your version.`;
	}, $('note')));
	use.className = '';
	card.conflict.replaceChildren(box, use, quiet('Cancel', () => showConflicts([{ path, found, reason: 'It is another one on your side now' }])));
	box.focus();
}

export async function restore(path) {
	if (await act(() => send(here(path)), $('review').hidden ? null : $('note')) && !$('review').hidden) await review();
}

/* ---- comments ---- */

/* Asks for a comment on a line of what is shown; without one, on the first that changed. */
function remark(shown, view, line) {
	const lines = [...view.children].filter(node => node.number);
	line ||= lines.find(node => node.mark !== ' ') || lines[0];
	if (!line) return;
	view.querySelector('form.remark')?.remove();
	const text = el('textarea', { rows: 2, placeholder: 'What should be different here?' }), where = el('input', { type: 'number', min: 1, value: line.number });
	text.ariaLabel = `Comment on ${shown.name}`;
	where.ariaLabel = 'Line';
	where.onchange = () => {
		const other = lines.find(node => node.number === Number(where.value) && node.mark !== '-');
		if (other) { line = other; line.after(form); text.focus(); }
	};
	const form = el('form.remark', {}, el('label', {}, 'Line ', where), text, el('button', {}, 'Add'), quiet('Cancel', () => form.remove()));
	form.querySelector('.quiet').type = 'button';
	form.onsubmit = event => {
		event.preventDefault();
		if (!text.value.trim()) return;
		remarks.push({ name: shown.name, number: line.number, isOld: line.mark === '-', code: line.lastChild.textContent.slice(2, 202), text: text.value.trim() });
		form.replaceWith(el('p.remark', {}, text.value.trim()));
		showRemarks();
	};
	line.after(form);
	text.focus();
}

function showRemarks() {
	const count = remarks.length;
	$('send-remarks').hidden = $('drop-remarks').hidden = !count;
	$('send-remarks').textContent = count === 1 ? 'Send 1 comment' : `Send ${count} comments`;
}

async function sendRemarks() {
	const of = ({ name, number, isOld, code, text }) => `${name}:${number}${isOld ? ' (removed)' : ''}\n> ${code}\n${text}`;
	const box = $('prompt'), before = box.value;
	box.value = `Comments on your change:\n\n${remarks.map(of).join('\n\n')}`;
	await submit(box, 'prompt');
	if (box.value) return;
	remarks = [];
	box.value = before;
	for (const node of $('files').querySelectorAll('.remark')) node.remove();
	showRemarks();
}

on('apply', 'click', apply);
on('files', 'change', event => { if (event.target.type === 'checkbox') { hasChosen = true; act(decide, $('note')); } });
on('send-remarks', 'click', sendRemarks);
on('drop-remarks', 'click', () => { remarks = []; for (const node of $('files').querySelectorAll('p.remark')) node.remove(); showRemarks(); });
for (const path of ['unapply', 'undo', 'redo']) on(path, 'click', () => restore(path));
