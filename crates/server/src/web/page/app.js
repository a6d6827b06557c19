'use strict';
const $ = id => document.getElementById(id);
const md = window.trustedTypes ? trustedTypes.createPolicy('md', { createHTML: html => html }) : { createHTML: html => html };
const MAX_ITEMS = 1500, MAX_RUNS = 64, MAX_OUTPUT = 200000;
let token = '', session = '', visitor = '', facts = {}, lastId = 0, status = {}, diff = null, models = null;
let reader = null, renewing = null, wanted = 0, delay = 300, answer = null, thought = null;
let asked = 0, hasNotified = false, usesTerminals = false, queue = [], isSending = false;
const MAX_QUEUE = 20, DEFAULT = 'default model';
let calls = new Map(), runs = new Map(), hasChosen = false, parts = {}, pending = '', prompts = 0, sessions = null, reviewer = null;

/* ---- small things ---- */

function el(kind, props, ...children) {
	const [tag, ...classes] = kind.split('.'), node = document.createElement(tag);
	node.className = classes.join(' ');
	for (const [name, value] of Object.entries(props || {})) {
		if (name === 'role') node.setAttribute(name, value);
		else node[name] = value;
	}
	node.append(...children.filter(child => child != null && child !== ''));
	return node;
}

/* Text that can be scrolled by the keyboard. */
const block = (ariaLabel, text) => el('pre', { tabIndex: 0, role: 'group', ariaLabel, hidden: !text }, text);
const quiet = (text, onclick) => el('button.quiet', { onclick }, text);

/* The one place where HTML is set: it was made by the server's formatter. */
function format(node, html) {
	node.innerHTML = md.createHTML(html);
	for (const code of node.querySelectorAll('pre')) {
		const copy = quiet('Copy', () => act(async () => { await navigator.clipboard.writeText(code.textContent); copy.textContent = 'Copied'; }));
		const box = el('div.code');
		code.replaceWith(box);
		box.append(code, copy);
	}
	return node;
}

function clip(node, text, before = node.textContent) {
	const all = before + text;
	node.textContent = all.length > MAX_OUTPUT ? '… ' + all.slice(-MAX_OUTPUT / 2) : all;
	node.hidden = !all;
}

const keep = {
	get: (name, where = 'session') => { try { return window[`${where}Storage`].getItem(name) || ''; } catch { return ''; } },
	set: (name, value, where = 'session') => { try { window[`${where}Storage`].setItem(name, value); } catch { /* kept in memory only */ } },
};

function banner(text, isGood) {
	$('banner').textContent = text || '';
	$('banner').classList.toggle('good', !!isGood);
	$('banner').hidden = !text;
}

/* ---- requests ---- */

class Failed extends Error {
	constructor(code, body) {
		super(body.error || `the server answered with ${code}`);
		Object.assign(this, { code, body, text: this.message + (body.hint ? ` (${body.hint})` : '') });
	}
}

async function request(method, path, body, headers, signal) {
	const options = { method, headers: { ...headers }, cache: 'no-store', credentials: 'omit', redirect: 'error', signal };
	if (token) options.headers.Authorization = `Bearer ${token}`;
	const known = visitor;
	asked = Date.now();
	if (known) options.headers['X-Agent-Visitor'] = known;
	if (body !== undefined) {
		const isFile = body instanceof Blob;
		options.headers['Content-Type'] = `application/${isFile ? 'octet-stream' : 'json'}`;
		options.body = isFile ? body : JSON.stringify(body);
	}
	const response = await fetch(path, options);
	if (response.status === 401) login(!!token);
	if (response.ok) return response;
	const failed = new Failed(response.status, await response.json().catch(() => ({})));
	if (failed.body.visitor !== false) throw failed;
	if (known === visitor) await (renewing ||= alone(renew).finally(() => { renewing = null; }));
	return request(method, path, body, headers, signal);
}

/* A visitor that the server does not know any more begins again: once, whatever asks for it in whichever tab. */
async function alone(work) {
	let begun = false;
	const once = () => { begun = true; return work(); };
	/* A browser that keeps nothing for a site refuses locks to it too. */
	try { return await navigator.locks.request('visitor', once); } catch (error) {
		if (begun) throw error;
		return work();
	}
}

async function renew() {
	const stored = keep.get('visitor', 'local');
	visitor = stored !== visitor && stored || (await send('/api/visitor')).visitor;
	keep.set('visitor', visitor, 'local');
	if (session) forget('Your session here has ended.');
}

const here = path => `/api/session/${session}/${path}`;
const json = async (...given) => JSON.parse(await (await request(...given)).text() || '{}');
const read = path => json('GET', path);
const send = (path, body = {}) => json('POST', path, body);

/* Does what the user asked for; a failure is shown. */
async function act(work, note) {
	try {
		return await work();
	} catch (error) {
		const text = error.text || 'The server did not answer: look whether it arrived.';
		if (note) note.textContent = text;
		else banner(text);
		return null;
	}
}

function login(isWrong) {
	stopStream();
	$('wrong').hidden = !isWrong;
	if (!$('login').open) $('login').showModal();
}

/* ---- the stream ---- */

function stopStream() {
	wanted++;
	if (reader) reader.abort();
	reader = null;
}

async function stream() {
	stopStream();
	const mine = wanted;
	while (mine === wanted && session) {
		reader = new AbortController();
		try {
			const response = await request('GET', here('events'), undefined, lastId ? { 'Last-Event-ID': String(lastId) } : {}, reader.signal);
			banner('');
			delay = 300;
			await parse(response.body, () => mine === wanted);
		} catch (error) {
			if (mine !== wanted) return;
			if (error.code === 404 || error.body?.closed) return forget(error.text);
			banner(`${error.text || 'The connection is lost.'} Trying again …`);
		}
		if (mine !== wanted) return;
		await new Promise(done => setTimeout(done, delay));
		delay = Math.min(delay * 2, 5000);
	}
}

async function parse(body, isWanted) {
	const decoder = new TextDecoder(), source = body.getReader();
	let text = '';
	for (;;) {
		/* The server sends something every 15 s. */
		const { abort } = reader, silent = setTimeout(abort.bind(reader), 45000);
		const { done, value } = await source.read().finally(() => clearTimeout(silent));
		if (done || !isWanted()) return;
		text += decoder.decode(value, { stream: true });
		const frames = text.split('\n\n');
		text = frames.pop();
		const stick = isAtEnd();
		for (const frame of frames) {
			let id = 0, name = '', data = '';
			for (const line of frame.split('\n')) {
				if (line.startsWith('id: ')) id = Number(line.slice(4));
				else if (line.startsWith('event: ')) name = line.slice(7);
				else if (line.startsWith('data: ')) data += line.slice(6);
			}
			if (!handlers[name] || (id && id <= lastId)) continue;
			if (id) lastId = id;
			handlers[name](JSON.parse(data));
		}
		if (stick) toEnd();
	}
}

function forget(why) {
	stopStream();
	session = '';
	keep.set('session', '');
	if (named()) history.pushState(null, '', '/');
	clear();
	banner(why);
	list();
}

/* ---- the conversation ---- */

const log = $('log');
const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
const toEnd = () => { log.scrollTop = log.scrollHeight; };

function clear() {
	for (const node of [...log.children, ...$('runs').children]) if (node.id !== 'welcome') node.remove();
	$('welcome').hidden = false;
	$('cards').textContent = $('note').textContent = '';
	$('files').replaceChildren();
	[lastId, answer, thought, diff, status, hasChosen] = [0, null, null, null, {}, false];
	reviewer?.reset();
	calls = new Map();
	runs = new Map();
	parts = {};
	prompts = 0;
	queue = [];
	showQueue();
	showStatus();
}

function add(node) {
	$('welcome').hidden = true;
	log.append(node);
	while (log.childElementCount > MAX_ITEMS) {
		const old = log.children[1];
		if (old.classList.contains('gone')) old.nextElementSibling.remove();
		else old.replaceWith(el('p.line.cut.gone', {}, 'Earlier entries are not shown; the report has them.'));
	}
	return node;
}

function live() {
	if (!answer) {
		const done = el('div'), rest = el('div.rest', {});
		answer = { node: add(el('article.answer', {}, done, rest)), done, rest };
	}
	return answer;
}

function think(text) {
	if (!thought) {
		const body = el('div');
		thought = { node: add(el('details.thought', {}, el('summary', {}, 'Reasoning'), body)), body };
	}
	clip(thought.body, text);
}

function dropLive() {
	if (answer) answer.node.remove();
	if (thought) thought.node.remove();
	answer = thought = null;
}

function call(id, name, short, given) {
	const end = el('span.end', {}, 'running'), more = el('div'), out = block('Output');
	const whole = el('details', { open: true }, el('summary', {}, 'Call'), block('Arguments', given));
	const last = log.lastElementChild, node = el('details.call.running', {},
		el('summary', {}, el('span.name', {}, name), el('span.short', {}, short), end),
		el('div.body', {}, more, whole, out));
	/* Calls that follow each other are the steps of one group. */
	if (last.matches('.call:not(.back)')) {
		const group = last.matches('.steps') ? last : el('details.call.steps', { open: true }, el('summary', {}));
		if (group !== last) { last.replaceWith(group); group.append(last); }
		group.append(node);
		group.firstChild.textContent = `${group.childElementCount - 1} steps`;
	} else add(node);
	const entry = { node, end, out, more, whole };
	calls.set(id, entry);
	if (calls.size > MAX_ITEMS) calls.delete(calls.keys().next().value);
	return entry;
}

/* Nothing that was begun before this goes on. */
function ended() {
	for (const { node, end } of calls.values()) {
		if (node.classList.replace('running', 'failed')) end.textContent = 'did not end';
	}
}

async function artifact({ node, more, whole }, { sha256, name, media_type }) {
	const stick = isAtEnd(), path = here(`artifact/${sha256}`);
	more.append(quiet(`Download ${name}`, () => act(() => download(path, name))));
	if (/^image\/(png|jpeg|gif|webp|svg\+xml)$/.test(media_type)) {
		[node.open, whole.open] = [true, false];
		const bytes = await act(async () => (await request('GET', path)).blob());
		if (!bytes) return;
		const image = el('img', { alt: name, src: URL.createObjectURL(bytes) });
		more.prepend(image);
		await image.decode().catch(() => {});
		URL.revokeObjectURL(image.src);
	} else if (media_type.includes('html')) {
		node.open = true;
		more.prepend(quiet(`Open ${name}`, () => act(() => show({ artifact: sha256 }, name))), ' ');
	}
	if (stick) toEnd();
}

async function show(what, title) {
	const { url } = await send(here('document'), what), box = $('document');
	box.querySelector('iframe')?.remove();
	const frame = el('iframe', { title });
	frame.setAttribute('sandbox', what.scripts ? 'allow-scripts' : '');
	$('scripts').hidden = !what.artifact;
	$('scripts').onclick = () => confirm('Its scripts can send what it holds to any address, whatever the sandbox may reach. Run them?')
		&& act(() => show({ scripts: what.artifact }, title));
	frame.src = url;
	box.append(frame);
	box.showModal();
}

async function download(path, name) {
	const href = URL.createObjectURL(await (await request('GET', path)).blob());
	el('a', { href, download: name }).click();
	setTimeout(() => URL.revokeObjectURL(href), 60000);
}

const handlers = {
	now(event) {
		dropLive();
		if (event.reasoning) think(event.reasoning);
		if (event.answer.html || event.answer.rest) {
			format(live().done, event.answer.html);
			answer.rest.textContent = event.answer.rest;
		}
		for (const { id, output } of event.calls) {
			const entry = calls.get(id);
			if (entry) clip(entry.out, output, '');
		}
		for (const run of runs.values()) if (run.end.textContent === 'running') run.end.textContent = 'did not end';
		for (const { number, command, output, end } of event.commands) {
			const entry = ran(number, command, end);
			entry.end.textContent = end || 'running';
			clip(entry.out, output, '');
		}
		handlers.status(event.status);
	},
	closed() { forget('This session was closed.'); },
	status(event) {
		const key = () => JSON.stringify([status.changes, status.busy]), before = key(), hasEnded = status.busy && !event.busy;
		status = event;
		showStatus();
		if (!status.busy) for (const group of log.querySelectorAll('.steps')) group.open = !!group.querySelector('img, .edit');
		if (hasEnded) next();
		if (hasEnded) list();
		if (before !== key() && !status.busy && !$('review').hidden) reviewing().then(it => it.look());
	},
	progress({ text, done, total }) {
		banner(done < total ? `${text}: ${Math.round(100 * done / total)} %` : '', true);
	},
	sandbox_ready() { banner(''); },
	user_message({ text }) {
		ended();
		pending = '';
		const prompt = ++prompts, node = add(el('div.user', { prompt }, text));
		const back = (name, title, then) => el('button.quiet', { title, onclick: () => act(async () => {
			await send(here('rewind'), { prompt });
			banner('');
			then();
		}) }, name);
		node.after(el('div.again', {}, back('Edit', 'Go back to before this prompt, conversation and files, and change it', () => { $('prompt').value = text; grow(); $('prompt').focus(); }),
			back('Retry', 'Go back to before this prompt, conversation and files, and send it again', () => send(here('prompt'), { text }))));
		toEnd();
		/* The first prompt is the session's title. */
		if (prompt === 1) list();
	},
	answer({ text, html, rest, code }) {
		const shown = live();
		if (text !== undefined) return (shown.rest.querySelector('code') || shown.rest).append(text);
		if (html) shown.done.append(format(el('div'), html));
		if (code) format(shown.rest, code);
		else shown.rest.textContent = rest;
	},
	reasoning_delta({ text }) { think(text); },
	assistant_message({ html, text, reasoning }) {
		dropLive();
		if (reasoning) { think(reasoning); thought = null; }
		if (!html) return;
		add(format(el('article.answer', {}), html));
		$('live').textContent = text.slice(0, 2000);
	},
	answer_stopped({ reason, html }) {
		dropLive();
		/* The model keeps what it has said, and so does the page. */
		if (html) add(format(el('article.answer.stopped', {}), html));
		handlers.line({ text: `Stopped: ${reason}` });
	},
	tool_started(event) { call(event.id, event.name, event.short, event.arguments); },
	tool_output({ id, data }) {
		const entry = calls.get(id);
		if (!entry) return;
		if (!entry.out.textContent) entry.node.open = entry.opened = true;
		clip(entry.out, data);
	},
	tool_finished(event) {
		const { node, end, out, more, whole, opened } = calls.get(event.id) || call(event.id, event.name, '', '');
		if (opened && !more.children.length) node.open = false;
		for (const { path, is_new, added, removed, diff, left_out } of event.edits) {
			const lines = diff.split('\n').filter(Boolean).map(line => el(`div.${{ '+': 'a', '-': 'd', '@': 'h' }[line[0]] || 'c'}`, {}, line));
			more.append(el('div.edit', {}, el('p.line', {}, `${is_new ? 'new: ' : ''}${path} +${added} −${removed}`), el('div.diff', { role: 'group', tabIndex: 0, ariaLabel: `Changes of ${path}` }, ...lines, left_out ? el('p.line', {}, `${left_out} more lines`) : '')));
			[node.open, whole.open] = [true, false];
		}
		node.classList.remove('running');
		node.classList.add(event.ok ? 'ok' : 'failed');
		const how = event.exit_code == null ? (event.ok ? 'done' : 'failed') : `exit ${event.exit_code}`;
		end.textContent = `${how} in ${event.took}`;
		/* The end is in the title, and files are below it. */
		clip(out, event.result.replace(/^exit code 0(, [\d.]+ s)?\n?/, '').replace(/^\[file .*\]\n?/gm, ''), '');
		/* Its change says it better. */
		if (event.ok && event.edits.length) out.hidden = true;
	},
	/* What is not in the conversation any more is folded. */
	rewound({ prompt }) {
		const from = [...log.querySelectorAll('.user')].findLast(node => node.prompt === prompt);
		dropLive();
		ended();
		if (!from) return;
		const body = el('div.body', {}), rest = [];
		for (let node = from; node; node = node.nextSibling) rest.push(node);
		from.before(el('details.call.back', {}, el('summary', {}, `Went back to before: ${from.textContent.slice(0, 80)}`), body));
		body.append(...rest);
	},
	artifact(event) {
		const entry = calls.get(event.tool_call);
		if (entry) artifact(entry, event);
	},
	part({ number, text }) { (parts[number] ||= add(el('p.line', {}))).textContent = text; },
	line({ text, kind }) {
		if (kind === 'retry') dropLive();
		if (kind === 'cut') ended();
		/* A failure that repeats is one message. */
		const last = log.lastElementChild;
		const said = kind === 'retry' ? text.replace(/^[^:]*: /, '') : text;
		if (kind && last.matches(`p.line.${kind}`) && last.said === said) {
			last.times = (last.times || 1) + 1;
			last.textContent = `${text} (${last.times} times)`;
		} else add(Object.assign(el(`p.line.${kind || ''}`, {}, text), { said }));
	},
	note({ text, seq }) {
		/* A command of the user's that an earlier process ran. */
		const known = /^The user ran `([^]*?)` in the sandbox: (.*?)\. Its output:\n?([^]*)$/.exec(text);
		if (!known) return handlers.line({ text });
		const run = [...runs.values()].find(one => one.command === known[1] && !one.noted);
		if (run) { run.noted = true; return; }
		const entry = ran(`n${seq}`, known[1]);
		entry.noted = true;
		entry.end.textContent = known[2];
		clip(entry.out, known[3]);
	},
	command({ number, command }) { ran(number, command); },
	command_output({ number, text }) {
		const entry = runs.get(number);
		if (entry) clip(entry.out, text);
		$('runs').scrollTop = $('runs').scrollHeight;
	},
	command_ended({ number, end }) {
		const entry = runs.get(number);
		if (entry) entry.end.textContent = end;
	},
};

/* Of a command that has ended, the note is shown already: it is replaced. */
function ran(number, text, hasEnded) {
	if (runs.has(number)) return runs.get(number);
	const drop = key => { runs.get(key).node.remove(); runs.delete(key); };
	const note = hasEnded && [...runs.keys()].findLast(key => typeof key === 'string' && runs.get(key).command === text);
	if (note) drop(note);
	if (runs.size >= MAX_RUNS) drop(runs.keys().next().value);
	const end = el('span', {}, 'running'), out = block('Output');
	const entry = { node: el('div.run', {}, el('div', {}, el('b', {}, text), end), out), end, out, command: text, noted: !!note };
	$('runs').querySelector('.empty')?.remove();
	$('runs').append(entry.node);
	runs.set(number, entry);
	$('runs').scrollTop = $('runs').scrollHeight;
	return entry;
}

/* ---- prompts that wait for the end of the turn ---- */

function showQueue() {
	$('queue').replaceChildren(...queue.map((text, at) => el('li', {}, el('span', {}, text),
		quiet('Edit', () => { const box = $('prompt'); queue.splice(at, 1); box.value = box.value ? `${text}\n${box.value}` : text; grow(); box.focus(); showQueue(); }),
		quiet('Remove', () => { queue.splice(at, 1); showQueue(); $('prompt').focus(); }))));
}

/* The next one, after a turn that ended well: what failed or was stopped is the user's to judge first. */
async function next() {
	if (!queue.length || isSending || status.busy || status.error || !session) return;
	isSending = true;
	const [text] = queue, of = session;
	const sent = await act(() => send(here('prompt'), { text, key: crypto.randomUUID() }));
	isSending = false;
	if (!sent || of !== session) return;
	queue.shift();
	showQueue();
}

/* ---- status and questions ---- */

function showStatus() {
	const { busy, changes, error } = status, waits = !!status.questions?.length;
	document.title = `${waits ? '(waits for you) ' : busy ? '… ' : ''}agent${status.workspace ? `: ${status.workspace.split('/').pop()}` : ''}`;
	$('place').textContent = status.workspace || '';
	$('send').hidden = !!busy;
	for (const id of ['stop', 'stop-all']) $(id).hidden = !busy && !status.commands;
	const chip = (text, kind = '') => el(`li${kind}`, { title: text }, text);
	$('status').replaceChildren(...waits ? [chip('waits for you', '.waits')] : busy ? [chip('working', '.busy')] : [],
		...(status.chips || facts.limits || []).map(text => chip(text)));
	$('waiting').hidden = !waits;
	if (waits && !hasNotified && document.hidden && window.Notification?.permission === 'granted') new Notification('agent waits for you');
	hasNotified = waits;
	const files = changes ? changes.added + changes.modified + changes.deleted : 0;
	for (const node of document.querySelectorAll('.count')) node.textContent = files || '';
	showModels();
	showQuestions();
	shells();
	for (const node of document.querySelectorAll('.failure')) node.remove();
	if (error && pending && !$('prompt').value && !$('prompt').readOnly) [$('prompt').value, pending] = [pending, ''];
	if (error && !error.interrupted) {
		add(el('div.failure', { role: 'alert' }, error.error, error.hint ? el('small', {}, error.hint) : '',
			$('prompt').value ? quiet('Try again', () => $('ask').requestSubmit()) : '', quiet('New session', () => $('new').click())));
		toEnd();
	}
	for (const id of ['undo', 'redo', 'unapply', 'fork']) $(id).disabled = !session || busy;
	$('model').disabled = !!busy;
	for (const id of ['patch', 'zip', 'report']) $(id).disabled = !session;
	$('apply').disabled = !diff || !diff.files.length || busy;
	$('apply').hidden = facts.can_apply === false;
}

function showQuestions() {
	const questions = [...status.questions || []], cards = $('cards');
	if (status.planning && !status.busy) questions.unshift({ number: 'plan', text: 'Nothing is changed until you accept the plan.', plan: { '/plan accept': 'Accept and carry it out', '/plan off': 'Leave planning' } });
	const keys = questions.map(question => JSON.stringify(question));
	for (const card of [...cards.children]) {
		if (keys.includes(card.key)) continue;
		/* What was being written to a question that was answered elsewhere is not lost. */
		const words = card.isSent ? '' : card.querySelector('input').value.trim();
		card.remove();
		if (words && !$('prompt').value) { $('prompt').value = words; grow(); }
	}
	for (const [at, question] of questions.entries()) {
		const key = keys[at];
		if (question.plan) question.answers = Object.entries(question.plan).map(([value, label]) => ({ value, label }));
		const { number, text, what, diffs, answers } = question;
		if ([...cards.children].some(card => card.key === key)) continue;
		const buttons = answers.map(({ value, label }) => {
			const button = quiet(label, () => act(() => question.plan ? compose().then(it => it.run(value)) : send(here('answer'), { question: number, answer: value })));
			if (value === 'once') button.className = '';
			return button;
		});
		const about = el('div.about', {}, what && !diffs.length ? block('Call', what) : '');
		const said = el('input', { placeholder: 'or say in words what to do instead', ariaLabel: 'What to do instead', maxLength: 2000 });
		const form = el('form', {}, said, el('button.quiet', {}, question.plan ? 'Say it' : 'Refuse and say it'));
		const card = el('div.card', { role: 'group', ariaLabel: 'Question', key }, about, el('p', {}, what ? `Allow this?\n${text}` : text), el('div', {}, ...buttons), form);
		form.onsubmit = async event => {
			event.preventDefault();
			if (!said.value.trim()) return;
			card.isSent = true;
			card.isSent = await act(() => question.plan ? send(here('prompt'), { text: said.value }) : send(here('answer'), { question: number, answer: 'said', said: said.value })) !== null;
		};
		cards.append(card);
		/* It can be answered once all of it is there. */
		if (diffs?.length) {
			for (const button of buttons) button.disabled = true;
			act(async () => (await reviewing()).showCall(about, question)).finally(() => { for (const button of buttons) button.disabled = false; });
		}
	}
}

function showModels() {
	const select = $('model'), now = status.model || (session ? '…' : select.value !== '…' && select.value || DEFAULT);
	const names = [...new Set([now, ...session ? [] : [DEFAULT], ...models || []])];
	if (select.options.length === names.length && select.value === now) return;
	select.replaceChildren(...names.map(name => el('option', { value: name, selected: name === now }, name)));
}

async function loadModels() {
	if (models || !facts.version) return;
	models = [];
	try { models = (await read('/api/models')).models; } catch { /* the endpoint does not list its models */ }
	showModels();
}

/* ---- sessions ---- */

async function list() {
	const search = $('search').value, shown = await act(() => read(`/api/sessions?${new URLSearchParams({ search })}`));
	if (!shown || search !== $('search').value) return;
	facts = shown;
	$('upload').hidden = $('zip').hidden = !shown.visitors;
	$('shutdown').hidden = shown.visitors;
	$('notify').hidden = window.Notification?.permission !== 'default';
	if (shown.visitors) $('promise').textContent = 'Upload files, folders or a zip archive, and download a patch or an archive.';
	showStatus();
	(sessions ||= await import('/sessions.js')).draw(shown);
}

/* A session of this id, or a new one with the model that was chosen. */
async function open(id) {
	const model = $('model').value;
	const opened = await act(() => send('/api/sessions', id ? { session: id } : model && model !== DEFAULT ? { model } : {}));
	if (!opened) return;
	clear();
	session = opened.session;
	keep.set('session', session);
	if (named() !== session) history.pushState(null, '', `/s/${session}`);
	drawer();
	stream();
	loadModels();
	view('chat');
	list();
}

/* ---- what the user does ---- */

/* The review is loaded when it is looked at, or a question shows a change. */
const reviewing = () => import('/review.js').then(it => reviewer = it);
/* Terminals are loaded with the first one. */
const terminals = () => import('/terminal.js');
const shells = () => { if (status.terminals?.length || usesTerminals) act(async () => (await terminals()).sync()); };

/* The sessions: beside the chat, or over it where there is no room. */
const isNarrow = matchMedia('(max-width: 1100px)');
function drawer(isOpen = isNarrow.matches ? false : keep.get('side', 'local') !== 'closed') {
	$('side').hidden = !isOpen;
	$('veil').hidden = !isOpen || !isNarrow.matches;
	$('menu').ariaExpanded = String(isOpen);
	document.body.classList.toggle('wide', isOpen && !isNarrow.matches);
}

function view(name) {
	document.body.dataset.view = name;
	for (const button of $('views').children) {
		if (button.dataset.view === name) button.setAttribute('aria-current', 'true');
		else button.removeAttribute('aria-current');
	}
	if (name === 'chat') return;
	for (const tab of $('tabs').children) {
		const chosen = tab.id === `tab-${name}`;
		tab.ariaSelected = String(chosen);
		tab.tabIndex = chosen ? 0 : -1;
		$(tab.id.slice(4)).hidden = !chosen;
	}
	if (name === 'review') reviewing().then(it => it.look());
	if (name === 'terminal') shells();
	if (name === 'browse') act(async () => (await files()).show());
}

function grow() {
	const box = $('prompt');
	box.style.height = 'auto';
	box.style.height = `${box.scrollHeight + 2}px`;
}

/* The prompts and commands of the session, by the arrows: in a box that is empty or shows one of them. */
function recall(event) {
	const box = event.target, isPrompt = box.id === 'prompt';
	const all = isPrompt ? [...log.querySelectorAll('.user')].map(node => node.textContent) : [...runs.values()].map(run => run.command);
	const at = box.value && box.value === box.recalled ? box.at : all.length;
	if (event.isComposing || at === all.length && box.value) return;
	const next = at + (event.key === 'ArrowUp' ? -1 : 1);
	if (next < 0 || next > all.length) return;
	event.preventDefault();
	[box.value, box.at] = [all[next] || '', next];
	box.recalled = box.value;
	if (isPrompt) grow();
}

/* The first prompt or command begins a session. What could not be sent stays in the box. */
async function submit(box, path) {
	const text = box.value;
	if (!text.trim() || box.readOnly) return;
	box.readOnly = true;
	const sent = await act(async () => {
		if (!session) await open();
		if (!session) return null;
		if (path !== 'prompt') return send(here(path), { text });
		if (box.sent !== text) [box.sent, box.key] = [text, crypto.randomUUID()];
		pending = text;
		return send(here(path), { text, key: box.key });
	});
	box.readOnly = false;
	if (sent) { box.value = box.sent = ''; banner(''); }
	grow();
	box.focus();
}

const on = (where, event, work) => (where.addEventListener ? where : $(where)).addEventListener(event, work);
const stop = () => act(() => send(here('stop')));

on('ask', 'submit', async event => {
	event.preventDefault();
	const box = $('prompt');
	if (box.value[0] === '/' && await (await compose()).run(box.value)) return;
	if (!status.busy) return submit(box, 'prompt');
	if (!box.value.trim() || queue.length >= MAX_QUEUE) return;
	queue.push(box.value);
	box.value = '';
	grow();
	showQueue();
});
on('run', 'submit', event => { event.preventDefault(); submit($('command'), 'command'); });
/* Commands and the names of files are loaded with the first. */
let composer = null;
const compose = () => import('/compose.js').then(it => composer = it);
on('prompt', 'input', () => { grow(); if (composer || /^\/|(^|\s)@/.test($('prompt').value)) compose().then(it => it.suggest()); });
on('prompt', 'keydown', event => {
	if (composer?.key(event)) { event.preventDefault(); event.stopPropagation(); return; }
	if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); $('ask').requestSubmit(); }
	if (event.key === 'ArrowUp' || event.key === 'ArrowDown') recall(event);
});
on('command', 'keydown', event => { if (event.key === 'ArrowUp' || event.key === 'ArrowDown') recall(event); });
on('shell', 'click', () => { usesTerminals = true; act(async () => (await terminals()).start()); });
for (const id of ['stop', 'stop-all']) on(id, 'click', stop);
on('examples', 'click', event => { if (event.target.matches('button')) { $('prompt').value = event.target.textContent; grow(); $('prompt').focus(); } });
on('waiting', 'click', () => { view('chat'); $('cards').querySelector('button')?.focus(); });
on(document, 'keydown', event => {
	if (event.key === 'Escape' && !$('stop').hidden && !document.querySelector('dialog[open]') && !event.target.closest('#screens')) stop();
});
on('new', 'click', () => { forget(); drawer(); view('chat'); $('prompt').focus(); });
on('menu', 'click', () => {
	const isOpen = $('side').hidden;
	if (!isNarrow.matches) keep.set('side', isOpen ? 'open' : 'closed', 'local');
	drawer(isOpen);
	if (isOpen) { $('search').focus(); list(); }
});
on('veil', 'click', () => { drawer(false); $('menu').focus(); });
on('side', 'keydown', event => { if (event.key === 'Escape' && isNarrow.matches) { event.stopPropagation(); drawer(false); $('menu').focus(); } });
on(isNarrow, 'change', () => drawer());
on('notify', 'click', async () => { await Notification.requestPermission(); $('notify').hidden = true; });
on('model', 'focus', loadModels);
on('model', 'change', async () => { if (session && !await act(() => send(here('model'), { text: $('model').value }))) showModels(); });
on('views', 'click', event => { const button = event.target.closest('button'); if (button) view(button.dataset.view); });
on('tabs', 'click', event => { const tab = event.target.closest('button'); if (tab) view(tab.id.slice(4)); });
on('tabs', 'keydown', event => {
	const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], all = [...$('tabs').children];
	if (!step) return;
	const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
	view(next.id.slice(4));
	next.focus();
});
for (const id of ['patch', 'zip']) on(id, 'click', () => act(() => download(here(id), `${session}.${id}`), $('note')));
const files = () => import('/files.js');
on('upload', 'click', () => $('picked').click());
on('picked', 'change', () => act(async () => (await files()).upload([...$('picked').files].map(one => [[one.name, one]]))));
on(document, 'dragover', event => event.preventDefault());
on(document, 'drop', event => {
	event.preventDefault();
	/* They are not there any more once something was waited for. */
	const dropped = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry()).filter(Boolean);
	if (dropped.length) act(async () => (await files()).drop(dropped));
});
on('fork', 'click', () => act(async () => open((await send(here('fork'))).session)));
on('report', 'click', () => act(() => show('report', 'Report')));
on('shutdown', 'click', () => confirm('End the server? Its sessions can be opened again with agent web.') && act(async () => { await send('/api/shutdown'); stopStream(); banner('The server has ended.'); }));
$('document').querySelector('button').onclick = () => $('document').close();
on('login', 'close', () => {
	token = $('token').value.trim().split('#t=').pop() || token;
	$('token').value = '';
	keep.set('token', token);
	banner('');
	if (session) stream();
	list();
});
/* Visitors who do nothing are warned before what is theirs is removed. */
const LEFT = 120000;
setInterval(() => {
	if (!facts.ttl || !session || status.busy || status.commands) return;
	const left = facts.ttl * 1000 - (Date.now() - asked);
	if (left > Math.min(LEFT, facts.ttl * 500)) return;
	if (left <= 0) return banner('Your session has ended, and its files are removed.');
	banner(`Your session ends in ${Math.ceil(left / 60000)} min, because you have not used it. `);
	$('banner').append(quiet('Keep it', () => { banner(''); list(); }), ' ', quiet('Download .zip', () => $('zip').click()));
}, 5000);
/* A hidden tab gives its connection to the others: a browser has six for one server. */
let hiding = 0;
on(document, 'visibilitychange', () => {
	clearTimeout(hiding);
	if (document.hidden) hiding = setTimeout(stopStream, 10000);
	else if (session && !reader) stream();
});

/* The address of a session. What is behind # may be the token, and is removed. */
const named = () => /^\/s\/([\w-]+)$/.exec(location.pathname)?.[1] || '';

function takeToken() {
	token = new URLSearchParams(location.hash.slice(1)).get('t') || token || keep.get('token');
	keep.set('token', token);
	/* An address of an earlier version names the session behind the mark. */
	const [, former] = location.hash.match(/^#(\/s\/[\w-]+)/) || [];
	if (location.hash) history.replaceState(null, '', former || location.pathname);
}

addEventListener('popstate', () => {
	const id = named();
	if (!id && session) forget();
	else if (id && id !== session) open(id);
});
addEventListener('hashchange', () => {
	if (!location.hash) return;
	takeToken();
	$('login').close();
	if (session) stream();
	list();
});
takeToken();
session = named() || keep.get('session');
if (session) history.replaceState(null, '', `/s/${session}`);
visitor = keep.get('visitor', 'local');
drawer();
if (session) stream();
list().then(loadModels);
showStatus();
