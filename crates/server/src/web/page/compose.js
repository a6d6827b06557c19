/* What the prompt's box understands beside prompts: commands that begin with a slash, and files that begin with @. Loaded with the first. */
const box = $('prompt'), shown = $('suggested'), MAX_SHOWN = 12;
let items = [], at = 0, asked = 0;

const go = name => { view(name); $(`tab-${name}`).focus(); };
const CARRY_OUT = 'The plan is accepted. Carry it out.';
const commands = {
	plan: ['[accept|off]', 'plan first: nothing is changed until you accept', async how => {
		await need();
		await send(here('plan'), { '': 'begin', off: 'leave' }[how] || how);
		if (how === 'accept') await send(here('prompt'), { text: CARRY_OUT });
	}],
	model: ['NAME', 'change to another model', name => session ? send(here('model'), { text: name }) : choose(name)],
	compact: ['', 'summarise the conversation', async () => { const { shorter } = await send(here('compact')); banner(shorter ? '' : 'It would not become shorter.', true); }],
	clear: ['', 'the model forgets the conversation, the sandbox stays', () => send(here('clear'))],
	undo: ['', 'undo the last prompt in the sandbox', async () => (await reviewing()).restore('undo')],
	redo: ['', 'redo what was undone last', async () => (await reviewing()).restore('redo')],
	diff: ['', 'look at what has changed', () => go('review')],
	files: ['', 'look at the files of the sandbox', () => go('browse')],
	terminal: ['', 'open a terminal', () => { go('terminal'); $('shell').click(); }],
	fork: ['', 'a second session from the state of this one', () => $('fork').click()],
	rename: ['TITLE', 'give the session a title', async text => { await send(here('title'), { text }); list(); }],
	sessions: ['', 'open another session', () => { drawer(true); $('search').focus(); }],
	new: ['', 'a new session', () => $('new').click()],
	help: ['', 'this list', () => { box.value = '/'; suggest(); return true; }],
};

const need = async () => { if (!session) await open(); };
const choose = name => { $('model').append(el('option', { selected: true }, name)); };

/* Runs a command; `false` for any other prompt, also one that begins with a path. */
export async function run(text) {
	const [, name, rest] = /^\/([\w-]+)(?:\s+([^]*))?$/.exec(text.trim()) || [];
	if (!name || !Object.hasOwn(commands, name)) return false;
	hide();
	box.value = '';
	grow();
	if (!session && !['plan', 'model', 'help', 'sessions', 'new', 'terminal'].includes(name)) banner('There is no session yet.');
	else await act(() => commands[name][2]((rest || '').trim()));
	return true;
}

/* The commands or the files that fit what is before the caret. */
export async function suggest() {
	const mine = ++asked, before = box.value.slice(0, box.selectionStart);
	const command = /^\/([\w-]*)$/.exec(before), mention = /(^|\s)@([^\s@]*)$/.exec(before);
	let found = [];
	if (command) {
		found = Object.entries(commands).filter(([name]) => name.startsWith(command[1])).map(([name, [given, about]]) => ({ text: `/${name} ${given}`.trim(), about, put: `/${name}${given ? ' ' : ''}` }));
	} else if (mention && session) {
		const path = mention[2], [, directory, part] = /^(.*\/)?([^/]*)$/.exec(path);
		try {
			const { entries } = await read(`${here('files')}?${new URLSearchParams({ path: directory || '' })}`);
			const fits = ({ name }) => name.toLowerCase().includes(part.toLowerCase());
			const first = ({ name }) => name.toLowerCase().startsWith(part.toLowerCase()) ? 0 : 1;
			found = entries.filter(entry => fits(entry) && (part || !entry.name.startsWith('.'))).sort((a, b) => first(a) - first(b))
				.map(({ name, kind }) => ({ text: `${directory || ''}${name}${kind === 'directory' ? '/' : ''}`, about: '', from: path }))
				.map(item => ({ ...item, put: `@${item.text}${item.text.endsWith('/') ? '' : ' '}` }));
		} catch { /* nothing is suggested */ }
		if (mine !== asked) return;
	}
	items = found.slice(0, MAX_SHOWN);
	at = 0;
	draw();
}

function draw() {
	shown.hidden = !items.length;
	shown.replaceChildren(...items.map(({ text, about }, number) => {
		const item = el('li', { role: 'option', id: `suggested-${number}`, ariaSelected: String(number === at), onclick: () => take(number) }, el('b', {}, text), ` ${about}`);
		item.onmousedown = event => event.preventDefault();
		return item;
	}));
	if (items.length) box.setAttribute('aria-activedescendant', `suggested-${at}`);
	else box.removeAttribute('aria-activedescendant');
	shown.children[at]?.scrollIntoView({ block: 'nearest' });
}

function hide() {
	items = [];
	asked++;
	draw();
}

function take(number) {
	const { put, from } = items[number], caret = box.selectionStart;
	const begin = from === undefined ? 0 : caret - from.length - 1;
	box.setRangeText(put, begin, caret, 'end');
	hide();
	grow();
	if (put.endsWith('/')) suggest();
}

/* Keys that choose; `true` where the key was one. */
export function key({ key }) {
	if (!items.length) return false;
	if (key === 'ArrowDown' || key === 'ArrowUp') { at = (at + (key === 'ArrowDown' ? 1 : -1) + items.length) % items.length; draw(); } else if (key === 'Escape') hide();
	else if (key === 'Tab' || key === 'Enter' && items[at].put.trim() !== box.value.trim()) take(at);
	else return false;
	return true;
}

box.addEventListener('blur', hide);
