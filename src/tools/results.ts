import { isUtf8 } from 'node:buffer';
import type { ContentBlock } from '@modelcontextprotocol/client';
import { type FileContent, storeFiles } from '../blobs/store-files.ts';
import type { BlobTarget } from '../blobs/offload.ts';
import { sizeText } from '../core/files.ts';
import type { WithoutId } from '../core/records/base.ts';
import type { CallKey } from '../core/tool-records.ts';
import type { CallOutcome, ToolResult } from '../mcp/call-outcome.ts';
import type { AskingCall } from '../mcp/call-rounds.ts';
import { MAX_URI_LENGTH } from '../mcp/read-resource.ts';
import type { FullText, StatefulConnection, ToolResponse } from '../core/records/results.ts';
import { truncateMiddle } from '../core/text.ts';
import { MEDIA_TYPE } from '../spec/bounds.ts';

const MAX_FILE_NAME_LENGTH = 100;

const PLAIN_MEDIA_TYPE = new RegExp(`^${MEDIA_TYPE}$`);

/** The types of binary resources whose content is text. */
const TEXT_TYPE = /^text\/|^application\/(?:json|xml|yaml|javascript|[\w.-]+\+(?:json|xml))$/;

const MIN_BASE64_LENGTH = 512;
/** MIME breaks the lines of base64 after 76 characters, PEM after 64. */
const MIN_BASE64_LINE = 60;
const DATA_URI = /^data:[\w.+/;=-]{0,200},/;
const NOT_IN_BASE64 = /[^\w+/-]/;
/** Encoded content has these. Other long words, such as sequences of DNA, are text. */
const IN_BASE64 = [/\d/, /[a-z]/, /[A-Z]/];

/** What a result consists of, before it is stored. */
interface ResultContent {
  text: string;
  files: FileContent[];
  /** Structured content as JSON, if the text does not have all of it. */
  structured?: string | undefined;
}

/** How a tool call ended, before its text and files are stored: the record of its response is made from it. */
export interface UnstoredResult
  extends Omit<ResultContent, 'files'>, Pick<ToolResponse, 'outcome' | 'foundTools' | 'noResult'> {
  files?: FileContent[];
  connection?: StatefulConnection | undefined;
}

/** A call that was cancelled after it had begun. */
export const CANCELLED: UnstoredResult = {
  outcome: 'cancelled',
  text: 'The tool call was cancelled while it ran.',
};

/** The outcome of a call to which its server has responded. */
type Responded = Extract<CallOutcome, { status: 'result' | 'rejected' }>;

export function hasResponded(outcome: CallOutcome | AskingCall): outcome is Responded {
  return outcome.status === 'result' || outcome.status === 'rejected';
}

/** The result of a call to which its server has responded. */
export function resultOf(response: Responded): UnstoredResult {
  if (response.status === 'result') return returned(response);
  const { message, connection } = response;
  return { outcome: 'failed', text: `The tool call failed: ${message}`, noResult: 'protocol', connection };
}

/** What a tool has returned. */
export function returned({ isError, foundTools, connection, ...result }: ToolResult): UnstoredResult {
  const outcome = isError ? 'failed' : 'succeeded';
  return { outcome, ...readResult(result), ...(foundTools && { foundTools }), ...(connection && { connection }) };
}

/**
 * An MCP result as a model reads it: a text, which names the files of the result, and these files. Structured content
 * is part of the text only if there is no text, image or resource: servers repeat in it what these contain (MCP,
 * "Structured Content").
 */
export function readResult({
  content,
  structuredContent,
}: Pick<ToolResult, 'content' | 'structuredContent'>): ResultContent {
  const files: FileContent[] = [];
  const addFile = (name: string, mimeType: string | undefined, base64: string): string => {
    const file = { name, mimeType: mediaType(mimeType), base64 };
    files.push(file);
    return `[${name}, ${file.mimeType}, ${sizeText(Buffer.byteLength(base64, 'base64'))}]`;
  };
  const lines = content.map((block) => {
    switch (block.type) {
      case 'text':
        return block.text;
      case 'image':
      case 'audio': {
        const name = `${block.type}-${files.length + 1}.${extension(block.mimeType)}`;
        return addFile(name, block.mimeType, block.data);
      }
      case 'resource': {
        const { resource } = block;
        if ('text' in resource) return resource.text;
        return textIn(resource) ?? addFile(fileName(resource.uri, files.length + 1), resource.mimeType, resource.blob);
      }
      case 'resource_link':
        return `[${cut(block.name, MAX_URI_LENGTH)}: ${cut(block.uri, MAX_URI_LENGTH)}]`;
    }
  });
  const textOf = () => lines.join('\n').toWellFormed();
  if (structuredContent === undefined) return { text: textOf(), files };
  const structured = stringify(structuredContent);
  if (content.some(saysSomething)) return { text: textOf(), files, structured };
  const shown = stringify(structuredContent, withoutBase64);
  lines.push(shown);
  return { text: textOf(), files, ...(shown !== structured && { structured }) };
}

/** Whether a block is one of those that structured content repeats. */
function saysSomething(block: ContentBlock): boolean {
  return block.type === 'image' || block.type === 'resource' || (block.type === 'text' && block.text !== '');
}

/** A value that JSON.parse accepted may still be nested too deep for JSON.stringify. */
function stringify(value: unknown, replacer?: (key: string, value: unknown) => unknown): string {
  try {
    return JSON.stringify(value, replacer);
  } catch {
    return '[structured content that is nested too deep to show]';
  }
}

function withoutBase64(_: string, value: unknown): unknown {
  if (typeof value !== 'string' || !isBase64(value)) return value;
  return `[base64, ${sizeText(Buffer.byteLength(value, 'base64'))}]`;
}

/** Whether a text is encoded binary content, of which a model reads nothing. */
function isBase64(text: string): boolean {
  if (text.length < MIN_BASE64_LENGTH) return false;
  const [uri = ''] = DATA_URI.exec(text) ?? [];
  const encoded = text
    .slice(uri.length)
    .trimEnd()
    .replace(/={1,2}$/, '');
  // No single pattern: those with a group per line overflow the stack of the engine.
  const lines = encoded.split(/\r?\n/);
  if (lines.some((line) => NOT_IN_BASE64.test(line))) return false;
  if (lines.slice(0, -1).some(({ length }) => length < MIN_BASE64_LINE)) return false;
  return uri !== '' || IN_BASE64.every((kind) => kind.test(encoded));
}

/** The text of a resource that is binary only by its encoding. */
function textIn({ mimeType, blob }: { mimeType?: string | undefined; blob: string }): string | undefined {
  if (!TEXT_TYPE.test(mediaType(mimeType?.split(';')[0]))) return undefined;
  const bytes = Buffer.from(blob, 'base64');
  return isUtf8(bytes) ? bytes.toString() : undefined;
}

/** The type is later written into data URIs, headers and records, so only a plain type within the limits of inputs is kept. */
function mediaType(type: string | undefined): string {
  return type && PLAIN_MEDIA_TYPE.test(type) ? type.toLowerCase() : 'application/octet-stream';
}

function extension(type: string): string {
  const subtype = mediaType(type).split('/')[1] ?? '';
  return /^(?:x-)?([a-z0-9]{1,16})/.exec(subtype)?.[1] ?? 'bin';
}

/** The last segment of the URI's path. A URI may have megabytes, as `data:` URIs do. */
function fileName(uri: string, number: number): string {
  const end = uri.search(/[?#]/);
  const path = end < 0 ? uri : uri.slice(0, end);
  const last = path.slice(path.lastIndexOf('/') + 1).slice(-MAX_FILE_NAME_LENGTH);
  const safe = last.replaceAll(/[^\w.-]+/g, '_');
  return /\w/.test(safe) ? safe : `resource-${number}`;
}

function cut(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`;
}

/**
 * A longer result is cut, measured in JSON bytes. With the link that the Sessions API appends to it, the content stays
 * below 256 KiB; the Python client breaks at events of 1 MiB.
 */
export const MAX_RESULT_BYTES = 255 * 1024;

/** The name of the file with the whole text of a result that was cut. */
const FULL_TEXT_NAME = 'result.txt';

/** The files of a result, whose entries take space in the record even if their content is in the blob store. */
const MAX_FILES = 100;
const MAX_FILES_BYTES = 32 * 1024;
/** The size of a file's entry without its name and type, which are ASCII. */
const FILE_BYTES = 150;

/** How much content of files stays in the record: half of what the history keeps of a result. */
const MAX_INLINE_BYTES = 8 * 1024;

/** Converts a tool's result to the form in which the log keeps it: large content goes to the blob store. */
export async function storeToolResult(
  { text, files, structured }: ResultContent,
  { blobs, sessionId }: BlobTarget,
): Promise<Pick<ToolResponse, 'content' | 'files' | 'fullText' | 'structuredContent'>> {
  const first = firstOf(files);
  const omittedFiles = files.length - first.length;
  const whole = omittedFiles > 0 ? `${text}\n[${omittedFiles} more files of this result were left out]` : text;
  const all = [...first, ...(structured === undefined ? [] : [structuredFile(structured)])];
  const stored = await storeFiles(all, { blobs, sessionId, maxInlineBytes: MAX_INLINE_BYTES });
  const [structuredContent] = stored.splice(first.length);
  const note = (omitted: number) => `[${omitted} characters left out; ${FULL_TEXT_NAME} has the whole result]`;
  const content = truncateMiddle(whole, MAX_RESULT_BYTES, note);
  return {
    content,
    ...(stored.length > 0 && { files: stored }),
    ...(content !== whole && { fullText: await storeFullText(whole, { blobs, sessionId }) }),
    ...(structuredContent && { structuredContent }),
  };
}

/** The record of a call's response. @param executed the arguments with which it ran, if not those of its message */
export async function storeResponse(
  { threadId, toolCallId, executed }: CallKey & { executed?: string | undefined },
  { outcome, text, files = [], structured, foundTools, noResult, connection }: UnstoredResult,
  place: BlobTarget,
): Promise<WithoutId<ToolResponse>> {
  const result = {
    ...(executed !== undefined && { arguments: executed }),
    ...(await storeToolResult({ text, files, structured }, place)),
    ...(foundTools && { foundTools }),
    ...(noResult && { noResult }),
    ...(connection && { connection }),
  };
  const at = new Date().toISOString();
  return { kind: 'tool.response', at, threadId, toolCallId, outcome, ...result };
}

/** Structured content (JSON) as a file. */
export function structuredFile(json: string): FileContent {
  return { name: 'structured.json', mimeType: 'application/json', base64: Buffer.from(json).toString('base64') };
}

async function storeFullText(text: string, { blobs, sessionId }: BlobTarget): Promise<FullText> {
  const bytes = Buffer.from(text);
  const blob = await blobs.put(sessionId, bytes);
  return {
    name: FULL_TEXT_NAME,
    mimeType: 'text/plain',
    bytes: bytes.length,
    characters: text.length,
    blob,
    sessionId,
  };
}

/** The first files, as many as fit in a record. */
function firstOf(files: FileContent[]): FileContent[] {
  let free = MAX_FILES_BYTES;
  const tooMany = files.findIndex(({ name, mimeType }, index) => {
    free -= FILE_BYTES + name.length + mimeType.length;
    return index === MAX_FILES || free < 0;
  });
  return tooMany < 0 ? files : files.slice(0, tooMany);
}
