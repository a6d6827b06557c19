/* Terminals of the sandbox: xterm.js here, a shell there, a WebSocket between them. Loaded when the first one is opened. */
const MAX_CHUNK = 8192, MAX_UNTAKEN = 4, MAX_WAITING = 4 << 20, SHOWN_STEP = 32768, LINES = 5000;
const screens = new Map(), box = $('screens'), bar = $('shells');
let chosen = 0, of = '', library = null;

/* The page's policy refuses styles that are written as text, as xterm.js does: from here on they are set through objects instead. */
const { createElement } = Document.prototype, { remove, setAttribute } = Element.prototype;

function styles() {
	const node = createElement.call(document, 'template'), sheet = new CSSStyleSheet();
	document.adoptedStyleSheets.push(sheet);
	Object.defineProperty(node, 'textContent', { set: text => sheet.replaceSync(text) });
	node.remove = () => {
		document.adoptedStyleSheets = document.adoptedStyleSheets.filter(other => other !== sheet);
		remove.call(node);
	};
	return node;
}

function setStyled(name, value) {
	if (name === 'style') this.style.cssText = value;
	else setAttribute.call(this, name, value);
}

document.createElement = tag => {
	if (tag === 'style') return styles();
	const node = createElement.call(document, tag);
	if (tag === 'span') node.setAttribute = setStyled;
	return node;
};

function theme() {
	const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
	return { background: of('--panel'), foreground: of('--text'), cursor: of('--accent'), cursorAccent: of('--panel'), selectionBackground: '#7aa2f766' };
}

const sheet = href => new Promise((onload, onerror) => document.head.append(el('link', { rel: 'stylesheet', href, onload, onerror })));
const load = () => library ||= Promise.all([import('/vendor/xterm.mjs'), import('/vendor/addon-fit.mjs'), sheet('/vendor/xterm.css'), sheet('/terminal.css')])
	.catch(error => { library = null; throw error; });

class Screen {
	constructor(number, { Terminal }, { FitAddon }) {
		Object.assign(this, { number, place: 0, reported: 0, until: 0, waiting: [], waits: 0, sent: 0, taken: 0, delay: 300 });
		this.node = el('div.screen', { role: 'group', title: 'F6 leaves the terminal', hidden: true });
		this.says = el('p.says', { role: 'status', hidden: true });
		this.term = new Terminal({ scrollback: LINES, fontFamily: getComputedStyle(bar).getPropertyValue('--mono'), fontSize: 13, minimumContrastRatio: 4.5, theme: theme(), rightClickSelectsWord: true });
		this.fit = new FitAddon();
		this.term.loadAddon(this.fit);
		this.term.attachCustomKeyEventHandler(event => this.key(event));
		this.term.onData(data => this.type(new TextEncoder().encode(data)));
		this.term.onBinary(data => this.type(Uint8Array.from(data, one => one.charCodeAt(0))));
		this.term.onResize(({ cols, rows }) => this.say({ size: [cols, rows] }));
		this.button = quiet('', () => choose(number));
		this.close = quiet('×', () => act(() => send(here('terminal/close'), { terminal: number })));
		new ResizeObserver(() => this.measure()).observe(this.node);
	}

	/* Names it by its place among those that are open. */
	name(at) {
		const name = `Terminal ${at}`;
		this.button.textContent = this.node.ariaLabel = name;
		this.close.ariaLabel = `Close terminal ${at}`;
	}

	/* The keys that are the page's and not the shell's. */
	key(event) {
		if (event.type !== 'keydown') return true;
		if (event.key === 'F6') { this.button.focus(); event.preventDefault(); return false; }
		if (!event.ctrlKey || !event.shiftKey) return true;
		if (event.code === 'KeyC' && this.term.hasSelection()) {
			event.preventDefault();
			navigator.clipboard.writeText(this.term.getSelection());
		}
		return event.code !== 'KeyC' && event.code !== 'KeyV';
	}

	measure() {
		if (this.node.hidden || !this.node.clientWidth) return;
		if (!this.term.element) { this.term.open(this.node); this.node.append(this.says); }
		this.fit.fit();
	}

	async connect() {
		if (this.socket || this.ended) return;
		this.socket = {};
		const { cols: columns, rows } = this.term;
		let address;
		try { address = (await send(here('terminal'), { terminal: this.number, columns, rows })).socket; } catch (error) {
			this.socket = null;
			this.note(error.text || 'The connection is lost. Trying again …');
			if (error.code !== 409 && error.code !== 404) this.again();
			return;
		}
		const url = new URL(address, location.href);
		url.protocol = url.protocol.replace('http', 'ws');
		const socket = this.socket = new WebSocket(url);
		socket.binaryType = 'arraybuffer';
		socket.onmessage = ({ data }) => { if (socket === this.socket) typeof data === 'string' ? this.hear(JSON.parse(data)) : this.show(new Uint8Array(data)); };
		socket.onclose = () => {
			if (socket !== this.socket) return;
			this.socket = null;
			if (this.ended || document.hidden) return;
			this.note('The connection is lost. Trying again …');
			this.again();
		};
	}

	again() {
		clearTimeout(this.timer);
		this.timer = setTimeout(() => { if (screens.get(this.number) === this) this.connect(); }, this.delay);
		this.delay = Math.min(this.delay * 2, 5000);
	}

	disconnect() {
		clearTimeout(this.timer);
		const { socket } = this;
		this.socket = null;
		socket?.close?.();
	}

	note(text) {
		this.says.textContent = text;
		this.says.hidden = !text;
	}

	hear({ begin, now, taken, end }) {
		if (begin !== undefined) {
			/* What was written before is shown again; what it asked the terminal was answered then. */
			this.term.reset();
			[this.place, this.reported, this.until, this.waiting, this.waits, this.sent, this.taken] = [begin, begin, now, [], 0, 0, 0];
			this.delay = 300;
			this.note('');
			const { cols, rows } = this.term;
			this.say(begin ? { draw: [cols, rows] } : { size: [cols, rows] });
		}
		if (taken !== undefined) { this.taken = taken; this.flush(); }
		if (end !== undefined) {
			this.ended = true;
			this.note(`The shell has ended: ${end}`);
		}
	}

	show(bytes) {
		const place = this.place += bytes.length;
		this.term.write(bytes, () => {
			if (place !== this.place && place < this.reported) return;
			if (place >= this.until) this.until = 0;
			if (place - this.reported >= SHOWN_STEP) { this.reported = place; this.say({ shown: place }); }
		});
	}

	say(what) {
		if (this.socket?.readyState === 1) this.socket.send(JSON.stringify(what));
	}

	type(bytes) {
		if (this.until || this.socket?.readyState !== 1) return;
		if (this.waits + bytes.length > MAX_WAITING) return this.note('This is too much to paste: put it into a file.');
		this.waiting.push(bytes);
		this.waits += bytes.length;
		this.flush();
	}

	/* The server takes a few messages before the program has taken the first. */
	flush() {
		while (this.waiting.length && this.sent - this.taken < MAX_UNTAKEN) {
			const bytes = this.waiting.shift(), now = bytes.subarray(0, MAX_CHUNK);
			if (now.length < bytes.length) this.waiting.unshift(bytes.subarray(MAX_CHUNK));
			this.socket.send(now);
			this.sent++;
			this.waits -= now.length;
		}
	}

	drop() {
		this.disconnect();
		this.term.dispose();
		for (const node of [this.node, this.button, this.close]) node.remove();
		screens.delete(this.number);
	}
}

function choose(number) {
	chosen = number;
	$('commands').hidden = !!number;
	box.hidden = !number;
	for (const button of bar.querySelectorAll('[aria-pressed]')) button.ariaPressed = String(button === (screens.get(number)?.button || $('shell-0')));
	for (const screen of screens.values()) screen.node.hidden = screen.number !== number;
	const screen = screens.get(number);
	if (!screen) return;
	screen.measure();
	screen.connect();
	screen.term.focus();
}

async function add(number) {
	const [xterm, fit] = await load();
	if (screens.has(number)) return;
	const screen = new Screen(number, xterm, fit);
	screens.set(number, screen);
	screen.button.ariaPressed = 'false';
	$('shell').before(screen.button, screen.close);
	box.append(screen.node);
}

/* Shows the terminals that the session has now; while the tab is not shown, nothing is loaded for them. */
export async function sync() {
	if (of !== session) for (const screen of [...screens.values()]) screen.drop();
	of = session;
	const open = status.terminals || [];
	/* One that was just made is not yet in the status. */
	for (const screen of [...screens.values()]) {
		screen.isKnown ||= open.includes(screen.number);
		if (screen.isKnown && !open.includes(screen.number)) screen.drop();
	}
	if (!$('terminal').hidden) for (const number of open) if (!screens.has(number)) await add(number);
	[...screens.values()].forEach((screen, at) => screen.name(at + 1));
	$('shell').disabled = !!session && open.length >= 4;
	if (chosen && !screens.has(chosen)) choose(0);
}

/* A new terminal; the first one begins a session. */
export async function start() {
	await load();
	if (!session) { await open(); view('terminal'); }
	if (!session) return;
	await sync();
	const { terminal } = await send(here('terminal'), { columns: 80, rows: 24 });
	await add(terminal);
	[...screens.values()].forEach((screen, at) => screen.name(at + 1));
	choose(terminal);
}

$('shell-0').onclick = () => { choose(0); $('command').focus(); };
/* Keys that a phone does not have. */
box.prepend(el('div.bar.keys', { role: 'group', ariaLabel: 'Keys' }, ...Object.entries({ Esc: '\x1b', Tab: '\t', 'Ctrl-C': '\x03', 'Ctrl-D': '\x04', '↑': '\x1b[A', '↓': '\x1b[B', '←': '\x1b[D', '→': '\x1b[C' })
	.map(([name, keys]) => quiet(name, () => { const { term } = screens.get(chosen); term.input(keys); term.focus(); }))));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { for (const { term } of screens.values()) term.options.theme = theme(); });
/* A hidden tab shows nothing, and is not to hold the shells up. */
document.addEventListener('visibilitychange', () => {
	if (document.hidden) for (const screen of screens.values()) screen.disconnect();
	else screens.get(chosen)?.connect();
});
