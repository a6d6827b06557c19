/* The files of the sandbox: a tree, a viewer, downloads, and what is dropped on the page. Loaded when one of them is used. */
const tree = $('tree'), viewer = $('viewer'), MAX_TEXT = 200000, MAX_NOTEBOOK = 32 << 20;
const PICTURE = /\.(png|jpe?g|gif|webp|svg)$/i;
const address = (route, path) => `${here(route)}?${new URLSearchParams({ path })}`;
let of = '', unfolded = new Set();

const size = bytes => bytes < 1000 ? `${bytes} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;

/* Shows the tree as it is now, with the directories open that were. */
export async function show() {
	if (of !== session) { of = session; unfolded = new Set(); viewer.replaceChildren(); }
	$('all-files').disabled = $('fresh').disabled = !session;
	if (!session) return tree.replaceChildren(el('p.empty', {}, 'There is no session yet.'));
	tree.replaceChildren(await directory(''));
}

async function directory(path) {
	const { entries, more } = await read(address('files', path));
	const rows = await Promise.all(entries.map(async entry => {
		const below = path + entry.name;
		if (entry.kind !== 'directory') return el('li', {}, quiet(entry.shown, () => act(() => look(below, entry))), el('small', {}, entry.kind === 'file' ? size(entry.size) : entry.kind));
		const list = el('div'), folder = el('details', { open: unfolded.has(`${below}/`) }, el('summary', {}, entry.shown), list);
		folder.addEventListener('toggle', () => {
			unfolded[folder.open ? 'add' : 'delete'](`${below}/`);
			if (folder.open && !list.childElementCount) act(async () => list.replaceChildren(await directory(`${below}/`)));
		});
		/* Its own event may come meanwhile, and asks for the same. */
		if (folder.open) list.replaceChildren(await directory(`${below}/`));
		return el('li', {}, folder);
	}));
	if (!rows.length) rows.push(el('li.empty', {}, 'empty'));
	if (more) rows.push(el('li.empty', {}, `${more} more are not listed`));
	return el('ul', {}, ...rows);
}

/* What reorders text or controls something is shown as an escape, as everywhere on the page. */
export const visible = text => text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, one => `\\u{${one.codePointAt(0).toString(16)}}`);

/* Shows a file: a picture, a notebook, or text. */
async function look(path, entry) {
	const name = path.split('/').pop(), bytes = await (await request('GET', address('file', path))).blob();
	const bar = el('div.bar', {}, el('b', {}, path), quiet('Download', () => act(() => download(address('file', path), name))),
		quiet('Mention', () => { $('prompt').value += `${$('prompt').value && !$('prompt').value.endsWith(' ') ? ' ' : ''}@${path} `; view('chat'); grow(); $('prompt').focus(); }));
	let body = null;
	if (/\.ipynb$/i.test(name) && bytes.size <= MAX_NOTEBOOK) body = (await import('/notebook.js')).cells(await bytes.text());
	if (body) {
		/* Its cells are shown. */
	} else if (PICTURE.test(name)) {
		body = el('img', { alt: name, src: URL.createObjectURL(bytes) });
		await body.decode().catch(() => { body = el('p.empty', {}, 'The picture cannot be shown.'); });
		if (body.src) URL.revokeObjectURL(body.src);
	} else {
		const all = await bytes.slice(0, MAX_TEXT).arrayBuffer(), text = new TextDecoder().decode(all);
		const isBinary = new Uint8Array(all).includes(0);
		body = isBinary ? el('p.empty', {}, `${size(bytes.size)} that are not text`) : block(path, visible(text) || ' ');
		if (bytes.size > MAX_TEXT) body = el('div', {}, body, el('p.empty', {}, `The first ${size(MAX_TEXT)} of ${size(bytes.size)}: download it to see the rest.`));
	}
	viewer.replaceChildren(bar, body);
	bar.querySelector('button').focus();
}

/* The files of what was dropped, with their paths; git's own directory would be refused. */
async function* walk(entry, at = '') {
	const path = at + entry.name;
	if (entry.name === '.git') return;
	if (entry.isFile) return yield [path, await new Promise(entry.file.bind(entry))];
	const source = entry.createReader();
	for (let some = [0]; some.length;) {
		some = await new Promise(source.readEntries.bind(source));
		for (const one of some) yield* walk(one, `${path}/`);
	}
}

/* A visitor's go into the workspace, where an archive is unpacked unless it is a file of a folder; everybody else's into the sandbox. */
export async function upload(sources) {
	let count = 0, first = '';
	if (!facts.visitors && !session) { await open(); if (!session) return; }
	for (const source of sources) {
		for await (const [path, one] of source) {
			const query = facts.visitors ? { path, unpack: /^[^/]+\.zip$/i.test(path) } : { path };
			count += (await json('PUT', `${facts.visitors ? '/api/upload' : here('file')}?${new URLSearchParams(query)}`, one)).files;
			first ||= path;
			banner(`${count} file${count === 1 ? ' is' : 's are'} ${facts.visitors ? 'uploaded' : 'in the sandbox'}.`, true);
		}
	}
	if (!facts.visitors && count === 1 && !/\s/.test(first)) { const box = $('prompt'); box.value += `${box.value ? ' ' : ''}@${first} `; grow(); }
	if (!$('browse').hidden) await show();
}

export const drop = entries => upload(entries.map(entry => walk(entry)));

$('all-files').onclick = () => act(() => download(here('files.zip'), `${session}-files.zip`));
$('fresh').onclick = () => act(show);
