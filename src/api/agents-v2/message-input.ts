import type { InputItem } from '../../core/records/input.ts';
import { inlineFile } from '../../blobs/store-files.ts';
import { checkFiles, readFiles, type SentFile, type SourceContext } from '../http/sent-files.ts';
import type { UserMessage } from './wire/messages.ts';

/**
 * The messages in the engine's form; if they have files, a function that reads the files first.
 * @throws ApiError `invalid_data_uri` or `invalid_request`
 */
export function inputOf(messages: UserMessage[], reading: SourceContext): InputItem[] | (() => Promise<InputItem[]>) {
  const files = filesToSend(messages);
  return files.length > 0 ? async () => toInput(messages, await readFiles(files, reading)) : toInput(messages, []);
}

/** The files of messages, checked without reading them. @throws ApiError */
export function filesToSend(messages: UserMessage[]): SentFile[] {
  const files = messages.flatMap(filesOf);
  checkFiles(files);
  return files;
}

/** The messages with their files, which are read now. @throws ApiError or EngineError */
export async function readInput(messages: UserMessage[], reading: SourceContext): Promise<InputItem[]> {
  const input = inputOf(messages, reading);
  return typeof input === 'function' ? input() : input;
}

/** The files of a message, in order: its images, then its files. */
function filesOf({ images, files }: UserMessage, i: number): SentFile[] {
  return [
    ...(images ?? []).map((data, j) => ({ name: `image-${j + 1}`, data, param: `messages.${i}.images.${j}` })),
    ...(files ?? []).map(({ type, source, name, media_type: mediaType }, j) => {
      const data = type === 'url' ? source : `data:${mediaType ?? 'application/octet-stream'};base64,${source}`;
      return { name, data, param: `messages.${i}.files.${j}.source` };
    }),
  ];
}

function toInput(messages: UserMessage[], contents: Awaited<ReturnType<typeof readFiles>>): InputItem[] {
  const rest = [...contents];
  return messages.map((message, i): InputItem => {
    const own = rest.splice(0, filesOf(message, i).length);
    if (own.length === 0) return { type: 'user.message', content: message.message };
    return { type: 'user.message', content: [{ type: 'text', text: message.message }, ...own.map(inlineFile)] };
  });
}
