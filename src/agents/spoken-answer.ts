import type { FileContent } from '../blobs/store-files.ts';
import { audioType, type AudioFormat } from '../core/audio-formats.ts';
import type { SpokenAudio, StoredFile } from '../core/records.ts';
import type { ModelChunk } from '../models/provider.ts';

type AudioChunk = NonNullable<ModelChunk['audio']>;

/** What OpenAI's models send as samples without a header. */
const RAW = { sampleRate: 24_000, channels: 1 };

/** Collects what a model says. Live readers get it with the end of the message, since it is no text that grows. */
export class SpokenAnswer {
  #id: string | undefined;
  #transcript = '';
  readonly #pieces: Buffer[] = [];

  /** Each piece of the data is encoded by itself. */
  add({ id, data, transcript }: AudioChunk): void {
    this.#id ??= id;
    this.#transcript += transcript ?? '';
    if (data) this.#pieces.push(Buffer.from(data, 'base64'));
  }

  get isEmpty(): boolean {
    return this.#pieces.length === 0;
  }

  async stored(format: AudioFormat, store: (file: FileContent) => Promise<StoredFile>): Promise<SpokenAudio> {
    const base64 = Buffer.concat(this.#pieces).toString('base64');
    const file = await store({ name: 'answer', mimeType: audioType(format), base64 });
    return {
      file,
      transcript: this.#transcript,
      ...(this.#id !== undefined && { id: this.#id }),
      ...(format === 'linear16' && RAW),
    };
  }
}
