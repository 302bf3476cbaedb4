import { z } from 'zod';
import type { BlobStore } from '../blobs/blob-store.ts';
import { cutPoint } from '../core/text.ts';
import type { ToolItem, TranscriptItem } from '../core/transcript.ts';
import { errorMessage } from '../lib/errors.ts';
import { cutsResults } from '../spec/agent-spec.ts';
import type { SystemTool } from './system-tool.ts';

/** In JSON bytes. Far below the size at which a result is cut for the model, so that what was read is not cut again. */
const MAX_READ_BYTES = 32 * 1024;

const MAX_SEARCH_LENGTH = 200;
/** Matches per call, and how many characters are shown before and after each. */
const MAX_MATCHES = 20;
const AROUND_MATCH = 150;
/** Further matches are not counted. */
const MAX_COUNTED = 1_000;

/** Each read may load a result of many megabytes. */
const MAX_READS_BY_MESSAGE = 20;
const TOO_MANY_READS = `This call was not executed: a message may read at most ${MAX_READS_BY_MESSAGE} results.`;

const READ = {
  description:
    'Read or search a result of an earlier tool call, or a file of the user, of which you see only a part, or a result that was cleared. ' +
    'Positions are counted in characters from 0.',
  parameters: {
    type: 'object',
    properties: {
      tool_call_id: { type: 'string', description: 'The id that the note in a result names.' },
      file: { type: 'string', description: 'Instead of it: the id that the note in a file names.' },
      offset: { type: 'integer', minimum: 0, description: 'Where to begin; default 0.' },
      length: {
        type: 'integer',
        minimum: 1,
        description: `How many characters to read; default and maximum: as many as fit in ${MAX_READ_BYTES / 1024} KiB.`,
      },
      search: {
        type: 'string',
        minLength: 1,
        maxLength: MAX_SEARCH_LENGTH,
        description: `Find this text, in upper or lower case, instead of reading: the first ${MAX_MATCHES} matches from offset, with the text around them.`,
      },
    },
    required: [],
    additionalProperties: false,
  },
};

/**
 * Lets the model read and search the tool results and the files of its conversation that it sees in part. The activity
 * that receives the call also executes it, since it has the conversation: a thread can only read results and files of
 * its own branch.
 */
export const READ_TOOL_RESPONSE: SystemTool = {
  name: 'read_tool_response',
  offer: (spec) => (cutsResults(spec) ? READ : undefined),
  isOffered: ({ seesPart }) => seesPart,
  route: async ({ args, earlier, conversation, ...sources }) => {
    const reads = earlier.filter(({ content }) => content !== undefined).length;
    if (reads >= MAX_READS_BY_MESSAGE) return { route: { to: 'answered' }, problem: TOO_MANY_READS };
    return { route: { to: 'answered' }, ...(await readToolResponse(conversation, args, sources)) };
  },
};

/** The bounds of the tool's schema, checked again: the validation by it has a time limit and may be incomplete. */
const input = z.object({
  tool_call_id: z.string().optional(),
  file: z.string().optional(),
  offset: z.int().min(0).default(0),
  length: z.int().min(1).default(MAX_READ_BYTES),
  search: z.string().min(1).max(MAX_SEARCH_LENGTH).optional(),
});

/** The result of a call, or why there is none. */
type ReadResult = { content: string } | { problem: string };

export interface TextSources {
  loadBlob: (blob: string) => ReturnType<BlobStore['get']>;
  /** Loads the text of a file of the conversation; undefined if it has no such file. */
  loadFile: (id: string) => Promise<LoadedText> | undefined;
}

type LoadedText = { text: string } | { problem: string };

/** Executes a call. Only results and files of `conversation`, the one that the model sees, are read. */
export async function readToolResponse(
  conversation: readonly TranscriptItem[],
  args: Record<string, unknown>,
  { loadBlob, loadFile }: TextSources,
): Promise<ReadResult> {
  const parsed = input.safeParse(args);
  if (!parsed.success) return { problem: z.prettifyError(parsed.error) };
  const { tool_call_id: callId, file, offset, length, search } = parsed.data;
  if ((callId === undefined) === (file === undefined)) return { problem: 'Name either a tool_call_id or a file.' };
  let loaded: LoadedText;
  try {
    loaded = file === undefined ? await resultOf(conversation, callId, loadBlob) : await fileOf(file, loadFile);
  } catch (error) {
    return { problem: `The text cannot be read: ${errorMessage(error)}` };
  }
  if ('problem' in loaded) return loaded;
  const { text } = loaded;
  if (offset >= text.length) return { problem: `The text has ${text.length} characters: offset is behind its end.` };
  return { content: search === undefined ? read(text, offset, length) : find(text, offset, search) };
}

async function resultOf(
  conversation: readonly TranscriptItem[],
  callId = '',
  loadBlob: TextSources['loadBlob'],
): Promise<LoadedText> {
  const item = conversation.find((one): one is ToolItem => one.role === 'tool' && one.toolCallId === callId);
  if (!item) return { problem: `This conversation has no result of a tool call with the id ${callId.slice(0, 64)}.` };
  return { text: item.fullText ? (await loadBlob(item.fullText.blob)).toString() : item.content };
}

async function fileOf(id: string, loadFile: TextSources['loadFile']): Promise<LoadedText> {
  const loaded = (await loadFile(id)) ?? { problem: 'this conversation has no such file' };
  return 'problem' in loaded ? { problem: `The file cannot be read: ${loaded.problem}.` } : loaded;
}

function read(text: string, offset: number, length: number): string {
  const from = boundary(text, offset);
  const end = Math.min(
    text.length,
    from + length,
    cutPoint(text.slice(from, from + MAX_READ_BYTES), 0, MAX_READ_BYTES) + from,
  );
  const to = Math.max(boundary(text, end), from + 1);
  return `[characters ${from} to ${to} of ${text.length}]\n${text.slice(from, to)}`;
}

/** Searches for a plain text, which takes a time that is linear in the result, whatever is searched for. */
function find(text: string, offset: number, search: string): string {
  // A few letters become longer in lower case, which would move positions: then the case matters.
  const lower = text.toLowerCase();
  const [folded, sought] = lower.length === text.length ? [lower, search.toLowerCase()] : [text, search];
  const matches: string[] = [];
  let count = 0;
  let at = folded.indexOf(sought, offset);
  for (; at >= 0 && count < MAX_COUNTED; at = folded.indexOf(sought, at + sought.length)) {
    count += 1;
    if (matches.length >= MAX_MATCHES) continue;
    const from = boundary(text, Math.max(0, at - AROUND_MATCH));
    const to = boundary(text, Math.min(text.length, at + sought.length + AROUND_MATCH));
    matches.push(`[at ${at}] …${text.slice(from, to)}…`);
  }
  const counted = at >= 0 ? `more than ${count}` : `${count}`;
  return [`[${counted} matches from character ${offset} of ${text.length}]`, ...matches].join('\n');
}

/** The position, or the one before it if it is within a surrogate pair. */
function boundary(text: string, at: number): number {
  const isInPair = at > 0 && (text.codePointAt(at - 1) ?? 0) > 0xffff;
  return isInPair ? at - 1 : at;
}
