/* A notebook as cells: their source, and their outputs as text and pictures. Nothing in it is run or formatted; it may hold anything. */
import { visible } from '/files.js';

const MAX_CELLS = 500, MAX_OUTPUTS = 50, MAX_TEXT = 20000, MAX_PICTURES = 100, MAX_PICTURE = 16 << 20;
const PICTURES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml'];

/* A text is one string or a list of lines. */
const text = value => {
	const all = Array.isArray(value) ? value.filter(line => typeof line === 'string').join('') : typeof value === 'string' ? value : '';
	const plain = all.replace(/\x1b\[[\d;?]*[ -/]*[@-~]/g, '');
	return visible(plain.length > MAX_TEXT ? `${plain.slice(0, MAX_TEXT)}\n… ${plain.length - MAX_TEXT} characters are left out` : plain);
};

function picture(type, value) {
	const data = Array.isArray(value) ? value.join('') : value;
	if (typeof data !== 'string' || data.length > MAX_PICTURE) return null;
	let bytes = data;
	if (type !== 'image/svg+xml') {
		try { bytes = Uint8Array.from(atob(data.replace(/\s/g, '')), one => one.charCodeAt(0)); } catch { return null; }
	}
	const image = el('img', { alt: 'Picture of an output', src: URL.createObjectURL(new Blob([bytes], { type })) });
	image.onload = () => URL.revokeObjectURL(image.src);
	image.onerror = () => image.replaceWith(el('p.empty', {}, 'The picture cannot be shown.'));
	return image;
}

function output(given, count) {
	if (given?.output_type === 'stream') return block('Output', text(given.text));
	if (given?.output_type === 'error') return block('Error', text(given.traceback?.join?.('\n')) || text(`${given.ename}: ${given.evalue}`));
	const data = given?.data || {}, type = PICTURES.find(type => data[type]);
	const image = type && count.pictures++ < MAX_PICTURES && picture(type, data[type]);
	if (image) return image;
	const shown = text(data['text/plain']) || text(data['text/markdown']) || text(data['text/html']) || text(JSON.stringify(data['application/json']));
	return shown ? block('Output', shown) : el('p.empty', {}, 'An output that cannot be shown.');
}

function cell(given, count) {
	const outputs = Array.isArray(given?.outputs) ? given.outputs : [], isCode = given?.cell_type === 'code';
	const number = Number.isInteger(given?.execution_count) ? given.execution_count : ' ', source = text(given?.source);
	return el('div.cell', { role: 'group', ariaLabel: isCode ? 'Code' : 'Text' },
		isCode ? el('small', {}, `[${number}]`) : '', isCode ? block('Code', source || ' ') : el('p.prose', {}, source),
		...outputs.slice(0, MAX_OUTPUTS).map(one => output(one, count)),
		outputs.length > MAX_OUTPUTS ? el('p.empty', {}, `${outputs.length - MAX_OUTPUTS} more outputs`) : '');
}

/* The cells of a notebook's file; null where it is none. */
export function cells(source) {
	let given;
	try { given = JSON.parse(source); } catch { return null; }
	const all = given?.cells || given?.worksheets?.[0]?.cells, count = { pictures: 0 };
	if (!Array.isArray(all)) return null;
	return el('div.notebook', {}, ...all.slice(0, MAX_CELLS).map(one => cell(one, count)),
		all.length > MAX_CELLS ? el('p.empty', {}, `${all.length - MAX_CELLS} more cells: download it to see them.`) : '');
}
