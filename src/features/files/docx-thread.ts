import mammoth from 'mammoth';
import { runReader, Unreadable } from './reader-thread.ts';
import { checkSizes, openZip } from './zip-entries.ts';

/** The beginning of files in the older formats of Office, and of documents with a password in the newer ones. */
const OLE = Buffer.from('d0cf11e0a1b11ae1', 'hex');

/** The text of a Word document, with an empty line after each paragraph, and those of tables. */
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
