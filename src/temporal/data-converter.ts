import { fileURLToPath } from 'node:url';
import type { DataConverter, LoadedDataConverter } from '@temporalio/common';
import { decodeFailure } from '@temporalio/common/lib/internal-non-workflow/index.js';
import type { temporal } from '@temporalio/proto';
import type { Cipher } from '../encryption/cipher.ts';
import { EncryptionCodec, type Refusal } from './payload-codec.ts';

/** Also a part of the workflow bundle. */
export const FAILURE_CONVERTER_PATH = fileURLToPath(new URL('../../workflows/failure-converter.ts', import.meta.url));

/** For clients. Undefined: Temporal's own, which hides nothing. */
export function dataConverterFor(cipher: Cipher, refusal?: Refusal): DataConverter | undefined {
  if (!cipher.isOn) return undefined;
  return { payloadCodecs: [new EncryptionCodec(cipher, refusal)], failureConverterPath: FAILURE_CONVERTER_PATH };
}

/** For workers, and for replays of what they did: unless `acceptsUnencrypted`, only what is encrypted is obeyed. */
export function workerConverterFor(
  cipher: Cipher,
  { acceptsUnencrypted }: { acceptsUnencrypted: boolean },
): DataConverter | undefined {
  return dataConverterFor(cipher, acceptsUnencrypted ? 'throws' : 'marks');
}

/** What a failure in a history says, wherever it says it. */
export async function failureMessage(
  { payloadCodecs, payloadConverter }: LoadedDataConverter,
  failure: temporal.api.failure.v1.IFailure | null | undefined,
): Promise<string> {
  if (!failure) return 'unknown failure';
  const { message, encodedAttributes } = await decodeFailure(payloadCodecs, failure);
  const hidden = encodedAttributes && payloadConverter.fromPayload<{ message?: string } | null>(encodedAttributes);
  return hidden?.message || message || 'unknown failure';
}
