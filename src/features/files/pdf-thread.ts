import { getDocumentProxy } from 'unpdf';
import { runReader, tooLong, Unreadable } from './reader-thread.ts';

/** Reads the text of a PDF file, page by page. The library executes no scripts, and gets no URL to load from. */
runReader(async ({ bytes, maxParts }, out) => {
  const pdf = await getDocumentProxy(bytes, { enableXfa: false, verbosity: 0 }).catch((error: unknown) => {
    const isLocked = error instanceof Error && error.name === 'PasswordException';
    throw isLocked ? new Unreadable('it is protected by a password') : error;
  });
  const pages = pdf.numPages;
  out.begin(`${pages} pages`, `it has no text on ${pages} pages: they may be scanned images`);
  for (let number = 1; number <= pages; number++) {
    const page = await pdf.getPage(number);
    const { items } = await page.getTextContent();
    const text = items.map((item) => ('str' in item ? `${item.str}${item.hasEOL ? '\n' : ''}` : '')).join('');
    page.cleanup();
    out.part(text, `page ${number}`);
    if (number === maxParts && number < pages) throw tooLong();
  }
});
