import mammoth from 'mammoth';
import { runReader, Unreadable } from './reader-thread.ts';
import { checkSizes, openZip } from './zip-entries.ts';

/** The first bytes of files in the older formats of Office, and of password-protected documents in the newer ones. */
const OLE = Buffer.from('d0cf11e0a1b11ae1', 'hex');

/** Reads the text of a Word document, also of its tables, with an empty line after each paragraph. */
runReader(async (task, out) => {
  const buffer = Buffer.from(task.bytes.buffer);
  if (buffer.subarray(0, OLE.length).equals(OLE)) {
    throw new Unreadable('it is protected by a password, or in the format before .docx');
  }
  await checkSizes(await openZip(buffer), task);
  out.begin('document', 'it has no text');
  const { value } = await mammoth.extractRawText({ buffer });
  out.part(value);
});
