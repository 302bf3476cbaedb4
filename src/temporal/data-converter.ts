import { fileURLToPath } from 'node:url';
import type { DataConverter, LoadedDataConverter } from '@temporalio/common';
import { decodeFailure } from './sdk-internals.ts';
import type { temporal } from '@temporalio/proto';
import type { Cipher } from '../encryption/cipher.ts';
import { EncryptionCodec, type RefusalMode } from './payload-codec.ts';

/** Also a part of the workflow bundle. */
export const FAILURE_CONVERTER_PATH = fileURLToPath(new URL('../../workflows/failure-converter.ts', import.meta.url));

/** The data converter of clients. Undefined without keys: Temporal's default, which encrypts nothing. */
export function dataConverterFor(cipher: Cipher, refusal?: RefusalMode): DataConverter | undefined {
  if (!cipher.isOn) return undefined;
  return { payloadCodecs: [new EncryptionCodec(cipher, refusal)], failureConverterPath: FAILURE_CONVERTER_PATH };
}

/** The data converter of workers and replays: unless `acceptsUnencrypted`, unencrypted payloads are refused. */
export function workerConverterFor(
  cipher: Cipher,
  { acceptsUnencrypted }: { acceptsUnencrypted: boolean },
): DataConverter | undefined {
  return dataConverterFor(cipher, acceptsUnencrypted ? 'throws' : 'marks');
}

/** The message of a failure in a history, decrypted if it is in the encoded attributes. */
export async function failureMessage(
  { payloadCodecs, payloadConverter }: LoadedDataConverter,
  failure: temporal.api.failure.v1.IFailure | null | undefined,
): Promise<string> {
  if (!failure) return 'unknown failure';
  const { message, encodedAttributes } = await decodeFailure(payloadCodecs, failure);
  const encoded = encodedAttributes && payloadConverter.fromPayload<{ message?: string } | null>(encodedAttributes);
  return encoded?.message || message || 'unknown failure';
}

/** The class of a failure, which is not encrypted. */
export function classOf(failure: temporal.api.failure.v1.IFailure | null | undefined): { failure?: string } {
  const type = failure?.applicationFailureInfo?.type;
  return type ? { failure: type } : {};
}
