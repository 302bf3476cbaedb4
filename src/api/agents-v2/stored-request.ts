import { z } from 'zod';
import type { FullAgent } from './wire/agent.ts';
import { userMessage } from './wire/messages.ts';
import { sessionRequest } from './wire/session.ts';

/** A request as it is stored and shown: its agent is resolved, and the overrides are applied. */
const storedRequest = sessionRequest.extend({ agent: z.custom<FullAgent>(), messages: z.array(userMessage) });

export type StoredRequest = z.infer<typeof storedRequest>;

/** The request with which a session was created, as the catalog has it. */
export function parseStored(request: string): StoredRequest {
  return storedRequest.parse(JSON.parse(request));
}
