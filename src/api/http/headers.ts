import { z } from 'zod';

/** Headers and cursors of requests, by the names that the documentation shows. */

export const idempotencyKey = {
  'Idempotency-Key': z
    .string()
    .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1 to 255 visible ASCII characters')
    .optional()
    .meta({ description: 'makes the request safe to retry: requests with the same key and body are executed once' }),
};

const cursor = { override: { pattern: '^\\d{0,16}$' }, example: '1000002' };

export const lastEventId = {
  'Last-Event-ID': z
    .string()
    .optional()
    .meta({ description: 'the last sequence number that the client has received, as EventSource sends it', ...cursor }),
};

const cursorInQuery = z
  .string()
  .regex(/^\d{0,16}$/, 'must be a sequence number')
  .optional()
  .meta({
    description: 'the last sequence number that the client has received; `Last-Event-ID` takes precedence',
    ...cursor,
  });

/** The same in the query, for the first connection of an EventSource, which cannot set headers. */
export const afterSequenceNumber = { after_sequence_number: cursorInQuery };

/** The same for the stream of a session. */
export const after = { after: cursorInQuery };
