/* The list of sessions and races. */
const localTime = text => {
	const time = new Date(text);
	return isNaN(time) ? text : time.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
};

function rename(id, before) {
	const text = prompt('Title of the session', before);
	if (text !== null) act(async () => { await send(`/api/session/${id}/title`, { text }); list(); });
}

const remove = (id, title) => confirm(`Delete the session “${title}”, its sandbox and what it has not applied?`) && act(async () => {
	await send(`/api/session/${id}/remove`);
	if (id === session) forget();
	list();
});

const tool = (sign, ariaLabel, onclick) => el('button.quiet', { ariaLabel, title: ariaLabel.split(' ')[0], onclick }, sign);

const row = (kind, cells) => el('tr', {}, ...cells.map(cell => el(kind, {}, cell)));

export function draw({ sessions, races }) {
	$('list').replaceChildren(...sessions.map(({ id, preview, updated, status: how, model, open: isOpen }) => {
		const link = el('a', { href: `/s/${id}`, title: preview }, el('span', {}, preview || '(no prompt)'));
		link.onclick = event => { if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); if (id === session) drawer(); else open(id); } };
		link.append(el('small', {}, el('time', { dateTime: updated }, localTime(updated)), ` · ${isOpen && how === 'running' ? 'open' : how} · ${model}`));
		if (id === session) link.setAttribute('aria-current', 'true');
		return el('li', {}, link, tool('✎', `Rename ${preview}`, () => rename(id, preview)), tool('×', `Delete ${preview}`, () => remove(id, preview)));
	}), ...races.map(({ title, head, attempts }) => el('li.table', {}, el('table', {}, el('caption', {}, title),
		row('th', head), ...attempts.map(({ cells, session: id }) => row('td', [...cells, id && quiet('Open', () => open(id))]))))));
	if (!sessions.length) $('list').append(el('li.empty', {}, $('search').value ? 'None has that.' : 'There are no sessions yet.'));
}

on('search', 'input', list);
