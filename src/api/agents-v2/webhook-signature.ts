import { createHmac } from 'node:crypto';
import type { Outgoing } from '../../features/webhooks/webhook-format.ts';

/**
 * The headers with which receivers verify a message: HMAC-SHA256 over `<timestamp>.<body>`, with the text of a secret as
 * the key.
 *
 * They have room for one signature. While a replaced secret is valid, the two sign in turn: a receiver that has either
 * of them accepts the first or the second attempt.
 */
export function signatureHeaders(
  { timestamp, body, attempts }: Omit<Outgoing, 'id'>,
  secrets: [string, ...string[]],
): Record<string, string> {
  const seconds = Math.floor(timestamp / 1000);
  const secret = secrets[attempts % secrets.length] ?? secrets[0];
  const digest = createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex');
  return { 'x-h-webhook-timestamp': `${seconds}`, 'x-h-webhook-signature': `sha256=${digest}` };
}
