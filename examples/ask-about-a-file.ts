// Sends a file with a question: npx node examples/ask-about-a-file.ts report.pdf "What is it about?"
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { createSession, printTurn, send } from './everturn-client.ts';

const [file = 'examples/skills/release-notes/template.md', question = 'What is this file about?'] =
  process.argv.slice(2);
const TYPES: Record<string, string> = {
  '.pdf': 'application/pdf',
  '.docx': 'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  '.zip': 'application/zip',
  '.png': 'image/png',
  '.csv': 'text/csv',
};
// Without a known type, a file is read as text if it is one.
const type = TYPES[path.extname(file)] ?? 'application/octet-stream';
const data = `data:${type};base64,${(await readFile(file)).toString('base64')}`;

const session = await createSession('demo');
const content = [
  { type: 'text', text: question },
  { type: 'file', name: path.basename(file), data },
];
const { state } = await printTurn(
  await send(`/sessions/${session}/turns`, { input: [{ type: 'user.message', content }] }),
);
console.log(`[turn] ${state?.status}`);
