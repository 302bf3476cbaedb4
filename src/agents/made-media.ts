import type { FileContent } from '../blobs/store-files.ts';
import { audioType, type AudioFormat } from '../core/audio-formats.ts';
import type { StoredFile } from '../core/records/input.ts';
import type { MadeImage, ModelMessage, SpokenAudio } from '../core/records/message.ts';
import { ModelError } from '../models/model-error.ts';
import type { ModelChunk } from '../models/provider.ts';

/** What OpenAI's models send as samples without a header. */
const RAW = { sampleRate: 24_000, channels: 1 };

/** Limit for one message: each image is a file to store, and has a part of one result of an activity. */
const MAX_IMAGES = 64;

type Store = (file: FileContent) => Promise<StoredFile>;

/** Collects the audio and the images of a message. Live readers get them with its end: they do not grow like text. */
export class MadeMedia {
  readonly #images: NonNullable<ModelChunk['image']>[] = [];
  #audioId: string | undefined;
  #transcript = '';
  readonly #audio: Buffer[] = [];

  /** @throws ModelError if there are too many images */
  add({ image, audio }: ModelChunk): void {
    if (image) this.#images.push(image);
    if (this.#images.length > MAX_IMAGES) {
      throw new ModelError('bad_request', `the model made more than ${MAX_IMAGES} images in one message`);
    }
    if (!audio) return;
    const { id, data, transcript = '' } = audio;
    this.#audioId ??= id;
    this.#transcript += transcript;
    // Each piece is encoded by itself.
    if (data) this.#audio.push(Buffer.from(data, 'base64'));
  }

  get isEmpty(): boolean {
    return this.#images.length === 0 && this.#audio.length === 0;
  }

  /** @param format of the audio */
  async stored(format: AudioFormat, store: Store): Promise<Pick<ModelMessage, 'audio' | 'images'>> {
    const images: MadeImage[] = [];
    for (const { providerFields, ...image } of this.#images) {
      const file = await store({ name: `image-${images.length + 1}`, ...image });
      images.push({ file, ...(providerFields && { providerFields }) });
    }
    return {
      ...(images.length > 0 && { images }),
      ...(this.#audio.length > 0 && { audio: await this.#spoken(format, store) }),
    };
  }

  async #spoken(format: AudioFormat, store: Store): Promise<SpokenAudio> {
    const base64 = Buffer.concat(this.#audio).toString('base64');
    return {
      file: await store({ name: 'answer', mimeType: audioType(format), base64 }),
      transcript: this.#transcript,
      ...(this.#audioId !== undefined && { id: this.#audioId }),
      ...(format === 'linear16' && RAW),
    };
  }
}
