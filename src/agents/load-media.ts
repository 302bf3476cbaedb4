import type { BlobStore } from '../blobs/blob-store.ts';
import { unlessLost } from '../blobs/offload.ts';
import { isImage, lostFile } from '../core/files.ts';
import type { StoredFile } from '../core/records/input.ts';
import type { TranscriptItem } from '../core/transcript.ts';

interface Media {
  /** A text replaces each lost file: otherwise no later model call of the session could be made. */
  transcript: TranscriptItem[];
  /** The content of a file, in base64. */
  contentOf: (file: StoredFile) => Promise<string>;
}

interface LoadOptions {
  blobs: Pick<BlobStore, 'get'>;
  sessionId: string;
  /** Called for each file that is lost, with the index of its item. */
  onLost: (file: StoredFile, index: number) => void;
}

/** Loads the images and the audio of a conversation, which models get unchanged. */
export async function loadMedia(
  transcript: TranscriptItem[],
  { blobs, sessionId, onLost }: LoadOptions,
): Promise<Media> {
  const contents = new Map<string, string>();
  const lost = new Set<string>();
  const load = async (blob: string): Promise<string> => {
    const content = contents.get(blob) ?? (await blobs.get(sessionId, blob)).toString('base64');
    contents.set(blob, content);
    return content;
  };
  const names = new Set(
    transcript.flatMap(filesOf).flatMap((file) => ('blob' in file && isMedia(file) ? file.blob : [])),
  );
  await Promise.all(
    [...names].map(async (blob) => {
      if ((await unlessLost(load(blob))) === undefined) lost.add(blob);
    }),
  );
  const isKept = (file: StoredFile) => !('blob' in file) || !lost.has(file.blob);
  if (lost.size > 0) {
    for (const [i, item] of transcript.entries()) {
      for (const file of filesOf(item)) if (!isKept(file)) onLost(file, i);
    }
  }
  return {
    transcript: lost.size > 0 ? transcript.map((item) => withoutLost(item, isKept)) : transcript,
    contentOf: (file) => ('base64' in file ? Promise.resolve(file.base64) : load(file.blob)),
  };
}

function withoutLost(item: TranscriptItem, isKept: (file: StoredFile) => boolean): TranscriptItem {
  switch (item.role) {
    case 'user':
      return {
        ...item,
        content: item.content.map((part) =>
          part.type === 'text' || isKept(part) ? part : { type: 'text', text: lostFile(part) },
        ),
      };
    case 'tool': {
      const notes = item.files.filter((file) => !isKept(file)).map(lostFile);
      return { ...item, content: [item.content, ...notes].join('\n'), files: item.files.filter(isKept) };
    }
    case 'assistant': {
      const { images, ...message } = item.message;
      const kept = images?.filter(({ file }) => isKept(file));
      return { ...item, message: { ...message, ...(kept && kept.length > 0 && { images: kept }) } };
    }
  }
}

function filesOf(item: TranscriptItem): StoredFile[] {
  if (item.role === 'user') return item.content.filter((part) => part.type === 'file');
  return item.role === 'tool' ? item.files : (item.message.images ?? []).map(({ file }) => file);
}

function isMedia(file: StoredFile): boolean {
  return isImage(file) || file.asAudio === true;
}
