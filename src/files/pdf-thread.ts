import { parentPort, workerData } from 'node:worker_threads';
import { getDocumentProxy } from 'unpdf';
import { errorMessage } from '../lib/errors.ts';
import type { PdfMessage, PdfTask } from './pdf-text.ts';

/**
 * The entry point of the thread that reads one PDF file, of which everything may be hostile: it has no environment and
 * bounded memory, and is terminated if it takes too long. The library executes no scripts of a file, and is given no
 * address from which it could load anything.
 */

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- set by `readPdf`
const { bytes, maxPages, maxCharacters } = workerData as PdfTask;

function send(message: PdfMessage): void {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- the port of a thread has none
  parentPort?.postMessage(message);
}

async function read(): Promise<void> {
  const pdf = await getDocumentProxy(bytes, { enableXfa: false, verbosity: 0 });
  const pages = pdf.numPages;
  send({ pages });
  let remaining = maxCharacters;
  for (let number = 1; number <= pages; number++) {
    const page = await pdf.getPage(number);
    const { items } = await page.getTextContent();
    const text = items
      .map((item) => ('str' in item ? `${item.str}${item.hasEOL ? '\n' : ''}` : ''))
      .join('')
      .toWellFormed()
      .replaceAll('\0', '');
    page.cleanup();
    send({ text: text.slice(0, remaining) });
    remaining -= text.length;
    if (remaining < 0 || (number === maxPages && number < pages)) return send({ problem: 'the file is too long' });
  }
  send('end');
}

read().catch((error: unknown) => {
  const isLocked = error instanceof Error && error.name === 'PasswordException';
  send({ problem: isLocked ? 'it is protected by a password' : `it is damaged: ${errorMessage(error).slice(0, 200)}` });
});
