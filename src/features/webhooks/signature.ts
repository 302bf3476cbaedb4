import { createHmac, randomBytes } from 'node:crypto';

const PREFIX = 'whsec_';

/** Standard Webhooks recommends 24 to 64 bytes. */
const SECRET_BYTES = 32;

/** How long a secret still signs after its rotation, for receivers to switch to the new one. */
const ROTATION_MS = 24 * 3_600_000;

/** The times of a rotation now: its own, and the time until which the old secret still signs. */
export function rotatedNow(): { now: string; oldUntil: string } {
  const now = Date.now();
  return { now: new Date(now).toISOString(), oldUntil: new Date(now + ROTATION_MS).toISOString() };
}

/** A new secret, in the form of Standard Webhooks. */
export function newSecret(): string {
  return PREFIX + randomBytes(SECRET_BYTES).toString('base64');
}

/**
 * The headers of a message as in Standard Webhooks: a signature for each secret, separated by spaces. `timestamp` is
 * the time of the attempt in milliseconds since 1970; receivers reject old ones, so that a message cannot be replayed.
 */
export function signedHeaders(
  { id, timestamp, body }: { id: string; timestamp: number; body: string },
  secrets: readonly string[],
): Record<string, string> {
  const seconds = Math.floor(timestamp / 1000);
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest('base64')}`;
  });
  return { 'webhook-id': id, 'webhook-timestamp': `${seconds}`, 'webhook-signature': signatures.join(' ') };
}
