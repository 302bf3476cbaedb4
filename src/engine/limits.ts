import type { Config } from '../config.ts';

/** What the server admits; Infinity where there is no limit. */
export type Limits = Record<keyof Config['limits'], number>;

/** The default share of the slots of agent sessions that one subject may take, the same as for turns. */
const SHARE_OF_SLOTS = 0.8;

const DEFAULTS: Omit<Limits, 'agentSessionsPerSubject'> = {
  requestsPerMinute: 1_200,
  unknownKeysPerMinute: 30,
  turnsPerSubject: 50,
  turns: 500,
  streamsPerSubject: 500,
  // The server accepts 10,000 connections; the rest are for other requests.
  streams: 9_000,
  storedMegabytesPerSubject: 0,
  kernelsPerSubject: 5,
};

/** The limits in force: as configured, else the defaults. Without keys there is one subject, and no default limit. */
export function limitsInForce(
  { limits: set, agentSessions }: Pick<Config, 'limits' | 'agentSessions'>,
  { isKeyless }: { isKeyless: boolean },
): Limits {
  const shareOfSlots = Math.max(Math.floor(SHARE_OF_SLOTS * agentSessions), 1);
  const defaults: Limits = { ...DEFAULTS, agentSessionsPerSubject: shareOfSlots };
  const limit = (name: keyof Limits): number => (set[name] ?? (isKeyless ? 0 : defaults[name])) || Infinity;
  return {
    requestsPerMinute: limit('requestsPerMinute'),
    unknownKeysPerMinute: limit('unknownKeysPerMinute'),
    turnsPerSubject: limit('turnsPerSubject'),
    turns: limit('turns'),
    streamsPerSubject: limit('streamsPerSubject'),
    streams: limit('streams'),
    agentSessionsPerSubject: limit('agentSessionsPerSubject'),
    storedMegabytesPerSubject: limit('storedMegabytesPerSubject'),
    kernelsPerSubject: limit('kernelsPerSubject'),
  };
}
