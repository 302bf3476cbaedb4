import type { Config } from '../config.ts';

/** How much is let in; Infinity where there is no limit. */
export type Limits = Record<keyof Config['limits'], number>;

const DEFAULTS: Limits = {
  requestsPerMinute: 1_200,
  unknownKeysPerMinute: 30,
  turnsPerSubject: 50,
  turns: 500,
  streamsPerSubject: 500,
  // Of 10,000 connections; the others are for requests.
  streams: 9_000,
};
const NONE: Limits = {
  requestsPerMinute: 0,
  unknownKeysPerMinute: 0,
  turnsPerSubject: 0,
  turns: 0,
  streamsPerSubject: 0,
  streams: 0,
};

/** The limits in force: those that are set, else the usual ones; without keys there is nobody to be kept from others. */
export function limitsInForce(set: Config['limits'], { isKeyless }: { isKeyless: boolean }): Limits {
  const usual = isKeyless ? NONE : DEFAULTS;
  const limit = (name: keyof Limits): number => (set[name] ?? usual[name]) || Infinity;
  return {
    requestsPerMinute: limit('requestsPerMinute'),
    unknownKeysPerMinute: limit('unknownKeysPerMinute'),
    turnsPerSubject: limit('turnsPerSubject'),
    turns: limit('turns'),
    streamsPerSubject: limit('streamsPerSubject'),
    streams: limit('streams'),
  };
}
