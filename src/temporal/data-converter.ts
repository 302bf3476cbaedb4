import { fileURLToPath } from 'node:url';
import type { DataConverter, LoadedDataConverter } from '@temporalio/common';
import { decodeFailure } from '@temporalio/common/lib/internal-non-workflow/index.js';
import type { temporal } from '@temporalio/proto';
import type { Cipher } from '../encryption/cipher.ts';
import { EncryptionCodec } from './payload-codec.ts';

/** Also a part of the workflow bundle. */
export const HIDDEN_FAILURES = fileURLToPath(new URL('../../workflows/hidden-failures.ts', import.meta.url));

/** For clients and workers. Undefined: Temporal's own, which hides nothing. */
export function dataConverterFor(cipher: Cipher): DataConverter | undefined {
  if (!cipher.isOn) return undefined;
  return { payloadCodecs: [new EncryptionCodec(cipher)], failureConverterPath: HIDDEN_FAILURES };
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
