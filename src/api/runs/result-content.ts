import { inlineFile } from '../../blobs/store-files.ts';
import type { GivenResult } from '../../core/given-conversation.ts';
import { readResult } from '../../tools/results.ts';
import { audioType } from '../../core/audio-formats.ts';
import { sourceContent } from './supported-parts.ts';
import type { ResultContent } from './wire/parts.ts';

/**
 * The result of a call as the transcript has it, like that of an MCP tool: a text that names the files, and the files.
 * The text of a result that this server has returned names them already, and stays as it is: so the model is shown the
 * same text as in the run of the result.
 */
export function readResultContent(content: ResultContent): Pick<GivenResult, 'content' | 'files'> {
  const texts: string[] = [];
  const media: Parameters<typeof readResult>[0]['content'] = [];
  for (const part of content.flatMap((one) => (one.type === 'source' ? sourceContent(one) : [one]))) {
    if (part.type === 'text') texts.push(part.text);
    if (part.type === 'image') media.push({ type: 'image', mimeType: part.mime_type, data: part.data });
    if (part.type === 'audio') media.push({ type: 'audio', mimeType: audioType(part.format), data: part.data });
  }
  const text = texts.join('\n');
  const { text: names, files } = readResult({ content: media });
  const added = containsInOrder(text, names.split('\n')) ? '' : names;
  return {
    content: [text, added].filter((one) => one !== '').join('\n'),
    ...(files.length > 0 && { files: files.map(inlineFile) }),
  };
}

/** Whether a text contains all of these, one after the other. Each character is read once, since it may have megabytes. */
function containsInOrder(text: string, parts: string[]): boolean {
  let at = 0;
  return parts.every((part) => {
    const found = text.indexOf(part, at);
    at = found + part.length;
    return found >= 0;
  });
}
