import type { ModelCallPart, ShownFiles } from '../../agents/model-call-part.ts';
import { describeFile } from '../../core/files.ts';
import type { FileText, StoredFile, UserContentPart } from '../../core/records/input.ts';
import type { UnsequencedRecord } from '../../core/records/log.ts';
import { cutPoint, fairShare } from '../../core/text.ts';
import type { TranscriptItem } from '../../core/transcript.ts';
import { extractedKind, extractionKey, fileIdOf, kindOf, type ExtractedFile } from './file-kind.ts';
import type { FileTexts, ReadText } from './file-texts.ts';
import { cutsResults, type AgentSpec } from '../../spec/agent-spec.ts';
import { READ_TOOL_RESPONSE } from '../../tools/read-tool-response.ts';

/** The JSON bytes of a file that are shown in the conversation: if a tool can read the rest, and if not. */
const SHOWN_BYTES = 64 * 1024;
const SHOWN_ALONE_BYTES = 255 * 1024;

/** All files of a message share the space of this many files: about 32,000 tokens, which compaction does not reduce. */
const FILES_PER_MESSAGE = 2;

/** The number of files per conversation from which text is extracted: each takes a thread, and an entry in a record. */
const MAX_EXTRACTED = 50;

/** How long one model call may extract texts, from each file and from all. */
const MAX_FILE_MS = 20_000;
const MAX_FILES_MS = 60_000;

/** A conversation whose files are read. */
interface ReadFiles extends ShownFiles {
  /** Images, and audio for the model, remain files; all other files are replaced by texts. */
  conversation: TranscriptItem[];
}

/** Gives models the texts of users' files. */
export function fileTextsPart(files: FileTexts): ModelCallPart {
  return {
    conversation: async (items, { spec, call: { sessionId }, records, signal }) => {
      const conversation = items.map(({ item }) => item);
      const read = await readTexts(conversation, { spec, files, sessionId, records, signal });
      return { items: items.map(({ item, at }, i) => ({ item: read.conversation[i] ?? item, at })), files: read };
    },
  };
}

interface ReadOptions {
  spec: AgentSpec;
  files: Pick<FileTexts, 'extract' | 'image' | 'beginning' | 'whole'>;
  sessionId: string;
  /** All records of the conversation. */
  records: UnsequencedRecord[];
  signal: AbortSignal;
}

/** Replaces the files that models cannot read by their texts, and extracts the texts that are not recorded yet. */
export async function readTexts(conversation: TranscriptItem[], options: ReadOptions): Promise<ReadFiles> {
  const { spec, files, sessionId, records, signal } = options;
  const extracted: FileText[] = [];
  const texts = extractedTexts(records);
  const deadline = Date.now() + MAX_FILES_MS;
  for (const unread of unreadFiles(conversation, texts)) {
    const milliseconds = Math.min(MAX_FILE_MS, deadline - Date.now());
    const text =
      milliseconds > 0
        ? await files.extract(unread, { sessionId, signal }, milliseconds)
        : { file: extractionKey(unread.file), problem: 'reading the files before it took too long' };
    texts.set(text.file, text);
    extracted.push(text);
  }
  const textOf = (file: StoredFile): FileText | undefined =>
    extractedKind(file) === undefined
      ? undefined
      : (texts.get(extractionKey(file)) ?? {
          file: extractionKey(file),
          problem: `only the first ${MAX_EXTRACTED} documents and archives of a conversation are read`,
        });
  const shown: { item: TranscriptItem; isCut: boolean }[] = [];
  // One message after the other, since all files of one message may be in memory together.
  for (const item of conversation) {
    if (item.role !== 'user' || item.content.every(({ type }) => type === 'text')) {
      shown.push({ item, isCut: false });
      continue;
    }
    const reads = item.content.map((part): Promise<ReadPart> => {
      if (part.type === 'text' || part.asAudio) return Promise.resolve(undefined);
      const isOfImage = kindOf(part) === 'image';
      return isOfImage ? files.image(part, sessionId) : files.beginning(part, sessionId, textOf(part));
    });
    shown.push(withReads(item, await Promise.all(reads), cutsResults(spec)));
  }
  const loadFile = (id: string) => {
    const file = filesOf(conversation).find((one) => fileIdOf(one) === id);
    return file && files.whole(file, sessionId, textOf(file));
  };
  return {
    conversation: shown.map(({ item }) => item),
    extracted,
    isCut: shown.some(({ isCut }) => isCut),
    loadFile,
  };
}

/** The files of a conversation whose texts still have to be extracted. */
export function unreadFiles(conversation: TranscriptItem[], texts: ReadonlyMap<string, FileText>): ExtractedFile[] {
  const files = filesOf(conversation).flatMap((file) => {
    const kind = extractedKind(file);
    return kind === undefined ? [] : [[extractionKey(file), { file, kind }] as const];
  });
  const distinct = [...new Map(files)].slice(0, MAX_EXTRACTED);
  return distinct.filter(([key]) => !texts.has(key)).map(([, found]) => found);
}

/** The extracted texts that the messages of a conversation have recorded, by the keys of their files. */
export function extractedTexts(records: UnsequencedRecord[]): Map<string, FileText> {
  const texts = records.flatMap((record) => (record.kind === 'model.message' ? (record.fileTexts ?? []) : []));
  return new Map(texts.map((text) => [text.file, text]));
}

function filesOf(conversation: TranscriptItem[]): StoredFile[] {
  return conversation.flatMap((item) =>
    item.role === 'user' ? item.content.filter((part) => part.type === 'file') : [],
  );
}

/** The content that was read for a part of a message; undefined for a text, and for audio that the model gets. */
type ReadPart = ReadText | { mimeType: string } | undefined;

function withReads(
  item: Extract<TranscriptItem, { role: 'user' }>,
  reads: ReadPart[],
  canReadRest: boolean,
): { item: TranscriptItem; isCut: boolean } {
  const maxBytes = canReadRest ? SHOWN_BYTES : SHOWN_ALONE_BYTES;
  const all = reads.flatMap((read) => (read && 'text' in read ? [read.text] : []));
  const share = Math.min(maxBytes, fairShare(all, FILES_PER_MESSAGE * maxBytes));
  let isCut = false;
  const content = item.content.map((part, i): UserContentPart => {
    const read = reads[i];
    if (!read || part.type === 'text') return part;
    if ('mimeType' in read) return { ...part, mimeType: read.mimeType };
    const title = `File ${describeFile(part)}`;
    if ('problem' in read) return { type: 'text', text: `${title}: it cannot be read: ${read.problem}.` };
    const shown = read.text.slice(0, cutPoint(read.text, 0, share));
    const lines = [`${title}:`, shown];
    if (shown.length < read.characters) {
      isCut ||= canReadRest;
      const how = canReadRest ? `; ${READ_TOOL_RESPONSE.name} reads and searches it: file ${fileIdOf(part)}` : '';
      lines.push(`[the rest, from character ${shown.length} of ${read.characters} on, is left out here${how}]`);
    }
    return { type: 'text', text: lines.join('\n') };
  });
  return { item: { ...item, content }, isCut };
}
